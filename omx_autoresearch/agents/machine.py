"""A hook's view of its machine: the user's home, files that may be pipes, and the sender of the event."""

from __future__ import annotations

import os

from omx_autoresearch.agents.events import BY_SIGNS, PROVEN, Origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STDIN = 0
TAIL_BYTES = 2 * 1024 * 1024
"""How far back a client's record of a session is read at every stop."""
_BLOCK_BYTES = 1024 * 1024


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


def newest_lines(path: str, mark: bytes, limit_bytes: int) -> Iterator[bytes]:
    """The lines of a file that contain ``mark``, newest first.

    Args:
        path: the file.
        mark: the bytes to look for.
        limit_bytes: how far back we look.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb", buffering=0, opener=without_waiting) as stream:
        size = end = os.fstat(stream.fileno()).st_size
        rest = b""
        while end > 0 and size - end < limit_bytes:
            start = max(0, end - _BLOCK_BYTES)
            block = os.pread(stream.fileno(), end - start, start) + rest
            head = block.find(b"\n") if start else -1
            first = (block if head < 0 else block[:head]) if start else b""
            # most blocks do not hold the mark, and splitting costs more than looking
            lines = block[len(first) :].split(b"\n") if mark in block else []
            for line in reversed(lines):
                if mark in line:
                    yield line
            rest, end = first, start
