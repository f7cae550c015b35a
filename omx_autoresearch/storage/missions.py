"""The mission store: the one module that writes a mission's journal, folds it and keeps its snapshot.

    load          snapshot + the records behind it; O(1) in the length of the journal
    transaction   lock, newest state, append, fold, snapshot; nothing is decided on an older state

What people read under ``.omx`` follows when the process ends (``runtime/claims.py``), by what :data:`changed` says.
What is known already (:mod:`.states`) is believed only while the journal still holds its last record; everything else
is rebuilt from the journal.
"""

from __future__ import annotations

import os

from omx_autoresearch.core.mission import SCHEMA_VERSION
from omx_autoresearch.core.records import draft_of, fold
from omx_autoresearch.errors import JournalBroken, StepIllegal, StorageFailed, UsageError
from omx_autoresearch.storage import states
from omx_autoresearch.storage.atomic import ensure_folder, is_there, names_in, storage_failed, sync_folder
from omx_autoresearch.storage.journal import Journal
from omx_autoresearch.storage.layout import is_safe_task_id
from omx_autoresearch.storage.reader import OpenJournal
from omx_autoresearch.storage.states import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from omx_autoresearch.core.mission import Mission
    from omx_autoresearch.core.records import Record
    from omx_autoresearch.storage.journal import Tail, TornTail
    from omx_autoresearch.storage.layout import MissionFolder, StateHome
    from omx_autoresearch.storage.registry import ActiveSession


changed: dict[str, MissionFolder] = {}
"""The missions that this process recorded something in since their projections were written, by folder."""


class Transaction:
    """One locked stretch of work on a mission, for the length of a ``with``.

    Attributes:
        ts: the time of every record of this transaction.
    """

    def __init__(self, folder: MissionFolder, tail: Tail, ts: str) -> None:
        self._folder = folder
        self._tail = tail
        self._state: State | None = None
        self._is_to_keep = False
        self.ts = ts

    def __enter__(self) -> Transaction:
        self._tail.__enter__()
        try:
            self._begin()
        except BaseException:
            self._tail.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._is_to_keep:
                self._keep()
        finally:
            self._tail.__exit__(kind, error, trace)

    def _begin(self) -> None:
        self._state = states.newest_state(self._folder, self._tail.source)
        self._is_to_keep = not self._state.is_saved
        if self._state.mission.schema_version < SCHEMA_VERSION:
            self.record(_migrating(self._state.mission.schema_version))
        if self._tail.torn is not None:
            self.record(_set_aside(self._tail.torn))

    @property
    def mission(self) -> Mission:
        """The state after everything that was recorded so far; there is one from the first record on."""
        if self._state is None:
            raise states.holds_no_mission(self._folder)
        return self._state.mission

    @property
    def tail(self) -> Tail:
        """The locked journal, to read."""
        return self._tail

    def refold(self) -> Mission:
        """Fold the journal anew from its first line and go on with that; neither snapshot nor memory is believed.

        Raises:
            JournalBroken: a line is broken, or the records that the snapshot covers are not there.
        """
        known = self._state
        state = states.refolded(
            self._folder, self._tail.source, known, promised=known.head if known else None
        )
        self._is_to_keep |= known is None or known.mission != state.mission
        self._state = state
        return state.mission

    def record(self, *records: Record) -> Mission:
        """Append records durably, in one write, and fold them.

        Raises:
            StorageFailed: the disk refused; nothing of this call is recorded.
        """
        self._is_to_keep = True
        return self._append(records, is_durable=True)

    def announce(self, *records: Record) -> Mission:
        """Append records that matter only as long as a process lives: without waiting for the disk.

        They survive every kill; a power cut, which ends that process too, may take them. What is derived follows with
        the next record.

        Raises:
            StorageFailed: the disk refused; nothing of this call is recorded.
        """
        return self._append(records, is_durable=False)

    def _append(self, records: tuple[Record, ...], *, is_durable: bool) -> Mission:
        drafts = [draft_of(record) for record in records]
        entries = self._tail.append(drafts, ts=self.ts, is_durable=is_durable)
        known = self._state
        mission = fold(
            known.mission if known else None, ((entry.kind, entry.ts, entry.data) for entry in entries)
        )
        if mission is None:
            raise states.holds_no_mission(self._folder)
        self._state = State(mission, self._tail.head, known.number if known else 0)
        states.remember(self._folder, self._state)
        changed[self._folder.root_path] = self._folder
        return mission

    def _keep(self) -> None:
        """Write the snapshot; a failure here loses nothing and is mended by the next call or ``repair``."""
        try:
            _save(self._folder, self._state, self._tail)
        except StorageFailed:
            return


class _Founding(Transaction):
    """The first transaction of a mission, which has no state to begin with."""

    def _begin(self) -> None:
        return


class MissionStore:
    """All missions of a state home."""

    def __init__(self, home: StateHome) -> None:
        self.home = home

    def task_ids(self) -> tuple[str, ...]:
        """Every mission's id, newest first.

        Raises:
            StorageFailed: the state home cannot be read.
        """
        return tuple(
            sorted(
                (name for name in names_in(self.home.missions_path) if is_safe_task_id(name)), reverse=True
            )
        )

    def exists(self, task_id: str) -> bool:
        """True when there is a journal of this id.

        Raises:
            StorageFailed: the state home cannot be read; absence is not proven.
        """
        if not is_safe_task_id(task_id):
            return False
        return is_there(self.home.mission(task_id).journal_path)

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
        states.forget(folder)
        try:
            journal = Journal(folder)
            journal.create()
            with _Founding(folder, journal.locked(), ts) as transaction:
                return transaction.record(*records)
        except StorageFailed:
            _remove_empty(folder)
            raise

    def load(self, task_id: str) -> Mission:
        """The state of a mission; reads only what the snapshot does not cover.

        Raises:
            UsageError: there is no such mission.
            JournalBroken: the journal has a broken line; file and line are named.
        """
        journal, folder = self.journal(task_id), self.home.mission(task_id)
        with journal.opened() as descriptor:
            return states.newest_state(folder, OpenJournal(descriptor, journal.path)).mission

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

    def transaction(self, task_id: str, ts: str) -> Transaction:
        """Lock a mission, hand out its newest state, and write its snapshot afterwards.

        The snapshot is derived: when it cannot be written the records stand all the same.

        Raises:
            UsageError: there is no such mission.
        """
        journal, folder = self.journal(task_id), self.home.mission(task_id)
        journal.known = states.remembered_head(folder)
        return Transaction(folder, journal.locked(), ts)

    def rebuild(self, task_id: str, *, accept_loss: bool = False) -> Mission:
        """Fold the whole journal anew and rewrite the snapshot (``repair``).

        Args:
            task_id: of the mission.
            accept_loss: go on with the records that are there although more were acknowledged; the owner's decision.

        Raises:
            JournalBroken: a line is broken, or acknowledged records are missing; nothing is overwritten.
            StorageFailed: the state home cannot be written.
        """
        journal, folder = self.journal(task_id), self.home.mission(task_id)
        with journal.locked() as tail:
            states.forget(folder)
            saved = states.saved_state(folder)
            promised = saved.head if saved and not accept_loss else None
            state = states.refolded(folder, tail.source, saved, promised=promised)
            if tail.torn is not None:
                with Transaction(folder, tail, state.mission.updated_at):
                    pass  # records it
                state = states.newest_state(folder, tail.source)
            _save(folder, state, tail)
        return state.mission


def _migrating(version: int) -> Record:
    from omx_autoresearch.core.records.lifecycle import SchemaMigrated

    return SchemaMigrated(version, SCHEMA_VERSION)


def _set_aside(torn: TornTail) -> Record:
    from omx_autoresearch.core.records.claims import TornTailSetAside

    return TornTailSetAside(path=torn.path, size_bytes=torn.size_bytes)


def _save(folder: MissionFolder, state: State | None, tail: Tail) -> None:
    """Write the snapshot. It is a promise that its last record is there, so that one is durable first."""
    if state is not None:
        tail.sync()
        states.save(folder, state)


def _remove_empty(folder: MissionFolder) -> None:
    """Take back the folder of a mission that could not be begun, so that its id is free; a record keeps it."""
    try:
        if os.path.exists(folder.journal_path) and os.path.getsize(folder.journal_path):
            return
        for path in (folder.journal_path, folder.lock_path):
            if os.path.lexists(path):
                os.unlink(path)
        os.rmdir(folder.root_path)
    except OSError:
        return
