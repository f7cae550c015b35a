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
from contextlib import suppress

from omx_autoresearch.errors import JournalBroken, StateUntrusted, WorkspaceFault
from omx_autoresearch.storage import views
from omx_autoresearch.storage.atomic import read_bounded, replace_file
from omx_autoresearch.storage.differences import difference
from omx_autoresearch.storage.layout import ProjectFolder, session_file_name
from omx_autoresearch.storage.omx_folder import OmxFolder
from omx_autoresearch.storage.projected import Projected, projected_path
from omx_autoresearch.storage.strictjson import decode_document
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
_HEARTBEAT = "heartbeat.jsonl"
_COPY_BYTES = 4 * 1024 * 1024
_SMALL_BYTES = 1024 * 1024
_MODE_NAME = "autoresearch-state.json"


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
        kept = self._kept()
        wrong = NAMES if kept.covered is None else self._missing()
        with suppress(OSError, StateUntrusted, WorkspaceFault):
            self._write_notice()
        with suppress(OSError, StateUntrusted, WorkspaceFault):
            self._bring_up(kept, source, wrong, new)

    def needs_care(self) -> bool:
        """True when a projection is missing, behind or edited, judged in O(1)."""
        if not os.path.isdir(self._mission.project_path):
            return False
        kept = self._kept()
        if kept.covered is None or self._missing() or self._suspects(kept):
            return True
        try:
            return os.stat(self._folder.journal_path).st_size != kept.covered.size_bytes
        except OSError:
            return False

    def edited(self) -> tuple[str, ...]:
        """Names of projections that are not as we left them, by inode, size and time."""
        return self._suspects(self._kept())

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
        wrong = NAMES if kept.covered is None else (*self._suspects(kept), *self._missing())
        self._write_notice()
        found = self._bring_up(kept, source, wrong)
        if is_thorough and os.path.isdir(self._mission.project_path):
            self._close_modes(source)
            self._copy_heartbeat(is_whole=True)
        return found

    def _bring_up(
        self, kept: Projected, source: Source, wrong: tuple[str, ...], new: tuple[Entry, ...] = ()
    ) -> tuple[str, ...]:
        if not os.path.isdir(self._mission.project_path):
            return ()
        try:
            entries = self._unseen(kept, source, new)
        except JournalBroken:  # not the journal that they were made from: a copy put back, or the rest of one
            entries, wrong = (), NAMES
        with self._open("state", make=True) as state, self._open("logs", make=True) as logs:
            folders = {"state": state, "logs": logs}
            found = self._set_right(kept, source, folders, wrong)
            for name in LINE_FILES:
                if name not in wrong:
                    _append(kept, folders[os.path.dirname(name)], name, entries)
            kept.covered = source.head
            self._replace_states(kept, state)
        self._write_mode(kept)
        self._copy_heartbeat()
        return found

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
            leaf, stamp = os.path.basename(name), kept.stamp(name)
            if kept.says(name, data) or stamp is None or folder.stamp(leaf) != stamp:
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
        with suppress(WorkspaceFault):
            self._open("inbox", make=True).close()  # people may put files there
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

    # --- what is derived, and never edited back

    def _write_notice(self) -> None:
        data, path = views.notice(self._mission).encode("utf-8"), self._folder.notice_path
        with suppress(FileNotFoundError, StateUntrusted):
            if read_bounded(path, _SMALL_BYTES) == data:
                return
        replace_file(path, data, is_durable=False)

    def _write_mode(self, kept: Projected) -> None:
        """The mode state of the session that is held; one that is held no longer reads ``"active": false``."""
        binding = self._mission.binding
        session_id = binding.session_id if binding is not None else ""
        if kept.session_id and kept.session_id != session_id:
            self._close_mode(kept.session_id)
        if session_id:
            self._put_mode(session_id)
        if kept.session_id != session_id:
            kept.session_id = session_id
            kept.save()

    def _put_mode(self, session_id: str) -> None:
        data = views.pretty(views.mode_state(self._mission, session_id))
        with self._mode_folder(session_id, make=True) as folder:
            with suppress(FileNotFoundError, WorkspaceFault):
                if folder.read(_MODE_NAME, _SMALL_BYTES) == data:
                    return
            folder.replace(_MODE_NAME, data)

    def _close_mode(self, session_id: str) -> None:
        """Say that a session is held no longer, unless another mission holds it now."""
        try:
            with self._mode_folder(session_id) as folder:
                state = decode_document(folder.read(_MODE_NAME, _SMALL_BYTES))
        except (OSError, WorkspaceFault):
            return
        except ValueError:
            state = {"task_id": self._mission.task_id}  # broken: ours to write anew
        if isinstance(state, dict) and state.get("task_id") == self._mission.task_id:
            self._put_mode(session_id)

    def _close_modes(self, source: Source) -> None:
        """Of every session that was ever held, as far as the journal tells."""
        binding = self._mission.binding
        held = {entry.data.get("session_id") for entry in source.read_from() if entry.kind == "session_bound"}
        for session_id in held - {binding.session_id if binding is not None else ""}:
            if isinstance(session_id, str) and session_id:
                self._close_mode(session_id)

    def _mode_folder(self, session_id: str, *, make: bool = False) -> OmxFolder:
        path = os.path.join(".omx", "state", "sessions", session_file_name(session_id))
        return OmxFolder(self._mission.project_path, path, make=make)

    def _copy_heartbeat(self, *, is_whole: bool = False) -> None:
        """Copy what the heartbeat has gained; it is no part of the journal and is never edited back."""
        try:
            source = open(self._folder.heartbeat_path, "rb")  # noqa: SIM115 - closed by the with below
        except FileNotFoundError:
            return
        with source, self._open("logs") as logs:
            stamp = logs.stamp(_HEARTBEAT)
            size = os.fstat(source.fileno()).st_size
            if is_whole or stamp is None or not stamp[0] or stamp[1] > size:
                logs.replace(_HEARTBEAT, b"")
                stamp = logs.stamp(_HEARTBEAT)
            source.seek(stamp[1] if stamp else 0)
            while gained := source.read(_COPY_BYTES):
                logs.append(_HEARTBEAT, gained)
                if not is_whole:
                    break

    # --- where and how we left them

    def _open(self, sub: str, *, make: bool = False) -> OmxFolder:
        project_path = self._mission.project_path
        return OmxFolder(
            project_path, os.path.join(os.path.relpath(self._task_path, project_path), sub), make=make
        )

    def _kept(self) -> Projected:
        return Projected(projected_path(self._folder.root_path))

    def _missing(self) -> tuple[str, ...]:
        return tuple(name for name in NAMES if not os.path.lexists(os.path.join(self._task_path, name)))

    def _suspects(self, kept: Projected) -> tuple[str, ...]:
        found = []
        for sub in ("state", "logs"):
            try:
                with self._open(sub) as folder:
                    for name in NAMES:
                        now = folder.stamp(os.path.basename(name)) if os.path.dirname(name) == sub else None
                        if now is not None and now != kept.stamp(name):
                            found.append(name)
            except (OSError, WorkspaceFault):
                continue
        return tuple(sorted(found))


def _append(kept: Projected, folder: OmxFolder, name: str, entries: tuple[Entry, ...]) -> None:
    """Add the lines of new records to a line file that is as we left it; any other one is left alone."""
    lines, stamp = b"".join(views.line_of(name, entry) for entry in entries), kept.stamp(name)
    if lines and stamp is not None:
        with suppress(FileNotFoundError, WorkspaceFault):
            now = folder.append(os.path.basename(name), lines, expected=stamp)
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
            with suppress(OSError):
                streams[name].close()
            folders[os.path.dirname(name)].drop(draft)
        raise
    return drafts
