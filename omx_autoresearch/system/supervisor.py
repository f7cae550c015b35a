"""The process between us and a command: it watches one command and answers for every process below it.

A command may start children that leave its process group and its session. Only a process that adopts orphans
(PR_SET_CHILD_SUBREAPER, prctl(2)) still finds those, and it must have no other children, or it would end
somebody else's. So each command gets a forked supervisor with a session of its own, which runs what is here and
exits. When the process that asked is killed, the lifeline pipe closes and the supervisor ends the command.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.system import signals
from omx_autoresearch.system.contents import first_line
from omx_autoresearch.system.processes import command_line, descendant_pids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from omx_autoresearch.system.clock import Clock

LEFTOVER_GRACE_SECONDS = 0.5
"""How long what a command left behind may take to end, at most, before it is killed."""

KILL_LIMIT_SECONDS = 5.0
"""How long killed processes may take to vanish (one in a stuck system call does not) before we give up."""

SHOWN_COMMAND_LENGTH = 200

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_READ_BYTES = 65536
_READS_AT_ONCE = 64  # a command that never pauses must not keep us from the clock
_KILL_PASS_SECONDS = 0.01
_RESET_SIGNALS = (
    signals.SIGPIPE,
    signals.SIGXFSZ,
    signals.SIGINT,
    signals.SIGQUIT,
    signals.SIGTERM,
    signals.SIGHUP,
    signals.SIGCHLD,
)


@dataclass(frozen=True, slots=True)
class Order:
    """What to run, and within which limits. ``output_fd`` is open for writing."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    timeout_seconds: float
    grace_seconds: float
    output_fd: int
    output_limit_bytes: int
    clock: Clock


def fork_alone(work: Callable[[], None], keep: Collection[int] = (), *, ignore_signals: bool = False) -> int:
    """Fork a child in a session of its own that runs ``work`` and exits; returns its pid to the parent.

    The child has stdin, stdout and stderr on /dev/null and of the other descriptors only those of ``keep``, so
    it holds no lock and no pipe of ours. Whatever ``work`` raises ends the child with status 1; nothing falls
    back into the code of the parent.
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


def supervise(order: Order, lifeline_fd: int) -> dict[str, Any]:
    """Run the command to its end or its deadline, leave no process behind, tell what happened.

    Runs inside a child of `fork_alone`. The keys of the answer are the fields of ``CommandResult``.
    """
    began = order.clock.monotonic()
    _adopt_orphans()
    read_end, write_end = os.pipe()
    place = order.cwd
    try:
        os.chdir(order.cwd)
        place = order.argv[0]
        program = find_program(order.argv[0], order.env.get("PATH", os.defpath))
        pid = _spawn(program, order, write_end)
    except (OSError, ValueError) as fault:
        is_cwd = place is order.cwd and place is not order.argv[0]
        return _report("not_started", error=_why_not_started(fault, place, order.cwd, is_cwd=is_cwd))
    os.close(write_end)
    watch = _Watch(order, pid, read_end, lifeline_fd)
    outcome = watch.until_end(began + order.timeout_seconds)
    duration_seconds = order.clock.monotonic() - began
    grace_seconds = order.grace_seconds
    if outcome == "exited":
        grace_seconds = min(grace_seconds, LEFTOVER_GRACE_SECONDS)
    watch.end_tree(grace_seconds)
    watch.drain()
    return _report(
        outcome,
        exit_status=watch.exit_status,
        duration_seconds=duration_seconds,
        cpu_seconds=watch.cpu_seconds,
        output_size_bytes=watch.output_size_bytes,
        is_truncated=watch.stored_bytes < watch.output_size_bytes,
        leaked=tuple(watch.leaked.values()),
        error=watch.error,
    )


def find_program(name: str, path: str) -> str:
    """The file that the name means on this PATH; a name with a slash is the file itself.

    Raises:
        OSError: ENOENT where no folder has it, EACCES where one has it but may not run it.
    """
    if "/" in name:
        return name
    barred = ""
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder or ".", name)
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            barred = barred or candidate
    number = errno.EACCES if barred else errno.ENOENT
    raise OSError(number, os.strerror(number), barred or name)


def explain_start(number: int, path: str, cwd: str) -> str:
    """Why a program could not be started: the path, the name of the errno, and the cure."""
    name = errno.errorcode.get(number, str(number))
    full_path = os.path.join(cwd, path)
    if number == errno.ENOENT and os.path.isfile(full_path):
        interpreter = shebang(full_path)
        if interpreter.endswith("\r"):
            return f"{path}: its lines end the Windows way ({name}); run: sed -i 's/\\r$//' {path}"
        return f"{path}: its first line names {interpreter or 'an interpreter'}, which is not there ({name})"
    if number == errno.ENOENT and "/" not in path:
        return f"{path}: no such program on PATH ({name}); install it, or write its whole path"
    if number in (errno.ENOENT, errno.ENOTDIR):
        return f"{path}: no such file ({name}); paths count from {cwd}"
    if number == errno.EACCES and os.path.isdir(full_path):
        return f"{path}: is a folder ({name})"
    if number == errno.EACCES and os.path.isfile(full_path) and not os.access(full_path, os.X_OK):
        mode = os.stat(full_path).st_mode & 0o7777
        return f"{path}: not executable (mode {mode:04o}, {name}); run: chmod +x {path}"
    if number == errno.ENOEXEC:
        return f"{path}: no shebang ({name}); make its first line #!/bin/sh or the right interpreter"
    return f"{path}: {os.strerror(number)} ({name})"


def shebang(path: str) -> str:
    """The interpreter that the first line of a script names; empty where there is none or it cannot be read."""
    line = first_line(path, 256)
    if not line.startswith(b"#!"):
        return ""
    words = line[2:].strip(b" \t").split(None, 1)
    interpreter = os.fsdecode(words[0]) if words else ""
    return interpreter + "\r" if line.endswith(b"\r") and len(words) == 1 else interpreter


class _Watch:
    """One running command: its output, its end, and the processes below it."""

    def __init__(self, order: Order, pid: int, output_fd: int, lifeline_fd: int) -> None:
        self._order = order
        self._pid = pid
        self._output_fd = output_fd
        self._lifeline_fd = lifeline_fd
        self._has_children = True
        self.exit_status: int | None = None
        self.cpu_seconds = 0.0
        self.output_size_bytes = 0
        self.stored_bytes = 0
        self.leaked: dict[int, str] = {}
        self.error = ""
        os.set_blocking(output_fd, False)
        self._wake_fd = _wake_on_child_end()
        self._poll = select.poll()
        for descriptor in (output_fd, lifeline_fd, self._wake_fd):
            self._poll.register(descriptor, select.POLLIN)

    def until_end(self, deadline: float) -> str:
        """Wait for the command: ``exited``, ``timed_out`` (the clock says so, whatever the command says)."""
        while True:
            left_seconds = deadline - self._order.clock.monotonic()
            if left_seconds <= 0:
                return "timed_out"
            if self._lifeline_fd in self._wait(left_seconds):
                return "abandoned"
            self._reap()
            if self.exit_status is not None:
                return "exited" if self._order.clock.monotonic() < deadline else "timed_out"

    def end_tree(self, grace_seconds: float) -> None:
        """Ask every process below us to end, kill what still runs after the grace, collect them all."""
        self._reap()
        if not self._has_children:
            return
        kill_at = time.monotonic() + grace_seconds
        self._signal_tree(signals.SIGTERM)
        self._signal_tree(signals.SIGCONT)
        while self._has_children:
            now = time.monotonic()
            if now > kill_at + KILL_LIMIT_SECONDS:
                left = ", ".join(str(pid) for pid in descendant_pids(os.getpid()))
                self.error = f"processes {left} could not be killed"
                return
            if now >= kill_at:
                self._signal_tree(signals.SIGKILL)
            self._wait(_KILL_PASS_SECONDS if now >= kill_at else kill_at - now)
            self._reap()

    def drain(self) -> None:
        """Take what stands in the pipe; past the limit it is read and not stored."""
        for _ in range(_READS_AT_ONCE):
            try:
                chunk = os.read(self._output_fd, _READ_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                self._forget(self._output_fd)
                return
            self.output_size_bytes += len(chunk)
            room = self._order.output_limit_bytes - self.stored_bytes
            if room > 0 and not self.error:
                self._store(chunk[:room])

    def _forget(self, descriptor: int) -> None:
        try:
            self._poll.unregister(descriptor)
        except KeyError:
            return  # forgotten before

    def _store(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        try:
            while view:
                written = os.write(self._order.output_fd, view)
                self.stored_bytes += written
                view = view[written:]
        except OSError as fault:
            self.error = f"the output could not be stored whole: {fault.strerror}"

    def _wait(self, seconds: float) -> set[int]:
        """Sleep until output, the end of a child, the end of whoever asked, or the time is over."""
        ready = {descriptor for descriptor, _ in self._poll.poll(int(seconds * 1000) + 1)}
        if self._output_fd in ready:
            self.drain()
        if self._wake_fd in ready:
            os.read(self._wake_fd, _READ_BYTES)
        if self._lifeline_fd in ready:
            self._forget(self._lifeline_fd)
        return ready

    def _reap(self) -> None:
        """Collect the children that have ended, adopted orphans among them."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self._has_children = False
                return
            if not pid:
                return
            self.cpu_seconds += usage.ru_utime + usage.ru_stime
            if pid == self._pid:
                self.exit_status = os.waitstatus_to_exitcode(status)

    def _signal_tree(self, number: int) -> None:
        own_session = os.getsid(0)
        self._signal_group(number)
        for pid in descendant_pids(os.getpid()):
            try:
                if os.getsid(pid) != own_session and pid not in self.leaked:
                    line = command_line(pid)
                    if line:
                        self.leaked[pid] = line[:SHOWN_COMMAND_LENGTH]
                os.kill(pid, number)
            except OSError:
                continue  # it has ended

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._pid, number)
        except OSError:
            return  # it has ended


def _spawn(program: str, order: Order, output_fd: int) -> int:
    return os.posix_spawn(
        program,
        order.argv,
        order.env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output_fd, 1),
            (os.POSIX_SPAWN_DUP2, output_fd, 2),
        ],
        setpgroup=0,
        setsigmask=[],
        setsigdef=_RESET_SIGNALS,
    )


def _report(outcome: str, **known: Any) -> dict[str, Any]:
    report: dict[str, Any] = {
        "outcome": outcome,
        "exit_status": None,
        "duration_seconds": 0.0,
        "cpu_seconds": 0.0,
        "output_size_bytes": 0,
        "is_truncated": False,
        "leaked": (),
        "error": "",
    }
    return report | known


def _why_not_started(fault: OSError | ValueError, place: str, cwd: str, *, is_cwd: bool) -> str:
    if not isinstance(fault, OSError):
        return f"{place}: {fault}"
    number = fault.errno or 0
    if is_cwd:
        name = errno.errorcode.get(number, str(number))
        return f"the folder to run in, {cwd}, cannot be entered: {os.strerror(number)} ({name})"
    path = fault.filename if isinstance(fault.filename, str) else place
    return explain_start(number, path, cwd)


def _adopt_orphans() -> None:
    if sys.platform != "linux":
        return
    try:
        import _ctypes  # what ctypes calls C with; loading the package around it costs a run 2.5 ms

        itself: Any = None  # the process, as CDLL(None) opens it
        prctl = _ctypes.dlsym(_ctypes.dlopen(itself, 0), "prctl")
        _ctypes.call_function(prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    except (ImportError, AttributeError, TypeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _wake_on_child_end() -> int:
    """A descriptor that becomes readable when a child ends."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signals.signal(signals.SIGCHLD, lambda _number, _frame: None)
    signals.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    return read_end


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
