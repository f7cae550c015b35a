"""What a hook sees of its machine: the user's home, files that may be pipes, and who sent the event."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

STDIN = 0


def home_path(environ: Mapping[str, str]) -> str:
    """The user's home folder: ``HOME``, else what the system says."""
    return environ.get("HOME") or os.path.expanduser("~")


def without_waiting(path: str, flags: int) -> int:
    """Be the ``opener`` of :func:`open` where a pipe may stand in the place of a file: it reads empty."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def socket_fault() -> str:
    """Why the event on stdin was not sent by a process above this one through a socket; empty where it was.

    The parent of a hook proves nothing: a tool shell that calls ``exec`` leaves the client as the parent of what it
    becomes. The kernel says which process made the other end of a socket. It does so on Linux; elsewhere nothing can be
    told, and nothing is held against an event.
    """
    from omx_autoresearch.system.processes import ON_LINUX, ancestors, socket_peer

    if not ON_LINUX:
        return ""
    peer = socket_peer(STDIN)
    if any(process.pid == peer for process in ancestors(os.getpid())):
        return ""
    what = f"process {peer}" if peer else "a file or a pipe"
    return f"{what} gave this hook its event; the agent CLI did not"
