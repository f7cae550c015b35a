"""The journal of a mission or an experiment: the append-only file that is the truth.

Only ``missions/store`` and ``experiments/store`` write one.

Theory of operation. Everything that a mission or an experiment is follows from the lines of one file, in order; state,
index, snapshots and project files are made from them and may be deleted. So the file may never lose a line that a
caller was told of, and may never show a line that was not written as a whole.

- *One writer.* An append holds the lock of a file beside the journal. The kernel drops it when its holder dies, and
  the journal itself can be replaced under it.
- *One write, one fsync.* A batch is one ``write`` to a descriptor in append mode, then one ``fsync``; only then does
  the call return, and only what returned was acknowledged. Where either fails, the file is cut back to where it was.
- *A torn tail is no record.* A process that is killed inside the write may leave the first lines of its batch and
  half of another. Readers take only lines that end in a newline. The next writer completes a last line that lacks
  nothing but its newline, and moves any other rest to ``torn/``, where a person finds it. So order a batch in such a
  way that each of its beginnings is a legal history.
- *A chain.* Each line carries its number and the digest of the line before (:mod:`.reader`). A line that was edited,
  removed or put in by hand breaks the chain at its place, and a reader that remembers a head notices an older file in
  the place of a newer one.
- *Optimistic decisions.* A decision may be made without the lock and recorded with the head that it was made on;
  another record since then is an error, and the caller decides anew.

What matters only as long as a process lives may skip its fsync: it survives every kill, and the next durable batch
makes it durable too.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.errors import StateUntrusted, StorageFailed
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.journal import reader
from omx_autoresearch.journal.reader import (
    GENESIS,
    Entry,
    Head,
    JournalReader,
    OpenJournal,
    head_of,
    missing,
    open_journal,
    read_records,
)
from omx_autoresearch.journal.safe_files import (
    LOCK_WAIT_SECONDS,
    Lock,
    ensure_folder,
    read_at,
    replace_file,
    storage_failed,
    sync_folder,
    write_all,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from omx_autoresearch.journal.index import Index
    from omx_autoresearch.journal.reader import JournalFolder


@dataclass(frozen=True, slots=True)
class TornTail:
    """A torn last line that this writer set aside; the caller records ``torn_tail_set_aside``.

    Attributes:
        line: the number that the line would have had.
        size_bytes: how much of it there was.
        path: where the bytes are kept.
    """

    line: int
    size_bytes: int
    path: str


class Tail:
    """The end of a journal while its lock is held: no other writer can append until the ``with`` ends.

    Attributes:
        head: the newest record; moves with every append.
        torn: what was set aside on entry, or None.
        is_synced: every record is durable, as far as this writer knows.
    """

    __slots__ = ("_depth", "_descriptor", "_journal", "_lock", "head", "is_synced", "torn")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._depth = 0
        self._descriptor = -1
        self._lock: Lock | None = None
        self.head = Head(0, GENESIS, 0, 0)
        self.torn: TornTail | None = None
        self.is_synced = False

    def __enter__(self) -> Tail:
        if self._depth == 0:
            self._acquire()
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._let_go()

    def append(
        self, drafts: Sequence[tuple[str, dict[str, Any]]], *, ts: str, is_durable: bool = True
    ) -> tuple[Entry, ...]:
        """Record a batch durably; see :meth:`Journal.append`.

        With ``is_durable=False`` it survives every kill, but perhaps no power cut, until the next durable batch, which
        makes all before it durable as well: for what matters only as long as a process lives.
        """
        head = self.head
        block: list[bytes] = []
        entries: list[Entry] = []
        for draft in drafts:
            line, entry = reader.make_line(draft, ts, head)
            block += (line, b"\n")
            entries.append(entry)
            head = Head(entry.seq, entry.digest, entry.end, head.inode)
        if entries:
            self._write(b"".join(block), is_durable=is_durable)
            self.head = head
        return tuple(entries)

    def read_from(self, offset: int = 0, *, expect: Head | None = None) -> Iterator[Entry]:
        """Yield the records from ``offset`` on; see :meth:`Journal.read`."""
        return read_records(self._descriptor, self._journal.path, offset, expect)

    @property
    def source(self) -> OpenJournal:
        """The open journal as it stands now."""
        return OpenJournal(self._descriptor, self._journal.path, self.head)

    def sync(self) -> None:
        """Make every record durable, those of :meth:`append` with ``is_durable=False`` too; nothing where all are.

        Raises:
            StorageFailed: the system refused.
        """
        if not self.is_synced:
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                raise storage_failed("sync", self._journal.path, error) from error
            self.is_synced = True

    def _acquire(self) -> None:
        journal = self._journal
        held = Lock(journal.lock_path, wait_seconds=journal.lock_wait_seconds)
        try:
            held.__enter__()
        except StorageFailed:
            if not journal.exists():
                raise missing(journal.path) from None
            raise
        self._lock = held
        try:
            self._descriptor = open_journal(journal.path, os.O_RDWR | os.O_APPEND)
            self._find_head()
            journal.tail = self
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        self._journal.tail, self._journal.known = None, self.head
        descriptor, self._descriptor = self._descriptor, -1
        held, self._lock = self._lock, None
        if descriptor >= 0:
            os.close(descriptor)
        if held is not None:
            held.__exit__(None, None, None)

    def _find_head(self) -> None:
        self.torn, self.is_synced = None, False
        try:
            self.head, size_bytes = head_of(self._descriptor, self._journal.path, self._journal.known)
            if size_bytes > self.head.size_bytes:
                self._mend(read_at(self._descriptor, self.head.size_bytes, size_bytes - self.head.size_bytes))
        except OSError as error:
            raise storage_failed("read", self._journal.path, error) from error

    def _mend(self, rest: bytes) -> None:
        """Keep a whole last record that only lacks its newline; set anything else aside."""
        try:
            entry = reader.parse_line(rest, self.head.size_bytes)
        except ValueError:
            entry = None
        if entry and entry.seq == self.head.seq + 1 and entry.prev == self.head.digest:
            self._write(b"\n")
            self.head = Head(entry.seq, entry.digest, entry.end, self.head.inode)
            return
        line = reader.count_lines(self._descriptor, self.head.size_bytes) + 1
        folder = self._journal.folder
        path = os.path.join(folder.torn_path, f"line-{line}-{reader.digest_of(rest)[:16]}")
        ensure_folder(folder.torn_path)
        replace_file(path, rest)
        os.ftruncate(self._descriptor, self.head.size_bytes)
        os.fsync(self._descriptor)
        self.torn = TornTail(line, len(rest), path)

    def _write(self, block: bytes, *, is_durable: bool = True) -> None:
        try:
            write_all(self._descriptor, block)
            if is_durable:
                os.fsync(self._descriptor)
            self.is_synced = is_durable
        except BaseException as error:
            self._roll_back()
            if isinstance(error, OSError):
                raise storage_failed("append to", self._journal.path, error) from error
            raise

    def _roll_back(self) -> None:
        try:
            os.ftruncate(self._descriptor, self.head.size_bytes)
            os.fsync(self._descriptor)
        except OSError:
            return  # what remains is a torn tail, or records that no caller was told of: the next writer sees to it


class Journal(JournalReader):
    """One journal, to write. An object belongs to one thread; the lock keeps threads and processes apart.

    Args:
        folder: of the mission or experiment.
        lock_wait_seconds: how long an append waits for another writer.
    """

    def __init__(self, folder: JournalFolder, *, lock_wait_seconds: float = LOCK_WAIT_SECONDS) -> None:
        super().__init__(folder)
        self.lock_path = folder.lock_path
        self.lock_wait_seconds = lock_wait_seconds
        self.tail: Tail | None = None
        self.known: Head | None = None
        self._index: Index | None = None

    def create(self) -> None:
        """Make the empty journal, and its folder where missing, durably.

        Said outright, never by an append: a journal that vanished must not come back as an empty one.

        Raises:
            StorageFailed: it exists already (EEXIST), or the system refused.
        """
        ensure_folder(self.folder.root_path)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self.path, flags, 0o600)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            sync_folder(self.folder.root_path)
        except OSError as error:
            raise storage_failed("create", self.path, error) from error

    def append(
        self, drafts: Sequence[tuple[str, dict[str, Any]]], *, ts: str, expected: Head | None = None
    ) -> tuple[Entry, ...]:
        """Record a batch of (kind, data): one lock, one write, one fsync. Durable when it returns.

        Args:
            drafts: what to record, in order.
            ts: the time of all of them, ISO 8601 in UTC.
            expected: the head that the decision was made on; records that came since are an error.

        Returns:
            the records as every reader will see them (lone surrogates have become U+FFFD).

        Raises:
            StorageFailed: the system refused or the lock is held; nothing of the batch remains.
            StateUntrusted: the head is not the expected one.
            JournalBroken: the journal is missing, or its last line is no record.
            ValueError: data that JSON cannot hold; nothing is written.
        """
        with self.locked() as tail:
            if expected and (tail.head.seq, tail.head.digest) != (expected.seq, expected.digest):
                raise StateUntrusted(
                    f"{self.path} now ends at record {tail.head.seq}; the decision was made on record {expected.seq}.",
                    next_step="run the same command again",
                )
            return tail.append(drafts, ts=ts)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def locked(self) -> Tail:
        """Return the tail, to read, decide and append under one lock: ``with journal.locked() as tail``.

        Inside it, :meth:`append` and a second :meth:`locked` use the same lock. Raises on entry what :meth:`append`
        raises. No child may run while it is held.
        """
        return self.tail or Tail(self)

    def by_id(self, record_id: str) -> Entry | None:
        """Return the first record of this name, None where there is none.

        A name is the ``id`` of its data, or ``finding:ID``, ``evidence:DIGEST``, ``claim:ID``.
        """
        return self.by_ids([record_id]).get(record_id)

    def by_ids(self, names: list[str]) -> dict[str, Entry]:
        """Return the first record of each of these names that has one; see :meth:`by_id`."""
        return self.index.find_all(self, names)

    def newest(self, listed: str, *, limit: int, before: int = 0) -> list[Entry]:
        """Return the newest records of a list, newest first; see :meth:`Index.newest`."""
        return self.index.newest(self, listed, limit=limit, before=before)

    @property
    def index(self) -> Index:
        """The journal's index, opened at first use (it imports sqlite3)."""
        if self._index is None:
            from omx_autoresearch.journal.index import Index

            self._index = Index(self.folder.index_path)
        return self._index

    def close(self) -> None:
        """Close the index where one was opened; the journal itself is never kept open."""
        if self._index is not None:
            self._index.close()
            self._index = None
