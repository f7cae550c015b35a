"""Records of the sessions of a mission: bound, left, prompted, heard of, and lost."""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, replace
from omx_autoresearch.missions.rules.allowances import after_person_prompt
from omx_autoresearch.missions.rules.mission import (
    FINAL_PHASES,
    Binding,
    Mission,
    noticed,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

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
        """The newest binding holds; a used nonce is used up. A mission that ended holds no session.

        What passed after the older binding had expired (``idle_seconds``) is not charged: no session was held then.
        """
        if mission.phase in FINAL_PHASES:
            return mission
        usage = mission.usage
        if self.idle_seconds and mission.running_since:
            usage = replace(usage, seconds_running=usage.seconds_running - self.idle_seconds)
        return replace(
            mission,
            usage=usage,
            binding=Binding(session_id=self.session_id, client=self.client, how=self.how, at=ts),
            lost_hold=None,
            workspace_path=self.workspace_path or mission.workspace_path,
            nonce_digest="" if self.how == "environment" else mission.nonce_digest,
        )


@dataclass(frozen=True, slots=True)
class SessionUnbound:
    """A binding ended: by the owner, or because another session took its place."""

    kind: ClassVar[str] = "session_unbound"
    session_id: str
    reason: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The mission holds no session until the next binding."""
        is_current = mission.binding is not None and mission.binding.session_id == self.session_id
        mission = noticed(mission, ts, self.kind, f"session {self.session_id} was let go", self.reason)
        return replace(mission, binding=None if is_current else mission.binding)


@dataclass(frozen=True, slots=True)
class SessionForked:
    """A fork of some session began in the workspace of the mission, whose session it may be a copy of."""

    kind: ClassVar[str] = "session_forked"
    session_id: str
    client: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Shown to the owner; it is not held, and changes nothing else."""
        kept = (*mission.forked_sessions, f"{ts} {self.session_id}")[-_KEPT_FORKS:]
        return replace(mission, forked_sessions=kept)


@dataclass(frozen=True, slots=True)
class HoldLost:
    """The bound session is not held any more, though its mission runs.

    Attributes:
        session_id: of the bound session.
        text: how the hold was lost, as ``status`` shows it.
    """

    kind: ClassVar[str] = "hold_lost"
    session_id: str
    text: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """A notice, and the text until the session comes back; nothing where it is not the bound session."""
        if mission.binding is None or mission.binding.session_id != self.session_id:
            return mission
        told = noticed(mission, ts, self.kind, self.text)
        return replace(told, lost_hold=told.notices[-1])


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
            lost_hold=None,
            prompted_at=ts,
            turn_heartbeat_bytes=self.heartbeat_bytes,
            told_digest=self.told_digest or mission.told_digest,
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
        return replace(mission, turn_heartbeat_failed=True)
