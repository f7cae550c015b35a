"""The results of an experiment: its patch to read, the patch taken into the checkout, or one branch a checkpoint.

Branches stand on each other in the order of acceptance, the first on the base commit, so that each shows a single step.
Their commits hold exactly the checkpoints' trees; their messages say what was tried and measured. No branch is checked
out, none of the user's is moved, and a name that exists refuses the whole.
"""

from __future__ import annotations

import os
import re
import shlex
import textwrap
from dataclasses import dataclass, replace

from omx_autoresearch.experiments.context import ExperimentContext
from omx_autoresearch.experiments.judge.events import PatchApplied
from omx_autoresearch.experiments.judge.state import Claim, ExperimentState, TrialRow
from omx_autoresearch.experiments.judge.statistics import median
from omx_autoresearch.experiments.judge.summary import figure, patch_warning, quoted_claim, steps_of
from omx_autoresearch.experiments.worktrees.acceptance import PatchAcceptance
from omx_autoresearch.experiments.worktrees.checkout import open_repository
from omx_autoresearch.experiments.worktrees.object_store import FileChange
from omx_autoresearch.experiments.worktrees.pair import WorktreePair
from omx_autoresearch.foundation.errors import StepIllegal, UsageError, WorkspaceFault
from omx_autoresearch.foundation.text import count_of, one_line


@dataclass(frozen=True, slots=True)
class FinalPatch:
    """The patch of all accepted steps against the base commit. Making it changes nothing.

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
        """The paths of the changed files after the change."""
        return tuple(change.path for change in self.changed)


def final_patch_of(state: ExperimentState, worktrees: WorktreePair, folder_path: str) -> FinalPatch:
    """Write the patch of a state into a folder; needs no hold of the repository.

    Raises:
        WorkspaceFault: git cannot read a checkpoint.
    """
    base, final = state.base_commit, state.incumbent_commit
    path = os.path.join(folder_path, f"final-{final[:12]}.patch")
    worktrees.patch(base, final, to_path=path)
    return FinalPatch(
        path=path,
        size_bytes=os.path.getsize(path),
        base_commit=base,
        final_commit=final,
        changed=worktrees.changes(base, final),
        claim=state.claim if state.claim_commit == final else None,
        warning=patch_warning(state),
    )


def apply_final_patch(context: ExperimentContext) -> PatchAcceptance:
    """Bring the final state into the checkout; what moved there is a refusal, and then nothing changed.

    Raises:
        StepIllegal: it was already accepted into the checkout, or nothing was accepted.
        WorkspaceFault: git cannot read the checkout.
    """
    state = context.log.state
    if state.applied_commit:
        raise StepIllegal(
            f"the final state {state.applied_commit[:12]} was already accepted into the checkout",
            next_step=f"git -C {shlex.quote(state.project_path)} status",
        )
    if state.incumbent_commit == state.base_commit:
        raise StepIllegal(
            "no step was accepted, so there is nothing to accept into the checkout",
            next_step="omx-autoresearch experiment report",
        )
    warning = patch_warning(state)
    done = context.worktrees.apply_to_user(state.incumbent_commit)
    if done.is_applied:
        context.log.record(PatchApplied(state.incumbent_commit, warning))
    return replace(done, warning=warning)


PREFIX = "autoresearch"
_SUBJECT_CHARACTERS, _BODY_COLUMNS, _SLUG_CHARACTERS = 72, 72, 40
_MENTIONS = (
    (re.compile(r"#(?=\d)"), "# "),
    (re.compile(r"@(?=\w)"), "@ "),
    (re.compile(r"\[(?=[^\]]*\bci\b|[^\]]*\bactions\b)", re.IGNORECASE), "("),
)
"""Parts of a commit message that a hosting site acts upon: issue numbers, people, words that switch checks off."""


@dataclass(frozen=True, slots=True)
class BranchPlan:
    """One branch that finalizing makes.

    Attributes:
        name: of the branch, without ``refs/heads/``.
        checkpoint: whose tree it has.
        iteration: the trial.
        message: of its one commit.
    """

    name: str
    checkpoint: str
    iteration: int
    message: str


@dataclass(frozen=True, slots=True)
class FinalBranch:
    """A branch that was made: its name, its commit, and the trial that it shows."""

    name: str
    commit: str
    iteration: int


def branch_plan(state: ExperimentState, prefix: str = "") -> tuple[BranchPlan, ...]:
    """The branches of an experiment, in the order in which they depend on each other.

    Args:
        state: of the experiment.
        prefix: of the names; ``autoresearch/{experiment_id}`` without.

    Raises:
        StepIllegal: no step was accepted.
    """
    steps = steps_of(state)
    if not steps:
        raise StepIllegal(
            f"experiment {state.experiment_id} accepted no step, so there is nothing to finalize",
            next_step=f"omx-autoresearch experiment status {state.experiment_id}",
        )
    prefix = prefix.strip("/") or f"{PREFIX}/{state.experiment_id}"
    width = len(str(len(steps)))
    return tuple(
        BranchPlan(
            name=f"{prefix}/{number:0{width}}-{_slug(row)}",
            checkpoint=row.candidate_commit,
            iteration=row.iteration,
            message=_message(state, row, number, len(steps)),
        )
        for number, row in enumerate(steps, start=1)
    )


def finalize(state: ExperimentState, worktrees: WorktreePair, prefix: str = "") -> tuple[FinalBranch, ...]:
    """Make the branches of `branch_plan`, all of them or none.

    Args:
        state: of the experiment.
        worktrees: that hold its checkpoints, open or closed.
        prefix: of the names; ``autoresearch/{experiment_id}`` without.

    Raises:
        StepIllegal: no step was accepted.
        UsageError: a name exists already.
        WorkspaceFault: a name is not a valid branch name, or git refused; nothing was made.
    """
    plans = branch_plan(state, prefix)
    _refuse_taken(state, plans)
    made: list[FinalBranch] = []
    parent = state.base_commit
    for plan in plans:
        parent = worktrees.commit(f"{plan.checkpoint}^{{tree}}", parent, plan.message)
        made.append(FinalBranch(plan.name, parent, plan.iteration))
    worktrees.branches((branch.name, branch.commit) for branch in made)
    return tuple(made)


def _refuse_taken(state: ExperimentState, plans: tuple[BranchPlan, ...]) -> None:
    git = open_repository(state.project_path).git
    taken = []
    for plan in plans:
        result = git.run("show-ref", "--verify", "--quiet", f"refs/heads/{plan.name}")
        if result.exit_status == 0:
            taken.append(plan.name)
        elif result.exit_status != 1:
            raise WorkspaceFault(
                f"{plan.name!r} cannot be looked up as a branch: {result.stderr}",
                next_step="choose another prefix",
            )
    if taken:
        raise UsageError(
            f"no branch was made: {'these branches exist' if len(taken) > 1 else 'this branch exists'} already: "
            f"{', '.join(taken)}",
            next_step=f"omx-autoresearch experiment finalize {state.experiment_id} --prefix ANOTHER",
        )


def _slug(row: TrialRow) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", (row.description or row.hypothesis_id).lower()).strip("-")
    return words[:_SLUG_CHARACTERS].strip("-") or f"trial-{row.iteration}"


def _message(state: ExperimentState, row: TrialRow, number: int, count: int) -> str:
    quoted = quoted_claim(state)
    is_last = number == count
    paragraphs = [_subject(state, row)]
    if row.description.strip():
        paragraphs.append("\n".join(f"> {line}" for line in textwrap.wrap(_harmless(row.description), 70)))
    paragraphs.append(_wrapped(_measured(state, row)))
    if is_last:
        paragraphs += [_wrapped(text) for text in (quoted.sentence, *quoted.warnings)]
    else:
        paragraphs.append(_wrapped("The last branch names the gain of all steps together."))
    trailers = {
        "Experiment": state.experiment_id,
        "Experiment-Trial": str(row.iteration),
        "Experiment-Step": f"{number} of {count}",
        "Experiment-Checkpoint": row.candidate_commit,
    }
    paragraphs.append("\n".join(f"{name}: {value}" for name, value in trailers.items()))
    return "\n\n".join(paragraphs) + "\n"


def _subject(state: ExperimentState, row: TrialRow) -> str:
    words = f"{state.config.metric.name}: {_harmless(row.description or row.hypothesis_id)}"
    return textwrap.shorten(words, _SUBJECT_CHARACTERS, placeholder=" ...")


def _measured(state: ExperimentState, row: TrialRow) -> str:
    unit = state.config.metric.unit
    words = f"Accepted with a median {state.config.metric.name} of {figure(row.metric, unit)}"
    if row.incumbent_samples:
        words += f" beside {figure(median(row.incumbent_samples), unit)} of the step before"
    pairs = f", in {count_of(row.pairs, 'interleaved pair')}" if row.pairs > 1 else ""
    check = ", after its check had passed" if state.config.check.strip() else ""
    return f"{words}{pairs}{check}. These values decided the step; they are not a result."


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _BODY_COLUMNS, break_long_words=False, break_on_hyphens=False)


def _harmless(text: str) -> str:
    line = one_line(text)
    for pattern, instead in _MENTIONS:
        line = pattern.sub(instead, line)
    return line
