"""Starting a command so that its memory can be told from ours; and saying why one could not be started.

Loaded only where it is needed: nothing of it runs on the way of a hook.

**Peak memory.** The kernel keeps the largest resident size of a process in ``ru_maxrss`` and does not reset it when the
process executes another program, so a command that is spawned by a large process seems as large (getrusage(2); exec
copies the high-water mark of the old memory). `spawn_apart` puts two small programs in between: setsid(1), whose child
is a fresh process, and a shell, which tells its pid and becomes the command.
"""

from __future__ import annotations

import errno
import os
import sys

from omx_autoresearch.system.contents import first_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_SETSID_PATHS = ("/usr/bin/setsid", "/bin/setsid", "/run/current-system/sw/bin/setsid")
_SHELL_PATH = "/bin/sh"
_TELL_PID_AND_WAIT = 'echo $$ >&3; read go <&4; exec "$@" 3>&- 4<&-'


def spawn_apart(
    argv: Sequence[str], env: Mapping[str, str], actions: Sequence[Any], reset_signals: Sequence[int]
) -> int:
    """Start a command as a fresh process in a session of its own; it becomes a child of the calling subreaper.

    Returns:
        Its pid; 0 where the system has not what it takes, and nothing was started.
    """
    program = next((path for path in _SETSID_PATHS if os.access(path, os.X_OK)), "")
    if sys.platform != "linux" or not program or not os.access(_SHELL_PATH, os.X_OK):
        return 0
    told_fd, tell_fd = _high_pipe()
    gate_fd, open_fd = _high_pipe()
    try:
        between = os.posix_spawn(
            program,
            (program, "-f", _SHELL_PATH, "-c", _TELL_PID_AND_WAIT, "sh", *argv),
            dict(env),
            file_actions=[*actions, (os.POSIX_SPAWN_DUP2, tell_fd, 3), (os.POSIX_SPAWN_DUP2, gate_fd, 4)],
            setpgroup=0,
            setsigmask=[],
            setsigdef=reset_signals,
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
    """Let the shell go on once its parent is gone and we are its parent; returns its pid, 0 where there is none.

    A command may ask to be killed with its parent (bwrap does), and must not take the passing one for it.
    """
    os.waitpid(between, 0)
    with open(told_fd, "rb", closefd=False) as stream:
        told = stream.readline().strip()
    if not told.isdigit():
        return 0
    os.write(open_fd, b"\n")
    return int(told)


def _high_pipe() -> list[int]:
    """A pipe whose descriptors stand in nobody's way."""
    import fcntl

    ends = os.pipe()
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10) for descriptor in ends]
    for descriptor in ends:
        os.close(descriptor)
    return high


def peak_of(max_rss: int, *, is_apart: bool) -> int:
    """The peak in bytes of the largest process, from its ``ru_maxrss``; 0 where our own memory hides it."""
    if sys.platform != "linux":
        return max_rss
    import resource

    if not is_apart and max_rss <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
        return 0
    return max_rss * 1024


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


def why_not_started(fault: OSError | ValueError, place: str, cwd: str, *, is_cwd: bool) -> str:
    """Why a command could not be started, from what the system said and where."""
    if not isinstance(fault, OSError):
        return f"{place}: {fault}"
    number = fault.errno or 0
    if is_cwd:
        name = errno.errorcode.get(number, str(number))
        return f"the folder to run in, {cwd}, cannot be entered: {os.strerror(number)} ({name})"
    path = fault.filename if isinstance(fault.filename, str) else place
    return explain_start(number, path, cwd)


def socket_pair() -> tuple[int, int]:
    """Our end and theirs of a way for output that no process can open anew by /proc/PID/fd, as it can a pipe.

    So what was written can neither be taken out again nor changed before we read it (ENXIO in open(2)).
    """
    import _socket  # what socket is made of; that module around it would cost each run 3 ms

    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    ours.shutdown(_socket.SHUT_WR)
    return ours.detach(), theirs.detach()
