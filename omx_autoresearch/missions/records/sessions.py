"""Records of sessions: which one a mission holds, and when a person spoke in it."""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, nested, replace
from omx_autoresearch.missions.rules.budget import Usage, after_person_prompt
from omx_autoresearch.missions.rules.evidence import better_of, run_score
from omx_autoresearch.missions.rules.lifecycle import FINAL_PHASES
from omx_autoresearch.missions.rules.mission import Binding, LastStop, Mission, noticed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from omx_autoresearch.foundation.types import Progress

_KEPT_FORKS = 5


@dataclass(frozen=True, slots=True)
class SessionBound:
    """One of the four acts bound a session to the mission (``how`` names it)."""

    kind: ClassVar[str] = "session_bound"
    session_id: str
    client: str
    how: str
    workspace_path: str = ""
    idle_seconds: float = 0.0

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The newest binding holds; a used nonce is used up. A mission that ended holds nobody.

        What passed after the older binding had expired (``idle_seconds``) is not charged: nobody was held then.
        """
        if mission.phase in FINAL_PHASES:
            return replace(mission, updated_at=ts)
        usage = mission.usage
        if self.idle_seconds and mission.running_since:
            usage = replace(usage, seconds_running=usage.seconds_running - self.idle_seconds)
        return replace(
            mission,
            usage=usage,
            binding=Binding(session_id=self.session_id, client=self.client, how=self.how, at=ts),
            workspace_path=self.workspace_path or mission.workspace_path,
            nonce_digest="" if self.how == "environment" else mission.nonce_digest,
            updated_at=ts,
        )


@dataclass(frozen=True, slots=True)
class SessionUnbound:
    """A binding ended: by the owner, or because another session took its place."""

    kind: ClassVar[str] = "session_unbound"
    session_id: str
    reason: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Nobody is held until the next binding."""
        is_current = mission.binding is not None and mission.binding.session_id == self.session_id
        return replace(mission, binding=None if is_current else mission.binding, updated_at=ts)


@dataclass(frozen=True, slots=True)
class SessionForked:
    """A fork of some session began in the workspace of the mission, whose session it may be a copy of."""

    kind: ClassVar[str] = "session_forked"
    session_id: str
    client: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Shown to the owner; it is not held, and changes nothing else."""
        kept = (*mission.forked_sessions, f"{ts} {self.session_id}")[-_KEPT_FORKS:]
        return replace(mission, forked_sessions=kept, updated_at=ts)


@dataclass(frozen=True, slots=True)
class PersonPrompted:
    """A person submitted a prompt in the bound session."""

    kind: ClassVar[str] = "person_prompted"
    session_id: str
    heartbeat_bytes: int = 0
    told_digest: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Refusals in a row begin anew and no old failure is reused."""
        return replace(
            mission,
            usage=after_person_prompt(mission.usage),
            is_recheck_due=True,
            is_person_turn=True,
            prompted_at=ts,
            turn_heartbeat_bytes=self.heartbeat_bytes,
            told_digest=self.told_digest or mission.told_digest,
            updated_at=ts,
        )


@dataclass(frozen=True, slots=True)
class HeartbeatFailed:
    """A heartbeat could not be written; recorded once a turn, where the journal can be.

    Attributes:
        status: of the heartbeat.
        cause: of the operating system.
    """

    kind: ClassVar[str] = "heartbeat_failed"
    status: str
    cause: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """A notice; a heartbeat is no evidence."""
        text = f"the heartbeat {self.status} was not written: {self.cause}"
        mission = noticed(mission, ts, self.kind, text)
        return replace(mission, turn_heartbeat_failed=True, updated_at=ts)


# --- Records of the gate: one before every answer that is not silence.

KEPT_OUTPUT_MARKS = 200
"""Masked output digests that are remembered; an older one may count as new again, within ``weak_holds``."""


@dataclass(frozen=True, slots=True)
class StopFacts:
    """What every answer to a stop records.

    Attributes:
        session_id: whose stop it was.
        reason_code: the gate's reason.
        usage: the counters after this answer.
        is_iteration: the stop ended an iteration.
        payload_digest: of the raw event.
        text: what was said.
        tree_digest: of the workspace; empty where it was not looked at. Only a judged iteration moves the mission's.
        heartbeat_bytes: size of the heartbeat file; tools of the next turn lie beyond.
        last_message_digest: of the agent's last text.
        iteration: number of the iteration that it ended, from 1; 0 when it ended none.
        began_at: when that iteration began, ISO 8601 UTC.
        tool_count: tools that ran in it.
        direction: declared when it ended.
        evidence_ids: accepted in it, newest last, bounded.
        verdict: of the newest run under the contract; empty when there was none.
        run_id: of that run.
    """

    session_id: str
    reason_code: str
    usage: Usage = nested(Usage)
    is_iteration: bool = False
    payload_digest: str = ""
    text: str = ""
    tree_digest: str = ""
    heartbeat_bytes: int = 0
    last_message_digest: str = ""
    iteration: int = 0
    began_at: str = ""
    tool_count: int = 0
    direction: str = ""
    evidence_ids: tuple[str, ...] = ()
    verdict: str = ""
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class StopRefused:
    """The agent was told to keep working.

    Attributes:
        stop: the facts.
        missing: codes of the missing items.
        progress: of the iteration that this stop ended; empty when nothing was judged (a refusal to wait).
        override_expected: the client's cap is near; it may let the next stop through whatever we say.
    """

    kind: ClassVar[str] = "stop_refused"
    stop: StopFacts = nested(StopFacts)
    missing: tuple[str, ...] = ()
    progress: Progress | str = ""
    override_expected: bool = False

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Counters move, and a new turn begins."""
        return _answered(mission, ts, self.stop, "refuse", progress=self.progress)


@dataclass(frozen=True, slots=True)
class StopAllowed:
    """The stop was let through (complete, background work, a host's own end)."""

    kind: ClassVar[str] = "stop_allowed"
    stop: StopFacts = nested(StopFacts)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Counters as given; a host's end is counted by itself."""
        is_host_end = self.stop.reason_code.startswith("host-")
        count = mission.host_end_count + (1 if is_host_end else 0)
        progress = "strong" if self.stop.is_iteration else ""  # only completion ends an allowed one
        answered = _answered(mission, ts, self.stop, "allow", progress=progress)
        return replace(answered, host_end_count=count)


@dataclass(frozen=True, slots=True)
class StopReleased:
    """The agent was let go although the mission is not done; a person or the watchdog must look."""

    kind: ClassVar[str] = "stop_released"
    stop: StopFacts = nested(StopFacts)
    progress: Progress | str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Counters as given; the phase changes by its own record."""
        return _answered(mission, ts, self.stop, "release", progress=self.progress or "none")


def _answered(mission: Mission, ts: str, stop: StopFacts, answer: str, *, progress: str) -> Mission:
    """The mission after an answer; without ``progress`` this stop judged nothing, and what was achieved stays."""
    last = mission.last_stop
    known_tree_digest = last.tree_digest if last else ""
    mission = replace(mission, turn_heartbeat_failed=False)
    if progress:
        mission = _absorbed(mission)
        mission = replace(
            mission,
            has_stalled=mission.has_stalled and progress != "strong",
            turn_findings=0,
            turn_evidence=0,
            turn_evidence_ids=(),
            turn_has_direction=False,
            turn_has_pivot=False,
            turn_repeats_direction=False,
            turn_trials=0,
        )
        known_tree_digest = stop.tree_digest or known_tree_digest
    return replace(
        mission,
        usage=stop.usage,
        iteration=mission.iteration + (1 if stop.is_iteration else 0),
        is_person_turn=False,
        turn_heartbeat_bytes=stop.heartbeat_bytes,
        last_stop=LastStop(
            at=ts,
            answer=answer,
            reason_code=stop.reason_code,
            session_id=stop.session_id,
            payload_digest=stop.payload_digest,
            text=stop.text,
            tree_digest=known_tree_digest,
            last_message_digest=stop.last_message_digest,
        ),
        updated_at=ts,
    )


def _absorbed(mission: Mission) -> Mission:
    """The newest attestation becomes what later ones are compared with."""
    run = mission.attestation
    if run is None or run.contract_digest != mission.contract_digest:
        return mission
    direction = mission.contract.score_direction if mission.contract else "higher"
    score = run_score(run, mission.contract)
    marks = tuple(mark for mark in mission.output_marks if mark != run.output_mark)
    return replace(
        mission,
        best_score=better_of(mission.best_score, score, direction),
        last_score=mission.last_score if score is None else score,
        output_marks=(*marks, run.output_mark)[-KEPT_OUTPUT_MARKS:] if run.output_mark else marks,
    )
