"""``.auto/log.jsonl``, the log of pi-autoresearch and the older session tools: read, judged, appended to, shown.

A header line ``{"type": "config", "name", "metricName", "metricUnit", "bestDirection"}`` begins a segment with a best
of its own, each run is a line ``{"run", "status", "metric", "metrics", "commit", "description", "timestamp",
"segment"}``, and lines of any other ``type`` belong to other tools. The reader guesses nothing: an unknown status or a
missing value makes a line invalid, and an invalid line is never the best.

The folder is the agent's own. So nothing here follows a symbolic link, waits for a pipe, or writes anything else than
``log.jsonl`` and a script that is missing; whole outputs and the note of who runs stand in the state home.
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
    read_chunks,
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
``checks_failed``: there is one, of a workspace that is not correct."""

MEASURED, REPORTED = "measured", "reported"
NAME_LIMIT = 200
DESCRIPTION_LIMIT = 4000
METRICS_LIMIT = 200
MEASURE_TIMEOUT_SECONDS = 600.0
CHECKS_TIMEOUT_SECONDS = 300.0
TIMEOUT_LIMIT_SECONDS = 7 * 24 * 3600.0


# --- one line: strict where a value decides, lenient in what other tools write beside it


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
        name: what is optimized, for people.
        metric_name: as the benchmark writes it in ``METRIC name=value``.
        metric_unit: shown beside the value.
        direction: which way is better.
        timeout_seconds: of one run of the benchmark.
        checks_timeout_seconds: of one run of the checks.
        max_iterations: runs of the segment; 0 for no limit.
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
        """What is read of the benchmark's output."""
        return MetricSpec(self.metric_name, self.direction, unit=self.metric_unit)


@dataclass(frozen=True, slots=True)
class SessionRun:
    """One run of the log.

    Attributes:
        run: its number, counting through all segments.
        status: see `SessionStatus`.
        metric: the primary value; None where there is none, which is never the same as 0.
        metrics: secondary values.
        description: what was tried.
        commit: that was checked out; empty outside git and where the log does not say.
        timestamp_ms: when it ended, milliseconds since 1970 UTC as the format has it; 0 where unknown.
        segment: number of its header, from 0.
        duration_seconds: of the benchmark.
        reason: why it is no ``keep``; empty for one.
        run_id: by which its starter knows it again; empty for runs of other tools.
        source: ``measured`` by this runtime, or ``reported`` by the caller.
        isolation: what really isolated the benchmark.
        checks: ``passed`` or ``failed``; empty where none were run.
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
"""What a field is called in the log, where that differs."""


def line_of(value: SessionConfig | SessionRun) -> dict[str, Any]:
    """A header or a run as a line of the log."""
    line = {_NAMES.get(name, name): item for name, item in asdict(value).items()}
    return {"type": "config", **line} if isinstance(value, SessionConfig) else line


def _read_line(value: Any, segment: int) -> SessionConfig | SessionRun | None:
    """What a line is; None for a line of another tool.

    Raises:
        ValueError: it cannot be trusted.
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
    """A log, read.

    Attributes:
        config: the newest header; None before the first.
        segment: its number, from 0.
        runs: the valid runs of all segments, in order.
        faults: lines that are not believed: number and cause.
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
        if not kept:
            return None
        return max(kept) if self.config and self.config.direction == "higher" else min(kept)

    @property
    def next_run(self) -> int:
        """The number of the next run; none is given twice."""
        return max((run.run for run in self.runs), default=0) + 1

    @property
    def is_full(self) -> bool:
        """The segment has as many runs as its header allows."""
        limit = self.config.max_iterations if self.config else 0
        return 0 < limit <= len(self.segment_runs)

    def find(self, run_id: str) -> SessionRun | None:
        """The run that was started under this id."""
        return next((run for run in reversed(self.runs) if run_id and run.run_id == run_id), None)


def read_log(lines: Iterable[tuple[int, Any]]) -> SessionLog:
    """Fold a log.

    Args:
        lines: number and decoded value of each line; a `ValueError` in a value's place says why it has none.
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


def improves(log: SessionLog, metric: float) -> bool:
    """True for a value strictly better than the best so far, or the first of its segment."""
    best = log.best
    if best is None:
        return True
    return metric > best if log.config and log.config.direction == "higher" else metric < best


def judged(log: SessionLog, run: SessionRun) -> SessionRun:
    """The run with the status that its value earns; one that crashed or failed its checks is returned as it is."""
    if run.status not in ("keep", "discard") or run.metric is None:
        return run
    if improves(log, run.metric):
        return replace(run, status="keep", reason="")
    return replace(run, status="discard", reason=f"{run.metric:g} is not better than {log.best:g}")


def require_config(config: SessionConfig) -> None:
    """Let a header pass that can be kept.

    Raises:
        UsageError: says which values cannot, and why.
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
    """Let a description pass that can be kept.

    Raises:
        UsageError: empty, too long, or with a NUL.
    """
    if not text.strip():
        raise UsageError("the description is empty: say what was tried", next_step="give a description")
    if len(text) > DESCRIPTION_LIMIT or "\0" in text:
        raise UsageError(
            f"the description has {len(text)} characters; at most {DESCRIPTION_LIMIT}, without NUL, are allowed",
            next_step="shorten it",
        )


def require_metrics(metrics: dict[str, float]) -> None:
    """Let reported values pass that can be kept.

    Raises:
        UsageError: too many, an unusable name, or a value that is not a finite number.
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
    """Where one workspace's session stands: ``.auto/`` in it, and a folder of its own in the state home."""

    workspace_path: str
    own_path: str

    @property
    def lock_path(self) -> str:
        """``session.lock``: held while the log is read and appended to, never while a command runs."""
        return os.path.join(self.own_path, "session.lock")

    @property
    def running_path(self) -> str:
        """``running.json``: the run under way."""
        return os.path.join(self.own_path, "running.json")

    def output_path(self, run: int, script: str) -> str:
        """The whole output of a run's script."""
        return os.path.join(self.own_path, "outputs", f"{self.output_name(run, script)}.txt")

    @staticmethod
    def output_name(run: int, script: str) -> str:
        """What names the output of a run's script."""
        return f"run-{run:04d}-{script.removesuffix('.sh')}"

    def locked(self) -> Lock:
        """The lock of this session.

        Raises:
            StorageFailed: on entry, where it cannot be had.
        """
        ensure_folder(os.path.join(self.own_path, "outputs"))
        return Lock(self.lock_path)


def session_folder(home: StateHome, workspace_path: str) -> SessionFolder:
    """The session of a workspace; its folder in the state home is named by a digest of the workspace's real path."""
    real_path = os.path.realpath(workspace_path)
    name = sha256(os.fsencode(real_path)).hexdigest()[:32]
    return SessionFolder(real_path, os.path.join(home.root_path, "session-tools", name))


def load_log(folder: SessionFolder) -> SessionLog:
    """The log as it stands; an empty one where there is none. Lines that cannot be read are among its faults.

    Raises:
        WorkspaceFault: a link, a pipe or anything else stands in the way, or the log is too large.
        StorageFailed: the system refused.
    """
    path = f"{AUTO}/{LOG}"
    try:
        descriptor = open_inside(folder.workspace_path, path)
    except FileNotFoundError:
        return read_log(())
    except OSError as error:
        raise storage_failed("read", path, error) from error
    try:
        data = b"".join(read_chunks(descriptor, LOG_LIMIT_BYTES))
    finally:
        os.close(descriptor)
    return read_log(lines_of(data))


def append_line(folder: SessionFolder, value: dict[str, Any]) -> None:
    """Append one line durably. What a killed writer left without its end gets a line of its own, and stays.

    Raises:
        WorkspaceFault: a link, a pipe or anything else stands in the way.
        StorageFailed: the system refused.
        StateUntrusted: the line is too long.
    """
    data = json_codec.encode(value) + b"\n"
    if len(data) > LINE_LIMIT_BYTES:
        raise StateUntrusted(
            f"a line of {len(data)} bytes is too long for {AUTO}/{LOG}", next_step="say it shorter"
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
    """The command line that runs a script of ``.auto/`` from the workspace: itself where it can run, else by ``bash``.

    Empty where there is no such file.

    Raises:
        WorkspaceFault: something else than a regular file stands there.
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
    """Write a script that runs one command line, unless one is there; returns whether it was written.

    Raises:
        WorkspaceFault: ``.auto`` is no real folder.
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
    """Each line with its number; a `ValueError` stands for one that is no JSON."""
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, json_codec.decode(line)
        except ValueError as fault:
            yield number, fault
