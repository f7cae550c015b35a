"""``.auto/log.jsonl``, the log of pi-autoresearch and of the older session tools: reading, judging, appending.

A header line ``{"type": "config", "name", "metricName", "metricUnit", "bestDirection"}`` begins a segment with its own
best value. Each run is a line ``{"run", "status", "metric", "metrics", "commit", "description", "timestamp",
"segment"}``. Lines of any other ``type`` belong to other tools. The reader guesses nothing: an unknown status or a
missing value makes a line invalid, and an invalid line is never the best.

The folder belongs to the agent. So nothing here follows a symbolic link or waits for a pipe, and we write nothing but
``log.jsonl`` and missing scripts; full outputs and the note of the running process are in the state home.
"""

from __future__ import annotations

import errno
import math
import os
import re
import stat
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

from pydantic import BeforeValidator, Field

from omx_autoresearch.experiments.judge.metrics import MetricSpec, spec_faults
from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import StateUntrusted, UsageError, WorkspaceFault
from omx_autoresearch.foundation.input_validation import checked
from omx_autoresearch.foundation.types import MetricDirection  # noqa: TC001 - pydantic reads it
from omx_autoresearch.journal.safe_files import (
    Lock,
    ensure_folder,
    open_folder,
    open_inside,
    read_inside,
    storage_failed,
    write_all,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeGuard

    from omx_autoresearch.journal.layout import StateHome

_Kind = TypeVar("_Kind", "SessionConfig", "SessionRun")
SessionStatus = Literal["keep", "discard", "crash", "checks_failed"]
"""``keep``: better than the best so far (or the first); ``discard``: not better; ``crash``: there is no value to judge;
``checks_failed``: a value, but the workspace failed its checks."""

MEASURED, REPORTED = "measured", "reported"
NAME_LIMIT = 200
DESCRIPTION_LIMIT = 4000
METRICS_LIMIT = 200
MEASURE_TIMEOUT_SECONDS = 600.0
CHECKS_TIMEOUT_SECONDS = 300.0
TIMEOUT_LIMIT_SECONDS = 7 * 24 * 3600.0


# --- one line: strict for values that decide, lenient for the others, which other tools may write


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _positive(otherwise: float) -> BeforeValidator:
    def seconds(value: object) -> float:
        return float(value) if _is_number(value) and 0 < value <= TIMEOUT_LIMIT_SECONDS else otherwise

    return BeforeValidator(seconds)


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _numbers_in(value: object) -> dict[str, float]:
    found = value.items() if isinstance(value, dict) else ()
    return {name: float(item) for name, item in found if _is_number(item)}


_Text = Annotated[str, BeforeValidator(lambda value: value if isinstance(value, str) else "")]
_Count = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
_Limit = Annotated[int, BeforeValidator(lambda value: int(value) if _is_number(value) and value > 0 else 0)]
_Moment = Annotated[int, BeforeValidator(lambda value: int(value) if _is_number(value) else 0)]
_Source = Annotated[str, BeforeValidator(lambda value: MEASURED if value == MEASURED else REPORTED)]


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The header of a segment.

    Attributes:
        name: the goal of the optimization, for people.
        metric_name: the name in the benchmark's line ``METRIC name=value``.
        metric_unit: shown beside the value.
        direction: whether lower or higher is better.
        timeout_seconds: of one run of the benchmark.
        checks_timeout_seconds: of one run of the checks.
        max_iterations: the segment's limit of runs; 0 for no limit.
    """

    name: _Text = ""
    metric_name: Annotated[str, Field(min_length=1)] = ""
    metric_unit: _Text = ""
    direction: MetricDirection = "lower"
    timeout_seconds: Annotated[float, _positive(MEASURE_TIMEOUT_SECONDS)] = MEASURE_TIMEOUT_SECONDS
    checks_timeout_seconds: Annotated[float, _positive(CHECKS_TIMEOUT_SECONDS)] = CHECKS_TIMEOUT_SECONDS
    max_iterations: _Limit = 0

    @property
    def spec(self) -> MetricSpec:
        """The metric to read from the benchmark's output."""
        return MetricSpec(self.metric_name, self.direction, unit=self.metric_unit)


@dataclass(frozen=True, slots=True)
class SessionRun:
    """One run of the log.

    Attributes:
        run: its number, counted across all segments.
        status: see `SessionStatus`.
        metric: the primary value; None if there is none, which is not the same as 0.
        metrics: secondary values.
        description: the change that was tried.
        commit: the commit that was checked out; empty outside git or if the log does not say.
        timestamp_ms: when it ended, milliseconds since 1970 UTC as in the format; 0 if unknown.
        segment: the number of its header, from 0.
        duration_seconds: of the benchmark.
        reason: why the status is not ``keep``; empty if it is.
        run_id: the id that its starter gave it; empty for runs of other tools.
        source: ``measured`` by this runtime, or ``reported`` by the caller.
        isolation: the real isolation of the benchmark.
        checks: ``passed`` or ``failed``; empty if there were none.
    """

    run: _Count
    status: SessionStatus
    metric: float | None = None
    metrics: Annotated[dict[str, float], BeforeValidator(_numbers_in)] = field(default_factory=dict)
    description: _Text = ""
    commit: _Text = ""
    timestamp_ms: _Moment = 0
    segment: Any = 0
    duration_seconds: Annotated[float, _positive(0.0)] = 0.0
    reason: _Text = ""
    run_id: _Text = ""
    source: _Source = MEASURED
    isolation: _Text = ""
    checks: _Text = ""


_NAMES = {
    "metric_name": "metricName",
    "metric_unit": "metricUnit",
    "direction": "bestDirection",
    "timeout_seconds": "timeoutSeconds",
    "checks_timeout_seconds": "checksTimeoutSeconds",
    "max_iterations": "maxIterations",
    "timestamp_ms": "timestamp",
    "duration_seconds": "durationSeconds",
    "run_id": "id",
}
"""A field's name in the log, if it differs."""


def line_of(value: SessionConfig | SessionRun) -> dict[str, Any]:
    """A header or a run as a line of the log."""
    line = {_NAMES.get(name, name): item for name, item in asdict(value).items()}
    return {"type": "config", **line} if isinstance(value, SessionConfig) else line


def _read_line(value: Any, segment: int) -> SessionConfig | SessionRun | None:
    """The header or run in a line; None for a line of another tool.

    Raises:
        ValueError: the line is not valid.
    """
    if isinstance(value, ValueError):
        raise value
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - a line's fault, as the others
    kind = value.get("type")
    if kind == "config":
        if "maxIterations" not in value and "maxExperiments" in value:
            value = {**value, "maxIterations": value["maxExperiments"]}
        return _of_kind(SessionConfig, {"metricName": "", **value})
    if "run" not in value or kind not in (None, "run", "result", "experiment"):
        return None
    run = replace(_of_kind(SessionRun, value), segment=segment)
    if run.status in ("keep", "discard") and run.metric is None:
        raise ValueError(f"{run.status} without a metric")
    return replace(run, metric=None) if run.status == "crash" else run


def _of_kind(kind: type[_Kind], line: dict[str, Any]) -> _Kind:
    names = {_NAMES.get(item.name, item.name): item.name for item in fields(cast("Any", kind))}
    found, faults = checked(kind, {names[key]: item for key, item in line.items() if key in names}, {})
    if faults:
        raise ValueError(
            "; ".join(str(replace(fault, field=_NAMES.get(fault.field, fault.field))) for fault in faults)
        )
    return cast("_Kind", found)


# --- the log as a whole


@dataclass(frozen=True, slots=True)
class SessionLog:
    """The content of a log.

    Attributes:
        config: the newest header; None before the first.
        segment: its number, from 0.
        runs: the valid runs of all segments, in order.
        faults: the invalid lines, by number and cause.
    """

    config: SessionConfig | None = None
    segment: int = 0
    runs: tuple[SessionRun, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def segment_runs(self) -> tuple[SessionRun, ...]:
        """The runs under the newest header."""
        return tuple(run for run in self.runs if run.segment == self.segment)

    @property
    def baseline(self) -> float | None:
        """The first kept value of the segment."""
        return next((run.metric for run in self.segment_runs if run.status == "keep"), None)

    @property
    def best(self) -> float | None:
        """The best kept value of the segment, in its direction; None before the first."""
        kept = [run.metric for run in self.segment_runs if run.status == "keep" and run.metric is not None]
        return self._better_of(kept) if kept else None

    def is_better(self, metric: float) -> bool:
        """Whether a value is the first of the segment, or strictly better than its best."""
        best = self.best
        return best is None or (metric != best and self._better_of([metric, best]) == metric)

    def _better_of(self, values: list[float]) -> float:
        return max(values) if self.config and self.config.direction == "higher" else min(values)

    @property
    def next_run(self) -> int:
        """The number of the next run; no number is used twice."""
        return max((run.run for run in self.runs), default=0) + 1

    @property
    def is_full(self) -> bool:
        """Whether the segment has as many runs as its header allows."""
        limit = self.config.max_iterations if self.config else 0
        return 0 < limit <= len(self.segment_runs)

    def find(self, run_id: str) -> SessionRun | None:
        """The run with this id; None if there is none."""
        return next((run for run in reversed(self.runs) if run_id and run.run_id == run_id), None)


def read_log(lines: Iterable[tuple[int, Any]]) -> SessionLog:
    """Fold a log.

    Args:
        lines: number and decoded value of each line; a `ValueError` stands for a line that is not JSON.
    """
    config: SessionConfig | None = None
    segment, runs, faults = 0, list[SessionRun](), list[str]()
    for number, value in lines:
        try:
            found = _read_line(value, segment)
        except ValueError as fault:
            faults.append(f"line {number}: {fault}")
            continue
        if isinstance(found, SessionConfig):
            config, segment = found, segment + bool(runs)
        elif found is not None:
            runs.append(found)
    return SessionLog(config, segment, tuple(runs), tuple(faults))


def judged(log: SessionLog, run: SessionRun) -> SessionRun:
    """The run with the status that its value earns; unchanged if it crashed or failed its checks."""
    if run.status not in ("keep", "discard") or run.metric is None:
        return run
    if log.is_better(run.metric):
        return replace(run, status="keep", reason="")
    return replace(run, status="discard", reason=f"{run.metric:g} is not better than {log.best:g}")


def require_config(config: SessionConfig) -> None:
    """Check a header before it is recorded.

    Raises:
        UsageError: names the invalid values and the reasons.
    """
    faults = [
        f"{name} must be one non-empty line of at most {NAME_LIMIT} characters"
        for name in ("name", "metric_name", "metric_unit")
        if not re.fullmatch(r"[^\0\r\n]{0,200}", text := getattr(config, name))
        or (not text.strip() and name != "metric_unit")
    ]
    faults += [
        f"{name} is {seconds:g}; it must be more than 0 and at most a week"
        for name in ("timeout_seconds", "checks_timeout_seconds")
        if not 0 < (seconds := getattr(config, name)) <= TIMEOUT_LIMIT_SECONDS
    ]
    if config.max_iterations < 0:
        faults.append("max_iterations is negative; 0 means no limit")
    if faults := faults or spec_faults(config.spec):
        raise UsageError("; ".join(faults), next_step="call init_experiment again with another value")


def require_description(text: str) -> None:
    """Check a description before it is recorded.

    Raises:
        UsageError: it is empty, too long, or contains a NUL.
    """
    if not text.strip():
        raise UsageError("the description is empty", next_step="describe the change that you tried")
    if len(text) > DESCRIPTION_LIMIT or "\0" in text:
        raise UsageError(
            f"the description has {len(text)} characters; at most {DESCRIPTION_LIMIT}, without NUL, are allowed",
            next_step="shorten it",
        )


def require_metrics(metrics: dict[str, float]) -> None:
    """Check reported values before they are recorded.

    Raises:
        UsageError: there are too many, or one has an invalid name or is not a finite number.
    """
    wrong = [
        name[:NAME_LIMIT]
        for name, value in metrics.items()
        if not name.strip() or len(name) > NAME_LIMIT or not _is_number(value)
    ]
    if wrong or len(metrics) > METRICS_LIMIT:
        raise UsageError(
            f"at most {METRICS_LIMIT} metrics with a name and a finite number are allowed, received {len(metrics)}"
            + (f", of which these are invalid: {', '.join(map(repr, wrong[:5]))}" if wrong else ""),
            next_step="send fewer, each with a name and a finite number",
        )


# --- on disk

AUTO = ".auto"
LOG, MEASURE, CHECKS = "log.jsonl", "measure.sh", "checks.sh"
LOG_LIMIT_BYTES = 64 * 1024 * 1024
LINE_LIMIT_BYTES = 1024 * 1024
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """The two places of one workspace's session: ``.auto/`` in the workspace, and a folder in the state home."""

    workspace_path: str
    own_path: str

    @property
    def lock_path(self) -> str:
        """``session.lock``: held while we read the log and append to it, never while a command runs."""
        return os.path.join(self.own_path, "session.lock")

    @property
    def running_path(self) -> str:
        """``running.json``: the run under way."""
        return os.path.join(self.own_path, "running.json")

    def output_path(self, run: int, script: str) -> str:
        """The file with the full output of a run's script."""
        return os.path.join(self.own_path, "outputs", f"{self.output_name(run, script)}.txt")

    @staticmethod
    def output_name(run: int, script: str) -> str:
        """The name of the output of a run's script."""
        return f"run-{run:04d}-{script.removesuffix('.sh')}"

    def locked(self) -> Lock:
        """The lock of this session.

        Raises:
            StorageFailed: on entry, if it cannot be acquired.
        """
        ensure_folder(os.path.join(self.own_path, "outputs"))
        return Lock(self.lock_path)


def session_folder(home: StateHome, workspace_path: str) -> SessionFolder:
    """The session of a workspace; its folder in the state home is named by a digest of the workspace's real path."""
    real_path = os.path.realpath(workspace_path)
    name = sha256(os.fsencode(real_path)).hexdigest()[:32]
    return SessionFolder(real_path, os.path.join(home.root_path, "session-tools", name))


def load_log(folder: SessionFolder) -> SessionLog:
    """The present log; an empty one if there is none. Unreadable lines are among its faults.

    Raises:
        WorkspaceFault: the log is a link, a pipe or another special file, or it is too large.
        StorageFailed: the system refused.
    """
    path = f"{AUTO}/{LOG}"
    try:
        return read_log(lines_of(read_inside(folder.workspace_path, path, LOG_LIMIT_BYTES)))
    except FileNotFoundError:
        return SessionLog()
    except OSError as error:
        raise storage_failed("read", path, error) from error


def append_line(folder: SessionFolder, value: dict[str, Any]) -> None:
    """Append one line durably. An incomplete line of a killed writer stays, as a separate line.

    Raises:
        WorkspaceFault: the log is a link, a pipe or another special file.
        StorageFailed: the system refused.
        StateUntrusted: the line is too long.
    """
    data = json_codec.encode(value) + b"\n"
    if len(data) > LINE_LIMIT_BYTES:
        raise StateUntrusted(
            f"a line of {len(data)} bytes is too long for {AUTO}/{LOG}", next_step="shorten the description"
        )
    try:
        parent = open_folder(folder.workspace_path, AUTO, make=True)
        try:
            descriptor = _open_log(folder, parent)
            try:
                size_bytes = os.fstat(descriptor).st_size
                is_torn = size_bytes > 0 and os.pread(descriptor, 1, size_bytes - 1) != b"\n"
                write_all(descriptor, b"\n" + data if is_torn else data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.fsync(parent)
        finally:
            os.close(parent)
    except OSError as error:
        raise storage_failed("append to", os.path.join(folder.workspace_path, AUTO, LOG), error) from error


def script_command(folder: SessionFolder, name: str) -> str:
    """The command line that runs a script of ``.auto/`` in the workspace, by ``bash`` if it is not executable.

    Empty if there is no such file.

    Raises:
        WorkspaceFault: it is not a regular file.
    """
    path = f"{AUTO}/{name}"
    try:
        descriptor = open_inside(folder.workspace_path, path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise storage_failed("read", path, error) from error
    try:
        is_program = os.fstat(descriptor).st_mode & stat.S_IXUSR and os.pread(descriptor, 2, 0) == b"#!"
    finally:
        os.close(descriptor)
    return f"./{path}" if is_program else f"bash ./{path}"


def write_script(folder: SessionFolder, name: str, command: str) -> bool:
    """Write a script that runs one command line, unless the script exists; returns whether it was written.

    Raises:
        WorkspaceFault: ``.auto`` is a link or not a folder.
        StorageFailed: the system refused.
    """
    text = f"#!/usr/bin/env bash\nset -euo pipefail\n{command}\n"
    try:
        parent = open_folder(folder.workspace_path, AUTO, make=True)
        try:
            descriptor = os.open(name, _NEW, 0o755, dir_fd=parent)
        finally:
            os.close(parent)
    except FileExistsError:
        return False
    except OSError as error:
        raise storage_failed("write", f"{AUTO}/{name}", error) from error
    try:
        write_all(descriptor, text.encode("utf-8", "surrogatepass"))
    finally:
        os.close(descriptor)
    return True


def _open_log(folder: SessionFolder, parent: int) -> int:
    try:
        descriptor = os.open(LOG, _APPEND, 0o644, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _no_file(folder) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_file(folder)
    return descriptor


def _no_file(folder: SessionFolder) -> WorkspaceFault:
    path = os.path.join(folder.workspace_path, AUTO, LOG)
    return WorkspaceFault(f"{AUTO}/{LOG} is a link or not a regular file", next_step=f"ls -ld {path}")


def lines_of(data: bytes) -> Iterator[tuple[int, Any]]:
    """Each line with its number; a `ValueError` stands for a line that is not JSON."""
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, json_codec.decode(line)
        except ValueError as fault:
            yield number, fault
