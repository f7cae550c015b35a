"""The newest state of a mission: what is known of it already, and the records behind that.

What this process has folded itself is remembered, so that a process that looks at a mission several times, or records
much in it, folds each record once. Memory is believed on the same terms as a snapshot: only while the journal is the
same file and holds the last record that was folded at its place, by its digest, which binds all before it.
"""

from __future__ import annotations

from omx_autoresearch.core.mission import SCHEMA_VERSION, Mission
from omx_autoresearch.core.readiness import checked_at, recorded_codes
from omx_autoresearch.core.records import fold
from omx_autoresearch.core.shape import NewerShape, OlderShape, ShapeError, from_plain
from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import JournalBroken, StateUntrusted
from omx_autoresearch.storage import snapshots
from omx_autoresearch.storage.lines import Head

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from omx_autoresearch.storage.layout import MissionFolder
    from omx_autoresearch.storage.lines import Entry
    from omx_autoresearch.storage.reader import OpenJournal

_REMEMBERED_MISSIONS = 64
_STAMPS = ("mission_created", "schema_migrated")


@dataclass(frozen=True, slots=True)
class State:
    """A mission at one head of its journal.

    Attributes:
        mission: the fold of all records up to there.
        head: the last of them.
        number: of the newest snapshot on disk, 0 where there is none.
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
        JournalBroken: a line or record cannot be believed, or records that were acknowledged are gone.
        StateUntrusted: the journal holds no mission.
    """
    known = _remembered.get(folder.root_path)
    if known is None or not journal.stands(known.head):
        known = saved_state(folder)
    if known is not None and not journal.stands(known.head):
        # Another file, or another history. A copy may have been put back, but that record must be in it.
        return refolded(folder, journal, known, promised=known.head)
    if known is None:
        return refolded(folder, journal, None)
    mission, last = _walked(folder, known.mission, journal.after(known.head))
    if mission is not None and last is not None:
        head = Head(last.seq, last.digest, last.end, known.head.inode)
        known = State(mission, head, known.number)
    return remember(folder, known)


def saved_state(folder: MissionFolder) -> State | None:
    """What the newest snapshot says; None where there is none that this version can read."""
    for number, content in snapshots.newest(folder.root_path):
        try:
            is_current = content.get("schema_version") == SCHEMA_VERSION
            known = content if is_current else _migrated(content)
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


def shown_of(mission: Mission) -> dict[str, Any]:
    """What a status line shows of a mission and cannot count itself, since it loads no rules."""
    return {"open": len(recorded_codes(mission)), "checked_at": checked_at(mission)}


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
        JournalBroken: a line or record cannot be believed, or ``promised`` is not there.
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
    """The last record that this process folded; whoever finds it at the journal's end need not parse it again."""
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
                version, data = _as_of_now(entry, version)
            yield entry.kind, entry.ts, data

    try:
        return fold(mission, plain()), last
    except ShapeError as error:
        where = f"record {last.seq}" if last else "its beginning"
        raise _unreadable(folder, where, error) from None


def _as_of_now(entry: Entry, version: int) -> tuple[int, dict[str, Any]]:
    from omx_autoresearch.storage import migrations  # only where a version is said, or is an old one

    version = migrations.version_after(entry.kind, entry.data, version)
    return version, migrations.migrated(entry.kind, entry.data, version)


def _migrated(content: dict[str, Any]) -> dict[str, Any]:
    from omx_autoresearch.storage import migrations

    return migrations.migrated_state(content)


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
        f"{folder.journal_path}: {where}: {error}", next_step=f"omx-autoresearch repair {folder.task_id}"
    )


def holds_no_mission(folder: MissionFolder) -> StateUntrusted:
    """The error for a journal that was never begun, or was emptied."""
    return StateUntrusted(
        f"{folder.journal_path} holds no mission: it was never begun, or emptied",
        next_step=f"ls -l {folder.root_path}; remove the folder if nothing else is in it",
    )
