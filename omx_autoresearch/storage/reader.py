"""A journal, of a mission or an experiment, read: streaming, from the end, or checked whole. Nothing here writes.

Readers take no lock. A torn last line (no newline) does not count; a broken line in the middle is an error that names
file and line, never a shorter history.
"""

from __future__ import annotations

import os

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import JournalBroken
from omx_autoresearch.storage import lines
from omx_autoresearch.storage.atomic import read_at, storage_failed
from omx_autoresearch.storage.lines import GENESIS, Entry, Fault, Head

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Protocol

    class JournalFolder(Protocol):
        """A folder that holds a journal: a mission's or an experiment's."""

        @property
        def root_path(self) -> str: ...  # noqa: D102
        @property
        def journal_path(self) -> str: ...  # noqa: D102
        @property
        def lock_path(self) -> str: ...  # noqa: D102
        @property
        def torn_path(self) -> str: ...  # noqa: D102
        @property
        def index_path(self) -> str: ...  # noqa: D102


EVENTS_NAME = "events.jsonl"
"""The journal of an experiment; a mission's is ``journal.jsonl``."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What a full check of a journal found.

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
    """A descriptor for the length of a ``with``; what the system refuses meanwhile is told as StorageFailed."""

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
    """An open journal, for who asks whether a head still stands in it and what comes after.

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
        return _whole(self._path, lines.scan(self._descriptor, head or genesis(self._descriptor)))

    def inode(self) -> int:
        """Of the file."""
        return os.fstat(self._descriptor).st_ino


class JournalReader:
    """One journal, for those who only read it.

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

    def scan(self) -> Iterator[Entry | Fault]:
        """Yield every complete line as the record or the fault that it is: what can be read is never hidden."""
        with self.opened() as descriptor:
            yield from lines.scan(descriptor, genesis(descriptor))

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
        for result in lines.scan(descriptor, head):
            if isinstance(result, Fault):
                first = first or result
            else:
                entries += 1
                head = Head(result.seq, result.digest, result.end, head.inode)
        size_bytes = os.fstat(descriptor).st_size
        torn_bytes = size_bytes - lines.complete_size(descriptor, size_bytes)
        line, cause = (first.line, first.cause) if first else (0, "")
        return Verification(first is None, self.path, line, cause, entries, torn_bytes, head)

    def last(self, count: int) -> list[Entry]:
        """Return the last ``count`` records, oldest first, by seeking from the end.

        Raises:
            JournalBroken: one of these lines is no record or does not continue the one before.
            StorageFailed: the system refused.
        """
        found: list[Entry] = []
        with self.opened() as descriptor:
            end = lines.complete_size(descriptor, os.fstat(descriptor).st_size)
            for offset, line in lines.last_lines(descriptor, end, count):
                entry = parse_at(descriptor, self.path, line, offset)
                if found and (entry.seq, entry.prev) != (found[-1].seq + 1, found[-1].digest):
                    number = lines.count_lines(descriptor, offset) + 1
                    raise broken(self.path, number, "it does not continue the line before")
                found.append(entry)
        return found

    def entry_at(self, offset: int, length: int) -> Entry | None:
        """Return the record that stands exactly there, None where no line or no record does."""
        with self.opened() as descriptor:
            data = read_at(descriptor, offset, length + 1)
        if len(data) != length + 1 or data.find(b"\n") != length:
            return None
        try:
            return lines.parse_line(data[:-1], offset)
        except ValueError:
            return None


def open_journal(path: str, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of a journal; never makes one.

    Raises:
        JournalBroken: there is none.
        StorageFailed: the system refused.
    """
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except FileNotFoundError:
        raise missing(path) from None
    except OSError as error:
        raise storage_failed("open", path, error) from error


def missing(path: str) -> JournalBroken:
    """Return the error for a journal that is not there; it never passes for an empty one."""
    return JournalBroken(f"{path} is missing.", next_step=_cure(path))


def broken(path: str, line: int, cause: str) -> JournalBroken:
    """Return the error for a line that cannot be believed."""
    return JournalBroken(f"{path} line {line} cannot be believed: {cause}.", next_step=_cure(path))


def _cure(path: str) -> str:
    """What the owner does in whose folder a journal stands: no rule could tell what was in a line."""
    task_id = os.path.basename(os.path.dirname(path))
    if os.path.basename(path) == EVENTS_NAME:
        return f"put the file back from a copy, then: omx-autoresearch experiment status {task_id}"
    return f"put the file back from a copy, then: omx-autoresearch repair {task_id}"


def genesis(descriptor: int) -> Head:
    """Return the head before the first record."""
    return Head(0, GENESIS, 0, os.fstat(descriptor).st_ino)


def head_of(descriptor: int, path: str, known: Head | None = None) -> tuple[Head, int]:
    """Return the head of an open journal and the size of the file, a torn tail included.

    Where the last line has the digest of the ``known`` head, it need not be parsed again.
    """
    status = os.fstat(descriptor)
    start, end, line = lines.last_line(descriptor, status.st_size)
    if end == 0:
        return Head(0, GENESIS, 0, status.st_ino), status.st_size
    if (
        known
        and (known.size_bytes, known.inode) == (end, status.st_ino)
        and known.digest == lines.digest_of(line)
    ):
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
    start, end, line_bytes = lines.last_line(descriptor, offset) if status.st_size >= offset else (0, 0, b"")
    if expect is not None and end == offset and lines.digest_of(line_bytes) == expect.digest:
        return Head(expect.seq, expect.digest, offset, status.st_ino)
    if end != offset:
        line = expect.seq if expect else lines.count_lines(descriptor, status.st_size) + 1
        raise broken(
            path, line, f"no line ends at byte {offset}, where one did: the journal was cut or rewritten"
        )
    entry = parse_at(descriptor, path, line_bytes, start)
    if expect is not None and (entry.seq, entry.digest) != (expect.seq, expect.digest):
        raise broken(path, expect.seq, "it is not the record that stood there: the journal was rewritten")
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
        return lines.parse_line(line, offset)
    except ValueError as error:
        raise broken(path, lines.count_lines(descriptor, offset) + 1, str(error)) from None


def read_records(descriptor: int, path: str, from_offset: int, expect: Head | None) -> Iterator[Entry]:
    """Yield the records of an open journal; see :meth:`JournalReader.read`."""
    return _whole(path, lines.scan(descriptor, head_at(descriptor, path, from_offset, expect)))


def _whole(path: str, results: Iterator[Entry | Fault]) -> Iterator[Entry]:
    for result in results:
        if isinstance(result, Fault):
            raise broken(path, result.line, result.cause)
        yield result
