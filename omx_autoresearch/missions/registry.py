"""Sessions in the state home: the mission that holds each, its last sign of life, the faults that it was told.

The registry, one small file a session in ``active/``, is what a hook finds a mission by, whatever the cwd is; the
journal says the same and wins. :func:`bound_mission` answers which mission holds a session; only what may load no
module reads the files by itself (the short path of ``surfaces/hook.py``, the status line). The folder is also the
sign that anything is active at all: it stands exactly while it holds an entry, and without it the hook's shell line
looks no further. (The line cannot look for files itself: zsh and fish, by which Codex runs it, read a pattern that
matches nothing in ways of their own.)

Four kinds of entries stand there: ``bound``, ``pending`` (an agent ran ``start`` itself; its next tool event
confirms), ``token`` (a client whose shell has no session id; the token's digest is the file's name) and ``reviewing``
(a session gave a verdict on another one's artifact; its next tool event confirms).
"""

from __future__ import annotations

import os

from omx_autoresearch.agents.events import Reply
from omx_autoresearch.foundation.errors import AutoresearchError, JournalBroken, StateUntrusted, StorageFailed
from omx_autoresearch.foundation.json_codec import decode, encode
from omx_autoresearch.foundation.records import ShapeError, as_fields, dataclass, from_plain, sha256, to_plain
from omx_autoresearch.foundation.text import MARK
from omx_autoresearch.foundation.times import datetime, seconds_between
from omx_autoresearch.journal.layout import HASH_PREFIX
from omx_autoresearch.journal.safe_files import (
    ensure_folder,
    load_json,
    open_regular,
    read_bounded,
    replace_file,
    storage_failed,
    sweep_temporary,
    sync_folder,
    write_all,
)
from omx_autoresearch.missions.rules import briefing
from omx_autoresearch.missions.store import MissionStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omx_autoresearch.agents.events import HookEvent
    from omx_autoresearch.foundation.types import SessionState
    from omx_autoresearch.journal.layout import Runtime, StateHome
    from omx_autoresearch.missions.rules.mission import Mission

STATES = ("bound", "pending", "token", "reviewing")
PUT_TRIES = 1000
"""How often an entry may lose its folder to a process that takes the last one out. Each loss is an unbind that another
process finished meanwhile, so only an endless storm of them, or a folder that cannot stay, uses this up."""
TOKEN_PREFIX = f"{HASH_PREFIX}token-"
TOKEN_WORD = "omx-bind-"  # noqa: S105 - the visible beginning of every token, no secret
"""How a bind token begins in the output of ``start``; the hook scans tool output for it."""


@dataclass(frozen=True, slots=True)
class ActiveSession:
    """One file of the registry.

    Attributes:
        state: ``bound``, ``pending``, ``token`` or ``reviewing``.
        session_id: the client's session id, verbatim; empty for a token.
        task_id: of the mission.
        workspace_path: where the agent works.
        client: the dialect's name; empty while unknown.
        client_pid: of the client process; 0 while unknown.
        client_started: start mark of that process.
        at: when the entry was made, ISO 8601 UTC.
        expires_at: of what waits for a tool event; empty for a bound session.
        left_at: when another session began in the client's process, so that a call from there is not this session's;
            empty while this one is the newest.
    """

    state: SessionState
    session_id: str
    task_id: str
    workspace_path: str
    client: str = ""
    client_pid: int = 0
    client_started: str = ""
    at: str = ""
    expires_at: str = ""
    left_at: str = ""


class Registry:
    """The ``active/`` folder of a state home."""

    def __init__(self, home: StateHome) -> None:
        self._home = home

    def find(self, session_id: str) -> ActiveSession | None:
        """The entry of a session, or None.

        Raises:
            StateUntrusted: the file is there and cannot be read as an entry.
        """
        return self._load(self._home.session_path(session_id)) if session_id else None

    def bound(self, session_id: str) -> ActiveSession | None:
        """The entry of a session that is bound, and no other's; see :func:`bound_mission`."""
        entry = self.find(session_id)
        is_bound = entry is not None and entry.state == "bound" and entry.session_id == session_id
        return entry if is_bound else None

    def find_token(self, token: str) -> ActiveSession | None:
        """The pending bind that this token was made for, or None."""
        return self._load(os.path.join(self._home.active_path, token_name(token)))

    def put(self, entry: ActiveSession, *, token: str = "") -> None:
        """Write an entry, replacing an older one of the same session (or token)."""
        path = (
            os.path.join(self._home.active_path, token_name(token))
            if entry.state == "token"
            else self._home.session_path(entry.session_id)
        )
        for tries_left in reversed(range(PUT_TRIES)):
            ensure_folder(self._home.active_path)
            try:
                # A temporary file that a killed process left in the folder would keep it standing.
                data = encode(to_plain(entry)) + b"\n"
                replace_file(path, data, temporary_in=self._home.root_path)
                return
            except StorageFailed as error:
                # another process took the last entry out, and the folder with it, between the two lines above
                if not tries_left or not isinstance(error.__cause__, FileNotFoundError):
                    raise

    def remove(self, session_id: str) -> None:
        """Forget a session; nothing happens when it is unknown."""
        self._unlink(self._home.session_path(session_id))

    def remove_token(self, token: str) -> bool:
        """A token is used once: True for the one process that took it out."""
        return self._unlink(os.path.join(self._home.active_path, token_name(token)))

    def remove_task(self, task_id: str) -> None:
        """A mission ended: forget every session and token of it.

        Raises:
            StorageFailed: one of them cannot be removed; all that can be are.
        """
        self.remove_if(lambda entry: entry.task_id == task_id)

    def remove_if(self, is_meant: Callable[[ActiveSession], bool]) -> tuple[str, ...]:
        """Remove every entry that is meant, and what killed writers left; returns their paths.

        Raises:
            StorageFailed: one of them cannot be removed; all that can be are.
        """
        folder_path = self._home.active_path
        removed = [os.path.join(folder_path, name) for name in sweep_temporary(folder_path)]
        fault = None
        for name, entry in self._readable():
            if is_meant(entry):
                try:
                    self._unlink(os.path.join(folder_path, name))
                    removed.append(os.path.join(folder_path, name))
                except StorageFailed as error:
                    fault = error
        self._close_empty()
        if fault is not None:
            raise fault
        return tuple(removed)

    def entries(self) -> tuple[ActiveSession, ...]:
        """Every entry that can be read; a damaged one is skipped here, and an error to whom it concerns."""
        return tuple(entry for _, entry in self._readable())

    def _names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._home.active_path) if not name.startswith("."))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_failed("read", self._home.active_path, error) from error

    def _readable(self) -> list[tuple[str, ActiveSession]]:
        found = []
        for name in self._names():
            try:
                entry = self._load(os.path.join(self._home.active_path, name))
            except StateUntrusted:
                continue
            if entry is not None:
                found.append((name, entry))
        return found

    def _load(self, path: str) -> ActiveSession | None:
        try:
            entry: ActiveSession = from_plain(ActiveSession, load_json(path))
        except FileNotFoundError:
            if os.path.lexists(path):
                raise _damaged(path, "it is a broken link") from None
            return None  # also one that another process has just removed
        except ShapeError as error:
            raise _damaged(path, str(error)) from None
        texts = [value for name, value in as_fields(entry).items() if name != "client_pid"]
        if entry.state not in STATES or not all(isinstance(text, str) for text in texts):
            raise _damaged(path, "a field has an impossible value")
        return entry

    def _unlink(self, path: str) -> bool:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise storage_failed("remove", path, error) from error
        self._close_empty()
        return True

    def _close_empty(self) -> None:
        """Remove the folder with its last entry, so that the hook's shell line looks no further."""
        try:
            sync_folder(self._home.active_path)
            os.rmdir(self._home.active_path)
        except OSError:  # it holds other entries, or another process took it away already
            pass


def _damaged(path: str, why: str) -> StateUntrusted:
    return StateUntrusted(
        f"the registry file {path} is damaged: {why}", next_step=f"remove {path} and start again"
    )


def token_name(token: str) -> str:
    """The file name of a token: its digest, so that the registry never shows one."""
    return TOKEN_PREFIX + sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def bound_mission(home: StateHome, session_id: str) -> Mission | None:
    """The mission that holds a session: the registry names it, and its journal says the same; else None.

    Raises:
        StateUntrusted: the registry's file cannot be read as an entry.
        JournalBroken: the journal is gone, or has a broken line.
    """
    entry = Registry(home).bound(session_id)
    return mission_of(home, entry) if entry is not None else None


def mission_of(home: StateHome, entry: ActiveSession) -> Mission | None:
    """The mission that a bound session's entry names, where the journal says the same; None where it does not.

    Raises:
        JournalBroken: the journal is gone, or has a broken line.
    """
    store = MissionStore(home)
    if not store.exists(entry.task_id):
        raise JournalBroken(
            f"{home.mission(entry.task_id).journal_path} is gone, and session {entry.session_id[:80]!r} is bound to "
            "its mission",
            next_step=f"restore the folder from a copy, or forget the session: remove "
            f"{home.session_path(entry.session_id)}",
        )
    mission = store.load(entry.task_id)
    is_ours = mission.binding is not None and mission.binding.session_id == entry.session_id
    return mission if is_ours else None


# --- Heartbeats of a bound session: one line an event, appended without a lock and without fsync.
#
# They are no part of the journal. They say when a client was last heard of (``hold: proven``), when a binding has
# expired, and whether a tool ran since an offset. Lines are ``{"ts":...,"status":...,"session":...}``; the tool-event
# path writes the same form by itself, without this module (``surfaces/hook.py``).

TOOL_MARK = b'"status":"tool"'
"""The bytes of a tool event in the file."""
HEARTBEAT_LIMIT_BYTES = 4 * 1024 * 1024
"""A longer file is set aside when the next turn begins or ends, and takes the place of the one set aside before."""
_TAIL_BYTES = 64 * 1024
_SCAN_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Beat:
    """The newest line.

    Attributes:
        at: when, ISO 8601 UTC.
        status: ``starting_turn``, ``turn_done``, ``tool``, ``session_start``, ...
        session_id: of the client.
    """

    at: str
    status: str
    session_id: str


def beat(path: str, *, at: str, status: str, session_id: str) -> bool:
    """Append one line, on a line of its own also where a crash tore the last one.

    Returns:
        whether the last line was torn.

    Raises:
        OSError: the file cannot be written; a failed heartbeat warns and the caller goes on.
    """
    line = encode({"ts": at, "status": status, "session": session_id}) + b"\n"
    if _is_full(path):
        os.replace(path, _older(path))
    descriptor = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW)
    try:
        size = os.fstat(descriptor).st_size
        if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
            write_all(descriptor, line)
            return False
        write_all(descriptor, b"\n" + line)
        # Asked again behind our own write, which waited for any that was under way: a torn line is torn still.
        before = os.lseek(descriptor, 0, os.SEEK_CUR) - len(line) - 2
        return os.pread(descriptor, 1, before) != b"\n"
    finally:
        os.close(descriptor)


def _is_full(path: str) -> bool:
    try:
        return os.lstat(path).st_size > HEARTBEAT_LIMIT_BYTES
    except FileNotFoundError:
        return False


def size_of(path: str) -> int:
    """Bytes of the file; 0 when it is missing."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def tools_after(path: str, offset: int) -> int:
    """How many tool events stand behind ``offset``; 0 when they cannot be read.

    Args:
        path: of the file.
        offset: its size at an earlier moment; more than it has now where it has been set aside since.
    """
    if offset <= size_of(path):
        return _tools_in(path, offset)
    return _tools_in(_older(path), offset) + _tools_in(path, 0)


def _tools_in(path: str, offset: int) -> int:
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            gained = os.fstat(stream.fileno()).st_size - stream.seek(offset)
            return stream.read(max(0, min(gained, _SCAN_BYTES))).count(TOOL_MARK)
    except OSError:
        return 0


def last_beat(path: str) -> Beat | None:
    """The newest whole line with a readable time; None when nothing was heard yet."""
    return next(_newest_beats(path), None)


def last_beats(path: str) -> tuple[Beat, ...]:
    """The newest lines, as far as they stand in the last :data:`_TAIL_BYTES`, oldest first."""
    return tuple(_newest_beats(path))[::-1]


def _newest_beats(path: str) -> Iterator[Beat]:
    tail = _tail(path)
    if len(tail) < _TAIL_BYTES:
        tail = _tail(_older(path)) + b"\n" + tail
    lines = tail.split(b"\n")
    for line in filter(None, reversed(lines[:-1])):
        try:
            value = decode(line)
            found = Beat(str(value["ts"]), str(value["status"]), str(value["session"]))
            if datetime.fromisoformat(found.at).utcoffset() is not None:
                yield found
        except (ValueError, KeyError, TypeError):
            continue


def _tail(path: str) -> bytes:
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
            return stream.read()
    except OSError:
        return b""


def _older(path: str) -> str:
    """Where the lines stand that were set aside when the file was full."""
    return f"{path}.old"


def leave_heartbeat(runtime: Runtime, mission: Mission, status: str, session_id: str, *, at: str = "") -> str:
    """Leave one heartbeat; returns a warning when it cannot be written, which does not change the hold."""
    path = runtime.home.mission(mission.task_id).heartbeat_path
    try:
        is_torn = beat(path, at=at or runtime.now(), status=status, session_id=session_id)
    except OSError as error:
        _note_failed_heartbeat(runtime, mission, status, error)
        return f"{MARK} the heartbeat of {mission.task_id} could not be written ({error.strerror}); work goes on."
    torn = (
        f"{MARK} the last heartbeat of {mission.task_id} was torn by a crash; the torn line stays in {path}."
    )
    return torn if is_torn else ""


def _note_failed_heartbeat(runtime: Runtime, mission: Mission, status: str, error: OSError) -> None:
    """Record that a heartbeat failed, once a turn, where the journal can be written."""
    if mission.turn_heartbeat_failed:
        return
    from omx_autoresearch.missions.records.sessions import HeartbeatFailed

    try:
        with MissionStore(runtime.home).transaction(mission.task_id, runtime.now()) as transaction:
            if not transaction.mission.turn_heartbeat_failed:
                transaction.record(HeartbeatFailed(status, error.strerror or type(error).__name__))
    except AutoresearchError:
        return  # the disk that refuses the one will refuse the other


def is_expired(runtime: Runtime, mission: Mission, now: str) -> bool:
    """True when the bound session was not heard of for longer than ``session_idle_hours``.

    A person's ``resume`` or ``unblock`` counts as hearing of it.
    """
    if mission.binding is None:
        return True
    return seconds_unheard(runtime, mission, now) > mission.limits.session_idle_hours * 3600


def seconds_unheard(runtime: Runtime, mission: Mission, now: str) -> float:
    """Seconds since the last sign of life of the bound session; 0 for a mission without a session."""
    if mission.binding is None:
        return 0.0
    last = last_beat(runtime.home.mission(mission.task_id).heartbeat_path)
    newest = max(last.at if last else "", mission.binding.at, mission.running_since)
    return seconds_between(newest, now)


# --- A fault of the runtime at an event lets the session go; a broken journal is told once, not at every stop.

_TOLD_LIMIT_BYTES = 65536
"""The memory of one session; when it is full, every fault is told again."""


def fault_reply(runtime: Runtime, event: HookEvent, error: AutoresearchError) -> Reply:
    """The answer to an event that could not be decided: a release, which the person and the hook's log are told.

    A journal stays broken until a person mends it, so that is told once for each session and kind of event, and again
    when a session starts. Every other fault may be another one the next time, and is told each time.
    """
    fault = str(error)
    is_repeated = isinstance(error, JournalBroken) and event.kind != "session_start"
    if is_repeated and is_told_already(runtime.home, event.session_id, f"{event.kind}\n{fault}"):
        return Reply(fault=f"{fault} (told already)")
    return Reply(person_message=briefing.fault_for_person(fault), fault=fault)


def forget_faults(home: StateHome, session_id: str) -> None:
    """After a repair: a journal of this session that breaks again is told again."""
    try:
        os.unlink(home.told_path(session_id))
    except OSError:
        return


def is_told_already(home: StateHome, session_id: str, text: str) -> bool:
    """True when the session has heard this; remembers it otherwise. What cannot be remembered is told again."""
    path = home.told_path(session_id)
    line = sha256(text.encode("utf-8", "surrogatepass")).hexdigest().encode() + b"\n"
    try:
        try:
            if line in read_bounded(path, _TOLD_LIMIT_BYTES):
                return True
        except FileNotFoundError:
            ensure_folder(os.path.dirname(path))
        descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except (OSError, AutoresearchError):
        return False
    return False
