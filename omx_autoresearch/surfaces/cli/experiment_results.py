"""What comes out of an experiment: plot, report, export, and the final patch, shown, taken, or made branches."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from omx_autoresearch.experiments.judge.events import RunMeasured
from omx_autoresearch.experiments.judge.summary import quoted_claim
from omx_autoresearch.experiments.views import frozen_paths, is_at_work, next_command
from omx_autoresearch.foundation.errors import StepIllegal, UsageError
from omx_autoresearch.surfaces.cli.console import (
    CHECK_SAID_NO,
    confirm,
    count_of,
    json_option,
    print_json,
    require_terminal,
    say,
    tell,
    verb,
)
from omx_autoresearch.surfaces.cli.experiment import (
    Meant,
    auto_log_option,
    experiment_argument,
    material_of,
    meant,
)
from omx_autoresearch.surfaces.cli.experiment_trial import verify_if_needed, working

if TYPE_CHECKING:
    from omx_autoresearch.experiments.final_patch import FinalPatch
    from omx_autoresearch.experiments.judge.state import ExperimentState
    from omx_autoresearch.experiments.reports.pages import ReportMaterial
    from omx_autoresearch.experiments.worktrees.acceptance import PatchAcceptance
    from omx_autoresearch.surfaces.experiment_documents import ExperimentPatchDocument


@verb("experiment patch", "experiment-patch")
@experiment_argument
@click.option("--output", default="", metavar="FILE", help="Write the whole patch there.")
@click.option("--stat", is_flag=True, help="Only the changed files, with their lines.")
@json_option
def experiment_patch(named: str, output: str, stat: bool, as_json: bool) -> None:
    """Show what all accepted trials changed together, whole at any size; for `git apply --index`.

    Nothing is changed by looking, and it may be looked at while another process works.
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
    from omx_autoresearch.experiments.final_patch import final_patch_of
    from omx_autoresearch.experiments.worktrees.pair import Workspaces

    return final_patch_of(state, Workspaces.open(found.folder.work_path), found.folder.root_path)


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
    from omx_autoresearch.surfaces.experiment_documents import ExperimentPatchDocument

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


_TAKE = "Take this into your checkout?"


@verb("experiment accept", "experiment-patch")
@experiment_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--no-verify", is_flag=True, help="Do not measure base against final first, where that is missing."
)
@json_option
def experiment_accept(named: str, yes: bool, no_verify: bool, as_json: bool) -> int:
    """Take the final state into your checkout: index and files, nothing committed. It ends the experiment.

    Shows what changes and the verified number, and asks. Refused, with 9, where HEAD, index or files moved since the
    start; then nothing was changed.
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
            f"nothing was accepted in {found.experiment_id}, so there is nothing to take",
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
        refusal = "Not taken; nothing was changed."
        confirm(_TAKE, "--yes", refusal)
    with working(found, as_json=as_json) as (controller, _):
        done = controller.accept_final_patch()
        state = controller.state
    return _told_patch(_patch_document(state, patch, done), as_json=as_json)


def _refused(found: Meant, state: ExperimentState) -> PatchAcceptance | None:
    """That the checkout moved, before base and final are measured for nothing; None where it stands as it was."""
    from omx_autoresearch.experiments.worktrees.acceptance import PatchAcceptance
    from omx_autoresearch.experiments.worktrees.pair import Workspaces

    if state.incumbent_commit in (state.base_commit, state.claim_commit):
        return None  # nothing is measured
    reasons = Workspaces.open(found.folder.work_path).reasons_against()
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
            tell(f"not taken: {reason}")
        tell(f"  next: put the checkout back as it was at {document.base_commit[:12]}, then the same again")
        tell(f"    or: omx-autoresearch experiment finalize {document.experiment_id}, and merge that branch")
    return 0 if document.is_applied else CHECK_SAID_NO


@verb("experiment finalize", "experiment-branches")
@experiment_argument
@click.option("--prefix", default="", metavar="NAME", help="Of the branches.  [default: autoresearch/ID]")
@json_option
def experiment_finalize(named: str, prefix: str, as_json: bool) -> None:
    """Make one branch a checkpoint in your repository, for review; no branch of yours moves, none is checked out."""
    from omx_autoresearch.experiments.final_patch import finalize
    from omx_autoresearch.experiments.worktrees.pair import Workspaces
    from omx_autoresearch.surfaces.experiment_documents import ExperimentBranchesDocument

    found = meant(named)
    found.require_owner("finalize")
    state = found.load()
    branches = finalize(state, Workspaces.open(found.folder.work_path), prefix)
    next_step = f"git -C {shlex.quote(state.project_path)} log --oneline {branches[-1].name}"
    if as_json:
        print_json(ExperimentBranchesDocument(found.experiment_id, branches, next_step))
        return
    for branch in branches:
        say(f"{branch.commit[:12]}\t{branch.name}")
    say(f"  next: {next_step}", "dim")


@verb("experiment plot", "experiment-file")
@experiment_argument
@click.option(
    "--output",
    default="",
    metavar="FILE",
    help="Ends in .html, .svg or .png.  [default: ID.html in the experiment's folder]",
)
@auto_log_option
@json_option
def experiment_plot(named: str, output: str, auto_log: str, as_json: bool) -> None:
    """Draw trials over time, accepted steps, intervals and the verified claim."""
    from omx_autoresearch.experiments.reports.plots import FORMATS, plot_specification, render_plot

    state, material, found = material_of(named, auto_log)
    path = output or _beside_log(found, f"{state.experiment_id}.html")
    ending = os.path.splitext(path)[1].lstrip(".").lower()
    kind = next((name for name in FORMATS if name == ending), None)
    if kind is None:
        raise UsageError(
            f"the name of a plot ends in {', '.join('.' + name for name in FORMATS)}, received {path!r}",
            next_step="--output plot.html",
        )
    data = render_plot(plot_specification(state, origin=material.origin), kind)
    _write_file(path, data)
    _told_file(state, path, kind, data, as_json=as_json)


@verb("experiment report", "experiment-file")
@experiment_argument
@click.option(
    "--output", default="", metavar="FILE", help="Ends in .md or .html.  [default: Markdown to stdout]"
)
@auto_log_option
@json_option
def experiment_report(named: str, output: str, auto_log: str, as_json: bool) -> None:
    """Write it up: what was asked, the one number, every trial, every accepted step."""
    from omx_autoresearch.experiments.reports.pages import html_report, markdown_report, with_plot

    state, material, found = material_of(named, auto_log)
    if found is not None:
        material = _whole(found, state, material)
    kind = os.path.splitext(output)[1].lstrip(".").lower() if output else "md"
    if kind not in ("md", "markdown", "html"):
        raise UsageError(
            f"the name of a report ends in .md or .html, received {output!r}", next_step="--output report.md"
        )
    text = (
        html_report(state, with_plot(state, material)) if kind == "html" else markdown_report(state, material)
    )
    if output:
        _write_file(output, text.encode())
    elif not as_json:
        sys.stdout.write(text)
        return
    _told_file(state, output, kind, text.encode(), as_json=as_json, notes=material.faults)


@verb("experiment export", "experiment-file")
@experiment_argument
@click.option(
    "--format",
    "kind",
    type=click.Choice(("csv", "jsonl", "events", "mlflow")),
    default="csv",
    show_default=True,
    help="Trials as CSV or JSON lines, the whole log, or a local MLflow store.",
)
@click.option(
    "--output",
    default="",
    metavar="PATH",
    help="File, or folder of the store.  [default: stdout; of a store, one in the experiment's folder]",
)
@auto_log_option
@json_option
def experiment_export(named: str, kind: str, output: str, auto_log: str, as_json: bool) -> None:
    """Export the trials for other tools."""
    state, material, found = material_of(named, auto_log)
    if kind == "mlflow":
        if found is not None:
            material = _whole(found, state, material)
        _export_to_mlflow(
            (state, material, _patch(found, state)),
            output or _beside_log(found, f"mlflow-{state.experiment_id}"),
            as_json=as_json,
        )
        return
    data, notes = _exported(state, kind, found)
    if output:
        _write_file(output, data)
    elif not as_json:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        for note in notes:
            tell(f"note: {note}", "yellow")
        return
    _told_file(state, output, kind, data, as_json=as_json, notes=notes)


def _exported(state: ExperimentState, kind: str, found: Meant | None) -> tuple[bytes, tuple[str, ...]]:
    from omx_autoresearch.experiments.reports.pages import exported_events, trials_csv, trials_jsonl

    if kind == "csv":
        return trials_csv(state), ()
    if kind == "jsonl":
        return trials_jsonl(state), ()
    if found is None:
        raise UsageError("an .auto/ log is exported as csv or jsonl", next_step="--format jsonl")
    events = exported_events(found.folder.journal_path)
    torn = f"an unfinished last line of {events.torn_bytes} bytes was left out" if events.torn_bytes else ""
    return events.data, (torn,) if torn else ()


def _export_to_mlflow(
    source: tuple[ExperimentState, ReportMaterial, bytes], folder_path: str, *, as_json: bool
) -> None:
    from omx_autoresearch.experiments.reports.mlflow_export import export_to_mlflow
    from omx_autoresearch.experiments.reports.pages import report_files

    state = source[0]
    done = export_to_mlflow(state, folder_path, report_files(*source))
    notes = (
        f"{done.added} trials added, {done.known} known",
        f"mlflow ui --backend-store-uri {done.tracking_uri}",
    )
    _told_file(state, os.path.abspath(folder_path), "mlflow", b"", as_json=as_json, notes=notes)


def _whole(found: Meant, state: ExperimentState, material: ReportMaterial) -> ReportMaterial:
    """The material of an experiment: frozen files, the files of each step, what isolated the runs."""
    from omx_autoresearch.experiments.reports.pages import step_changes
    from omx_autoresearch.experiments.worktrees.pair import Workspaces

    changes = step_changes(state, Workspaces.open(found.folder.work_path))
    isolations = dict.fromkeys(
        event.isolation
        for _, event in found.store.events(found.experiment_id)
        if isinstance(event, RunMeasured)
    )
    return replace(
        material,
        frozen_paths=frozen_paths(found.caller.runtime, state),
        changes=changes,
        isolations=tuple(isolations),
    )


def _patch(found: Meant | None, state: ExperimentState) -> bytes:
    """From base to final; empty where nothing was accepted, and for an ``.auto/`` log."""
    from omx_autoresearch.experiments.worktrees.pair import Workspaces

    if found is None or not state.checkpoints:
        return b""
    return Workspaces.open(found.folder.work_path).patch(state.base_commit, state.incumbent_commit)


def _beside_log(found: Meant | None, name: str) -> str:
    """Where a file without a given name lands: never in the checkout, which `accept` needs as it was at the start."""
    return os.path.join(found.folder.root_path, name) if found is not None else name


def _write_file(path: str, data: bytes) -> None:
    try:
        with open(path, "wb") as target:
            target.write(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", next_step="--output FILE") from None


def _told_file(  # noqa: PLR0913  # one line each of the document
    state: ExperimentState, path: str, kind: str, data: bytes, *, as_json: bool, notes: tuple[str, ...] = ()
) -> None:
    from omx_autoresearch.surfaces.experiment_documents import ExperimentFileDocument

    if as_json:
        result = quoted_claim(state).sentence
        print_json(ExperimentFileDocument(state.experiment_id, path, kind, len(data), result, notes))
        return
    say(path)
    for note in notes:
        tell(f"note: {note}")
