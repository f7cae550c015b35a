"""Documents that several verbs or tools print; one that a single verb prints stands in that verb's module.

specs/schemas/ is generated from all of them.

``status`` prints a :class:`~omx_autoresearch.missions.views.StatusView`, and so does every verb that takes a mission a
step further. The hook is the exception: it speaks its client's own JSON.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, to_plain
from omx_autoresearch.foundation.types import Operation
from omx_autoresearch.freezing.manifest import FileClasses
from omx_autoresearch.missions.accepted import accepted_draft, experiment_lines
from omx_autoresearch.missions.projection_texts import finding_line
from omx_autoresearch.missions.rules.allowances import Limits
from omx_autoresearch.missions.rules.criteria import Evidence, criterion_text
from omx_autoresearch.missions.rules.directions import DIRECTIONS_LIMIT, by_diversity
from omx_autoresearch.missions.rules.evidence import CriterionView
from omx_autoresearch.missions.rules.run_reports import RunReport
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.task_files import TriedDirection
from omx_autoresearch.missions.views import view

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.directions import Declared
    from omx_autoresearch.missions.findings import Recorded
    from omx_autoresearch.missions.launch import Started
    from omx_autoresearch.missions.rules.mission import Mission

# --- What ``finding``, ``criterion``, ``readiness`` and ``log`` print with ``--json``; see documents.


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
        is_cut: there may be more: ask again with ``before``, the smallest ``seq`` of these.
    """

    task_id: str
    finding_count: int
    accepted_count: int
    findings: tuple[FindingLine, ...]
    is_cut: bool


def finding_document(runtime: Runtime, task_id: str, recorded: Recorded) -> FindingDocument:
    """What became of a finding that was added."""
    from omx_autoresearch.missions.findings import show_finding

    finding = recorded.finding
    line = show_finding(runtime, task_id, finding.id) or finding_line(to_plain(finding), "")
    return FindingDocument(
        task_id=task_id,
        id=finding.id,
        accepted=recorded.was_accepted,
        reason=recorded.reason,
        is_known=recorded.is_known,
        is_pending=recorded.is_pending,
        finding=FindingLine(**line),
        next=f"omx-autoresearch {'wait' if recorded.is_pending else 'readiness'} {task_id}",
    )


def finding_list_document(
    runtime: Runtime, task_id: str, *, limit: int, wanted: str = "all", before: int = 0
) -> FindingListDocument:
    """The newest findings of a mission."""
    from omx_autoresearch.missions.findings import list_findings

    mission = MissionStore(runtime.home).load(task_id)
    lines = list_findings(runtime, task_id, limit=limit, wanted=wanted, before=before)
    return FindingListDocument(
        task_id=task_id,
        finding_count=mission.finding_count + mission.claim_count,
        accepted_count=mission.accepted_count,
        findings=tuple(FindingLine(**line) for line in lines),
        is_cut=len(lines) == limit,
    )


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


# --- What ``direction`` and ``direct`` print with ``--json``; ``documents.py`` has the others.


@dataclass(frozen=True, slots=True)
class DirectionDocument:
    """``direction add`` and ``direct``.

    Attributes:
        task_id: of the mission.
        fingerprint: of the direction; empty for a text without a word.
        summary: what is tried.
        axes: structural axes by name.
        is_recorded: it stands in the journal; otherwise it is refused, or waits in the mission's inbox as a claim.
        is_pivot_accepted: it was declared as a pivot, and is one.
        repeats: the tried direction that it repeats; empty for a new one.
        near: the tried direction that it nearly repeats (word order, plural, symbols); empty for none.
        faults: why it is not declared, a sentence each.
        offered_axis: the axis to change next.
        next: the command that follows.
    """

    task_id: str
    fingerprint: str
    summary: str
    axes: dict[str, str]
    is_recorded: bool
    is_pivot_accepted: bool
    repeats: str
    near: str
    faults: tuple[str, ...]
    offered_axis: str
    next: str


@dataclass(frozen=True, slots=True)
class OpenDirection:
    """A direction that the owner injected and that nobody has taken up.

    Attributes:
        fingerprint: takes it up, as the text of ``direction add``.
        summary: what is to be tried.
        axes: structural axes by name.
    """

    fingerprint: str
    summary: str
    axes: dict[str, str]


@dataclass(frozen=True, slots=True)
class DirectionListDocument:
    """``direction list``.

    Attributes:
        task_id: of the mission.
        current_direction: the declared direction; empty for none.
        stale_count: iterations without progress.
        pivot_count: untried pivots declared.
        pivot_required: the stale count demands one.
        offered_axis: the axis to change next.
        tried_count: different directions that were tried.
        open_directions: of the owner, the most different one first.
        tried: the directions tried, in the order of their first declaration; a tool shows the newest fifty.
    """

    task_id: str
    current_direction: str
    stale_count: int
    pivot_count: int
    pivot_required: bool
    offered_axis: str
    tried_count: int
    open_directions: tuple[OpenDirection, ...]
    tried: tuple[TriedDirection, ...]


def direction_document(task_id: str, declared: Declared) -> DirectionDocument:
    """What became of a direction."""
    direction = declared.direction
    return DirectionDocument(
        task_id=task_id,
        fingerprint=direction.fingerprint,
        summary=direction.summary,
        axes=direction.axes,
        is_recorded=declared.is_recorded,
        is_pivot_accepted=declared.is_pivot_accepted,
        repeats=declared.repeats.summary if declared.repeats else "",
        near=declared.near.summary if declared.near else "",
        faults=declared.faults,
        offered_axis=declared.offered_axis,
        next=f"omx-autoresearch direction list {task_id}",
    )


def direction_list_document(mission: Mission, *, limit: int = DIRECTIONS_LIMIT) -> DirectionListDocument:
    """The directions of a mission: the ``limit`` that were tried last, in the order of their first declaration."""
    from omx_autoresearch.missions.directions import offered_axis

    tried = sorted(mission.directions, key=lambda item: item.last_seen_iteration)[-limit:]
    tried.sort(key=mission.directions.index)
    waiting = by_diversity(mission.open_directions, mission.recent_directions)
    return DirectionListDocument(
        task_id=mission.task_id,
        current_direction=mission.current_direction,
        stale_count=mission.usage.stale,
        pivot_count=mission.pivot_count,
        pivot_required=mission.is_pivot_required,
        offered_axis=offered_axis(mission),
        tried_count=len(mission.directions),
        open_directions=tuple(OpenDirection(item.fingerprint, item.summary, item.axes) for item in waiting),
        tried=tuple(
            TriedDirection(**{name: getattr(item, name) for name in TriedDirection.__slots__})
            for item in tried
        ),
    )


# --- What ``adopt`` prints with ``--json``; ``documents.py`` has the others.


@dataclass(frozen=True, slots=True)
class StartDocument:
    """``start`` and ``amend``.

    Attributes:
        task_id: of the mission.
        phase: of its lifecycle.
        prompt_line: what a person types in the agent.
        task_variable: ``TASK:NONCE`` for OMX_AUTORESEARCH_TASK in the client's environment; empty where none was made.
        bind_token: an agent without a session id shows it to its client; empty otherwise.
        session_id: the bound session; empty when none is bound yet.
        hold: whether a stop is known to be held.
        validation_mode: of the contract.
        validator_command: of the contract; empty in the other mode.
        pinned_count: files that were frozen.
        baseline: what the validator said before any work; null without one.
        limits: every allowance.
        notes: what the owner should know.
        criteria: further conditions, as they are written.
        forbidden: operations that the mission does without: ``network``, ``write``, ``publish``.
        judged_by: as ``status`` shows it.
        experiment: the ``experiment:`` block that the owner accepted, as ``NAME: VALUE``.
        work: globs of what the agent is to change, as the owner named it.
        files: the project's files by what the mission does with them; null where it was not launched now.
    """

    task_id: str
    phase: str
    prompt_line: str
    task_variable: str
    bind_token: str
    session_id: str
    hold: str
    validation_mode: str
    validator_command: str
    pinned_count: int
    baseline: RunReport | None
    limits: Limits
    notes: tuple[str, ...]
    criteria: tuple[str, ...] = ()
    forbidden: tuple[Operation, ...] = ()
    judged_by: str = ""
    experiment: tuple[str, ...] = ()
    work: tuple[str, ...] = ()
    files: FileClasses | None = None


def start_document(runtime: Runtime, started: Started) -> StartDocument:
    """A mission that was started or amended."""
    mission = started.mission
    seen = view(runtime, mission.task_id)
    contract, accepted = mission.contract, accepted_draft(runtime, mission)
    is_elsewhere = mission.workspace_path != mission.project_path
    where = (f"it is judged in the work tree {mission.workspace_path}",) if is_elsewhere else ()
    return StartDocument(
        task_id=mission.task_id,
        phase=mission.phase,
        prompt_line=f"$autoresearch {mission.task_id}",
        task_variable=f"{mission.task_id}:{started.nonce}" if started.nonce else "",
        bind_token=started.token,
        session_id=seen.session_id,
        hold=seen.hold,
        validation_mode=seen.validation_mode,
        validator_command=contract.validator_command if contract else "",
        pinned_count=contract.pinned_count if contract else 0,
        baseline=started.baseline,
        limits=mission.limits,
        notes=(*where, *started.notes),
        criteria=tuple(map(criterion_text, contract.criteria)) if contract else (),
        forbidden=contract.forbidden if contract else (),
        judged_by=seen.judged_by,
        experiment=experiment_lines(accepted.experiment) if accepted else (),
        work=contract.work if contract else (),
        files=started.classes,
    )


@dataclass(frozen=True, slots=True)
class NoteDocument:
    """``note``.

    Attributes:
        task_id: of the mission.
        text: the claim as kept.
        is_recorded: it stands in the journal; otherwise it waits in the mission's inbox.
    """

    task_id: str
    text: str
    is_recorded: bool
