"""Whether somebody edited a projection, and which of its lines are not ours."""

from __future__ import annotations

import os

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import WorkspaceFault
from omx_autoresearch.storage.strictjson import decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.storage.omx_folder import OmxFolder
    from omx_autoresearch.storage.projected import Projected

FOREIGN_LINES = 200
FOREIGN_BYTES = 200 * 1024
"""What is taken in of one edit; the whole edited file is kept aside."""
_CHUNK_BYTES = 256 * 1024
_LINE_BYTES = 64 * 1024
_SURPLUS_BYTES = 4 * 1024 * 1024
_STATE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Difference:
    """What stands under a projection's name, compared with what should.

    Attributes:
        is_same: byte for byte right.
        is_edited: somebody else's work; False also for a file that is missing, or merely behind.
        foreign: its lines that are not ours, harmless in form, bounded in number and size.
    """

    is_same: bool = False
    is_edited: bool = False
    foreign: tuple[str, ...] = ()


def difference(folder: OmxFolder, leaf: str, draft: str, kept: Projected, name: str) -> Difference:
    """Compare the file ``leaf`` with its draft in the same folder.

    Args:
        folder: of both.
        leaf: the projection's file name.
        draft: the file name of the right content.
        kept: how we left the projections.
        name: the projection's name.
    """
    try:
        found = folder.open_plain(leaf)
    except FileNotFoundError:
        return Difference()
    except WorkspaceFault:
        return Difference(is_edited=True)  # a link, a pipe, a folder: nothing in it is read
    right = folder.open_plain(draft)
    try:
        common = _common_bytes(found, right)
        found_size, right_size = os.fstat(found).st_size, os.fstat(right).st_size
        if common == found_size == right_size:
            return Difference(is_same=True)
        if name.endswith(".jsonl"):
            return _of_lines(found, right, common, kept, name)
        return _of_state(os.pread(found, _STATE_BYTES, 0), os.pread(right, right_size, 0), kept, name)
    finally:
        os.close(found)
        os.close(right)


def _common_bytes(one: int, other: int) -> int:
    """How many bytes two open files begin with alike; counted in chunks where both go on differently."""
    position = 0
    while True:
        left, right = os.pread(one, _CHUNK_BYTES, position), os.pread(other, _CHUNK_BYTES, position)
        if left != right or not left:
            shorter = min(len(left), len(right))
            return position + (shorter if left[:shorter] == right[:shorter] else 0)
        position += len(left)


def _of_lines(found: int, right: int, common: int, kept: Projected, name: str) -> Difference:
    size = os.fstat(found).st_size
    stamp = kept.stamp(name)
    if common == size and (stamp is None or size >= stamp[1]):
        return Difference()  # a beginning of what is right: we were killed before the rest of it
    ours = {hash(line) for line in _lines(right, os.fstat(right).st_size)}
    limit = os.fstat(right).st_size + _SURPLUS_BYTES
    return Difference(is_edited=True, foreign=_foreign(_lines(found, limit), lambda line: hash(line) in ours))


def _of_state(found: bytes, right: bytes, kept: Projected, name: str) -> Difference:
    if kept.wrote(name, found) or (kept.stamp(name) is None and _is_of_one_form(found, right)):
        return Difference()  # our own older content: a crash, a backup that was put back, or lost stamps
    ours = set(right.splitlines())
    lines = [line for line in found.splitlines() if not kept.wrote_line(name, line)]
    return Difference(is_edited=True, foreign=_foreign(lines, lambda line: line in ours))


def _is_of_one_form(found: bytes, right: bytes) -> bool:
    """True when both are JSON with the same keys: all that can be said where nobody knows what we last wrote."""
    try:
        one, other = decode(found), decode(right)
    except ValueError:
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys()
    return isinstance(one, list) and isinstance(other, list)


def _lines(descriptor: int, limit_bytes: int) -> list[bytes]:
    """The lines of an open file, long ones in pieces."""
    found: list[bytes] = []
    with os.fdopen(os.dup(descriptor), "rb") as stream:
        stream.seek(0)
        while stream.tell() < limit_bytes and (line := stream.readline(_LINE_BYTES)):
            found.append(line.rstrip(b"\r\n"))
    return found


def _foreign(lines: list[bytes], is_ours: Callable[[bytes], bool]) -> tuple[str, ...]:
    found: list[str] = []
    size = 0
    for line in lines:
        text = line.decode("utf-8", "replace").strip()
        if not text or is_ours(line) or text in found:
            continue
        size += len(line)
        if len(found) == FOREIGN_LINES or size > FOREIGN_BYTES:
            break
        found.append(text)
    return tuple(found)
