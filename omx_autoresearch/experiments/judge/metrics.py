"""Reading the output of a measured command: the metric, secondary metrics, or the reason for a missing metric.

A metric is one line of stdout, written by the frozen measure script::

    METRIC name=value

**The line** begins with ``METRIC`` in its first column, one or more blanks, the name, ``=`` and the value; nothing
follows. Indented lines, traces (``+ echo METRIC x=1``), quotations and other cases of the word are no metric. Terminal
sequences (CSI, OSC and the like) are taken out before; a carriage return ends a line as a newline does, so a metric
behind a progress bar is read and one that is drawn twice stands twice.

**The name** has its grammar in `foundation.metric_texts`.

**The value** is a finite decimal (`foundation.metric_texts`). A second line for the primary metric is an error. A
secondary metric that cannot be read, or stands twice, is not recorded, and a note says so: a guard on it then fails.

A metric of a command that failed is diagnostic text, never a number, and a missing one is never 0.
"""

from __future__ import annotations

import json
import re

from omx_autoresearch.foundation.metric_texts import (
    NAME_LIMIT,
    decimal_of,
    name_faults,
    near_name,
    normal_name,
)
from omx_autoresearch.foundation.records import dataclass, field, replace
from omx_autoresearch.foundation.text import count_of, quoted, without_escapes
from omx_autoresearch.foundation.types import MetricDirection, MetricSource, Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


# --- Reading one number out of a JSON document by a small path.
#
# ``results[0].mean``: a member, an item counted from 0 (or from the end: ``[-1]``), a member of it.
# ``$.results[0]["p 99.9"]``: a leading $ is allowed; a name with dots, brackets or blanks stands in ``["..."]``.
# ``bench.json#results[0].mean``: the document is a file, relative to the worktree; else it is stdout's last line.
#
# A key that appears twice in one object of the document is an error; so is a value that is not a number.

PATH_LIMIT = 500

_STEP = re.compile(
    r"""\.?(?P<name>[^\s.\[\]"'#$]+)|\[(?P<index>-?[0-9]{1,9})\]|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]"""
)


class JsonPathFault(ValueError):
    """The path, or what it leads to in this document, is not what it has to be; the message says why."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path that was understood.

    Attributes:
        file_path: of the document, relative to the worktree; empty for the last line of stdout.
        steps: names of members and numbers of items.
    """

    file_path: str
    steps: tuple[str | int, ...]


class _Number(str):
    """The raw text of a number in a document, told apart from a string."""

    __slots__ = ()


def parse_json_path(text: str) -> JsonPath:
    """Understand a path.

    Raises:
        JsonPathFault: it is not a path; the message says what is expected.
    """
    if len(text) > PATH_LIMIT:
        raise JsonPathFault(f"the JSON path has {len(text)} characters; at most {PATH_LIMIT} are allowed")
    file_path, sharp, rest = text.partition("#")
    if not sharp:
        file_path, rest = "", text
    path = rest.strip().removeprefix("$")
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if not step or (step["name"] and at and path[at] != "."):
            raise JsonPathFault(
                f"the JSON path {quoted(text)} cannot be read from {quoted(path[at:], 20)} on; a path looks like"
                ' results[0].mean, a name with other characters like ["p 99.9"]'
            )
        at = step.end()
        steps.append(step["name"] or (int(step["index"]) if step["index"] else json.loads(step["quoted"])))
    if not steps:
        raise JsonPathFault(f"the JSON path {quoted(text)} names no value; a path looks like results[0].mean")
    return JsonPath(file_path.strip(), tuple(steps))


def raw_number_at(document: str, path: JsonPath) -> str:
    """The raw text of the number that the path leads to; `decimal_of` judges it.

    Raises:
        JsonPathFault: not JSON, a repeated key, a path that leads nowhere, or a value that is not a number.
    """
    value = _parsed(document)
    walked = ""
    for step in path.steps:
        value = _stepped(value, step, walked or "the document")
        walked += f"[{step}]" if isinstance(step, int) else f".{step}" if walked else step
    if not isinstance(value, _Number):
        kind = "a string" if isinstance(value, str) else _KINDS.get(type(value), "no number")
        raise JsonPathFault(f"{quoted(walked)} is {kind} ({quoted(_text_of(value), 40)}), not a number")
    return str(value)


_KINDS: dict[type, str] = {dict: "an object", list: "an array", bool: "a truth value", type(None): "null"}


def _text_of(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _stepped(value: Any, step: str | int, walked: str) -> Any:
    if isinstance(step, int):
        if not isinstance(value, list):
            raise JsonPathFault(f"{quoted(walked)} is not an array, so it has no item [{step}]")
        if not -len(value) <= step < len(value):
            raise JsonPathFault(f"{quoted(walked)} has {len(value)} items, so there is no [{step}]")
        return value[step]
    if not isinstance(value, dict):
        raise JsonPathFault(f"{quoted(walked)} is not an object, so it has no {quoted(step)}")
    if step not in value:
        names = ", ".join(quoted(name, 40) for name in list(value)[:10])
        raise JsonPathFault(f"{quoted(walked)} has no {quoted(step)}; it has {names or 'nothing'}")
    return value[step]


def _parsed(document: str) -> Any:
    try:
        return json.loads(
            document.removeprefix("\ufeff"),
            object_pairs_hook=_object,
            parse_float=_Number,
            parse_int=_Number,
            parse_constant=_Number,
        )
    except RecursionError:
        raise JsonPathFault("the document is nested too deeply") from None
    except json.JSONDecodeError as error:
        begin = quoted(document.strip(), 60)
        raise JsonPathFault(f"the document is not JSON ({error}); it begins with {begin}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise JsonPathFault(f"the key {quoted(key)} appears twice in one object of the document")
        made[key] = value
    return made


SECONDARY_LIMIT = 200
"""Secondary metrics of one run that are recorded."""
LINE_LIMIT = 1000
"""Lines of the metric, and of all others together, that are looked at."""

WALL_SECONDS, CPU_SECONDS, PEAK_BYTES = "wall_seconds", "cpu_seconds", "peak_bytes"
OWN_NAMES = (WALL_SECONDS, CPU_SECONDS, PEAK_BYTES)
"""Secondary metrics that the runtime measures itself, of every run; a line cannot set them."""

_TAIL_LINES = 10
_TAIL_LENGTH = 1500
_LINE_LENGTH = 300
_SHOWN_NOTES = 3
_LOOKED_AT = 256 * 1024
_WORD = "METRIC"
METRIC_WORDS = (_WORD.encode(),)
"""A line without them is no metric; lines with them are kept of an output of any length."""
_LINE = re.compile(r"METRIC[ \t]++(?P<name>[^=]*+)=(?P<value>.*)", re.DOTALL)
_NEAR_MISS = re.compile(r"\bmetric\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """What is measured.

    Attributes:
        name: of the metric; of the line where it comes from one.
        direction: which way is better.
        source: ``line`` of stdout, ``wall`` or ``cpu`` (seconds, user and system of the whole process tree),
            ``memory`` (bytes, peak of the largest process), ``exit`` (the exit status) or ``json``.
        unit: for people.
        json_path: see `parse_json_path`; only with ``json``.
    """

    name: str
    direction: MetricDirection = "lower"
    source: MetricSource = "line"
    unit: str = ""
    json_path: str = ""


@dataclass(frozen=True, slots=True)
class Guard:
    """One secondary metric and how bad it may get; at least one of the three limits is given.

    Attributes:
        name: of the metric: one that the measure command prints, or one of `OWN_NAMES`.
        bound: the worst value that holds, in the metric's unit.
        max_regression: how much worse than the incumbent's median is allowed, in the metric's unit, 0 or more.
        direction: which way the guarded metric is better.
        max_regression_percent: likewise, in percent of the incumbent's median.
    """

    name: str
    bound: float | None = None
    max_regression: float | None = None
    direction: MetricDirection = "lower"
    max_regression_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of a command by the runtime itself.

    Attributes:
        wall_seconds: by the monotonic clock.
        cpu_seconds: user and system, of all processes.
        peak_bytes: resident memory of the largest process at its peak; 0 where it could not be told.
        exit_status: negative for a signal; None where it did not end by itself.
        outcome: how the command ended.
    """

    wall_seconds: float
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    exit_status: int | None = 0
    outcome: Outcome = "exited"


@dataclass(frozen=True, slots=True)
class Reading:
    """The metrics of one run, or its fault.

    Attributes:
        primary: the metric; None exactly where there is a fault.
        others: secondary metrics, those of `OWN_NAMES` among them; empty where there is a fault.
        fault: why there is no metric, such as ``metric_missing`` or ``timed_out``; empty otherwise.
        detail: the fault in a sentence or several lines, with what was seen instead.
        notes: what was left out and why, without being a fault.
    """

    primary: float | None
    others: dict[str, float] = field(default_factory=dict)
    fault: str = ""
    detail: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    raw: str


def read_metrics(output: str, spec: MetricSpec, measured: Measured, document: str | None = None) -> Reading:
    """Read the metric of one run.

    Args:
        output: the stdout of the command, whole.
        spec: what is measured.
        measured: what was seen from outside.
        document: of a ``json`` source in a file: its text, None where there is no file. Unused otherwise.
    """
    text = plain_text(output)
    lines = _metric_lines(text, normal_name(spec.name))
    if failure := _failure_of(spec, measured):
        fault, sentence = failure
        return Reading(None, {}, fault, _joined(sentence, _diagnostic(lines), _tail(text)))
    others, notes = _others(lines, spec, measured)
    primary, fault, detail = _primary(spec, measured, lines, text, document)
    if primary is None:
        is_line_missing = fault == "metric_missing" and spec.source == "line"
        near_misses = [*_as_json(spec, text), *_near_misses(text)] if is_line_missing else []
        told = _joined(detail, *notes[:_SHOWN_NOTES], *near_misses, _tail(text))
        return Reading(None, {}, fault, told)
    return Reading(primary, others, notes=notes)


def samples_of(others: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Secondary metrics of several runs, by name; a run that lacks one has NaN there, which guards take for missing."""
    names = dict.fromkeys(name for run in others for name in run)
    return {name: [run.get(name, float("nan")) for run in others] for name in names}


def plain_text(output: str) -> str:
    """An output without terminal sequences; a carriage return is a newline."""
    text = without_escapes(output.removeprefix("\ufeff"))
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def spec_faults(spec: MetricSpec) -> list[str]:
    """The faults of a metric's description."""
    faults = name_faults(spec.name)
    if spec.source != "json" and spec.json_path:
        faults.append(f"a JSON path needs the source json, not {spec.source}")
    if spec.source == "json":
        try:
            path = parse_json_path(spec.json_path)
            parts = path.file_path.split("/")
            if path.file_path.startswith(("/", "~")) or ".." in parts or ".git" in parts:
                faults.append(
                    f"the file of the JSON path, {quoted(path.file_path)}, must be inside the worktree"
                )
        except JsonPathFault as fault:
            faults.append(str(fault))
    return faults


# --- lines


def _metric_lines(text: str, primary_name: str) -> list[_Line]:
    """The metric lines in their order, of the primary metric and of all others `LINE_LIMIT` at most."""
    found: list[_Line] = []
    counts = {True: 0, False: 0}
    at = text.find(_WORD)
    while at >= 0 and counts[True] < LINE_LIMIT:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        match = _LINE.fullmatch(text, at, end) if at == 0 or text[at - 1] == "\n" else None
        if match:
            name = match["name"].rstrip(" \t")
            name = normal_name(name) if len(name) <= 4 * NAME_LIMIT else name
            counts[name == primary_name] += 1
            if counts[name == primary_name] <= LINE_LIMIT:
                found.append(_Line(name, match["value"].strip(" \t")))
        at = text.find(_WORD, end)
    return found


def _others(
    lines: Sequence[_Line], spec: MetricSpec, measured: Measured
) -> tuple[dict[str, float], tuple[str, ...]]:
    own = {WALL_SECONDS: measured.wall_seconds, CPU_SECONDS: measured.cpu_seconds}
    if measured.peak_bytes:
        own[PEAK_BYTES] = float(measured.peak_bytes)
    primary_name = normal_name(spec.name)
    others = {name: value for name, value in own.items() if name != primary_name}
    notes: list[str] = []
    counts: dict[str, int] = {}
    for line in lines:
        counts[line.name] = counts.get(line.name, 0) + 1
    for line in lines:
        if line.name == primary_name:
            if spec.source != "line":
                notes.append(
                    f"the line METRIC {quoted(line.name)} is not used: the metric comes from {spec.source}"
                )
        elif why := _why_not_recorded(line, counts[line.name]):
            notes.append(f"METRIC {quoted(line.name)}: {why}, so it is not recorded")
        elif len(others) >= SECONDARY_LIMIT:
            notes.append(f"METRIC {quoted(line.name)}: more than {SECONDARY_LIMIT} metrics are not recorded")
        else:
            others[line.name] = decimal_of(line.raw).value or 0.0
    return others, tuple(dict.fromkeys(notes))[:SECONDARY_LIMIT]


def _why_not_recorded(line: _Line, count: int) -> str:
    if line.name in OWN_NAMES:
        return "the runtime measures that itself"
    if faults := name_faults(line.name):
        return faults[0]
    if count > 1:
        return f"it appears {count_of(count, 'time')}"
    number = decimal_of(line.raw)
    return "" if number.value is not None else f"{quoted(line.raw)} {number.why}"


# --- the primary metric

_Primary = tuple[float | None, str, str]
"""The value, or a fault and its detail."""


def _primary(
    spec: MetricSpec, measured: Measured, lines: Sequence[_Line], text: str, document: str | None
) -> _Primary:
    if spec.source == "line":
        return _from_lines(normal_name(spec.name), lines)
    if spec.source == "json":
        return _from_json(spec, text, document)
    if spec.source == "exit":
        return float(measured.exit_status or 0), "", ""
    if spec.source == "memory" and not measured.peak_bytes:
        return None, "metric_missing", "the peak memory of the command could not be measured on this system"
    values = {"wall": measured.wall_seconds, "cpu": measured.cpu_seconds, "memory": measured.peak_bytes}
    return float(values[spec.source]), "", ""


def _from_lines(name: str, lines: Sequence[_Line]) -> _Primary:
    own = [line for line in lines if line.name == name]
    if not own:
        return None, "metric_missing", _missing(name, lines)
    if len(own) > 1:
        values = ", ".join(quoted(line.raw, 40) for line in own[:5])
        count = count_of(len(own), "time") if len(own) < LINE_LIMIT else f"{LINE_LIMIT} times or more"
        return None, "metric_repeated", f"METRIC {name} appears {count} ({values}); print it exactly once"
    return _judged(f"METRIC {name}=", own[0].raw)


def _judged(what: str, raw: str) -> _Primary:
    number = decimal_of(raw)
    if number.value is not None:
        return number.value, "", ""
    fault = "metric_malformed" if number.is_finite else "metric_not_finite"
    return None, fault, f"{what}{quoted(raw)} {number.why}"


def _missing(name: str, lines: Sequence[_Line]) -> str:
    sentence = f"no line `METRIC {name}=value` on stdout"
    seen = list(dict.fromkeys(line.name for line in lines))
    if not seen:
        return sentence
    near = near_name(name, seen)
    hint = f"; did you mean {quoted(near)}?" if near else ""
    return f"{sentence}; seen: {', '.join(quoted(each, 40) for each in seen[:10])}{hint}"


def _from_json(spec: MetricSpec, text: str, document: str | None) -> _Primary:
    try:
        path = parse_json_path(spec.json_path)
        if path.file_path:
            where = path.file_path
            if document is None:
                return None, "metric_missing", f"the command wrote no file {quoted(where)} in the worktree"
        else:
            where = "the last line of stdout"
            document = next((line for line in reversed(text.split("\n")) if line.strip()), "")
            if not document:
                return (
                    None,
                    "metric_missing",
                    "the command wrote nothing to stdout; its last line must be JSON",
                )
        raw = raw_number_at(document, path)
    except JsonPathFault as fault:
        return None, "metric_malformed", f"{spec.json_path}: {fault}"
    return _judged(f"{spec.json_path} in {where}: ", raw)


# --- failures


def _failure_of(spec: MetricSpec, measured: Measured) -> tuple[str, str] | None:
    status = measured.exit_status
    if measured.outcome == "timed_out":
        return (
            "timed_out",
            f"the command exceeded its time limit and was stopped after {measured.wall_seconds:.1f} s",
        )
    if measured.outcome == "cancelled":
        return "cancelled", f"the command was cancelled after {measured.wall_seconds:.1f} s"
    if measured.outcome == "not_started" or status is None:
        return "not_started", "the command could not be started"
    if status < 0:
        return "command_failed", f"signal {-status} ended the command"
    if status and spec.source != "exit":
        return "command_failed", f"the command failed with exit status {status}"
    return None


def _diagnostic(lines: Sequence[_Line]) -> str:
    if not lines:
        return ""
    said = ", ".join(f"{quoted(line.name, 40)}={quoted(line.raw, 40)}" for line in lines[:5])
    return f"it had printed {said}, which does not count after a failure"


def json_source(name: str) -> str:
    """The option that reads the metric from a last line that is JSON."""
    return f"--source json:{name}"


def _as_json(spec: MetricSpec, text: str) -> list[str]:
    """A hint where the last line is JSON with the metric in it."""
    value, _, _ = _from_json(replace(spec, source="json", json_path=spec.name), text, None)
    return [f"the last line is JSON: {json_source(spec.name)} reads it"] if value is not None else []


def _near_misses(text: str) -> list[str]:
    """A few of the last lines that only look like a metric."""
    lines = [line for line in text[-_LOOKED_AT:].split("\n") if _NEAR_MISS.search(line)]
    strays = [line for line in lines if not _LINE.fullmatch(line)][-_SHOWN_NOTES:]
    return [
        f"not a metric, since the line does not begin with METRIC name=: {quoted(line)}" for line in strays
    ]


_LAST_LINES = "the last lines of its output:"
_NOTHING = "it wrote nothing to stdout"


def _tail(text: str) -> str:
    """The last lines of an output, for people."""
    lines = [line.rstrip() for line in text[-8 * _TAIL_LENGTH :].split("\n") if line.strip()]
    kept = [line[:_LINE_LENGTH] for line in lines[-_TAIL_LINES:]]
    while len(kept) > 1 and sum(map(len, kept)) > _TAIL_LENGTH:
        kept.pop(0)
    return "\n".join([_LAST_LINES, *kept]) if kept else _NOTHING


def without_tail(detail: str) -> str:
    """The detail of a reading without the end of stdout, for a caller that shows both streams itself."""
    for words in (_LAST_LINES, _NOTHING):
        detail = detail.partition(f"\n{words}")[0]
    return detail


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
