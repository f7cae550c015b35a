"""The files of a task folder and of a session's mode state, typed as they stand on disk.

``missions/projection_texts.py`` writes them, as plain values, on the hook's path; these classes say to other programs
what they find there. The published schemas are made from them, and a test holds both to the files of a real mission.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.missions import projection_texts
from omx_autoresearch.missions.rules.criteria import Evidence
from omx_autoresearch.missions.rules.evidence import CriterionView, criteria_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from omx_autoresearch.foundation.types import FindingKind, Phase
    from omx_autoresearch.missions.rules.mission import Mission


@dataclass(frozen=True, slots=True)
class AllowedOperations:
    """The operations that the owner left to the mission; ``False`` takes them from the runtime's own commands.

    Attributes:
        write: to the workspace.
        network: reach it.
        publish: a word to the agent alone.
    """

    write: bool = True
    network: bool = True
    publish: bool = True


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """``task_spec.json``: the goal and the terms of a mission.

    Attributes:
        task_id: ``YYYYMMDD-HHMMSS-slug``.
        goal: in the owner's words.
        scope: what belongs to it.
        non_goals: what does not.
        milestones: what is reached on the way, in order; never judged.
        allowed_operations: what the contract leaves; a draft forbids nothing yet.
        task_type: ``standard``, ``research``, ``experiment`` or ``report``.
        success_criteria: of the contract; none while draft.
    """

    task_id: str
    goal: str
    scope: tuple[str, ...]
    non_goals: tuple[str, ...]
    milestones: tuple[str, ...]
    allowed_operations: AllowedOperations
    task_type: str
    success_criteria: tuple[CriterionView, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """``progress.json``: the state of a mission.

    Attributes:
        status: ``running``, ``blocked``, ``complete`` or ``stopped``.
        phase: of the lifecycle.
        iteration: passes between two stops.
        current_direction: the declared direction.
        stale_count: iterations without progress since the last strong one.
        pivot_count: untried pivots declared.
        pivot_required: the stale count demands a change of structure.
        total_findings: evidence and claims.
        blocked_reason: why a person must act; empty otherwise.
        updated_at: of the newest record.
    """

    status: str
    phase: str
    iteration: int
    current_direction: str
    stale_count: int
    pivot_count: int
    pivot_required: bool
    total_findings: int
    blocked_reason: str
    updated_at: str


@dataclass(frozen=True, slots=True)
class FindingLine:
    """A line of ``findings.jsonl``: a finding of the agent, the runtime or the owner.

    Attributes:
        id: unique in the mission.
        kind: ``command``, ``file``, ``test``, ``benchmark``, ``manual``, ``review`` or ``verification``.
        summary: what was seen.
        source: who says so: ``cli``, ``mcp``, ``inbox``, ``import``, ``hook``, ``runtime``, ``owner``, or
            ``unknown`` for a line that was added to this file by hand.
        command: that was run, in the author's words; the runtime never runs it.
        paths: that it is about, relative to the workspace.
        accepted: a criterion's rule accepted it; else it is a claim.
        created_at: when it was recorded, ISO 8601 UTC.
        criterion_id: that it was submitted for; empty for none.
        evidence: of an accepted one: what the runtime saw, bound by digests.
        claim_reason: why it is a claim; empty for evidence.
        iteration: in which it was recorded.
        direction: that was followed then.
    """

    id: str
    kind: FindingKind
    summary: str
    source: str
    command: str
    paths: tuple[str, ...]
    accepted: bool
    created_at: str
    criterion_id: str
    evidence: Evidence | None
    claim_reason: str
    iteration: int
    direction: str


@dataclass(frozen=True, slots=True)
class NoteLine:
    """A line of ``findings.jsonl``: a note, or an edit of a projection by hand that was taken in as a claim.

    Attributes:
        id: unique in the mission.
        kind: ``manual``.
        summary: the words.
        source: where they came from.
        paths: always empty.
        accepted: never.
        created_at: when it was taken in, ISO 8601 UTC.
    """

    id: str
    kind: Literal["manual"]
    summary: str
    source: str
    paths: tuple[str, ...]
    accepted: Literal[False]
    created_at: str


@dataclass(frozen=True, slots=True)
class TriedDirection:
    """An entry of ``directions_tried.json``.

    Attributes:
        fingerprint: by which the same direction in other words is known.
        summary: as it was declared first.
        first_seen_iteration: when it was declared first.
        last_seen_iteration: when it was declared last.
        count: how often.
    """

    fingerprint: str
    summary: str
    first_seen_iteration: int
    last_seen_iteration: int
    count: int


@dataclass(frozen=True, slots=True)
class IterationLine:
    """A line of ``iteration_log.jsonl``: one pass between two stops.

    Attributes:
        at: of the stop that ended it, ISO 8601 UTC.
        session_id: that worked.
        answer: ``refuse``, ``release`` or ``allow``.
        reason_code: why.
        progress: ``strong``, ``weak`` or ``none``; empty where it was not judged.
        stale_count: after it.
        tree_digest: of the workspace's content at its end.
        iteration: its number.
        began_at: when, ISO 8601 UTC.
        tools_used: tool events in it; 0 where the client reports none.
        direction: declared.
        evidence_ids: accepted in it.
        verdict: of the validation or review at its end; empty for none.
        run_id: of that run.
    """

    at: str
    session_id: str
    answer: Literal["refuse", "release", "allow"]
    reason_code: str
    progress: str
    stale_count: int
    tree_digest: str
    iteration: int
    began_at: str
    tools_used: int
    direction: str
    evidence_ids: tuple[str, ...]
    verdict: str
    run_id: str


@dataclass(frozen=True, slots=True)
class HeartbeatLine:
    """A line of ``heartbeat.jsonl``: a sign of life.

    Attributes:
        ts: when, ISO 8601 UTC.
        status: ``starting_turn``, ``turn_done``, ``tool``, ``session_start``, ... or another program's word.
        session: of the client; empty for another program's.
    """

    ts: str
    status: str
    session: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of ``work.jsonl`` (what the agent says and does) or ``orchestrator.jsonl`` (what the runtime does).

    Attributes:
        ts: when, ISO 8601 UTC.
        source: ``agent``, ``owner`` or ``runtime``.
        level: ``info``, ``decision`` or ``warn``.
        event: what happened, one word.
        detail: what there is to say beside it, one line.
    """

    ts: str
    source: Literal["agent", "owner", "runtime"]
    level: Literal["info", "decision", "warn"]
    event: str
    detail: str


@dataclass(frozen=True, slots=True)
class ModeState:
    """``autoresearch-state.json`` of a session; fields that the mission has no value for are left out.

    Attributes:
        active: the mission runs and holds this session.
        task_id: of the mission.
        phase: of the lifecycle.
        session_id: of the client.
        iteration: passes between two stops.
        completion_artifact_path: where completion will be written, relative to the project.
        validation_mode: of the contract.
        mission_validator_command: in the mode ``mission-validator-script``.
        validator_prompt: in the mode ``prompt-architect-artifact``.
        output_artifact_path: which file is reviewed, relative to the workspace.
    """

    active: bool
    task_id: str
    phase: Phase
    session_id: str
    iteration: int
    completion_artifact_path: str
    validation_mode: str = ""
    mission_validator_command: str = ""
    validator_prompt: str = ""
    output_artifact_path: str = ""


def task_spec(mission: Mission) -> TaskSpec:
    """The content of ``task_spec.json``."""
    return TaskSpec(
        mission.task_id,
        mission.goal,
        mission.scope,
        mission.non_goals,
        mission.milestones,
        AllowedOperations(**projection_texts.allowed_operations(mission)),
        mission.task_type,
        criteria_of(mission),
    )


def progress_of(mission: Mission) -> Progress:
    """The content of ``progress.json``."""
    return Progress(**projection_texts.progress(mission))


FILES: dict[str, Any] = {
    "file-task-spec": TaskSpec,
    "file-progress": Progress,
    "file-directions-tried": tuple[TriedDirection, ...],
    "line-findings": FindingLine | NoteLine,
    "line-iteration-log": IterationLine,
    "line-heartbeat": HeartbeatLine,
    "line-logs": LogLine,
    "file-mode-state": ModeState,
}
"""The published schemas of them: ``file-`` of a whole file, ``line-`` of each line."""
WITH_GAPS = ("file-mode-state",)
"""Those in which a field may be missing."""
