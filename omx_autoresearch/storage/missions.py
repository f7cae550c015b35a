"""The mission store: the one module that writes a journal, folds it and keeps what is derived from it.

    load          snapshot + the records behind it; O(1) in the length of the journal
    transaction   lock, newest state, append, fold, snapshot, projections; nothing is decided on an older state

The snapshot (``status.json``) is believed only while it covers the journal's size and inode; everything else is
rebuilt from the journal.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress

from omx_autoresearch.core.mission import Mission
from omx_autoresearch.core.records import draft_of, fold
from omx_autoresearch.core.records.claims import TornTailSetAside
from omx_autoresearch.core.shape import NewerShape, ShapeError, from_plain, to_plain
from omx_autoresearch.errors import (
    AutoresearchError,
    JournalBroken,
    StateUntrusted,
    StepIllegal,
    StorageFailed,
    UsageError,
)
from omx_autoresearch.storage.atomic import (
    ensure_folder,
    load_json,
    replace_file,
    storage_failed,
    sync_folder,
)
from omx_autoresearch.storage.journal import Journal
from omx_autoresearch.storage.layout import ProjectFolder, is_safe_task_id
from omx_autoresearch.storage.lines import Head
from omx_autoresearch.storage.projections import Projections
from omx_autoresearch.storage.strictjson import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from omx_autoresearch.core.records import Record
    from omx_autoresearch.storage.journal import Tail
    from omx_autoresearch.storage.layout import MissionFolder, StateHome
    from omx_autoresearch.storage.lines import Entry
    from omx_autoresearch.storage.registry import ActiveSession

SNAPSHOT_FORMAT = 1


class Transaction:
    """One locked stretch of work on a mission.

    Attributes:
        mission: the state after everything that was recorded so far.
        ts: the time of every record of this transaction.
    """

    def __init__(self, folder: MissionFolder, tail: Tail, mission: Mission | None, ts: str) -> None:
        self._folder = folder
        self._tail = tail
        self._mission = mission
        self._new: list[Entry] = []
        self.ts = ts

    @property
    def mission(self) -> Mission:
        """The newest state; there is one from the first record on."""
        if self._mission is None:
            raise _holds_no_mission(self._folder)
        return self._mission

    def restore_projections(self) -> tuple[str, ...]:
        """Put edited and missing projections right; returns the edited ones. What was foreign is in the inbox.

        Raises:
            StorageFailed: the project's folder cannot be written.
            WorkspaceFault: a symbolic link stands in the way.
        """
        return _restored(self._folder, self.mission, self._tail)

    def record(self, *records: Record) -> Mission:
        """Append records durably, in one write, and fold them.

        Raises:
            StorageFailed: the disk refused; nothing of this call is recorded.
        """
        entries = self._tail.append([draft_of(record) for record in records], ts=self.ts)
        self._mission = fold(self._mission, ((entry.kind, entry.ts, entry.data) for entry in entries))
        self._new.extend(entries)
        return self.mission

    @property
    def new_entries(self) -> tuple[Entry, ...]:
        """What this transaction appended."""
        return tuple(self._new)


class MissionStore:
    """All missions of a state home."""

    def __init__(self, home: StateHome) -> None:
        self.home = home

    def task_ids(self) -> tuple[str, ...]:
        """Every mission's id, newest first.

        Raises:
            StorageFailed: the state home cannot be read.
        """
        try:
            names = os.listdir(self.home.missions_path)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise storage_failed("read", self.home.missions_path, error) from error
        return tuple(sorted((name for name in names if is_safe_task_id(name)), reverse=True))

    def exists(self, task_id: str) -> bool:
        """True when there is a journal of this id.

        Raises:
            StorageFailed: the state home cannot be read; absence is not proven.
        """
        if not is_safe_task_id(task_id):
            return False
        path = self.home.mission(task_id).journal_path
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise storage_failed("read", path, error) from error
        return True

    def journal(self, task_id: str) -> Journal:
        """The journal of a mission, for reading.

        Raises:
            UsageError: there is none of this id.
        """
        if not self.exists(task_id):
            raise UsageError(f"there is no mission {task_id!r}", next_step="omx-autoresearch list")
        return Journal(self.home.mission(task_id))

    def create(self, task_id: str, ts: str, *records: Record) -> Mission:
        """Make a mission's folder (exclusively) and write its first records.

        Raises:
            StepIllegal: the id is taken.
            StorageFailed: the state home cannot be written.
        """
        folder = self.home.mission(task_id)
        ensure_folder(self.home.missions_path)
        try:
            os.mkdir(folder.root_path, mode=0o700)
            sync_folder(self.home.missions_path)
        except FileExistsError:
            raise StepIllegal(f"the task id {task_id} is taken", next_step="omx-autoresearch list") from None
        except OSError as error:
            raise storage_failed("make the folder", folder.root_path, error) from error
        try:
            journal = Journal(folder)
            journal.create()
            with journal.locked() as tail:
                transaction = Transaction(folder, tail, None, ts)
                transaction.record(*records)
                self._keep(folder, transaction, tail)
                return transaction.mission
        except StorageFailed:
            _remove_empty(folder)
            raise

    def load(self, task_id: str) -> Mission:
        """The state of a mission; reads only what the snapshot does not cover.

        Raises:
            UsageError: there is no such mission.
            JournalBroken: the journal has a broken line; file and line are named.
        """
        folder = self.home.mission(task_id)
        journal = self.journal(task_id)
        mission, head, promised = self._snapshot(folder, journal)
        unread = journal.read(head.size_bytes if head else 0, expect=head)
        mission, _ = self._caught_up(unread, mission, folder, promised)
        if mission is None:
            raise _holds_no_mission(folder)
        return mission

    def load_bound(self, entry: ActiveSession) -> Mission | None:
        """The mission that a bound session's entry names, where the journal says the same; None where it does not.

        Raises:
            JournalBroken: the journal is gone, or has a broken line.
        """
        folder = self.home.mission(entry.task_id)
        if not self.exists(entry.task_id):
            raise JournalBroken(
                f"{folder.journal_path} is gone, and session {entry.session_id[:80]!r} is bound to its mission",
                next_step="put the folder back from a copy, or forget the session: remove "
                + self.home.session_path(entry.session_id),
            )
        mission = self.load(entry.task_id)
        is_ours = mission.binding is not None and mission.binding.session_id == entry.session_id
        return mission if is_ours else None

    @contextmanager
    def transaction(self, task_id: str, ts: str) -> Iterator[Transaction]:
        """Lock a mission, hand out its newest state, and keep snapshot and projections afterwards.

        Snapshot and projections are derived: when they cannot be written the records stand all the same.
        """
        journal = self.journal(task_id)
        folder = self.home.mission(task_id)
        with journal.locked() as tail:
            mission, head, promised = self._snapshot(folder, journal)
            unread = tail.read_from(head.size_bytes if head else 0, expect=head)
            mission, is_behind = self._caught_up(unread, mission, folder, promised)
            if mission is None:
                raise _holds_no_mission(folder)
            transaction = Transaction(folder, tail, mission, ts)
            if tail.torn is not None:
                transaction.record(TornTailSetAside(path=tail.torn.path, size_bytes=tail.torn.size_bytes))
            yield transaction
            if transaction.new_entries or is_behind:
                self._keep(folder, transaction, tail)

    def rebuild(self, task_id: str, *, accept_loss: bool = False) -> Mission:
        """Fold the whole journal anew and rewrite snapshot and projections (``repair``).

        Args:
            task_id: of the mission.
            accept_loss: go on with the records that are there although more were acknowledged; the owner's decision.

        Raises:
            JournalBroken: a line is broken, or acknowledged records are missing; nothing is overwritten.
            StorageFailed: the state home or the project cannot be written.
        """
        folder = self.home.mission(task_id)
        with self.journal(task_id).locked() as tail:
            _, head, promised = self._snapshot(folder, self.journal(task_id))
            expected = None if accept_loss else head or promised
            mission, _ = self._caught_up(tail.read_from(), None, folder, expected)
            if mission is None:
                raise _holds_no_mission(folder)
            if tail.torn is not None:
                transaction = Transaction(folder, tail, mission, mission.updated_at)
                mission = transaction.record(TornTailSetAside(tail.torn.path, tail.torn.size_bytes))
            self._write_snapshot(folder, mission, tail.head)
            _restored(folder, mission, tail, is_thorough=True)
        return mission

    # --- the snapshot

    def _snapshot(
        self, folder: MissionFolder, journal: Journal
    ) -> tuple[Mission | None, Head | None, Head | None]:
        """The believed snapshot and the head that it covers; without one, fold from the start.

        The third value is the head that was acknowledged although the file is another one now: a copy that was put
        back may stand in the journal's place, but that record must be in it.
        """
        try:
            data = load_json(folder.status_path)
            if data["format"] != SNAPSHOT_FORMAT:
                return None, None, None
            head = Head(**data["head"])
            mission: Mission = from_plain(Mission, data["mission"])
        except (OSError, AutoresearchError, ShapeError, KeyError, TypeError):
            return None, None, None
        if mission.task_id != folder.task_id:
            return None, None, None
        return (mission, head, None) if journal.extends(head) else (None, None, head)

    def _caught_up(
        self,
        entries: Iterator[Entry],
        mission: Mission | None,
        folder: MissionFolder,
        promised: Head | None = None,
    ) -> tuple[Mission | None, bool]:
        """The mission after ``entries``, and whether there were any.

        Raises:
            JournalBroken: a record has another shape than this version knows, or ``promised`` is not among them.
        """
        newest: Entry | None = None

        def plain() -> Iterator[tuple[str, str, dict[str, Any]]]:
            nonlocal newest
            for entry in entries:
                newest = entry
                if promised is not None and entry.seq == promised.seq and entry.digest != promised.digest:
                    raise _lost(folder, f"record {entry.seq} is not the one that was acknowledged")
                yield entry.kind, entry.ts, entry.data

        try:
            mission = fold(mission, plain())
        except ShapeError as error:
            where = f"record {newest.seq}" if newest else "its beginning"
            raise _unreadable(folder, where, error) from None
        reached = newest.seq if newest else 0
        if promised is not None and reached < promised.seq:
            raise _lost(folder, f"it ends at record {reached}, but {promised.seq} were acknowledged")
        return mission, newest is not None

    def _keep(self, folder: MissionFolder, transaction: Transaction, tail: Tail) -> None:
        """Write what is derived; a failure here loses nothing and is mended by the next call or ``repair``."""
        try:
            self._write_snapshot(folder, transaction.mission, tail.head)
        except StorageFailed:
            return
        Projections(folder, transaction.mission).extend(tail, transaction.new_entries)

    def _write_snapshot(self, folder: MissionFolder, mission: Mission, head: Head) -> None:
        data = {"format": SNAPSHOT_FORMAT, "head": to_plain(head), "mission": to_plain(mission)}
        replace_file(folder.status_path, encode(data) + b"\n", is_durable=False)


def _restored(
    folder: MissionFolder, mission: Mission, tail: Tail, *, is_thorough: bool = False
) -> tuple[str, ...]:
    try:
        return Projections(folder, mission).restore(tail, is_thorough=is_thorough)
    except OSError as error:
        task_path = ProjectFolder(mission.project_path).task_path(mission.task_id)
        raise storage_failed("write", error.filename or task_path, error) from error


def _remove_empty(folder: MissionFolder) -> None:
    """Take back the folder of a mission that could not be begun, so that its id is free; a record keeps it."""
    with suppress(OSError):
        if os.path.exists(folder.journal_path) and os.path.getsize(folder.journal_path):
            return
        for path in (folder.journal_path, folder.lock_path):
            with suppress(FileNotFoundError):
                os.unlink(path)
        os.rmdir(folder.root_path)


def _broken(folder: MissionFolder, what: str) -> JournalBroken:
    return JournalBroken(
        f"{folder.journal_path}: {what}", next_step=f"omx-autoresearch repair {folder.task_id}"
    )


def _lost(folder: MissionFolder, what: str) -> JournalBroken:
    return JournalBroken(
        f"{folder.journal_path}: {what}",
        next_step=f"put the newest copy of the journal back, or go on with what is left: "
        f"omx-autoresearch repair {folder.task_id} --accept",
    )


def _unreadable(folder: MissionFolder, where: str, error: ShapeError) -> JournalBroken:
    if isinstance(error, NewerShape):
        return JournalBroken(
            f"{folder.journal_path}, {where} was written by a newer omx-autoresearch: {error}",
            next_step="upgrade omx-autoresearch, then run the same command again; nothing in the mission is wrong",
        )
    return _broken(folder, f"{where}: {error}")


def _holds_no_mission(folder: MissionFolder) -> StateUntrusted:
    return StateUntrusted(
        f"{folder.journal_path} holds no mission: it was never begun, or emptied",
        next_step=f"ls -l {folder.root_path}; remove the folder if nothing else is in it",
    )
