"""Commands: run one to its end with nothing left behind, or start work that outlives us.

The outcome of a command is a value (`CommandResult`): it exited, it ran out of time, or it could not be started. An
exception means that we do not know the outcome.
"""

from __future__ import annotations

import errno
import os
import select
import time

from omx_autoresearch.foundation.errors import CommandFault, StorageFailed
from omx_autoresearch.foundation.records import dataclass, sha256
from omx_autoresearch.system.clock import Clock, SystemClock
from omx_autoresearch.system.processes import RUN_MARK, identify, marked_pids, session_pids, signals
from omx_autoresearch.system.supervisor import KILL_LIMIT_SECONDS, OPEN, Enclosure, Order, supervise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from omx_autoresearch.foundation.types import Backend, Outcome
    from omx_autoresearch.system.processes import ProcessIdentity
    from omx_autoresearch.system.watching import Watch


OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024
"""How much of a command's output is stored by default; as much again may be lines that are kept of its middle."""

_NOT_RUNNABLE, _NOT_FOUND = 126, 127  # exit statuses of a shell, POSIX 2.8.2
_READ_BYTES = 65536
_READS_AT_ONCE = 64
_KILL_PASS_SECONDS = 0.01
_REST_SECONDS = 0.001
"""Between two readings of a watch: a command that makes a great many files is not to wait for us at each."""
_EMPTY_LOOKS = 2
_TOKEN_BYTES = (
    4  # of the caller, and of the run; a constant: the size of the environment influences measurements
)


@dataclass(frozen=True, slots=True)
class Isolation:
    """The isolation of a command while it ran.

    Attributes:
        backend: ``none`` if the command had all rights of the user, ``fenced`` where only a fence stood around it.
        has_network: whether it could reach the network.
    """

    backend: Backend
    has_network: bool


NOT_ISOLATED = Isolation("none", has_network=True)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The outcome of one command.

    Attributes:
        argv: the program and its arguments.
        output_path: the file with stdout and stderr in the order of writing.
        outcome: ``timed_out`` by the clock alone, whatever exit status the command gave when told to stop;
            ``cancelled`` if the caller ended it.
        exit_status: of the first process; a negative number is the signal that ended it; None if not started.
        duration_seconds: from the start to the end of the first process or the deadline.
        user_seconds: processor time of all processes of the command that could be collected.
        system_seconds: likewise, in the kernel.
        peak_bytes: peak resident memory of the largest process; 0 if it was not asked for or is unknown.
        output_size_bytes: how much the command wrote; the file has less if ``is_truncated``.
        is_truncated: the output went past the limit, so that its middle is missing but for the lines that were asked
            for, or could not be stored.
        is_stdout_stored: all that counts of stdout alone was stored, if the caller asked for it.
        report: what its programs wrote to ``report_path``; empty if it was more than the limit of its output.
        leaked: command lines of processes that were found running in another session, and were ended.
        has_left_running: some of its processes, in any session, still worked after its first one had ended.
        error: why it was not started, or which output or process could not be stored or ended; empty if all went well.
        is_mounted: it saw the copies of its mounts.
        mount_fault: why its mounts could not be made; nothing was started, and it may be run without them.
        displaced: paths of its mounts that no longer led to their copies when it had ended.
        isolation: what stood around it.
        box_fault: why its box could not be set up; the command did not run.
        box_note: what its box keeps from it that other boxes allow, and why.
        newcomers: names that other programs load, and that appeared in the workspace while it ran in its box.
        has_made_newcomers: nothing else can have made them.
    """

    argv: tuple[str, ...]
    output_path: str
    outcome: Outcome
    exit_status: int | None = None
    duration_seconds: float = 0.0
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    peak_bytes: int = 0
    output_size_bytes: int = 0
    is_truncated: bool = False
    is_stdout_stored: bool = True
    report: bytes = b""
    leaked: tuple[str, ...] = ()
    has_left_running: bool = False
    error: str = ""
    is_mounted: bool = False
    mount_fault: str = ""
    displaced: tuple[str, ...] = ()
    isolation: Isolation = NOT_ISOLATED
    box_fault: str = ""
    box_note: str = ""
    newcomers: tuple[str, ...] = ()
    has_made_newcomers: bool = False

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
    line_words: tuple[bytes, ...] = (),
    report_path: str = "",
    mounts: tuple[tuple[str, str], ...] = (),
    enclosure: Enclosure = OPEN,
    watch: Watch | None = None,
) -> CommandResult:
    """Run a command and return when no process of it is left.

    It runs in its own session with exactly ``env`` and our mark (`RUN_MARK`), an empty stdin and no descriptor of ours.
    At the deadline the whole tree gets SIGTERM and after ``grace_seconds`` SIGKILL. When its first process exits, all
    others are ended at once. When the calling process is killed or interrupted, so is the command.

    Args:
        argv: program and arguments; a program without a slash is looked up in the PATH of ``env``.
        cwd: the folder to run in.
        env: the whole environment.
        timeout_seconds: from the start of the command.
        output_path: the file that takes the output; an older one is replaced.
        output_limit_bytes: of a longer output the beginning and the end are stored (`supervisor.CUT_MARK` between).
        grace_seconds: between SIGTERM and SIGKILL.
        clock: decides whether the command timed out.
        stdout_fd: a file, open for writing, that takes stdout alone, within the same limit; the output file then has
            both streams in the order of arrival.
        cancel_fd: when it becomes readable or is closed, the whole tree is ended as at the deadline.
        measures_memory: report ``peak_bytes``; two small programs then run before the command, for 1 or 2 ms that do
            not count.
        is_stdout_sealed: make its stdout a socket, which none of its processes can reopen, so that they cannot take
            away the first process's output before we read it. ``> /dev/stdout`` then fails.
        line_words: lines in which one of them stands are kept of the middle, too.
        report_path: a pipe (FIFO) is made there for the time of the command; any number of its programs may write to
            it, one after the other, as to a file.
        mounts: regular files, and the copies that stand there for the command, read-only; see `system.mounts`.
        enclosure: what is put around the command; `system.sandbox` makes it.
        watch: what it tells of is taken up while the command runs, so that its queue does not fill.

    Raises:
        StorageFailed: the output file cannot be written.
        CommandFault: the supervising process could not be started, or was killed.
    """
    output_fd = _open_output(output_path)
    pipe = _ReportPipe(report_path, output_limit_bytes) if report_path else None
    try:
        order = Order(
            argv=tuple(argv),
            cwd=cwd,
            env={**env, RUN_MARK: _token_of(identify(os.getpid())) + os.urandom(_TOKEN_BYTES).hex()},
            timeout_seconds=timeout_seconds,
            grace_seconds=grace_seconds,
            output_fd=output_fd,
            output_limit_bytes=output_limit_bytes,
            clock=clock or SystemClock(),
            stdout_fd=stdout_fd,
            measures_memory=measures_memory,
            is_stdout_sealed=is_stdout_sealed,
            line_words=line_words,
            mounts=mounts,
            enclosure=enclosure,
        )
        report = _supervise_apart(order, cancel_fd, [each for each in (watch, pipe) if each and each.fd >= 0])
        written = pipe.read_all() if pipe else b""
    finally:
        os.close(output_fd)
        if pipe:
            pipe.close()
    return CommandResult(order.argv, output_path, report=written, **report)


class _ReportPipe:
    """A named pipe by which the programs of a command report to us."""

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._chunks: list[bytes] = []
        self._size_bytes = 0
        self.fd = -1
        try:
            if os.path.lexists(path):
                os.unlink(path)  # of an attempt that could not be made
            os.mkfifo(path, 0o600)
            # As a writer too, so that it does not end with the first one.
            self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # the file system has none: what is written there is an ordinary file, which nobody reads

    def read(self) -> None:
        """Take up what was written; a pipe holds less than is read at once, so nothing is left at the end."""
        for _ in range(_READS_AT_ONCE if self.fd >= 0 else 0):
            try:
                chunk = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return
            self._size_bytes += len(chunk)
            if self._size_bytes <= self._limit_bytes:
                self._chunks.append(chunk)

    def read_all(self) -> bytes:
        """All that was written; nothing if it was too much."""
        self.read()
        return b"".join(self._chunks) if self._size_bytes <= self._limit_bytes else b""

    def close(self) -> None:
        """Remove it."""
        if self.fd >= 0:
            os.close(self.fd)
        if os.path.lexists(self._path):
            os.unlink(self._path)


def shell_argv(command: str) -> tuple[str, ...]:
    """The arguments that run a command line as a person would type it."""
    return ("/bin/sh", "-c", command)


def explain_shell_status(command: str, exit_status: int | None, cwd: str) -> str:
    """Why a shell could not run a command line (exit status 126 or 127); empty for every other status.

    The shell does not report the errno, so we look at the file: it is not executable, is missing, or names a missing
    interpreter. A script without a shebang is no fault; the shell runs it.
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
    what = "was not found" if exit_status == _NOT_FOUND else "is not executable"
    return f"`{command}`: a program in it {what} (exit status {exit_status}); its output names the program"


class DetachedChild:
    """A child that goes on by itself; its parent may wait for its end, or leave it."""

    def __init__(self, pid: int, end_fd: int) -> None:
        self.pid = pid
        self._end_fd = end_fd

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the child's end for that long at most; returns whether it has ended."""
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
        """Stop watching the child, which goes on. After this, `wait` returns True at once."""
        if self._end_fd >= 0:
            os.close(self._end_fd)
            self._end_fd = -1


def fork_detached(work: Callable[[], None]) -> DetachedChild:
    """Run ``work`` in a child that survives us: own session, stdio on /dev/null, none of our descriptors.

    An exception in ``work`` ends only the child, so ``work`` must record its own faults.

    Raises:
        CommandFault: the system starts no further process.
    """
    read_end, write_end = os.pipe()
    try:
        pid = fork_alone(work, keep=(write_end,))
    except OSError as fault:
        os.close(read_end)
        raise _cannot_fork(fault) from fault
    finally:
        os.close(write_end)
    return DetachedChild(pid, read_end)


def fork_alone(work: Callable[[], None], keep: Collection[int] = (), *, ignore_signals: bool = False) -> int:
    """Fork a child in its own session that runs ``work`` and exits; returns its pid to the parent.

    The child has stdin, stdout and stderr on /dev/null and no other descriptors but those of ``keep``, so it holds none
    of our locks and pipes. An exception in ``work`` ends the child with status 1; it never returns into the parent's
    code.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()
        signals.set_wakeup_fd(-1)
        for number in (signals.SIGTERM, signals.SIGINT, signals.SIGHUP):
            signals.signal(number, signals.SIG_IGN if ignore_signals else signals.SIG_DFL)
        _close_descriptors(keep)
        work()
        status = 0
    finally:
        os._exit(status)


def _cannot_fork(fault: OSError) -> CommandFault:
    return CommandFault(
        f"no process could be started: {fault.strerror}",
        next_step="end processes that are not needed (ps -u $(id -u)), or raise their limit (ulimit -u), then run the "
        "same command again",
    )


def _open_output(path: str) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise StorageFailed(
            f"the output file {path} cannot be written: {fault.strerror}",
            next_step="free space or fix the permissions of its folder, then run the command again",
        ) from fault


def _supervise_apart(order: Order, cancel_fd: int, sources: list[Watch | _ReportPipe]) -> dict[str, Any]:
    """Have a forked supervisor run the order; a byte on the lifeline, or closing it, makes it end the command."""
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
        raise _cannot_fork(fault) from fault
    finally:
        os.close(answer_fd)
        os.close(lifeline_fd)
    try:
        answer = _read_all(report_fd, cancel_fd, hold_fd, sources)
    finally:
        os.close(hold_fd)
        os.close(report_fd)
        _collect(pid)
    if not answer:
        _end_what_is_left(order.env[RUN_MARK], pid)
        raise CommandFault(
            f"the process that supervised `{' '.join(order.argv)}` was killed, so the outcome is unknown",
            next_step="run the same command again",
        )
    report: dict[str, Any] = marshal.loads(answer)  # noqa: S302  # written by our own child
    return report


def _read_all(report_fd: int, cancel_fd: int, hold_fd: int, sources: list[Watch | _ReportPipe]) -> bytes:
    """The supervisor's report; if ``cancel_fd`` becomes readable first, the supervisor has to end the command.

    What the sources tell meanwhile is taken up.
    """
    chunks: list[bytes] = []
    poll = select.poll()
    poll.register(report_fd, select.POLLIN)
    if cancel_fd >= 0:
        poll.register(cancel_fd, select.POLLIN)
    for source in sources:
        poll.register(source.fd, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        for source in sources:
            if source.fd in ready:
                source.read()
                time.sleep(_REST_SECONDS)
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


def end_commands_of(caller: ProcessIdentity) -> None:
    """Kill what is left of the commands that ``caller`` ran, where it and their supervisors were killed together."""
    _end_what_is_left(_token_of(caller))


def _token_of(caller: ProcessIdentity | None) -> str:
    """The beginning of the mark of every command that a process runs."""
    return sha256(repr(caller).encode()).hexdigest()[: 2 * _TOKEN_BYTES]


def _end_what_is_left(token: str, session: int = 0) -> None:
    """Kill the processes that a killed supervisor left behind: those of its session and those with our mark.

    A process shows no environment for a moment while it executes another program, so we look twice.
    """
    give_up_at = time.monotonic() + KILL_LIMIT_SECONDS
    empty_looks = 0
    while empty_looks < _EMPTY_LOOKS and time.monotonic() < give_up_at:
        members = {*(session_pids(session) if session else ()), *marked_pids(token)} - {os.getpid()}
        empty_looks = 0 if members else empty_looks + 1
        for pid in members:
            try:
                os.kill(pid, signals.SIGKILL)
            except OSError:
                continue
        time.sleep(_KILL_PASS_SECONDS)


def _first_program(command: str) -> str:
    """The first word of a command line that is not an assignment; empty if the line cannot be split."""
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
    """Redirect 0, 1 and 2 to /dev/null and close all others but those to keep."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    start = 3
    for descriptor in sorted(keep):
        os.closerange(start, descriptor)
        start = max(start, descriptor + 1)
    os.closerange(start, os.sysconf("SC_OPEN_MAX"))
