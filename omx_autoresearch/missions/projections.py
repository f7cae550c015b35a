"""The files of a mission under ``.omx`` that people and agents read: derived from the journal, never the truth.

``missions/projection_texts.py`` has their content. They are brought up to the journal in one place,
``missions/claims.py``: when they are read, and when the process ends that recorded something. A process that is
killed before leaves them behind, and the next look brings them up. Whoever works here holds the mission's lock:

    find_edits   compare what stands there with what we left; what others added or changed comes back as edits
    write        line files grow, state files are replaced, edited files are set aside, missing ones made anew

How we left each file (inode, size, time; of a state file also the digest) stands in ``projected.json`` in the state
home. It may be lost at any time: then every file is compared with the journal. Line files are written before it and
judged by their lines, state files after it and judged by their digest or the one before, so that a crash in between
never looks like somebody's edit. A file that changes between the two steps is left alone until the next look.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.errors import (
    AutoresearchError,
    JournalBroken,
    StateUntrusted,
    WorkspaceFault,
)
from omx_autoresearch.foundation.json_codec import decode, decode_document, encode, encode_unchecked
from omx_autoresearch.foundation.records import dataclass, to_plain
from omx_autoresearch.journal.layout import MissionFolder, ProjectFolder
from omx_autoresearch.journal.omx_folder import OmxFolder, Stamp
from omx_autoresearch.journal.reader import Entry, Head, digest_of
from omx_autoresearch.journal.safe_files import (
    open_regular,
    read_bounded,
    replace_file,
    storage_failed,
    write_all,
)
from omx_autoresearch.missions import projection_texts
from omx_autoresearch.missions.projection_texts import LINE_FILES, STATE_FILES
from omx_autoresearch.missions.rules.briefing import completion_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, BinaryIO, Protocol

    from omx_autoresearch.missions.rules.mission import Mission

    class Source(Protocol):
        """The journal under its lock, as far as a projection needs it."""

        head: Head

        def read_from(self, offset: int = 0, *, expect: Head | None = None) -> Iterator[Entry]:
            """Yield the records from ``offset`` on."""
            ...


NAMES = (*LINE_FILES, *STATE_FILES)
ADDABLE = (projection_texts.FINDINGS, projection_texts.ITERATIONS, projection_texts.DIRECTIONS)
"""Files to which others may add; what they add is taken in. Any other edit is set aside."""
MANY_RECORDS = 10_000
"""Line files that lack more than this are written anew rather than added to."""
ADDED_LINES = 1_000
ADDED_BYTES = 1024 * 1024
"""More than this at once is set aside."""
EDITED_LIMIT = 20
"""Set-aside files that are kept of one projection; the oldest make room."""
_FORMAT = 3
_KEPT_BYTES = 64 * 1024
_KEPT_TYPES = [int, str, int, int, str]
"""Of the head that the line files cover, and of the session's id."""
_LINE_BYTES = 4 * 1024 * 1024
_STATE_BYTES = 4 * 1024 * 1024
_BEGINNING_BYTES = 64
"""Enough for the time of a first heartbeat."""
_COPY_BYTES = 4 * 1024 * 1024
_HEARTBEAT = os.path.basename(projection_texts.HEARTBEAT)
_BOM = b"\xef\xbb\xbf"
_DIFFERS = "differs from the journal"


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit of a projection that the runtime did not make.

    Attributes:
        name: of the projection.
        added: the lines, or entries of a list, that stand behind ours, bounded.
        moved_to: where the file is set aside, relative to the mission's folder; empty where something was only added.
    """

    name: str
    added: tuple[str, ...] = ()
    moved_to: str = ""


class Projections:
    """The derived files of one mission.

    Args:
        folder: of the mission, in the state home.
        mission: its state; :meth:`write` takes the newest one.
    """

    def __init__(self, folder: MissionFolder, mission: Mission) -> None:
        self._folder = folder
        self._mission = mission
        self._project_path = mission.project_path
        self._task_path = ProjectFolder(mission.project_path).task_path(mission.task_id)
        self._kept = _Kept(os.path.join(folder.root_path, "projected.json"))
        self._stamps: dict[str, Stamp | None] = {}
        self._anew: set[str] = set()
        self._edits: dict[str, Edit] = {}

    def are_current(self) -> bool:
        """True when every projection covers the journal and is as we left it; costs a few system calls."""
        covered = self._kept.covered
        try:
            if covered is None or os.stat(self._folder.journal_path).st_size != covered.size_bytes:
                return False
        except OSError:
            return True  # no journal, nothing to say
        if not os.path.isdir(self._project_path):
            return True
        stamps = self._found_stamps()
        return all(stamps[name] is not None and stamps[name] == self._kept.stamp(name) for name in NAMES)

    def find_edits(self, source: Source, ts: str, *, is_thorough: bool = False) -> tuple[Edit, ...]:
        """Find what others did to the projections since we left them.

        Args:
            source: the locked journal.
            ts: the time, for the names of files that are set aside.
            is_thorough: compare every byte, whatever inode, size and time say (``repair``).
        """
        is_known = self._is_journal_known(source)
        self._stamps = self._found_stamps()
        for name, stamp in self._stamps.items():
            if stamp is not None and stamp == self._kept.stamp(name) and is_known and not is_thorough:
                continue
            self._anew.add(name)
            if stamp is not None:
                edit = self._judged(name, source, ts, is_known=is_known)
                if edit is not None:
                    self._edits[name] = edit
        return tuple(self._edits.values())

    def write(self, mission: Mission, source: Source) -> None:
        """Bring everything up to the journal's head; edited files are set aside. :meth:`find_edits` comes first.

        Raises:
            OSError: the project's folder cannot be written.
            WorkspaceFault: a symbolic link stands in the way.
            StorageFailed: the state home cannot be written.
            JournalBroken: the journal has a broken line; nothing is overwritten.
        """
        self._mission = mission
        faults = [self._write_notice()]
        if os.path.isdir(self._project_path):
            faults.append(self._write_files(source))
        self._kept.covered = source.head
        self._kept.save()
        for fault in faults:
            if fault is not None:
                raise fault

    def _write_files(self, source: Source) -> OSError | AutoresearchError | None:
        """All that stands in the project; returns why the mode state could not be written."""
        with (
            self._open(make=True) as task,
            task.below("state", make=True) as state,
            task.below("logs", make=True) as logs,
        ):
            _make_inbox(task)
            state.sweep()
            logs.sweep()
            sessions = self._write_lines(source, {"state": state, "logs": logs})
            self._kept.covered = source.head
            fault = self._write_modes(sessions)
            self._replace_states(state)
            self._copy_heartbeat(logs)
        if self._mission.phase == "complete" and fault is None:
            try:
                write_completion(self._mission)
            except (OSError, AutoresearchError) as error:
                return error
        return fault

    # --- what others did

    def _is_journal_known(self, source: Source) -> bool:
        """True when the journal still holds the record up to which the line files go."""
        covered = self._kept.covered
        if covered is None:
            return False
        try:
            for _ in source.read_from(covered.size_bytes, expect=covered):
                break
        except JournalBroken:  # a copy was put back, or the rest of one is gone on with
            return False
        return True

    def _found_stamps(self) -> dict[str, Stamp | None]:
        """The stamp of what stands under each name; None where there is no file, or its folder is a link."""
        found: dict[str, Stamp | None] = dict.fromkeys(NAMES)
        for sub in ("state", "logs"):
            try:
                with self._open(sub) as folder:
                    for name in NAMES:
                        if os.path.dirname(name) == sub:
                            found[name] = folder.stamp(os.path.basename(name))
            except (OSError, WorkspaceFault):
                continue  # not there, or something else is, which says so when it is written to
        return found

    def _judged(self, name: str, source: Source, ts: str, *, is_known: bool) -> Edit | None:
        """The edit of this file; None where it is as the runtime left it, behind the journal, or torn by a crash."""
        sub, leaf = os.path.split(name)
        with self._open(sub) as folder:
            moved_to = f"{sub}/{_edited_name(folder, leaf, ts)}"
            try:
                with os.fdopen(folder.open_plain(leaf), "rb") as stream:
                    if name in STATE_FILES:
                        added = self._added_entries(name, stream.read(_STATE_BYTES + 1))
                    else:
                        stamp = self._kept.stamp(name)
                        left = (stamp[1] if is_known else None) if stamp else None
                        lines = (projection_texts.line_of(name, entry) for entry in source.read_from())
                        added = _added_lines(stream, filter(None, lines), left)
            except WorkspaceFault:
                added = None  # a link, a pipe, a folder: nothing in it is read
            except FileNotFoundError:
                return None
        if added == ():
            return None
        return Edit(name, added) if added and name in ADDABLE else Edit(name, moved_to=moved_to)

    def _added_entries(self, name: str, data: bytes) -> tuple[str, ...] | None:
        """The entries that were added to the list of a state file; None where it was edited in another way."""
        if (
            digest_of(data) in self._kept.digests(name)
            or data == projection_texts.states(self._mission)[name]
        ):
            return ()
        try:
            found = decode_document(data) if len(data) <= _STATE_BYTES else None
        except ValueError:
            return None
        if not self._kept.digests(name):  # how we left it is lost: all that can be compared is the form
            right = decode(projection_texts.states(self._mission)[name])
            if isinstance(right, dict):
                return () if isinstance(found, dict) and found.keys() == right.keys() else None
        if name != projection_texts.DIRECTIONS or not isinstance(found, list):
            return None
        ours = self._count_of_ours(found)
        if ours is None or len(found) - ours > ADDED_LINES:
            return None
        texts = (item if isinstance(item, str) else encode(item).decode() for item in found[ours:])
        return tuple(text for text in texts if text.strip())

    def _count_of_ours(self, found: list[Any]) -> int | None:
        """The number of entries that the runtime wrote at the beginning of a list; None if some were changed."""
        lines = [projection_texts.direction_line(item) for item in found[: len(self._mission.directions)]]
        for digest in self._kept.digests(projection_texts.DIRECTIONS)[:1]:
            counts = range(len(lines), -1, -1)
            return next((n for n in counts if digest_of(projection_texts.list_of(lines[:n])) == digest), None)
        tried = [item.fingerprint for item in self._mission.directions]
        marks = [item.get("fingerprint") if isinstance(item, dict) else None for item in found]
        return next(
            (n for n, (one, other) in enumerate(zip(tried, marks, strict=False)) if one != other), len(lines)
        )

    # --- writing

    def _write_lines(self, source: Source, folders: dict[str, OmxFolder]) -> set[str]:
        """Bring the line files up; returns sessions that were held once and may read active still."""
        covered = self._kept.covered
        anew = self._anew.intersection(LINE_FILES)
        if covered is None or len(anew) == len(LINE_FILES) or source.head.seq - covered.seq > MANY_RECORDS:
            return self._rewrite_lines(source, folders, set(LINE_FILES))
        if anew:
            self._rewrite_lines(source, folders, anew)
        entries = tuple(source.read_from(covered.size_bytes, expect=covered))
        for name in LINE_FILES:
            lines, stamp = (
                b"".join(projection_texts.line_of(name, entry) for entry in entries),
                self._kept.stamp(name),
            )
            if name not in anew and lines and stamp is not None:
                sub, leaf = os.path.split(name)
                now = folders[sub].append(leaf, lines, expected=stamp)
                # A file that changed in between is not kept, so that the next look judges it.
                if now is not None and now[1] == stamp[1] + len(lines):
                    self._kept.keep(name, now)
        return set()

    def _rewrite_lines(self, source: Source, folders: dict[str, OmxFolder], names: set[str]) -> set[str]:
        """Write line files from the whole journal, in one pass and memory of one line; returns every held session."""
        temporaries: dict[str, str] = {}
        streams: dict[str, BinaryIO] = {}
        sessions: set[str] = set()
        try:
            for name in names:
                folder = folders[os.path.dirname(name)]
                descriptor, temporaries[name] = folder.write_new()
                streams[name] = os.fdopen(descriptor, "wb")
            for entry in source.read_from():
                if entry.kind == "session_bound":
                    sessions.add(str(entry.data.get("session_id", "")))
                for name, stream in streams.items():
                    stream.write(projection_texts.line_of(name, entry))
            for name, temporary in temporaries.items():
                streams[name].close()
                folder = folders[os.path.dirname(name)]
                stamp = folder.stamp(temporary)
                if self._put(folder, name, temporary) and stamp is not None:
                    self._kept.keep(name, stamp)
        finally:
            for name, temporary in temporaries.items():
                folders[os.path.dirname(name)].drop(temporary)  # nothing is left of one that was put
            for stream in streams.values():
                stream.close()
        return sessions

    def _replace_states(self, folder: OmxFolder) -> None:
        """Replace the state files that change. How they will stand is kept before, so that a crash is no edit."""
        prepared: dict[str, str] = {}
        try:
            for name, data in projection_texts.states(self._mission).items():
                if name in self._anew or digest_of(data) not in self._kept.digests(name)[:1]:
                    prepared[name], stamp = folder.prepare(data)
                    self._kept.keep(name, stamp, data)
            self._kept.save()
            for name, temporary in prepared.items():
                self._put(folder, name, temporary)
        finally:
            for temporary in prepared.values():
                folder.drop(temporary)  # nothing is left of one that was put

    def _put(self, folder: OmxFolder, name: str, temporary: str) -> bool:
        """Give a temporary file its name and set an edited one aside; False if that changed since it was judged."""
        leaf, edit = os.path.basename(name), self._edits.get(name)
        before = self._stamps.get(name)
        if folder.stamp(leaf) != before:
            return False
        if edit is not None:
            aside = os.path.basename(edit.moved_to) or _edited_name(folder, leaf, self._mission.updated_at)
            folder.move(leaf, folder, aside)
            if not edit.moved_to and folder.stamp(aside) == before:
                folder.drop(aside)  # all that was added in it is in the journal
            _make_room(folder, leaf)
        folder.put(temporary, leaf)
        return True

    def _write_notice(self) -> OSError | AutoresearchError | None:
        """Write ``NOTICE`` for the owner, in the state home; returns why it could not be written."""
        data, path = projection_texts.notice(self._mission).encode("utf-8"), self._folder.notice_path
        try:
            if read_bounded(path, _KEPT_BYTES) == data:
                return None
        except (OSError, StateUntrusted):
            pass  # write it anew
        try:
            replace_file(path, data, is_durable=False)
        except (OSError, AutoresearchError) as error:
            return error
        return None

    # --- the mode state of sessions: written anew where it is not right, never edited back

    def _write_modes(self, sessions: set[str]) -> OSError | AutoresearchError | None:
        """The session that is held reads active, those that were held do not; returns why it could not be written."""
        binding = self._mission.binding
        held = binding.session_id if binding is not None else ""
        try:
            for session_id in (sessions | {self._kept.session_id}) - {held, ""}:
                self._write_mode(session_id, is_held=False)
            if held:
                self._write_mode(held, is_held=True)
        except (OSError, AutoresearchError) as error:
            return error  # the caller raises it after the other files
        self._kept.session_id = held
        return None

    def _write_mode(self, session_id: str, *, is_held: bool) -> None:
        path, name = os.path.split(projection_texts.mode_path(session_id))
        data = projection_texts.pretty(projection_texts.mode_state(self._mission, session_id))
        try:
            with OmxFolder(self._project_path, path, make=is_held) as folder:
                folder.sweep()
                try:
                    found = folder.read(name, _KEPT_BYTES)
                except (FileNotFoundError, WorkspaceFault):
                    found = b""
                # One that another mission holds now is left to it.
                is_ours = is_held or encode(self._mission.task_id) in found
                if is_ours and found != data:
                    folder.replace(name, data)
        except (FileNotFoundError, WorkspaceFault):
            if is_held:
                raise

    def _copy_heartbeat(self, logs: OmxFolder) -> None:
        """Copy what the heartbeat has gained; it is no part of the journal and is never edited back."""
        stamp = None if self._anew.issuperset(LINE_FILES) else logs.stamp(_HEARTBEAT)
        try:
            source = os.fdopen(open_regular(self._folder.heartbeat_path), "rb")
        except FileNotFoundError:
            return
        with source:
            size = os.fstat(source.fileno()).st_size
            if stamp is None or not stamp[0] or stamp[1] > size or not _begins_alike(source, logs):
                stamp = logs.replace(_HEARTBEAT, b"")
            source.seek(stamp[1])
            while gained := source.read(_COPY_BYTES):
                logs.append(_HEARTBEAT, gained)

    def _open(self, sub: str = "", *, make: bool = False) -> OmxFolder:
        path = os.path.relpath(self._task_path, self._project_path)
        return OmxFolder(self._project_path, os.path.join(path, sub) if sub else path, make=make)


def _begins_alike(source: BinaryIO, logs: OmxFolder) -> bool:
    """The copy was made of this file, and not of one that was full and was set aside."""
    return source.read(_BEGINNING_BYTES).startswith(logs.read(_HEARTBEAT, _BEGINNING_BYTES))


def write_completion(mission: Mission) -> None:
    """Write the completion artifact, which the owner's tools read, beside mission.md.

    Raises:
        WorkspaceFault: a symbolic link stands in the way: what an agent may write must not choose where we write.
        OSError: the project cannot be written.
    """
    path, name = os.path.split(completion_path(mission))
    data = projection_texts.completion(mission)
    if fault_of(mission, completion_path(mission), (data,)) != (0, ""):
        with OmxFolder(mission.project_path, path, make=True) as folder:
            folder.sweep()
            folder.replace(name, data)


def fault_of(
    mission: Mission, path: str, parts: Iterable[bytes], *, may_lag: bool = False
) -> tuple[int, str]:
    """Where a file does not hold these parts and nothing else: the number of the part, from 1, and a predicate.

    Args:
        mission: whose project holds the file.
        path: of the file, relative to the project.
        parts: what should stand there: the whole content, or its lines.
        may_lag: the file may end early, or be missing.

    Returns:
        0 and an empty text where it does; 0 and why for a file that cannot be read.
    """
    sub, leaf = os.path.split(path)
    number = 0
    try:
        with (
            OmxFolder(mission.project_path, sub) as folder,
            os.fdopen(folder.open_plain(leaf), "rb") as stream,
        ):
            for number, part in enumerate(parts, 1):
                found = stream.read(len(part))
                if found != part:
                    return (0, "") if may_lag and part.startswith(found) else (number, _DIFFERS)
            return (number + 1, _DIFFERS) if stream.read(1) else (0, "")
    except FileNotFoundError:
        return 0, "" if may_lag else "is missing"
    except WorkspaceFault as error:
        return 0, f"cannot be read: {error.message}"
    except OSError as error:
        return 0, f"cannot be read: {error.strerror}"


class _Kept:
    """``projected.json``: how we left the files.

    Attributes:
        covered: the record up to which the line files go; None when nothing is known.
        session_id: whose mode state reads active; empty for none.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._files: dict[str, dict[str, Any]] = {}
        self.covered: Head | None = None
        self.session_id = ""
        try:
            data = decode(read_bounded(path, _KEPT_BYTES))
            values = [*data["covered"].values(), data["session_id"]]
            if data["format"] == _FORMAT and [type(value) for value in values] == _KEPT_TYPES:
                self.covered, self.session_id = Head(**data["covered"]), data["session_id"]
                self._files = {name: dict(data["files"][name]) for name in data["files"]}
        except (OSError, StateUntrusted, ValueError, KeyError, TypeError, AttributeError):
            self.covered, self.session_id, self._files = None, "", {}

    def save(self) -> None:
        """Write it, in place and not durably: a torn one is a lost one, and a rename would cost a flush of the disk.

        Raises:
            StorageFailed: the state home cannot be written.
        """
        content = {
            "format": _FORMAT,
            "covered": to_plain(self.covered) if self.covered else None,
            "session_id": self.session_id,
            "files": self._files,
        }
        data = encode_unchecked(content) + b"\n"
        try:
            descriptor = open_regular(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW)
            try:
                write_all(descriptor, data)
                os.ftruncate(descriptor, len(data))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_failed("write", self._path, error) from error

    def stamp(self, name: str) -> Stamp | None:
        """The stamp of a file as it was left; None when unknown."""
        found = self._files.get(name, {}).get("stamp")
        return (found[0], found[1], found[2]) if isinstance(found, list) and len(found) == 3 else None

    def keep(self, name: str, stamp: Stamp, data: bytes | None = None) -> None:
        """Remember how we leave a file; of a state file also what stands in it, and what stood there before."""
        digests = [digest_of(data), *self.digests(name)[:1]] if data is not None else []
        self._files[name] = {"stamp": list(stamp), "digests": digests}

    def digests(self, name: str) -> tuple[str, ...]:
        """Of a state file's content as we wrote it last, and the time before."""
        return tuple(self._files.get(name, {}).get("digests", ()))


def _added_lines(stream: BinaryIO, rights: Iterator[bytes], left: int | None) -> tuple[str, ...] | None:
    """The whole lines that stand behind ours in a line file; None where something else was done to it.

    Line ends, blank lines and a byte order mark are an editor's business and no edit.

    Args:
        stream: what stands there.
        rights: the lines that should.
        left: with how many bytes we left it; None where that is not known.
    """
    added: list[str] = []
    matched = size = 0
    right = next(rights, None)
    for raw in iter(lambda: stream.readline(_LINE_BYTES), b""):
        line = raw.removeprefix(_BOM).rstrip(b"\r\n")
        if not line.strip():
            continue
        if right is not None and line == right[:-1]:
            matched += len(right)
            right = next(rights, None)
            continue
        if right is not None and not raw.endswith(b"\n") and right.startswith(line):
            matched += len(line)  # torn by a crash of the runtime
            continue
        if matched < left if left is not None else right is not None:
            return None
        size += len(line)
        if len(added) == ADDED_LINES or size > ADDED_BYTES or not (raw.endswith(b"\n") or _is_object(line)):
            return None
        added.append(line.decode("utf-8", "replace").strip())
    return None if left is not None and matched < left else tuple(added)


def _is_object(line: bytes) -> bool:
    """True for a whole JSON object: such a last line is finished, though its newline is missing."""
    try:
        return isinstance(decode(line), dict)
    except ValueError:
        return False


def _edited_name(folder: OmxFolder, leaf: str, ts: str) -> str:
    """``findings.edited-20260102T030405Z.jsonl``, with a number where that stands already."""
    stem, ending = os.path.splitext(leaf)
    stamp = ts[:19].replace("-", "").replace(":", "")
    name, number = f"{stem}.edited-{stamp}Z{ending}", 1
    while folder.exists(name):
        number += 1
        name = f"{stem}.edited-{stamp}Z-{number}{ending}"
    return name


def _make_room(folder: OmxFolder, leaf: str) -> None:
    older = [name for name in folder.names() if name.startswith(f"{os.path.splitext(leaf)[0]}.edited-")]
    for name in older[: max(0, len(older) - EDITED_LIMIT)]:
        folder.drop(name)


def _make_inbox(task: OmxFolder) -> None:
    """People may put files there."""
    try:
        task.below("inbox", make=True).close()
    except WorkspaceFault:
        return  # they have put something else
