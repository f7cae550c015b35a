"""The status line process: the client's JSON in, one line of stable width out, exit 0 whatever happens.

    Research 4      stale  1  open  2  checked  3m  heard 12s

The words of the line are ``Research N`` (a running mission and its iteration), ``Pivot`` (a change of structure is
due), ``Unheld`` (the session was lost, or a setting turned the hooks off), ``Blocked``, ``Paused``, ``Done`` (for some
minutes), ``Invalid`` and ``Missing``. A session that no mission holds gets nothing. ``unproven prompt`` stands
behind it where a command came that no proof shows to be a person's. Clients ask for it several times a second while an
agent talks: it renders what the store put into the snapshot for it, the same fields that ``status`` shows, with as few
imports as the hook. It shows nothing rather than an error.
"""

from __future__ import annotations

import os
import sys

from omx_autoresearch.surfaces import hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.foundation.clients import KnownClient

    Plain = dict[str, Any]

WORD = "statusline"
"""The word that the installed script gets in the place of a client's name."""
DONE_SECONDS = 600
"""How long a completed mission is still shown."""
CATCH_UP_BYTES = 1024 * 1024
"""Records behind the snapshot that are still read; beyond, the snapshot is shown as it is."""
_LABEL_WIDTH = 14
_SMALL_BYTES = 16 * 1024 * 1024
_MODE_STATE_BYTES = 64 * 1024
"""The most that is read of a mode state, which anyone can write; the runtime writes much less."""
_SETTINGS_BYTES = 1024 * 1024
_SAFE = b"abcdefghijklmnopqrstuvwxyz0123456789.-_"
_PROJECT_KEYS = (b'"project_dir"', b'"current_dir"')


def main(argv: list[str]) -> int:
    """Print the line for the session on stdin; ``argv`` is program, state home, word."""
    if len(argv) != 3:
        return 0
    try:
        line = line_for(hook.read_event(0), argv[1])
        if line:
            os.write(1, line.encode("ascii", "replace") + b"\n")
    except BaseException:  # noqa: BLE001 - a person looks at this line all day: nothing is better than a traceback
        return 0
    return 0


def line_for(raw: bytes, home_path: str) -> str:
    """The line for one call of the client; empty when no mission holds the session."""
    session = _session_of(raw)
    if not session:
        return ""
    task = _bound_task(home_path, session)
    if not task:
        task = _ended_task(raw, session)
        return _done_line(home_path, task, session) if task else ""
    folder_path = os.path.join(home_path, "missions", task)
    shown = _shown(folder_path)
    if isinstance(shown, str):
        return composed(shown, 0, 0)
    # what the journal says of the session wins over the registry
    if shown["session_id"] != session:
        return ""
    is_unheld = shown["phase"] == "running" and (_is_lost(shown, folder_path) or _is_switched_off(raw))
    return _whole("Unheld" if is_unheld else label_of(shown), shown, folder_path)


def _is_lost(shown: Plain, folder_path: str) -> bool:
    """Whether the hold was lost, and no event of the session was seen since."""
    lost_at = str(shown.get("hold_lost_at", ""))  # a snapshot of an older version has none
    return bool(lost_at) and _heard_at(folder_path) <= lost_at


def _is_switched_off(raw: bytes) -> bool:
    """Whether a settings file that an agent can write turns the hooks off, or lets the client override them early.

    What ``status`` asks is asked only where such a file names a setting that may do so.
    """
    from omx_autoresearch.foundation.clients import KNOWN

    folders = [found for key in _PROJECT_KEYS if (found := hook.value_in(raw, key)) is not None]
    home_path = os.environ.get("HOME", "")
    for project_path in map(os.fsdecode, dict.fromkeys(folders)):
        for name, client in KNOWN.items():
            user_path = os.environ.get(client.folder_variable) or os.path.join(home_path, client.folder)
            paths = (user_path, os.path.join(project_path, client.folder)) if client.hold_settings else ()
            if any(_may_end_hold(path, client) for path in paths) and _ends_hold(name, project_path):
                return True
    return False


def _may_end_hold(folder_path: str, client: KnownClient) -> bool:
    """Whether a settings file in a folder names a setting that may end a hold, beside what we install."""
    for name in ("settings.json", "settings.local.json"):
        text = _small_file(os.path.join(folder_path, name)).replace(client.installed_setting.encode(), b"")
        if any(setting.encode() in text for setting in client.hold_settings):
            return True
    return False


def _ends_hold(client_name: str, project_path: str) -> bool:
    from omx_autoresearch.agents.parts.switches import lowered_caps, turned_off
    from omx_autoresearch.agents.registry import installation_of

    installation = installation_of(client_name, "user", os.environ, project_path)
    return bool(turned_off(installation) or lowered_caps(installation))


def _small_file(path: str) -> bytes:
    """The beginning of a file that anyone can write; empty where it cannot be read."""
    try:
        with open(path, "rb", buffering=0, opener=_without_waiting) as stream:
            return stream.read(_SETTINGS_BYTES) or b""
    except OSError:
        return b""


def _whole(label: str, shown: Plain, folder_path: str) -> str:
    checked = _seconds_since(shown["checked_at"]) if shown["checked_at"] else None
    heard_at = _heard_at(folder_path)
    heard = _seconds_since(heard_at) if heard_at else None
    still_open = len(shown["open_criteria"])
    line = composed(label, shown["stale_count"], still_open, _age_text(checked), _age_text(heard))
    return f"{line}  unproven prompt" if shown.get("has_unproven_prompt") else line


def composed(label: str, stale: int, still_open: int, checked: str = "", heard: str = "") -> str:
    """The line: fixed columns, so that whatever stands beside it does not move."""
    shown = label if len(label) <= _LABEL_WIDTH else label[: _LABEL_WIDTH - 1] + "+"
    columns = f"stale {min(stale, 99):>2}  open {min(still_open, 99):>2}  checked {checked or '-':>3}"
    return f"{shown:<{_LABEL_WIDTH}}  {columns}  heard {heard or '-':>3}"


def label_of(shown: Plain) -> str:
    """The word that says how a mission stands."""
    phase = str(shown["phase"])
    if phase == "running":
        return "Pivot" if shown["pivot_required"] else f"Research {shown['iteration']}"
    return "Done" if phase == "complete" else phase.capitalize()


# --- whose line it is


def _session_of(raw: bytes) -> str:
    """The session id: by the hook's byte scan, where that is sure of it; else as JSON."""
    found = hook.session_in(raw)
    if found is not None:
        return found.decode("utf-8", "replace")
    value = _parsed(raw).get("session_id") if raw.lstrip()[:1] == b"{" else ""
    return value if isinstance(value, str) else ""


def _bound_task(home_path: str, session: str) -> str:
    """The mission that the registry names for the session; empty for none."""
    try:
        path = os.path.join(home_path, "active", _file_name(session))
        with open(path, "rb", buffering=0, opener=_without_waiting) as stream:
            entry = _parsed(stream.read(_SMALL_BYTES) or b"")
    except OSError:
        return ""
    is_ours = entry.get("state") == "bound" and entry.get("session_id") == session
    return _safe_name(entry.get("task_id")) if is_ours else ""


def _ended_task(raw: bytes, session: str) -> str:
    """The mission that held the session last, by the mode state in its project; empty for none.

    A mission that ended has no entry in the registry; an agent may write this file, so the journal is asked next.
    """
    paths = [found for key in _PROJECT_KEYS if (found := hook.value_in(raw, key)) is not None]
    root_path = os.fsdecode(paths[0]) if paths else os.getcwd()
    name = os.path.join(".omx", "state", "sessions", _file_name(session), "autoresearch-state.json")
    try:
        with open(os.path.join(root_path, name), "rb", buffering=0, opener=_without_waiting) as stream:
            return _safe_name(_parsed(stream.read(_MODE_STATE_BYTES) or b"").get("task_id"))
    except OSError:
        return ""


def _without_waiting(path: str, flags: int) -> int:
    """Open what may be a pipe in the place of the file: it reads empty."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _done_line(home_path: str, task: str, session: str) -> str:
    folder_path = os.path.join(home_path, "missions", task)
    shown = _shown(folder_path)
    if isinstance(shown, str) or shown["phase"] != "complete":
        return ""
    if shown["last_session_id"] != session:
        return ""  # what completed the mission was another session's stop
    return _whole("Done", shown, folder_path) if _seconds_since(shown["completed_at"]) <= DONE_SECONDS else ""


def _file_name(session: str) -> str:
    """The name that stands for a session; the module that has the whole rule is loaded for unusual ids alone."""
    if hook.is_plain(session.encode("utf-8", "surrogatepass")):
        return session
    from omx_autoresearch.journal.layout import session_file_name

    return session_file_name(session)


def _safe_name(task: object) -> str:
    """A task id that is one path component; empty for anything else."""
    if not isinstance(task, str) or not task or task[0] in ".-":
        return ""
    return task if not task.encode("utf-8", "surrogatepass").strip(_SAFE) else ""


# --- how it stands


def _shown(folder_path: str) -> Plain | str:
    """The fields of ``missions.store.shown_of``; a word where there is nothing to show.

    The snapshot holds it, and is believed only while it covers the journal. What a writer that was killed left behind
    it is read too, where it is little.
    """
    try:
        journal = os.stat(os.path.join(folder_path, "journal.jsonl"))
    except OSError:
        return "Missing"
    from omx_autoresearch.missions import snapshots

    for _, content in snapshots.newest(folder_path):
        try:
            head, shown = content["head"], content["shown"]
            unread_bytes = journal.st_size - head["size_bytes"] if head["inode"] == journal.st_ino else -1
            is_current = "session_id" in shown  # not that of an older version
        except (KeyError, TypeError):
            continue
        is_whole = unread_bytes == 0 or unread_bytes > CATCH_UP_BYTES
        return shown if is_whole and is_current else _folded(folder_path)
    return _folded(folder_path) if journal.st_size <= CATCH_UP_BYTES else "Invalid"


def _folded(folder_path: str) -> Plain | str:
    """The mission as the store itself reads it; ``Invalid`` where it refuses to."""
    from omx_autoresearch.foundation.errors import AutoresearchError
    from omx_autoresearch.journal.layout import StateHome
    from omx_autoresearch.missions.store import MissionStore, shown_of

    home_path = os.path.dirname(os.path.dirname(folder_path))
    try:
        return shown_of(MissionStore(StateHome(home_path)).load(os.path.basename(folder_path)))
    except AutoresearchError:
        return "Invalid"


def _parsed(raw: bytes) -> Plain:
    from omx_autoresearch.foundation.json_codec import decoder

    try:
        value = decoder(dict)(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


# --- when it was heard of


def _heard_at(folder_path: str) -> str:
    """When the session was last heard of; empty for never."""
    try:
        path = os.path.join(folder_path, "heartbeat.jsonl")
        with open(path, "rb", buffering=0, opener=_without_waiting) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - 1024))
            lines = (stream.read(1024) or b"").split(b"\n")[:-1]
    except OSError:
        return ""
    whole = (line for line in reversed(lines) if line.startswith(b'{"ts":"') and line[34:35] == b'"')
    return next(whole, b"")[7:34].decode("ascii", "replace")


def _seconds_since(moment: str) -> float:
    """Seconds from a moment as it stands in records until now; infinite for one that cannot be read."""
    from omx_autoresearch.foundation.times import UTC, datetime

    try:
        return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())
    except (ValueError, TypeError):
        return float("inf")


def _age_text(seconds: float | None) -> str:
    """An age in at most three characters: ``12s``, ``3m``, ``9h``, ``2d``."""
    if seconds is None or seconds == float("inf"):
        return ""
    for unit, size_seconds, limit in (("s", 1, 60), ("m", 60, 60), ("h", 3600, 48)):
        if seconds < size_seconds * limit:
            return f"{int(seconds // size_seconds)}{unit}"
    return f"{min(99, int(seconds // 86400))}d"


if __name__ == "__main__":
    sys.exit(main(sys.argv))
