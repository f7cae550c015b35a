"""How candidates are judged: the rule and its limits, and the stricter sibling that re-verifies an accepted step."""

from __future__ import annotations

from math import exp, expm1, isfinite, log, log1p
from typing import Literal

from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.records import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fractions import Fraction

RuleName = Literal["hybrid", "median"]
RuleDirection = Literal["lower", "higher"]
RuleScale = Literal["auto", "ratio", "difference"]

LARGEST_ALPHA = 0.5
LARGEST_PAIRS = 200
FINAL_SHARE = 0.75
"""Of alpha: what the last look at ``max_pairs`` may spend; the rest goes to the looks before it."""

MEDIAN_FALSE_ACCEPTS = 0.5
"""Of candidates without effect that the median rule accepts with threshold 0 where anything is noisy."""

VERIFIED_FALSE_ACCEPTS = 0.035
"""Expected over a mission without any real gain, after re-verification; below the 5 % that are promised."""
LARGEST_VERIFY_ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class AcceptanceRule:
    """How a candidate is judged against the incumbent.

    Attributes:
        name: ``hybrid``, the sequential rule on interleaved pairs; or ``median``, which compares two medians.
        alpha: the chance that ``hybrid`` accepts a candidate without effect, above 0 and at most 0.5.
        max_pairs: pairs after which ``hybrid`` decides, 2 to 200.
        min_effect: gain that a candidate must exceed, in the unit of the estimate: a fraction on a ratio, the metric's
            unit on a difference and under ``median``.
        direction: which values are better.
        scale: ``ratio`` for positive metrics, ``difference`` for others; ``auto`` takes what calibration fixed.
        runs: pairs that ``median`` judges.
        warmups: runs of each arm that the caller discards after its tree changed.
        has_futility: whether ``hybrid`` stops early where an acceptance became unlikely.

    Raises:
        UsageError: a value is outside its limits.
    """

    name: RuleName = "hybrid"
    alpha: float = 0.01
    max_pairs: int = 30
    min_effect: float = 0.0
    direction: RuleDirection = "lower"
    scale: RuleScale = "auto"
    runs: int = 5
    warmups: int = 1
    has_futility: bool = True

    def __post_init__(self) -> None:
        """Refuse what no judge could follow."""
        check_rule(self)


def check_rule(rule: AcceptanceRule) -> None:
    """Nothing where the rule can be followed.

    Raises:
        UsageError: it names every value that is off, what was received and what counts.
    """
    faults = [
        *_word_faults(rule),
        *_count_faults(rule),
        *_number_faults(rule),
    ]
    if faults:
        raise UsageError(
            f"the acceptance rule is off: {'; '.join(faults)}", next_step="mend it and start again"
        )


def _word_faults(rule: AcceptanceRule) -> list[str]:
    allowed = {
        "name": ("hybrid", "median"),
        "direction": ("lower", "higher"),
        "scale": ("auto", "ratio", "difference"),
    }
    return [
        f"{field} is one of {', '.join(words)}, received {getattr(rule, field)!r}"
        for field, words in allowed.items()
        if getattr(rule, field) not in words
    ]


def _count_faults(rule: AcceptanceRule) -> list[str]:
    limits = {"max_pairs": (2, LARGEST_PAIRS), "runs": (1, 1000), "warmups": (0, 1000)}
    return [
        f"{field} is a whole number from {low} to {high}, received {getattr(rule, field)!r}"
        for field, (low, high) in limits.items()
        if type(getattr(rule, field)) is not int or not low <= getattr(rule, field) <= high
    ]


def _number_faults(rule: AcceptanceRule) -> list[str]:
    faults = []
    if not _is_number(rule.alpha) or not 0.0 < rule.alpha <= LARGEST_ALPHA:
        faults.append(f"alpha is above 0 and at most {LARGEST_ALPHA}, received {rule.alpha!r}")
    if not _is_number(rule.min_effect) or rule.min_effect < 0.0:
        faults.append(f"min_effect is a finite number from 0 on, received {rule.min_effect!r}")
    elif is_out_of_reach(rule, rule.scale):
        faults.append(f"min_effect is a fraction below 1 on a ratio, received {rule.min_effect!r}")
    return faults


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def is_out_of_reach(rule: AcceptanceRule, scale: str) -> bool:
    """True where no positive metric could ever fall by ``min_effect``."""
    return rule.name == "hybrid" and scale == "ratio" and rule.direction == "lower" and rule.min_effect >= 1.0


def verify_rule(rule: AcceptanceRule, trials: int) -> AcceptanceRule:
    """The rule that judges an accepted step again, on fresh pairs with the worktrees swapped.

    Its alpha is such that a mission of ``trials`` candidates without effect keeps any false step with a chance below
    5 %: expected false acceptances of both rules together are 0.035. Futility is off, since few steps come here.
    A rule ``median`` is verified by ``hybrid`` on the same direction.

    Args:
        rule: the rule of the trials.
        trials: how many the mission may have, at least 1.

    Raises:
        UsageError: ``trials`` is no whole number from 1 on.
    """
    if type(trials) is not int or trials < 1:
        raise UsageError(
            f"a mission has a whole number of trials from 1 on, received {trials!r}",
            next_step="name the budget of trials",
        )
    first = MEDIAN_FALSE_ACCEPTS if rule.name == "median" else rule.alpha
    alpha = min(LARGEST_VERIFY_ALPHA, VERIFIED_FALSE_ACCEPTS / (trials * first))
    if rule.name == "median":
        scale: RuleScale = "difference"
        return replace(rule, name="hybrid", alpha=alpha, scale=scale, has_futility=False)
    return replace(rule, alpha=alpha, has_futility=False)


# --- The gain of a candidate over an incumbent: its scale, its direction, its unit.
#
# On a ``ratio`` a gain is a difference of logarithms inside and a fraction of the metric outside (0.03 is 3 %
# better); on
# a ``difference`` it is in the metric's own unit. Positive is better in either direction.

LARGEST_LOGARITHM = 700.0
"""Beyond it an exponential overflows."""
LARGEST_VALUE = 1e300
"""Sums and differences of a few such values are still numbers."""


def checked_value(value: object, arm: str) -> float:
    """``value`` as a float.

    Raises:
        UsageError: it is no number, not a finite one, or larger than 1e300 in size.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(
            f"the metric of the {arm} must be a number, received {value!r}",
            next_step="hand over what the measure command printed, as a float",
        )
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not isfinite(number):
        raise UsageError(
            f"the metric of the {arm} must be finite, received {value!r}",
            next_step="treat a run without a finite metric as failed; it is never judged",
        )
    if abs(number) > LARGEST_VALUE:
        raise UsageError(
            f"the metric of the {arm} must be at most {LARGEST_VALUE:g} in size, received {value!r}",
            next_step="print the metric in a larger unit",
        )
    return number


def gain_of(incumbent: float, candidate: float, direction: RuleDirection, scale: str) -> float:
    """How much better the candidate is, inside the judge; on a ratio both must be positive."""
    gain = log(incumbent) - log(candidate) if scale == "ratio" else incumbent - candidate
    return gain if direction == "lower" else -gain


def effect_of(gain: float, direction: RuleDirection, scale: str) -> float:
    """A gain in the unit that people read: a fraction of the metric on a ratio, the metric's unit on a difference."""
    if scale != "ratio":
        return gain
    gain = max(-LARGEST_LOGARITHM, min(LARGEST_LOGARITHM, gain))
    return -expm1(-gain) if direction == "lower" else expm1(gain)


def gain_at(effect: float, direction: RuleDirection, scale: str) -> float:
    """The inverse of `effect_of`; on a ratio where lower is better, ``effect`` must be below 1."""
    if scale != "ratio":
        return effect
    return -log1p(-effect) if direction == "lower" else log1p(effect)


def exact(value: float) -> Fraction:
    """The decimal number that ``value`` is printed as, so that 659.4 - 654.4 is 5 and not a little more."""
    from fractions import Fraction

    return Fraction(repr(value))


def exact_gain(incumbent: Fraction, candidate: Fraction, direction: RuleDirection) -> Fraction:
    """How much better the candidate is, in the metric's unit, without rounding."""
    return incumbent - candidate if direction == "lower" else candidate - incumbent


def relative(gain: Fraction, incumbent: Fraction, candidate: Fraction) -> float:
    """An exact gain as a fraction of the incumbent; of the candidate where the incumbent is zero; 0.0 for none."""
    reference = abs(incumbent) or abs(candidate)
    if not gain or not reference:
        return 0.0
    try:
        return float(gain / reference)
    except OverflowError:
        return exp(LARGEST_LOGARITHM) * (1 if gain > 0 else -1)
