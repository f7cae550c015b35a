"""A hook's view of its machine: the user's home, files that may be pipes, and the sender of the event."""

from __future__ import annotations

import os

from omx_autoresearch.agents.events import BY_SIGNS, PROVEN, Origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

STDIN = 0


def home_path(environ: Mapping[str, str]) -> str:
    """The user's home folder: ``HOME``, or else the system's entry."""
    return environ.get("HOME") or os.path.expanduser("~")


def without_waiting(path: str, flags: int) -> int:
    """An ``opener`` for :func:`open` that does not block if the file is a pipe, which then reads as empty."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def socket_origin() -> Origin:
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
        return PROVEN
    what = f"process {peer}" if peer else "a file or a pipe"
    return Origin("forged", f"{what} gave this hook its event; the agent CLI did not")
