"""Importing findings from a file of JSON lines: every line is validated before the first is recorded.

One faulty line refuses the whole file, with every fault by its line. What is imported is a claim: an acceptance in the
file is somebody's word. Recorded in batches of one write each; a process that is killed in between leaves whole
batches, and the same file imported again adds only what is missing (ids come from the file, or from the line itself).
"""

from __future__ import annotations

from itertools import chain

from omx_autoresearch.core.digests import sha256
from omx_autoresearch.core.findings import Finding, finding_faults
from omx_autoresearch.core.lifecycle import FINAL_PHASES
from omx_autoresearch.core.records.findings import FindingRecorded
from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import StepIllegal, UsageError
from omx_autoresearch.runtime.entering import validated
from omx_autoresearch.storage import strictjson
from omx_autoresearch.storage.atomic import read_bounded
from omx_autoresearch.storage.missions import MissionStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from omx_autoresearch.core.mission import Mission
    from omx_autoresearch.core.words import FindingKind
    from omx_autoresearch.runtime.context import Runtime

FILE_LIMIT_BYTES = 1024 * 1024 * 1024
BATCH_FINDINGS = 10_000
_SHOWN_FAULTS = 20
_WHY = "an imported finding is a claim, whatever its file says; to make evidence: omx-autoresearch criterion check {}"


@dataclass(frozen=True, slots=True)
class ImportLine:
    """One line of the file: the fields of ``findings.jsonl``; those that the runtime decides itself are ignored.

    Attributes:
        summary: what was observed.
        kind: of the observation.
        id: unique in the mission; made from the line where it is left out.
        source: ignored: where it came from is the file.
        command: that showed it.
        paths: files that it is about.
        criterion_id: the criterion it is about.
        accepted: ignored, as everything below: nothing imported is evidence, and the record's own time counts.
        created_at: ignored.
        evidence: ignored.
        claim_reason: ignored.
        iteration: ignored.
        direction: ignored.
    """

    summary: str
    kind: FindingKind = "manual"
    id: str = ""
    source: str = ""
    command: str = ""
    paths: tuple[str, ...] = ()
    criterion_id: str = ""
    accepted: bool = False
    created_at: str = ""
    evidence: dict[str, object] | None = None
    claim_reason: str = ""
    iteration: int = 0
    direction: str = ""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did.

    Attributes:
        added: findings recorded now.
        known: findings of the file that the mission had already.
    """

    added: int
    known: int


def import_findings(runtime: Runtime, task_id: str, path: str) -> Imported:
    """Record every line of a file as a claim; nothing of a file with a fault.

    Raises:
        UsageError: a line cannot be taken: every fault by its line. Or the file cannot be read.
        StepIllegal: the mission has ended.
        StorageFailed: the disk refused; whole batches stand, and the same import goes on where it stopped.
    """
    mission = MissionStore(runtime.home).load(task_id)
    if mission.phase in FINAL_PHASES:
        raise StepIllegal(
            f"mission {task_id} is {mission.phase}; nothing is added to it", next_step="omx-autoresearch list"
        )
    data = _read(path)
    _refuse(runtime, mission, path, data)
    added = known = 0
    batch: list[Finding] = []
    for finding in _findings(mission, path, data):
        batch.append(finding)
        if len(batch) == BATCH_FINDINGS:
            more = _record(runtime, task_id, batch)
            added, known, batch = added + more, known + len(batch) - more, []
    more = _record(runtime, task_id, batch)
    return Imported(added + more, known + len(batch) - more)


def _read(path: str) -> bytes:
    try:
        return read_bounded(path, FILE_LIMIT_BYTES)
    except FileNotFoundError:
        raise UsageError(f"{path} is missing", next_step="name a file of JSON lines") from None


def _refuse(runtime: Runtime, mission: Mission, path: str, data: bytes) -> None:
    """Read every line once; two lines of one id are a fault unless they say the same."""
    faults: list[str] = []
    seen: dict[str, bytes] = {}
    count = 0
    for number, line in _lines(data):
        count += 1
        try:
            finding = _finding(mission, path, number, line)
        except UsageError as error:
            faults.append(error.message)
            continue
        mark = sha256(repr(_identity(finding)).encode("utf-8", "surrogatepass")).digest()
        if seen.setdefault(finding.id, mark) != mark:
            faults.append(
                f"{path}, line {number}: id: {finding.id!r} is given to another finding of the file"
            )
    if not count:
        faults.append(f"{path} holds no line")
    faults += _taken(runtime, mission, path, data) if not faults else []
    if faults:
        more = f"\n  and {len(faults) - _SHOWN_FAULTS} more" if len(faults) > _SHOWN_FAULTS else ""
        listed = "\n  ".join(faults[:_SHOWN_FAULTS])
        raise UsageError(
            f"nothing was imported; {len(faults)} faults:\n  {listed}{more}",
            next_step="mend the file, then import it again",
        )


def _taken(runtime: Runtime, mission: Mission, path: str, data: bytes) -> list[str]:
    """Ids of the file that other findings of the mission have."""
    faults = []
    journal = MissionStore(runtime.home).journal(mission.task_id)
    batch: dict[str, Finding] = {}
    try:
        for finding in chain(_findings(mission, path, data), (None,)):
            if finding is not None:
                batch[f"finding:{finding.id}"] = finding
            if batch and (finding is None or len(batch) == BATCH_FINDINGS):
                for name, entry in journal.by_ids(list(batch)).items():
                    if _differs(batch[name], entry.data["finding"]):
                        faults.append(f"{path}: id: {batch[name].id!r} is another finding of this mission")
                batch = {}
    finally:
        journal.close()
    return faults


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    start, number = 0, 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        number += 1
        line = data[start:end].strip()
        if line:
            yield number, line
        start = end + 1


def _findings(mission: Mission, path: str, data: bytes) -> Iterator[Finding]:
    for number, line in _lines(data):
        yield _finding(mission, path, number, line)


def _finding(mission: Mission, path: str, number: int, line: bytes) -> Finding:
    where = f"{path}, line {number}"
    try:
        value = strictjson.decode_document(line) if number == 1 else strictjson.decode(line)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
    read = validated(ImportLine, value, where=where, error=UsageError)
    finding = Finding(
        id=read.id or f"i-{sha256(line).hexdigest()[:24]}",
        kind=read.kind,
        summary=read.summary,
        source="import",
        command=read.command,
        paths=read.paths,
        criterion_id=read.criterion_id,
        claim_reason=_WHY.format(mission.task_id),
        iteration=mission.iteration,
    )
    if faults := finding_faults(finding):
        raise UsageError(f"{where}: {'; '.join(faults)}")
    known = {criterion.id for criterion in mission.contract.criteria} if mission.contract else set()
    if finding.criterion_id and finding.criterion_id not in known:
        raise UsageError(
            f"{where}: criterion_id: {finding.criterion_id[:80]!r} is no criterion of this contract"
        )
    return finding


def _identity(finding: Finding) -> tuple[object, ...]:
    return (finding.kind, finding.summary, finding.command, finding.paths, finding.criterion_id)


def _record(runtime: Runtime, task_id: str, batch: list[Finding]) -> int:
    """One batch, in one write; returns how many of it were new.

    Raises:
        UsageError: an id of the file is another finding of the mission; nothing of this batch is recorded.
    """
    if not batch:
        return 0
    store = MissionStore(runtime.home)
    with store.transaction(task_id, runtime.now()) as transaction:
        journal = store.journal(task_id)
        new: dict[str, Finding] = {}
        try:
            recorded = journal.by_ids([f"finding:{finding.id}" for finding in batch])
            for finding in batch:
                known = recorded.get(f"finding:{finding.id}")
                if known is None:
                    new.setdefault(finding.id, finding)
                elif _differs(finding, known.data["finding"]):
                    raise UsageError(
                        f"id: {finding.id!r} is another finding of this mission",
                        next_step=f"omx-autoresearch finding show {task_id} {finding.id}",
                    )
        finally:
            journal.close()
        if new:
            transaction.record(*(FindingRecorded(finding) for finding in new.values()))
    return len(new)


def _differs(finding: Finding, known: dict[str, object]) -> bool:
    paths = known.get("paths")
    stands = (
        known.get("kind"),
        known.get("summary"),
        known.get("command"),
        tuple(paths) if isinstance(paths, (list, tuple)) else (),
        known.get("criterion_id"),
    )
    return stands != _identity(finding)
