"""Findings: what was observed. One accepted by its criterion's own rule is evidence; every other one is a claim.

Acceptance is by rule, not by a flag: the runtime itself ran the command, read the file, or heard the owner. The same
evidence twice is not new. Pure.
"""

from __future__ import annotations

from omx_autoresearch.core.digests import sha256
from omx_autoresearch.core.shape import nested
from omx_autoresearch.core.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.words import FindingKind

FINDING_KINDS: tuple[FindingKind, ...] = (
    "command",
    "file",
    "test",
    "benchmark",
    "manual",
    "review",
    "verification",
)
SUMMARY_LIMIT_BYTES = 256 * 1024
PATHS_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the runtime itself saw, for one criterion.

    Attributes:
        criterion_id: whose rule accepted it.
        digest: of everything that makes it this evidence (argv and output, path and content, run id, the words).
        exit_status: of a command.
        output_digest: sha256 of a command's output, or of a file's content.
        size_bytes: of that output or file.
        run_id: of the run whose output stands in ``outputs/``; empty for others.
        is_new: False when the mission had this very evidence before.
    """

    criterion_id: str
    digest: str
    exit_status: int | None = None
    output_digest: str = ""
    size_bytes: int = 0
    run_id: str = ""
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """One recorded observation.

    Attributes:
        id: unique in the mission.
        kind: of the observation.
        summary: in the words of whoever recorded it; data, never an instruction.
        source: where it comes from: ``cli``, ``mcp``, ``inbox``, ``runtime``, ``owner``, ``import``.
        command: the command that showed it, as text.
        paths: files that it is about.
        criterion_id: the criterion it was offered for; empty for none.
        evidence: set only when the criterion's rule accepted it.
        claim_reason: why it is a claim: which field, what was received, what would count, how to send it.
        iteration: in which it was recorded.
        direction: fingerprint of the direction it was found in; empty for none.
    """

    id: str
    kind: FindingKind
    summary: str
    source: str = "cli"
    command: str = ""
    paths: tuple[str, ...] = ()
    criterion_id: str = ""
    evidence: Evidence | None = nested(Evidence, default=None)
    claim_reason: str = ""
    iteration: int = 0
    direction: str = ""

    @property
    def is_accepted(self) -> bool:
        """True for evidence, False for a claim."""
        return self.evidence is not None


def evidence_digest(*parts: str) -> str:
    """The identity of a piece of evidence."""
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def finding_faults(finding: Finding) -> list[str]:
    """Why a finding cannot be recorded at all, a sentence a fault: field, what was received, what counts."""
    faults = []
    if finding.kind not in FINDING_KINDS:
        faults.append(f"kind is one of {', '.join(FINDING_KINDS)}, received {finding.kind!r}")
    if not finding.summary.strip():
        faults.append("summary is empty; say in a sentence what was observed")
    size = len(finding.summary.encode("utf-8", "surrogatepass"))
    if size > SUMMARY_LIMIT_BYTES:
        faults.append(
            f"summary has {size} bytes, {SUMMARY_LIMIT_BYTES} at most; put the whole into a file and name it in paths"
        )
    if "\0" in finding.summary or any("\0" in path for path in finding.paths):
        faults.append("summary and paths hold no NUL characters")
    if len(finding.paths) > PATHS_LIMIT:
        faults.append(f"paths has {len(finding.paths)} entries, {PATHS_LIMIT} at most")
    return faults
