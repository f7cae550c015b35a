"""The owner's steps in an experiment's life: stop, cancel, resume, verify, close, remove."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from omx_autoresearch.experiments.judge.summary import quoted_claim
from omx_autoresearch.experiments.store import ExperimentStore
from omx_autoresearch.experiments.views import is_at_work
from omx_autoresearch.foundation.errors import StateUntrusted, StepIllegal, StorageFailed, UsageError
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.journal.layout import is_safe_task_id
from omx_autoresearch.missions.lifecycle_commands import require_owner
from omx_autoresearch.surfaces.cli.console import (
    Document,
    confirm,
    json_option,
    print_json,
    say,
    this_caller,
    verb,
)
from omx_autoresearch.surfaces.cli.experiment import EXPERIMENT, Meant, ended, experiment_argument, meant
from omx_autoresearch.surfaces.cli.experiment_trial import working
from omx_autoresearch.system.files import remove

if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.experiments.judge.state import ExperimentLimits, ExperimentState
    from omx_autoresearch.experiments.store import ExperimentFolder
    from omx_autoresearch.journal.layout import Runtime


_SECONDS_PER_HOUR = 3600.0
_LIMITS = {
    "wall_seconds": "the hours",
    "trials": "the trials",
    "cost_usd": "the costs",
    "runs": "the runs",
    "disk_bytes": "the bytes on disk",
}
"""Each limit in a person's word."""


def _print(found: Meant, what: str, *, as_json: bool) -> None:
    document = found.view()
    if as_json:
        print_json(document)
    else:
        say(what)
        say(f"  next: {document.next}", "dim")


@verb("experiment stop", EXPERIMENT)
@experiment_argument
@json_option
def experiment_stop(named: str, as_json: bool) -> None:
    """End an experiment after the current trial; nothing is applied, and the log and the patch stay."""
    _end(named, "stop", as_json=as_json)


@verb("experiment cancel", EXPERIMENT)
@experiment_argument
@json_option
def experiment_cancel(named: str, as_json: bool) -> None:
    """End an experiment now: stop its agent and roll the current trial back."""
    _end(named, "cancel", as_json=as_json)


def _end(named: str, request: str, *, as_json: bool) -> None:
    """Ask the controller at work to end the experiment, or end it here where no controller is at work."""
    from omx_autoresearch.experiments.controller import request_cancel, request_stop

    found = meant(named, is_open=True)
    found.require_owner(request)
    ask = request_stop if request == "stop" else request_cancel
    asked = ask(found.caller.runtime, found.experiment_id)
    if asked.is_done:
        rolled = "; the current trial was rolled back" if asked.holder is not None else ""
        said = f"{found.experiment_id} has ended{rolled}; the checkout was not touched."
    elif request == "stop" and asked.state.running_row is not None:
        said = f"{found.experiment_id} ends after trial {asked.state.running_row.iteration}."
    else:
        pid = asked.holder.pid if asked.holder is not None else 0
        said = f"{found.experiment_id} was asked to end; process {pid} still works on it."
    _print(found, said, as_json=as_json)


@verb("experiment resume", EXPERIMENT)
@experiment_argument
@click.option(
    "--add-hours", type=click.FloatRange(0), default=0.0, metavar="H", help="Add to the limit of hours."
)
@click.option(
    "--add-trials", type=click.IntRange(0), default=0, metavar="N", help="Add to the limit of trials."
)
@click.option(
    "--add-cost", type=click.FloatRange(0), default=0.0, metavar="USD", help="Add to the limit of cost."
)
@click.option(
    "--add-runs", type=click.IntRange(0), default=0, metavar="N", help="Add to the limit of measured runs."
)
@click.option("--add-disk", default="", metavar="SIZE", help="Add to the limit of disk space, such as 2GiB.")
@click.option("--target", type=float, metavar="VALUE", help="Set another target.")
@json_option
def experiment_resume(named: str, as_json: bool, target: float | None, **added: Any) -> None:
    """Continue an experiment: an unfinished trial counts as failed and is rolled back, and its cost stays spent.

    An experiment that spent its budget needs more of it. Otherwise `experiment run` continues by itself.
    """
    found = meant(named)
    state = found.load()
    limits = _extended(state, added)
    if limits is not None or target is not None:
        found.require_owner("resume")
    if state.phase == "completed" and not _reopens(state, limits, target):
        raise ended(state)
    with working(found, as_json=as_json, limits=limits, target=target) as (controller, _):
        if controller.state.phase == "started":
            controller.establish_baseline()
    _print(found, f"{found.experiment_id} is {found.load().phase} again.", as_json=as_json)


def _extended(state: ExperimentState, added: dict[str, Any]) -> ExperimentLimits | None:
    """The limits with what was added; None where nothing was.

    Raises:
        UsageError: something is added to a limit that does not exist.
    """
    from omx_autoresearch.experiments.configuration import size_of

    try:
        disk_bytes = size_of(added["add_disk"]) if added["add_disk"] else 0
    except ValueError as error:
        raise UsageError(f"--add-disk: {error}", next_step="--add-disk 2GiB") from None
    more = {
        "wall_seconds": added["add_hours"] * _SECONDS_PER_HOUR,
        "trials": added["add_trials"],
        "cost_usd": added["add_cost"],
        "runs": added["add_runs"],
        "disk_bytes": disk_bytes,
    }
    limits = state.config.limits
    endless = [name for name, value in more.items() if value and not getattr(limits, name)]
    if endless:
        raise UsageError(
            f"{_LIMITS[endless[0]]} have no limit, so nothing can be added",
            next_step="leave that option out",
        )
    changed = {name: getattr(limits, name) + value for name, value in more.items() if value}
    return replace(limits, **changed) if changed else None


def _reopens(state: ExperimentState, limits: ExperimentLimits | None, target: float | None) -> bool:
    """Whether the extension is what ended it."""
    if state.completed_reason == "target_reached":
        return target is not None or limits is not None
    return state.completed_reason.startswith("budget_") and limits is not None


@verb("experiment verify", EXPERIMENT)
@experiment_argument
@json_option
def experiment_verify(named: str, as_json: bool) -> None:
    """Measure base against final afresh, interleaved: the one number that may be quoted.

    The result is kept until another trial is accepted; until then, a second call measures nothing.
    """
    found = meant(named)
    with working(found, as_json=as_json) as (controller, _):
        controller.verify_claim()

    _print(found, quoted_claim(found.load()).sentence, as_json=as_json)


@dataclass(frozen=True, slots=True)
class ExperimentRemovalDocument:
    """``experiment close`` and ``experiment remove``.

    Attributes:
        experiment_id: whose.
        removed: what is gone: ``worktrees``, or ``everything``.
    """

    experiment_id: str
    removed: str


REMOVAL = Document("experiment-removal", ExperimentRemovalDocument)


@verb("experiment close", REMOVAL)
@experiment_argument
@json_option
def experiment_close(named: str, as_json: bool) -> None:
    """Remove the worktrees of an ended experiment; its log, outputs, and patch stay."""
    from omx_autoresearch.experiments.controller import AutoresearchController

    found = meant(named)
    found.require_owner("close")
    if found.load().phase != "completed":
        raise StepIllegal(
            f"{found.experiment_id} has not ended",
            next_step=f"omx-autoresearch experiment stop {found.experiment_id}",
        )
    AutoresearchController.resume(found.experiment_id, runtime=found.caller.runtime).close()
    if as_json:
        print_json(ExperimentRemovalDocument(found.experiment_id, "worktrees"))
    else:
        say(f"The worktrees of {found.experiment_id} were removed; {found.folder.root_path} stays.")


@verb("experiment remove", REMOVAL)
@experiment_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def experiment_remove(named: str, yes: bool, as_json: bool) -> None:
    """Remove everything of an experiment: worktrees, log, and outputs. This cannot be undone.

    Give the ID to remove what a killed start or removal left behind.
    """
    caller = this_caller()
    store = ExperimentStore(caller.runtime.home)
    if _is_leftover(store, named):
        require_owner(caller.runtime, "experiment remove")
        experiment_id, folder, what = named, store.folder(named), "what a killed process left of it"
        project_path = caller.cwd and caller.project_path()
    else:
        found = meant(named)
        found.require_owner("remove")
        state = found.load()
        if is_at_work(state):
            raise StepIllegal(
                f"process {state.controller_pid} works on {found.experiment_id}",
                next_step=f"omx-autoresearch experiment cancel {found.experiment_id}",
            )
        experiment_id, folder, project_path = found.experiment_id, found.folder, state.project_path
        what = f"its log and {count_of(len(state.rows), 'trial')}"
    if not yes:
        confirm(
            f"Remove {experiment_id} with {what}?", "--yes", f"Not removed; {experiment_id} stays as it was."
        )
    _remove_experiment(caller.runtime, experiment_id, folder, project_path)
    if as_json:
        print_json(ExperimentRemovalDocument(experiment_id, "everything"))
    else:
        say(f"{experiment_id} was removed.")


def _is_leftover(store: ExperimentStore, named: str) -> bool:
    """True for the id of an experiment whose folder stands without a log that has begun."""
    is_there = is_safe_task_id(named) and os.path.isdir(store.folder(named).root_path)
    return is_there and named not in store.list_ids()


def _remove_experiment(
    runtime: Runtime, experiment_id: str, folder: ExperimentFolder, project_path: str
) -> None:
    """End an experiment and remove all of it, or what a killed process left of one."""
    from omx_autoresearch.experiments.controller import AutoresearchController
    from omx_autoresearch.experiments.worktrees.pair import WorktreePair, let_base_go

    try:
        with AutoresearchController.resume(experiment_id, runtime=runtime) as controller:
            controller.complete("explicit", "removed")
        WorktreePair.open(folder.work_path).close(forget=True)
    except (StateUntrusted, UsageError) as error:
        if isinstance(error, StorageFailed):
            raise
        if project_path and os.path.isdir(project_path):
            let_base_go(project_path, experiment_id)
    remove(folder.root_path)
