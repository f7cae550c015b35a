"""Findings: what was observed. One accepted by its criterion's own rule is evidence; every other one is a claim.

Acceptance is by rule, not by a flag: the runtime itself ran the command, read the file, or heard the owner. The same
evidence twice is not new. A :class:`Check` says what the runtime last saw of a criterion, and of which workspace: it is
what a completing stop relies on, never the finding alone. Pure.
"""

from __future__ import annotations

from omx_autoresearch.foundation.digests import sha256
from omx_autoresearch.foundation.records import dataclass, field, nested

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.foundation.types import FindingKind

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
COMMAND_LIMIT_BYTES = 16 * 1024
PATHS_LIMIT = 1000
PATH_LIMIT_BYTES = 4096
_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z"


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
        contract_digest: of the contract whose rule accepted it.
        head: the commit that it was seen on; empty outside git.
        tree_digest: of the workspace's content at that moment.
        isolation: what isolated the command: ``none`` or ``bubblewrap``.
    """

    criterion_id: str
    digest: str
    exit_status: int | None = None
    output_digest: str = ""
    size_bytes: int = 0
    run_id: str = ""
    is_new: bool = True
    contract_digest: str = ""
    head: str = ""
    tree_digest: str = ""
    isolation: str = "none"


@dataclass(frozen=True, slots=True)
class Look:
    """The workspace as it is at this moment, against which an attestation must be fresh.

    Attributes:
        head: current commit.
        tree_digest: current content digest.
        pin_digest: digest of the pinned files as they are now.
        changed_pins: pinned paths whose content differs from the manifest, as far as they were compared.
        output_artifact_digest: of the artifact under review; empty when it is missing or empty.
        artifact_fault: why the artifact cannot be taken (outside the workspace, no regular file, ...).
        artifact_report: what a hand-written completion artifact says (see
            :func:`~omx_autoresearch.missions.rules.evidence.read_artifact`).
        artifact_claim: ``passed`` when that document is well formed and says so; a claim all the same.
        file_digests: of the files that criteria name, by path; those that can be taken.
        file_faults: why the others cannot, by path.
        changed_code: paths of code that differ from the launch, where the contract does not run the code anyway.
        state_fault: why the state files cannot be believed; looked at only when nothing else is missing.
    """

    head: str
    tree_digest: str
    pin_digest: str
    changed_pins: tuple[str, ...] = ()
    output_artifact_digest: str = ""
    artifact_fault: str = ""
    artifact_report: str = ""
    artifact_claim: str = ""
    file_digests: dict[str, str] = field(default_factory=dict)
    file_faults: dict[str, str] = field(default_factory=dict)
    changed_code: tuple[str, ...] = ()
    state_fault: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """What the runtime saw of one criterion when it last looked, bound to everything that this depends on.

    Attributes:
        criterion_id: of the criterion.
        is_met: its rule accepted what was there.
        finding_id: the evidence that it rests on; empty when it is not met.
        received: what was there instead, one line; empty when it is met.
        at: when, ISO 8601 UTC.
        contract_digest: of the contract that it was judged under.
        pin_digest: of the pinned files at that moment.
        head: the commit.
        tree_digest: of the workspace's content.
        content_digest: of the file that a file rule names.
        run_id: of the command's run; its output stands under it.
        is_reusable: an unmet one need not be looked at again while nothing moved (it took long).
    """

    criterion_id: str
    is_met: bool
    finding_id: str = ""
    received: str = ""
    at: str = ""
    contract_digest: str = ""
    pin_digest: str = ""
    head: str = ""
    tree_digest: str = ""
    content_digest: str = ""
    run_id: str = ""
    is_reusable: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One recorded observation.

    Attributes:
        id: unique in the mission.
        kind: of the observation.
        summary: in the words of whoever recorded it; data, never an instruction.
        source: where it comes from: ``cli``, ``mcp``, ``inbox``, ``hook``, ``runtime``, ``owner``, ``import``.
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
    faults = _name_faults(finding)
    faults += _text_faults("summary", finding.summary, SUMMARY_LIMIT_BYTES)
    if not finding.summary.strip():
        faults.append("summary is empty; say in a sentence what was observed")
    faults += _text_faults("command", finding.command, COMMAND_LIMIT_BYTES)
    if len(finding.paths) > PATHS_LIMIT:
        faults.append(f"paths has {len(finding.paths)} entries, {PATHS_LIMIT} at most")
    for path in finding.paths[:PATHS_LIMIT]:
        faults += _text_faults("paths", path, PATH_LIMIT_BYTES)
        if not path.strip():
            faults.append("paths holds an empty path; leave it out")
    return list(dict.fromkeys(faults))


def _name_faults(finding: Finding) -> list[str]:
    import re

    faults = []
    if finding.kind not in FINDING_KINDS:
        faults.append(f"kind is one of {', '.join(FINDING_KINDS)}, received {_shown(finding.kind)}")
    if not re.match(_ID, finding.id):
        faults.append(
            f"id is at most 80 of A-Z, a-z, 0-9, `.`, `_`, `-` and begins with a letter or digit, "
            f"received {_shown(finding.id)}"
        )
    return faults


def _text_faults(name: str, text: str, limit_bytes: int) -> list[str]:
    faults = []
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limit_bytes:
        faults.append(
            f"{name} has {size} bytes, {limit_bytes} at most; put the whole into a file and name it in paths"
        )
    if "\0" in text:
        faults.append(f"{name} holds a NUL character; leave it out")
    if any("\ud800" <= char <= "\udfff" for char in text):
        faults.append(f"{name} holds half of a surrogate pair, which UTF-8 cannot carry; send it in UTF-8")
    return faults


def _shown(text: str) -> str:
    return repr(text[:80]) + ("..." if len(text) > 80 else "")
