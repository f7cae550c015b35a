"""The plot of an experiment: one Vega-Lite specification, made from the state alone (extra ``plots``).

Trials stand in their order, accepted ones joined by a step line that begins at the base, each with the interval of its
judgement. How a trial ended is told by colour and by shape, in colours that colour-blind people tell apart. A trial
without a value stands in a lane of its own under the axis, never at 0. The title quotes the verified claim or says that
nothing is verified; no other number is a result.
"""

from __future__ import annotations

import importlib
import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from omx_autoresearch.experiments.judge import summary
from omx_autoresearch.experiments.judge.state import ExperimentState, TrialRow
from omx_autoresearch.foundation import templates
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.text import one_line

PlotFormat = Literal["html", "svg", "png"]

WIDTH, HEIGHT, LANE_HEIGHT = 780, 380, 26

COLOURS: dict[summary.TrialKind, str] = {
    "accepted": "#007f5f",
    "rejected": "#8c8c8c",
    "failed": "#d55e00",
    "tampered": "#8f3f97",
    "running": "#0072b2",
}
"""After Okabe and Ito, darkened until each stands out on white."""
SHAPES: dict[summary.TrialKind, str] = {
    "accepted": "circle",
    "rejected": "diamond",
    "failed": "M-1,-0.6L-0.6,-1L0,-0.4L0.6,-1L1,-0.6L0.4,0L1,0.6L0.6,1L0,0.4L-0.6,1L-1,0.6L-0.4,0Z",
    "tampered": "triangle-down",
    "running": "square",
}
_INK, _QUIET, _GRID = "#1f2328", "#5a6068", "#e6e8eb"
_FONT = "'Liberation Sans', Arial, Helvetica, 'DejaVu Sans', sans-serif"
_LANE = "no value"
_X_TITLE = "trial (line: incumbent; bars: the 95 % interval that judged a trial, not a result)"
_TICKS = 7
_TEXT_CHARACTERS = 160
_TITLE_CHARACTERS = 90
_LINE_CHARACTERS = 128


def plot_specification(state: ExperimentState, *, origin: str = "") -> dict[str, Any]:
    """The plot as a Vega-Lite specification, valid whatever the state holds.

    Args:
        state: of the experiment.
        origin: where the state comes from, if it is not our own experiment; shown under the title.

    Raises:
        UsageError: the extra ``plots`` is not installed; says how to get it.
    """
    alt = _package("altair")
    frame = frame_of(state)
    counts = summary.count_kinds(state.rows)
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
        description=f"{_name(state)}. {summary.quoted_claim(state).sentence}",
        padding={"left": 12, "right": 16, "top": 10, "bottom": 8},
        background="white",
    )
    ordered: dict[str, Any] = _styled(chart).to_dict()
    return ordered


def kind_label(kind: summary.TrialKind, counts: dict[summary.TrialKind, int]) -> str:
    """The legend's label of a kind: ``rejected (12)``."""
    return f"{kind} ({counts[kind]})"


# --- what is drawn


def _point(state: ExperimentState, row: TrialRow, counts: dict[summary.TrialKind, int]) -> dict[str, Any]:
    band = summary.metric_band(state, row) or (None, None)
    unit = state.config.metric.unit
    return {
        "trial": row.iteration,
        "kind": kind_label(summary.kind_of(row), counts),
        "value": row.metric,
        "low": band[0],
        "high": band[1],
        "lane": _LANE,
        "shown": summary.figure(row.metric, unit),
        "interval": f"{summary.figure(band[0])} to {summary.figure(band[1], unit)}"
        if band[0] is not None
        else "none",
        "pairs": row.pairs,
        "hypothesis": one_line(summary.hypothesis_text(row), _TEXT_CHARACTERS),
        "reason": one_line(summary.shown_reason(row), _TEXT_CHARACTERS),
    }


def _steps(state: ExperimentState, frame: Frame) -> list[dict[str, Any]]:
    """The line of the incumbent: from the base over every accepted step to the last trial."""
    line = [] if state.baseline is None else [{"trial": frame.first, "value": state.baseline}]
    line += [
        {"trial": row.iteration, "value": row.metric}
        for row in summary.steps_of(state)
        if row.metric is not None
    ]
    if line and line[-1]["trial"] < frame.last:
        line.append({"trial": frame.last, "value": line[-1]["value"]})
    return line


def _name(state: ExperimentState) -> str:
    config = state.config
    return one_line(config.name, _TITLE_CHARACTERS) or one_line(config.metric.name, _TITLE_CHARACTERS)


# --- how it is drawn


def _title(alt: Any, state: ExperimentState, origin: str) -> Any:
    quoted = summary.quoted_claim(state)
    said = (quoted.sentence, *quoted.warnings, one_line(origin))
    lines = [line for text in said for line in textwrap.wrap(text, _LINE_CHARACTERS)]
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
    counts = summary.count_kinds(state.rows)
    kinds = [kind for kind in counts if counts[kind]]
    labels = [kind_label(kind, counts) for kind in kinds]
    legend = alt.Legend(
        title=None, orient="top", direction="horizontal", symbolSize=90, symbolOpacity=1, offset=4
    )
    colours = alt.Scale(domain=labels, range=[COLOURS[kind] for kind in kinds])
    shapes = alt.Scale(domain=labels, range=[SHAPES[kind] for kind in kinds])
    return {
        "color": alt.Color("kind:N", legend=legend, scale=colours),
        "shape": alt.Shape("kind:N", legend=legend, scale=shapes),
    }


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
        layers.append(_nothing(alt, frame, x, y, "Nothing has been measured yet."))
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
        "text": f"base {summary.figure(state.baseline, unit, digits=digits)}",
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


# --- axes

# The axes of the plot: which range they show, how, and with how many digits; defined for whatever was
# measured.


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
    low, high = _with_bands(low, high, [summary.metric_band(state, row) for row in state.rows])
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


# --- files of a plot

# The packages of the extra ``plots``, loaded when a plot is wanted, and the files that they make of a
# specification.
#
# Nothing is fetched: fonts, libraries and data come from the installed packages, and a specification that
# names an address is refused by the converter. What a hypothesis says is data in every form: escaped JSON
# inside the page, text in the pictures.


FORMATS: tuple[PlotFormat, ...] = ("html", "svg", "png")
PNG_SCALE = 2.0
"""Pixels of a PNG for each unit of the plot."""

_IN_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that could end a script element or a line of it; a JSON reader takes each escape for the character."""


def _package(name: str) -> Any:
    """A package that draws.

    Raises:
        UsageError: it is missing; the message names the extra.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"plots need the packages of the extra `plots`; {error.name or error} cannot be loaded",
            next_step="pip install 'omx-autoresearch[plots]'",
        ) from None


def render_plot(specification: dict[str, Any], plot_format: PlotFormat) -> bytes:
    """One specification as a file.

    Args:
        specification: from `plot_specification`.
        plot_format: ``html`` is one page without any outside reference, ``svg`` and ``png`` are pictures.

    Raises:
        UsageError: the extra is not installed, or there is no such format.
    """
    if plot_format not in FORMATS:
        raise UsageError(
            f"{plot_format!r} is not a plot format", next_step=f"use one of {', '.join(FORMATS)}"
        )
    converter = _package("vl_convert")
    version = _vega_lite_version(specification, converter)
    if plot_format == "html":
        return _page(specification, converter.javascript_bundle(vl_version=version)).encode("utf-8")
    options: dict[str, Any] = {"vl_version": version, "allowed_base_urls": []}
    if plot_format == "svg":
        return str(converter.vegalite_to_svg(specification, **options)).encode("utf-8")
    return bytes(converter.vegalite_to_png(specification, scale=PNG_SCALE, **options))


def _vega_lite_version(specification: dict[str, Any], converter: Any) -> str | None:
    """The converter's own copy of the version that the specification was made for; its newest where it has none."""
    name = str(specification.get("$schema", "")).rpartition("/v")[2].removesuffix(".json")
    wanted = ".".join(name.split(".")[:2])
    return wanted if wanted in converter.get_vegalite_versions() else None


def _page(specification: dict[str, Any], library: str) -> str:
    title = specification.get("title") or {}
    return templates.render(
        "experiment_plot.html.j2",
        title=title.get("text", "experiment") if isinstance(title, dict) else str(title),
        summary=specification.get("description", ""),
        library=library,
        specification=in_script(specification),
    )


def in_script(value: Any) -> str:
    """JSON that stands safely inside a script element of a page."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    for character, code in _IN_SCRIPT.items():
        text = text.replace(character, code)
    return text
