"""The lines of a journal: how a record becomes a line, and how lines are read back and proven to chain.

A line is ``{"seq","ts","kind","data","prev"}`` and a newline. ``seq`` counts from 1, so it is the line's number too;
``prev`` is the sha256 of the line before without its newline. Only lines that end in a newline count.
Everything here reads from an open descriptor; :mod:`omx_autoresearch.journal.log` writes.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import JournalBroken
from omx_autoresearch.foundation.records import dataclass, sha256
from omx_autoresearch.journal.safe_files import open_regular, read_at, storage_failed

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
    """A line that cannot be trusted.

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
    line = json_codec.encode_unchecked({"seq": seq, "ts": ts, "kind": kind, "data": data, "prev": prev})
    value = json_codec.decode(line)  # finds keys that became equal
    digest, offset = digest_of(line), after.size_bytes
    return line, Entry(seq, value["ts"], value["kind"], value["data"], prev, digest, offset, len(line))


def parse_line(line: bytes, offset: int) -> Entry:
    """Return the record of a line.

    Raises:
        ValueError: it is no record; the message is the cause.
    """
    value = json_codec.decode(line)
    if not isinstance(value, dict):
        raise ValueError(f"it is a JSON {type(value).__name__}, not an object")  # noqa: TRY004 - content, no type
    if value.keys() != _KEYS:
        raise ValueError(f"its keys are {sorted(value)}, not seq, ts, kind, data, prev")
    seq, ts, kind, data, prev = value["seq"], value["ts"], value["kind"], value["data"], value["prev"]
    if type(seq) is not int or not isinstance(data, dict):
        raise ValueError("its seq is not an integer, or its data is not an object")
    if not (isinstance(ts, str) and isinstance(kind, str) and isinstance(prev, str)):
        raise ValueError("its ts, kind or prev is not text")  # noqa: TRY004 - content, no type
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
                # A writer may have set a torn tail aside between two of our reads: look again before judging.
                offset, read_again = start, start
                break
            chain.follow(result)
            yield result
        else:
            return


class _Chain:
    """The line that the next one must continue."""

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


def count_lines(descriptor: int, end: int) -> int:
    """Return how many newlines stand before ``end``: the number of the line before it, to name it in an error."""
    count = position = 0
    while position < end and (chunk := os.pread(descriptor, min(CHUNK_BYTES, end - position), position)):
        count += chunk.count(b"\n")
        position += len(chunk)
    return count


# --- A journal, of a mission or an experiment, read: streaming, or checked whole. Nothing here writes.
#
# Readers take no lock. A torn last line (no newline) does not count; a broken line in the middle is an error that names
# file and line, never a shorter history.

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Protocol

    class JournalFolder(Protocol):
        """A folder that holds a journal: a mission's or an experiment's."""

        root_path: str
        journal_path: str
        lock_path: str
        torn_path: str
        index_path: str


EVENTS_NAME = "events.jsonl"
"""The journal of an experiment; a mission's is ``journal.jsonl``."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a full check of a journal.

    Attributes:
        ok: every complete line is a record and continues the one before.
        file: the journal's path.
        line: number of the first faulty line, 0 where there is none.
        cause: what is wrong with it; empty where nothing is.
        entries: records that could be read, those after the fault too.
        torn_bytes: size of a torn last line; no fault, the next writer sets it aside.
        head: the last record that could be read.
    """

    ok: bool
    file: str
    line: int
    cause: str
    entries: int
    torn_bytes: int
    head: Head


class Opened:
    """A descriptor for the length of a ``with``; an OSError in it becomes StorageFailed."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> int:
        """Open; raises JournalBroken where there is no journal."""
        self._descriptor = open_journal(self._path)
        return self._descriptor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
        if isinstance(error, OSError):
            raise storage_failed("read", self._path, error) from error


class OpenJournal:
    """An open journal, to ask whether a head still stands in it and to read the records after it.

    Args:
        descriptor: of the journal.
        path: for errors.
        head: its last record, where the caller holds the lock and has seen it.
    """

    __slots__ = ("_descriptor", "_head", "_path")

    def __init__(self, descriptor: int, path: str, head: Head | None = None) -> None:
        self._descriptor = descriptor
        self._path = path
        self._head = head

    def stands(self, head: Head) -> bool:
        """True when this is the file of ``head`` and holds its record at its place."""
        return head == self._head or stands(self._descriptor, self._path, head)

    def after(self, head: Head | None) -> Iterator[Entry]:
        """Yield the records behind a head that stands (all of them where it is None), as :func:`read_records`."""
        if head is not None and head == self._head:
            return iter(())
        return _whole(self._path, scan(self._descriptor, head or genesis(self._descriptor)))

    def inode(self) -> int:
        """Of the file."""
        return os.fstat(self._descriptor).st_ino

    def stamp(self) -> bytes:
        """Inode, size and change time of the file: where they are as they were, nobody has written to it since."""
        status = os.fstat(self._descriptor)
        return b"%d %d %d" % (status.st_ino, status.st_size, status.st_ctime_ns)


class JournalReader:
    """One journal, to read.

    Args:
        folder: of the mission or experiment.
    """

    def __init__(self, folder: JournalFolder) -> None:
        self.folder = folder
        self.path = folder.journal_path

    def exists(self) -> bool:
        """True when there is a journal file."""
        return os.path.isfile(self.path)

    def head(self) -> Head:
        """Return the last complete record, in O(1).

        Raises:
            JournalBroken: the journal is missing, or its last complete line is no record.
            StorageFailed: the system refused.
        """
        with self.opened() as descriptor:
            return head_of(descriptor, self.path)[0]

    def opened(self) -> Opened:
        """Return a context manager over a descriptor of the journal; the system's errors in it become ours."""
        return Opened(self.path)

    def read(self, from_offset: int = 0, *, expect: Head | None = None) -> Iterator[Entry]:
        """Yield the records from ``from_offset`` on, verifying number and chain on the way; memory of one line.

        Args:
            from_offset: where a line begins: 0, ``Head.size_bytes`` or ``Entry.end``.
            expect: the head whose ``size_bytes`` is ``from_offset``; the record before must be that one.

        Raises:
            JournalBroken: at the first line that is no record or does not continue the one before, by file and line.
            StorageFailed: the system refused.
        """
        with self.opened() as descriptor:
            yield from read_records(descriptor, self.path, from_offset, expect)

    def verify(self) -> Verification:
        """Check every line and the whole chain. A broken or missing journal is a value here."""
        try:
            with self.opened() as descriptor:
                return self._verify(descriptor)
        except JournalBroken as error:
            return Verification(False, self.path, 0, error.message, 0, 0, Head(0, GENESIS, 0, 0))

    def _verify(self, descriptor: int) -> Verification:
        head = genesis(descriptor)
        first: Fault | None = None
        entries = 0
        for result in scan(descriptor, head):
            if isinstance(result, Fault):
                first = first or result
            else:
                entries += 1
                head = Head(result.seq, result.digest, result.end, head.inode)
        size_bytes = os.fstat(descriptor).st_size
        torn_bytes = size_bytes - complete_size(descriptor, size_bytes)
        line, cause = (first.line, first.cause) if first else (0, "")
        return Verification(first is None, self.path, line, cause, entries, torn_bytes, head)

    def entry_at(self, offset: int, length: int) -> Entry | None:
        """Return the record that stands exactly there, None where no line or no record does."""
        with self.opened() as descriptor:
            data = read_at(descriptor, offset, length + 1)
        if len(data) != length + 1 or data.find(b"\n") != length:
            return None
        try:
            return parse_line(data[:-1], offset)
        except ValueError:
            return None


def open_journal(path: str, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of a journal; never makes one.

    Raises:
        JournalBroken: there is none.
        StorageFailed: the system refused.
    """
    try:
        return open_regular(path, flags)
    except FileNotFoundError:
        raise missing(path) from None
    except OSError as error:
        raise storage_failed("open", path, error) from error


def missing(path: str) -> JournalBroken:
    """Return the error for a journal that is not there; it never passes for an empty one."""
    return JournalBroken(f"{path} is missing.", next_step=_cure(path))


def broken(path: str, line: int, cause: str) -> JournalBroken:
    """Return the error for a line that cannot be trusted."""
    return JournalBroken(f"{path} line {line} cannot be trusted: {cause}.", next_step=_cure(path))


def _cure(path: str) -> str:
    """The command after the file is restored from a copy: no rule could tell what was in a line."""
    task_id = os.path.basename(os.path.dirname(path))
    if os.path.basename(path) == EVENTS_NAME:
        return f"restore the file from a copy, then: omx-autoresearch experiment status {task_id}"
    return f"restore the file from a copy, then: omx-autoresearch repair {task_id}"


def genesis(descriptor: int) -> Head:
    """Return the head before the first record."""
    return Head(0, GENESIS, 0, os.fstat(descriptor).st_ino)


def head_of(descriptor: int, path: str, known: Head | None = None) -> tuple[Head, int]:
    """Return the head of an open journal and the size of the file, a torn tail included.

    Where the last line has the digest of the ``known`` head, it need not be parsed again.
    """
    status = os.fstat(descriptor)
    start, end, line = last_line(descriptor, status.st_size)
    if end == 0:
        return genesis(descriptor), status.st_size
    if known and (known.size_bytes, known.inode) == (end, status.st_ino) and known.digest == digest_of(line):
        return known, status.st_size
    entry = parse_at(descriptor, path, line, start)
    return Head(entry.seq, entry.digest, end, status.st_ino), status.st_size


def head_at(descriptor: int, path: str, offset: int, expect: Head | None) -> Head:
    """Return the head that ends at ``offset``; where ``expect`` is given, it must be that one.

    Raises:
        JournalBroken: no line ends there, it is no record, or not the expected one.
        ValueError: ``expect`` ends elsewhere.
    """
    if expect is not None and expect.size_bytes != offset:
        raise ValueError("expect is the head that ends at the offset")
    if offset == 0:
        return genesis(descriptor)
    status = os.fstat(descriptor)
    start, end, line_bytes = last_line(descriptor, offset) if status.st_size >= offset else (0, 0, b"")
    if expect is not None and end == offset and digest_of(line_bytes) == expect.digest:
        return Head(expect.seq, expect.digest, offset, status.st_ino)
    if end != offset:
        line = expect.seq if expect else count_lines(descriptor, status.st_size) + 1
        raise broken(path, line, f"no line ends at byte {offset} any more: the journal was cut or rewritten")
    entry = parse_at(descriptor, path, line_bytes, start)
    if expect is not None and (entry.seq, entry.digest) != (expect.seq, expect.digest):
        raise broken(path, expect.seq, "another record is in that place now: the journal was rewritten")
    return Head(entry.seq, entry.digest, offset, status.st_ino)


def stands(descriptor: int, path: str, head: Head) -> bool:
    """True when an open journal is the file of ``head`` and holds its record at its place."""
    if os.fstat(descriptor).st_ino != head.inode:
        return False
    try:
        return head_at(descriptor, path, head.size_bytes, head).seq == head.seq
    except JournalBroken:
        return False


def parse_at(descriptor: int, path: str, line: bytes, offset: int) -> Entry:
    """Return the record of a line, or name file and line in the error."""
    try:
        return parse_line(line, offset)
    except ValueError as error:
        raise broken(path, count_lines(descriptor, offset) + 1, str(error)) from None


def read_records(descriptor: int, path: str, from_offset: int, expect: Head | None) -> Iterator[Entry]:
    """Yield the records of an open journal; see :meth:`JournalReader.read`."""
    return _whole(path, scan(descriptor, head_at(descriptor, path, from_offset, expect)))


def _whole(path: str, results: Iterator[Entry | Fault]) -> Iterator[Entry]:
    for result in results:
        if isinstance(result, Fault):
            raise broken(path, result.line, result.cause)
        yield result
