"""The adapters of the agent CLIs by name, and the interface that each of them implements.

An adapter is a folder below ``agents/clients``. We import only the one that is asked for, because the hook pays for
every import. The folder's ``__init__``, which is all that a hook loads, has:

``CLIENT``
    a :class:`~omx_autoresearch.agents.events.Client`: caps and hooks to register, as the client itself behaves.
``parse(payload) -> HookEvent``
    pure and total: it accepts any JSON object and raises only ``PayloadFault``. Unknown fields are ignored, a field of
    the wrong type counts as missing, an unknown event is ``other``, texts are bounded and free of lone surrogates, and
    a prompt loses the client's prefixes. A sub-agent's stop is ``subagent_stop`` by any name. ``host_end`` comes from
    typed fields of the host and never from a model's text. ``origin`` is false in any doubt.
``is_sandboxed(event, environ, meta=None) -> bool``
    whether the client's tools have fewer rights than its hooks, or than its server of tools if ``meta`` (which the
    client sends with a call) is given. It is asked before a command of the contract may run, and is true in any doubt.
    It may read the client's own files, but never one that a tool in a sandbox can write.
``origin(event, began_at) -> Origin``
    whether the client itself sent an event that may speak for a person. The docstring of the client says how that is
    proven, and who could forge it. The parent proves nothing: a tool shell that becomes the hook by ``exec`` has the
    client as its parent too. ``began_at`` is when the hook's process began, ISO 8601 UTC; empty if unknown. A client
    without a proof has no such function; its prompts go by signs.
``render(event, reply) -> bytes``
    pure: one JSON object with keys that this client accepts for this event, or ``b""``. Allowing prints nothing,
    because some clients treat any other answer as a failure. Only a stop is refused, never a sub-agent's stop, a
    session's end or a failure. A reply grants no permission. It ends a turn (``continue``) only after a
    stop that was let go in mid-mission, where the client's own goal would drive on.
``goal(event) -> str``
    the goal that the client itself pursues in the session, from the tail of its own record; empty for none. A client
    without goals has no such function.
``denial(event) -> str``
    why the client denied the newest tool of the session, from the same record; empty where it ran. Optional as well.
``report(so_far, found) -> AgentReport | None``
    pure: the report of a headless run after one more JSON object of its output; None for an object of another form.

Its module ``installation`` has ``installation(scope, environ, project_path)``: the client's settings, located by
``environ``, including those of the machine's administrator.

Besides the folder, a new client is one line in :mod:`omx_autoresearch.foundation.clients`. Its tests are a sample of
every event in tests/agents/samples; the common rules are in tests/agents.
"""

from __future__ import annotations

from omx_autoresearch.agents.events import HookEvent, Origin, StopCap
from omx_autoresearch.agents.payloads import PayloadFault, read_object
from omx_autoresearch.foundation.clients import CLIENT_NAMES, KNOWN, tool_shell_mark
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
        """The interface of an adapter; see the module's docstring."""

        CLIENT: Client

        def parse(self, payload: dict[str, Any]) -> HookEvent:
            """Translate one event."""

        def is_sandboxed(
            self, event: HookEvent, environ: Mapping[str, str], meta: Mapping[str, Any] | None = None
        ) -> bool:
            """Whether the client's tools run in a sandbox, and its hooks or its server outside it."""

        def render(self, event: HookEvent, reply: Reply) -> bytes:
            """Render one reply."""

        def report(self, so_far: AgentReport, found: dict[str, Any]) -> AgentReport | None:
            """Read one object of a headless run's output."""


def adapter(name: str) -> Adapter:
    """Import and return one adapter.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in CLIENT_NAMES:
        raise UsageError(
            f"there is no agent CLI named {name!r}",
            next_step=f"choose one of: {', '.join(CLIENT_NAMES)}",
        )
    found: Adapter = __import__(f"omx_autoresearch.agents.clients.{name}", fromlist=["CLIENT"])
    return found


def origin_of(event: HookEvent, began_at: str) -> Origin:
    """Say who sent an event that may speak for a person: what its payload shows, then what the adapter finds out."""
    if event.origin.standing == "no_person" or not has_proof(event.client):
        return event.origin
    found: Origin = adapter(event.client).origin(event, began_at)  # type: ignore[attr-defined]
    return found


def goal_of(event: HookEvent) -> str:
    """The client's own goal in the session of an event, if its adapter can read one."""
    found = getattr(adapter(event.client), "goal", None)
    return str(found(event)) if found is not None else ""


def denial_of(event: HookEvent) -> str:
    """The client's words where it denied the newest tool of the session, if its adapter can read them."""
    found = getattr(adapter(event.client), "denial", None)
    return str(found(event)) if found is not None else ""


def running_client(client: Client, environ: Mapping[str, str]) -> Client:
    """The client that runs a hook of ``client``'s settings: another one may read the settings of a project too.

    Args:
        client: whose settings hold the hook.
        environ: the hook's environment.
    """
    if any(map(environ.get, KNOWN[client.name].shell_marks)):
        return client
    for name, known in KNOWN.items():
        if name != client.name and known.borrower_mark and environ.get(known.borrower_mark):
            cap = StopCap(limit=known.borrower_cap)
            return replace(
                client, name=name, title=known.title, stop_cap=cap, goal_ways=(), can_end_turn=False
            )
    return client


def has_proof(name: str) -> bool:
    """Whether an adapter can prove who sent an event."""
    return name in CLIENT_NAMES and hasattr(adapter(name), "origin")


def installation_of(name: str, scope: Scope, environ: Mapping[str, str], project_path: str) -> Installation:
    """The settings of one client that we change.

    Args:
        name: the client.
        scope: whose settings.
        environ: the environment in which the client starts.
        project_path: the project; it may be empty in the scope ``user``.

    Raises:
        UsageError: there is no client of that name.
    """
    module = __import__(f"{adapter(name).__name__}.installation", fromlist=["installation"])  # type: ignore[attr-defined]
    found: Installation = module.installation(scope, environ, project_path)
    return found


def parse_bytes(name: str, raw: bytes, environ: Mapping[str, str]) -> HookEvent:
    """Translate a hook's stdin; no content of it raises an error.

    An unreadable payload proves no session, so it becomes an event of kind ``other`` with the reason in ``fault``: the
    answer is silence and a line in the hook's log.

    Args:
        name: the client.
        raw: the bytes of stdin.
        environ: the hook's environment, which may have marks of a tool shell.

    Raises:
        UsageError: there is no client of that name.
    """
    spoken = adapter(name)
    try:
        event = spoken.parse(read_object(raw))
    except PayloadFault as fault:
        return HookEvent(client=name, kind="other", fault=str(fault))
    if mark := tool_shell_mark(environ):
        why = f"the environment has {mark}, as an agent's tool shell does"
        event = replace(event, origin=Origin("no_person", why))
    # tool events are frequent and do not count, so they need no digest
    digest = "" if event.kind == "tool" else _sha256(raw)
    return replace(event, payload_digest=digest)


def _sha256(raw: bytes) -> str:
    from omx_autoresearch.foundation.records import sha256

    return sha256(raw).hexdigest()
