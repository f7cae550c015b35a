"""One candidate against the incumbent, pair by pair, until there is a verdict.

A judge is pure: the same pairs give the same verdicts, so that a trial goes on after anything by feeding it again. Its
validity needs one thing of the caller: which arm runs first is chosen by chance, pair by pair.

Theory of operation. A pair gives one *gain*, the candidate's value against the incumbent's on the scale of the
calibration, less the smallest gain that is asked for. If the candidate is no better, each gain is as likely above zero
as below, whatever the noise: the signs are fair coins. So the p-value of the gains seen is counted exactly over all
signs, with robust scores in the place of their sizes (`signed_scores`). Looking after every pair would accept by luck
sooner or later; each look therefore spends only a share of alpha (`sequential_rule.alpha_spending`), and a bound of
futility ends hopeless trials early. Being first or second within a pair has an effect of its own, which the calibration
estimates and `sequential_rule.cleared` takes out. A metric that never varied is judged by repetition instead
(`trial_verdicts`).
"""

from __future__ import annotations

import math
import re
from statistics import median
from typing import Literal

from omx_autoresearch.experiments.judge.calibration import (
    Calibration,
    detectable_effect,
    first_gains_of,
    recalibrated,
    residuals_of,
)
from omx_autoresearch.experiments.judge.metrics import Guard
from omx_autoresearch.experiments.judge.rule import (
    AcceptanceRule,
    check_rule,
    checked_value,
    effect_of,
    exact,
    exact_gain,
    gain_at,
    gain_of,
    is_out_of_reach,
    relative,
)
from omx_autoresearch.experiments.judge.sequential import can_accept, cleared, decision_of, estimate_of
from omx_autoresearch.experiments.judge.statistics import hodges_lehmann, robust_sd
from omx_autoresearch.foundation.decimals import decimal_of, shown
from omx_autoresearch.foundation.errors import StepIllegal, UsageError
from omx_autoresearch.foundation.metric_names import name_faults, normal_name
from omx_autoresearch.foundation.records import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from omx_autoresearch.foundation.types import MetricDirection


# --- What becomes of a candidate, and the two comparisons that need no statistics: of medians, and of equal repeats.
#
# Both are exact: values count as the decimals that they are printed as, so that a gain equal to the threshold is equal.

Judged = Literal["accepted", "rejected", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a candidate.

    Attributes:
        outcome: ``accepted``; ``rejected``, not better or by too little to be seen; ``inconclusive``, nobody can say.
        estimate: its gain over the incumbent, positive is better: a fraction on a ratio, else in the metric's unit.
        interval: lower and upper end around it, 95 % for a fixed number of pairs; empty where nothing can be said. A
            verdict that came early or among many claims too much: quote only the fresh check of base against final.
        pairs: how many were judged.
        minimum_detectable_effect: gain over ``min_effect`` that would have been accepted about four times in five.
        reason_code: ``improved``; ``not_better`` or ``too_small``; ``undecided``, ``underpowered`` or ``not_positive``.
        scale: ``ratio`` or ``difference``, of the three figures above.
        regime: how it was decided: ``deterministic``, ``noisy``, ``underpowered``, or ``median``.
    """

    outcome: Judged
    estimate: float
    interval: tuple[float, ...]
    pairs: int
    minimum_detectable_effect: float
    reason_code: str
    scale: str = "ratio"
    regime: str = "noisy"


def median_verdict(rule: AcceptanceRule, incumbents: Sequence[float], candidates: Sequence[float]) -> Verdict:
    """The verdict of rule ``median``: the candidate's median is better by more than ``min_effect``.

    The interval is what the extremes of both arms leave open; it has no stated coverage.
    """
    older, newer = [[exact(value) for value in arm] for arm in (incumbents, candidates)]
    gain = exact_gain(_middle(older), _middle(newer), rule.direction)
    gains = (
        exact_gain(min(older), max(newer), rule.direction),
        exact_gain(max(older), min(newer), rule.direction),
    )
    is_better = gain > exact(rule.min_effect)
    return Verdict(
        outcome="accepted" if is_better else "rejected",
        estimate=float(gain),
        interval=(float(min(gains)), float(max(gains))),
        pairs=len(older),
        minimum_detectable_effect=float(max(gains) - min(gains)) / 2,
        reason_code="improved" if is_better else "not_better",
        scale="difference",
        regime="median",
    )


def _middle(values: list[Fraction]) -> Fraction:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def repeated_verdict(
    rule: AcceptanceRule, incumbents: Sequence[float], candidates: Sequence[float], scale: str
) -> Verdict | None:
    """The verdict of a deterministic metric: exact, once both arms repeated their value; None where one did not.

    On a ratio ``min_effect`` and the estimate are fractions of the incumbent's size, so zero and negative values have
    their answer here.
    """
    if len(set(incumbents)) > 1 or len(set(candidates)) > 1:
        return None
    incumbent, candidate = exact(incumbents[0]), exact(candidates[0])
    gain = exact_gain(incumbent, candidate, rule.direction)
    threshold = exact(rule.min_effect) * (abs(incumbent) if scale == "ratio" else 1)
    estimate = relative(gain, incumbent, candidate) if scale == "ratio" else float(gain)
    is_better = gain > threshold
    return Verdict(
        outcome="accepted" if is_better else "rejected",
        estimate=estimate,
        interval=(estimate, estimate),
        pairs=len(incumbents),
        minimum_detectable_effect=0.0,
        reason_code="improved" if is_better else "not_better",
        scale=scale,
        regime="deterministic",
    )


class Judge:
    """Takes pairs of one trial until it knows.

    Args:
        rule: how to judge.
        calibration: of the same metric on the incumbent.

    Raises:
        UsageError: the rule cannot be followed on the scale of this calibration.
    """

    def __init__(self, rule: AcceptanceRule, calibration: Calibration) -> None:
        check_rule(rule)
        self._rule = rule
        self._calibration = calibration
        self._incumbents: list[float] = []
        self._candidates: list[float] = []
        self._gains: list[float] = []
        self._orders: list[int] = []
        self._verdict: Verdict | None = None
        if rule.name == "hybrid":
            self._calibration = _fitting(rule, calibration)
            self._fix(self._calibration.scale)

    def _fix(self, scale: str) -> None:
        """Take this scale for good; an empty one waits for the first pair."""
        self._scale = scale
        if not scale:
            return
        if is_out_of_reach(self._rule, scale):
            raise UsageError(
                f"no positive metric can fall by min_effect, {self._rule.min_effect!r}, on a ratio",
                next_step="give it as a fraction, 0.02 for 2 %, or take the scale `difference`",
            )
        self._threshold = gain_at(self._rule.min_effect, self._rule.direction, scale)
        self._first_gains = first_gains_of(self._calibration)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict, once there is one."""
        return self._verdict

    @property
    def pairs(self) -> int:
        """How many pairs were judged."""
        return len(self._incumbents)

    def add_pair(self, incumbent: float, candidate: float, candidate_first: bool = False) -> Verdict | None:
        """Judge one more pair.

        Args:
            incumbent: metric of the incumbent.
            candidate: metric of the candidate, measured right before or after it.
            candidate_first: whether the candidate ran first.

        Returns:
            The verdict, or None where another pair is needed.

        Raises:
            UsageError: a value is no finite number.
            StepIllegal: the judge has decided before.
        """
        if self._verdict is not None:
            raise StepIllegal(
                f"the judge has decided after {self.pairs} pairs: {self._verdict.outcome}",
                next_step="make a new judge for the next trial",
            )
        incumbent, candidate = checked_value(incumbent, "incumbent"), checked_value(candidate, "candidate")
        self._incumbents.append(incumbent)
        self._candidates.append(candidate)
        self._orders.append(1 if candidate_first else 0)
        self._verdict = self._median() if self._rule.name == "median" else self._hybrid()
        return self._verdict

    def _median(self) -> Verdict | None:
        if self.pairs < self._rule.runs:
            return None
        return median_verdict(self._rule, self._incumbents, self._candidates)

    def _hybrid(self) -> Verdict | None:
        if not self._scale:
            are_positive = self._incumbents[0] > 0.0 and self._candidates[0] > 0.0
            self._fix("ratio" if are_positive else "difference")
        if self._calibration.regime == "deterministic":
            if self.pairs == 1:
                return None
            repeated = repeated_verdict(self._rule, self._incumbents, self._candidates, self._scale)
            if self.pairs == 2 and repeated is not None:
                return repeated
        return self._noisy()

    def _noisy(self) -> Verdict | None:
        for index in range(len(self._gains), self.pairs):
            incumbent, candidate = self._incumbents[index], self._candidates[index]
            if self._scale == "ratio" and min(incumbent, candidate) <= 0.0:
                return self._without_answer("not_positive")
            gain = gain_of(incumbent, candidate, self._rule.direction, self._scale)
            self._gains.append(gain - self._threshold)
        differences = self._cleared()
        if not can_accept(self._rule, self._calibration.quick_gain):
            return self._without_answer("underpowered")
        levels = self._incumbents if self._scale == "ratio" else ()
        decision = decision_of(self._rule, differences, self._calibration.quick_gain, levels)
        if not decision:
            return None
        return self._verdict_of(differences, is_accepted=decision == "accept")

    def _cleared(self) -> Sequence[float]:
        return cleared(self._gains, self._orders, self._calibration.order_effect, self._first_gains)

    def _verdict_of(self, differences: Sequence[float], *, is_accepted: bool) -> Verdict:
        known = residuals_of(self._calibration)
        gain, *ends = estimate_of(differences, robust_sd(known))
        around = [difference - gain for difference in differences]
        smallest = detectable_effect(self._rule, robust_sd([*known, *around]), self._scale)
        outcome: Judged = "accepted"
        reason_code = "improved"
        if not is_accepted:
            outcome, reason_code = self._refusal(gain, self._effect(ends[-1]), smallest)
        return Verdict(
            outcome=outcome,
            estimate=self._effect(gain + self._threshold),
            interval=tuple(self._effect(end + self._threshold) for end in ends),
            pairs=self.pairs,
            minimum_detectable_effect=smallest,
            reason_code=reason_code,
            scale=self._scale,
            regime="underpowered" if self._calibration.regime == "underpowered" else "noisy",
        )

    def _refusal(self, gain: float, upper_effect: float, smallest: float) -> tuple[Judged, str]:
        if gain <= 0.0:
            return "rejected", "not_better"
        if self._calibration.regime == "underpowered":
            return "inconclusive", "underpowered"
        return ("rejected", "too_small") if upper_effect < smallest else ("inconclusive", "undecided")

    def _without_answer(self, reason_code: str) -> Verdict:
        known = self._calibration.minimum_detectable_effect
        return Verdict(
            outcome="inconclusive",
            estimate=self._effect(hodges_lehmann(self._gains) + self._threshold) if self._gains else 0.0,
            interval=(),
            pairs=self.pairs,
            minimum_detectable_effect=known or 0.0,
            reason_code=reason_code,
            scale=self._scale,
            regime="underpowered" if reason_code == "underpowered" else "noisy",
        )

    def _effect(self, gain: float) -> float:
        return effect_of(gain, self._rule.direction, self._scale)


def _fitting(rule: AcceptanceRule, calibration: Calibration) -> Calibration:
    """The calibration on the rule's own scale and direction, from the pairs that it keeps."""
    is_fitting = rule.scale in {"auto", calibration.scale} and rule.direction == calibration.direction
    return calibration if is_fitting else recalibrated(calibration, rule)


# --- Guards: secondary metrics that must not get worse while the primary one gets better.
#
# The rule compares medians over the runs of one trial. A guard holds where the candidate's median
#
# - is not beyond ``bound`` (for ``lower``: at most the bound; for ``higher``: at least), and
# - is worse than the incumbent's median of the same trial by no more than ``max_regression`` (in the metric's unit) or
# ``max_regression_percent`` (of the size of the incumbent's median; where that is 0, nothing worse is allowed).
#
# Exactly the bound, or exactly the allowed regression, holds; a difference below one part in 10^9 is rounding. A guard
# metric that is missing in any run of either side is a failure that says so.

_ROUNDING = 1e-9
_BOUND = re.compile(r"(?P<name>.+?)\s*(?P<sign><=|>=)\s*(?P<value>[^<>=]+)")
_REGRESSION = re.compile(r"(?P<name>.+?)\s+(?P<sign>[+-])(?P<value>[^\s%+-][^\s%]*)(?P<percent>%?)")


def guard_of(text: str) -> Guard:
    """A guard as a person writes it.

    ``p99_ms<=20`` and ``throughput>=1000`` are bounds; ``peak_bytes +5%`` and ``size_bytes +100`` allow the metric
    to grow that much, ``score -2%`` and ``score -0.01`` to fall that much.

    Raises:
        UsageError: it is none of these.
    """
    stripped = text.strip()
    guard = None
    if found := _BOUND.fullmatch(stripped):
        value = decimal_of(found["value"]).value
        direction: MetricDirection = "lower" if found["sign"] == "<=" else "higher"
        guard = None if value is None else Guard(found["name"], bound=value, direction=direction)
    elif found := _REGRESSION.fullmatch(stripped):
        value = decimal_of(found["value"]).value
        direction = "lower" if found["sign"] == "+" else "higher"
        if found["percent"]:
            guard = Guard(found["name"], max_regression_percent=value, direction=direction)
        else:
            guard = Guard(found["name"], max_regression=value, direction=direction)
    faults = guard_faults(guard) if guard else ["it is neither a bound nor an allowed regression"]
    if guard is None or faults:
        raise UsageError(
            f"the guard {shown(text)} cannot be read: {faults[0]}",
            next_step="write e.g. 'p99_ms<=20', 'throughput>=1000', 'peak_bytes +5%' or 'score -0.01'",
        )
    return guard


def guard_faults(guard: Guard) -> list[str]:
    """Why a guard cannot stand; empty when it can."""
    faults = name_faults(guard.name)
    limits = (guard.bound, guard.max_regression, guard.max_regression_percent)
    if all(limit is None for limit in limits):
        faults.append(f"the guard on {shown(guard.name)} names neither a bound nor a largest regression")
    if any(limit is not None and not math.isfinite(limit) for limit in limits):
        faults.append(f"the guard on {shown(guard.name)} has a limit that is no finite number")
    if any(limit is not None and limit < 0 for limit in limits[1:]):
        faults.append(
            f"the guard on {shown(guard.name)} has a negative regression; name how much worse it may get"
        )
    return faults


def guard_failures(
    guards: Sequence[Guard],
    incumbent: Mapping[str, Sequence[float]],
    candidate: Mapping[str, Sequence[float]],
) -> tuple[str, ...]:
    """Why guards do not hold, a sentence each; empty when all hold.

    Args:
        guards: of the experiment.
        incumbent: the samples of the incumbent in this trial, by metric; NaN for a run that lacked it
            (:func:`.metrics.samples_of`).
        candidate: those of the candidate.
    """
    return tuple(
        reason for guard in guards if (reason := _failure(guard, _median_of(guard, incumbent), candidate))
    )


def _failure(guard: Guard, incumbent: float | str, candidate: Mapping[str, Sequence[float]]) -> str:
    now = _median_of(guard, candidate)
    if isinstance(now, str):
        return f"guard {guard.name}: {now} of the candidate"
    is_lower = guard.direction == "lower"
    if guard.bound is not None:
        beyond = now - guard.bound if is_lower else guard.bound - now
        if beyond > _ROUNDING * max(abs(now), abs(guard.bound)):
            word = "at most" if is_lower else "at least"
            return f"guard {guard.name}: the median is {now:g}, {word} {guard.bound:g} is allowed"
    if guard.max_regression is None and guard.max_regression_percent is None:
        return ""
    if isinstance(incumbent, str):
        return f"guard {guard.name}: {incumbent} of the incumbent"
    worse = now - incumbent if is_lower else incumbent - now
    allowances = _allowances(guard, incumbent)
    for allowed, told in allowances:
        if worse - allowed > _ROUNDING * max(abs(now), abs(incumbent)):
            return (
                f"guard {guard.name}: the median went from {incumbent:g} to {now:g}, {told} worse is allowed"
            )
    return ""


def _allowances(guard: Guard, incumbent: float) -> list[tuple[float, str]]:
    found = []
    if guard.max_regression is not None:
        found.append((guard.max_regression, f"{guard.max_regression:g}"))
    if guard.max_regression_percent is not None:
        percent = guard.max_regression_percent
        found.append((abs(incumbent) * percent / 100, f"{percent:g} %"))
    return found


def _median_of(guard: Guard, samples: Mapping[str, Sequence[float]]) -> float | str:
    """The median, or what is missing."""
    name = normal_name(guard.name)
    values = samples.get(name, ())
    missing = sum(not math.isfinite(value) for value in values)
    if not values:
        return "the metric is missing in every run"
    if missing:
        return f"the metric is missing in {missing} of {len(values)} runs"
    return float(median(values))
