"""The lines of a journal: how a record becomes a line, and how lines are read back and proven to chain.

A line is ``{"seq","ts","kind","data","prev"}`` and a newline. ``seq`` counts from 1, so it is the line's number too;
``prev`` is the sha256 of the line before without its newline. Only lines that end in a newline count.
Everything here reads from an open descriptor; :mod:`omx_autoresearch.storage.journal` is what writes.
"""

from __future__ import annotations

import os

from omx_autoresearch.core.digests import sha256
from omx_autoresearch.core.values import dataclass
from omx_autoresearch.storage import strictjson
from omx_autoresearch.storage.atomic import read_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

GENESIS = "0" * 64
"""``prev`` of the first line."""
CHUNK_BYTES = 256 * 1024
BLOCK_BYTES = 4 * 1024
_KEYS = frozenset(("seq", "ts", "kind", "data", "prev"))


@dataclass(frozen=True, slots=True)
class Entry:
    """One record as it stands in a journal.

    Attributes:
        seq: number of the record and of its line, from 1.
        ts: when it was recorded, ISO 8601 in UTC.
        kind: the record's kind, past tense (``stop_refused``).
        data: the record's fields.
        prev: digest of the line before; :data:`GENESIS` for the first.
        digest: sha256 of this line without its newline, hexadecimal.
        offset: where the line begins, in bytes.
        length: bytes of the line without its newline.
    """

    seq: int
    ts: str
    kind: str
    data: dict[str, Any]
    prev: str
    digest: str
    offset: int
    length: int

    @property
    def end(self) -> int:
        """Where the next line begins, in bytes."""
        return self.offset + self.length + 1


@dataclass(frozen=True, slots=True)
class Head:
    """How far a journal reaches: its last record. An empty journal has ``seq`` 0 and digest :data:`GENESIS`.

    Attributes:
        seq: number of the last record.
        digest: sha256 of the last line.
        size_bytes: where the last line ends; a torn tail lies beyond it.
        inode: of the file; another one means that the journal was replaced.
    """

    seq: int
    digest: str
    size_bytes: int
    inode: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A line that cannot be believed.

    Attributes:
        line: its number, from 1.
        cause: what is wrong with it, one clause.
        offset: where it begins, in bytes.
    """

    line: int
    cause: str
    offset: int


def make_line(draft: tuple[str, dict[str, Any]], ts: str, after: Head) -> tuple[bytes, Entry]:
    """Return the line of a record without its newline, and the record as every reader will see it.

    Raises:
        ValueError: no kind or time, or data that JSON cannot hold (see :func:`strictjson.encode`).
        TypeError: data of a type that JSON has no form for.
    """
    kind, data = draft
    if not (kind and ts and isinstance(data, dict)):
        raise ValueError("a record needs a kind, a time and a dict of data")
    seq, prev = after.seq + 1, after.digest
    line = strictjson.encode_unchecked({"seq": seq, "ts": ts, "kind": kind, "data": data, "prev": prev})
    value = strictjson.decode(line)  # finds keys that became equal
    digest, offset = digest_of(line), after.size_bytes
    return line, Entry(seq, value["ts"], value["kind"], value["data"], prev, digest, offset, len(line))


def parse_line(line: bytes, offset: int) -> Entry:
    """Return the record of a line.

    Raises:
        ValueError: it is no record; the message is the cause.
    """
    value = strictjson.decode(line)
    if not isinstance(value, dict):
        raise ValueError(f"it is a JSON {type(value).__name__}, not an object")  # noqa: TRY004 - content, no type
    if value.keys() != _KEYS:
        raise ValueError(f"its keys are {sorted(value)}, not seq, ts, kind, data, prev")
    seq, ts, kind, data, prev = value["seq"], value["ts"], value["kind"], value["data"], value["prev"]
    if type(seq) is not int or not isinstance(data, dict):
        raise ValueError("its seq is no integer, or its data no object")
    if not (isinstance(ts, str) and isinstance(kind, str) and isinstance(prev, str)):
        raise ValueError("its ts, kind or prev is no text")  # noqa: TRY004 - content, no type
    return Entry(seq, ts, kind, data, prev, digest_of(line), offset, len(line))


def digest_of(line: bytes) -> str:
    """Return the sha256 of a line without its newline, hexadecimal."""
    return sha256(line).hexdigest()


def iter_lines(descriptor: int, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of every complete line from ``offset`` on, in memory of one chunk and one line."""
    start = position = offset
    pending: list[bytes] = []
    while chunk := os.pread(descriptor, CHUNK_BYTES, position):
        position += len(chunk)
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            if pending:
                line = b"".join((*pending, line))  # noqa: PLW2901 - the line, with what came before the chunk
                pending = []
            yield start, line
            start += len(line) + 1
        if rest:
            pending.append(rest)


def scan(descriptor: int, after: Head) -> Iterator[Entry | Fault]:
    """Yield every line after a head, as a record or as the fault that it is; the chain is verified on the way.

    Lines after a fault are still yielded: what can be read is never hidden. The chain is taken up again at the next
    good line.
    """
    chain = _Chain(after)
    offset, read_again = after.size_bytes, -1
    while True:
        for start, line in iter_lines(descriptor, offset):
            result = chain.check(line, start)
            if isinstance(result, Fault) and read_again != start:
                # A writer may have set a torn tail aside between two reads of ours: look again before judging.
                offset, read_again = start, start
                break
            chain.follow(result)
            yield result
        else:
            return


class _Chain:
    """What the next line must continue."""

    __slots__ = ("digest", "line", "lost", "seq")

    def __init__(self, head: Head) -> None:
        self.seq = head.seq
        self.line = head.seq
        self.digest = head.digest
        self.lost = False

    def check(self, line: bytes, offset: int) -> Entry | Fault:
        number = self.line + 1
        try:
            entry = parse_line(line, offset)
        except ValueError as error:
            return Fault(number, str(error), offset)
        if self.lost:
            return entry
        if entry.seq != self.seq + 1:
            return Fault(number, f"its seq is {entry.seq}, not {self.seq + 1}", offset)
        if entry.prev != self.digest:
            return Fault(
                number, "its prev is not the digest of the line before: one of the two was changed", offset
            )
        return entry

    def follow(self, result: Entry | Fault) -> None:
        self.line += 1
        self.lost = isinstance(result, Fault)
        if isinstance(result, Entry):
            self.seq, self.digest = result.seq, result.digest


def last_line(descriptor: int, size_bytes: int) -> tuple[int, int, bytes]:
    """Return start, end (past the newline) and bytes of the last complete line; end is 0 where there is none."""
    begin = max(0, size_bytes - BLOCK_BYTES)
    block = read_at(descriptor, begin, size_bytes - begin)
    stop = block.rfind(b"\n")
    start = block.rfind(b"\n", 0, stop) + 1 if stop >= 0 else 0
    if stop >= 0 and (start > 0 or begin == 0):
        return begin + start, begin + stop + 1, block[start:stop]  # nearly always: one read
    end = complete_size(descriptor, size_bytes)
    if end == 0:
        return 0, 0, b""
    start, line = line_before(descriptor, end)
    return start, end, line


def complete_size(descriptor: int, size_bytes: int) -> int:
    """Return where the last complete line within ``size_bytes`` ends; 0 where there is none."""
    return _find_newline(descriptor, size_bytes) + 1


def line_before(descriptor: int, end: int) -> tuple[int, bytes]:
    """Return offset and bytes of the line whose newline is the byte before ``end``."""
    start = _find_newline(descriptor, end - 1) + 1
    return start, read_at(descriptor, start, end - 1 - start)


def _find_newline(descriptor: int, end: int) -> int:
    """Offset of the last newline before ``end``, or -1; blocks grow, so that a line of 50 MB costs what it is long."""
    size = BLOCK_BYTES
    while end > 0:
        begin = max(0, end - size)
        place = read_at(descriptor, begin, end - begin).rfind(b"\n")
        if place >= 0:
            return begin + place
        end, size = begin, min(size * 4, 1024 * 1024)
    return -1


def last_lines(descriptor: int, end: int, count: int) -> list[tuple[int, bytes]]:
    """Return offset and bytes of the last ``count`` complete lines before ``end``, oldest first."""
    if count <= 0 or end <= 0:
        return []
    size = 8 * BLOCK_BYTES
    while True:
        begin = max(0, end - size)
        block = read_at(descriptor, begin, end - begin)
        if begin == 0 or block.count(b"\n") > count:
            break
        size *= 4
    lines = block.split(b"\n")[:-1]
    offset = end - sum(len(line) + 1 for line in lines[-count:])
    found = []
    for line in lines[-count:]:
        found.append((offset, line))
        offset += len(line) + 1
    return found


def count_lines(descriptor: int, end: int) -> int:
    """Return how many newlines stand before ``end``: the number of the line before it, to name it in an error."""
    count = position = 0
    while position < end and (chunk := os.pread(descriptor, min(CHUNK_BYTES, end - position), position)):
        count += chunk.count(b"\n")
        position += len(chunk)
    return count
