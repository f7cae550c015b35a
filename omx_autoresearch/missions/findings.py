"""Findings: recorded as evidence where the criterion's own rule accepts them, as claims everywhere else.

    add_finding      one; the runtime runs the criterion's command only when the command line asked for it
    list_findings    the newest, evidence first, in the time of the list
    find_finding     one by its id
    import_findings  many, from a file of JSON lines

A finding that cannot be recorded at all is refused with every fault: the field, the value received, what would count,
how to send it.
"""

from __future__ import annotations

from io import BytesIO
from itertools import islice

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.input_validation import validated
from omx_autoresearch.foundation.records import dataclass, from_plain, replace, sha256, to_plain
from omx_autoresearch.journal.layout import ProjectFolder, Runtime
from omx_autoresearch.journal.safe_files import read_bounded
from omx_autoresearch.missions import claims, projection_texts
from omx_autoresearch.missions.records.work import FindingRecorded
from omx_autoresearch.missions.rules.criteria import Finding, finding_faults
from omx_autoresearch.missions.store import MissionStore, refuse_ended
from omx_autoresearch.missions.validation import checks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from omx_autoresearch.foundation.types import FindingKind
    from omx_autoresearch.missions.rules.criteria import Criterion
    from omx_autoresearch.missions.rules.mission import Mission

CHECK_SECONDS = 90.0
"""How long ``finding add`` waits for a criterion's command; below the limits of the known clients."""
LIST_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Submission:
    """A finding as it is offered.

    Attributes:
        summary: in a sentence, or more.
        kind: ``command``, ``file``, ``test``, ``benchmark``, ``manual``, ``review`` or ``verification``.
        id: unique in the mission; made where empty.
        command: that showed it, as text; never run.
        paths: files that it is about.
        criterion_id: offered for this criterion; empty for none.
    """

    summary: str
    kind: FindingKind = "manual"
    id: str = ""
    command: str = ""
    paths: tuple[str, ...] = ()
    criterion_id: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The result of a submission.

    Attributes:
        finding: as it stands in the journal; while ``is_pending``, as it was offered.
        was_accepted: it is evidence.
        reason: why it is a claim, or not new, or not recorded yet; empty for new evidence.
        is_known: this very finding was recorded before; nothing was added.
        is_pending: the criterion's command still runs; the finding is recorded when it ends.
    """

    finding: Finding
    was_accepted: bool
    reason: str = ""
    is_known: bool = False
    is_pending: bool = False


def add_finding(
    runtime: Runtime,
    task_id: str,
    submission: Submission,
    *,
    source: str,
    wait_seconds: float = CHECK_SECONDS,
) -> Recorded:
    """Record one finding.

    Args:
        runtime: the world.
        task_id: of the mission.
        submission: what was observed.
        source: ``cli``, ``mcp``, ``hook``, ``inbox``, ``import``; only for ``cli`` a criterion's command is run.
        wait_seconds: for that command; it goes on by itself.

    Raises:
        UsageError: it cannot be recorded; every fault is named. Or its id is taken by another finding.
        StepIllegal: the mission has ended.
        CommandFault: the command may not run without the owner's approval.
        StorageFailed: the journal cannot be written.
    """
    store = MissionStore(runtime.home)
    mission = store.load(task_id)
    finding = _offered(runtime, mission, submission, source)
    refuse_ended(mission, "nothing can be added to it")
    known = find_finding(runtime, task_id, finding.id) if submission.id else None
    if known is not None:
        return _again(task_id, finding, known)
    if not finding.criterion_id or mission.contract is None:
        return _record(runtime, task_id, _bare_claim(mission, finding))
    criterion = checks.criterion_named(mission, finding.criterion_id)
    rule = criterion.rule
    if rule.argv and source == "cli":
        return _checked(runtime, task_id, criterion, finding, wait_seconds)
    is_unseen = bool(rule.source) and rule.source not in runtime.sources
    if rule.argv or rule.is_owners or is_unseen:
        received = (
            "the owner has not confirmed it"
            if rule.is_owners
            else f"a claim through {source}, where no {'command is run' if rule.argv else f'{rule.kind} is checked'}"
        )
        reason = checks.claim_reason(mission, criterion, received)
        return _record(runtime, task_id, replace(finding, claim_reason=reason))
    checks.examine_now(runtime, mission, criterion, finding)
    return _of(_needed(runtime, task_id, finding.id))


_SAME = ("kind", "summary", "command", "paths", "criterion_id")
"""Two findings that agree in these fields say the same."""


def _said(submission: Submission | Finding) -> dict[str, Any]:
    return {name: getattr(submission, name) for name in _SAME}


def refuse_faults(finding: Finding) -> None:
    """Refuse a finding that cannot be recorded at all.

    Raises:
        UsageError: every fault of it.
    """
    if faults := finding_faults(finding):
        raise UsageError("; ".join(faults), next_step="fix these, then send it again")


def _offered(runtime: Runtime, mission: Mission, submission: Submission, source: str) -> Finding:
    finding = Finding(
        id=submission.id or f"f-{runtime.new_id()}",
        **_said(submission),
        source=source,
        iteration=mission.iteration + (1 if mission.phase == "running" else 0),
        direction=mission.recent_directions[-1].fingerprint if mission.recent_directions else "",
    )
    refuse_faults(finding)
    return finding


def _bare_claim(mission: Mission, finding: Finding) -> Finding:
    """A finding for no criterion proves nothing, and says what would."""
    if finding.criterion_id:
        reason = (
            f"criterion: received {finding.criterion_id}, but the mission is a draft; send it after the start"
        )
        return replace(finding, claim_reason=reason)
    criteria = mission.contract.criteria if mission.contract is not None else ()
    names = ", ".join(criterion.id for criterion in criteria)
    reason = (
        f"criterion: none was given, so no rule could accept it; one of {names} would count: --criterion ID"
        if names
        else "criterion: the contract has none, so a finding is kept as a claim; the validator alone decides"
    )
    return replace(finding, claim_reason=reason)


def _again(task_id: str, finding: Finding, known: Finding) -> Recorded:
    """The same finding sent twice is one; another one under its id is refused."""
    differing = [name for name in _SAME if getattr(finding, name) != getattr(known, name)]
    if differing:
        raise UsageError(
            f"id: {finding.id!r} belongs to another finding of this mission; {', '.join(differing)} differ",
            next_step=f"leave the id out, or choose another one; omx-autoresearch finding show {task_id} {finding.id}",
        )
    return _of(known, is_known=True)


def _of(finding: Finding, *, is_known: bool = False) -> Recorded:
    evidence = finding.evidence
    if is_known:
        reason = f"{finding.id} was recorded before; nothing was added"
    elif evidence is None:
        reason = finding.claim_reason
    else:
        reason = "" if evidence.is_new else "the mission already had this evidence, so it is not progress"
    return Recorded(finding, evidence is not None, reason, is_known=is_known)


def _record(runtime: Runtime, task_id: str, finding: Finding) -> Recorded:
    store = MissionStore(runtime.home)
    with store.transaction(task_id, runtime.now()) as transaction:
        refuse_ended(transaction.mission, "nothing can be added to it")
        known = find_finding(runtime, task_id, finding.id)
        if known is not None:
            return _again(task_id, finding, known)
        transaction.record(FindingRecorded(finding))
    return _of(finding)


def _checked(
    runtime: Runtime, task_id: str, criterion: Criterion, finding: Finding, wait_seconds: float
) -> Recorded:
    ended = checks.check(runtime, task_id, (criterion.id,), wait_seconds=wait_seconds, submission=finding)
    if not ended:
        reason = f"`{criterion.rule}` is still running; to see its result: omx-autoresearch wait {task_id}"
        return Recorded(finding, was_accepted=False, reason=reason, is_pending=True)
    return _of(_needed(runtime, task_id, finding.id))


# --- looking things up


def find_finding(runtime: Runtime, task_id: str, finding_id: str) -> Finding | None:
    """The finding of this id, or None."""
    with MissionStore(runtime.home).journal(task_id) as journal:
        entry = journal.by_id(f"finding:{finding_id}")
    return None if entry is None else from_plain(Finding, entry.data["finding"])


def show_finding(runtime: Runtime, task_id: str, finding_id: str) -> dict[str, Any] | None:
    """A finding as ``findings.jsonl`` has it, with the number of its record, or None."""
    with MissionStore(runtime.home).journal(task_id) as journal:
        entry = journal.by_id(f"finding:{finding_id}") or journal.by_id(f"claim:{finding_id}")
    line = projection_texts.finding_of(entry) if entry is not None else None
    return None if entry is None or line is None else {**line, "seq": entry.seq}


def _needed(runtime: Runtime, task_id: str, finding_id: str) -> Finding:
    found = find_finding(runtime, task_id, finding_id)
    assert found is not None, "it was recorded a moment ago"
    return found


def list_findings(
    runtime: Runtime, task_id: str, *, limit: int = 50, wanted: str = "all", before: int = 0
) -> tuple[dict[str, Any], ...]:
    """The newest findings as ``findings.jsonl`` has them: accepted ones first, each sort newest first.

    The time depends on ``limit`` alone, not on the size of the mission (the first call after many records catches up).

    Args:
        runtime: the world.
        task_id: of the mission.
        limit: at most this many, up to :data:`LIST_LIMIT`.
        wanted: ``all``, ``accepted`` or ``claims``.
        before: only records with a smaller number, to page on; 0 for all.

    Raises:
        UsageError: the limit is out of bounds, or there is no such mission.
        JournalBroken: a line of the journal is broken.
    """
    _check_limit(limit)
    found: list[Any] = []
    with MissionStore(runtime.home).journal(task_id) as journal:
        for name in ("accepted", "claims"):
            if wanted in ("all", name) and len(found) < limit:
                found += journal.newest(name, limit=limit - len(found), before=before)
    return tuple(
        {**line, "seq": entry.seq}
        for entry in found
        if (line := projection_texts.finding_of(entry)) is not None
    )


def list_iterations(runtime: Runtime, task_id: str, *, limit: int = 50) -> tuple[dict[str, Any], ...]:
    """The newest iterations as ``iteration_log.jsonl`` has them, newest first, in a time that depends on ``limit``.

    Raises:
        UsageError: the limit is out of bounds, or there is no such mission.
        JournalBroken: a line of the journal is broken.
    """
    _check_limit(limit)
    with MissionStore(runtime.home).journal(task_id) as journal:
        entries = journal.newest("iterations", limit=limit)
    return tuple(line for entry in entries if (line := projection_texts.iteration_of(entry)) is not None)


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= LIST_LIMIT:
        raise UsageError(f"limit must be 1 to {LIST_LIMIT}, received {limit}", next_step="--limit 50")


# --- through the inbox


def drop_finding(runtime: Runtime, task_id: str, submission: Submission) -> Recorded:
    """Leave a finding in the inbox, where the journal cannot be written: a claim, taken in at the next stop.

    Raises:
        UsageError: it cannot be recorded; every fault is named.
        StorageFailed: the inbox cannot be written either.
    """
    mission = MissionStore(runtime.home).load(task_id)
    finding = replace(_offered(runtime, mission, submission, "inbox"), claim_reason=_INBOX.format(task_id))
    refuse_ended(mission, "nothing can be added to it")
    inbox_path = ProjectFolder(mission.project_path).inbox_path(task_id)
    text = json_codec.encode({"finding": to_plain(finding)}).decode()
    claims.drop_claim(inbox_path, text, verb=claims.FINDING_VERB, at=runtime.now())
    return Recorded(finding, was_accepted=False, reason=finding.claim_reason, is_pending=True)


_INBOX = (
    "it came through the inbox, which runs nothing; the runtime checks it at a stop, or with: "
    "omx-autoresearch criterion check {}"
)

# --- Importing findings from a file of JSON lines: every line is validated before the first is recorded.
#
# One faulty line refuses the whole file, with every fault by its line. Every imported finding is a claim, whatever the
# file says of its acceptance. Each batch is one write; a process that is killed in between leaves whole batches, and a
# second import of the same file adds only the missing findings (ids come from the file, or from the line itself).

FILE_LIMIT_BYTES = 1024 * 1024 * 1024
BATCH_FINDINGS = 10_000
_SHOWN_FAULTS = 20
_WHY = "an imported finding is always a claim; to make it evidence: omx-autoresearch criterion check {}"


@dataclass(frozen=True, slots=True)
class ImportLine(Submission):
    """One line of the file: the fields of ``findings.jsonl``; those that the runtime decides itself are ignored.

    The id is made from the line where the line has none. Nothing imported is evidence, the record has its own time, and
    the file is the source.
    """

    source: str = ""
    accepted: bool = False
    created_at: str = ""
    evidence: dict[str, object] | None = None
    claim_reason: str = ""
    iteration: int = 0
    direction: str = ""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import.

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
    refuse_ended(mission, "nothing can be added to it")
    data = _read(path)
    _refuse(runtime, mission, path, data)
    added = count = 0
    for batch in _batches(mission, path, data):
        added += _record_import(runtime, task_id, batch)
        count += len(batch)
    return Imported(added, count - added)


def _read(path: str) -> bytes:
    try:
        return read_bounded(path, FILE_LIMIT_BYTES)
    except FileNotFoundError:
        raise UsageError(f"{path} is missing", next_step="give a file of JSON lines") from None


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
        mark = sha256(repr(_said(finding)).encode("utf-8", "surrogatepass")).digest()
        if seen.setdefault(finding.id, mark) != mark:
            faults.append(f"{path}, line {number}: id: {finding.id!r} appears twice in the file")
    if not count:
        faults.append(f"{path} is empty")
    faults += _taken(runtime, mission, path, data) if not faults else []
    if faults:
        more = f"\n  and {len(faults) - _SHOWN_FAULTS} more" if len(faults) > _SHOWN_FAULTS else ""
        listed = "\n  ".join(faults[:_SHOWN_FAULTS])
        raise UsageError(
            f"nothing was imported; {len(faults)} faults:\n  {listed}{more}",
            next_step="fix the file, then import it again",
        )


def _taken(runtime: Runtime, mission: Mission, path: str, data: bytes) -> list[str]:
    """Ids of the file that other findings of the mission have."""
    faults = []
    with MissionStore(runtime.home).journal(mission.task_id) as journal:
        for batch in _batches(mission, path, data):
            named = {f"finding:{finding.id}": finding for finding in batch}
            for name, entry in journal.by_ids(list(named)).items():
                if _differs(named[name], entry.data["finding"]):
                    faults.append(
                        f"{path}: id: {named[name].id!r} belongs to another finding of this mission"
                    )
    return faults


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(BytesIO(data), 1):
        if stripped := line.strip():
            yield number, stripped


def _batches(mission: Mission, path: str, data: bytes) -> Iterator[list[Finding]]:
    findings = (_finding(mission, path, number, line) for number, line in _lines(data))
    while batch := list(islice(findings, BATCH_FINDINGS)):
        yield batch


def _finding(mission: Mission, path: str, number: int, line: bytes) -> Finding:
    where = f"{path}, line {number}"
    try:
        value = json_codec.decode_document(line) if number == 1 else json_codec.decode(line)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
    read = validated(ImportLine, value, where=where, error=UsageError)
    finding = Finding(
        id=read.id or f"i-{sha256(line).hexdigest()[:24]}",
        **_said(read),
        source="import",
        claim_reason=_WHY.format(mission.task_id),
        iteration=mission.iteration,
    )
    if faults := finding_faults(finding):
        raise UsageError(f"{where}: {'; '.join(faults)}")
    known = {criterion.id for criterion in mission.contract.criteria} if mission.contract else set()
    if finding.criterion_id and finding.criterion_id not in known:
        raise UsageError(
            f"{where}: criterion_id: {finding.criterion_id[:80]!r} is not a criterion of this contract"
        )
    return finding


def _record_import(runtime: Runtime, task_id: str, batch: list[Finding]) -> int:
    """One batch, in one write; returns how many of it were new.

    Raises:
        UsageError: an id of the file is another finding of the mission; nothing of this batch is recorded.
    """
    store = MissionStore(runtime.home)
    with store.transaction(task_id, runtime.now()) as transaction:
        new: dict[str, Finding] = {}
        with store.journal(task_id) as journal:
            recorded = journal.by_ids([f"finding:{finding.id}" for finding in batch])
            for finding in batch:
                known = recorded.get(f"finding:{finding.id}")
                if known is None:
                    new.setdefault(finding.id, finding)
                elif _differs(finding, known.data["finding"]):
                    raise UsageError(
                        f"id: {finding.id!r} belongs to another finding of this mission",
                        next_step=f"omx-autoresearch finding show {task_id} {finding.id}",
                    )
        if new:
            transaction.record(*(FindingRecorded(finding) for finding in new.values()))
    return len(new)


def _differs(finding: Finding, known: dict[str, object]) -> bool:
    return {name: known.get(name) for name in _SAME} != {**_said(finding), "paths": [*finding.paths]}
