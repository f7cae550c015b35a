"""Records of the phases, and of verbs that were not the caller's to use.

A use case that writes one asks :func:`step_taken`, so that it carries the phase that the machine reached. Of two that
raced the first one stands: a record whose step the phase does not have changes nothing, so that nothing ever re-opens
a mission that ended.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, field, nested, replace
from omx_autoresearch.missions.rules.mission import (
    SCHEMA_VERSION,
    TRANSITIONS,
    Blocker,
    Contract,
    Mission,
    Notice,
    extended,
    is_legal,
    next_phase,
    noticed,
    refreshed,
    seconds_running,
    target,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


if TYPE_CHECKING:
    from typing import Any, ClassVar, TypeVar

    from omx_autoresearch.foundation.types import Phase, Step, TaskType

    StepRecord = TypeVar(
        "StepRecord",
        bound="MissionLaunched | MissionBlocked | MissionUnblocked | MissionPaused | MissionResumed"
        " | MissionCancelled | MissionCompleted",
    )

_KEPT_REFUSED_VERBS = 20


def step_taken(mission: Mission, kind: type[StepRecord], *facts: Any) -> StepRecord:
    """The record of a step that the mission takes now, with the phase that the machine reached.

    Raises:
        StepIllegal: the mission's phase has no such step.
        AutoresearchError: the machine cannot be run.
    """
    return kind(next_phase(mission.phase, kind.step, task_id=mission.task_id), *facts)


def _follows(mission: Mission, record: StepRecord) -> bool:
    """True where the table, as data, leads from the mission's phase to the record's by its step."""
    return target(TRANSITIONS, mission.phase, record.step) == record.phase


def _stopped_clock(mission: Mission, ts: str) -> Mission:
    """Charge the running stretch that ends at ``ts``."""
    if not mission.running_since:
        return mission
    usage = replace(mission.usage, seconds_running=seconds_running(mission, ts))
    return replace(mission, running_since="", usage=usage)


@dataclass(frozen=True, slots=True)
class MissionCreated:
    """``init`` or ``start`` made the mission; it is a draft."""

    kind: ClassVar[str] = "mission_created"
    task_id: str
    slug: str
    goal: str
    task_type: TaskType
    project_path: str
    workspace_path: str
    specs_path: str
    scope: tuple[str, ...] = ()
    non_goals: tuple[str, ...] = ()
    milestones: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def apply(self, mission: Mission | None, ts: str) -> Mission:
        """A draft; a second creation in one journal is ignored, the first one stands."""
        if mission is not None:
            return mission
        return Mission(
            notices=(Notice(ts, self.kind, f"mission {self.task_id} was written down"),),
            task_id=self.task_id,
            slug=self.slug,
            goal=self.goal,
            task_type=self.task_type,
            project_path=self.project_path,
            workspace_path=self.workspace_path,
            specs_path=self.specs_path,
            scope=self.scope,
            non_goals=self.non_goals,
            milestones=self.milestones,
            schema_version=self.schema_version,
            created_at=ts,
            updated_at=ts,
        )


@dataclass(frozen=True, slots=True)
class SchemaMigrated:
    """From here on records are of a newer version; those before are read through the steps in between."""

    kind: ClassVar[str] = "schema_migrated"
    from_version: int
    to_version: int

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The version alone; nothing of the mission changes."""
        return replace(mission, schema_version=max(mission.schema_version, self.to_version), updated_at=ts)


@dataclass(frozen=True, slots=True)
class MissionLaunched:
    """The owner's ``start``: the contract is compiled and the mission runs."""

    kind: ClassVar[str] = "mission_launched"
    step: ClassVar[Step] = "launch"
    phase: Phase
    contract: Contract = nested(Contract)
    contract_digest: str = ""
    nonce_digest: str = ""
    reason: str = ""
    workspace_path: str = ""
    head: str = ""
    tree_digest: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Running, with the clock started."""
        if not _follows(mission, self):
            return replace(mission, updated_at=ts)
        mission = noticed(mission, ts, self.kind, _because("launched", self.reason))
        return replace(
            mission,
            phase=self.phase,
            contract=self.contract,
            contract_digest=self.contract_digest,
            nonce_digest=self.nonce_digest,
            workspace_path=self.workspace_path or mission.workspace_path,
            best_score=self.contract.baseline_score,
            last_score=self.contract.baseline_score,
            launch_head=self.head,
            launch_tree_digest=self.tree_digest,
            running_since=ts,
            updated_at=ts,
        )


@dataclass(frozen=True, slots=True)
class MissionAmended:
    """The owner changed validator, limits or scope of a live mission; pins are taken anew."""

    kind: ClassVar[str] = "mission_amended"
    step: ClassVar[Step] = "amend"
    contract: Contract = nested(Contract)
    contract_digest: str = ""
    reason: str = ""
    workspace_path: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The new contract; old verdicts and checks belong to the old digest and no longer count.

        Evidence stays with the criteria whose rule stayed as it was.
        """
        if not is_legal(mission.phase, "amend"):
            return replace(mission, updated_at=ts)
        mission = noticed(mission, ts, self.kind, _because("the contract was amended", self.reason))
        before = {item.id: item.rule for item in mission.contract.criteria} if mission.contract else {}
        kept = {item.id for item in self.contract.criteria if before.get(item.id) == item.rule}
        return replace(
            mission,
            contract=self.contract,
            contract_digest=self.contract_digest,
            workspace_path=self.workspace_path or mission.workspace_path,
            usage=refreshed(mission.usage),
            evidence_ids={key: ids for key, ids in mission.evidence_ids.items() if key in kept},
            verification_excuse="",
            best_score=self.contract.baseline_score,
            last_score=self.contract.baseline_score,
            updated_at=ts,
        )


@dataclass(frozen=True, slots=True)
class MissionBlocked:
    """A person must act; ``blocker`` says what is the smallest input."""

    kind: ClassVar[str] = "mission_blocked"
    step: ClassVar[Step] = "block"
    phase: Phase
    blocker: Blocker = nested(Blocker)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Blocked, clock stopped."""
        if not _follows(mission, self):
            return replace(mission, updated_at=ts)
        mission = noticed(mission, ts, self.kind, f"{self.blocker.reason_code}: {self.blocker.what}")
        return replace(
            _stopped_clock(mission, ts),
            phase=self.phase,
            blocker=self.blocker,
            has_stalled=mission.has_stalled or self.blocker.reason_code == "stalled",
            updated_at=ts,
        )


@dataclass(frozen=True, slots=True)
class MissionUnblocked:
    """The owner let a blocked mission go on; limits may have grown."""

    kind: ClassVar[str] = "mission_unblocked"
    step: ClassVar[Step] = "unblock"
    phase: Phase
    reason: str = ""
    add_hours: float = 0.0
    add_refusals: int = 0

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Running with fresh stall allowances; used budget stays used."""
        if not _follows(mission, self):
            return replace(mission, updated_at=ts)
        mission = noticed(mission, ts, self.kind, _because("let go on after a block", self.reason))
        return _going_on(mission, ts, self)


@dataclass(frozen=True, slots=True)
class MissionPaused:
    """The owner paused the mission."""

    kind: ClassVar[str] = "mission_paused"
    step: ClassVar[Step] = "pause"
    phase: Phase
    reason: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Paused, clock stopped."""
        if not _follows(mission, self):
            return replace(mission, updated_at=ts)
        mission = noticed(mission, ts, self.kind, _because("paused", self.reason))
        return replace(_stopped_clock(mission, ts), phase=self.phase, updated_at=ts)


@dataclass(frozen=True, slots=True)
class MissionResumed:
    """The owner resumed a paused mission."""

    kind: ClassVar[str] = "mission_resumed"
    step: ClassVar[Step] = "resume"
    phase: Phase
    reason: str = ""
    add_hours: float = 0.0
    add_refusals: int = 0

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Running with fresh stall allowances; used budget stays used."""
        if not _follows(mission, self):
            return replace(mission, updated_at=ts)
        mission = noticed(mission, ts, self.kind, _because("resumed", self.reason))
        return _going_on(mission, ts, self)


def _because(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what


def _going_on(mission: Mission, ts: str, record: MissionUnblocked | MissionResumed) -> Mission:
    contract = mission.contract
    if contract is not None and (record.add_hours or record.add_refusals):
        limits = extended(contract.limits, hours=record.add_hours, refusals=record.add_refusals)
        contract = replace(contract, limits=limits)
    return replace(
        mission,
        phase=record.phase,
        contract=contract,
        blocker=None,
        usage=refreshed(mission.usage),
        is_recheck_due=True,  # the owner may have fixed what no digest shows
        prompted_at=ts,
        running_since=ts,
        updated_at=ts,
    )


@dataclass(frozen=True, slots=True)
class MissionCancelled:
    """The owner gave the mission up."""

    kind: ClassVar[str] = "mission_cancelled"
    step: ClassVar[Step] = "cancel"
    phase: Phase
    reason: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Final; nothing re-opens it."""
        if not _follows(mission, self):
            return replace(mission, updated_at=ts)
        mission = noticed(mission, ts, self.kind, _because("cancelled", self.reason))
        return replace(
            _stopped_clock(mission, ts), phase=self.phase, blocker=None, binding=None, updated_at=ts
        )


@dataclass(frozen=True, slots=True)
class MissionCompleted:
    """The completion contract was met by an attested run."""

    kind: ClassVar[str] = "mission_completed"
    step: ClassVar[Step] = "complete"
    phase: Phase
    run_id: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Final; nothing re-opens it."""
        if not _follows(mission, self):
            return replace(mission, updated_at=ts)
        mission = noticed(mission, ts, self.kind, _because("the contract is met", self.run_id))
        return replace(
            _stopped_clock(mission, ts),
            phase=self.phase,
            completed_run_id=self.run_id,
            completed_at=ts,
            blocker=None,
            binding=None,
            updated_at=ts,
        )


@dataclass(frozen=True, slots=True)
class OwnerVerbRefused:
    """A verb of the owner was tried from inside an agent."""

    kind: ClassVar[str] = "owner_verb_refused"
    verb: str = ""
    marks: tuple[str, ...] = ()

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Shown to the owner; changes nothing else."""
        kept = (*mission.refused_verbs, f"{ts} {self.verb}")[-_KEPT_REFUSED_VERBS:]
        return replace(mission, refused_verbs=kept, updated_at=ts)


# --- The record of a mission that began as another runtime's folder.


@dataclass(frozen=True, slots=True)
class MissionAdopted:
    """What the mission was taken from; findings and directions follow as records of their own.

    Attributes:
        origin_path: the folder; it was read and not touched.
        layout: ``host``, ``own`` or ``protocol``.
        origin_task_id: its id there.
        origin_status: what it said of itself; nothing follows from it.
        origin_iteration: how far it said it was.
        finding_count: findings taken over, all of them claims.
        direction_count: directions taken over, as tried.
        digests: sha256 of each file that was read, by its name in the folder.
    """

    kind: ClassVar[str] = "mission_adopted"
    origin_path: str
    layout: str
    origin_task_id: str = ""
    origin_status: str = ""
    origin_iteration: int = 0
    finding_count: int = 0
    direction_count: int = 0
    digests: dict[str, str] = field(default_factory=dict)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """A notice, and where it comes from; counters begin at nothing."""
        text = (
            f"adopted from {self.origin_path} ({self.layout}, {self.origin_status}, iteration "
            f"{self.origin_iteration}): {self.finding_count} findings as claims, {self.direction_count} directions"
        )
        return replace(noticed(mission, ts, self.kind, text), adopted_from=self.origin_path, updated_at=ts)
