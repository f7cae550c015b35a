"""What measuring the same code twice says about the metric: its regime, scale, noise, drift and order effect.

A/A pairs run the incumbent in both worktrees. The figures are plain values, so that they stand in a record; the pairs
themselves are kept, since a judge pools them with its own.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Literal

from omx_autoresearch.experiments.judge.rule import (
    FINAL_SHARE,
    AcceptanceRule,
    checked_value,
    effect_of,
    gain_of,
)
from omx_autoresearch.experiments.judge.statistics import (
    hodges_lehmann,
    median,
    normal_quantile,
    rank_of,
    robust_sd,
    scores_of,
    z_statistic,
)
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.records import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """What A/A pairs showed.

    Attributes:
        regime: ``deterministic`` where all values are equal; ``underpowered`` where only an enormous gain could be
            seen; else ``noisy``.
        scale: ``ratio`` or ``difference``; empty without any pair, then a judge fixes it by its own first pair.
        noise: robust standard deviation of one run, a fraction on a ratio; 0.0 where unknown or none.
        drift: how far the level moved from the first pair to the last, in the same unit.
        order_effect: gain of whichever arm runs first over the other, in the same unit; 0.0 where it is not proven.
        minimum_detectable_effect: gain that is accepted about four times in five, in the unit of an estimate; None
            where there is no pair to tell it from.
        quick_gain: size that 85 % of the A/A differences stay below; early acceptance is measured by it; 0.0 is off.
        pairs: how many there were.
        unavailable: what could not be found with so few: ``noise``, ``early_acceptance``, ``order_effect``.
        firsts: values of the arm ``incumbent``, in the order of the pairs.
        seconds: values of the arm ``candidate``.
        orders: for each pair 1 where the candidate's arm ran first, 0 where it ran second, -1 where nobody said.
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
    """That so few A/A pairs tell no noise, for people; empty where they do."""
    if is_noise_known(calibration):
        return ""
    pairs = f"{calibration.pairs} pair{'' if calibration.pairs == 1 else 's'} of base against base"
    return (
        f"{pairs} cannot tell the noise, nor which gain is seen; it takes {QUICK_PAIRS}, better {WANTED_PAIRS} "
        f"(--calibration-pairs)"
    )


def calibrate(
    pairs: Sequence[tuple[float, float] | tuple[float, float, bool]], rule: AcceptanceRule | None = None
) -> Calibration:
    """What A/A ``pairs`` say, for a judge that follows ``rule``.

    Args:
        pairs: values of the incumbent's and the candidate's worktree, and where known whether the latter ran first.
            At least 15 are wanted; with fewer, and with none, the answer says what it lacks.
        rule: its scale, direction, alpha and number of pairs count; the default rule without.

    Raises:
        UsageError: a value is no finite number, a pair has not two or three elements, or the rule asks for a ratio of
            values that are not positive.
    """
    rule = rule or AcceptanceRule()
    firsts, seconds, orders = columns_of(pairs)
    scale = _scale(rule, firsts + seconds)
    gains = [gain_of(one, other, rule.direction, scale) for one, other in zip(firsts, seconds, strict=True)]
    has_spread = len(set(firsts + seconds)) > 1
    order_effect = proven_order_effect(order_gains(gains, orders))
    residuals = [gain - _expected(order_effect, order) for gain, order in zip(gains, orders, strict=True)]
    deviation = robust_sd(residuals)
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
    """What the same A/A pairs say to a judge that follows ``rule``; a scale that is fixed stays unless it names one.

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
        UsageError: a value is no finite number, or a pair has not two or three elements.
    """
    firsts, seconds, orders = [], [], []
    for number, pair in enumerate(pairs, start=1):
        if len(pair) not in {2, 3}:
            raise UsageError(
                f"pair {number} has {len(pair)} elements",
                next_step="give both values, and where known whether the second arm ran first",
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
            next_step="take the scale `difference`; ratios need positive values",
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
    scores = scores_of([abs(gain) for gain in first_gains])
    return hodges_lehmann(first_gains) if abs(z_statistic(first_gains, scores)) >= ORDER_Z else 0.0


def _expected(order_effect: float, order: int) -> float:
    return 0.0 if order < 0 else order_effect if order else -order_effect


def _drift(firsts: tuple[float, ...], seconds: tuple[float, ...], scale: str) -> float:
    """Theil-Sen slope of the level of the pairs, times the way from the first to the last."""
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
    return median(slopes) * (len(levels) - 1)


def _quick_gain(residuals: Sequence[float]) -> float:
    if len(residuals) < QUICK_PAIRS:
        return 0.0
    return sorted(abs(residual) for residual in residuals)[rank_of(QUICK_SHARE, len(residuals)) - 1]


def detectable_effect(rule: AcceptanceRule, deviation: float, scale: str) -> float:
    """The gain that ``rule`` accepts about four times in five where pairs deviate so much, in the unit of estimates."""
    reach = normal_quantile(1 - FINAL_SHARE * rule.alpha) + normal_quantile(DETECTABLE_POWER)
    usual = normal_quantile(1 - FINAL_SHARE * DETECTABLE_ALPHA) + normal_quantile(DETECTABLE_POWER)
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
