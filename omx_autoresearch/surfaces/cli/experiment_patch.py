"""The final patch of an experiment: shown, taken into the checkout, or made into branches."""

from __future__ import annotations

import shlex
import shutil
import sys

import click

from omx_autoresearch.experiments.final_patch import FinalBranch, FinalPatch, final_patch_of, finalize
from omx_autoresearch.experiments.judge.state import ExperimentState
from omx_autoresearch.experiments.judge.summary import quoted_claim
from omx_autoresearch.experiments.views import is_at_work, next_command
from omx_autoresearch.experiments.worktrees.acceptance import PatchAcceptance
from omx_autoresearch.experiments.worktrees.pair import WorktreePair
from omx_autoresearch.foundation.errors import StepIllegal, UsageError
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.surfaces.cli.console import (
    CHECK_SAID_NO,
    Document,
    confirm,
    json_option,
    print_json,
    require_terminal,
    say,
    tell,
    verb,
)
from omx_autoresearch.surfaces.cli.experiment import Meant, experiment_argument, meant
from omx_autoresearch.surfaces.cli.experiment_trial import verify_if_needed, working
from omx_autoresearch.surfaces.experiment_documents import ExperimentPatchDocument

PATCH = Document("experiment-patch", ExperimentPatchDocument)


@verb("experiment patch", PATCH)
@experiment_argument
@click.option("--output", default="", metavar="FILE", help="Write the patch to this file.")
@click.option("--stat", is_flag=True, help="Show only the changed files, with their line counts.")
@json_option
def experiment_patch(named: str, output: str, stat: bool, as_json: bool) -> None:
    """Show the combined patch of all accepted trials, complete at any size; for `git apply --index`.

    This changes nothing, and works while another process runs the experiment.
    """
    found = meant(named)
    state = found.load()
    patch = _written(found, state)
    document = _patch_document(state, patch, None)
    if output:
        _copy_patch(patch.path, output)
    if as_json:
        print_json(document)
    elif stat or output:
        _print_stat(document)
        if output:
            say(f"{count_of(patch.size_bytes, 'byte')} in {output}")
    else:
        _pour(patch)


def _written(found: Meant, state: ExperimentState) -> FinalPatch:
    """The final patch as a file; no controller is needed for it."""
    return final_patch_of(state, WorktreePair.open(found.folder.work_path), found.folder.root_path)


def _copy_patch(source: str, target: str) -> None:
    try:
        shutil.copyfile(source, target)
    except (OSError, shutil.SameFileError) as error:
        raise UsageError(f"{target} cannot be written: {error}", next_step="--output FILE") from None


def _pour(patch: FinalPatch) -> None:
    """The patch itself on stdout, byte for byte."""
    sys.stdout.flush()
    with open(patch.path, "rb") as source:
        shutil.copyfileobj(source, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _patch_document(
    state: ExperimentState, patch: FinalPatch, done: PatchAcceptance | None
) -> ExperimentPatchDocument:
    is_applied = done.is_applied if done is not None else bool(state.applied_commit)
    return ExperimentPatchDocument(
        experiment_id=state.experiment_id,
        path=patch.path,
        size_bytes=patch.size_bytes,
        base_commit=patch.base_commit,
        final_commit=patch.final_commit,
        files=patch.changed,
        is_applied=is_applied,
        reason_code=done.reason_code if done is not None else "",
        reasons=done.reasons if done is not None else (),
        result=quoted_claim(state).sentence,
        warnings=(patch.warning,) if patch.warning else (),
        next=next_command(state, is_patch_seen=True),
    )


def _print_stat(document: ExperimentPatchDocument) -> None:
    for file in document.files:
        lines = "binary" if file.added_lines is None else f"+{file.added_lines} -{file.deleted_lines}"
        name = f"{file.old_path} -> {file.path}" if file.old_path else file.path
        say(f"{file.status}\t{lines}\t{name}")
    if not document.files:
        say("Nothing was accepted, so the patch is empty.")


_TAKE = "Apply this to your checkout?"


@verb("experiment accept", PATCH)
@experiment_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--no-verify", is_flag=True, help="Do not measure base against final first, if that is missing."
)
@json_option
def experiment_accept(named: str, yes: bool, no_verify: bool, as_json: bool) -> int:
    """Apply the final state to your checkout (index and files, no commit), and end the experiment.

    Shows the changes and the verified number, then asks. Refuses with 9, and changes nothing, if HEAD, index, or files
    changed since the start.
    """
    found = meant(named)
    found.require_owner("accept")
    state = found.load()
    if state.applied_commit:
        raise StepIllegal(
            f"the final state of {found.experiment_id} was already accepted into the checkout",
            next_step=f"git -C {shlex.quote(state.project_path)} status",
        )
    if is_at_work(state):
        raise StepIllegal(
            f"process {state.controller_pid} works on {found.experiment_id}",
            next_step=f"omx-autoresearch experiment stop {found.experiment_id}",
        )
    if state.incumbent_commit == state.base_commit:
        raise StepIllegal(
            f"nothing was accepted in {found.experiment_id}, so there is nothing to apply",
            next_step=f"omx-autoresearch experiment status {found.experiment_id}",
        )
    if not yes:
        require_terminal(_TAKE, "--yes")  # before base and final are measured for nothing
    if not no_verify and (refused := _refused(found, state)) is not None:
        return _told_patch(_patch_document(state, _written(found, state), refused), as_json=as_json)
    with working(found, as_json=as_json) as (controller, progress):
        if not no_verify:
            verify_if_needed(controller, progress)
        patch = controller.final_patch()
        state = controller.state
    document = _patch_document(state, patch, None)
    if not as_json:
        _show(document)
    if not yes:
        refusal = "Not applied; nothing was changed."
        confirm(_TAKE, "--yes", refusal)
    with working(found, as_json=as_json) as (controller, _):
        done = controller.accept_final_patch()
        state = controller.state
    return _told_patch(_patch_document(state, patch, done), as_json=as_json)


def _refused(found: Meant, state: ExperimentState) -> PatchAcceptance | None:
    """That the checkout moved, before base and final are measured for nothing; None where it stands as it was."""
    if state.incumbent_commit in (state.base_commit, state.claim_commit):
        return None  # nothing is measured
    reasons = WorktreePair.open(found.folder.work_path).reasons_against(state.incumbent_commit)
    return PatchAcceptance(False, (), "", "user_moved", reasons) if reasons else None


def _show(document: ExperimentPatchDocument) -> None:
    """What is about to be taken, before anybody is asked."""
    _print_stat(document)
    say(document.result)
    for warning in document.warnings:
        tell(f"warning: {warning}", "yellow")


def _told_patch(document: ExperimentPatchDocument, *, as_json: bool) -> int:
    if as_json:
        print_json(document)
    elif document.is_applied:
        say(f"{count_of(len(document.files), 'file')} in your checkout; nothing was committed.", "green")
        say(f"  next: {document.next}", "dim")
    else:
        for reason in document.reasons:
            tell(f"not applied: {reason}")
        tell(f"  next: put the checkout back as it was at {document.base_commit[:12]}, then the same again")
        tell(f"    or: omx-autoresearch experiment finalize {document.experiment_id}, and merge that branch")
    return 0 if document.is_applied else CHECK_SAID_NO


@dataclass(frozen=True, slots=True)
class ExperimentBranchesDocument:
    """``experiment finalize``."""

    experiment_id: str
    branches: tuple[FinalBranch, ...]
    next: str


@verb("experiment finalize", Document("experiment-branches", ExperimentBranchesDocument))
@experiment_argument
@click.option(
    "--prefix", default="", metavar="NAME", help="Prefix of the branches.  [default: autoresearch/ID]"
)
@json_option
def experiment_finalize(named: str, prefix: str, as_json: bool) -> None:
    """Make one branch per checkpoint in your repository, for review; your own branches and checkout do not change."""
    found = meant(named)
    found.require_owner("finalize")
    state = found.load()
    branches = finalize(state, WorktreePair.open(found.folder.work_path), prefix)
    next_step = f"git -C {shlex.quote(state.project_path)} log --oneline {branches[-1].name}"
    if as_json:
        print_json(ExperimentBranchesDocument(found.experiment_id, branches, next_step))
        return
    for branch in branches:
        say(f"{branch.commit[:12]}\t{branch.name}")
    say(f"  next: {next_step}", "dim")
