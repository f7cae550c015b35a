"""A candidate that is there already: what stands in the candidate's worktree, or a patch; brought into a trial.

A controller restores the candidate's worktree before a trial begins. So what somebody changed there between two trials
is taken as a patch first, under the hold of the repository, and put back by the trial's callback. What an interrupted
trial left is not taken: it ended with that trial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omx_autoresearch.experiments.judge.state import HypothesisOutcome
from omx_autoresearch.experiments.startup import hold_repository
from omx_autoresearch.experiments.store import ExperimentStore
from omx_autoresearch.experiments.worktrees.checkpoints import TreeFault
from omx_autoresearch.experiments.worktrees.pair import Workspaces
from omx_autoresearch.foundation.errors import StepIllegal, UsageError, WorkspaceFault

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from omx_autoresearch.experiments.trial import ExperimentWorkspace
    from omx_autoresearch.journal.layout import Runtime

PATCH_LIMIT_BYTES = 64 * 1024 * 1024
_REASON_LENGTH = 1000
_APPLY = ("apply", "--whitespace=nowarn")


def take_candidate(runtime: Runtime, experiment_id: str, patch: bytes = b"") -> bytes:
    """The candidate of the next trial as a patch against the incumbent: the given one, or what stands in the worktree.

    Raises:
        UsageError: there is no such experiment, nothing was changed, or the patch is too large.
        StepIllegal: a controller is at work, or there is a patch and a changed worktree.
        WorkspaceFault: what stands there cannot be taken (a nested repository, a file of a special kind).
    """
    if len(patch) > PATCH_LIMIT_BYTES:
        raise UsageError(
            f"the patch has {len(patch)} bytes; at most {PATCH_LIMIT_BYTES} are taken",
            next_step="change the files in the candidate's worktree instead",
        )
    store = ExperimentStore(runtime.home)
    state = store.load(experiment_id)
    with hold_repository(runtime, state.project_path, experiment_id):
        state = store.load(experiment_id)  # whoever held it may have written since
        workspaces = Workspaces.open(store.folder(experiment_id).work_path)
        standing = b"" if state.running_row is not None else _standing(workspaces)
    if patch.strip() and standing:
        raise StepIllegal(
            f"a patch was sent, and {workspaces.candidate_path} holds changes of its own",
            next_step="take the changes there back, or leave the patch out",
        )
    if not patch.strip() and not standing:
        was_lost = (
            " (the last trial was interrupted, and its change went with it)" if state.running_row else ""
        )
        raise UsageError(
            f"nothing was changed, so there is nothing to try{was_lost}",
            next_step=f"change files in {workspaces.candidate_path}, or send a patch (git diff)",
        )
    return patch if patch.strip() else standing


def _standing(workspaces: Workspaces) -> bytes:
    """What stands in the candidate's worktree beyond the commit that it was set to; empty for nothing."""
    path = workspaces.candidate_path
    commit = workspaces.commit_at(path)
    if not commit or workspaces.is_lost(path):
        return b""  # killed in the middle of a restoration; nothing there is anybody's candidate
    taken = workspaces.snapshot(path)
    if isinstance(taken, TreeFault):
        raise WorkspaceFault(
            f"what stands in the candidate's worktree cannot be tried: {taken.detail}",
            next_step=f"mend it in {path}, then try again",
        )
    return workspaces.patch(commit, taken.tree) if taken.changed else b""


def require_applicable(work_path: str, patch_path: str) -> None:
    """See that a patch fits the candidate's worktree, before a trial is spent on it.

    Raises:
        UsageError: it does not, in git's own words.
    """
    workspaces = Workspaces.open(work_path)
    result = workspaces.git_in(workspaces.candidate_path).run(*_APPLY, "--check", from_path=patch_path)
    if result.exit_status != 0:
        commit = workspaces.commit_at(workspaces.candidate_path)
        raise UsageError(
            f"the patch does not fit the incumbent {commit[:12]}: {result.stderr[:_REASON_LENGTH]}",
            next_step=f"make it against what stands in {workspaces.candidate_path}, or change the files there",
        )


def patched(
    work_path: str, patch_path: str, cost_usd: float = 0.0, metadata: dict[str, Any] | None = None
) -> Callable[[ExperimentWorkspace], HypothesisOutcome]:
    """The callback of a trial whose candidate is a patch.

    Args:
        work_path: the experiment's folder of worktrees.
        patch_path: the file with the patch; read when the callback is called.
        cost_usd: what the host reports for it.
        metadata: the host's words.
    """

    def put_in(_: ExperimentWorkspace) -> HypothesisOutcome:
        workspaces = Workspaces.open(work_path)
        result = workspaces.git_in(workspaces.candidate_path).run(*_APPLY, from_path=patch_path)
        if result.exit_status == 0:
            return HypothesisOutcome(cost_usd=cost_usd, metadata=metadata or {})
        return HypothesisOutcome(
            cost_usd=cost_usd,
            metadata=metadata or {},
            fault="patch_failed",
            fault_reason=f"the patch could not be applied: {result.stderr[:_REASON_LENGTH]}",
        )

    return put_in
