"""One candidate against the incumbent, pair by pair, until there is a verdict.

A judge is pure: the same pairs give the same verdicts, so that a trial goes on after anything by feeding it again. Its
validity needs one thing of the caller: which arm runs first is chosen by chance, pair by pair.

Theory of operation. A pair gives one *gain*, the candidate's value against the incumbent's on the scale of the
calibration, less the smallest gain that is asked for. If the candidate is no better, each gain is as likely above zero
as below, whatever the noise: the signs are fair coins. So the p-value of the gains seen is counted exactly over all
signs, with robust scores in the place of their sizes (`statistics.scores_of`). Looking after every pair would accept by
luck sooner or later; each look therefore spends only a share of alpha (`alpha_spending`), and a bound of futility ends
hopeless trials early. Being first or second within a pair has an effect of its own, which the calibration estimates and
`cleared` takes out. A metric that never varied is judged by repetition instead (`repeated_verdict`).
"""

from __future__ import annotations

import math
from functools import lru_cache
from math import sqrt
from typing import Literal

from omx_autoresearch.experiments.judge import statistics
from omx_autoresearch.experiments.judge.calibration import (
    FINAL_SHARE,
    ORDER_PAIRS,
    AcceptanceRule,
    Calibration,
    check_rule,
    checked_value,
    columns_of,
    detectable_effect,
    effect_of,
    exact,
    exact_gain,
    first_gains_of,
    gain_at,
    gain_of,
    is_out_of_reach,
    order_gains,
    proven_order_effect,
    recalibrated,
    relative,
    residuals_of,
)
from omx_autoresearch.experiments.judge.metrics import Guard
from omx_autoresearch.experiments.judge.state import Claim
from omx_autoresearch.foundation.errors import StepIllegal, UsageError
from omx_autoresearch.foundation.metric_texts import name_faults, normal_name
from omx_autoresearch.foundation.records import dataclass, replace
from omx_autoresearch.foundation.text import count_of, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


FIRST_LOOK = 4
LOOK_SHARE, LOOK_POWER = 0.22, 1.5
"""The share of alpha that an early look may spend; it grows with the share of pairs that were measured."""

QUICK_FACTORS = {3: 3.0, 4: 2.0, 5: 1.5, 6: 1.0, 7: 0.8, 8: 0.6}
"""By the number of pairs: how many times the usual A/A difference the smallest gain must be, all being favourable."""
QUICK_RATIOS = {3: 1.5, 4: 1.8, 5: 2.2, 6: 2.6, 7: 3.0, 8: 4.0}
"""By the number of pairs: how many times the smallest gain the largest may be. Noise that grew after calibration makes
large differences, but seldom alike: with it alone 1.1 % of normal noise of any size would pass."""
QUICK_ALPHA = 0.005
"""Early acceptance does not scale with alpha; below this it is off."""

FEW = 6
"""Fewer pairs have no distribution-free 95 % interval."""


@lru_cache(maxsize=64)
def alpha_spending(alpha: float, max_pairs: int) -> tuple[tuple[float, float], ...]:
    """For 0 to ``max_pairs`` pairs: the p-value at which a look accepts, and the bound of futility.

    Spending alpha look by look follows K. K. G. Lan and D. L. DeMets, "Discrete sequential boundaries for clinical
    trials", Biometrika 70 (1983). The bound of futility is that of the z statistic times the root of the pairs: at or
    below it an acceptance became unlikely, since the trend is against the candidate, or the pairs that are left can
    hardly reach the bound of the last look any more.
    """
    # Futility is bounded twice, for 30 pairs; other numbers scale as the width of a random walk does, with the root.
    # -2.9 + 0.38 n is the lower boundary ln(b) / d + d n / 2 of Wald's sequential probability ratio test ("Sequential
    # tests of statistical hypotheses", Annals of Mathematical Statistics 16, 1945) of no drift against a drift of
    # d = 0.76 a pair, with b = 0.11: about the gain that 30 pairs detect four times in five (`DETECTABLE`). The second
    # bound asks whether the rest can still reach the last look, if each pair left brought 1.7 typical scores. What the
    # rule accepts and misses with these is simulated in benchmarks/acceptance.py.
    root = sqrt(max_pairs / 30)
    goal = sqrt(max_pairs) * statistics.normal_quantile(1 - FINAL_SHARE * alpha)
    looks = []
    for pairs in range(max_pairs + 1):
        share = LOOK_SHARE * (pairs / max_pairs) ** LOOK_POWER if pairs < max_pairs else FINAL_SHARE
        futile = max(-2.9 * root + 0.38 * pairs / root, goal - 1.7 * (max_pairs - pairs) / root)
        looks.append((share * alpha, futile))
    return tuple(looks)


def decision_of(
    rule: AcceptanceRule, differences: Sequence[float], quick_gain: float, levels: Sequence[float] = ()
) -> str:
    """``accept``, ``stop`` (no acceptance will come) or an empty string: another pair is needed.

    Args:
        rule: alpha, the number of pairs, and whether futility stops.
        differences: gains over the threshold, cleared of the order effect, in the order of the pairs.
        quick_gain: what most A/A differences stay below; 0.0 turns early acceptance off.
        levels: on the ratio scale, the incumbent's values: then the gain must hold in the metric's own unit as well. A
            candidate of the same mean that is only more erratic looks better on logarithms than it is.
    """
    pairs = len(differences)
    if is_quick(rule, differences, quick_gain):
        return "accept"
    is_last = pairs >= rule.max_pairs
    if pairs < FIRST_LOOK:
        return "stop" if is_last else ""
    allowed, futile = alpha_spending(rule.alpha, rule.max_pairs)[pairs]
    scores = statistics.scores_of([abs(difference) for difference in differences])
    z = statistics.z_statistic(differences, scores)
    # No p-value of a half or more is ever allowed, and a smaller one needs a z statistic above zero.
    if (
        z > 0.0
        and statistics.exact_p_value(differences, scores) <= allowed
        and _holds(rule, differences, levels, allowed)
    ):
        return "accept"
    return "stop" if is_last or (rule.has_futility and z * sqrt(pairs) <= futile) else ""


def _holds(
    rule: AcceptanceRule, differences: Sequence[float], levels: Sequence[float], allowed: float
) -> bool:
    """Whether gains on logarithms are gains in the metric's own unit, at the same p-value."""
    if not levels:
        return True
    own = [
        level * effect_of(difference, rule.direction, "ratio")
        for level, difference in zip(levels, differences, strict=True)
    ]
    return statistics.exact_p_value(own, statistics.scores_of([abs(gain) for gain in own])) <= allowed


def is_quick(rule: AcceptanceRule, differences: Sequence[float], quick_gain: float) -> bool:
    """True where every gain is favourable, beyond what A/A pairs show, and all are alike."""
    pairs = len(differences)
    if pairs not in QUICK_FACTORS or quick_gain <= 0.0 or rule.alpha < QUICK_ALPHA:
        return False
    smallest = min(differences)
    return (
        smallest >= QUICK_FACTORS[pairs] * quick_gain and max(differences) <= QUICK_RATIOS[pairs] * smallest
    )


def can_accept(rule: AcceptanceRule, quick_gain: float) -> bool:
    """False where not even a gain in every pair would be accepted within ``max_pairs``."""
    is_quick_possible = (
        quick_gain > 0.0 and rule.alpha >= QUICK_ALPHA and rule.max_pairs >= min(QUICK_FACTORS)
    )
    is_countable = rule.max_pairs >= FIRST_LOOK and 0.5**rule.max_pairs <= FINAL_SHARE * rule.alpha
    return is_quick_possible or is_countable


def cleared(
    gains: Sequence[float], orders: Sequence[int], order_effect: float, calibrated: Sequence[float]
) -> Sequence[float]:
    """Gains without what the order inside a pair did to them.

    The correction never sees which arm was which, so signs stay fair coins. An order that never changed cannot be told
    from an effect: then only the most that calibration leaves open is taken off, where that is against the candidate.

    Args:
        gains: of the candidate, pair by pair.
        orders: 1 where the candidate ran first, else 0.
        order_effect: as calibration proved it; 0.0 where it did not.
        calibrated: the A/A pairs' gains of whichever arm ran first; pooled with those at hand.
    """
    if not 0 < sum(orders) < len(orders):
        against = _against(orders[0], calibrated)
        return [gain - against for gain in gains] if against else gains
    if len(gains) >= ORDER_PAIRS:
        first_gains = order_gains(gains, orders)
        pooled = [*calibrated, *first_gains]
        order_effect = statistics.hodges_lehmann(pooled) if order_effect else proven_order_effect(first_gains)
    if not order_effect:
        return gains
    return [
        gain - order_effect if order else gain + order_effect
        for gain, order in zip(gains, orders, strict=True)
    ]


def _against(order: int, calibrated: Sequence[float]) -> float:
    """The most that a fixed order may give the candidate: the far end of the interval, if that excludes zero."""
    if len(calibrated) < ORDER_PAIRS:
        return 0.0
    _, low, high = estimate_of(calibrated, 0.0)
    if low <= 0.0 <= high:
        return 0.0
    return max(0.0, high if order else -low)


def estimate_of(differences: Sequence[float], deviation: float) -> tuple[float, float, float]:
    """The Hodges-Lehmann estimate of ``differences`` and its interval of 95 %.

    From six pairs on it is the distribution-free one. With fewer it leans on ``deviation``, the standard deviation of
    a pair as calibration and the pairs at hand show it.
    """
    averages = statistics.walsh_averages(differences)
    estimate = statistics.median(averages)
    if len(differences) >= FEW:
        cut = statistics.ci_rank(len(differences))
        return estimate, averages[cut], averages[-1 - cut]
    wide = max(deviation, statistics.robust_sd([difference - estimate for difference in differences]))
    reach = 2.2 * wide / sqrt(len(differences))
    return estimate, estimate - reach, estimate + reach


# --- What becomes of a candidate, and the two comparisons that need no statistics: of medians, and of equal repeats.
#
# Both are exact: values count as the decimals that they are printed as, so that a gain equal to the threshold is equal.

Judged = Literal["accepted", "rejected", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a candidate.

    Attributes:
        outcome: ``accepted``; ``rejected``, not better or by too little to be seen; ``inconclusive``.
        estimate: its gain over the incumbent, positive is better: a fraction on a ratio, else in the metric's unit.
        interval: lower and upper end around it, 95 % for a fixed number of pairs; empty where nothing can be said. A
            verdict that came early or among many claims too much: quote only the fresh check of base against final.
        pairs: how many were judged.
        minimum_detectable_effect: gain over ``min_effect`` that would have been accepted about four times in five.
        reason_code: ``improved``; ``not_better`` or ``too_small``; ``undecided``, ``underpowered`` or ``not_positive``.
        scale: ``ratio`` or ``difference``, of the three figures above.
    """

    outcome: Judged
    estimate: float
    interval: tuple[float, ...]
    pairs: int
    minimum_detectable_effect: float
    reason_code: str
    scale: str = "ratio"


def median_verdict(rule: AcceptanceRule, incumbents: Sequence[float], candidates: Sequence[float]) -> Verdict:
    """The verdict of rule ``median``: the candidate's median is better by more than ``min_effect``.

    The interval is what the extremes of both arms leave open; it has no stated coverage.
    """
    older, newer = [[exact(value) for value in arm] for arm in (incumbents, candidates)]
    gain = exact_gain(statistics.median(older), statistics.median(newer), rule.direction)
    gains = [
        exact_gain(old, new, rule.direction)
        for old, new in ((min(older), max(newer)), (max(older), min(newer)))
    ]
    is_better = gain > exact(rule.min_effect)
    return Verdict(
        outcome="accepted" if is_better else "rejected",
        estimate=float(gain),
        interval=(float(min(gains)), float(max(gains))),
        pairs=len(older),
        minimum_detectable_effect=float(max(gains) - min(gains)) / 2,
        reason_code="improved" if is_better else "not_better",
        scale="difference",
    )


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
                f"no positive metric can fall by min_effect, {self._rule.min_effect!r}, on the ratio scale",
                next_step="give it as a fraction, 0.02 for 2 %, or use the scale `difference`",
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
            UsageError: a value is not a finite number.
            StepIllegal: the judge has decided before.
        """
        if self._verdict is not None:
            raise StepIllegal(
                f"the judge has decided after {count_of(self.pairs, 'pair')}: {self._verdict.outcome}",
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
        effect = self._calibration.order_effect
        differences = cleared(self._gains, self._orders, effect, self._first_gains)
        if not can_accept(self._rule, self._calibration.quick_gain):
            return self._without_answer("underpowered")
        levels = self._incumbents if self._scale == "ratio" else ()
        decision = decision_of(self._rule, differences, self._calibration.quick_gain, levels)
        if not decision:
            return None
        return self._verdict_of(differences, is_accepted=decision == "accept")

    def _verdict_of(self, differences: Sequence[float], *, is_accepted: bool) -> Verdict:
        known = residuals_of(self._calibration)
        gain, *ends = estimate_of(differences, statistics.robust_sd(known))
        around = [difference - gain for difference in differences]
        smallest = detectable_effect(self._rule, statistics.robust_sd([*known, *around]), self._scale)
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
        )

    def _refusal(self, gain: float, upper_effect: float, smallest: float) -> tuple[Judged, str]:
        if gain <= 0.0:
            return "rejected", "not_better"
        if self._calibration.regime == "underpowered":
            return "inconclusive", "underpowered"
        return ("rejected", "too_small") if upper_effect < smallest else ("inconclusive", "undecided")

    def _without_answer(self, reason_code: str) -> Verdict:
        gain = statistics.hodges_lehmann(self._gains) + self._threshold if self._gains else 0.0
        return Verdict(
            outcome="inconclusive",
            estimate=self._effect(gain),
            interval=(),
            pairs=self.pairs,
            minimum_detectable_effect=self._calibration.minimum_detectable_effect or 0.0,
            reason_code=reason_code,
            scale=self._scale,
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


def guard_faults(guard: Guard) -> list[str]:
    """The faults of a guard."""
    faults = name_faults(guard.name)
    limits = (guard.bound, guard.max_regression, guard.max_regression_percent)
    if all(limit is None for limit in limits):
        faults.append(f"the guard on {quoted(guard.name)} names neither a bound nor a largest regression")
    if any(limit is not None and not math.isfinite(limit) for limit in limits):
        faults.append(f"the guard on {quoted(guard.name)} has a limit that is not a finite number")
    if any(limit is not None and limit < 0 for limit in limits[1:]):
        faults.append(
            f"the guard on {quoted(guard.name)} has a negative regression; say how much worse it may get"
        )
    return faults


def guard_failures(
    guards: Sequence[Guard],
    incumbent: Mapping[str, Sequence[float]],
    candidate: Mapping[str, Sequence[float]],
) -> tuple[str, ...]:
    """The guards that do not hold, a sentence each.

    Args:
        guards: of the experiment.
        incumbent: the samples of the incumbent in this trial, by metric; NaN for a run that lacked it
            (:func:`.metrics.samples_of`).
        candidate: those of the candidate.
    """
    failures = (
        _failure(guard, _median_of(guard, incumbent), _median_of(guard, candidate)) for guard in guards
    )
    return tuple(filter(None, failures))


def _failure(guard: Guard, incumbent: float | str, now: float | str) -> str:
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
    limits = ((guard.max_regression, 1.0, ""), (guard.max_regression_percent, abs(incumbent) / 100, " %"))
    for limit, unit, sign in limits:
        if limit is not None and worse - limit * unit > _ROUNDING * max(abs(now), abs(incumbent)):
            change = f"the median went from {incumbent:g} to {now:g}"
            return f"guard {guard.name}: {change}, at most {limit:g}{sign} worse is allowed"
    return ""


def _median_of(guard: Guard, samples: Mapping[str, Sequence[float]]) -> float | str:
    """The median, or what is missing."""
    name = normal_name(guard.name)
    values = samples.get(name, ())
    missing = sum(not math.isfinite(value) for value in values)
    if not values:
        return "the metric is missing in every run"
    if missing:
        return f"the metric is missing in {missing} of {count_of(len(values), 'run')}"
    return float(statistics.median(values))


def claim(
    pairs: Sequence[tuple[float, float] | tuple[float, float, bool]],
    rule: AcceptanceRule,
    calibration: Calibration | None = None,
) -> Claim:
    """The verified claim of fresh interleaved pairs of base and final state, 30 where the budget allows.

    On a ratio, values that are not positive are compared by their difference over the size of the base.

    Args:
        pairs: values of the base and of the final state, and where known whether the latter ran first.
        rule: its scale and direction count; under ``median`` the scale is the difference.
        calibration: at the baseline; fixes the scale, and its noise widens the interval of fewer than six pairs.

    Raises:
        UsageError: there is no pair, or a value is not a finite number.
    """
    bases, finals, known_orders = columns_of(pairs)
    if not bases:
        raise UsageError(
            "a claim needs at least one pair of base and final state",
            next_step="measure both again, 30 times each where the budget allows",
        )
    calibration = _fitting_claim(rule, calibration, bases + finals)
    repeated = repeated_verdict(replace(rule, min_effect=0.0), bases, finals, calibration.scale)
    if repeated is not None and len(bases) > 1:
        estimate = low = high = repeated.estimate
    else:
        estimate, low, high = _noisy_claim(rule, calibration, (bases, finals, known_orders))
        repeated = None
    return Claim(
        estimate=estimate,
        interval=(low, high),
        pairs=len(bases),
        has_gain=low > 0.0,
        scale=calibration.scale,
        is_exact=repeated is not None,
        base=statistics.median(bases),
        final=statistics.median(finals),
    )


def _fitting_claim(
    rule: AcceptanceRule, calibration: Calibration | None, values: tuple[float, ...]
) -> Calibration:
    """A calibration on the scale of the claim, without any pair where none was given."""
    if rule.name == "median":
        rule = replace(rule, scale="difference")
    fitting = recalibrated(calibration or Calibration(), rule)
    if fitting.scale:
        return fitting
    return replace(fitting, scale="ratio" if min(values) > 0.0 else "difference")


def _noisy_claim(
    rule: AcceptanceRule,
    calibration: Calibration,
    columns: tuple[tuple[float, ...], tuple[float, ...], tuple[int, ...]],
) -> tuple[float, float, float]:
    bases, finals, known_orders = columns
    is_relative = calibration.scale == "ratio" and min(bases + finals) <= 0.0
    scale = "difference" if is_relative else calibration.scale
    gains = [gain_of(base, final, rule.direction, scale) for base, final in zip(bases, finals, strict=True)]
    if min(known_orders) >= 0 and not is_relative:
        gains = list(cleared(gains, known_orders, calibration.order_effect, first_gains_of(calibration)))
    found = estimate_of(gains, 0.0 if is_relative else statistics.robust_sd(residuals_of(calibration)))
    if is_relative:
        size = abs(statistics.median(bases)) or abs(statistics.median(finals)) or 1.0
        return found[0] / size, found[1] / size, found[2] / size
    estimate, low, high = (effect_of(value, rule.direction, scale) for value in found)
    return estimate, low, high
