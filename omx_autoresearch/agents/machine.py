"""A hook's view of its machine: the user's home, files that may be pipes, and the sender of the event."""

from __future__ import annotations

import os

from omx_autoresearch.agents.events import BY_SIGNS, PROVEN, Origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

STDIN = 0
_INTERPRETERS = ("node", "MainThread", "bun")
"""What the kernel calls a client that is written in JavaScript; recent versions of Node.js name their main thread."""


def home_path(environ: Mapping[str, str]) -> str:
    """The user's home folder: ``HOME``, or else the system's entry."""
    return environ.get("HOME") or os.path.expanduser("~")


def without_waiting(path: str, flags: int) -> int:
    """An ``opener`` for :func:`open` that does not block if the file is a pipe, which then reads as empty."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def socket_origin(client: str) -> Origin:
    """Whether the event on stdin came through a socket whose other end the parent of this process made, or one above.

    The parent of a hook alone proves nothing: a tool shell that becomes the hook by ``exec`` has the client as its
    parent too. The kernel tells which process made the other end of a socket, but only on Linux. A program that the
    user put between the client and the hook hands the socket on.
    """
    from omx_autoresearch.system.processes import ON_LINUX, ancestors, socket_peer

    if not ON_LINUX:
        return BY_SIGNS
    peer = socket_peer(STDIN)
    if any(process.pid == peer for process in ancestors(os.getpid())):
        return by_client(peer, client)
    what = f"process {peer}" if peer else "a file or a pipe"
    return Origin("forged", f"{what} gave this hook its event; the agent CLI did not")


def by_client(pid: int, client: str) -> Origin:
    """Whether the process that sent an event is this agent CLI, not another one or a program that one started."""
    from omx_autoresearch.foundation.clients import KNOWN
    from omx_autoresearch.system.processes import ancestors

    programs = {known.program: name for name, known in KNOWN.items() if known.program}
    sender = _program(pid)
    if programs.get(sender, client) != client:
        return Origin("forged", f"process {pid} ({sender}) sent the event, and that is not {client}")
    for process in ancestors(pid):
        name = _program(process.pid)
        if name in programs and name != sender:
            return Origin(
                "forged", f"{name} (process {process.pid}), an agent CLI, started what sent the event"
            )
    return PROVEN


def _program(pid: int) -> str:
    """What a process is called; of an interpreter of JavaScript, what its script is called."""
    from omx_autoresearch.system.processes import command_line, command_name

    name = command_name(pid)
    if name not in _INTERPRETERS:
        return name
    words = command_line(pid).split()[1:]
    script = next((word for word in words if not word.startswith("-")), name)
    return os.path.basename(script).removesuffix(".js")
