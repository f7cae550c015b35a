"""Records of findings: evidence and claims, and what the runtime saw of each criterion."""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, nested, replace
from omx_autoresearch.missions.rules.criteria import CRITERIA_LIMIT
from omx_autoresearch.missions.rules.findings import Check, Finding
from omx_autoresearch.missions.rules.mission import Mission, noticed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

KEPT_EVIDENCE_IDS = 16
"""Evidence ids that the state keeps for a criterion, newest last; all of them stand in the journal."""


@dataclass(frozen=True, slots=True)
class FindingRecorded:
    """Something was observed; ``finding.evidence`` says whether a criterion's rule accepted it."""

    kind: ClassVar[str] = "finding_recorded"
    finding: Finding = nested(Finding)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Counted; the first evidence of a criterion is the iteration's progress.

        More evidence for a criterion that has some changes no stale count: else whoever edits a file at every turn
        would have strong progress for ever. So criteria reset the count at most once each.
        """
        evidence = self.finding.evidence
        if evidence is None:
            return replace(
                mission,
                finding_count=mission.finding_count + 1,
                turn_findings=mission.turn_findings + 1,
                updated_at=ts,
            )
        known = mission.evidence_ids.get(evidence.criterion_id, ())
        is_progress = evidence.is_new and not known
        return replace(
            mission,
            finding_count=mission.finding_count + 1,
            accepted_count=mission.accepted_count + 1,
            turn_findings=mission.turn_findings + 1,
            turn_evidence=mission.turn_evidence + (1 if is_progress else 0),
            turn_evidence_ids=(*mission.turn_evidence_ids, self.finding.id)[-KEPT_EVIDENCE_IDS:],
            evidence_ids={
                **mission.evidence_ids,
                evidence.criterion_id: (*known, self.finding.id)[-KEPT_EVIDENCE_IDS:],
            },
            updated_at=ts,
        )


@dataclass(frozen=True, slots=True)
class CriteriaChecked:
    """The runtime looked at criteria; ``run_id`` is of the run that did it, empty where none was needed."""

    kind: ClassVar[str] = "criteria_checked"
    checks: tuple[Check, ...] = nested(Check, default=())
    run_id: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The newest check of each criterion; a run of this id is no longer under way."""
        new = {check.criterion_id: check for check in self.checks}
        kept = tuple(new.pop(check.criterion_id, check) for check in mission.checks)
        running = mission.running_validation
        is_current = running is not None and bool(self.run_id) and running.run_id == self.run_id
        return replace(
            mission,
            checks=(*kept, *new.values())[-CRITERIA_LIMIT:],
            running_validation=None if is_current else running,
            updated_at=ts,
        )


@dataclass(frozen=True, slots=True)
class VerificationExcused:
    """The owner accepted a reason why verification of changed code could not run."""

    kind: ClassVar[str] = "verification_excused"
    reason: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Readiness asks no more for verification."""
        return replace(mission, verification_excuse=self.reason, updated_at=ts)


@dataclass(frozen=True, slots=True)
class ReadinessBlocked:
    """The validator passes, and yet something is missing: ``missing`` are its codes."""

    kind: ClassVar[str] = "readiness_blocked"
    missing: tuple[str, ...] = ()

    def apply(self, mission: Mission, ts: str) -> Mission:
        """A notice; the refusal beside it counts."""
        text = f"completion waits for {', '.join(self.missing)}"
        return replace(noticed(mission, ts, self.kind, text), updated_at=ts)


# --- Records of what somebody said or edited. A claim is kept and shown; nothing here is proof.

_KEPT_EDITS = 8


@dataclass(frozen=True, slots=True)
class ClaimRecorded:
    """A note or an inbox line, taken in as a claim.

    Attributes:
        text: the claim, bounded.
        origin: ``cli``, ``inbox``, ``tool-event``, or ``unknown`` (a file that somebody put into the inbox, a line
            or entry that somebody added to a projection; ``hand-edit`` in older journals).
        claim_id: digest of the line; the same line is taken in once.
    """

    kind: ClassVar[str] = "claim_recorded"
    text: str
    origin: str
    claim_id: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Counted and shown."""
        return replace(mission, claim_count=mission.claim_count + 1, updated_at=ts)


@dataclass(frozen=True, slots=True)
class ProjectionEdited:
    """Somebody edited a projection otherwise than by adding to it; the file was set aside and written anew.

    Attributes:
        path: of the projection, relative to the mission's folder under ``.omx/autoresearch``.
        moved_to: where the edited file stands now, relative to the same.
    """

    kind: ClassVar[str] = "projection_edited"
    path: str
    moved_to: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Told by the next summary, and by a notice."""
        text = f"{self.path} was edited and is written anew; the edited file is {self.moved_to}"
        mission = noticed(mission, ts, self.kind, text)
        kept = (*(path for path in mission.edited_projections if path != self.path), self.path)
        return replace(mission, edited_projections=kept[-_KEPT_EDITS:], updated_at=ts)


@dataclass(frozen=True, slots=True)
class TornTailSetAside:
    """The last line of the journal was torn by a crash; its bytes were moved to a file."""

    kind: ClassVar[str] = "torn_tail_set_aside"
    path: str
    size_bytes: int

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Nothing acknowledged was lost."""
        return replace(mission, updated_at=ts)


# --- Records of an experiment that belongs to a mission: what it is, and what it brought the mission.
#
# They move the stall count and nothing else. Whether a criterion is met is read from the experiment's own log, each
# time.

KEPT_EXPERIMENTS = 32
"""Experiments that the state of a mission names, newest last; an older one meets no criterion any more."""


@dataclass(frozen=True, slots=True)
class ExperimentLinked:
    """An experiment was started for this mission."""

    kind: ClassVar[str] = "experiment_linked"
    experiment_id: str
    metric: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Its trials count from now on."""
        others = tuple(name for name in mission.experiments if name != self.experiment_id)
        return replace(mission, experiments=(*others, self.experiment_id)[-KEPT_EXPERIMENTS:], updated_at=ts)


@dataclass(frozen=True, slots=True)
class TrialsAccepted:
    """Trials of an experiment of this mission were accepted and verified anew.

    Attributes:
        experiment_id: whose.
        iterations: their numbers, ascending.
        commit: the last one's checkpoint.
    """

    kind: ClassVar[str] = "trials_accepted"
    experiment_id: str
    iterations: tuple[int, ...]
    commit: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The iteration's progress; a trial that was told before, or of a foreign experiment, is none."""
        if self.experiment_id not in mission.experiments:
            return replace(mission, updated_at=ts)
        known = mission.credited_trials.get(self.experiment_id, 0)
        new = [number for number in self.iterations if number > known]
        if not new:
            return replace(mission, updated_at=ts)
        kept = {
            name: number for name, number in mission.credited_trials.items() if name in mission.experiments
        }
        return replace(
            mission,
            credited_trials={**kept, self.experiment_id: max(new)},
            turn_trials=mission.turn_trials + len(new),
            updated_at=ts,
        )


@dataclass(frozen=True, slots=True)
class GainVerified:
    """Base and final of an experiment of this mission were measured freshly against each other.

    Attributes:
        experiment_id: whose.
        metric: that was measured.
        digest: of the claim.
        estimate: of the gain.
        interval: around it.
    """

    kind: ClassVar[str] = "gain_verified"
    experiment_id: str
    metric: str
    digest: str
    estimate: float
    interval: tuple[float, ...] = ()

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Criteria that rest on an earlier claim of this metric are looked at anew."""
        if self.experiment_id not in mission.experiments:
            return replace(mission, updated_at=ts)
        others = {name: digest for name, digest in mission.claim_digests.items() if name != self.metric}
        kept = dict(list(others.items())[1 - KEPT_EXPERIMENTS :])
        return replace(mission, claim_digests={**kept, self.metric: self.digest}, updated_at=ts)
