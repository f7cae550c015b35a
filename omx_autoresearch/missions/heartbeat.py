"""The pulse of a bound session: one line an event, appended without a lock and without fsync.

It is no part of the journal. It says when a client was last heard of (``hold: proven``), when a binding has expired,
and whether a tool ran since an offset. Lines are ``{"ts":...,"status":...,"session":...}``; the tool-event path writes
the same form by itself, without this module (``surfaces/hook.py``).
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.errors import AutoresearchError
from omx_autoresearch.foundation.json_codec import decode, encode
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.times import datetime
from omx_autoresearch.journal.safe_files import write_all
from omx_autoresearch.missions.store import MissionStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.mission import Mission

TOOL_MARK = b'"status":"tool"'
"""How a tool event looks in the file, byte for byte."""
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


def beat(path: str, *, at: str, status: str, session_id: str) -> None:
    """Append one line.

    Raises:
        OSError: the file cannot be written; a failed heartbeat warns and the caller goes on.
    """
    line = encode({"ts": at, "status": status, "session": session_id}) + b"\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        write_all(descriptor, line)
    finally:
        os.close(descriptor)


def size_of(path: str) -> int:
    """Bytes of the file; 0 when there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def has_tool_after(path: str, offset: int) -> bool:
    """True when a tool event stands in the file behind ``offset``."""
    try:
        with open(path, "rb") as stream:
            stream.seek(offset)
            return TOOL_MARK in stream.read(_SCAN_BYTES)
    except OSError:
        return False


def tools_after(path: str, offset: int) -> int:
    """How many tool events stand in the file behind ``offset``; 0 when it cannot be read."""
    try:
        with open(path, "rb") as stream:
            stream.seek(offset)
            return stream.read(_SCAN_BYTES).count(TOOL_MARK)
    except OSError:
        return 0


def last_beat(path: str) -> Beat | None:
    """The newest whole line with a readable time; None when nothing was heard yet."""
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
            lines = stream.read().split(b"\n")
    except OSError:
        return None
    for line in reversed(lines[:-1]):
        try:
            value = decode(line)
            found = Beat(str(value["ts"]), str(value["status"]), str(value["session"]))
            if datetime.fromisoformat(found.at).utcoffset() is not None:
                return found
        except (ValueError, KeyError, TypeError):
            continue
    return None


# --- A heartbeat that could not be written: warned of, recorded once a turn, and no reason to hold or release anybody.


def note_failed_heartbeat(runtime: Runtime, mission: Mission, status: str, error: OSError) -> None:
    """Record that a heartbeat failed, where the journal can be written and has not said it in this turn."""
    if mission.turn_heartbeat_failed:
        return
    from omx_autoresearch.missions.records.sessions import HeartbeatFailed

    try:
        with MissionStore(runtime.home).transaction(mission.task_id, runtime.now()) as transaction:
            if not transaction.mission.turn_heartbeat_failed:
                transaction.record(HeartbeatFailed(status, error.strerror or type(error).__name__))
    except AutoresearchError:
        return  # the disk that refuses the one will refuse the other
