"""``.auto/`` in a workspace: the log of the older session tools, appended durably, and the scripts beside it.

The folder is the agent's own. So nothing here follows a symbolic link, waits for a pipe, or writes anything else than
``log.jsonl`` and a script that is missing; whole outputs and the note of who runs stand in the state home.
"""

from __future__ import annotations

import errno
import os
import stat
from datetime import UTC, datetime
from itertools import pairwise

from omx_autoresearch.compat.auto_rules import SessionConfig, SessionLog, SessionRun, read_log
from omx_autoresearch.experiments.judge.metrics import MetricSpec
from omx_autoresearch.experiments.judge.rule import AcceptanceRule
from omx_autoresearch.experiments.judge.state import (
    ExperimentConfig,
    ExperimentLimits,
    ExperimentState,
    ExperimentUsage,
    TrialRow,
    TrialStatus,
)
from omx_autoresearch.experiments.judge.summary import KEPT_WITHOUT_GAIN, LOGGED_BASELINE
from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.digests import sha256
from omx_autoresearch.foundation.errors import StateUntrusted, UsageError, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass, field, replace
from omx_autoresearch.journal.safe_files import (
    Lock,
    ensure_folder,
    lock,
    open_folder,
    open_inside,
    read_bounded,
    read_chunks,
    storage_failed,
    write_all,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from omx_autoresearch.journal.layout import StateHome

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
        return os.path.join(self.own_path, "outputs", f"run-{run:04d}-{script.removesuffix('.sh')}.txt")

    def locked(self) -> Lock:
        """The lock of this session.

        Raises:
            StorageFailed: on entry, where it cannot be had.
        """
        ensure_folder(os.path.join(self.own_path, "outputs"))
        return lock(self.lock_path)


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
    return read_log(_decoded(data))


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


def has_script(folder: SessionFolder, name: str) -> bool:
    """Whether a regular file of this name stands in ``.auto/``.

    Raises:
        WorkspaceFault: something else stands there.
    """
    try:
        os.close(open_inside(folder.workspace_path, f"{AUTO}/{name}"))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise storage_failed("read", f"{AUTO}/{name}", error) from error
    return True


def script_argv(folder: SessionFolder, name: str) -> tuple[str, ...]:
    """The command that runs a script of ``.auto/`` from the workspace: itself where it can run, else by ``bash``.

    Raises:
        FileNotFoundError: there is none.
        WorkspaceFault: it is no regular file.
    """
    descriptor = open_inside(folder.workspace_path, f"{AUTO}/{name}")
    try:
        is_program = os.fstat(descriptor).st_mode & stat.S_IXUSR and os.pread(descriptor, 2, 0) == b"#!"
    finally:
        os.close(descriptor)
    path = f"./{AUTO}/{name}"
    return (path,) if is_program else ("bash", path)


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
    return WorkspaceFault(f"{AUTO}/{LOG} is a link or no regular file", next_step=f"ls -ld {path}")


def _decoded(data: bytes) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, json_codec.decode(line)
        except ValueError as fault:
            yield number, fault


# --- The log of pi-autoresearch and of the older session tools (``.auto/log.jsonl``), read for status, plot and report.
#
# Each header of the log begins a session of its own, and each becomes a state as an experiment has one. Lines are
# judged
# by the one reader of that format (``compat/auto_rules.py``); one that cannot be believed is named by its number and
# counts for nothing, and the file is never written. What such a log cannot hold stays empty: nobody interleaved
# pairs, so
# there is no interval, no claim, and no number to quote.
#
# A run without a value of its own (a crash, a failed check) has none here, whatever number its line carries. A kept run
# that was no better than the best before it is shown as accepted and moves no step.

LOG_NAMES = (os.path.join(".auto", "log.jsonl"), "autoresearch.jsonl")
"""Where such a log stands in a project: today's place, and the one before it."""
FILE_LIMIT_BYTES = 256 * 1024 * 1024
_NO_HEADER = SessionConfig(name="", metric_name="metric")
_OWN_KEYS = frozenset(
    {"type", "run", "commit", "metric", "metrics", "status", "description", "timestamp", "segment"}
    | {"durationSeconds", "reason", "id"}
)
_ENDINGS: dict[str, tuple[TrialStatus, str]] = {
    "keep": ("accepted", "improved"),
    "discard": ("rejected", "discarded"),
    "crash": ("failed", "crash"),
    "checks_failed": ("rejected", "check_failed"),
}
_EARLIEST_MS, _LATEST_MS = 100_000_000_000, 253_402_300_799_000
"""1973 and 9999. Some logs give seconds: as milliseconds they all lie before."""


@dataclass(frozen=True, slots=True)
class AutoLog:
    """A log, as far as it can be believed.

    Attributes:
        path: of the file.
        sessions: one state a header that has a run, in order; the last one is the newest.
        faults: lines that count for nothing, each with its number and cause.
        notes: what was read with a reservation.
    """

    path: str
    sessions: tuple[ExperimentState, ...] = ()
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """For plot and report: what this is not."""
        count = len(self.faults)
        left_out = f"; {count} {'line' if count == 1 else 'lines'} could not be believed" if count else ""
        return f"Read from {self.path}: nothing here was measured, checked or isolated by this runtime{left_out}."


@dataclass(frozen=True, slots=True)
class _Session:
    config: SessionConfig
    runs: list[tuple[SessionRun, dict[str, Any]]] = field(default_factory=list)


def find_auto_log(project_path: str) -> str:
    """The log of a project, or the file itself where it is named.

    Raises:
        UsageError: there is none.
    """
    if os.path.isfile(project_path):
        return project_path
    for name in LOG_NAMES:
        path = os.path.join(project_path, name)
        if os.path.isfile(path):
            return path
    raise UsageError(
        f"{project_path} has no {' and no '.join(LOG_NAMES)}",
        next_step="name the log, or the project it is in",
    )


def read_auto_log(path: str) -> AutoLog:
    """Read a log, or that of a project.

    Raises:
        UsageError: there is no such file.
        StateUntrusted: it is too large, or no regular file.
        StorageFailed: the system refused.
    """
    path = find_auto_log(path)
    sessions, faults, notes = [_Session(_NO_HEADER)], list[str](), list[str]()
    for number, value in _decoded_line(read_bounded(path, FILE_LIMIT_BYTES)):
        read = read_log([(number, value)])
        faults += read.faults
        if read.config is not None:
            sessions.append(_Session(read.config))
        for run in read.runs:
            known = sessions[-1].runs
            if known and run.run <= known[-1][0].run:
                notes.append(
                    f"line {number}: run {run.run} comes after run {known[-1][0].run}; runs are counted anew"
                )
            known.append((run, value))
    states = [_state(path, number, session) for number, session in enumerate(sessions) if session.runs]
    return AutoLog(path, tuple(states), tuple(faults), tuple(notes))


def _decoded_line(data: bytes) -> Iterator[tuple[int, Any]]:
    """Each line with its number; a `ValueError` stands for one that is no JSON."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, json_codec.decode_document(line) if number == 1 else json_codec.decode(line)
        except ValueError as error:
            yield number, error


def _state(path: str, number: int, session: _Session) -> ExperimentState:
    config = session.config
    rows, steps, baseline = _rows(session)
    times = [row.ended_at for row in rows if row.ended_at]
    return ExperimentState(
        experiment_id=f"auto-{number}",
        project_path=_project_of(path),
        config=ExperimentConfig(
            name=config.name or config.metric_name,
            metric=MetricSpec(config.metric_name, config.direction, unit=config.metric_unit),
            rule=AcceptanceRule(name="median", runs=1, warmups=0, direction=config.direction),
            limits=ExperimentLimits(trials=config.max_iterations),
            measure_timeout_seconds=config.timeout_seconds,
        ),
        incumbent_commit=steps[-1].candidate_commit if steps else "",
        phase="ready",
        baseline=baseline,
        rows=rows,
        checkpoints=tuple(row.candidate_commit for row in steps),
        usage=ExperimentUsage(trials=len(rows), wall_seconds=sum(row.duration_seconds for row in rows)),
        started_at=min(times, default=""),
        updated_at=max(times, default=""),
    )


def _project_of(path: str) -> str:
    """The project that a log is about; its own folder is no part of the path."""
    folder_path, name = os.path.split(os.path.dirname(os.path.abspath(path)))
    return folder_path if name == ".auto" else os.path.join(folder_path, name)


def _rows(session: _Session) -> tuple[tuple[TrialRow, ...], list[TrialRow], float | None]:
    """The rows, those that were better than everything kept before, and the first kept value: the base."""
    sign = -1.0 if session.config.direction == "higher" else 1.0
    rows, steps = list[TrialRow](), list[TrialRow]()
    baseline = best = checkpoint = None
    for number, (run, value) in zip(_numbers(session), session.runs, strict=True):
        row = replace(_row(run, value), iteration=number, checkpoint=checkpoint or "")
        if run.status == "keep" and run.metric is not None:
            if best is None:
                baseline = best = run.metric
                checkpoint = run.commit
                row = replace(
                    row, reason_code=LOGGED_BASELINE, reason="the first kept run, which is the base"
                )
            elif sign * run.metric < sign * best:
                best, checkpoint = run.metric, run.commit
                steps.append(row)
            else:
                row = replace(
                    row,
                    reason_code=KEPT_WITHOUT_GAIN,
                    reason=f"kept, though {run.metric:g} is no better than {best:g}, the best before it",
                )
        rows.append(row)
    return tuple(rows), steps, baseline


def _numbers(session: _Session) -> list[int]:
    """The log's own numbers where they rise; else the position, since some logs begin again within a session."""
    numbers = [run.run for run, _ in session.runs]
    rises = all(earlier < later for earlier, later in pairwise(numbers))
    return numbers if rises else list(range(1, len(numbers) + 1))


def _row(run: SessionRun, value: dict[str, Any]) -> TrialRow:
    status, reason_code = _ENDINGS[run.status]
    metadata = _kept({name: item for name, item in value.items() if name not in _OWN_KEYS})
    metric = run.metric if run.status in ("keep", "discard") else None
    if metric is None and value.get("metric") is not None:
        metadata["reported_metric"] = value["metric"]
    return TrialRow(
        iteration=run.run,
        hypothesis_id=f"run-{run.run}",
        description=run.description,
        status=status,
        metric=metric,
        samples=() if metric is None else (metric,),
        others=run.metrics if metric is not None else {},
        duration_seconds=run.duration_seconds,
        candidate_commit=run.commit if run.status == "keep" else "",
        reason_code=reason_code,
        reason=run.reason,
        ended_at=_time(run.timestamp_ms),
        metadata=metadata,
    )


def _kept(metadata: dict[str, Any]) -> dict[str, Any]:
    """What the line says beside the known fields; nothing where it is nested too deeply to be exported again."""
    try:
        json_codec.encode(metadata)
    except ValueError:
        return {}
    return metadata


def _time(milliseconds: int) -> str:
    if 0 < milliseconds < _EARLIEST_MS:
        milliseconds *= 1000
    if not 0 < milliseconds <= _LATEST_MS:
        return ""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"
