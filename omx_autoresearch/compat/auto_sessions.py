"""The older session tools: begin a session in ``.auto/``, run its benchmark, record the result. Off by default.

They neither isolate the work nor roll it back: the benchmark runs in the present workspace, with scripts that the
agent may change, and the caller decides which changes to keep. A run is one of an experiment (``experiments/runs.py``)
without pins, with the same limits and metric grammar. ``experiment`` adds worktrees, frozen evaluators and a rule
against noise.

One run at a time is under way. Its own process conducts it and outlives the process that started it; if that process is
killed, the next call records the run as a crash. A run that measured nothing is a ``crash`` without a value, never 0.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from omx_autoresearch.compat import auto_log
from omx_autoresearch.compat.auto_log import (
    CHECKS,
    MEASURE,
    SessionConfig,
    SessionFolder,
    SessionLog,
    SessionRun,
    append_line,
    line_of,
    load_log,
)
from omx_autoresearch.experiments.evaluators import FrozenEvaluators
from omx_autoresearch.experiments.judge.state import ExperimentConfig
from omx_autoresearch.experiments.runs import run_once
from omx_autoresearch.experiments.store import ExperimentFolder
from omx_autoresearch.foundation.errors import (
    AutoresearchError,
    CommandFault,
    StepIllegal,
    UsageError,
    WorkspaceFault,
)
from omx_autoresearch.foundation.json_codec import encode
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.freezing.manifest import PinManifest
from omx_autoresearch.journal.safe_files import load_json, replace_file
from omx_autoresearch.missions.sessions import TASK_VARIABLE
from omx_autoresearch.system.commands import fork_detached
from omx_autoresearch.system.git import head_commit
from omx_autoresearch.system.processes import ProcessIdentity, identify, is_alive, wait_for

if TYPE_CHECKING:
    from omx_autoresearch.experiments.judge.state import Isolation
    from omx_autoresearch.experiments.runs import Run, RunKind
    from omx_autoresearch.journal.layout import Runtime

_REASON_LENGTH = 1500
_BEGIN_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class RunAsk:
    """A run to start.

    Attributes:
        description: the change to try.
        isolation: ``none`` or ``bubblewrap``.
        run_id: the id by which its starter finds it in the log.
    """

    description: str
    isolation: Isolation
    run_id: str


@dataclass(frozen=True, slots=True)
class RunUnderWay:
    """The run under way, as its process noted it at the start."""

    run: int
    run_id: str
    description: str
    pid: int
    pid_started: str
    started_at: str
    commit: str

    @property
    def process(self) -> ProcessIdentity:
        """The process that conducts it."""
        return ProcessIdentity(self.pid, self.pid_started)


@dataclass(frozen=True, slots=True)
class SessionView:
    """The state of a session, and one run of it.

    Attributes:
        log: the log.
        run: the run, once it has ended; None while it goes on.
        under_way: the run while it goes on; None otherwise.
    """

    log: SessionLog
    run: SessionRun | None = None
    under_way: RunUnderWay | None = None


def init_session(
    runtime: Runtime,
    folder: SessionFolder,
    config: SessionConfig,
    *,
    measure_command: str = "",
    checks_command: str = "",
) -> SessionView:
    """Begin a session, or a new segment with its own best value; older lines of the log stay.

    Args:
        runtime: the world.
        folder: of the session.
        config: the header of the segment.
        measure_command: written to ``.auto/measure.sh`` if there is none.
        checks_command: likewise, to ``.auto/checks.sh``.

    Raises:
        UsageError: a value is invalid, or there is no benchmark.
        StepIllegal: a run is under way.
        WorkspaceFault: ``.auto`` is not a real folder, or its files are not regular ones.
    """
    auto_log.require_config(config)
    if not os.path.isdir(folder.workspace_path):
        raise WorkspaceFault(
            f"there is no folder {folder.workspace_path}", next_step="call it in the workspace"
        )
    with folder.locked():
        _require_quiet(runtime, folder)
        for name, command in ((MEASURE, measure_command), (CHECKS, checks_command)):
            if command.strip():
                auto_log.write_script(folder, name, command)
        _require_benchmark(folder)
        append_line(folder, line_of(config))
        return SessionView(load_log(folder))


def start_run(runtime: Runtime, folder: SessionFolder, ask: RunAsk, *, wait_seconds: float) -> SessionView:
    """Run the benchmark, then the checks; judge and record. After ``wait_seconds`` the run goes on by itself.

    Raises:
        UsageError: there is no session, no benchmark, or no description.
        StepIllegal: another run is under way, or the segment is full.
        CommandFault: no process could be started.
    """
    auto_log.require_description(ask.description)
    with folder.locked():
        _require_quiet(runtime, folder)
        _require_room(load_log(folder))
        _require_benchmark(folder)
    child = fork_detached(lambda: conduct(runtime, folder, ask))
    has_ended = child.wait(wait_seconds)
    while True:
        with folder.locked():
            under_way, log = running_run(runtime, folder), load_log(folder)
        if has_ended or under_way is not None or log.find(ask.run_id) is not None:
            break
        has_ended = child.wait(_BEGIN_SECONDS)  # it has not begun yet
    child.leave()
    run = log.find(ask.run_id)
    if run is None and (under_way is None or under_way.run_id != ask.run_id):
        raise (
            _busy(under_way)
            if under_way
            else CommandFault("the run ended without a record", next_step="call run_experiment again")
        )
    return SessionView(log, run, None if run else under_way)


def wait_for_run(runtime: Runtime, folder: SessionFolder, number: int, *, wait_seconds: float) -> SessionView:
    """Wait for a run that was started before.

    Raises:
        UsageError: there is no run of this number.
    """
    with folder.locked():
        under_way = running_run(runtime, folder)
    if under_way is not None and under_way.run == number:
        wait_for(under_way.process, wait_seconds)
    with folder.locked():
        still = running_run(runtime, folder)
        log = load_log(folder)
    if still is not None and still.run == number:
        return SessionView(log, None, still)
    known = under_way.run_id if under_way is not None and under_way.run == number else ""
    run = log.find(known) or next((run for run in reversed(log.runs) if run.run == number), None)
    if run is None:
        raise UsageError(
            f"there is no run {number}; the newest is {log.next_run - 1}",
            next_step="call run_experiment with a description",
        )
    return SessionView(log, run)


def report_run(  # noqa: PLR0913 - each is a field of the tool
    runtime: Runtime,
    folder: SessionFolder,
    description: str,
    metric: float,
    metrics: dict[str, float],
    *,
    commit: str = "",
) -> tuple[SessionView, bool]:
    """Record a value that was measured elsewhere.

    Returns:
        The session with the run, and whether the run is new: False if the newest run already measured this value.

    Raises:
        UsageError: there is no session, or a value is invalid.
        StepIllegal: a run is under way, or the segment is full.
    """
    auto_log.require_description(description)
    auto_log.require_metrics({"metric": metric, **metrics})
    with folder.locked():
        _require_quiet(runtime, folder)
        log = load_log(folder)
        newest = log.segment_runs[-1] if log.segment_runs else None
        if newest is not None and newest.source != auto_log.REPORTED and newest.metric == metric:
            return SessionView(log, newest), False
        _require_room(log)
        run = SessionRun(
            run=log.next_run,
            status="keep",
            metric=metric,
            metrics=metrics,
            description=description,
            commit=commit or _commit_of(folder),
            run_id=runtime.new_id(),
            source=auto_log.REPORTED,
        )
        run = _record(runtime, folder, log, run)
        return SessionView(load_log(folder), run), True


def _record(runtime: Runtime, folder: SessionFolder, log: SessionLog, run: SessionRun) -> SessionRun:
    """Judge a run and append it to the log."""
    moment = int(runtime.clock.now().timestamp() * 1000)
    run = auto_log.judged(log, replace(run, timestamp_ms=moment, segment=log.segment))
    append_line(folder, line_of(run))
    return run


def _commit_of(folder: SessionFolder) -> str:
    """The commit that is checked out; empty outside git."""
    try:
        return head_commit(folder.workspace_path)
    except WorkspaceFault:
        return ""


def _require_quiet(runtime: Runtime, folder: SessionFolder) -> None:
    under_way = running_run(runtime, folder)
    if under_way is not None:
        raise _busy(under_way)


def _busy(under_way: RunUnderWay) -> StepIllegal:
    return StepIllegal(
        f"run {under_way.run} ({under_way.description[:80]!r}) has been under way since {under_way.started_at}",
        next_step=f"call run_experiment with run={under_way.run} to wait for it",
    )


def _require_room(log: SessionLog) -> None:
    if log.config is None:
        raise UsageError(
            "the log has no valid header, so there is no session"
            + (f" ({log.faults[0]})" if log.faults else ""),
            next_step="call init_experiment",
        )
    if log.is_full:
        raise StepIllegal(
            f"the session has used all of its {count_of(log.config.max_iterations, 'run')}",
            next_step="stop here, or call init_experiment to begin a new segment",
        )


def _require_benchmark(folder: SessionFolder) -> None:
    if not auto_log.script_command(folder, MEASURE):
        raise UsageError(
            f"there is no .auto/{MEASURE} in {folder.workspace_path}",
            next_step=f"write .auto/{MEASURE} so that it prints one line METRIC name=value, or pass measure_command",
        )


# --- one run, in a process of its own


def conduct(runtime: Runtime, folder: SessionFolder, ask: RunAsk) -> None:
    """Conduct one run from its start to its record; do nothing if another run is under way."""
    me = identify(os.getpid())
    with folder.locked():
        if running_run(runtime, folder) is not None:
            return
        log = load_log(folder)
        noted = RunUnderWay(
            log.next_run,
            ask.run_id,
            ask.description,
            os.getpid(),
            me.started if me else "",
            runtime.now(),
            _commit_of(folder),
        )
        replace_file(folder.running_path, encode(asdict(noted)))
    run = _crashed(noted, "")
    try:
        run = _measured(runtime, folder, ask, log.config or SessionConfig(), run)
    except (AutoresearchError, OSError) as error:
        run = replace(run, reason=f"it could not run: {error}")
    with folder.locked():
        log = load_log(folder)  # other tools may have written to it
        reason = run.reason if len(run.reason) <= _REASON_LENGTH else f"{run.reason[:_REASON_LENGTH]}..."
        _record(runtime, folder, log, replace(run, run=max(run.run, log.next_run), reason=reason))
        _forget(folder)


def running_run(runtime: Runtime, folder: SessionFolder) -> RunUnderWay | None:
    """The run under way; a run whose process is gone is recorded as a crash. The caller holds the session's lock."""
    try:
        noted = RunUnderWay(**load_json(folder.running_path))
    except FileNotFoundError:
        return None
    except TypeError:
        _forget(folder)  # a note of another version, whose run has long ended
        return None
    if is_alive(noted.process):
        return noted
    log = load_log(folder)
    if log.find(noted.run_id) is None and log.config is not None:
        lost = _crashed(noted, "interrupted: the process that measured was killed")
        _record(runtime, folder, log, replace(lost, run=max(noted.run, log.next_run)))
    _forget(folder)
    return None


def _crashed(noted: RunUnderWay, reason: str) -> SessionRun:
    return SessionRun(
        run=noted.run,
        status="crash",
        description=noted.description,
        commit=noted.commit,
        reason=reason,
        run_id=noted.run_id,
    )


def _forget(folder: SessionFolder) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder.running_path)


def _measured(
    runtime: Runtime, folder: SessionFolder, ask: RunAsk, config: SessionConfig, run: SessionRun
) -> SessionRun:
    """The run with the results of the benchmark and the checks."""
    done = _run_script(runtime, folder, ask, config, "measure", run.run)
    run = replace(run, isolation=done.isolation, duration_seconds=round(done.wall_seconds, 3))
    if done.fault or done.metric is None:
        return replace(run, reason=f"{done.fault}: {done.detail}")
    run = replace(run, status="keep", metric=done.metric, metrics=done.others)
    if not auto_log.script_command(folder, CHECKS):
        return run
    checks = _run_script(runtime, folder, ask, config, "check", run.run)
    if not checks.fault:
        return replace(run, checks="passed")
    return replace(run, status="checks_failed", checks="failed", reason=f"{CHECKS}: {checks.detail}")


def _run_script(  # noqa: PLR0913, PLR0917 - the script, its place, and its rights
    runtime: Runtime, folder: SessionFolder, ask: RunAsk, config: SessionConfig, kind: RunKind, number: int
) -> Run:
    """Run a script of ``.auto/`` in the workspace, as a run of an experiment without pins."""
    name = MEASURE if kind == "measure" else CHECKS
    command = auto_log.script_command(folder, name)
    experiment = ExperimentConfig(
        config.name,
        config.spec,
        measure=command,
        check=command,
        measure_timeout_seconds=config.timeout_seconds,
        check_timeout_seconds=config.checks_timeout_seconds,
        sandbox=ask.isolation,
    )
    path = folder.workspace_path
    environment = {key: value for key, value in runtime.environ.items() if key != TASK_VARIABLE}
    evaluators = FrozenEvaluators(
        ExperimentFolder(folder.own_path), experiment, path, (path,), PinManifest(), environment
    )
    return run_once(kind, evaluators, path, folder.output_name(number, name))
