"""What the verbs of ``experiment`` print with ``--json``; ``documents.py`` has the others."""

from __future__ import annotations

from omx_autoresearch.experiments.final_patch import FinalBranch
from omx_autoresearch.experiments.judge.state import TrialRow
from omx_autoresearch.experiments.views import ExperimentLine, ExperimentView
from omx_autoresearch.experiments.worktrees.object_store import FileChange
from omx_autoresearch.foundation.records import dataclass


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

    experiment: ExperimentView | None
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
    experiment: ExperimentView


@dataclass(frozen=True, slots=True)
class ExperimentWaitDocument:
    """``experiment trial`` and ``experiment wait``.

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
    files: tuple[FileChange, ...]
    is_applied: bool
    reason_code: str
    reasons: tuple[str, ...]
    result: str
    warnings: tuple[str, ...]
    next: str


@dataclass(frozen=True, slots=True)
class ExperimentBranchesDocument:
    """``experiment finalize``."""

    experiment_id: str
    branches: tuple[FinalBranch, ...]
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


EXPERIMENT_SCHEMAS: dict[str, object] = {
    "experiment": ExperimentView,
    "experiment-list": tuple[ExperimentLine, ...],
    "experiment-start": ExperimentStartDocument,
    "experiment-run": ExperimentRunDocument,
    "experiment-wait": ExperimentWaitDocument,
    "experiment-file": ExperimentFileDocument,
    "experiment-patch": ExperimentPatchDocument,
    "experiment-branches": ExperimentBranchesDocument,
    "experiment-removal": ExperimentRemovalDocument,
}
