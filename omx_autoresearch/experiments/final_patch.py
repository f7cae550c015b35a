"""The final patch: what was reached, to look at; and the one explicit act that takes it into the user's checkout."""

from __future__ import annotations

import dataclasses
import os
import shlex
from typing import TYPE_CHECKING

from omx_autoresearch.experiments.judge.events import PatchApplied
from omx_autoresearch.foundation.errors import StepIllegal

if TYPE_CHECKING:
    from omx_autoresearch.experiments.context import ExperimentContext
    from omx_autoresearch.experiments.judge.claim import Claim
    from omx_autoresearch.experiments.judge.state import ExperimentState
    from omx_autoresearch.experiments.worktrees.pair import Workspaces
    from omx_autoresearch.experiments.worktrees.patches import FileChange


@dataclasses.dataclass(frozen=True, slots=True)
class FinalPatch:
    """What was reached, against the commit that the experiment began with. Nothing was changed by making it.

    Attributes:
        path: the file with the whole patch, for ``git apply --whitespace=nowarn`` on the base commit.
        size_bytes: of it.
        base_commit: where the checkout stood.
        final_commit: the last accepted checkpoint; the base commit where nothing was accepted.
        changed: the changed files, renames found.
        claim: the verified number; None before there was a fresh check of this final state.
        warning: why it should not be accepted yet; empty where nothing speaks against it.
    """

    path: str
    size_bytes: int
    base_commit: str
    final_commit: str
    changed: tuple[FileChange, ...]
    claim: Claim | None
    warning: str

    @property
    def changed_paths(self) -> tuple[str, ...]:
        """Where the changed files are now."""
        return tuple(change.path for change in self.changed)

    def content(self) -> bytes:
        """The patch itself."""
        with open(self.path, "rb") as stream:
            return stream.read()


@dataclasses.dataclass(frozen=True, slots=True)
class PatchAcceptance:
    """What became of taking the final state into the checkout.

    Attributes:
        is_applied: index and work tree hold it now; nothing was committed.
        changed_paths: empty where it was refused.
        warning: what the owner should know of what was taken over.
        reason_code: why it was refused: ``user_moved in_the_way locked git_refused``; else empty.
        reasons: what exactly, one sentence each.
    """

    is_applied: bool
    changed_paths: tuple[str, ...]
    warning: str = ""
    reason_code: str = ""
    reasons: tuple[str, ...] = ()


def final_patch_of(state: ExperimentState, workspaces: Workspaces, folder_path: str) -> FinalPatch:
    """Write the patch of a state into a folder; needs no hold of the repository.

    Raises:
        WorkspaceFault: git cannot read a checkpoint.
    """
    base, final = state.base_commit, state.incumbent_commit
    path = os.path.join(folder_path, f"final-{final[:12]}.patch")
    return FinalPatch(
        path=path,
        size_bytes=workspaces.write_patch(base, final, path),
        base_commit=base,
        final_commit=final,
        changed=workspaces.changes(base, final),
        claim=state.claim if state.claim_commit == final else None,
        warning=patch_warning(state),
    )


def patch_warning(state: ExperimentState) -> str:
    """Why the final state should not be taken over as it stands; empty where nothing speaks against it."""
    if state.incumbent_commit == state.base_commit:
        return "nothing was accepted: the patch is empty"
    if state.claim is None or state.claim_commit != state.incumbent_commit:
        return "the final state was not yet checked freshly against the base"
    if state.claim_held_out == "failed":
        return "the held-out check fails on the final state"
    if not state.claim.has_gain:
        return "the fresh check of base against final does not show a gain: its interval contains none"
    return ""


def apply_final_patch(context: ExperimentContext) -> PatchAcceptance:
    """Bring the final state into the checkout; what moved there is a refusal, and then nothing changed.

    Raises:
        StepIllegal: it was taken over already, or nothing was accepted.
        WorkspaceFault: git cannot read the checkout.
    """
    state = context.log.state
    if state.applied_commit:
        raise StepIllegal(
            f"the final state {state.applied_commit[:12]} was taken over already",
            next_step=f"git -C {shlex.quote(state.project_path)} status",
        )
    if state.incumbent_commit == state.base_commit:
        raise StepIllegal(
            "nothing was accepted, so there is nothing to take over",
            next_step="omx-autoresearch experiment report",
        )
    warning = patch_warning(state)
    done = context.workspaces.apply_to_user(state.incumbent_commit)
    if not done.is_applied:
        return PatchAcceptance(
            is_applied=False,
            changed_paths=(),
            warning=warning,
            reason_code=done.reason_code,
            reasons=done.reasons,
        )
    context.log.record(PatchApplied(state.incumbent_commit, warning))
    return PatchAcceptance(is_applied=True, changed_paths=done.changed, warning=warning)
