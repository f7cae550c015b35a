"""The older session tools: begin a session in ``.auto/``, run its benchmark, record what it said. Off by default.

There is no isolation of the work and no rollback here: the benchmark runs in the workspace as it stands, with scripts
that the agent may change, and what to keep is left to whoever calls. (`runtime/experiments` is the other way.) One run
at a time is under way (:mod:`.session_runs`).
"""

from __future__ import annotations

import os

from omx_autoresearch.core.session_tools import (
    REPORTED,
    SessionConfig,
    SessionRun,
    checked_config,
    checked_description,
    checked_metrics,
    config_line,
    judged,
    run_line,
)
from omx_autoresearch.core.values import dataclass, field
from omx_autoresearch.errors import CommandFault, StepIllegal, UsageError, WorkspaceFault
from omx_autoresearch.runtime.session_runs import (
    RunAsk,
    RunUnderWay,
    commit_of,
    conduct,
    milliseconds,
    running_run,
)
from omx_autoresearch.storage import session_log
from omx_autoresearch.storage.session_log import CHECKS, MEASURE, SessionFolder, append_line, load_log
from omx_autoresearch.system.commands import fork_detached
from omx_autoresearch.system.processes import wait_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.session_tools import SessionLog
    from omx_autoresearch.runtime.context import Runtime


_BEGIN_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class SessionStart:
    """What a session is begun with.

    Attributes:
        config: the header of the segment.
        measure_command: written to ``.auto/measure.sh`` where there is none; empty where there is.
        checks_command: likewise, ``.auto/checks.sh``.
    """

    config: SessionConfig
    measure_command: str = ""
    checks_command: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A value that was measured elsewhere.

    Attributes:
        description: what was tried.
        metric: the value.
        metrics: secondary values.
        commit: that it was measured on; empty for the one that is checked out.
    """

    description: str
    metric: float
    metrics: dict[str, float] = field(default_factory=dict)
    commit: str = ""


@dataclass(frozen=True, slots=True)
class SessionView:
    """How a session stands, and the run that was asked about.

    Attributes:
        log: the log.
        run: that has ended; None while it goes on.
        under_way: the run that goes on; None for none.
    """

    log: SessionLog
    run: SessionRun | None = None
    under_way: RunUnderWay | None = None


def init_session(runtime: Runtime, folder: SessionFolder, start: SessionStart) -> SessionView:
    """Begin a session, or a new segment of it with a best of its own; what stands in the log stays.

    Raises:
        UsageError: a value that cannot be kept, or there is no benchmark.
        StepIllegal: a run is under way.
        WorkspaceFault: ``.auto`` is no real folder, or its files are no regular ones.
    """
    config = checked_config(start.config)
    if not os.path.isdir(folder.workspace_path):
        raise WorkspaceFault(
            f"there is no folder {folder.workspace_path}", next_step="call it in the workspace"
        )
    with folder.locked():
        _require_quiet(runtime, folder)
        for name, command in ((MEASURE, start.measure_command), (CHECKS, start.checks_command)):
            if command.strip():
                session_log.write_script(folder, name, command)
        _require_benchmark(folder)
        append_line(folder, config_line(config))
        return SessionView(load_log(folder))


def start_run(runtime: Runtime, folder: SessionFolder, ask: RunAsk, *, wait_seconds: float) -> SessionView:
    """Run the benchmark, then the checks, judge and record; the run goes on by itself after ``wait_seconds``.

    Raises:
        UsageError: no session, no benchmark, or no description.
        StepIllegal: another run is under way, or the segment is full.
        CommandFault: no process could be started.
    """
    checked_description(ask.description)
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


def report_run(runtime: Runtime, folder: SessionFolder, report: Report) -> tuple[SessionView, bool]:
    """Record a value that was measured elsewhere; the second answer is False where the newest run says the same.

    Raises:
        UsageError: no session, or a value that cannot be kept.
        StepIllegal: a run is under way, or the segment is full.
    """
    checked_description(report.description)
    checked_metrics({"metric": report.metric, **report.metrics})
    with folder.locked():
        _require_quiet(runtime, folder)
        log = load_log(folder)
        newest = log.segment_runs[-1] if log.segment_runs else None
        if newest is not None and newest.source != REPORTED and newest.metric == report.metric:
            return SessionView(log, newest), False
        _require_room(log)
        run = SessionRun(
            run=log.next_run,
            status="keep",
            metric=report.metric,
            metrics=report.metrics,
            description=report.description,
            commit=report.commit or commit_of(folder),
            timestamp_ms=milliseconds(runtime),
            segment=log.segment,
            run_id=runtime.new_id(),
            source=REPORTED,
        )
        run = judged(log, run)
        append_line(folder, run_line(run))
        return SessionView(load_log(folder), run), True


def _require_quiet(runtime: Runtime, folder: SessionFolder) -> None:
    under_way = running_run(runtime, folder)
    if under_way is not None:
        raise _busy(under_way)


def _busy(under_way: RunUnderWay) -> StepIllegal:
    return StepIllegal(
        f"run {under_way.run} ({under_way.description[:80]!r}) is under way since {under_way.started_at}",
        next_step=f"call run_experiment with run={under_way.run} to wait for it",
    )


def _require_room(log: SessionLog) -> None:
    if log.config is None:
        raise UsageError(
            "no session begins in this log: it has no valid header"
            + (f" ({log.faults[0]})" if log.faults else ""),
            next_step="call init_experiment",
        )
    if log.is_full:
        raise StepIllegal(
            f"the session has its {log.config.max_iterations} runs",
            next_step="stop here, or call init_experiment to begin a new segment",
        )


def _require_benchmark(folder: SessionFolder) -> None:
    if not session_log.has_script(folder, MEASURE):
        raise UsageError(
            f"there is no .auto/{MEASURE} in {folder.workspace_path}",
            next_step=f"write .auto/{MEASURE}, which prints one line METRIC name=value, or give measure_command",
        )
