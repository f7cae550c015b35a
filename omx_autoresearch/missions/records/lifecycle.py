"""Records of the phases, and of owner verbs that were tried from inside an agent.

A use case that writes one asks :meth:`PhaseStep.taken`, so that it carries the phase that the machine reached. Of two
that raced the first one stands: a record whose step the phase does not have changes nothing, so that nothing ever
re-opens a mission that ended.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import as_fields, dataclass, field, nested, replace
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.missions.rules.allowances import extended, refreshed
from omx_autoresearch.missions.rules.difference import Difference
from omx_autoresearch.missions.rules.mission import (
    TRANSITIONS,
    Blocker,
    Contract,
    Mission,
    MissionIdentity,
    Notice,
    done,
    is_legal,
    next_phase,
    noticed,
    seconds_running,
    target,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Self

    from omx_autoresearch.foundation.types import Phase, Step

_KEPT_REFUSED_VERBS = 20


PROVEN_COMPLETIONS = 4
"""The schema version from which on a completion counts only with the record of its run."""


@dataclass(frozen=True, slots=True)
class PhaseStep:
    """A record of a step of the lifecycle, with the phase that the machine reached.

    Attributes:
        step: the step, from the table of transitions.
        phase: the phase after it.
    """

    kind: ClassVar[str]
    step: ClassVar[Step]
    phase: Phase

    @classmethod
    def taken(cls, mission: Mission, *facts: Any) -> Self:
        """The record of the step that the mission takes now.

        Raises:
            StepIllegal: the mission's phase has no such step.
            AutoresearchError: the machine cannot be run.
        """
        return cls(next_phase(mission.phase, cls.step, task_id=mission.task_id), *facts)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The phase, a notice, and what else the step changes; nothing where the phase does not have the step."""
        if target(TRANSITIONS, mission.phase, self.step) != self.phase:
            return mission
        if doubt := self.doubt(mission):
            return noticed(mission, ts, self.kind, doubt)
        usage = mission.usage
        if mission.running_since:  # the running stretch ends here
            usage = replace(usage, seconds_running=seconds_running(mission, ts))
        mission = replace(mission, phase=self.phase, running_since="", usage=usage)
        return replace(noticed(mission, ts, self.kind, self.notice()), **self.changes(mission, ts))

    def doubt(self, mission: Mission) -> str:
        """Why the record is not believed, though the phase has the step; empty where it is."""
        return ""

    def notice(self) -> str:
        """The text of the notice about the step."""
        return done(self.step)

    def changes(self, mission: Mission, ts: str) -> dict[str, Any]:
        """The changes of the step besides phase and clock."""
        return {}


@dataclass(frozen=True, slots=True)
class _OwnersStep(PhaseStep):
    reason: str = ""

    def notice(self) -> str:
        """The step and the owner's reason."""
        return _because(done(self.step), self.reason)


def _because(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what


@dataclass(frozen=True, slots=True)
class MissionCreated(MissionIdentity):
    """``init`` or ``start`` made the mission; it is a draft."""

    kind: ClassVar[str] = "mission_created"

    def apply(self, mission: Mission | None, ts: str) -> Mission:
        """A draft; a second creation in one journal is ignored, the first one stands."""
        if mission is not None:
            return mission
        notice = Notice(ts, self.kind, f"mission {self.task_id} was created")
        return Mission(**as_fields(self), notices=(notice,), created_at=ts)


@dataclass(frozen=True, slots=True)
class SchemaMigrated:
    """From here on records are of a newer version; those before are read through the steps in between."""

    kind: ClassVar[str] = "schema_migrated"
    from_version: int
    to_version: int

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The version alone; nothing of the mission changes."""
        return replace(mission, schema_version=max(mission.schema_version, self.to_version))


@dataclass(frozen=True, slots=True)
class MissionLaunched(PhaseStep):
    """The owner's ``start``: the contract is compiled and the mission runs."""

    kind: ClassVar[str] = "mission_launched"
    step: ClassVar[Step] = "launch"
    contract: Contract = nested(Contract)
    contract_digest: str = ""
    nonce_digest: str = ""
    reason: str = ""
    workspace_path: str = ""
    head: str = ""
    tree_digest: str = ""

    def notice(self) -> str:
        """The launch and the owner's reason."""
        return _because(done(self.step), self.reason)

    def changes(self, mission: Mission, ts: str) -> dict[str, Any]:
        """The contract, with the clock started."""
        return {
            "contract": self.contract,
            "contract_digest": self.contract_digest,
            "nonce_digest": self.nonce_digest,
            "workspace_path": self.workspace_path or mission.workspace_path,
            "best_score": self.contract.baseline_score,
            "last_score": self.contract.baseline_score,
            "launch_head": self.head,
            "launch_tree_digest": self.tree_digest,
            "running_since": ts,
        }


OF_MISSION = ("goal", "scope", "non_goals", "milestones")
"""What mission.md says and no contract holds."""


@dataclass(frozen=True, slots=True)
class MissionAmended:
    """The owner changed validator, limits or scope of a live mission; pins are taken anew.

    A record without a goal, as older programs wrote it, leaves what mission.md says as it was.
    """

    kind: ClassVar[str] = "mission_amended"
    step: ClassVar[Step] = "amend"
    contract: Contract = nested(Contract)
    contract_digest: str = ""
    reason: str = ""
    workspace_path: str = ""
    project_path: str = ""
    goal: str = ""
    scope: tuple[str, ...] = ()
    non_goals: tuple[str, ...] = ()
    milestones: tuple[str, ...] = ()

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The new contract; old verdicts and checks belong to the old digest and no longer count where it changed.

        Evidence stays with the criteria whose rule stayed as it was.
        """
        if not is_legal(mission.phase, "amend"):
            return mission
        mission = noticed(mission, ts, self.kind, "the contract was amended", self.reason)
        before = {item.id: item.rule for item in mission.contract.criteria} if mission.contract else {}
        kept = {item.id for item in self.contract.criteria if before.get(item.id) == item.rule}
        stated = {name: getattr(self, name) for name in OF_MISSION} if self.goal else {}
        if self.contract_digest != mission.contract_digest:
            score = self.contract.baseline_score
            stated |= {"verification_excuse": "", "best_score": score, "last_score": score, "rejections": ()}
        return replace(
            mission,
            **stated,
            contract=self.contract,
            contract_digest=self.contract_digest,
            workspace_path=self.workspace_path or mission.workspace_path,
            project_path=self.project_path or mission.project_path,
            usage=refreshed(mission.usage),
            evidence_ids={key: ids for key, ids in mission.evidence_ids.items() if key in kept},
        )


@dataclass(frozen=True, slots=True)
class MissionBlocked(PhaseStep):
    """A person must act; ``blocker`` says what is the smallest input."""

    kind: ClassVar[str] = "mission_blocked"
    step: ClassVar[Step] = "block"
    blocker: Blocker = nested(Blocker)

    def notice(self) -> str:
        """The blocker."""
        return f"{self.blocker.reason_code}: {self.blocker.what}"

    def changes(self, mission: Mission, ts: str) -> dict[str, Any]:
        """The blocker; a stall is remembered."""
        has_stalled = mission.has_stalled or self.blocker.reason_code == "stalled"
        return {"blocker": self.blocker, "has_stalled": has_stalled}


@dataclass(frozen=True, slots=True)
class _GoingOn(_OwnersStep):
    """Running again with fresh stall allowances; used budget stays used."""

    add_hours: float = 0.0
    add_refusals: int = 0

    def changes(self, mission: Mission, ts: str) -> dict[str, Any]:
        """The clock started, the allowances fresh, the limits extended where the owner said so."""
        contract = mission.contract
        if contract is not None and (self.add_hours or self.add_refusals):
            limits = extended(contract.limits, hours=self.add_hours, refusals=self.add_refusals)
            contract = replace(contract, limits=limits)
        return {
            "contract": contract,
            "blocker": None,
            "usage": refreshed(mission.usage),
            "is_recheck_due": True,  # the owner may have fixed what no digest shows
            "prompted_at": ts,
            "running_since": ts,
        }


@dataclass(frozen=True, slots=True)
class MissionUnblocked(_GoingOn):
    """The owner let a blocked mission go on; limits may have grown."""

    kind: ClassVar[str] = "mission_unblocked"
    step: ClassVar[Step] = "unblock"


@dataclass(frozen=True, slots=True)
class MissionPaused(_OwnersStep):
    """The owner paused the mission."""

    kind: ClassVar[str] = "mission_paused"
    step: ClassVar[Step] = "pause"


@dataclass(frozen=True, slots=True)
class MissionResumed(_GoingOn):
    """The owner resumed a paused mission."""

    kind: ClassVar[str] = "mission_resumed"
    step: ClassVar[Step] = "resume"


@dataclass(frozen=True, slots=True)
class MissionCancelled(_OwnersStep):
    """The owner gave the mission up; nothing re-opens it."""

    kind: ClassVar[str] = "mission_cancelled"
    step: ClassVar[Step] = "cancel"

    def changes(self, mission: Mission, ts: str) -> dict[str, Any]:
        """No session is held any more."""
        return {"blocker": None, "binding": None}


@dataclass(frozen=True, slots=True)
class MissionCompleted(PhaseStep):
    """The completion contract was met by an attested run; nothing re-opens the mission.

    Attributes:
        run_id: of that run; empty where the contract takes a completion artifact without one.
        difference: what had changed since the launch; None in a record of an older version.
    """

    kind: ClassVar[str] = "mission_completed"
    step: ClassVar[Step] = "complete"
    run_id: str = ""
    difference: Difference | None = nested(Difference, default=None)

    def doubt(self, mission: Mission) -> str:
        """A completion is not believed without the passed run that it names."""
        if mission.schema_version < PROVEN_COMPLETIONS or self._is_proven(mission):
            return ""
        return f"a completion was ignored, because no run that passed bears it out: {self.run_id or 'none is named'}"

    def _is_proven(self, mission: Mission) -> bool:
        run, contract = mission.attestation, mission.contract
        if not self.run_id:  # by a completion artifact that a person wrote, where the contract takes one
            return contract is not None and contract.accept_unattested
        return (
            run is not None
            and (run.run_id, run.verdict) == (self.run_id, "passed")
            and run.contract_digest == mission.contract_digest
        )

    def notice(self) -> str:
        """The run that met it."""
        return _because("the contract is met", self.run_id)

    def changes(self, mission: Mission, ts: str) -> dict[str, Any]:
        """The run is kept, and no session is held any more."""
        return {
            "completed_run_id": self.run_id,
            "completed_at": ts,
            "difference": self.difference,
            "blocker": None,
            "binding": None,
        }


@dataclass(frozen=True, slots=True)
class OwnerVerbRefused:
    """A verb of the owner was tried from inside an agent."""

    kind: ClassVar[str] = "owner_verb_refused"
    verb: str = ""
    marks: tuple[str, ...] = ()

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Shown to the owner; changes nothing else."""
        kept = (*mission.refused_verbs, f"{ts} {self.verb}")[-_KEPT_REFUSED_VERBS:]
        return replace(mission, refused_verbs=kept)


@dataclass(frozen=True, slots=True)
class UnprovenPrompt:
    """A command came in a prompt of which it is not proven that a person typed it.

    Attributes:
        command: as it was typed, without the mission.
        why: what the proof lacks.
    """

    kind: ClassVar[str] = "unproven_prompt"
    command: str
    why: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Shown to the owner; what it changed has records of its own."""
        text = f"{self.command} came in a prompt that is not proven to be a person's"
        return noticed(mission, ts, self.kind, text, self.why)


# --- The record of a mission that began as another runtime's folder.


@dataclass(frozen=True, slots=True)
class MissionAdopted:
    """The folder that the mission was adopted from; findings and directions follow as records of their own.

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
        findings = count_of(self.finding_count, "finding")
        directions = count_of(self.direction_count, "direction")
        text = (
            f"adopted from {self.origin_path} ({self.layout}, {self.origin_status}, iteration "
            f"{self.origin_iteration}): {findings} as claims, {directions}"
        )
        return replace(noticed(mission, ts, self.kind, text), adopted_from=self.origin_path)
