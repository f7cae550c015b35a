"""What the verbs of ``experiment`` print with ``--json``; ``documents.py`` has the others."""

from __future__ import annotations

from omx_autoresearch.experiments.judge.calibration import Calibration
from omx_autoresearch.experiments.judge.state import (
    Claim,
    ExperimentLimits,
    ExperimentState,
    ExperimentUsage,
    TrialRow,
)
from omx_autoresearch.experiments.judge.summary import count_kinds, quoted_claim
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.types import MetricDirection


@dataclass(frozen=True, slots=True)
class ExperimentDocument:
    """``experiment status`` and every verb that takes an experiment a step further.

    Attributes:
        experiment_id: its name on disk.
        name: for people.
        task_id: of the mission that it counts for; empty for none.
        phase: ``started`` (no baseline yet), ``ready``, ``running`` or ``completed``.
        completed_reason: why it ended; empty before.
        is_at_work: a controller works on it now.
        controller_pid: of that controller; 0 for none.
        project_path: the user's checkout.
        session_path: its folder: ``events.jsonl``, outputs, prompts.
        workspace_path: the candidate's worktree; whoever makes a change by hand makes it there.
        metric: what is measured.
        unit: of it.
        direction: which way is better.
        baseline: the median of the base; null before it was measured.
        calibration: what measuring the base against itself showed; null before.
        base_commit: where the checkout stood.
        incumbent_commit: the last accepted checkpoint.
        counts: trials by how they ended.
        rows: every trial.
        usage: what was spent.
        limits: what may be spent; 0 is no limit.
        claim: the fresh check of base against final; null before there was one.
        result: the one sentence that may be quoted.
        warnings: what the reader must know before the final is accepted.
        isolation: what really isolated the newest run.
        next: the command that follows.
    """

    experiment_id: str
    name: str
    task_id: str
    phase: str
    completed_reason: str
    is_at_work: bool
    controller_pid: int
    project_path: str
    session_path: str
    workspace_path: str
    metric: str
    unit: str
    direction: MetricDirection
    baseline: float | None
    calibration: Calibration | None
    base_commit: str
    incumbent_commit: str
    counts: dict[str, int]
    rows: tuple[TrialRow, ...]
    usage: ExperimentUsage
    limits: ExperimentLimits
    claim: Claim | None
    result: str
    warnings: tuple[str, ...]
    isolation: str
    next: str


@dataclass(frozen=True, slots=True)
class ExperimentLine:
    """One experiment of ``experiment list``.

    Attributes:
        experiment_id: its name on disk.
        name: for people.
        phase: as in ``experiment status``; ``invalid`` where its log cannot be believed.
        completed_reason: why it ended; empty before.
        is_at_work: a controller works on it now.
        project_path: the user's checkout.
        metric: what is measured.
        trials: so far.
        accepted: of them.
        result: the one sentence that may be quoted.
        fault: why its log cannot be believed; empty otherwise.
    """

    experiment_id: str
    name: str
    phase: str
    completed_reason: str
    is_at_work: bool
    project_path: str
    metric: str
    trials: int
    accepted: int
    result: str
    fault: str


ExperimentList = tuple[ExperimentLine, ...]
"""``experiment list``."""


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """What a plan says.

    Attributes:
        lines: for people: runs and hours a trial, what fits the budget, which effect can be seen.
        cheaper: cheaper alternatives, one a line.
        values: the plan's own figures.
    """

    lines: tuple[str, ...]
    cheaper: tuple[str, ...]
    values: dict[str, object]


@dataclass(frozen=True, slots=True)
class ExperimentStartDocument:
    """``experiment start``.

    Attributes:
        experiment: as it stands; null after a dry run.
        plan: what a trial will cost and what can be seen.
        frozen: files that no candidate may touch.
        notes: what the owner should know.
        dry_run: nothing was begun.
        next: the command that follows.
    """

    experiment: ExperimentDocument | None
    plan: PlanDocument | None
    frozen: tuple[str, ...]
    notes: tuple[str, ...]
    dry_run: bool
    next: str


@dataclass(frozen=True, slots=True)
class ExperimentRunDocument:
    """``experiment run``.

    Attributes:
        trials: that it ran.
        reason: why it ended: ``trials``, ``hypotheses``, ``completed``, ``cancelled`` or ``agent``.
        detail: one sentence.
        experiment: as it stands after it.
    """

    trials: int
    reason: str
    detail: str
    experiment: ExperimentDocument


@dataclass(frozen=True, slots=True)
class ExperimentTrialDocument:
    """``experiment trial``.

    Attributes:
        experiment_id: whose.
        row: the trial.
        next: the command that follows.
    """

    experiment_id: str
    row: TrialRow
    next: str


@dataclass(frozen=True, slots=True)
class ExperimentWaitDocument:
    """``experiment wait``, and ``experiment trial --seconds``.

    Attributes:
        experiment_id: whose.
        is_running: the trial goes on by itself.
        row: the trial; null before it was admitted, and where there was none.
        fault: why there was none, or why it did not end by itself; empty otherwise.
        next: what follows.
    """

    experiment_id: str
    is_running: bool
    row: TrialRow | None
    fault: str
    next: str


@dataclass(frozen=True, slots=True)
class ExperimentFileDocument:
    """``experiment plot``, ``report`` and ``export``.

    Attributes:
        experiment_id: whose.
        path: what was written; empty where it went to stdout.
        format: of it.
        size_bytes: of it.
        result: the one sentence that may be quoted.
        notes: what was left out, and why.
    """

    experiment_id: str
    path: str
    format: str
    size_bytes: int
    result: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PatchFile:
    """One changed file of a patch; line counts are null for a binary one."""

    path: str
    status: str
    old_path: str
    added_lines: int | None
    deleted_lines: int | None


@dataclass(frozen=True, slots=True)
class ExperimentPatchDocument:
    """``experiment patch`` and ``experiment accept``.

    Attributes:
        experiment_id: whose.
        path: of the patch.
        size_bytes: of it.
        base_commit: what it applies to.
        final_commit: what it leads to.
        files: that it changes.
        is_applied: the checkout holds it now; nothing was committed.
        reason_code: why it was not applied; empty where it was, or was not asked for.
        reasons: likewise, one sentence each.
        result: the one sentence that may be quoted.
        warnings: what speaks against taking it.
        next: the command that follows.
    """

    experiment_id: str
    path: str
    size_bytes: int
    base_commit: str
    final_commit: str
    files: tuple[PatchFile, ...]
    is_applied: bool
    reason_code: str
    reasons: tuple[str, ...]
    result: str
    warnings: tuple[str, ...]
    next: str


@dataclass(frozen=True, slots=True)
class ExperimentBranch:
    """One branch of ``experiment finalize``."""

    name: str
    commit: str
    iteration: int


@dataclass(frozen=True, slots=True)
class ExperimentBranchesDocument:
    """``experiment finalize``."""

    experiment_id: str
    branches: tuple[ExperimentBranch, ...]
    next: str


@dataclass(frozen=True, slots=True)
class ExperimentRemovalDocument:
    """``experiment close`` and ``experiment remove``.

    Attributes:
        experiment_id: whose.
        removed: what is gone: ``worktrees``, or ``everything``.
    """

    experiment_id: str
    removed: str


def experiment_document(
    state: ExperimentState, *, session_path: str, workspace_path: str, is_at_work: bool
) -> ExperimentDocument:
    """The document of an experiment.

    Args:
        state: that its log folds to.
        session_path: its folder.
        workspace_path: the candidate's worktree; empty where it is gone.
        is_at_work: a controller works on it now.
    """
    quoted = quoted_claim(state)
    config = state.config
    return ExperimentDocument(
        experiment_id=state.experiment_id,
        name=config.name,
        task_id=state.task_id,
        phase=state.phase,
        completed_reason=state.completed_reason,
        is_at_work=is_at_work,
        controller_pid=state.controller_pid if is_at_work else 0,
        project_path=state.project_path,
        session_path=session_path,
        workspace_path=workspace_path,
        metric=config.metric.name,
        unit=config.metric.unit,
        direction=config.metric.direction,
        baseline=state.baseline,
        calibration=state.calibration,
        base_commit=state.base_commit,
        incumbent_commit=state.incumbent_commit,
        counts={str(kind): count for kind, count in count_kinds(state.rows).items()},
        rows=state.rows,
        usage=state.usage,
        limits=config.limits,
        claim=state.claim,
        result=quoted.sentence,
        warnings=quoted.warnings,
        isolation=state.isolation,
        next=next_command(state, is_at_work=is_at_work),
    )


def next_command(state: ExperimentState, *, is_at_work: bool) -> str:
    """What an owner types next, legal in the experiment's phase."""
    program, name = "omx-autoresearch experiment", state.experiment_id
    if is_at_work:
        return f"{program} status {name}"
    if state.phase != "completed" and state.controller_pid:
        return f"{program} resume {name}"  # its controller was killed
    quoted = quoted_claim(state)
    if quoted.has_gain and quoted.is_current and not state.applied_commit:
        return f"{program} accept {name}"
    if state.phase in ("started", "ready"):
        return f'{program} run {name} --agent "claude -p --permission-mode acceptEdits"'
    has_patch = state.incumbent_commit != state.base_commit and not state.applied_commit
    return f"{program} {'patch' if has_patch else 'report'} {name}"


EXPERIMENT_SCHEMAS: dict[str, object] = {
    "experiment": ExperimentDocument,
    "experiment-list": ExperimentList,
    "experiment-start": ExperimentStartDocument,
    "experiment-run": ExperimentRunDocument,
    "experiment-trial": ExperimentTrialDocument,
    "experiment-wait": ExperimentWaitDocument,
    "experiment-file": ExperimentFileDocument,
    "experiment-patch": ExperimentPatchDocument,
    "experiment-branches": ExperimentBranchesDocument,
    "experiment-removal": ExperimentRemovalDocument,
}
EXPERIMENT_VERBS: dict[str, str] = {"experiment": "experiment"}
DOCUMENT_OF_EXPERIMENT_VERB: dict[str, str] = {
    "start": "experiment-start",
    "run": "experiment-run",
    "trial": "experiment-trial",
    "wait": "experiment-wait",
    "workspace": "experiment",
    "status": "experiment",
    "list": "experiment-list",
    "plot": "experiment-file",
    "report": "experiment-file",
    "export": "experiment-file",
    "patch": "experiment-patch",
    "accept": "experiment-patch",
    "stop": "experiment",
    "cancel": "experiment",
    "resume": "experiment",
    "verify": "experiment",
    "finalize": "experiment-branches",
    "close": "experiment-removal",
    "remove": "experiment-removal",
}
"""Which document each verb of ``experiment`` prints with ``--json``."""
