"""Commands: run one to its end with nothing left behind, or start work that outlives us.

What a command did is a value (`CommandResult`): it exited, it ran out of time, or it could not be started. An
exception means that we cannot tell.
"""

from __future__ import annotations

import errno
import os
import select
import time

from omx_autoresearch.foundation.errors import CommandFault, StorageFailed
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.system import processes
from omx_autoresearch.system.clock import Clock, SystemClock
from omx_autoresearch.system.processes import RUN_MARK, marked_pids, session_pids
from omx_autoresearch.system.supervisor import KILL_LIMIT_SECONDS, Order, supervise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from omx_autoresearch.foundation.types import Outcome


OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024
"""How much of a command's output is stored where the caller names no limit."""

_NOT_RUNNABLE, _NOT_FOUND = 126, 127  # exit statuses of a shell, POSIX 2.8.2
_READ_BYTES = 65536
_KILL_PASS_SECONDS = 0.01
_EMPTY_LOOKS = 2
_TOKEN_BYTES = 8  # always as long: the size of the environment moves what is measured


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What became of one command.

    Attributes:
        argv: what was run.
        outcome: ``timed_out`` is what the clock said, whatever exit status a command gave when told to stop;
            ``cancelled``: the caller ended it.
        exit_status: of the first process; a negative number is the signal that ended it; None if not started.
        duration_seconds: from the start to the end of the first process or the deadline.
        user_seconds: of the processor, of all processes of the command that could be collected.
        system_seconds: likewise, in the kernel.
        peak_bytes: resident memory of the largest process at its peak; 0 where it was not asked for or cannot be told.
        output_path: the file with stdout and stderr in the order they were written.
        output_size_bytes: how much the command wrote; the file has less where ``is_truncated``.
        stdout_size_bytes: how much of it to stdout, where that was asked for alone.
        is_truncated: the output went past the limit, or could not be stored.
        leaked: command lines of processes found alive in another session, which were then ended.
        has_left_running: processes of it still worked when its first one had ended, in whatever session.
        error: why it was not started, what could not be stored or ended; empty where all went well.
    """

    argv: tuple[str, ...]
    outcome: Outcome
    exit_status: int | None
    duration_seconds: float
    user_seconds: float
    system_seconds: float
    peak_bytes: int
    output_path: str
    output_size_bytes: int
    stdout_size_bytes: int
    is_truncated: bool
    leaked: tuple[str, ...]
    has_left_running: bool
    error: str

    @property
    def cpu_seconds(self) -> float:
        """Processor time of all processes of the command that could be collected."""
        return self.user_seconds + self.system_seconds


def run_command(  # noqa: PLR0913  # one limit each; all but two have a default
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    timeout_seconds: float,
    output_path: str,
    output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
    grace_seconds: float = 2.0,
    clock: Clock | None = None,
    stdout_fd: int = -1,
    cancel_fd: int = -1,
    measures_memory: bool = False,
    is_stdout_sealed: bool = False,
) -> CommandResult:
    """Run a command and return when no process of it is left.

    It runs in a session of its own with exactly ``env`` and our mark (`RUN_MARK`), an empty stdin and no descriptor of
    ours. At the deadline the whole tree gets SIGTERM and after ``grace_seconds`` SIGKILL. When its first process exits,
    what it left running is ended too, at once. When the calling process is killed or interrupted, so is the command.

    Args:
        argv: program and arguments; a program without a slash is looked up in the PATH of ``env``.
        cwd: the folder to run in.
        env: the whole environment.
        timeout_seconds: from the start of the command.
        output_path: the file that takes the output; made anew.
        output_limit_bytes: what is written past it is read and dropped.
        grace_seconds: between SIGTERM and SIGKILL.
        clock: decides what timed out.
        stdout_fd: a file, open for writing, that takes stdout alone, up to the same limit; the output file then has
            both streams in the order of their arrival.
        cancel_fd: when it becomes readable or is closed, the whole tree is ended as at the deadline.
        measures_memory: tell ``peak_bytes``; two small programs then run before the command, in 1 or 2 ms that are
            not counted.
        is_stdout_sealed: make its stdout a socket, which none of its processes can open anew: what its first process
            prints, others cannot take away before we read it. ``> /dev/stdout`` fails then.

    Raises:
        StorageFailed: the output file cannot be written.
        CommandFault: the supervising process could not be started, or was killed.
    """
    output_fd = _open_output(output_path)
    try:
        order = Order(
            argv=tuple(argv),
            cwd=cwd,
            env={**env, RUN_MARK: os.urandom(_TOKEN_BYTES).hex()},
            timeout_seconds=timeout_seconds,
            grace_seconds=grace_seconds,
            output_fd=output_fd,
            output_limit_bytes=output_limit_bytes,
            clock=clock or SystemClock(),
            stdout_fd=stdout_fd,
            measures_memory=measures_memory,
            is_stdout_sealed=is_stdout_sealed,
        )
        report = _supervise_apart(order, cancel_fd)
    finally:
        os.close(output_fd)
    return CommandResult(argv=order.argv, output_path=output_path, **report)


def shell_argv(command: str) -> tuple[str, ...]:
    """The arguments that run a command line the way a person types it."""
    return ("/bin/sh", "-c", command)


def explain_shell_status(command: str, exit_status: int | None, cwd: str) -> str:
    """Why a shell could not run a command line (exit status 126 or 127); empty for every other status.

    The shell keeps the errno to itself; the file says it: not executable, missing, or naming an interpreter that
    is not there. A script without shebang is no fault, the shell runs it.
    """
    if exit_status not in (_NOT_RUNNABLE, _NOT_FOUND):
        return ""
    from omx_autoresearch.system.supervisor import explain_start, shebang

    program = _first_program(command)
    path = os.path.join(cwd, program)
    if "/" in program and not os.path.exists(path):
        return explain_start(errno.ENOENT, program, cwd)
    if "/" in program and (os.path.isdir(path) or not os.access(path, os.X_OK)):
        return explain_start(errno.EACCES, program, cwd)
    interpreter = shebang(path) if "/" in program else ""
    if interpreter and not os.access(interpreter, os.X_OK):
        return explain_start(errno.ENOENT, program, cwd)
    what = "not found" if exit_status == _NOT_FOUND else "found but may not be run"
    return f"`{command}`: a program in it was {what} (exit status {exit_status}); its output names it"


class DetachedChild:
    """A child that goes on by itself; its parent may wait for its end, or leave it."""

    def __init__(self, pid: int, end_fd: int) -> None:
        self.pid = pid
        self._end_fd = end_fd

    def wait(self, timeout_seconds: float) -> bool:
        """Whether the child has ended by then; returns as soon as it has."""
        if self._end_fd < 0:
            return True
        poll = select.poll()
        poll.register(self._end_fd, select.POLLIN)
        if not poll.poll(max(0, int(timeout_seconds * 1000))):
            return False
        self.leave()
        _collect(self.pid)
        return True

    def leave(self) -> None:
        """Stop caring; the child goes on. After this `wait` answers True at once."""
        if self._end_fd >= 0:
            os.close(self._end_fd)
            self._end_fd = -1


def fork_detached(work: Callable[[], None]) -> DetachedChild:
    """Run ``work`` in a child that survives us: own session, stdio on /dev/null, none of our descriptors.

    What ``work`` raises ends the child and nothing else; so it must record by itself what went wrong.

    Raises:
        CommandFault: the system gives no further process.
    """
    read_end, write_end = os.pipe()
    try:
        pid = fork_alone(work, keep=(write_end,))
    except OSError as fault:
        os.close(read_end)
        raise CommandFault(f"no process could be started: {fault.strerror}") from fault
    finally:
        os.close(write_end)
    return DetachedChild(pid, read_end)


def fork_alone(work: Callable[[], None], keep: Collection[int] = (), *, ignore_signals: bool = False) -> int:
    """Fork a child in a session of its own that runs ``work`` and exits; returns its pid to the parent.

    The child has stdin, stdout and stderr on /dev/null and of the other descriptors only those of ``keep``, so
    it holds none of our locks and pipes. Whatever ``work`` raises ends the child with status 1; nothing falls
    back into the code of the parent.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()
        processes.set_wakeup_fd(-1)
        for number in (processes.SIGTERM, processes.SIGINT, processes.SIGHUP):
            processes.signal(number, processes.SIG_IGN if ignore_signals else processes.SIG_DFL)
        _close_descriptors(keep)
        work()
        status = 0
    finally:
        os._exit(status)


def _open_output(path: str) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise StorageFailed(
            f"the output file {path} cannot be written: {fault.strerror}",
            next_step="free space or fix the permissions of its folder, then run the command again",
        ) from fault


def _supervise_apart(order: Order, cancel_fd: int) -> dict[str, Any]:
    """Let a forked supervisor run the order; a byte on the lifeline, or closing it, makes it end the command."""
    import marshal

    report_fd, answer_fd = os.pipe()
    lifeline_fd, hold_fd = os.pipe()

    def work() -> None:
        with open(answer_fd, "wb", closefd=False) as stream:
            marshal.dump(supervise(order, lifeline_fd), stream)

    try:
        kept = {order.output_fd, answer_fd, lifeline_fd, order.stdout_fd} - {-1}
        pid = fork_alone(work, keep=kept, ignore_signals=True)
    except OSError as fault:
        for descriptor in (report_fd, hold_fd):
            os.close(descriptor)
        raise CommandFault(f"no process could be started: {fault.strerror}") from fault
    finally:
        os.close(answer_fd)
        os.close(lifeline_fd)
    try:
        answer = _read_all(report_fd, cancel_fd, hold_fd)
    finally:
        os.close(hold_fd)
        os.close(report_fd)
        _collect(pid)
    if not answer:
        _end_what_is_left(pid, order.env[RUN_MARK])
        raise CommandFault(
            f"the process that supervised `{' '.join(order.argv)}` was killed; its end is unknown"
        )
    report: dict[str, Any] = marshal.loads(answer)  # noqa: S302  # written by our own child
    return report


def _read_all(report_fd: int, cancel_fd: int, hold_fd: int) -> bytes:
    """What the supervisor answers; when the canceller speaks before its end, it is told to end the command."""
    chunks: list[bytes] = []
    poll = select.poll()
    poll.register(report_fd, select.POLLIN)
    if cancel_fd >= 0:
        poll.register(cancel_fd, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if report_fd in ready:
            chunk = os.read(report_fd, _READ_BYTES)
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
        elif cancel_fd in ready:
            poll.unregister(cancel_fd)
            try:
                os.write(hold_fd, b"c")
            except BrokenPipeError:
                continue  # it has just ended


def _collect(pid: int) -> None:
    """Wait for one of our children; another waiter may have collected it."""
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return


def _end_what_is_left(session: int, token: str) -> None:
    """Kill what a supervisor that was killed itself left behind, and see it gone: its session, and what has our mark.

    A process between two programs shows no environment for a moment, so only the second empty look is believed.
    """
    give_up_at = time.monotonic() + KILL_LIMIT_SECONDS
    empty_looks = 0
    while empty_looks < _EMPTY_LOOKS and time.monotonic() < give_up_at:
        members = {*session_pids(session), *marked_pids(token)}
        empty_looks = 0 if members else empty_looks + 1
        for pid in members:
            try:
                os.kill(pid, processes.SIGKILL)
            except OSError:
                continue
        time.sleep(_KILL_PASS_SECONDS)


def _first_program(command: str) -> str:
    """The first word of a command line that is no assignment; empty where it cannot be split."""
    import shlex

    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    return next((word for word in words if not _is_assignment(word)), "")


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _close_descriptors(keep: Collection[int]) -> None:
    """Put 0, 1 and 2 on /dev/null and close all others but those kept."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    start = 3
    for descriptor in sorted(keep):
        os.closerange(start, descriptor)
        start = max(start, descriptor + 1)
    os.closerange(start, os.sysconf("SC_OPEN_MAX"))
