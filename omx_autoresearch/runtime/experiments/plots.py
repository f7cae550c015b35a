"""The plot of an experiment: one Vega-Lite specification, made from the state alone (extra ``plots``).

Trials stand in their order, accepted ones joined by a step line that begins at the base, each with the interval of its
judgement. How a trial ended is told by colour and by shape, in colours that colour-blind people tell apart. A trial
without a value stands in a lane of its own under the axis, never at 0. The title quotes the verified claim or says that
nothing is verified; no other number is a result.
"""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

from omx_autoresearch.core.agent_reports import harmless_line
from omx_autoresearch.core.experiment_summary import (
    count_kinds,
    figure,
    kind_of,
    metric_band,
    quoted_claim,
    shown_reason,
    steps_of,
)
from omx_autoresearch.runtime.experiments.plot_frame import frame_of
from omx_autoresearch.runtime.experiments.plot_packages import plot_packages

if TYPE_CHECKING:
    from omx_autoresearch.core.experiment_summary import TrialKind
    from omx_autoresearch.core.experiments import ExperimentState, TrialRow
    from omx_autoresearch.runtime.experiments.plot_frame import Frame

WIDTH, HEIGHT, LANE_HEIGHT = 780, 380, 26

COLOURS: dict[TrialKind, str] = {
    "accepted": "#007f5f",
    "rejected": "#8c8c8c",
    "failed": "#d55e00",
    "tampered": "#8f3f97",
    "running": "#0072b2",
}
"""After Okabe and Ito, darkened until each stands out on white."""
SHAPES: dict[TrialKind, str] = {
    "accepted": "circle",
    "rejected": "diamond",
    "failed": "M-1,-0.6L-0.6,-1L0,-0.4L0.6,-1L1,-0.6L0.4,0L1,0.6L0.6,1L0,0.4L-0.6,1L-1,0.6L-0.4,0Z",
    "tampered": "triangle-down",
    "running": "square",
}
_INK, _QUIET, _GRID = "#1f2328", "#5a6068", "#e6e8eb"
_FONT = "'Liberation Sans', Arial, Helvetica, 'DejaVu Sans', sans-serif"
_LANE = "no value"
_X_TITLE = "trial (line: incumbent; bars: 95 % interval that a trial was judged by, no result)"
_TICKS = 7
_TEXT_CHARACTERS = 160
_TITLE_CHARACTERS = 90
_LINE_CHARACTERS = 128


def plot_specification(state: ExperimentState, *, origin: str = "") -> dict[str, Any]:
    """The plot as a Vega-Lite specification, valid whatever the state holds.

    Args:
        state: of the experiment.
        origin: where the state comes from, where it is not an experiment of ours; shown under the title.

    Raises:
        UsageError: the extra ``plots`` is not installed; says how to get it.
    """
    alt = plot_packages().altair
    frame = frame_of(state)
    counts = count_kinds(state.rows)
    rows = sorted(
        state.rows, key=lambda row: row.status == "accepted"
    )  # drawn last, so that nothing hides them
    points = [_point(state, row, counts) for row in rows]
    measured = [point for point in points if point["value"] is not None]
    unmeasured = [point for point in points if point["value"] is None]
    chart = _main_view(alt, state, frame, measured, has_lane=bool(unmeasured))
    if unmeasured:
        chart = alt.vconcat(chart, _lane_view(alt, state, frame, unmeasured), spacing=10, bounds="flush")
    chart = chart.properties(
        title=_title(alt, state, origin),
        description=f"{_name(state)}. {quoted_claim(state).sentence}",
        padding={"left": 12, "right": 16, "top": 10, "bottom": 8},
        background="white",
    )
    ordered: dict[str, Any] = _styled(chart).to_dict()
    return ordered


def kind_label(kind: TrialKind, counts: dict[TrialKind, int]) -> str:
    """What the legend says of a kind: ``rejected (12)``."""
    return f"{kind} ({counts[kind]})"


# --- what is drawn


def _point(state: ExperimentState, row: TrialRow, counts: dict[TrialKind, int]) -> dict[str, Any]:
    band = metric_band(state, row) or (None, None)
    unit = state.config.metric.unit
    return {
        "trial": row.iteration,
        "kind": kind_label(kind_of(row), counts),
        "value": row.metric,
        "low": band[0],
        "high": band[1],
        "lane": _LANE,
        "shown": figure(row.metric, unit),
        "interval": f"{figure(band[0])} to {figure(band[1], unit)}" if band[0] is not None else "none",
        "pairs": row.pairs,
        "hypothesis": _short(
            f"{row.hypothesis_id}: {row.description}" if row.description else row.hypothesis_id
        ),
        "reason": _short(shown_reason(row)),
    }


def _steps(state: ExperimentState, frame: Frame) -> list[dict[str, Any]]:
    """The line of the incumbent: from the base over every accepted step to the last trial."""
    line = [] if state.baseline is None else [{"trial": frame.first, "value": state.baseline}]
    line += [
        {"trial": row.iteration, "value": row.metric} for row in steps_of(state) if row.metric is not None
    ]
    if line and line[-1]["trial"] < frame.last:
        line.append({"trial": frame.last, "value": line[-1]["value"]})
    return line


def _short(text: str) -> str:
    line = harmless_line(text)
    return line if len(line) <= _TEXT_CHARACTERS else f"{line[: _TEXT_CHARACTERS - 1]}…"


def _name(state: ExperimentState) -> str:
    name = harmless_line(state.config.name) or state.config.metric.name
    return name if len(name) <= _TITLE_CHARACTERS else f"{name[: _TITLE_CHARACTERS - 1]}…"


# --- how it is drawn


def _title(alt: Any, state: ExperimentState, origin: str) -> Any:
    quoted = quoted_claim(state)
    lines = textwrap.wrap(quoted.sentence, _LINE_CHARACTERS)
    for warning in quoted.warnings:
        lines += textwrap.wrap(warning, _LINE_CHARACTERS)
    if origin:
        lines += textwrap.wrap(harmless_line(origin), _LINE_CHARACTERS)
    return alt.TitleParams(
        text=_name(state),
        subtitle=lines,
        anchor="start",
        color=_INK,
        fontSize=17,
        fontWeight=600,
        subtitleColor=COLOURS["accepted"] if quoted.has_gain and quoted.is_current else _QUIET,
        subtitleFontSize=12.5,
        subtitlePadding=6,
        offset=14,
    )


def _x(alt: Any, frame: Frame, *, has_axis: bool) -> Any:
    room = max(0.5, (frame.last - frame.first) * 0.02)
    axis = (
        alt.Axis(title=_X_TITLE, format="d", tickMinStep=1, grid=False, labelFlush=False)
        if has_axis
        else None
    )
    scale = alt.Scale(domain=[frame.first - room / 2, frame.last + room], nice=False, zero=False)
    return alt.X("trial:Q", axis=axis, scale=scale)


def _y(alt: Any, state: ExperimentState, frame: Frame, field: str = "value:Q") -> Any:
    metric = state.config.metric
    unit = f" ({metric.unit})" if metric.unit else ""
    scale = "log" if frame.is_log else "linear"
    words = [f"{metric.direction} is better", *(["logarithmic"] if frame.is_log else [])]
    return alt.Y(
        field,
        axis=alt.Axis(
            title=f"{metric.name}{unit}, {', '.join(words)}", format=f".{frame.digits}~g", tickCount=_TICKS
        ),
        scale=alt.Scale(type=scale, domain=[frame.low, frame.high], nice=False, zero=False),
    )


def _marks(alt: Any, state: ExperimentState) -> dict[str, Any]:
    """Colour and shape of the kinds; both views name the same ones, so that they share one legend."""
    kinds = _kinds(state)
    domain = [label for label, _ in kinds]
    legend = alt.Legend(
        title=None, orient="top", direction="horizontal", symbolSize=90, symbolOpacity=1, offset=4
    )
    return {
        "color": alt.Color(
            "kind:N",
            legend=legend,
            scale=alt.Scale(domain=domain, range=[COLOURS[kind] for _, kind in kinds]),
        ),
        "shape": alt.Shape(
            "kind:N", legend=legend, scale=alt.Scale(domain=domain, range=[SHAPES[kind] for _, kind in kinds])
        ),
    }


def _kinds(state: ExperimentState) -> list[tuple[str, TrialKind]]:
    counts = count_kinds(state.rows)
    return [(kind_label(kind, counts), kind) for kind in counts if counts[kind]]


_TOOLTIP = (
    ("trial", "trial", "Q"),
    ("hypothesis", "hypothesis", "N"),
    ("kind", "ended", "N"),
    ("shown", "median", "N"),
    ("interval", "judged interval", "N"),
    ("pairs", "pairs", "Q"),
    ("reason", "reason", "N"),
)


def _tooltip(alt: Any) -> list[Any]:
    return [alt.Tooltip(f"{field}:{kind}", title=title) for field, title, kind in _TOOLTIP]


def _main_view(
    alt: Any, state: ExperimentState, frame: Frame, points: list[dict[str, Any]], *, has_lane: bool
) -> Any:
    x, y = _x(alt, frame, has_axis=not has_lane), _y(alt, state, frame)
    marks = _marks(alt, state)
    layers = []
    bars = [point for point in points if point["low"] is not None]
    if bars:
        is_crowded = len(points) > 150
        layers.append(
            alt.Chart(alt.InlineData(values=bars))
            .mark_rule(strokeWidth=1 if is_crowded else 1.8, opacity=0.3 if is_crowded else 0.5, clip=True)
            .encode(x=x, y=_y(alt, state, frame, "low:Q"), y2="high:Q", color=marks["color"])
        )
    layers += _incumbent(alt, state, frame, x, y)
    if points:
        layers.append(
            alt.Chart(alt.InlineData(values=points))
            .mark_point(filled=True, size=frame.point_size, opacity=0.92)
            .encode(x=x, y=y, tooltip=_tooltip(alt), **marks)
        )
    if not layers:
        layers.append(_nothing(alt, frame, x, y, "Nothing was measured yet."))
    elif not points:
        layers.append(_nothing(alt, frame, x, y, "No trial has a value yet."))
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)


def _incumbent(alt: Any, state: ExperimentState, frame: Frame, x: Any, y: Any) -> list[Any]:
    """The base as a dashed line, the incumbent as a step line."""
    if state.baseline is None:
        return []
    unit, digits = state.config.metric.unit, max(6, frame.digits)
    base = {
        "trial": frame.last,
        "value": state.baseline,
        "text": f"base {figure(state.baseline, unit, digits=digits)}",
    }
    data = alt.InlineData(values=[base])
    room = -7 if state.config.metric.direction == "lower" else 13
    return [
        alt.Chart(data).mark_rule(strokeDash=[4, 4], color=_QUIET, opacity=0.8).encode(y=y),
        alt.Chart(data)
        .mark_text(align="right", dy=room, color=_QUIET, fontSize=11)
        .encode(x=x, y=y, text="text:N"),
        alt.Chart(alt.InlineData(values=_steps(state, frame)))
        .mark_line(interpolate="step-after", strokeWidth=2, color=COLOURS["accepted"], clip=True)
        .encode(x=x, y=y, order="trial:Q"),
    ]


def _nothing(alt: Any, frame: Frame, x: Any, y: Any, words: str) -> Any:
    middle = math.sqrt(frame.low * frame.high) if frame.is_log else frame.low / 2 + frame.high / 2
    data = alt.InlineData(values=[{"trial": (frame.first + frame.last) / 2, "value": middle, "text": words}])
    return alt.Chart(data).mark_text(color=_QUIET, fontSize=14, dy=60).encode(x=x, y=y, text="text:N")


def _lane_view(alt: Any, state: ExperimentState, frame: Frame, points: list[dict[str, Any]]) -> Any:
    lane = alt.Y("lane:N", axis=alt.Axis(title=None, ticks=False, domain=False, grid=False, labelPadding=6))
    return (
        alt.Chart(alt.InlineData(values=points))
        .mark_point(filled=True, size=min(frame.point_size, 60), opacity=0.92)
        .encode(x=_x(alt, frame, has_axis=True), y=lane, tooltip=_tooltip(alt), **_marks(alt, state))
        .properties(width=WIDTH, height=LANE_HEIGHT)
    )


def _styled(chart: Any) -> Any:
    """One look for every view."""
    return (
        chart.configure(font=_FONT)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_QUIET,
            titleColor=_INK,
            gridColor=_GRID,
            domainColor="#c4c8cd",
            tickColor="#c4c8cd",
            labelFontSize=11.5,
            titleFontSize=12,
            titleFontWeight=500,
            titlePadding=10,
        )
        .configure_legend(labelColor=_INK, labelFontSize=12, labelLimit=240)
    )
