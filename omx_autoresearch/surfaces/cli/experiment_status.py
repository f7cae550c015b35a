"""Looking at experiments without changing anything: status, list, workspace; also while another process works."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace

import click

from omx_autoresearch.experiments.views import NEXT_START, ExperimentLine, list_views, view_of
from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.surfaces.cli.caller import json_option, this_caller
from omx_autoresearch.surfaces.cli.display import print_json, print_table, say, tell
from omx_autoresearch.surfaces.cli.experiment import auto_log_option, experiment_argument, meant


@click.command("status")
@experiment_argument
@auto_log_option
@json_option
def experiment_status(named: str, auto_log: str, as_json: bool) -> None:
    """Show how an experiment stands: the result that may be quoted, what is left, and every trial."""
    if auto_log:
        _show_auto_log(named, auto_log, as_json=as_json)
        return
    found = meant(named)
    view = found.view()
    if as_json:
        print_json(view)
        return
    from omx_autoresearch.surfaces.cli.experiment_display import print_experiment

    print_experiment(found.load(), view)


def _show_auto_log(named: str, auto_log: str, *, as_json: bool) -> None:
    """The newest session of a log that is not ours, as an experiment has its page, and what it is not."""
    from omx_autoresearch.surfaces.cli.experiment_display import print_experiment
    from omx_autoresearch.surfaces.cli.experiment_files import material_of

    state, material, _ = material_of(named, auto_log)
    document = view_of(state)
    notes = (material.origin, *material.faults)
    next_command = f"omx-autoresearch experiment report --auto-log {shlex.quote(auto_log)}"
    document = replace(document, warnings=(*document.warnings, *notes), next=next_command)
    if as_json:
        print_json(document)
        return
    print_experiment(state, document)
    for note in notes:
        tell(f"note: {note}")


@click.command("list")
@json_option
def experiment_list(as_json: bool) -> None:
    """Show every experiment of every project, newest first."""
    lines = list_views(this_caller().runtime)
    if as_json:
        print_json(lines)
    elif not lines:
        say(f"No experiment yet.\n  next: {NEXT_START}")
    else:
        _print_list(lines)


def _short(line: ExperimentLine) -> str:
    """The result as a row of a table has room for it: no number without its `Verified`, no reason why there is none."""
    if line.completed_reason == "failure":
        return "the unchanged project could not be measured" if not line.trials else "it failed"
    return line.result.partition(": base and final")[0].partition(" (")[0].rstrip(".")


def _project_words(path: str) -> str:
    """A project's folder as a person writes it."""
    home = os.path.join(os.path.expanduser("~"), "")
    return (f"~/{path.removeprefix(home)}" if path.startswith(home) else path).replace("\n", " ")


def _print_list(lines: tuple[ExperimentLine, ...]) -> None:
    from omx_autoresearch.experiments.judge.summary import ending_words

    rows = [
        (
            line.experiment_id,
            ending_words(line.completed_reason) or line.phase,
            str(line.trials),
            str(line.accepted),
            _project_words(line.project_path),
            " ".join((line.fault or _short(line)).split()),
        )
        for line in lines
    ]
    styles = ["red" if line.fault else "cyan" if line.is_at_work else "" for line in lines]
    print_table(("EXPERIMENT", "PHASE", "TRIALS", "ACCEPTED", "PROJECT", "RESULT"), rows, styles)


@click.command("workspace")
@experiment_argument
@json_option
def experiment_workspace(named: str, as_json: bool) -> None:
    """Print the candidate's worktree: whoever makes a change by hand makes it there, then calls `trial`."""
    found = meant(named, is_open=not named)
    path = found.workspace_path()
    if not path:
        raise WorkspaceFault(
            f"the worktree of {found.experiment_id} is gone",
            next_step=f"omx-autoresearch experiment resume {found.experiment_id}",
        )
    if as_json:
        print_json(found.view())
    else:
        say(path)
