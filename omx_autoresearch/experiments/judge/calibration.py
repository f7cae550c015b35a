"""The rule that candidates are judged by, and what measuring the same code twice says about the metric.

A calibration tells the regime, scale, noise, drift and order effect of a metric. Its A/A pairs run the incumbent in
both worktrees. The figures are plain values, so that they can be recorded; the pairs themselves are kept, since a judge
pools them with its own.
"""

from __future__ import annotations

from math import exp, expm1, isfinite, log, log1p, sqrt
from typing import Literal

from omx_autoresearch.experiments.judge import statistics
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.records import dataclass, replace
from omx_autoresearch.foundation.text import count_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

RuleName = Literal["hybrid", "median"]
RuleDirection = Literal["lower", "higher"]
RuleScale = Literal["auto", "ratio", "difference"]

LARGEST_ALPHA = 0.5
LARGEST_PAIRS = 200
FINAL_SHARE = 0.75
"""The share of alpha that the last look, at ``max_pairs``, may spend; earlier looks have the rest."""

MEDIAN_FALSE_ACCEPTS = 0.5
"""The share of candidates without effect that the median rule accepts with threshold 0 under noise."""

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
    if faults := rule_faults(rule):
        raise UsageError(
            f"the acceptance rule is not valid: {'; '.join(faults)}",
            next_step="fix it, then start again",
        )


def rule_faults(rule: AcceptanceRule) -> list[str]:
    """The faults of a rule, a sentence each."""
    words = {
        "name": ("hybrid", "median"),
        "direction": ("lower", "higher"),
        "scale": ("auto", "ratio", "difference"),
    }
    counts = {"max_pairs": (2, LARGEST_PAIRS), "runs": (1, 1000), "warmups": (0, 1000)}
    faults = [
        f"{field} must be one of {', '.join(allowed)}, received {getattr(rule, field)!r}"
        for field, allowed in words.items()
        if getattr(rule, field) not in allowed
    ]
    faults += [
        f"{field} must be a whole number from {low} to {high}, received {getattr(rule, field)!r}"
        for field, (low, high) in counts.items()
        if type(getattr(rule, field)) is not int or not low <= getattr(rule, field) <= high
    ]
    if not _is_number(rule.alpha) or not 0.0 < rule.alpha <= LARGEST_ALPHA:
        faults.append(f"alpha must be above 0 and at most {LARGEST_ALPHA}, received {rule.alpha!r}")
    if not _is_number(rule.min_effect) or rule.min_effect < 0.0:
        faults.append(f"min_effect must be a finite number of at least 0, received {rule.min_effect!r}")
    elif is_out_of_reach(rule, rule.scale):
        faults.append(
            f"min_effect must be a fraction below 1 on the ratio scale, received {rule.min_effect!r}"
        )
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
            f"the number of trials must be a whole number of at least 1, received {trials!r}",
            next_step="give the budget of trials",
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
        UsageError: it is not a finite number, or is larger than 1e300 in size.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(
            f"the metric of the {arm} must be a number, received {value!r}",
            next_step="pass the value that the measure command printed, as a float",
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
    """How much better the candidate is, inside the judge; on the ratio scale both must be positive."""
    gain = log(incumbent) - log(candidate) if scale == "ratio" else incumbent - candidate
    return gain if direction == "lower" else -gain


def effect_of(gain: float, direction: RuleDirection, scale: str) -> float:
    """A gain in the unit that people read: a fraction of the metric on a ratio, the metric's unit on a difference."""
    if scale != "ratio":
        return gain
    gain = max(-LARGEST_LOGARITHM, min(LARGEST_LOGARITHM, gain))
    return -expm1(-gain) if direction == "lower" else expm1(gain)


def gain_at(effect: float, direction: RuleDirection, scale: str) -> float:
    """The inverse of `effect_of`; on the ratio scale where lower is better, ``effect`` must be below 1."""
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


Regime = Literal["deterministic", "noisy", "underpowered"]

WANTED_PAIRS = 15
QUICK_PAIRS = 10
"""Fewer A/A pairs say too little about the extremes for an early acceptance."""
QUICK_SHARE = 0.85
ORDER_PAIRS = 8
ORDER_Z = 2.8
"""From here on an order effect is taken for real: one in two hundred calibrations without one gets there."""

DETECTABLE = 0.8
"""Gain, in standard deviations of a pair, that 30 pairs at alpha 1 % accept about four times in five."""
DETECTABLE_PAIRS, DETECTABLE_ALPHA, DETECTABLE_POWER = 30, 0.01, 0.8

UNDERPOWERED_EFFECT = 0.5
"""A ratio whose smallest visible gain is as large as this (half of a time) is not worth measuring this way."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The findings from A/A pairs.

    Attributes:
        regime: ``deterministic`` where all values are equal; ``underpowered`` where only an enormous gain could be
            seen; else ``noisy``.
        scale: ``ratio`` or ``difference``; empty without any pair, then a judge fixes it by its own first pair.
        noise: robust standard deviation of one run, a fraction on the ratio scale; 0.0 where unknown or none.
        drift: how far the level moved from the first pair to the last, in the same unit.
        order_effect: gain of whichever arm runs first over the other, in the same unit; 0.0 where it is not proven.
        minimum_detectable_effect: gain that is accepted about four times in five, in the unit of an estimate; None
            where there is no pair to tell it from.
        quick_gain: size that 85 % of the A/A differences stay below; early acceptance is measured by it; 0.0 is off.
        pairs: how many there were.
        unavailable: what could not be found with so few: ``noise``, ``early_acceptance``, ``order_effect``.
        firsts: values of the arm ``incumbent``, in the order of the pairs.
        seconds: values of the arm ``candidate``.
        orders: for each pair 1 where the candidate's arm ran first, 0 where it ran second, -1 if unknown.
        direction: which values are better.
    """

    regime: Regime = "noisy"
    scale: str = ""
    noise: float = 0.0
    drift: float = 0.0
    order_effect: float = 0.0
    minimum_detectable_effect: float | None = None
    quick_gain: float = 0.0
    pairs: int = 0
    unavailable: tuple[str, ...] = ()
    firsts: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()
    orders: tuple[int, ...] = ()
    direction: Literal["lower", "higher"] = "lower"


def is_noise_known(calibration: Calibration) -> bool:
    """Enough A/A pairs stand behind the noise for a number to be told to people, or all values were equal."""
    return calibration.regime == "deterministic" or calibration.pairs >= QUICK_PAIRS


def known_effect(calibration: Calibration | None) -> float | None:
    """The gain that is usually seen; None where nothing was measured, or too little to tell."""
    if calibration is None or not is_noise_known(calibration):
        return None
    return calibration.minimum_detectable_effect


def too_few_pairs(calibration: Calibration) -> str:
    """A warning that the A/A pairs are too few to show the noise; empty where they suffice."""
    if is_noise_known(calibration):
        return ""
    pairs = f"{count_of(calibration.pairs, 'pair')} of base against base"
    return (
        f"{pairs} cannot show the noise or the visible gain; it takes {QUICK_PAIRS}, or better {WANTED_PAIRS} "
        f"(--calibration-pairs)"
    )


def calibrate(
    pairs: Sequence[tuple[float, float] | tuple[float, float, bool]], rule: AcceptanceRule | None = None
) -> Calibration:
    """Calibrate a judge that follows ``rule`` from A/A ``pairs``.

    Args:
        pairs: values of the incumbent's and the candidate's worktree, and where known whether the latter ran first.
            At least 15 are wanted; with fewer, and with none, the answer says what it lacks.
        rule: its scale, direction, alpha and number of pairs count; the default rule without.

    Raises:
        UsageError: a value is not a finite number, a pair does not have two or three elements, or the rule asks for a
            ratio of values that are not positive.
    """
    rule = rule or AcceptanceRule()
    firsts, seconds, orders = columns_of(pairs)
    scale = _scale(rule, firsts + seconds)
    gains = [gain_of(one, other, rule.direction, scale) for one, other in zip(firsts, seconds, strict=True)]
    has_spread = len(set(firsts + seconds)) > 1
    order_effect = proven_order_effect(order_gains(gains, orders))
    residuals = [gain - _expected(order_effect, order) for gain, order in zip(gains, orders, strict=True)]
    deviation = statistics.robust_sd(residuals)
    smallest = detectable_effect(rule, deviation, scale) if gains else None
    return Calibration(
        regime=_regime(len(gains), smallest, scale, has_spread=has_spread),
        scale=scale,
        noise=deviation / sqrt(2),
        drift=_drift(firsts, seconds, scale),
        order_effect=order_effect,
        minimum_detectable_effect=smallest,
        quick_gain=_quick_gain(residuals),
        pairs=len(gains),
        unavailable=_unavailable(gains, orders),
        firsts=firsts,
        seconds=seconds,
        orders=orders,
        direction=rule.direction,
    )


def recalibrated(calibration: Calibration, rule: AcceptanceRule) -> Calibration:
    """Calibrate again from the same A/A pairs for another ``rule``; a fixed scale stays unless the rule names one.

    Raises:
        UsageError: as `calibrate`.
    """
    if rule.scale == "auto" and calibration.scale == "difference":
        rule = replace(rule, scale="difference")
    columns = zip(calibration.firsts, calibration.seconds, calibration.orders, strict=True)
    return calibrate(
        [(one, other) if order < 0 else (one, other, order == 1) for one, other, order in columns], rule
    )


def _gains(calibration: Calibration) -> list[float]:
    return [
        gain_of(one, other, calibration.direction, calibration.scale)
        for one, other in zip(calibration.firsts, calibration.seconds, strict=True)
    ]


def first_gains_of(calibration: Calibration) -> list[float]:
    """Gains of whichever arm ran first, of the A/A pairs whose order is known."""
    return order_gains(_gains(calibration), calibration.orders)


def residuals_of(calibration: Calibration) -> list[float]:
    """Differences of the A/A pairs without the proven order effect."""
    return [
        gain - _expected(calibration.order_effect, order)
        for gain, order in zip(_gains(calibration), calibration.orders, strict=True)
    ]


def columns_of(
    pairs: Sequence[tuple[float, float] | tuple[float, float, bool]],
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[int, ...]]:
    """The values of both arms and the orders (1, 0, or -1 for unknown) of ``pairs``, each in a column.

    Raises:
        UsageError: a value is not a finite number, or a pair has not two or three elements.
    """
    firsts, seconds, orders = [], [], []
    for number, pair in enumerate(pairs, start=1):
        if len(pair) not in {2, 3}:
            raise UsageError(
                f"pair {number} has {len(pair)} elements",
                next_step="give both values and, if known, whether the second arm ran first",
            )
        firsts.append(checked_value(pair[0], f"first arm in pair {number}"))
        seconds.append(checked_value(pair[1], f"second arm in pair {number}"))
        orders.append(-1 if len(pair) == 2 else int(bool(pair[2])))
    return tuple(firsts), tuple(seconds), tuple(orders)


def _scale(rule: AcceptanceRule, values: tuple[float, ...]) -> str:
    are_positive = all(value > 0.0 for value in values)
    if rule.scale == "ratio" and not are_positive:
        raise UsageError(
            f"the scale is `ratio`, and the metric was {min(values)!r} at calibration",
            next_step="use the scale `difference`; ratios need positive values",
        )
    if rule.scale != "auto":
        return rule.scale
    if not values:
        return ""
    return "ratio" if are_positive else "difference"


def order_gains(gains: Sequence[float], orders: Sequence[int]) -> list[float]:
    """Gains of whichever arm ran first over the one that ran second, of pairs whose order is known.

    They do not know the arms: exchanging incumbent and candidate in a pair leaves them as they are.
    """
    return [gain if order else -gain for gain, order in zip(gains, orders, strict=True) if order >= 0]


def proven_order_effect(first_gains: Sequence[float]) -> float:
    """The order effect where at least eight pairs show one beyond doubt, else 0.0."""
    if len(first_gains) < ORDER_PAIRS:
        return 0.0
    scores = statistics.scores_of([abs(gain) for gain in first_gains])
    return (
        statistics.hodges_lehmann(first_gains)
        if abs(statistics.z_statistic(first_gains, scores)) >= ORDER_Z
        else 0.0
    )


def _expected(order_effect: float, order: int) -> float:
    return 0.0 if order < 0 else order_effect if order else -order_effect


def _drift(firsts: tuple[float, ...], seconds: tuple[float, ...], scale: str) -> float:
    """The Theil-Sen slope of the level of the pairs, times the way from the first to the last.

    P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 63 (1968).
    """
    if len(firsts) < 2:
        return 0.0
    levels = [
        (log(one) + log(other)) / 2 if scale == "ratio" else one / 2 + other / 2
        for one, other in zip(firsts, seconds, strict=True)
    ]
    slopes = [
        (later - level) / step
        for index, level in enumerate(levels)
        for step, later in enumerate(levels[index + 1 :], start=1)
    ]
    return statistics.median(slopes) * (len(levels) - 1)


def _quick_gain(residuals: Sequence[float]) -> float:
    if len(residuals) < QUICK_PAIRS:
        return 0.0
    return sorted(abs(residual) for residual in residuals)[
        statistics.quantile_rank(QUICK_SHARE, len(residuals)) - 1
    ]


def detectable_effect(rule: AcceptanceRule, deviation: float, scale: str) -> float:
    """The gain that ``rule`` accepts about four times in five where pairs deviate so much, in the unit of estimates."""
    reach = statistics.normal_quantile(1 - FINAL_SHARE * rule.alpha) + statistics.normal_quantile(
        DETECTABLE_POWER
    )
    usual = statistics.normal_quantile(1 - FINAL_SHARE * DETECTABLE_ALPHA) + statistics.normal_quantile(
        DETECTABLE_POWER
    )
    gain = DETECTABLE * deviation * sqrt(DETECTABLE_PAIRS / rule.max_pairs) * reach / usual
    return effect_of(gain, rule.direction, scale)


def _regime(count: int, smallest: float | None, scale: str, *, has_spread: bool) -> Regime:
    if count >= 2 and not has_spread:
        return "deterministic"
    if scale == "ratio" and smallest is not None and smallest >= UNDERPOWERED_EFFECT:
        return "underpowered"
    return "noisy"


def _unavailable(gains: Sequence[float], orders: Sequence[int]) -> tuple[str, ...]:
    lacking = {
        "noise": len(gains) < 2,
        "early_acceptance": len(gains) < QUICK_PAIRS,
        "order_effect": len([order for order in orders if order >= 0]) < ORDER_PAIRS,
    }
    return tuple(name for name, is_lacking in lacking.items() if is_lacking)
