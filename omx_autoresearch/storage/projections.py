"""What people and agents read of a mission under ``.omx``: files derived from the journal, never the truth.

``storage/views.py`` says what stands in them. Line files grow with the journal; state files are replaced. Which record
they cover, and inode, size and time of each as we left it, stands in ``projected.json`` in the state home: so a process
killed between journal and projections leaves files that are behind, and the next one brings them up.

A file that somebody edited is left alone until :meth:`Projections.restore`: its foreign lines go to the inbox, the
edited file into ``inbox/taken/``, the right content in its place, in an order that loses nothing wherever it is killed.
An edit that keeps inode, size and time is found only by ``repair``, which compares every byte. A project folder that
cannot be written is no fault of the mission.
"""

from __future__ import annotations

import os

from omx_autoresearch.errors import JournalBroken, StateUntrusted, WorkspaceFault
from omx_autoresearch.storage import views
from omx_autoresearch.storage.layout import ProjectFolder
from omx_autoresearch.storage.mirrors import Mirrors
from omx_autoresearch.storage.omx_folder import OmxFolder
from omx_autoresearch.storage.projected import Projected, projected_path
from omx_autoresearch.storage.views import LINE_FILES, STATE_FILES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO, Protocol

    from omx_autoresearch.core.mission import Mission
    from omx_autoresearch.storage.layout import MissionFolder
    from omx_autoresearch.storage.lines import Entry, Head

    class Source(Protocol):
        """The journal under its lock, as far as a projection needs it."""

        head: Head

        def read_from(self, offset: int = 0, *, expect: Head | None = None) -> Iterator[Entry]:
            """Yield the records from ``offset`` on."""
            ...


NAMES = (*LINE_FILES, *STATE_FILES)
MANY_RECORDS = 10_000
"""Line files that lack more than this are written anew rather than added to."""
_SMALL_BYTES = 1024 * 1024


class Projections:
    """The derived files of one mission. Whoever writes them holds the mission's lock.

    Args:
        folder: of the mission, in the state home.
        mission: its newest state.
    """

    def __init__(self, folder: MissionFolder, mission: Mission) -> None:
        self._folder = folder
        self._mission = mission
        self._task_path = ProjectFolder(mission.project_path).task_path(mission.task_id)

    def extend(self, source: Source, new: tuple[Entry, ...] = ()) -> None:
        """Bring everything up to the journal's head; what somebody edited is left alone, what is missing is rebuilt.

        Quiet about a project that cannot be written: that is no fault of the mission.

        Args:
            source: the locked journal.
            new: its newest records, where the caller has them at hand.
        """
        try:
            Mirrors(self._folder, self._mission).write_notice()
        except (OSError, StateUntrusted):
            pass  # shown again with the next record
        try:
            self._bring_up(self._kept(), source, new=new)
        except (OSError, StateUntrusted, WorkspaceFault):
            return

    def needs_care(self) -> bool:
        """True when a projection is missing, behind or edited, judged in O(1)."""
        if not os.path.isdir(self._mission.project_path):
            return False
        kept = self._kept()
        if kept.covered is None or any(self._standing(kept)):
            return True
        try:
            return os.stat(self._folder.journal_path).st_size != kept.covered.size_bytes
        except OSError:
            return False

    def edited(self) -> tuple[str, ...]:
        """Names of projections that are not as we left them, by inode, size and time."""
        return tuple(sorted(self._standing(self._kept())[1]))

    def restore(self, source: Source, *, is_thorough: bool = False) -> tuple[str, ...]:
        """Give every missing or edited projection its right content; foreign lines go to the inbox.

        Args:
            source: the locked journal.
            is_thorough: compare every byte of every file, whatever the stamps say (``repair``).

        Returns:
            names of the projections that somebody had edited.

        Raises:
            OSError: the project's folder cannot be written.
            WorkspaceFault: a symbolic link stands in the way.
            StorageFailed: the state home cannot be written.
            JournalBroken: the journal has a broken line; nothing is overwritten.
        """
        kept = self._kept()
        if is_thorough:
            kept.covered = None
        mirrors = Mirrors(self._folder, self._mission)
        mirrors.write_notice()
        found = self._bring_up(kept, source, with_edited=True)
        if is_thorough and os.path.isdir(self._mission.project_path):
            mirrors.close_modes(source.read_from())
            with self._open("logs") as logs:
                mirrors.copy_heartbeat(logs, is_whole=True)
        return found

    def _bring_up(
        self, kept: Projected, source: Source, *, new: tuple[Entry, ...] = (), with_edited: bool = False
    ) -> tuple[str, ...]:
        if not os.path.isdir(self._mission.project_path):
            return ()
        mirrors = Mirrors(self._folder, self._mission)
        with (
            self._open(make=True) as task,
            task.below("state", make=True) as state,
            task.below("logs", make=True) as logs,
        ):
            folders = {"state": state, "logs": logs}
            wrong, entries = self._work(kept, source, folders, new=new, with_edited=with_edited)
            found = self._set_right(kept, source, folders, wrong)
            for name in LINE_FILES:
                if name not in wrong:
                    _append(kept, folders[os.path.dirname(name)], name, entries)
            kept.covered = source.head
            fault = mirrors.write_mode(kept)
            self._replace_states(kept, state)
            mirrors.copy_heartbeat(logs)
        if fault is not None:
            raise fault
        return found

    def _work(
        self,
        kept: Projected,
        source: Source,
        folders: dict[str, OmxFolder],
        *,
        new: tuple[Entry, ...],
        with_edited: bool,
    ) -> tuple[tuple[str, ...], tuple[Entry, ...]]:
        """Names of the files to be written anew, and the records that the other line files lack."""
        if kept.covered is None or source.head.seq - kept.covered.seq > MANY_RECORDS:
            return NAMES, ()  # in one pass over the journal, in memory of one line
        try:
            entries = self._unseen(kept, source, new)
        except JournalBroken:  # not the journal that they were made from: a copy put back, or the rest of one
            return NAMES, ()
        missing, edited = _compared(kept, folders)
        return (*missing, *(edited if with_edited else ())), entries

    def _unseen(self, kept: Projected, source: Source, new: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """The records that the line files lack."""
        covered = kept.covered
        if covered is None or (covered.seq, covered.digest) == (source.head.seq, source.head.digest):
            return ()
        if new and (new[0].seq, new[0].prev) == (covered.seq + 1, covered.digest):
            return new
        return tuple(source.read_from(covered.size_bytes, expect=covered))

    def _replace_states(self, kept: Projected, folder: OmxFolder) -> None:
        """Replace the state files that changed. The stamps are kept first, so that a crash in between is no edit."""
        prepared: list[tuple[str, str]] = []
        for name, data in views.states(self._mission).items():
            leaf = os.path.basename(name)
            if kept.says(name, data) or not _is_ours(kept, folder, name):
                continue  # right already, or edited and left alone
            temporary, after = folder.prepare(data)
            prepared.append((temporary, leaf))
            kept.keep(name, after, data)
        kept.save()
        for temporary, leaf in prepared:
            folder.put(temporary, leaf)

    # --- setting right

    def _set_right(
        self, kept: Projected, source: Source, folders: dict[str, OmxFolder], wrong: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Write these files anew from the whole journal, as far as they are not right; returns the edited ones."""
        if not wrong:
            return ()
        for folder in folders.values():
            folder.sweep()
        try:
            self._open("inbox", make=True).close()  # people may put files there
        except WorkspaceFault:
            pass  # they have put something else
        found = []
        drafts = _drafts(self._mission, source, folders, wrong)
        try:
            for name, draft in drafts.items():
                if self._settle(kept, folders[os.path.dirname(name)], name, draft):
                    found.append(name)
        finally:
            for name, draft in drafts.items():
                folders[os.path.dirname(name)].drop(draft)
        return tuple(found)

    def _settle(self, kept: Projected, folder: OmxFolder, name: str, draft: str) -> bool:
        """Put one draft in place; True when somebody had edited the file."""
        from omx_autoresearch.storage.differences import difference

        leaf = os.path.basename(name)
        found = difference(folder, leaf, draft, kept, name)
        if found.is_edited:
            self._set_aside(folder, name, found.foreign)
        stamp = folder.stamp(leaf if found.is_same else draft)
        if not found.is_same:
            folder.put(draft, leaf)
        if stamp is not None:
            kept.keep(name, stamp, views.states(self._mission)[name] if name in STATE_FILES else None)
        return found.is_edited

    def _set_aside(self, folder: OmxFolder, name: str, foreign: tuple[str, ...]) -> None:
        """First the lines into the inbox, then the file into ``taken/``: killed in between, it is done once more."""
        from omx_autoresearch.storage import inbox

        leaf, at = os.path.basename(name), self._mission.updated_at
        inbox_path, aside = os.path.join(self._task_path, "inbox"), inbox.aside_name(leaf, at)
        edit = (name, f"inbox/{inbox.TAKEN}/{aside}")
        inbox.drop(inbox_path, "\n".join(foreign), verb=inbox.HAND_EDIT, at=at, edit=edit)
        inbox.keep_aside(folder, leaf, inbox_path, aside)

    # --- where and how we left them

    def _open(self, sub: str = "", *, make: bool = False) -> OmxFolder:
        path = os.path.relpath(self._task_path, self._mission.project_path)
        return OmxFolder(self._mission.project_path, os.path.join(path, sub) if sub else path, make=make)

    def _kept(self) -> Projected:
        return Projected(projected_path(self._folder.root_path))

    def _standing(self, kept: Projected) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the projections that are missing, and of those that are not as we left them."""
        missing: tuple[str, ...] = ()
        edited: tuple[str, ...] = ()
        for sub in ("state", "logs"):
            names = tuple(name for name in NAMES if os.path.dirname(name) == sub)
            try:
                with self._open(sub) as folder:
                    found = _compared(kept, {sub: folder})
            except (OSError, WorkspaceFault):  # not there, or something else is
                paths = {name: os.path.join(self._task_path, name) for name in names}
                found = tuple(name for name in names if not os.path.lexists(paths[name])), ()
            missing, edited = missing + found[0], edited + found[1]
        return missing, edited


def _compared(kept: Projected, folders: dict[str, OmxFolder]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the projections in these folders that are missing, and of those that are not as we left them."""
    missing, edited = [], []
    for name in NAMES:
        sub, _, leaf = name.partition("/")
        if sub in folders:
            now = folders[sub].stamp(leaf)
            if now is None:
                missing.append(name)
            elif now != kept.stamp(name):
                edited.append(name)
    return tuple(missing), tuple(edited)


def _is_ours(kept: Projected, folder: OmxFolder, name: str) -> bool:
    """True when a state file stands as we left it: by its stamp, or (we were killed in between) by what it says."""
    leaf, stamp = os.path.basename(name), kept.stamp(name)
    if stamp is None or folder.stamp(leaf) == stamp:
        return stamp is not None
    try:
        return kept.wrote(name, folder.read(leaf, _SMALL_BYTES))
    except (OSError, WorkspaceFault):
        return False


def _append(kept: Projected, folder: OmxFolder, name: str, entries: tuple[Entry, ...]) -> None:
    """Add the lines of new records to a line file that is as we left it; any other one is left alone."""
    lines, stamp = b"".join(views.line_of(name, entry) for entry in entries), kept.stamp(name)
    if lines and stamp is not None:
        try:
            now = folder.append(os.path.basename(name), lines, expected=stamp)
        except (FileNotFoundError, WorkspaceFault):
            return
        if now is not None:
            kept.keep(name, now)


def _drafts(
    mission: Mission, source: Source, folders: dict[str, OmxFolder], names: tuple[str, ...]
) -> dict[str, str]:
    """The right content of these projections in temporary files beside them: name to file name."""
    states = views.states(mission)
    drafts: dict[str, str] = {}
    streams: dict[str, BinaryIO] = {}
    try:
        for name in dict.fromkeys(names):
            descriptor, drafts[name] = folders[os.path.dirname(name)].write_new()
            streams[name] = os.fdopen(descriptor, "wb")
            streams[name].write(states.get(name, b""))
        line_names = [name for name in drafts if name in LINE_FILES]
        for entry in source.read_from() if line_names else ():
            for name in line_names:
                streams[name].write(views.line_of(name, entry))
        for stream in streams.values():
            stream.close()
    except BaseException:
        for name, draft in drafts.items():
            _close_quietly(streams.get(name))
            folders[os.path.dirname(name)].drop(draft)
        raise
    return drafts


def _close_quietly(stream: BinaryIO | None) -> None:
    try:
        if stream is not None:
            stream.close()
    except OSError:
        return  # what it still held could not be written
