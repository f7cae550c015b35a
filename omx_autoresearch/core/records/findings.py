"""Records of findings: evidence and claims, and what the runtime saw of each criterion."""

from __future__ import annotations

from omx_autoresearch.core.criteria import CRITERIA_LIMIT
from omx_autoresearch.core.findings import Check, Finding
from omx_autoresearch.core.records.notices import noticed
from omx_autoresearch.core.shape import nested
from omx_autoresearch.core.values import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from omx_autoresearch.core.mission import Mission

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
