"""The axes of the plot: which range they show, how, and with how many digits; defined for whatever was measured."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from omx_autoresearch.core.experiment_summary import metric_band
from omx_autoresearch.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omx_autoresearch.core.experiments import ExperimentState

LOG_FROM_RATIO = 20.0
"""Positive values that span more than this are drawn on a logarithmic axis."""
_SMALLEST = 1e-300
"""Below it the axis cannot be drawn as a logarithm."""
_LARGEST = 8e307
"""An axis goes no further, so that its length is still a number."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The axes.

    Attributes:
        first: x of the base.
        last: x of the last trial.
        low: of the metric's axis.
        high: of the metric's axis.
        is_log: whether it is logarithmic.
        digits: significant digits that tell its ticks apart.
        point_size: area of a mark, in square pixels.
    """

    first: int
    last: int
    low: float
    high: float
    is_log: bool
    digits: int
    point_size: int


def frame_of(state: ExperimentState) -> Frame:
    """The axes that show the base, every measured trial, and the intervals as far as they leave room for both."""
    first = min((row.iteration for row in state.rows), default=1) - 1
    last = max((row.iteration for row in state.rows), default=first + 1)
    values = [row.metric for row in state.rows if row.metric is not None]
    if state.baseline is not None:
        values.append(state.baseline)
    low, high = min(values, default=0.0), max(values, default=1.0)
    low, high = _with_bands(low, high, [metric_band(state, row) for row in state.rows])
    is_log = low > _SMALLEST and high / low > LOG_FROM_RATIO
    size = 85 if len(state.rows) <= 60 else 40 if len(state.rows) <= 300 else 18
    if is_log:
        return Frame(first, last, low / 1.15, _held(high * 1.15), is_log=True, digits=4, point_size=size)
    span = high - low
    pad = span * 0.12 if 0.0 < span < math.inf else abs(high) * 0.05 or 1.0
    low, high = _held(low - pad), _held(high + pad)
    return Frame(first, last, low, high, is_log=False, digits=_digits(low, high), point_size=size)


def _held(value: float) -> float:
    return max(-_LARGEST, min(_LARGEST, value))


def _with_bands(low: float, high: float, bands: Sequence[tuple[float, float] | None]) -> tuple[float, float]:
    """The range of the values, widened for the intervals, but no further than it is wide itself.

    What a bar has beyond is cut off at the frame: one wide interval must not flatten everything else.
    """
    ends = [end for band in bands if band is not None for end in band]
    if not ends:
        return low, high
    room = (high - low) or abs(high) * 0.1 or 1.0
    floor = low / 2 if low > 0 else low - room
    return max(min(low, *ends), low - room, floor), min(max(high, *ends), high + room)


def _digits(low: float, high: float) -> int:
    """Significant digits at which neighbouring ticks read differently."""
    span, largest = high - low, max(abs(low), abs(high))
    if not math.isfinite(span) or span <= 0.0 or largest == 0.0:
        return 6
    return max(4, min(15, math.ceil(math.log10(largest / span)) + 3))
