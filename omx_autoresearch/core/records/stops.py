"""Records of the gate: one before every answer that is not silence."""

from __future__ import annotations

from omx_autoresearch.core.budget import Usage
from omx_autoresearch.core.evidence import better_of, run_score
from omx_autoresearch.core.mission import LastStop, Mission
from omx_autoresearch.core.shape import nested
from omx_autoresearch.core.values import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from omx_autoresearch.core.words import Progress

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
