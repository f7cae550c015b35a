"""What ``finding``, ``criterion``, ``readiness`` and ``log`` print with ``--json``; see documents."""

from __future__ import annotations

from omx_autoresearch.core.findings import Evidence
from omx_autoresearch.core.notices import Notice
from omx_autoresearch.core.readiness import CriterionView, ReadinessReport
from omx_autoresearch.core.values import dataclass
from omx_autoresearch.runtime.task_files import IterationLine


@dataclass(frozen=True, slots=True)
class FindingLine:
    """One finding, as ``findings.jsonl`` has it.

    Attributes:
        id: unique in the mission.
        kind: of the observation.
        summary: in the words of whoever recorded it.
        source: where it comes from.
        paths: files that it is about.
        accepted: it is evidence.
        created_at: when it was recorded, ISO 8601 UTC.
        command: that showed it, as text.
        criterion_id: offered for this criterion; empty for none.
        evidence: what the runtime itself saw; null for a claim.
        claim_reason: why it is a claim.
        iteration: in which it was recorded.
        direction: fingerprint of the direction it was found in.
        seq: number of its record, to page on with ``--before``.
    """

    id: str
    kind: str
    summary: str
    source: str
    paths: tuple[str, ...]
    accepted: bool
    created_at: str
    command: str = ""
    criterion_id: str = ""
    evidence: Evidence | None = None
    claim_reason: str = ""
    iteration: int = 0
    direction: str = ""
    seq: int = 0


@dataclass(frozen=True, slots=True)
class FindingDocument:
    """``finding add`` and ``finding show``.

    Attributes:
        task_id: of the mission.
        id: of the finding.
        accepted: it is evidence.
        reason: why it is a claim, or not new, or not recorded yet.
        is_known: it was recorded before; nothing was added.
        is_pending: it is not in the journal yet: a command still runs, or it waits in the inbox.
        finding: the whole of it.
        next: the command that follows.
    """

    task_id: str
    id: str
    accepted: bool
    reason: str
    is_known: bool
    is_pending: bool
    finding: FindingLine
    next: str


@dataclass(frozen=True, slots=True)
class FindingListDocument:
    """``finding list`` and ``findings``.

    Attributes:
        task_id: of the mission.
        finding_count: findings and claims of the mission.
        accepted_count: of them, evidence.
        findings: the newest, evidence first.
    """

    task_id: str
    finding_count: int
    accepted_count: int
    findings: tuple[FindingLine, ...]


@dataclass(frozen=True, slots=True)
class ImportDocument:
    """``finding import``.

    Attributes:
        task_id: of the mission.
        added: findings recorded now, all of them claims.
        known: findings of the file that the mission had already.
    """

    task_id: str
    added: int
    known: int


@dataclass(frozen=True, slots=True)
class CriterionListDocument:
    """``criterion list``, ``check`` and ``accept``.

    Attributes:
        task_id: of the mission.
        is_running: a check goes on; what it sees is not in this document.
        criteria: every criterion of the contract (of sandbox.md while draft).
    """

    task_id: str
    is_running: bool
    criteria: tuple[CriterionView, ...]


@dataclass(frozen=True, slots=True)
class LogDocument:
    """``log``.

    Attributes:
        task_id: of the mission.
        iterations: the newest first.
        lifecycle: the newest events of the mission's life, newest first; the journal has all.
    """

    task_id: str
    iterations: tuple[IterationLine, ...]
    lifecycle: tuple[Notice, ...]


EVIDENCE_SCHEMAS: dict[str, object] = {
    "finding": FindingDocument,
    "finding-list": FindingListDocument,
    "finding-import": ImportDocument,
    "criterion-list": CriterionListDocument,
    "readiness": ReadinessReport,
    "log": LogDocument,
}
EVIDENCE_VERBS: dict[str, str] = {
    "finding": "finding",
    "findings": "finding-list",
    "criterion": "criterion-list",
    "excuse": "status",
    "readiness": "readiness",
    "log": "log",
}
