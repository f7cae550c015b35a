"""The adapters of the agent CLIs by name, and what each of them owes.

An adapter is a folder below ``agents/clients``. Only the one that is asked for is imported, because the hook pays for
every import. The folder itself (its ``__init__``, all that a hook loads) has:

``CLIENT``
    a :class:`~omx_autoresearch.agents.events.Client`: caps, hooks to register, as seen in the client itself.
``parse(payload) -> HookEvent``
    pure and total: for any JSON object it answers, and it raises nothing but ``PayloadFault``. Unknown fields are
    ignored, a field of the wrong type counts as missing, an unknown event is ``other``, texts are bounded and free of
    lone surrogates, the client's own prefixes are taken off a prompt. A sub-agent's stop is ``subagent_stop``
    whatever the client calls it. ``host_end`` comes from typed fields of the host and never from a model's text.
    ``is_person`` is false where there is any doubt.
``is_sandboxed(event, environ, meta=None) -> bool``
    whether the client's tools have fewer rights than its hooks, or than its server of tools, where ``meta`` is what the
    client says with a call; asked where a command of the contract may run, and true where there is any doubt. It may
    read the client's own files, never one that a tool in a sandbox can write.
``forgery(event, began_at) -> str``
    why an event that speaks for a person was not sent by the client itself, one phrase; empty where it was or where
    nothing can be told. A tool shell that becomes the hook by ``exec`` has the client for its parent too.
``render(event, reply) -> bytes``
    pure: one JSON object with keys that this client takes for this event, or ``b""``. Allowing prints nothing, because
    some clients call any other answer a failure. A refusal stands on a stop only, never on a sub-agent's stop, a
    session's end or a failure. It grants no permission and never ends a session (``continue`` is not printed).
``report(so_far, found) -> AgentReport | None``
    pure: the report of a headless run after one more JSON object of its output; None for an object of another form.

Its module ``installation`` has ``installation(scope, environ, project_path)``: where our parts stand in its settings,
read from ``environ``; it lists the settings of the machine's administrator too.

Besides the folder a new client is one line in :mod:`omx_autoresearch.foundation.clients`. Tests: a sample of every
event of the client under tests/agents/samples, the common rules in tests/agents.
"""

from __future__ import annotations

from omx_autoresearch.agents.events import HookEvent
from omx_autoresearch.agents.payloads import PayloadFault, read_object
from omx_autoresearch.foundation.clients import CLIENT_NAMES, tool_shell_mark
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.records import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol

    from omx_autoresearch.agents.events import Client, Reply
    from omx_autoresearch.agents.headless import AgentReport
    from omx_autoresearch.agents.parts import Installation, Scope

    class Adapter(Protocol):
        """What an adapter offers; see the module's docstring for what it owes."""

        CLIENT: Client

        def parse(self, payload: dict[str, Any]) -> HookEvent:
            """Translate one event."""

        def is_sandboxed(
            self, event: HookEvent, environ: Mapping[str, str], meta: Mapping[str, Any] | None = None
        ) -> bool:
            """Say whether the client's tools run in a sandbox that its hooks or its server stand outside of."""

        def forgery(self, event: HookEvent, began_at: str) -> str:
            """Say why an event was not sent by the client itself."""

        def render(self, event: HookEvent, reply: Reply) -> bytes:
            """Render one reply."""

        def report(self, so_far: AgentReport, found: dict[str, Any]) -> AgentReport | None:
            """Read one object of a headless run's output."""


def adapter(name: str) -> Adapter:
    """Import and give one adapter.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in CLIENT_NAMES:
        raise UsageError(
            f"there is no agent CLI named {name!r} here",
            next_step=f"choose one of: {', '.join(CLIENT_NAMES)}",
        )
    found: Adapter = __import__(f"omx_autoresearch.agents.clients.{name}", fromlist=["CLIENT"])
    return found


def installation_of(name: str, scope: Scope, environ: Mapping[str, str], project_path: str) -> Installation:
    """Say where our parts stand in the settings of one client.

    Args:
        name: the client.
        scope: whose settings.
        environ: the environment that the client is started in.
        project_path: the project; empty for none, which the scope ``user`` allows.

    Raises:
        UsageError: there is no client of that name.
    """
    module = __import__(f"{adapter(name).__name__}.installation", fromlist=["installation"])  # type: ignore[attr-defined]
    found: Installation = module.installation(scope, environ, project_path)
    return found


def parse_bytes(name: str, raw: bytes, environ: Mapping[str, str]) -> HookEvent:
    """Translate a hook's stdin; never raises for what is in it.

    An unreadable payload proves no session, so it becomes an event of kind ``other`` whose ``fault`` says why: the
    answer to it is silence and a line in the hook's log, the same each time.

    Args:
        name: the client.
        raw: stdin as it came.
        environ: the hook's environment, looked at for marks of a tool shell.

    Raises:
        UsageError: there is no client of that name.
    """
    spoken = adapter(name)
    try:
        event = spoken.parse(read_object(raw))
    except PayloadFault as fault:
        return HookEvent(client=name, kind="other", fault=str(fault))
    is_person = event.is_person and not tool_shell_mark(environ)
    # tool events come often and are not counted: no digest is made for them
    digest = "" if event.kind == "tool" else _sha256(raw)
    return replace(event, is_person=is_person, payload_digest=digest)


def _sha256(raw: bytes) -> str:
    from omx_autoresearch.foundation.records import sha256

    return sha256(raw).hexdigest()
