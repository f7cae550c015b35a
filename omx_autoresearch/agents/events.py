"""The events of an agent CLI and our replies: one event in, one reply out.

Every adapter in ``agents/clients`` translates its client's JSON to :class:`HookEvent`, and a :class:`Reply` to bytes.
No other code knows a client's field names.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.foundation.types import EventKind, HostEnd, Standing


@dataclass(frozen=True, slots=True)
class Origin:
    """Who sent an event that may speak for a person.

    Attributes:
        standing: how sure that is.
        why: what speaks against a person, or against the proof; one phrase, empty for ``proven``.
    """

    standing: Standing
    why: str = ""


PROVEN = Origin("proven")
BY_SIGNS = Origin("by_signs", "this system does not say which process sent an event")


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """Work of the client that goes on beside the agent.

    Attributes:
        id: the client's own.
        what: its command or description; a model wrote it.
    """

    id: str
    what: str


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One event of an agent CLI, translated.

    Attributes:
        client: the client's name in :mod:`omx_autoresearch.foundation.clients`.
        kind: the kind of event.
        native_event: the client's own name of the event.
        session_id: the client's session id, verbatim; empty if the payload has none.
        cwd: the client's working directory (it follows ``cd`` and is never used to find a mission).
        agent_id: not empty for a sub-agent's event, which never binds and never counts.
        prompt: the submitted text, without the client's prefixes.
        source: of a session start: ``startup``, ``resume``, ``clear``, ``compact`` or ``fork``; of its end the client's
            word for the reason, such as ``clear``.
        host_end: why the host ended the turn; empty for an ordinary stop.
        background_tasks: the client's own background work that still runs.
        permission_mode: the client's word for what its agent may do, such as ``plan``; empty if it has none.
        goal: the goal that the client itself pursues in this session; not in the payload, the adapter reads it from the
            client's record of the session. A model may have written it; empty for none.
        denial: the client's words where it denied the newest tool; not in the payload, from the same record.
        transcript_path: the client's own record of the session, which only its adapter reads.
        is_sandboxed: the client's tools have fewer rights than this hook; not in the payload, the adapter finds out.
        origin: who sent the event; the payload shows only what no person wrote, the adapter finds out the rest.
        last_message: the agent's last text, if the client sends it; it is compared, but never trusted.
        tool_command: the shell command of a shell tool; empty for other tools.
        tool_output: the part of the tool's output that the client sends.
        handed_texts: texts that the model gave to a tool which may submit them as prompts, now or later.
        payload_digest: sha256 of the raw bytes; equal if the same hook is registered twice.
        fault: why the payload could not be read; all other fields are then empty.
    """

    client: str
    kind: EventKind
    native_event: str = ""
    session_id: str = ""
    cwd: str = ""
    agent_id: str = ""
    prompt: str = ""
    source: str = ""
    host_end: HostEnd = ""
    background_tasks: tuple[BackgroundTask, ...] = ()
    permission_mode: str = ""
    goal: str = ""
    denial: str = ""
    transcript_path: str = ""
    is_sandboxed: bool = False
    origin: Origin = BY_SIGNS
    last_message: str = ""
    tool_command: str = ""
    tool_output: str = ""
    handed_texts: tuple[str, ...] = ()
    payload_digest: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to one event; if all fields are empty, we print nothing and the agent goes on.

    Attributes:
        refusal: only on a stop: the agent must keep working; the text names the missing items.
        context: text for the model (at a session start or a prompt).
        person_message: text for the person, if the client can show it.
        ends_turn: only on a stop: why the client must not go on by itself; the text is for the person.
        fault: why nothing could be decided, for the hook's log.
    """

    refusal: str = ""
    context: str = ""
    person_message: str = ""
    ends_turn: str = ""
    fault: str = ""


SILENCE = Reply()


# --- The facts about an agent CLI, as data; each adapter has its own.


@dataclass(frozen=True, slots=True)
class StopCap:
    """How many refusals in a row the client honours before it overrides the hook.

    Attributes:
        limit: refusals honoured in a row; the next one is overridden. None if we found no cap.
        reset_by_tools: a tool call between two stops resets the client's count.
        setting: the environment variable or setting that raises the cap; empty if unknown.
    """

    limit: int | None
    reset_by_tools: bool = False
    setting: str = ""


@dataclass(frozen=True, slots=True)
class HookEntry:
    """One hook to register with a client.

    Attributes:
        native_event: the client's name of the event (``Stop``, ``AfterAgent``).
        kind: its kind.
        timeout_seconds: the hook's time-out; the installer writes it in the client's unit.
        guard: when the shell line starts the hook: ``active`` (something is bound or pending), ``start`` (the same, or
            ``OMX_AUTORESEARCH_TASK`` is set), ``always``.
    """

    native_event: str
    kind: EventKind
    timeout_seconds: int
    guard: str


@dataclass(frozen=True, slots=True)
class Client:
    """The facts about one agent CLI that the use cases need.

    Attributes:
        name: the client's name in :mod:`omx_autoresearch.foundation.clients`, and of its command on PATH.
        title: the product's name, for people.
        stop_cap: see :class:`StopCap`.
        entries: the hooks to register, the stop first.
        lets_go_on_repeat: the client loops if the same answer repeats without a tool, so we let such a stop go.
        goal_ways: what a person types to end the client's own goal, or to pause it; empty if it has none.
        can_end_turn: an answer to a stop may keep the client from going on by itself.
        queues_prompts: a prompt that a person types waits until the turn ends, and a held turn does not end.
    """

    name: str
    title: str
    stop_cap: StopCap
    entries: tuple[HookEntry, ...]
    lets_go_on_repeat: bool = False
    queues_prompts: bool = False
    goal_ways: tuple[str, ...] = ()
    can_end_turn: bool = False

    @property
    def hook_timeout_seconds(self) -> int:
        """The time-out of the stop hook."""
        return self.entries[0].timeout_seconds

    @property
    def has_tool_events(self) -> bool:
        """Whether the event after a tool is registered."""
        return any(entry.kind == "tool" for entry in self.entries)
