"""The mission store: the one module that writes a journal, folds it and keeps what is derived from it.

    load          snapshot + the records behind it; O(1) in the length of the journal
    transaction   lock, newest state, append, fold, snapshot, projections; nothing is decided on an older state

The snapshot (``status.json``) is believed only while it covers the journal's size and inode; everything else is
rebuilt from the journal.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from omx_autoresearch.core.mission import Mission
from omx_autoresearch.core.records import draft_of, fold
from omx_autoresearch.core.records.claims import TornTailSetAside
from omx_autoresearch.core.shape import ShapeError, from_plain, to_plain
from omx_autoresearch.errors import (
    AutoresearchError,
    JournalBroken,
    StateUntrusted,
    StepIllegal,
    StorageFailed,
    UsageError,
)
from omx_autoresearch.storage.atomic import load_json, replace_file, sync_folder
from omx_autoresearch.storage.journal import Journal
from omx_autoresearch.storage.layout import is_safe_task_id
from omx_autoresearch.storage.lines import Head
from omx_autoresearch.storage.projections import Projections
from omx_autoresearch.storage.strictjson import encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omx_autoresearch.core.records import Record
    from omx_autoresearch.storage.journal import Tail
    from omx_autoresearch.storage.layout import MissionFolder, StateHome
    from omx_autoresearch.storage.lines import Entry

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
            raise StateUntrusted(f"{self._folder.journal_path} holds no mission")
        return self._mission

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
        """Every mission's id, newest first."""
        try:
            names = os.listdir(self.home.missions_path)
        except FileNotFoundError:
            return ()
        return tuple(sorted((name for name in names if is_safe_task_id(name)), reverse=True))

    def exists(self, task_id: str) -> bool:
        """True when there is a journal of this id."""
        return is_safe_task_id(task_id) and os.path.exists(self.home.mission(task_id).journal_path)

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
        os.makedirs(self.home.missions_path, mode=0o700, exist_ok=True)
        try:
            os.mkdir(folder.root_path, mode=0o700)
        except FileExistsError:
            raise StepIllegal(f"the task id {task_id} is taken", next_step="omx-autoresearch list") from None
        sync_folder(self.home.missions_path)
        journal = Journal(folder)
        journal.create()
        with journal.locked() as tail:
            transaction = Transaction(folder, tail, None, ts)
            transaction.record(*records)
            self._keep(folder, transaction, tail)
            return transaction.mission

    def load(self, task_id: str) -> Mission:
        """The state of a mission; reads only what the snapshot does not cover.

        Raises:
            UsageError: there is no such mission.
            JournalBroken: the journal has a broken line; file and line are named.
        """
        folder = self.home.mission(task_id)
        journal = self.journal(task_id)
        mission, head = self._snapshot(folder, journal)
        mission, _ = self._caught_up(
            journal.read(head.size_bytes if head else 0, expect=head), mission, folder
        )
        if mission is None:
            raise StateUntrusted(
                f"{folder.journal_path} holds no mission",
                next_step=f"omx-autoresearch repair {task_id}",
            )
        return mission

    @contextmanager
    def transaction(self, task_id: str, ts: str) -> Iterator[Transaction]:
        """Lock a mission, hand out its newest state, and keep snapshot and projections afterwards.

        Snapshot and projections are derived: when they cannot be written the records stand all the same.
        """
        journal = self.journal(task_id)
        folder = self.home.mission(task_id)
        with journal.locked() as tail:
            mission, head = self._snapshot(folder, journal)
            unread = tail.read_from(head.size_bytes if head else 0, expect=head)
            mission, is_behind = self._caught_up(unread, mission, folder)
            transaction = Transaction(folder, tail, mission, ts)
            if tail.torn is not None:
                transaction.record(TornTailSetAside(path=tail.torn.path, size_bytes=tail.torn.size_bytes))
            yield transaction
            if transaction.new_entries or is_behind:
                self._keep(folder, transaction, tail)

    def rebuild(self, task_id: str) -> Mission:
        """Fold the whole journal anew and rewrite snapshot and projections (``repair``).

        Raises:
            JournalBroken: a line is broken; nothing is overwritten.
        """
        folder = self.home.mission(task_id)
        with self.journal(task_id).locked() as tail:
            mission, _ = self._caught_up(tail.read_from(), None, folder)
            if mission is None:
                raise StateUntrusted(f"{folder.journal_path} holds no mission")
            self._write_snapshot(folder, mission, tail.head)
            Projections(folder, mission).rebuild(tail.read_from())
        return mission

    # --- the snapshot

    def _snapshot(self, folder: MissionFolder, journal: Journal) -> tuple[Mission | None, Head | None]:
        """The believed snapshot and the head that it covers; (None, None) means: fold from the start.

        Raises:
            JournalBroken: the journal is shorter than what was acknowledged.
        """
        try:
            data = load_json(folder.status_path)
            head = Head(**data["head"])
            mission: Mission = from_plain(Mission, data["mission"])
            if data["format"] != SNAPSHOT_FORMAT:
                return None, None
        except (OSError, AutoresearchError, ShapeError, KeyError, TypeError):
            return None, None
        if journal.extends(head):
            return mission, head
        if journal.head().seq < head.seq:
            raise JournalBroken(
                f"{folder.journal_path} ends at record {journal.head().seq}, but {head.seq} were acknowledged",
                next_step=f"omx-autoresearch repair {folder.task_id}",
            )
        return None, None

    def _caught_up(
        self, entries: Iterator[Entry], mission: Mission | None, folder: MissionFolder
    ) -> tuple[Mission | None, bool]:
        """The mission after ``entries``, and whether there were any."""
        count = 0

        def plain() -> Iterator[tuple[str, str, dict[str, Any]]]:
            nonlocal count
            for entry in entries:
                count += 1
                yield entry.kind, entry.ts, entry.data

        try:
            return fold(mission, plain()), count > 0
        except ShapeError as error:
            raise JournalBroken(
                f"{folder.journal_path}, record {count}: {error}",
                next_step=f"omx-autoresearch repair {folder.task_id}",
            ) from None

    def _keep(self, folder: MissionFolder, transaction: Transaction, tail: Tail) -> None:
        """Write what is derived; a failure here loses nothing and is mended by the next call or ``repair``."""
        try:
            self._write_snapshot(folder, transaction.mission, tail.head)
        except StorageFailed:
            return
        projections = Projections(folder, transaction.mission)
        if projections.needs_rebuild():
            projections.rebuild_quietly(tail.read_from())
        else:
            projections.extend(transaction.new_entries)

    def _write_snapshot(self, folder: MissionFolder, mission: Mission, head: Head) -> None:
        data = {"format": SNAPSHOT_FORMAT, "head": to_plain(head), "mission": to_plain(mission)}
        replace_file(folder.status_path, encode(data) + b"\n", is_durable=False)
