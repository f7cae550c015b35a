"""The supervisor of one command: it has it started, watches it, and leaves no process of it behind."""

from __future__ import annotations

import errno
import os
import select
import sys
import time

from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.system.files import first_line
from omx_autoresearch.system.mounts import adopt_orphans, displaced, enter
from omx_autoresearch.system.processes import command_line, descendant_pids, is_ending, signals
from omx_autoresearch.system.starting import start, start_apart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.system.clock import Clock
    from omx_autoresearch.system.landlock import Rights
    from omx_autoresearch.system.starting import RaiseWalls
    from omx_autoresearch.system.surroundings import Surroundings


def peak_of(max_rss: int, *, is_apart: bool) -> int:
    """The peak in bytes of the largest process, from its ``ru_maxrss``; 0 if our own memory hides it."""
    if sys.platform != "linux":
        return max_rss
    import resource

    if not is_apart and max_rss <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
        return 0
    return max_rss * 1024


def explain_start(number: int, path: str, cwd: str) -> str:
    """Why a program could not be started: the path, the errno's name, and the cure."""
    name = errno.errorcode.get(number, str(number))
    full_path = os.path.join(cwd, path)
    if number == errno.ENOENT and os.path.isfile(full_path):
        interpreter = shebang(full_path)
        if interpreter.endswith("\r"):
            return f"{path}: it has Windows line endings ({name}); run: sed -i 's/\\r$//' {path}"
        return (
            f"{path}: its first line names {interpreter or 'an interpreter'}, which does not exist ({name})"
        )
    if number == errno.ENOENT and "/" not in path:
        return f"{path}: no such program on PATH ({name}); install it, or give its full path"
    if number in (errno.ENOENT, errno.ENOTDIR):
        return f"{path}: no such file ({name}); paths are relative to {cwd}"
    if number == errno.EACCES and os.path.isdir(full_path):
        return f"{path}: is a folder ({name})"
    if number == errno.EACCES and os.path.isfile(full_path) and not os.access(full_path, os.X_OK):
        mode = os.stat(full_path).st_mode & 0o7777
        return f"{path}: not executable (mode {mode:04o}, {name}); run: chmod +x {path}"
    if number == errno.ENOEXEC:
        return f"{path}: no shebang ({name}); make its first line #!/bin/sh or the right interpreter"
    return f"{path}: {os.strerror(number)} ({name})"


def shebang(path: str) -> str:
    """The interpreter that the first line of a script names; empty if there is none or it cannot be read."""
    line = first_line(path, 256)
    if not line.startswith(b"#!"):
        return ""
    words = line[2:].strip(b" \t").split(None, 1)
    interpreter = os.fsdecode(words[0]) if words else ""
    return interpreter + "\r" if line.endswith(b"\r") and len(words) == 1 else interpreter


def why_not_started(fault: OSError | ValueError, place: str, cwd: str, *, is_cwd: bool) -> str:
    """Why a command could not be started, from the system's error and the path that caused it."""
    if not isinstance(fault, OSError):
        return f"{place}: {fault}"
    number = fault.errno or 0
    if is_cwd:
        name = errno.errorcode.get(number, str(number))
        return f"the folder to run in, {cwd}, cannot be entered: {os.strerror(number)} ({name})"
    path = fault.filename if isinstance(fault.filename, str) else place
    return explain_start(number, path, cwd)


def socket_pair() -> tuple[int, int]:
    """Our end and the command's end of a channel that no process can reopen by /proc/PID/fd, as it can a pipe.

    So no process can take out or change the output before we read it (ENXIO in open(2)).
    """
    import _socket  # the module below socket, which would cost each run 3 ms more

    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    ours.shutdown(_socket.SHUT_WR)
    return ours.detach(), theirs.detach()


def wide_pipe() -> tuple[int, int]:
    """A pipe that holds `PIPE_BYTES`, where the system allows it."""
    import fcntl

    read_end, write_end = os.pipe()
    try:
        fcntl.fcntl(write_end, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE_BYTES)
    except OSError:
        return read_end, write_end  # it holds what pipes hold by themselves
    return read_end, write_end


# --- The process between us and a command: it watches one command and is responsible for every process below it.
#
# A command may start children that leave its process group and its session. Only a process that adopts orphans
# (PR_SET_CHILD_SUBREAPER, prctl(2)) still finds those, and it must have no other children, or it would end those of
# another command. So each command gets a forked supervisor in its own session, which runs the code below and exits. If
# the calling process is killed, the lifeline pipe closes and the supervisor ends the command.

LEFTOVER_GRACE_SECONDS = 0.5
"""How long processes that a command left behind may take to end before they are killed."""

KILL_LIMIT_SECONDS = 5.0
"""How long we wait for killed processes to vanish; one in a stuck system call never does."""

SHOWN_COMMAND_LENGTH = 200

TAIL_BYTES = 4 * 1024 * 1024
"""How much of the end is kept of an output past its limit; half the limit, where that is less."""
CUT_MARK = b"\n[... the middle of the output was not kept ...] "
"""Stands before that end, so that a line whose beginning was dropped is not taken for a whole one."""
LINE_BYTES = 64 * 1024
"""How much is kept of one line that counts, in the part of an output that is not kept."""
PIPE_BYTES = 1024 * 1024
"""How much of a command's output the system holds for us: a program that exits without waiting loses only what is more.

The largest pipe that a user may ask for (pipe(7)); Node.js writes to a pipe without waiting for it.
"""

_READ_BYTES = 65536
_READS_AT_ONCE = 64  # a command that never pauses must not keep us from the clock
_KILL_PASS_SECONDS = 0.01

FILTER_FD = 9
"""Where bubblewrap reads the filter of system calls from."""


@dataclass(frozen=True, slots=True)
class Enclosure:
    """What the supervisor puts around a command.

    Attributes:
        surroundings: the mounts that it sees; a system may refuse them, and it may be run without.
        rights: what Landlock leaves it; None where bubblewrap is its box, or where it has none.
        call_filter: the system calls that it may not make, as an array of BPF instructions; for bubblewrap by
            `FILTER_FD`.
    """

    surroundings: Surroundings | None = None
    rights: Rights | None = None
    call_filter: bytes = b""

    def raise_walls(self) -> str:
        """Put the calling process behind Landlock and the filter; why it could not be done, empty if it was."""
        from omx_autoresearch.system.landlock import give_up_privileges, restrict
        from omx_autoresearch.system.seccomp import load

        if self.rights is None or not give_up_privileges():
            return "the kernel does not let a process give up its privileges"
        if fault := restrict(self.rights):
            return fault
        return (
            ""
            if not self.call_filter or load(self.call_filter)
            else "the kernel takes no filter of system calls"
        )


OPEN = Enclosure()


@dataclass(frozen=True, slots=True)
class Order:
    """The command to run, and its limits.

    ``output_fd`` is open for writing and takes both streams; ``stdout_fd``, unless negative, takes a copy of stdout.
    With ``is_stdout_sealed`` the command's stdout is a socket. ``mounts`` are files
    and the copies that the command sees in their places. Lines with one of ``line_words`` are kept of both
    however long they are.
    """

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    timeout_seconds: float
    grace_seconds: float
    output_fd: int
    output_limit_bytes: int
    clock: Clock
    stdout_fd: int = -1
    measures_memory: bool = False
    is_stdout_sealed: bool = False
    mounts: tuple[tuple[str, str], ...] = ()
    line_words: tuple[bytes, ...] = ()
    enclosure: Enclosure = OPEN


def supervise(order: Order, lifeline_fd: int) -> dict[str, Any]:
    """Run the command to its end or its deadline, leave no process behind, and report the outcome.

    Runs inside a child of `commands.fork_alone`. The keys of the report are fields of ``CommandResult``.
    """
    adopt_orphans()
    is_boxed = os.path.basename(order.argv[0]) == "bwrap"
    surroundings = order.enclosure.surroundings
    if order.mounts or surroundings:
        fault_text = enter(
            order.mounts,
            root=order.cwd,
            before=surroundings.arrange if surroundings else None,
            keeps_capabilities=is_boxed,
        )
        if fault_text:
            return {"outcome": "not_started", "error": fault_text, "mount_fault": fault_text}
    wake_fd = _wake_on_child_end()  # before there is a child, whose end could be missed otherwise
    pipes = _Pipes(order)
    place = order.cwd
    began = order.clock.monotonic()
    try:
        os.chdir(order.cwd)
        place = order.argv[0]
        program = find_program(order.argv[0], order.env.get("PATH", os.defpath))
        first = _spawn(program, order, pipes)
    except (OSError, ValueError) as fault:
        is_cwd = place is order.cwd and place is not order.argv[0]
        why = why_not_started(fault, place, order.cwd, is_cwd=is_cwd)
        return {"outcome": "not_started", "error": why}
    if first.is_apart:
        began = order.clock.monotonic()  # the programs in between are no part of the command
    pipes.close_write_ends()
    watch = _Watch(order, first, pipes, (lifeline_fd, wake_fd))
    outcome = watch.until_end(began + order.timeout_seconds)
    duration_seconds = order.clock.monotonic() - began
    grace_seconds = order.grace_seconds
    if outcome == "exited":
        grace_seconds = min(grace_seconds, LEFTOVER_GRACE_SECONDS)
    watch.end_tree(grace_seconds)
    pipes.drain()
    pipes.finish()
    return {
        "outcome": outcome,
        "exit_status": watch.exit_status,
        "duration_seconds": duration_seconds,
        "user_seconds": watch.user_seconds,
        "system_seconds": watch.system_seconds,
        "peak_bytes": watch.peak_bytes,
        "output_size_bytes": pipes.output.size_bytes,
        "is_stdout_stored": not (pipes.stdout and pipes.stdout.error),
        "is_truncated": pipes.output.is_cut,
        "leaked": tuple(watch.leaked.values()),
        "has_left_running": watch.has_left,
        "error": pipes.output.error or watch.error,
        "is_mounted": bool(order.mounts),
        "displaced": displaced(order.mounts),
    }


def find_program(name: str, path: str) -> str:
    """The file of this name on PATH; a name with a slash is the file itself.

    Raises:
        OSError: ENOENT if no folder has it, EACCES if the file is not executable.
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


_LINE_CUT = b" [...]"


class Lines:
    """The lines of a stream in which one of some words stands; a carriage return ends a line, too."""

    def __init__(self, words: tuple[bytes, ...]) -> None:
        self._words = words
        self._rest = b""
        self._is_first = True

    def of(self, data: bytes | bytearray) -> bytes:
        """The lines that count and end in this piece of the stream; its first line always, which began before it."""
        block = self._rest + bytes(data).replace(b"\r", b"\n")
        end = block.rfind(b"\n") + 1
        self._rest = block[end:]
        if len(self._rest) > LINE_BYTES + len(_LINE_CUT):
            self._rest = self._rest[:LINE_BYTES] + _LINE_CUT
        begin, kept = 0, []
        if self._is_first and end:
            self._is_first, begin = False, block.find(b"\n") + 1
            kept.append(block[:begin] if begin <= LINE_BYTES else _LINE_CUT + b"\n")
        if words := [word for word in self._words if word in block]:
            lines = block[begin:end].splitlines(keepends=True)
            kept += [line for line in lines if any(map(line.__contains__, words))]
        return b"".join(kept)

    def rest(self) -> bytes | None:
        """The line that has not ended, so far; None where its beginning is not known or not all of it was kept."""
        return None if self._is_first or self._rest.endswith(_LINE_CUT) else self._rest


class _Kept:
    """The file that keeps a stream: its beginning, and of a stream past the limit its end too.

    Of the middle only the lines of ``line_words`` are kept, up to the limit once more.

    Attributes:
        size_bytes: of the stream.
        error: why not everything within the limit could be stored; empty if it was. Nothing is stored after it.
    """

    def __init__(self, descriptor: int, limit_bytes: int, line_words: tuple[bytes, ...]) -> None:
        self._descriptor = descriptor
        self._tail_bytes = min(limit_bytes // 2, TAIL_BYTES)
        self._room = limit_bytes - self._tail_bytes
        self._tail = bytearray()
        self._line_words = line_words
        self._line_room = limit_bytes
        self._lines: Lines | None = None
        self._passed_bytes = 0
        self.size_bytes = 0
        self.error = ""

    @property
    def is_cut(self) -> bool:
        """The file has less than the stream had."""
        return bool(self.error) or self._passed_bytes > len(self._tail)

    def add(self, chunk: bytes) -> None:
        """Store what the beginning has room for, and hold back the end of the rest."""
        self.size_bytes += len(chunk)
        head = chunk[: self._room]
        self._room -= len(head)
        self._store(head)
        if len(head) < len(chunk):
            self._passed_bytes += len(chunk) - len(head)
            self._tail += chunk[len(head) :]
            dropped = len(self._tail) - self._tail_bytes
            if dropped > 0:
                if self._line_words:
                    self._keep_lines(self._tail[:dropped])
                del self._tail[:dropped]

    def _keep_lines(self, dropped: bytearray) -> None:
        self._lines = self._lines or Lines(self._line_words)
        lines = self._lines.of(dropped)
        self._line_room -= len(lines)
        if self._line_room < 0:
            self.error = self.error or "the lines of the output that count are more than can be kept"
        self._store(lines)

    def finish(self) -> None:
        """Store the end that was held back.

        Where the middle is missing, `CUT_MARK` stands in the end's first bytes, or before its first line if the
        beginning of that line is known.
        """
        if self._passed_bytes <= len(self._tail):
            self._store(self._tail)
        elif self._lines and (rest := self._lines.rest()) is not None:
            self._store(CUT_MARK.rstrip() + b"\n" + rest + self._tail)
        else:
            self._store(CUT_MARK + self._tail[len(CUT_MARK) :])

    def _store(self, data: bytes | bytearray) -> None:
        view = memoryview(data)
        try:
            while view and not self.error:
                view = view[os.write(self._descriptor, view) :]
        except OSError as fault:
            self.error = f"part of the output could not be stored: {fault.strerror}"


class _Pipes:
    """The output of one command: read from its pipes, stored up to the limit.

    One pipe takes both streams in the order of writing. If stdout is wanted alone, each stream has a pipe, and the
    order in the output is that of arrival.
    """

    def __init__(self, order: Order) -> None:
        limits = order.output_limit_bytes, order.line_words
        self.output = _Kept(order.output_fd, *limits)
        self.stdout = _Kept(order.stdout_fd, *limits) if order.stdout_fd >= 0 else None
        read_end, self.stdout_end = socket_pair() if order.is_stdout_sealed else wide_pipe()
        self.stderr_end = self.stdout_end
        self._stdout_fd = read_end
        self.open = {read_end}
        if self.stdout is not None:
            read_end, self.stderr_end = wide_pipe()
            self.open.add(read_end)
        for descriptor in self.open:
            os.set_blocking(descriptor, False)

    def close_write_ends(self) -> None:
        """Close our copies, so that the pipes end when the command closes its own."""
        for descriptor in {self.stdout_end, self.stderr_end}:
            os.close(descriptor)

    def finish(self) -> None:
        """Store what was held back of each stream."""
        self.output.finish()
        if self.stdout is not None:
            self.stdout.finish()

    def drain(self) -> tuple[int, ...]:
        """Read the pipes; returns those that ended."""
        ended = tuple(descriptor for descriptor in self.open if not self._drain(descriptor))
        self.open.difference_update(ended)
        return ended

    def _drain(self, descriptor: int) -> bool:
        for _ in range(_READS_AT_ONCE):
            try:
                chunk = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self.output.add(chunk)
            if self.stdout is not None and descriptor == self._stdout_fd:
                self.stdout.add(chunk)
        return True


class _Watch:
    """One running command: its end, and the processes below it."""

    def __init__(self, order: Order, first: First, pipes: _Pipes, signs: tuple[int, int]) -> None:
        self._order = order
        self._first = first
        self._pipes = pipes
        self._lifeline_fd, self._wake_fd = signs
        self._has_children = True
        self.exit_status: int | None = None
        self.user_seconds = self.system_seconds = 0.0
        self._peak = 0  # in the unit of ru_maxrss
        self.leaked: dict[int, str] = {}
        self.has_left = False
        self.error = ""
        self._poll = select.poll()
        for descriptor in (*pipes.open, *signs):
            self._poll.register(descriptor, select.POLLIN)

    @property
    def peak_bytes(self) -> int:
        """The peak of the largest process; 0 if it was not measured, or if our own memory hides it."""
        if not self._order.measures_memory:
            return 0
        return peak_of(self._peak, is_apart=self._first.is_apart)

    def until_end(self, deadline: float) -> str:
        """Wait for the command's outcome; by the clock alone it is ``timed_out``, whatever its exit status."""
        while True:
            left_seconds = deadline - self._order.clock.monotonic()
            if left_seconds <= 0:
                return "timed_out"
            if self._lifeline_fd in self._wait(left_seconds):
                return "cancelled" if os.read(self._lifeline_fd, 1) else "abandoned"
            self._reap()
            if self.exit_status is not None:
                return "exited" if self._order.clock.monotonic() < deadline else "timed_out"

    def end_tree(self, grace_seconds: float) -> None:
        """Ask every process below us to end, kill those that still run after the grace period, collect them all."""
        self._reap()
        if not self._has_children:
            return
        self.has_left = any(map(self._works, descendant_pids(os.getpid())))
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

    def _forget(self, descriptor: int) -> None:
        try:
            self._poll.unregister(descriptor)
        except KeyError:
            return  # forgotten before

    def _wait(self, seconds: float) -> set[int]:
        """Sleep until there is output, a child ends, the caller ends, or the time is over."""
        ready = {descriptor for descriptor, _ in self._poll.poll(int(seconds * 1000) + 1)}
        if not self._pipes.open.isdisjoint(ready):
            for descriptor in self._pipes.drain():
                self._forget(descriptor)
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
            self.user_seconds += usage.ru_utime
            self.system_seconds += usage.ru_stime
            self._peak = max(self._peak, usage.ru_maxrss)
            if pid == self._first.pid:
                self.exit_status = os.waitstatus_to_exitcode(status)

    def _signal_tree(self, number: int) -> None:
        own_session = self._first.pid if self._first.is_apart else os.getsid(0)
        self._signal_group(number)
        for pid in descendant_pids(os.getpid()):
            try:
                if os.getsid(pid) != own_session and pid not in self.leaked and (line := self._works(pid)):
                    self.leaked[pid] = line[:SHOWN_COMMAND_LENGTH]
                os.kill(pid, number)
            except OSError:
                continue  # it has ended

    def _works(self, pid: int) -> str:
        """The command line of a process; empty if it is about to end, or is bwrap's own process in its sandbox."""
        argv, line = self._order.argv, command_line(pid)
        is_sandbox = argv[0].endswith("/bwrap") and line == " ".join(argv)
        return "" if is_sandbox or is_ending(pid) else line

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._first.pid, number)
        except OSError:
            return  # it has ended


@dataclass(frozen=True, slots=True)
class First:
    """The first process of a command. ``is_apart``: it has its own session."""

    pid: int
    is_apart: bool = False


def _spawn(program: str, order: Order, pipes: _Pipes) -> First:
    argv = (program, *order.argv[1:])
    descriptors = {1: pipes.stdout_end, 2: pipes.stderr_end}
    enclosure = order.enclosure
    raise_walls: RaiseWalls | None = None
    if enclosure.rights is not None:
        raise_walls = enclosure.raise_walls
    elif enclosure.call_filter:
        descriptors[FILTER_FD] = _pipe_with(enclosure.call_filter)
    if order.measures_memory:
        pid = start_apart(argv, order.env, descriptors, raise_walls)
        if pid:
            return First(pid, is_apart=True)
    return First(start(argv, order.env, descriptors, raise_walls))


def _pipe_with(data: bytes) -> int:
    """A descriptor that gives these bytes and ends; they fit into a pipe."""
    read_end, write_end = os.pipe()
    os.write(write_end, data)
    os.close(write_end)
    return read_end


def _wake_on_child_end() -> int:
    """Returns a descriptor that becomes readable when a child ends."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signals.signal(signals.SIGCHLD, lambda _number, _frame: None)
    signals.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    return read_end
