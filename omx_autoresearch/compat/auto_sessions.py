"""The older session tools: begin a session in ``.auto/``, run its benchmark, record what it said. Off by default.

There is no isolation of the work and no rollback here: the benchmark runs in the workspace as it stands, with scripts
that the agent may change, and what to keep is left to whoever calls. (`runtime/experiments` is the other way.) One run
at a time is under way (:mod:`.session_runs`).
"""

from __future__ import annotations

import os
import time
from tempfile import TemporaryFile

from omx_autoresearch.compat import auto_log
from omx_autoresearch.compat.auto_log import CHECKS, MEASURE, SessionFolder, append_line, load_log
from omx_autoresearch.compat.auto_rules import (
    REPORTED,
    SessionConfig,
    SessionLog,
    SessionRun,
    checked_config,
    checked_description,
    checked_metrics,
    config_line,
    judged,
    run_line,
    spec_of,
)
from omx_autoresearch.experiments.judge.metrics import Measured, read_metrics
from omx_autoresearch.foundation.errors import (
    AutoresearchError,
    CommandFault,
    StepIllegal,
    UsageError,
    WorkspaceFault,
)
from omx_autoresearch.foundation.json_codec import encode
from omx_autoresearch.foundation.records import ShapeError, dataclass, field, from_plain, replace, to_plain
from omx_autoresearch.journal.safe_files import load_json, replace_file
from omx_autoresearch.missions.sessions import TASK_VARIABLE
from omx_autoresearch.system.commands import CommandResult, fork_detached, run_command
from omx_autoresearch.system.git import head_commit
from omx_autoresearch.system.processes import ProcessIdentity, identify, is_alive, wait_for
from omx_autoresearch.system.sandbox import bubblewrap_argv, bubblewrap_fault, isolation_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime


# --- One run of a session's benchmark, conducted by a process of its own that outlives its starter.
#
# What could not be measured is a ``crash`` without a value, never a 0; a run whose process was killed is recorded as
# one
# by whoever looks next.

_REASON_LENGTH = 1500


@dataclass(frozen=True, slots=True)
class RunAsk:
    """What a run is asked for.

    Attributes:
        description: what was tried.
        isolation: ``none`` or ``bubblewrap``.
        run_id: by which its starter knows it again.
    """

    description: str
    isolation: str
    run_id: str


@dataclass(frozen=True, slots=True)
class RunUnderWay:
    """The run that goes on: what its conductor noted at its start."""

    run: int
    run_id: str
    description: str
    pid: int
    pid_started: str
    started_at: str
    commit: str

    @property
    def process(self) -> ProcessIdentity:
        """Who conducts it."""
        return ProcessIdentity(self.pid, self.pid_started)


def conduct(runtime: Runtime, folder: SessionFolder, ask: RunAsk) -> None:
    """Conduct one run from start to record, in a process of its own. Another run under way: nothing is done."""
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
            commit_of(folder),
        )
        replace_file(folder.running_path, encode(to_plain(noted)))
    run = _crashed(runtime, noted, log, "")
    try:
        run = _measured(runtime, folder, ask, log.config or SessionConfig("", ""), run)
    except (AutoresearchError, OSError) as error:
        run = replace(run, reason=_short(f"it could not be run: {error}"))
    with folder.locked():
        log = load_log(folder)  # other tools know this log, too
        run = replace(run, run=max(run.run, log.next_run), timestamp_ms=milliseconds(runtime))
        append_line(folder, run_line(judged(log, run)))
        _forget(folder)


def running_run(runtime: Runtime, folder: SessionFolder) -> RunUnderWay | None:
    """The run that goes on; one whose process is gone is recorded as a crash. The session is locked."""
    try:
        noted: RunUnderWay = from_plain(RunUnderWay, load_json(folder.running_path))
    except FileNotFoundError:
        return None
    except ShapeError:
        _forget(folder)  # of another version; nothing of it runs any more
        return None
    if is_alive(noted.process):
        return noted
    log = load_log(folder)
    if log.find(noted.run_id) is None and log.config is not None:
        lost = _crashed(runtime, noted, log, "interrupted: the process that measured was ended")
        append_line(folder, run_line(replace(lost, run=max(noted.run, log.next_run))))
    _forget(folder)
    return None


def _crashed(runtime: Runtime, noted: RunUnderWay, log: SessionLog, reason: str) -> SessionRun:
    return SessionRun(
        run=noted.run,
        status="crash",
        description=noted.description,
        commit=noted.commit,
        timestamp_ms=milliseconds(runtime),
        segment=log.segment,
        reason=reason,
        run_id=noted.run_id,
    )


def _forget(folder: SessionFolder) -> None:
    try:
        os.unlink(folder.running_path)
    except FileNotFoundError:
        return


def commit_of(folder: SessionFolder) -> str:
    """The commit that is checked out; empty outside git."""
    try:
        return head_commit(folder.workspace_path)
    except WorkspaceFault:
        return ""


def milliseconds(runtime: Runtime) -> int:
    """Now, as the log's format has it."""
    return int(runtime.clock.now().timestamp() * 1000)


def _short(text: str) -> str:
    return text if len(text) <= _REASON_LENGTH else f"{text[:_REASON_LENGTH]}..."


# --- one run


def _measured(
    runtime: Runtime, folder: SessionFolder, ask: RunAsk, config: SessionConfig, run: SessionRun
) -> SessionRun:
    """The run with what the benchmark and the checks said."""
    began = time.monotonic()
    with TemporaryFile(dir=folder.own_path) as stdout:
        what = (run.run, MEASURE, config.timeout_seconds)
        result = _run_script(runtime, folder, ask, what, stdout_fd=stdout.fileno())
        stdout.seek(0)
        said = stdout.read().decode("utf-8", "replace")
    run = replace(
        run, isolation=isolation_of(result).backend, duration_seconds=result.duration_seconds or 0.0
    )
    if fault := bubblewrap_fault(result) or result.error:
        return replace(run, reason=_short(fault), duration_seconds=time.monotonic() - began)
    seen = Measured(
        wall_seconds=result.duration_seconds,
        cpu_seconds=result.cpu_seconds,
        exit_status=result.exit_status,
        outcome=result.outcome,
    )
    reading = read_metrics(said, spec_of(config), seen)
    if reading.primary is None:
        return replace(run, reason=_short(f"{reading.fault}: {reading.detail}"))
    run = replace(run, status="keep", metric=reading.primary, metrics=dict(reading.others))
    if not auto_log.has_script(folder, CHECKS):
        return run
    checks = _run_script(runtime, folder, ask, (run.run, CHECKS, config.checks_timeout_seconds))
    if checks.outcome == "exited" and checks.exit_status == 0:
        return replace(run, checks="passed")
    why = bubblewrap_fault(checks) or checks.error or _failure(checks, config.checks_timeout_seconds)
    return replace(run, status="checks_failed", checks="failed", reason=_short(f"{CHECKS}: {why}"))


def _run_script(
    runtime: Runtime, folder: SessionFolder, ask: RunAsk, what: tuple[int, str, float], *, stdout_fd: int = -1
) -> CommandResult:
    """Run one script of ``.auto/`` in the workspace; ``what`` is the run's number, the script, its time limit."""
    number, name, timeout_seconds = what
    argv = auto_log.script_argv(folder, name)
    if ask.isolation == "bubblewrap":
        argv = bubblewrap_argv(argv, workspace_path=folder.workspace_path)
    return run_command(
        argv,
        cwd=folder.workspace_path,
        env=_environment(runtime),
        timeout_seconds=timeout_seconds,
        output_path=folder.output_path(number, name),
        stdout_fd=stdout_fd,
    )


def _environment(runtime: Runtime) -> dict[str, str]:
    """The caller's environment with one locale."""
    environment = {name: value for name, value in runtime.environ.items() if name != TASK_VARIABLE}
    environment.setdefault("PATH", os.defpath)
    environment["LC_ALL"] = "C.UTF-8"
    return environment


def _failure(result: CommandResult, timeout_seconds: float) -> str:
    if result.outcome == "timed_out":
        return f"it ran into its time limit of {timeout_seconds:g} s"
    if result.exit_status is not None and result.exit_status < 0:
        return f"signal {-result.exit_status} ended it"
    return f"it failed with exit status {result.exit_status}"


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
                auto_log.write_script(folder, name, command)
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
    if not auto_log.has_script(folder, MEASURE):
        raise UsageError(
            f"there is no .auto/{MEASURE} in {folder.workspace_path}",
            next_step=f"write .auto/{MEASURE}, which prints one line METRIC name=value, or give measure_command",
        )
