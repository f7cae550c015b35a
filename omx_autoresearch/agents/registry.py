"""The dialects by name, and what each of them owes.

A dialect is one module. Only the one that is asked for is imported, because the hook pays for every import. It has:

``CLIENT``
    a :class:`~omx_autoresearch.agents.events.Client`: caps, marks, hooks to register, as seen in the client itself.
``parse(payload, digest, environ) -> HookEvent``
    pure and total: for any JSON object it answers, and it raises nothing but ``PayloadFault``. Unknown fields are
    ignored, a field of the wrong type counts as missing, an unknown event is ``other``, texts are bounded and free of
    lone surrogates, the client's own prefixes are taken off a prompt. A sub-agent's stop is ``subagent_stop``
    whatever the client calls it. ``host_end`` comes from typed fields of the host and never from a model's text.
    ``is_person`` is false where there is any doubt.
``is_sandboxed(event, environ) -> bool``
    whether the client's tools have fewer rights than its hooks; asked where a hook may run a command of the contract,
    and true where there is any doubt. It may read the client's own files, never one that a tool in a sandbox can write.
``forgery(event, began_at) -> str``
    why an event that speaks for a person was not sent by the client itself, one phrase; empty where it was or where
    nobody can tell. A tool shell that becomes the hook by ``exec`` has the client for its parent too.
``render(event, reply) -> bytes``
    pure: one JSON object with keys that this client takes for this event, or ``b""``. Allowing prints nothing, because
    some clients call any other answer a failure. A refusal stands on a stop only, never on a sub-agent's stop, a
    session's end or a failure. It grants no permission and never ends a session (``continue`` is not printed).
``installation(scope, environ, project_path) -> Installation``
    where the hooks are set, read from ``environ``; it lists the settings of the machine's administrator too.

Its names of the events after a tool and where their output stands are in
:mod:`omx_autoresearch.agents.tool_events`, which the hook reads without the dialect.

Tests: a sample of every event of the client under tests/agents/samples, the common rules in tests/agents.
"""

from __future__ import annotations

from omx_autoresearch.agents import marks, tool_events
from omx_autoresearch.agents.events import Client, HookEvent, Reply
from omx_autoresearch.agents.payloads import PayloadFault, read_object
from omx_autoresearch.foundation.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol

    from omx_autoresearch.agents.installations import Installation, Scope

    class Dialect(Protocol):
        """What a dialect module offers; see the module's docstring for what it owes."""

        CLIENT: Client

        def parse(self, payload: dict[str, Any], digest: str, environ: Mapping[str, str]) -> HookEvent:
            """Translate one event."""

        def is_sandboxed(self, event: HookEvent, environ: Mapping[str, str]) -> bool:
            """Say whether the client's tools run in a sandbox that its hooks stand outside of."""

        def forgery(self, event: HookEvent, began_at: str) -> str:
            """Say why an event was not sent by the client itself."""

        def render(self, event: HookEvent, reply: Reply) -> bytes:
            """Render one reply."""

        def installation(self, scope: Scope, environ: Mapping[str, str], project_path: str) -> Installation:
            """Say where the hooks are set."""


CLIENT_NAMES: tuple[str, ...] = ("claude", "codex", "gemini")
"""Every client that has a dialect, in the order in which they are shown."""


def dialect(name: str) -> Dialect:
    """Import and give one dialect.

    Raises:
        UsageError: there is none of that name.
    """
    if name == "claude":
        from omx_autoresearch.agents import claude

        return claude
    if name == "codex":
        from omx_autoresearch.agents import codex

        return codex
    if name == "gemini":
        from omx_autoresearch.agents import gemini

        return gemini
    raise UsageError(
        f"there is no agent CLI named {name!r} here", next_step=f"take one of: {', '.join(CLIENT_NAMES)}"
    )


def parse_bytes(name: str, raw: bytes, environ: Mapping[str, str]) -> HookEvent:
    """Translate a hook's stdin; never raises for what is in it.

    An unreadable payload proves no session, so it becomes an event of kind ``other`` whose ``fault`` says why: the
    answer to it is silence and a line in the hook's log, the same each time.

    Args:
        name: the dialect.
        raw: stdin as it came.
        environ: the hook's environment, looked at for marks of a tool shell.

    Raises:
        UsageError: there is no dialect of that name.
    """
    module = dialect(name)
    try:
        payload = read_object(raw)
        # tool events come often and are not counted: no digest is made for them
        digest = "" if tool_events.is_tool_event(name, payload) else _sha256(raw)
        return module.parse(payload, digest, environ)
    except PayloadFault as fault:
        return HookEvent(client=name, kind="other", fault=str(fault))


def _sha256(raw: bytes) -> str:
    from omx_autoresearch.foundation.digests import sha256

    return sha256(raw).hexdigest()


def all_shell_marks() -> tuple[str, ...]:
    """Give every variable that marks an agent's tool shell, of clients without a dialect too; imports no dialect."""
    return tuple(mark for names in marks.SHELL_MARKS.values() for mark in names)


def sessions_from_environment(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Give every (client, session id) that a tool shell's environment names.

    Several stand there when an agent started another client; the environment cannot tell which is the inner one.
    """
    found = []
    for client, names in marks.SESSION_VARIABLES.items():
        session_id = next((environ[name] for name in names if environ.get(name)), "")
        if session_id:
            found.append((client, session_id))
    return tuple(found)


def session_from_environment(environ: Mapping[str, str]) -> tuple[str, str]:
    """Give the one (client, session id) that a tool shell's environment names; ``("", "")`` for none or several."""
    found = sessions_from_environment(environ)
    return found[0] if len(found) == 1 else ("", "")
