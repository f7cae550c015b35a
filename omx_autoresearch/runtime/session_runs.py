"""One run of a session's benchmark, conducted by a process of its own that outlives its starter.

What could not be measured is a ``crash`` without a value, never a 0; a run whose process was killed is recorded as one
by whoever looks next.
"""

from __future__ import annotations

import os
import time
from tempfile import TemporaryFile

from omx_autoresearch.core.metrics import Measured, read_metrics
from omx_autoresearch.core.session_tools import SessionConfig, SessionRun, judged, run_line, spec_of
from omx_autoresearch.core.shape import ShapeError, from_plain, to_plain
from omx_autoresearch.core.values import dataclass, replace
from omx_autoresearch.errors import AutoresearchError, WorkspaceFault
from omx_autoresearch.runtime.sessions import TASK_VARIABLE
from omx_autoresearch.storage import session_log
from omx_autoresearch.storage.atomic import load_json, replace_file
from omx_autoresearch.storage.session_log import CHECKS, MEASURE, SessionFolder, append_line, load_log
from omx_autoresearch.storage.strictjson import encode
from omx_autoresearch.system.commands import run_command
from omx_autoresearch.system.git import head_commit
from omx_autoresearch.system.processes import ProcessIdentity, identify, is_alive
from omx_autoresearch.system.sandbox import bubblewrap_argv, bubblewrap_fault, isolation_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.session_tools import SessionLog
    from omx_autoresearch.runtime.context import Runtime
    from omx_autoresearch.system.commands import CommandResult

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
    if not session_log.has_script(folder, CHECKS):
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
    argv = session_log.script_argv(folder, name)
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
