"""Records of findings: evidence and claims."""

from __future__ import annotations

from omx_autoresearch.core.findings import Finding
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
        """Counted; new evidence satisfies its criterion and is the iteration's progress."""
        evidence = self.finding.evidence
        mission = replace(
            mission,
            finding_count=mission.finding_count + 1,
            turn_findings=mission.turn_findings + 1,
            updated_at=ts,
        )
        if evidence is None:
            return mission
        known = (*mission.evidence_ids.get(evidence.criterion_id, ()), self.finding.id)[-KEPT_EVIDENCE_IDS:]
        return replace(
            mission,
            accepted_count=mission.accepted_count + 1,
            turn_evidence=mission.turn_evidence + (1 if evidence.is_new else 0),
            evidence_ids={
                **mission.evidence_ids,
                evidence.criterion_id: (*known, self.finding.id)[-KEPT_EVIDENCE_IDS:],
            },
        )


@dataclass(frozen=True, slots=True)
class VerificationExcused:
    """The owner accepted a reason why verification of changed code could not run."""

    kind: ClassVar[str] = "verification_excused"
    reason: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Readiness asks no more for verification."""
        return replace(mission, verification_excuse=self.reason, updated_at=ts)
