"""Starting the first process of a command: plainly, with its memory apart from ours, and behind walls.

**Peak memory.** The kernel keeps the largest resident size of a process in ``ru_maxrss`` and does not reset it when the
process executes another program, so a command that a large process spawns seems as large (getrusage(2); exec copies the
high-water mark of the old memory). `start_apart` puts two small programs in between: setsid(1), whose child is a fresh
process, and a shell, which reports its pid and becomes the command.

**Walls.** Landlock and a filter of system calls hold for the process that raises them and all below it. So a forked
child raises them and becomes the command, and the supervisor stays outside, where the command cannot reach it.
"""

from __future__ import annotations

import os
import sys

from omx_autoresearch.system.processes import signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    RaiseWalls = Callable[[], str]
    """Puts the calling process behind walls; why it could not be done, empty if it was."""

_SETSID_PATHS = ("/usr/bin/setsid", "/bin/setsid", "/run/current-system/sw/bin/setsid")
_SHELL_PATH = "/bin/sh"
_TELL_PID_AND_WAIT = 'echo $$ >&3; read go <&4; exec "$@" 3>&- 4<&-'
_NOT_STARTED = 127
_HIGH_FD = 10
_RESET_SIGNALS = (
    signals.SIGPIPE,
    signals.SIGXFSZ,
    signals.SIGINT,
    signals.SIGQUIT,
    signals.SIGTERM,
    signals.SIGHUP,
    signals.SIGCHLD,
)


def start(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    descriptors: Mapping[int, int],
    raise_walls: RaiseWalls | None = None,
) -> int:
    """Start a program in a process group of its own; returns its pid.

    Args:
        argv: the program's file and its arguments.
        env: the whole environment.
        descriptors: what the program has beside an empty stdin: its numbers, and ours.
        raise_walls: called in the new process before the program.

    Raises:
        OSError: the program cannot be started.
        ValueError: the walls cannot be raised.
    """
    if raise_walls is not None:
        return _start_behind(argv, env, descriptors, raise_walls)
    return os.posix_spawn(
        argv[0],
        argv,
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            *((os.POSIX_SPAWN_DUP2, ours, number) for number, ours in descriptors.items()),
        ],
        setpgroup=0,
        setsigmask=[],
        setsigdef=_RESET_SIGNALS,
    )


def start_apart(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    descriptors: Mapping[int, int],
    raise_walls: RaiseWalls | None = None,
) -> int:
    """Start a command as a fresh process in a session of its own; it becomes a child of the calling subreaper.

    Returns:
        Its pid; 0 if the system lacks setsid(1) or a shell, and nothing was started.
    """
    program = next((path for path in _SETSID_PATHS if os.access(path, os.X_OK)), "")
    if sys.platform != "linux" or not program or not os.access(_SHELL_PATH, os.X_OK):
        return 0
    told_fd, tell_fd = _high_pipe()
    gate_fd, open_fd = _high_pipe()
    try:
        between = start(
            (program, "-f", _SHELL_PATH, "-c", _TELL_PID_AND_WAIT, "sh", *argv),
            env,
            {**descriptors, 3: tell_fd, 4: gate_fd},
            raise_walls,
        )
    except OSError:
        between = 0
    finally:
        os.close(tell_fd)
        os.close(gate_fd)
    try:
        return _go(between, told_fd, open_fd) if between else 0
    finally:
        os.close(told_fd)
        os.close(open_fd)


def _go(between: int, told_fd: int, open_fd: int) -> int:
    """Let the shell go on once its parent is gone and we are its parent; returns its pid, 0 if there is none.

    A command may ask to be killed with its parent (bwrap does); that must not be the temporary one.
    """
    os.waitpid(between, 0)
    with open(told_fd, "rb", closefd=False) as stream:
        told = stream.readline().strip()
    if not told.isdigit():
        return 0
    os.write(open_fd, b"\n")
    return int(told)


def _high_pipe() -> list[int]:
    """A pipe whose descriptors do not collide with the standard ones."""
    import fcntl

    ends = os.pipe()
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD) for descriptor in ends]
    for descriptor in ends:
        os.close(descriptor)
    return high


def _start_behind(
    argv: tuple[str, ...], env: Mapping[str, str], descriptors: Mapping[int, int], raise_walls: RaiseWalls
) -> int:
    """Fork, raise the walls, become the program; what failed before that comes through a pipe that exec closes."""
    told_fd, tell_fd = _high_pipe()
    pid = os.fork()
    if not pid:
        try:
            fault = _become(argv, env, descriptors, raise_walls)
            os.write(tell_fd, fault.encode())
        finally:
            os._exit(_NOT_STARTED)
    os.close(tell_fd)
    with open(told_fd, encoding="utf-8") as stream:
        fault = stream.read()
    if not fault:
        return pid
    os.waitpid(pid, 0)
    if fault.isdigit():
        raise OSError(int(fault), os.strerror(int(fault)), argv[0])
    raise ValueError(fault)


def _become(
    argv: tuple[str, ...], env: Mapping[str, str], descriptors: Mapping[int, int], raise_walls: RaiseWalls
) -> str:
    """Become the program behind walls; returns only if that failed: the errno of the start, or what else was wrong."""
    try:
        os.setpgid(0, 0)
        signals.set_wakeup_fd(-1)
        for signal in _RESET_SIGNALS:
            signals.signal(signal, signals.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, ours in descriptors.items():
            os.dup2(ours, number)
        if fault := raise_walls():
            return fault
        os.execve(argv[0], argv, env)  # noqa: S606  # the program was found by path before
    except OSError as error:
        return str(error.errno)
