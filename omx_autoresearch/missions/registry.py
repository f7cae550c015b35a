"""Which session is bound to which mission: one small file a session in ``active/``.

The registry is what a hook finds a mission by, whatever the cwd is; the journal says the same and wins. It also is the
sign that anything is active at all: the folder stands exactly while it holds an entry, and without it the hook's shell
line looks no further. (The line cannot look for files itself: zsh and fish, by which Codex runs it, read a pattern that
matches nothing in ways of their own.)

Three kinds of entries stand there: ``bound``, ``pending`` (an agent ran ``start`` itself; its next tool event confirms)
and ``token`` (a client whose shell has no session id; the token's digest is the file's name).
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.digests import sha256
from omx_autoresearch.foundation.errors import StateUntrusted, StorageFailed
from omx_autoresearch.foundation.json_codec import encode
from omx_autoresearch.foundation.records import ShapeError, dataclass, from_plain, replace, to_plain
from omx_autoresearch.journal.layout import HASH_PREFIX, StateHome
from omx_autoresearch.journal.safe_files import (
    ensure_folder,
    load_json,
    replace_file,
    storage_failed,
    sync_folder,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.foundation.types import SessionState

STATES = ("bound", "pending", "token")
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
        state: ``bound``, ``pending`` or ``token``.
        session_id: the client's session id, verbatim; empty for a token.
        task_id: of the mission.
        workspace_path: where the agent works.
        client: the dialect's name; empty while unknown.
        client_pid: of the client process; 0 while unknown.
        client_started: start mark of that process.
        at: when the entry was made, ISO 8601 UTC.
        expires_at: of a pending bind or token; empty for a bound session.
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
                replace_file(path, encode(to_plain(entry)) + b"\n")
                return
            except StorageFailed as error:
                # another process took the last entry out, and the folder with it, between the two lines above
                if not tries_left or not isinstance(error.__cause__, FileNotFoundError):
                    raise

    def confirm(self, entry: ActiveSession, *, session_id: str, client: str, at: str) -> ActiveSession:
        """A pending entry or token becomes a bound session."""
        bound = replace(entry, state="bound", session_id=session_id, client=client, at=at, expires_at="")
        self.put(bound)
        return bound

    def remove(self, session_id: str) -> None:
        """Forget a session; nothing happens when it is unknown."""
        self._unlink(self._home.session_path(session_id))

    def remove_token(self, token: str) -> bool:
        """A token is used once: True for the one process that took it out."""
        return self._unlink(os.path.join(self._home.active_path, token_name(token)))

    def remove_task(self, task_id: str) -> None:
        """A mission ended: forget every session and token of it."""
        for name, entry in self._readable():
            if entry.task_id == task_id:
                self._unlink(os.path.join(self._home.active_path, name))

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
                raise _damaged(path, "it is a link that leads nowhere") from None
            return None  # also one that another process has just removed
        except ShapeError as error:
            raise _damaged(path, str(error)) from None
        texts = (
            entry.session_id,
            entry.task_id,
            entry.workspace_path,
            entry.client,
            entry.at,
            entry.expires_at,
            entry.left_at,
        )
        if entry.state not in STATES or not all(isinstance(text, str) for text in texts):
            raise _damaged(path, "a field has a value that it never has")
        return entry

    def _unlink(self, path: str) -> bool:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        try:
            sync_folder(self._home.active_path)
            os.rmdir(self._home.active_path)
        except OSError:  # it holds other entries, or another process took it away already
            pass
        return True


def _damaged(path: str, why: str) -> StateUntrusted:
    return StateUntrusted(
        f"the registry file {path} is damaged: {why}", next_step=f"remove {path} and start again"
    )


def token_name(token: str) -> str:
    """The file name of a token: its digest, so that the registry never shows one."""
    return TOKEN_PREFIX + sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
