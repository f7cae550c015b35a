"""What is known of an agent CLI, as data: caps, marks, where its hooks live. Each dialect module fills one in."""

from __future__ import annotations

from omx_autoresearch.core.values import dataclass


@dataclass(frozen=True, slots=True)
class StopCap:
    """How many refusals in a row the client honours before it overrides the hook.

    Attributes:
        limit: refusals honoured in a row; the next one is overridden. None: no cap was found.
        reset_by_tools: a tool call between two stops sets the client's count back to zero.
        setting: the environment variable or setting that raises the cap; empty where none is known.
    """

    limit: int | None
    reset_by_tools: bool = False
    setting: str = ""


@dataclass(frozen=True, slots=True)
class HookEntry:
    """One hook to register with a client.

    Attributes:
        native_event: the client's name of the event (``Stop``, ``AfterAgent``).
        matcher: the client's tool matcher; empty where the event takes none.
        timeout_seconds: what the client is told, in its own unit by the dialect.
        guard: when the shell line starts the hook at all: ``active`` (something is bound or pending),
            ``start`` (something is active, or ``OMX_AUTORESEARCH_TASK`` is set), ``always``.
    """

    native_event: str
    matcher: str
    timeout_seconds: int
    guard: str


@dataclass(frozen=True, slots=True)
class Client:
    """The facts about one agent CLI that the use cases need.

    Attributes:
        name: ``claude``, ``codex``, ``gemini``.
        title: the product's name, for people.
        binary: the command's name on PATH.
        stop_cap: see :class:`StopCap`.
        session_variables: environment variables of a tool shell that hold the session id, best first.
        shell_marks: environment variables that are set in a tool shell of this client and in no person's terminal.
        hook_timeout_seconds: the time-out that the installer writes for the stop hook.
        shows_person_message: a ``systemMessage`` beside a refusal is shown to somebody in interactive use.
        lets_go_on_repeat: the client spins when the same answer repeats without a tool; such a stop is released.
        has_tool_events: the installer registers the event after a tool.
        entries: the hooks to register, the stop first.
    """

    name: str
    title: str
    binary: str
    stop_cap: StopCap
    session_variables: tuple[str, ...]
    shell_marks: tuple[str, ...]
    hook_timeout_seconds: int
    shows_person_message: bool
    lets_go_on_repeat: bool
    has_tool_events: bool
    entries: tuple[HookEntry, ...]
