"""The hybrid sequential rule on interleaved pairs: when it accepts, when it gives up, what the order inside a pair did.

It looks after every pair. A look spends a share of alpha on the exact p-value of the scores; three to eight pairs may
be enough where every gain is favourable and far beyond what A/A pairs show. specs/acceptance.md says what was measured.
"""

from __future__ import annotations

from functools import lru_cache
from math import sqrt

from omx_autoresearch.experiments.judge.calibration import ORDER_PAIRS, ORDER_Z, order_gains
from omx_autoresearch.experiments.judge.rule import FINAL_SHARE, AcceptanceRule, effect_of
from omx_autoresearch.experiments.judge.statistics import (
    ci_rank,
    exact_p_value,
    hodges_lehmann,
    normal_quantile,
    robust_sd,
    scores_of,
    walsh_averages,
    z_statistic,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


FIRST_LOOK = 4
LOOK_SHARE, LOOK_POWER = 0.22, 1.5
"""Of alpha: what a look before the last may spend, growing with the share of pairs that were measured."""

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
    # The constants are for 30 pairs, and scale to others as the width of a random walk does, with the root. What the
    # rule accepts and misses with them is simulated in benchmarks/acceptance.py.
    root = sqrt(max_pairs / 30)
    goal = sqrt(max_pairs) * normal_quantile(1 - FINAL_SHARE * alpha)
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
        levels: on a ratio, the incumbent's values: then the gain must hold in the metric's own unit as well. A
            candidate of the same mean that is only more erratic looks better on logarithms than it is.
    """
    pairs = len(differences)
    if is_quick(rule, differences, quick_gain):
        return "accept"
    is_last = pairs >= rule.max_pairs
    if pairs < FIRST_LOOK:
        return "stop" if is_last else ""
    allowed, futile = alpha_spending(rule.alpha, rule.max_pairs)[pairs]
    scores = scores_of([abs(difference) for difference in differences])
    z = z_statistic(differences, scores)
    # No p-value of a half or more is ever allowed, and a smaller one needs a z statistic above zero.
    if (
        z > 0.0
        and exact_p_value(differences, scores) <= allowed
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
    return exact_p_value(own, scores_of([abs(gain) for gain in own])) <= allowed


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
        order_effect = _pooled_effect(order_gains(gains, orders), order_effect, calibrated)
    if not order_effect:
        return gains
    return [
        gain - order_effect if order else gain + order_effect
        for gain, order in zip(gains, orders, strict=True)
    ]


def _against(order: int, calibrated: Sequence[float]) -> float:
    """What a fixed order may give the candidate: the far end of the calibrated interval, where that excludes zero."""
    if len(calibrated) < ORDER_PAIRS:
        return 0.0
    _, low, high = estimate_of(calibrated, 0.0)
    if low <= 0.0 <= high:
        return 0.0
    return max(0.0, high if order else -low)


def _pooled_effect(first_gains: list[float], order_effect: float, calibrated: Sequence[float]) -> float:
    if order_effect:
        return hodges_lehmann([*calibrated, *first_gains])
    scores = scores_of([abs(gain) for gain in first_gains])
    return hodges_lehmann(first_gains) if abs(z_statistic(first_gains, scores)) >= ORDER_Z else 0.0


def estimate_of(differences: Sequence[float], deviation: float) -> tuple[float, float, float]:
    """The Hodges-Lehmann estimate of ``differences`` and its interval of 95 %.

    From six pairs on it is the distribution-free one. With fewer it leans on ``deviation``, the standard deviation of
    a pair as calibration and the pairs at hand show it.
    """
    averages = walsh_averages(differences)
    middle = len(averages) // 2
    estimate = averages[middle] if len(averages) % 2 else (averages[middle - 1] + averages[middle]) / 2
    if len(differences) >= FEW:
        cut = ci_rank(len(differences))
        return estimate, averages[cut], averages[-1 - cut]
    wide = max(deviation, robust_sd([difference - estimate for difference in differences]))
    reach = 2.2 * wide / sqrt(len(differences))
    return estimate, estimate - reach, estimate + reach
