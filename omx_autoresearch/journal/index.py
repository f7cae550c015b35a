"""An index of a journal's records, in a SQLite file that may be deleted at any time.

The first lookup catches it up; a stop never needs it. It is believed only while the journal has the same inode and
still holds the last covered record at its place (whose digest binds all before it); otherwise it is built anew. It
only says where to look: each record is read from the journal and compared. Where there can be no index (read-only
folder, no room, too many processes at once), the journal is read through instead.
"""

from __future__ import annotations

import os

from omx_autoresearch.journal.reader import (
    GENESIS,
    Entry,
    Fault,
    Head,
    JournalReader,
    broken,
    genesis,
    scan,
    stands,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3


FORMAT = 2
BATCH_ENTRIES = 20_000
BUSY_SECONDS = 2.0
_ATTEMPTS = 5
# SQLITE_ERROR (another schema), SQLITE_CORRUPT, SQLITE_NOTADB: the file is of no use; other errors pass.
_USELESS = frozenset((1, 11, 26))
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS place (seq INTEGER PRIMARY KEY, offset INTEGER NOT NULL, length INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS name (id TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS listed (list TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (list, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS covered (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL,
    digest TEXT NOT NULL, size_bytes INTEGER NOT NULL, inode INTEGER NOT NULL);
PRAGMA user_version = {FORMAT};
COMMIT;
"""
_COVERED = "SELECT seq, digest, size_bytes, inode FROM covered"
_FIND = "SELECT offset, length FROM name JOIN place USING (seq) WHERE id = ?"
_NEWEST = (
    "SELECT offset, length FROM listed JOIN place USING (seq) WHERE list = ? AND seq < ? "
    "ORDER BY seq DESC LIMIT ?"
)
_BEYOND = 2**62


class Index:
    """The index of one journal; the connection is kept, so an object belongs to one thread and one process.

    Args:
        path: of the SQLite file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None

    def find_all(self, journal: JournalReader, names: list[str]) -> dict[str, Entry]:
        """Return the first record of each of these names that has one; the index is caught up once for all.

        Raises:
            JournalBroken: a line that is not covered yet is broken.
        """
        import sqlite3

        try:
            self.catch_up(journal)
            connection = self._open()
            rows = [(name, connection.execute(_FIND, (name,)).fetchone()) for name in names]
            entries = {name: journal.entry_at(*row) for name, row in rows if row is not None}
            if all(entry is not None and name in names_of(entry) for name, entry in entries.items()):
                return {name: entry for name, entry in entries.items() if entry is not None}
            self._clear(self._row())
        except (sqlite3.Error, UnicodeEncodeError):
            self.close()
        wanted, found = set(names), dict[str, Entry]()
        for entry in journal.read():
            for name in wanted.intersection(names_of(entry)):
                found.setdefault(name, entry)
        return found

    def newest(self, journal: JournalReader, listed: str, *, limit: int, before: int = 0) -> list[Entry]:
        """Return the newest records of a list, newest first, in a time that depends on ``limit`` alone.

        Args:
            journal: the journal that this index is of.
            listed: ``accepted`` (findings), ``claims`` (findings, notes and hand edits) or ``iterations``.
            limit: at most this many.
            before: only those with a smaller ``seq``; 0 for all.

        Raises:
            JournalBroken: a line that is not covered yet is broken.
        """
        import sqlite3

        bounds = (listed, before or _BEYOND, limit)
        try:
            for _ in range(2):
                self.catch_up(journal)
                rows = self._open().execute(_NEWEST, bounds).fetchall()
                entries = [journal.entry_at(*row) for row in rows]
                found = [entry for entry in entries if entry and list_of(entry) == listed]
                if len(found) == len(rows):
                    return found
                self._clear(self._row())
        except (sqlite3.Error, OverflowError):
            self.close()
        last = before or _BEYOND
        kept = [entry for entry in journal.read() if entry.seq < last and list_of(entry) == listed]
        return kept[: -limit - 1 : -1]

    def catch_up(self, journal: JournalReader) -> int:
        """Cover what the journal has gained, or all of it where what is covered cannot be trusted.

        Returns:
            how many records were added.

        Raises:
            JournalBroken: a line that is not covered yet is broken; what stands before it is covered.
            sqlite3.Error: there can be no index here now.
        """
        import sqlite3

        added = 0
        for _ in range(_ATTEMPTS):
            try:
                with journal.opened() as descriptor:
                    more, is_settled = self._advance(journal, descriptor)
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF not in _USELESS:
                    raise
                self._discard()
                continue
            added += more
            if is_settled:
                return added
        raise sqlite3.OperationalError("the index changes too often")

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _row(self) -> Head | None:
        row = self._open().execute(_COVERED).fetchone()
        return Head(*row) if row else None

    def _believed(self, journal: JournalReader, descriptor: int) -> Head:
        """The covered part that still stands in the journal; otherwise nothing, and the index is emptied."""
        row = self._row()
        if row and stands(descriptor, journal.path, row):
            return row
        if row:
            self._clear(row)
        return genesis(descriptor)

    def _advance(self, journal: JournalReader, descriptor: int) -> tuple[int, bool]:
        """Cover what comes after; the flag is False where another process changed the index meanwhile."""
        covered = self._believed(journal, descriptor)
        added, batch = 0, list[Entry]()
        fault: Fault | None = None
        for result in scan(descriptor, covered):
            if isinstance(result, Fault):
                fault = result
                break
            batch.append(result)
            if len(batch) == BATCH_ENTRIES:
                after = self._add(batch, covered)
                if after is None:
                    return added, False
                covered, added, batch = after, added + len(batch), []
        is_settled = self._add(batch, covered) is not None
        if fault is not None:
            raise broken(journal.path, fault.line, fault.cause)
        return added + len(batch), is_settled

    def _add(self, batch: list[Entry], covered: Head) -> Head | None:
        """Cover a batch that continues ``covered``; None where that is no longer what is covered."""
        if not batch:
            return covered
        connection = self._open()
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            row = self._row()
            if (row.digest if row else GENESIS) != covered.digest:
                return None
            places = ((entry.seq, entry.offset, entry.length) for entry in batch)
            connection.executemany("INSERT OR REPLACE INTO place VALUES (?, ?, ?)", places)
            names = ((name, entry.seq) for entry in batch for name in names_of(entry))
            connection.executemany("INSERT OR IGNORE INTO name VALUES (?, ?)", names)
            listed = ((list_of(entry), entry.seq) for entry in batch)
            connection.executemany(
                "INSERT OR IGNORE INTO listed VALUES (?, ?)", (row for row in listed if row[0])
            )
            last = batch[-1]
            head = Head(last.seq, last.digest, last.end, covered.inode)
            values = (head.seq, head.digest, head.size_bytes, head.inode)
            connection.execute("INSERT OR REPLACE INTO covered VALUES (1, ?, ?, ?, ?)", values)
        return head

    def _clear(self, judged: Head | None) -> None:
        """Empty the index, if it is still the one that was judged."""
        connection = self._open()
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if self._row() == judged:
                for table in ("place", "name", "listed", "covered"):
                    connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own table names

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _connect(self.path)
        return self._connection

    def _discard(self) -> None:
        """Remove a file that is no index; one that another process uses well is never removed, only emptied."""
        self.close()
        _remove(self.path)


def names_of(entry: Entry) -> tuple[str, ...]:
    """The names under which a record is found: its own ``id``, and those of the finding or claim in it."""
    data = entry.data
    names = [data.get("id")]
    if entry.kind == "finding_recorded":
        finding = data.get("finding")
        if isinstance(finding, dict):
            names.append(f"finding:{finding.get('id')}")
            evidence = finding.get("evidence")
            if isinstance(evidence, dict):
                names.append(f"evidence:{evidence.get('digest')}")
    elif entry.kind == "claim_recorded":
        names.append(f"claim:{data.get('claim_id')}")
    return tuple(name for name in names if isinstance(name, str) and name)


def list_of(entry: Entry) -> str:
    """The list that a record belongs to: ``accepted``, ``claims``, ``iterations``; empty for none."""
    if entry.kind == "claim_recorded":
        return "claims"
    if entry.kind == "finding_recorded":
        finding = entry.data.get("finding")
        is_accepted = isinstance(finding, dict) and isinstance(finding.get("evidence"), dict)
        return "accepted" if is_accepted else "claims"
    stop = entry.data.get("stop")
    return "iterations" if isinstance(stop, dict) and stop.get("is_iteration") is True else ""


def _connect(path: str) -> sqlite3.Connection:
    import sqlite3

    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            return _found(connection, path)
        if version == FORMAT:
            return _tuned(connection, connection.execute("PRAGMA journal_mode").fetchone()[0])
    except BaseException:
        connection.close()
        raise
    connection.close()  # of another release: built anew
    _remove(path)
    return _connect(path)


def _found(connection: sqlite3.Connection, path: str) -> sqlite3.Connection:
    """Make the tables. WAL says yes on some network file systems and then fails at the first write: so write."""
    import sqlite3

    try:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        _tuned(connection, mode).executescript(_SCHEMA)
        return connection
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_READONLY,
            sqlite3.SQLITE_FULL,
        ):
            raise
    connection.close()
    _remove(path)
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        _tuned(connection, "truncate").executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def _tuned(connection: sqlite3.Connection, mode: str) -> sqlite3.Connection:
    if mode != "wal":
        connection.execute("PRAGMA journal_mode = TRUNCATE")
    # After a power cut the index may be behind, which is fixed, but never damaged: in WAL this costs no sync a commit.
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _remove(path: str) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        try:
            os.unlink(path + suffix)
        except OSError:
            continue
