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

from omx_autoresearch.core.acceptance_rules import check_rule, is_out_of_reach
from omx_autoresearch.core.calibration import (
    Calibration,
    detectable_effect,
    first_gains_of,
    recalibrated,
    residuals_of,
)
from omx_autoresearch.core.gains import checked_value, effect_of, gain_at, gain_of
from omx_autoresearch.core.sequential_rule import can_accept, cleared, decision_of, estimate_of
from omx_autoresearch.core.signed_scores import hodges_lehmann, robust_sd
from omx_autoresearch.core.trial_verdicts import Verdict, median_verdict, repeated_verdict
from omx_autoresearch.errors import StepIllegal, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from omx_autoresearch.core.acceptance_rules import AcceptanceRule
    from omx_autoresearch.core.trial_verdicts import Judged


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
