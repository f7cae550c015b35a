"""The gain of a candidate over an incumbent: its scale, its direction, its unit.

On a ``ratio`` a gain is a difference of logarithms inside and a fraction of the metric outside (0.03 is 3 % better); on
a ``difference`` it is in the metric's own unit. Positive is better in either direction.
"""

from __future__ import annotations

from math import exp, expm1, isfinite, log, log1p

from omx_autoresearch.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fractions import Fraction

    from omx_autoresearch.core.acceptance_rules import RuleDirection

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
