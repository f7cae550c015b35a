"""Reading a client's own record of a session from its end: newest lines first, bounded."""

from __future__ import annotations

import os

from omx_autoresearch.agents.folders import without_waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_BYTES = 64 * 1024 * 1024
"""How far back is looked; a single turn of hours stays below."""
_BLOCK_BYTES = 1024 * 1024


def newest_lines(path: str, mark: bytes) -> Iterator[bytes]:
    """The lines that hold ``mark``, newest first.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb", buffering=0, opener=without_waiting) as stream:
        size = end = os.fstat(stream.fileno()).st_size
        rest = b""
        while end > 0 and size - end < LIMIT_BYTES:
            start = max(0, end - _BLOCK_BYTES)
            block = os.pread(stream.fileno(), end - start, start) + rest
            first, *lines = block.split(b"\n") if start else [b"", *block.split(b"\n")]
            for line in reversed(lines):
                if mark in line:
                    yield line
            rest, end = first, start
