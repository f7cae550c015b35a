"""What an agent CLI tells us, and what we answer: one event in, one reply out.

Every adapter in ``agents/clients`` translates its client's own JSON to :class:`HookEvent` and a :class:`Reply` back to
bytes; nothing above this module knows a client's field names. Foreign input is one value before any logic runs.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.foundation.types import EventKind, HostEnd


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One call from an agent CLI, already translated.

    Attributes:
        client: the client's name in :mod:`omx_autoresearch.foundation.clients`.
        kind: what happened.
        native_event: the client's own name of it.
        session_id: the client's session id, verbatim; empty when the payload has none.
        cwd: the client's working directory (follows ``cd``; never used to find a mission).
        agent_id: non-empty when a sub-agent is meant; such an event never binds and never counts.
        prompt: what was submitted, with the client's own prefixes taken off.
        is_person: the prompt may be a person's: not empty, not a task notification, no sub-agent's.
        source: of a session start: ``startup``, ``resume``, ``clear``, ``compact`` or ``fork``.
        host_end: why the host ended the turn; empty for an ordinary stop.
        has_background_work: the client says that work of its own is still running.
        transcript_path: the client's own record of the session; looked at by its adapter alone.
        is_sandboxed: the client's tools have fewer rights than this hook; no payload says so, the adapter finds out.
        forgery: why the client itself did not send this event; no payload says so, the adapter finds out.
        last_message: the agent's last text where the client sends it (compared, never believed).
        tool_command: the shell command of a shell tool; empty for others.
        tool_output: what the tool printed as far as the client sends it.
        payload_digest: sha256 of the raw bytes; equal for the same hook registered twice.
        fault: why the payload could not be read; every other field is then empty.
    """

    client: str
    kind: EventKind
    native_event: str = ""
    session_id: str = ""
    cwd: str = ""
    agent_id: str = ""
    prompt: str = ""
    is_person: bool = False
    source: str = ""
    host_end: HostEnd = ""
    has_background_work: bool = False
    transcript_path: str = ""
    is_sandboxed: bool = False
    forgery: str = ""
    last_message: str = ""
    tool_command: str = ""
    tool_output: str = ""
    payload_digest: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What we answer to one event; all empty means silence, which lets the agent do as it pleased.

    Attributes:
        refusal: non-empty only on a stop: the agent must keep working; the text says what is missing.
        context: text put before the model (session start, prompt submit).
        person_message: text for the person, shown where the client can.
        fault: why nothing could be decided, for the hook's log: a release is never told by a message alone.
    """

    refusal: str = ""
    context: str = ""
    person_message: str = ""
    fault: str = ""


SILENCE = Reply()


# --- What is known of an agent CLI, as data: caps, marks, where its hooks live. Each adapter fills one in.


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
        kind: what it means.
        timeout_seconds: what the client is told, in its own unit by the adapter.
        guard: when the shell line starts the hook at all: ``active`` (something is bound or pending),
            ``start`` (something is active, or ``OMX_AUTORESEARCH_TASK`` is set), ``always``.
    """

    native_event: str
    kind: EventKind
    timeout_seconds: int
    guard: str


@dataclass(frozen=True, slots=True)
class Client:
    """The facts about one agent CLI that the use cases need.

    Attributes:
        name: the client's name in :mod:`omx_autoresearch.foundation.clients`.
            It is also that of the command on PATH.
        title: the product's name, for people.
        stop_cap: see :class:`StopCap`.
        entries: the hooks to register, the stop first.
        lets_go_on_repeat: the client spins when the same answer repeats without a tool; such a stop is released.
    """

    name: str
    title: str
    stop_cap: StopCap
    entries: tuple[HookEntry, ...]
    lets_go_on_repeat: bool = False

    @property
    def hook_timeout_seconds(self) -> int:
        """The time-out that the installer writes for the stop hook."""
        return self.entries[0].timeout_seconds

    @property
    def has_tool_events(self) -> bool:
        """Whether the event after a tool is registered."""
        return any(entry.kind == "tool" for entry in self.entries)
