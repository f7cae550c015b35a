"""The one number that is quoted: base against final, on fresh interleaved pairs that chose nothing.

Estimates of accepted steps were selected for being large, and compounding them claims too much (13 points at a noise of
3 % in simulation). These pairs selected nothing, so their estimate is honest.
"""

from __future__ import annotations

from omx_autoresearch.experiments.judge.calibration import (
    Calibration,
    columns_of,
    first_gains_of,
    recalibrated,
    residuals_of,
)
from omx_autoresearch.experiments.judge.decision import repeated_verdict
from omx_autoresearch.experiments.judge.rule import AcceptanceRule, effect_of, gain_of
from omx_autoresearch.experiments.judge.sequential import cleared, estimate_of
from omx_autoresearch.experiments.judge.statistics import median, robust_sd
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.records import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Claim:
    """The verified gain of the final state over the base.

    Attributes:
        estimate: positive is better; a fraction on a ratio (0.032 is 3.2 %), else in the metric's unit.
        interval: 95 % around it; both ends equal the estimate where the metric is deterministic.
        pairs: how many were measured.
        has_gain: the whole interval is better than the base.
        scale: ``ratio`` or ``difference``.
        is_exact: both states repeated their value in every pair.
        base: median of the base's values.
        final: median of the final state's values.
    """

    estimate: float
    interval: tuple[float, float]
    pairs: int
    has_gain: bool
    scale: str = "ratio"
    is_exact: bool = False
    base: float = 0.0
    final: float = 0.0


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
        UsageError: there is no pair, or a value is no finite number.
    """
    bases, finals, known_orders = columns_of(pairs)
    if not bases:
        raise UsageError(
            "a claim needs at least one pair of base and final state",
            next_step="measure both again, 30 times each where the budget allows",
        )
    calibration = _fitting(rule, calibration, bases + finals)
    middles = {"base": median(bases), "final": median(finals)}
    repeated = repeated_verdict(replace(rule, min_effect=0.0), bases, finals, calibration.scale)
    if repeated is not None and len(bases) > 1:
        estimate = repeated.estimate
        ends = (estimate, estimate)
    else:
        estimate, *ends_found = _noisy(rule, calibration, (bases, finals, known_orders))
        ends = (ends_found[0], ends_found[1])
        repeated = None
    return Claim(
        estimate=estimate,
        interval=ends,
        pairs=len(bases),
        has_gain=ends[0] > 0.0,
        scale=calibration.scale,
        is_exact=repeated is not None,
        **middles,
    )


def _fitting(rule: AcceptanceRule, calibration: Calibration | None, values: tuple[float, ...]) -> Calibration:
    """A calibration on the scale of the claim, without any pair where none was given."""
    if rule.name == "median":
        rule = replace(rule, scale="difference")
    fitting = recalibrated(calibration or Calibration(), rule)
    if fitting.scale:
        return fitting
    return replace(fitting, scale="ratio" if min(values) > 0.0 else "difference")


def _noisy(
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
    found = estimate_of(gains, 0.0 if is_relative else robust_sd(residuals_of(calibration)))
    if is_relative:
        size = abs(median(bases)) or abs(median(finals)) or 1.0
        return found[0] / size, found[1] / size, found[2] / size
    return (
        effect_of(found[0], rule.direction, scale),
        effect_of(found[1], rule.direction, scale),
        effect_of(found[2], rule.direction, scale),
    )
