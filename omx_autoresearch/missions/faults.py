"""A fault of ours at an event of a session: it lets go, and a broken journal is told once, not at every stop."""

from __future__ import annotations

import os

from omx_autoresearch.agents.events import HookEvent, Reply
from omx_autoresearch.foundation.digests import sha256
from omx_autoresearch.foundation.errors import AutoresearchError, JournalBroken
from omx_autoresearch.missions.rules import briefing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime, StateHome

_TOLD_LIMIT_BYTES = 65536
"""What is remembered of one session; behind it every fault is told again."""


def fault_reply(runtime: Runtime, event: HookEvent, error: AutoresearchError) -> Reply:
    """The answer when nothing could be decided: a release, said to the person and always to the hook's log.

    A journal stays broken until a person mends it, so that is told once for each session and kind of event, and again
    when a session starts. Every other fault may be another one the next time, and is told each time.
    """
    fault = str(error)
    is_repeated = isinstance(error, JournalBroken) and event.kind != "session_start"
    if is_repeated and _is_told(runtime.home, event.session_id, f"{event.kind}\n{fault}"):
        return Reply(fault=f"{fault} (told already)")
    return Reply(person_message=briefing.fault_for_person(fault), fault=fault)


def forget_faults(home: StateHome, session_id: str) -> None:
    """After a repair: a journal of this session that breaks again is told again."""
    try:
        os.unlink(home.told_path(session_id))
    except OSError:
        return


def _is_told(home: StateHome, session_id: str, text: str) -> bool:
    """True when the session has heard this; remembers it otherwise. What cannot be remembered is told again."""
    from omx_autoresearch.journal.safe_files import ensure_folder, read_bounded

    path = home.told_path(session_id)
    line = sha256(text.encode("utf-8", "surrogatepass")).hexdigest().encode() + b"\n"
    try:
        try:
            if line in read_bounded(path, _TOLD_LIMIT_BYTES):
                return True
        except FileNotFoundError:
            ensure_folder(os.path.dirname(path))
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except (OSError, AutoresearchError):
        return False
    return False
