"""The process table: the identity of a process, whether it still runs, and which process started it.

A pid alone means nothing after its process has ended; an identity is the pid with the time of its start.
On Linux we read /proc (proc(5)); other systems need psutil, which is imported only there.
"""

from __future__ import annotations

import os
import sys
import time

from omx_autoresearch.foundation.clients import KNOWN
from omx_autoresearch.foundation.records import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as signals
else:
    try:
        # the module that does the work on every CPython: ``signal`` adds enumerations, which cost a process 3 ms
        import _signal as signals
    except ImportError:
        import signal as signals
__all__ = ["signals"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeVar

    import psutil

    Answer = TypeVar("Answer")

ON_LINUX = sys.platform == "linux"
COMM_LENGTH = 15
"""Characters of a process name that the kernel keeps (TASK_COMM_LEN - 1, proc(5))."""

SHELLS = ("sh", "ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "ksh93", "mksh", "tcsh", "zsh")
"""Programs that run command lines; a hook's own line ends in ``exec``, so no shell stays behind."""

_INTERPRETERS = ("node", "MainThread", "bun")
"""Names of a process that runs a script in JavaScript; recent versions of Node.js name their main thread."""

CLIENT_SANDBOXES = ("bwrap", *(client.sandbox for client in KNOWN.values() if client.sandbox))
"""Names of pid 1 inside the sandboxes of the agent CLIs; no other container counts as an agent's sandbox."""

RUN_MARK = "OMX_AUTORESEARCH_RUN"
"""Set to a token of the run for every command that the runtime runs: a process with it is never the owner."""

_MAX_ANCESTORS = 256
_ENDED_STATES = b"ZXx"
_FIELD_STATE, _FIELD_PARENT, _FIELD_STARTED = 0, 1, 19  # counted behind the name in brackets


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, distinct from every later one with the same pid.

    ``started`` is opaque: the boot id and the start in clock ticks after boot on Linux, the time of creation on other
    systems. It stays unique when the pid is reused and after a reboot; compare it, do not compute with it.
    """

    pid: int
    started: str


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a running process; None if there is none (a zombie has ended)."""
    if not ON_LINUX:
        started = _ask_psutil(pid, lambda process: f"{process.create_time():.6f}", "")
        return ProcessIdentity(pid, started) if started else None
    fields = _stat_fields(pid)
    if fields is None or fields[_FIELD_STATE] in _ENDED_STATES:
        return None
    return ProcessIdentity(pid, f"{_boot_id()}:{fields[_FIELD_STARTED].decode()}")


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether exactly this process still runs: not a zombie, and not a later process with its pid."""
    return identify(identity.pid) == identity


def parent_pid(pid: int) -> int:
    """The pid of the parent; 0 if there is none or the process is gone."""
    if not ON_LINUX:
        return _ask_psutil(pid, lambda process: process.ppid(), 0)
    fields = _stat_fields(pid)
    return int(fields[_FIELD_PARENT]) if fields is not None else 0


def ancestors(pid: int) -> tuple[ProcessIdentity, ...]:
    """The parent, its parent and so on, nearest first, without the process itself."""
    found: list[ProcessIdentity] = []
    current = parent_pid(pid)
    while current > 0 and len(found) < _MAX_ANCESTORS:
        identity = identify(current)
        if identity is None:
            break
        found.append(identity)
        current = parent_pid(current)
    return tuple(found)


def command_name(pid: int) -> str:
    """The whole name of the program, which the kernel cuts at 15 characters; empty if the process is gone."""
    if not ON_LINUX:
        return _ask_psutil(pid, lambda process: process.name(), "")
    name = _read(f"/proc/{pid}/comm").rstrip(b"\n")
    if len(name) == COMM_LENGTH:
        program = os.path.basename(_read(f"/proc/{pid}/cmdline").split(b"\0", 1)[0])
        if program.startswith(name):
            name = program
    return os.fsdecode(name)


def program_name(pid: int) -> str:
    """The name of the program; for an interpreter of JavaScript that of its script, without ``.js``."""
    name = command_name(pid)
    if name not in _INTERPRETERS:
        return name
    words = command_line(pid).split()[1:]
    script = next((word for word in words if not word.startswith("-")), name)
    return os.path.basename(script).removesuffix(".js")


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty if the system does not show it."""
    entries = (os.fsdecode(entry).partition("=") for entry in _environment(pid))
    return {name: value for name, has_value, value in entries if has_value}


def command_line(pid: int) -> str:
    """The arguments joined by spaces, for people; ``[name]`` if there are none; empty if the process is gone."""
    if not ON_LINUX:
        return _ask_psutil(pid, lambda process: " ".join(process.cmdline()), "")
    arguments = _read(f"/proc/{pid}/cmdline").rstrip(b"\0").replace(b"\0", b" ")
    if arguments:
        return arguments.decode("utf-8", "replace")
    name = command_name(pid)
    return f"[{name}]" if name else ""


def socket_peer(descriptor: int) -> int:
    """The pid of the process that made the other end of a socket, or listened there; 0 if it is not a socket."""
    import _socket  # the module below socket, which costs 3 ms more

    copy = os.dup(descriptor)
    try:
        end = _socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return 0
    try:
        return int.from_bytes(end.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 4), sys.byteorder)
    except OSError:
        return 0
    finally:
        end.close()


def open_files(pid: int) -> tuple[str, ...]:
    """The paths of the files that a process of the same user has open; empty if the system has no /proc."""
    folder_path = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder_path)
    except OSError:
        return ()
    return tuple(filter(None, (_link(os.path.join(folder_path, name)) for name in names)))


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def child_pids(pid: int) -> tuple[int, ...]:
    """The direct children, including zombies; empty if the process is gone."""
    if not ON_LINUX:
        return _ask_psutil(pid, lambda process: tuple(child.pid for child in process.children()), ())
    if not os.path.exists("/proc/thread-self/children"):
        # a kernel without CONFIG_PROC_CHILDREN
        return tuple(child for child in _all_pids() if parent_pid(child) == pid)
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return ()
    return tuple(
        int(child) for thread in threads for child in _read(f"/proc/{pid}/task/{thread}/children").split()
    )


def descendant_pids(pid: int) -> tuple[int, ...]:
    """All processes below one, parents before children. A process that starts meanwhile may be missing."""
    found: list[int] = []
    seen = {pid}
    waiting = [pid]
    while waiting:
        for child in child_pids(waiting.pop()):
            if child not in seen:
                seen.add(child)
                found.append(child)
                waiting.append(child)
    return tuple(found)


def session_pids(session: int) -> tuple[int, ...]:
    """The running processes of a session; empty if the system has no /proc."""
    return tuple(pid for pid in _all_pids() if _in_session(pid, session))


def marked_pids(token: str) -> tuple[int, ...]:
    """The running processes whose mark begins with ``token``; empty if the system has no /proc."""
    beginning = f"{RUN_MARK}={token}".encode()
    return tuple(
        pid for pid in _all_pids() if any(entry.startswith(beginning) for entry in _environment(pid))
    )


def runs_above(ancestors: Sequence[ProcessIdentity]) -> tuple[ProcessIdentity, ...]:
    """The ancestors that run inside a command of ours, even if the process itself hides that in its environment.

    Empty if the system does not show the environments of processes.
    """
    mark = f"{RUN_MARK}=".encode()
    return tuple(
        process for process in ancestors if any(entry.startswith(mark) for entry in _environment(process.pid))
    )


def agent_marks(
    environ: Mapping[str, str],
    *,
    marks: Sequence[str],
    ancestors: Sequence[ProcessIdentity],
    bound: Sequence[ProcessIdentity],
    pid1_name: str,
) -> tuple[str, ...]:
    """The signs that a process runs inside an agent; empty if there are none. Pure.

    Args:
        environ: the environment of the process. We read and report names only, never a value.
        marks: names of variables that the agent CLIs set for the commands they run; our own is added.
        ancestors: the identities of the processes above.
        bound: the identities of clients that a mission holds.
        pid1_name: the name of pid 1 as the process sees it.

    Returns:
        One phrase for each sign, readable after "because".
    """
    reasons = [f"the environment has {mark}" for mark in (*marks, RUN_MARK) if mark in environ]
    clients = set(bound)
    reasons += [
        f"process {process.pid}, a client bound to a mission, started it"
        for process in ancestors
        if process in clients
    ]
    name = os.path.basename(pid1_name)
    if name in CLIENT_SANDBOXES or name in {sandbox[:COMM_LENGTH] for sandbox in CLIENT_SANDBOXES}:
        reasons.append(f"pid 1 is {name}, the sandbox of an agent CLI")
    return tuple(reasons)


_WAITING = frozenset(
    ("sh", "dash", "bash", "zsh", "fish", "su", "sudo", "init", "tini", "docker-init", "login")
)
"""Programs that do nothing while the command that they started runs."""


def is_alone() -> bool:
    """Whether nothing but this process and those below it can write files of the user: no other program runs here.

    A shell above that waits is none, and the kernel's threads are none either. False if the system has no /proc.
    """
    me, user = os.getpid(), os.geteuid()
    waiting = {process.pid for process in ancestors(me) if command_name(process.pid) in _WAITING}
    own = {me, *descendant_pids(me), *waiting}

    def may_write(pid: int) -> bool:
        try:
            return os.stat(f"/proc/{pid}").st_uid in (0, user) and bool(_read(f"/proc/{pid}/cmdline"))
        except OSError:
            return False  # it has ended

    return ON_LINUX and not any(pid not in own and may_write(pid) for pid in _all_pids())


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.read() or b""
    except OSError:
        return b""


def _all_pids() -> tuple[int, ...]:
    return tuple(int(name) for name in os.listdir("/proc") if name.isdigit()) if ON_LINUX else ()


def _environment(pid: int) -> list[bytes]:
    return _read(f"/proc/{pid}/environ").split(b"\0")


def _boot_id() -> str:
    return _read("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()


_POLL_SECONDS = 0.05


def wait_for(process: ProcessIdentity, wait_seconds: float) -> bool:
    """True if the process ends within ``wait_seconds``; it need not be our child."""
    import select

    deadline = time.monotonic() + wait_seconds
    try:
        descriptor = os.pidfd_open(process.pid)
    except (OSError, AttributeError):
        while is_alive(process):  # a kernel without pidfd
            if time.monotonic() >= deadline:
                return False
            select.select([], [], [], _POLL_SECONDS)
        return True
    try:
        if not is_alive(process):
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(max(0.0, (deadline - time.monotonic()) * 1000)))
    finally:
        os.close(descriptor)


def _stat_fields(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat after the name, which may itself contain spaces and brackets."""
    text = _read(f"/proc/{pid}/stat")
    end = text.rfind(b")")
    return text[end + 2 :].split() if end > 0 else None


def _in_session(pid: int, session: int) -> bool:
    try:
        return os.getsid(pid) == session and identify(pid) is not None
    except OSError:
        return False


def _ask_psutil(pid: int, question: Callable[[psutil.Process], Answer], otherwise: Answer) -> Answer:
    """An answer of psutil about a process; ``otherwise`` if it is gone, a zombie, or not readable for us."""
    import psutil

    try:
        process = psutil.Process(pid)
        return otherwise if process.status() == psutil.STATUS_ZOMBIE else question(process)
    except psutil.Error:
        return otherwise


def is_ending(pid: int) -> bool:
    """Whether a process has already released its memory: then it is about to end, and was not left behind."""
    try:
        os.readlink(f"/proc/{pid}/exe")
    except FileNotFoundError:
        return ON_LINUX
    except OSError:
        return False
    return False


# --- Orphans: processes that still work for a folder although their parent is gone.
#
# A supervisor whose controller was killed ends its command within moments; it gets that time. We then kill every
# process whose environment still names the folder, except this process and its ancestors, which may be an agent's.


GRACE_SECONDS = 6.0
"""How long a supervisor may take to end its command: the grace period, and the time to kill."""
LIMIT_SECONDS = 5.0
"""How long killed processes may take to vanish."""


def end_strays(scratch_path: str, *, grace_seconds: float = GRACE_SECONDS) -> tuple[int, ...]:
    """Wait for the processes whose environment names a folder below ``scratch_path``, and kill those that stay.

    It does nothing on systems without /proc, and spares this process and its ancestors.

    Returns:
        The pids of the killed processes.
    """
    give_up_at = time.monotonic() + grace_seconds
    for process in _marked(scratch_path):
        wait_for(process, max(0.0, give_up_at - time.monotonic()))
    return end_processes(_marked(scratch_path))


def end_tree(process: ProcessIdentity) -> tuple[int, ...]:
    """Kill a process and all processes below it; returns the killed pids, none if the process was gone."""
    if not is_alive(process):
        return ()
    below = [identify(pid) for pid in descendant_pids(process.pid)]
    return end_processes([process, *(each for each in below if each is not None)])


def end_processes(processes: Iterable[ProcessIdentity]) -> tuple[int, ...]:
    """Kill processes and wait for their end; returns their pids."""
    killed = []
    for process in processes:
        if is_alive(process):
            try:
                os.kill(process.pid, signals.SIGKILL)
            except OSError:
                continue
            killed.append(process)
    give_up_at = time.monotonic() + LIMIT_SECONDS
    for process in killed:
        wait_for(process, max(0.0, give_up_at - time.monotonic()))
    return tuple(process.pid for process in killed)


def _marked(scratch_path: str) -> list[ProcessIdentity]:
    mark = os.fsencode(os.path.join(scratch_path, ""))
    spared = {os.getpid(), *(process.pid for process in ancestors(os.getpid()))}
    marked = (pid for pid in _all_pids() if pid not in spared and mark in _read(f"/proc/{pid}/environ"))
    return [identity for pid in marked if (identity := identify(pid))]
