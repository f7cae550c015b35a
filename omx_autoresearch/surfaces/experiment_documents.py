"""What the verbs of ``experiment`` print with ``--json``; ``documents.py`` has the others."""

from __future__ import annotations

from omx_autoresearch.experiments.judge.state import TrialRow
from omx_autoresearch.experiments.worktrees.object_store import FileChange
from omx_autoresearch.foundation.records import dataclass


@dataclass(frozen=True, slots=True)
class ExperimentWaitDocument:
    """``experiment trial`` and ``experiment wait``.

    Attributes:
        experiment_id: whose.
        is_running: the trial goes on by itself.
        row: the trial; null before it was admitted, and where there was none.
        fault: why there was none, or why it did not end by itself; empty otherwise.
        next: what follows.
        change_path: the patch of a trial that was not accepted; empty where its change did not come as a patch.
    """

    experiment_id: str
    is_running: bool
    row: TrialRow | None
    fault: str
    next: str
    change_path: str = ""


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
