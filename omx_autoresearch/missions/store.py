"""The mission store: the one module that writes a mission's journal, folds it and keeps its snapshot.

    load          snapshot + the records behind it; O(1) in the length of the journal
    transaction   lock, newest state, append, fold, snapshot; nothing is decided on an older state

What people read under ``.omx`` follows when the process ends (``missions/claims.py``), by what :data:`changed` says.
What is known already (:mod:`.states`) is believed only while the journal still holds its last record; everything else
is rebuilt from the journal.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.errors import (
    JournalBroken,
    StateUntrusted,
    StepIllegal,
    StorageFailed,
    UsageError,
)
from omx_autoresearch.foundation.records import NewerShape, OlderShape, ShapeError, dataclass, from_plain
from omx_autoresearch.journal.layout import MissionFolder, StateHome, is_safe_task_id
from omx_autoresearch.journal.log import Journal, Tail
from omx_autoresearch.journal.reader import Entry, Head, OpenJournal
from omx_autoresearch.journal.safe_files import ensure_folder, is_there, names_in, storage_failed, sync_folder
from omx_autoresearch.missions import snapshots
from omx_autoresearch.missions.records import draft_of, fold
from omx_autoresearch.missions.rules.evidence import checked_at, recorded_codes
from omx_autoresearch.missions.rules.mission import FINAL_PHASES, SCHEMA_VERSION, Mission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Any

    from omx_autoresearch.missions.records import Record
    from omx_autoresearch.missions.rules.mission import Contract


# --- The newest state of a mission: what is known of it already, and the records behind that.
#
# What this process has folded itself is remembered, so that a process that looks at a mission several times, or records
# much in it, folds each record once. Memory is believed on the same terms as a snapshot: only while the journal is the
# same file and holds the last record that was folded at its place, by its digest, which binds all before it.

_REMEMBERED_MISSIONS = 64
_SEEN_BYTES = 80
"""Size of the file that says how the journal was last seen."""
_STAMPS = ("mission_created", "schema_migrated")


@dataclass(frozen=True, slots=True)
class State:
    """A mission at one head of its journal.

    Attributes:
        mission: the fold of all records up to there.
        head: the last of them.
        number: of the newest snapshot on disk; 0 for no snapshot.
        is_saved: that snapshot covers this head.
    """

    mission: Mission
    head: Head
    number: int = 0
    is_saved: bool = False


_remembered: dict[str, State] = {}


def newest_state(folder: MissionFolder, journal: OpenJournal) -> State:
    """The state at the journal's end.

    Raises:
        JournalBroken: a line or record cannot be trusted, or records that were acknowledged are gone.
        StateUntrusted: the journal holds no mission.
    """
    known = _remembered.get(folder.root_path)
    if known is None or not journal.stands(known.head):
        known = saved_state(folder)
    if known is not None and not journal.stands(known.head):
        # Another file, or another history. A copy may have been put back, but that record must be in it.
        return refolded(folder, journal, known, promised=known.head)
    stamp = journal.stamp()
    if known is None or not _is_seen(folder, stamp):
        # Somebody else wrote to the file, or a writer of ours was killed: every line is read, once.
        state = refolded(folder, journal, known, promised=known.head if known else None)
        if journal.stamp() == stamp:
            _note_seen(folder, stamp)
        return state
    mission, last = _walked(folder, known.mission, journal.after(known.head))
    if mission is not None and last is not None:
        head = Head(last.seq, last.digest, last.end, known.head.inode)
        known = State(mission, head, known.number)
    return remember(folder, known)


def _is_seen(folder: MissionFolder, stamp: bytes) -> bool:
    """True when the journal is as it was after our last append, or when every line of it was last read."""
    try:
        descriptor = os.open(folder.seen_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _SEEN_BYTES).rstrip() == stamp
        finally:
            os.close(descriptor)
    except OSError:
        return False


def _note_seen(folder: MissionFolder, stamp: bytes) -> None:
    """Keep the stamp, in place and not durably; without it the next look reads the journal from its first line."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(folder.seen_path, flags, 0o600)
        try:
            os.pwrite(descriptor, stamp.ljust(_SEEN_BYTES - 1) + b"\n", 0)
        finally:
            os.close(descriptor)
    except OSError:
        return


def saved_state(folder: MissionFolder) -> State | None:
    """The state in the newest snapshot; None if this version can read none."""
    for number, content in snapshots.newest(folder.root_path):
        try:
            known = snapshots.migrated_state(content)
            head = Head(**known["head"])
            mission: Mission = from_plain(Mission, known["mission"])
        except (ShapeError, KeyError, TypeError):
            continue
        if mission.task_id == folder.task_id:
            return State(mission, head, number, is_saved=True)
    return None


def save(folder: MissionFolder, state: State) -> State:
    """Write the snapshot of a state; returns that state as saved. The caller holds the lock and has synced the journal.

    Raises:
        StorageFailed: the system refused.
    """
    content = {
        "schema_version": SCHEMA_VERSION,
        "head": state.head,
        "mission": state.mission,
        "shown": shown_of(state.mission),
    }
    number = snapshots.save(folder.root_path, content, after=state.number)
    return remember(folder, State(state.mission, state.head, number, is_saved=True))


def standing_of(mission: Mission) -> dict[str, Any]:
    """The fields of ``views.StatusView`` that follow from the journal alone, for every surface."""
    is_open = mission.contract is not None and mission.phase not in FINAL_PHASES
    return {
        "phase": mission.phase,
        "iteration": mission.iteration,
        "stale_count": mission.usage.stale,
        "pivot_required": mission.is_pivot_required,
        "open_criteria": recorded_codes(mission) if is_open else (),
        "checked_at": checked_at(mission),
        "session_id": mission.binding.session_id if mission.binding else "",
        "has_unproven_prompt": any(
            item.kind == "unproven_prompt" and item.at > mission.prompted_at for item in mission.notices
        ),
    }


def shown_of(mission: Mission) -> dict[str, Any]:
    """The fields of the status line: the standing, the session of the newest stop, the time of completion."""
    last = mission.last_stop
    return {
        **standing_of(mission),
        "last_session_id": last.session_id if last else "",
        "completed_at": mission.completed_at,
        "hold_lost_at": mission.lost_hold.at if mission.lost_hold else "",
    }


def refolded(
    folder: MissionFolder, journal: OpenJournal, known: State | None, *, promised: Head | None = None
) -> State:
    """The state by every record from the first on.

    Args:
        folder: of the mission.
        journal: the open journal.
        known: what was known before, for the number of its snapshot.
        promised: a head that was acknowledged: it must be among the records.

    Raises:
        JournalBroken: a line or record cannot be trusted, or ``promised`` is not there.
        StateUntrusted: the journal holds no mission.
    """
    mission, last = _walked(folder, None, journal.after(None), promised)
    reached = last.seq if last else 0
    if promised is not None and reached < promised.seq:
        raise _lost(folder, f"it ends at record {reached}, but {promised.seq} were acknowledged")
    if mission is None or last is None:
        raise holds_no_mission(folder)
    head = Head(last.seq, last.digest, last.end, journal.inode())
    return remember(folder, State(mission, head, known.number if known else 0))


def remembered_head(folder: MissionFolder) -> Head | None:
    """The last record that this process folded; where it stands at the journal's end, it need not be parsed again."""
    known = _remembered.get(folder.root_path)
    return known.head if known else None


def remember(folder: MissionFolder, state: State) -> State:
    """Keep a state for the next look of this process; returns it."""
    if len(_remembered) >= _REMEMBERED_MISSIONS and folder.root_path not in _remembered:
        _remembered.clear()
    _remembered[folder.root_path] = state
    return state


def forget(folder: MissionFolder) -> None:
    """Believe nothing of what this process knew."""
    _remembered.pop(folder.root_path, None)


def _walked(
    folder: MissionFolder, mission: Mission | None, entries: Iterator[Entry], promised: Head | None = None
) -> tuple[Mission | None, Entry | None]:
    """The mission after these records, and the last of them."""
    last: Entry | None = None
    version = mission.schema_version if mission else SCHEMA_VERSION

    def plain() -> Iterator[tuple[str, str, dict[str, Any]]]:
        nonlocal last, version
        for entry in entries:
            last = entry
            if promised is not None and entry.seq == promised.seq and entry.digest != promised.digest:
                raise _lost(folder, f"record {entry.seq} is not the one that was acknowledged")
            data = entry.data
            if version != SCHEMA_VERSION or entry.kind in _STAMPS:
                version = snapshots.version_after(entry.kind, entry.data, version)
                data = snapshots.migrated(entry.kind, entry.data, version)
            yield entry.kind, entry.ts, data

    try:
        return fold(mission, plain()), last
    except ShapeError as error:
        where = f"record {last.seq}" if last else "its beginning"
        raise _unreadable(folder, where, error) from None


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
    if isinstance(error, OlderShape):
        return JournalBroken(
            f"{folder.journal_path}, {where} is older than this omx-autoresearch reads: {error}",
            next_step="let an older omx-autoresearch that still reads it write one record, such as a pause; then go on",
        )
    return JournalBroken(
        f"{folder.journal_path}: {where}: {error}",
        next_step="put the newest copy of the journal back; without one, move the mission out of the state home "
        f"(mv {folder.root_path} .) and begin anew: omx-autoresearch init",
    )


def holds_no_mission(folder: MissionFolder) -> StateUntrusted:
    """The error for a journal that was never begun, or was emptied."""
    return StateUntrusted(
        f"{folder.journal_path} holds no mission: the first record was never written, or the file was emptied",
        next_step=f"ls -l {folder.root_path}; remove the folder if nothing else is in it",
    )


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
        self._state = newest_state(self._folder, self._tail.source)
        self._is_to_keep = not self._state.is_saved
        if self._state.mission.schema_version < SCHEMA_VERSION:
            from omx_autoresearch.missions.records.lifecycle import SchemaMigrated

            self.record(SchemaMigrated(self._state.mission.schema_version, SCHEMA_VERSION))
        if torn := self._tail.torn:
            from omx_autoresearch.missions.records.work import TornTailSetAside

            self.record(TornTailSetAside(path=torn.path, size_bytes=torn.size_bytes))

    @property
    def mission(self) -> Mission:
        """The state after everything that was recorded so far; there is one from the first record on."""
        if self._state is None:
            raise holds_no_mission(self._folder)
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
        state = refolded(self._folder, self._tail.source, known, promised=known.head if known else None)
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
        if os.path.lexists(self._folder.secrets_path):
            drafts = self._without_secrets(drafts)
        entries = self._tail.append(drafts, ts=self.ts, is_durable=is_durable)
        _note_seen(self._folder, self._tail.source.stamp())
        known = self._state
        mission = fold(
            known.mission if known else None, ((entry.kind, entry.ts, entry.data) for entry in entries)
        )
        if mission is None:
            raise holds_no_mission(self._folder)
        self._state = State(mission, self._tail.head, known.number if known else 0)
        remember(self._folder, self._state)
        changed[self._folder.root_path] = self._folder
        return mission

    def _without_secrets(self, drafts: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
        """The same data without the values that only secrets.json may hold; a contract stays as its owner wrote it."""
        from omx_autoresearch.missions.secrets import forms_of, masked_data, secrets_of

        forms = forms_of(secrets_of(self._folder).values())
        return [(kind, data if "contract" in data else masked_data(data, forms)) for kind, data in drafts]

    def _keep(self) -> None:
        """Write the snapshot; a failure here loses nothing and is fixed by the next call or ``repair``."""
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
            UsageError: no mission has this id.
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
        forget(folder)
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
            return newest_state(folder, OpenJournal(descriptor, journal.path)).mission

    def transaction(self, task_id: str, ts: str) -> Transaction:
        """Lock a mission, hand out its newest state, and write its snapshot afterwards.

        The snapshot is derived: when it cannot be written the records stand all the same.

        Raises:
            UsageError: there is no such mission.
        """
        journal, folder = self.journal(task_id), self.home.mission(task_id)
        journal.known = remembered_head(folder)
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
            forget(folder)
            saved = saved_state(folder)
            promised = saved.head if saved and not accept_loss else None
            state = refolded(folder, tail.source, saved, promised=promised)
            if tail.torn is not None:
                with Transaction(folder, tail, state.mission.updated_at):
                    pass  # records it
                state = newest_state(folder, tail.source)
            _save(folder, state, tail)
        return state.mission


def _save(folder: MissionFolder, state: State | None, tail: Tail) -> None:
    """Write the snapshot. It is a promise that its last record is there, so that one is durable first."""
    if state is not None:
        tail.sync()
        save(folder, state)


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


# --- What a verb asks of the mission that it has loaded.


def refuse_ended(mission: Mission, why: str, *, next_step: str = "omx-autoresearch list") -> None:
    """Refuse a verb that a mission has no use for once it has ended; ``why`` is a short sentence.

    Raises:
        StepIllegal: the mission has ended.
    """
    if mission.phase in FINAL_PHASES:
        raise StepIllegal(f"mission {mission.task_id} is {mission.phase}; {why}", next_step=next_step)


def live_contract(mission: Mission, why: str, *, next_step: str = "") -> Contract:
    """The contract of a mission that was started and has not ended.

    Raises:
        StepIllegal: the mission is a draft, or has ended.
    """
    if mission.contract is None or mission.phase in FINAL_PHASES:
        next_step = next_step or f"omx-autoresearch status {mission.task_id}"
        raise StepIllegal(f"mission {mission.task_id} is {mission.phase}; {why}", next_step=next_step)
    return mission.contract
