"""Records of the gate: one before every answer that is not silence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from omx_autoresearch.core.budget import Usage
from omx_autoresearch.core.evidence import better_of, run_score
from omx_autoresearch.core.mission import LastStop, Mission
from omx_autoresearch.core.shape import nested
from omx_autoresearch.core.stall import Progress

KEPT_OUTPUT_MARKS = 200
"""Masked output digests that are remembered; an older one may count as new again, within ``weak_holds``."""


@dataclass(frozen=True, slots=True)
class StopRefused:
    """The agent was told to keep working.

    Attributes:
        reason_code: the gate's reason.
        missing: codes of the missing items.
        progress: of the iteration that this stop ended; empty when it was none.
        usage: the counters after this refusal.
        override_expected: the client will let the next stop through whatever we say.
        heartbeat_bytes: size of the heartbeat file at this stop.
    """

    kind: ClassVar[str] = "stop_refused"
    session_id: str
    reason_code: str
    missing: tuple[str, ...]
    progress: Progress | str
    usage: Usage = nested(Usage)
    is_iteration: bool = True
    override_expected: bool = False
    payload_digest: str = ""
    text: str = ""
    tree_digest: str = ""
    heartbeat_bytes: int = 0
    last_message_digest: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Counters move, and a new turn begins."""
        return _answered(mission, ts, self, "refuse")


@dataclass(frozen=True, slots=True)
class StopAllowed:
    """The stop was let through and the mission stays as it is (background work, a host's own end)."""

    kind: ClassVar[str] = "stop_allowed"
    session_id: str
    reason_code: str
    usage: Usage = nested(Usage)
    is_iteration: bool = False
    payload_digest: str = ""
    text: str = ""
    tree_digest: str = ""
    heartbeat_bytes: int = 0
    last_message_digest: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Counters as given; a host's end is counted by itself."""
        mission = _answered(mission, ts, self, "allow")
        if self.reason_code.startswith("host-"):
            mission = replace(mission, host_end_count=mission.host_end_count + 1)
        return mission


@dataclass(frozen=True, slots=True)
class StopReleased:
    """The agent was let go although the mission is not done; a person or the watchdog must look."""

    kind: ClassVar[str] = "stop_released"
    session_id: str
    reason_code: str
    usage: Usage = nested(Usage)
    is_iteration: bool = True
    payload_digest: str = ""
    text: str = ""
    tree_digest: str = ""
    heartbeat_bytes: int = 0
    last_message_digest: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Counters as given; the phase changes by its own record."""
        return _answered(mission, ts, self, "release")


def _answered(
    mission: Mission, ts: str, record: StopRefused | StopAllowed | StopReleased, answer: str
) -> Mission:
    is_counted = answer != "allow"
    if is_counted:
        mission = _absorbed(mission)
    return replace(
        mission,
        usage=record.usage,
        iteration=mission.iteration + (1 if record.is_iteration else 0),
        is_person_turn=False,
        turn_heartbeat_bytes=record.heartbeat_bytes,
        last_stop=LastStop(
            at=ts,
            answer=answer,
            reason_code=record.reason_code,
            session_id=record.session_id,
            payload_digest=record.payload_digest,
            text=record.text,
            tree_digest=record.tree_digest
            if is_counted or mission.last_stop is None
            else mission.last_stop.tree_digest,
            last_message_digest=record.last_message_digest,
        ),
        updated_at=ts,
    )


def _absorbed(mission: Mission) -> Mission:
    """The newest attestation becomes what later ones are compared with."""
    run = mission.attestation
    if run is None or run.contract_digest != mission.contract_digest:
        return mission
    direction = mission.contract.score_direction if mission.contract else "higher"
    score = run_score(run)
    marks = tuple(mark for mark in mission.output_marks if mark != run.output_mark)
    return replace(
        mission,
        best_score=better_of(mission.best_score, score, direction),
        last_score=mission.last_score if score is None else score,
        output_marks=(*marks, run.output_mark)[-KEPT_OUTPUT_MARKS:] if run.output_mark else marks,
    )
