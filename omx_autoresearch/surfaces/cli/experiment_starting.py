"""``experiment start``: what judges is frozen, the base is checked and measured against itself, the plan is printed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from omx_autoresearch.errors import UsageError
from omx_autoresearch.surfaces.cli.boundary import INTERRUPTED
from omx_autoresearch.surfaces.cli.caller import json_option, this_caller
from omx_autoresearch.surfaces.cli.display import count_of, harmless, print_json, print_rows, say, tell
from omx_autoresearch.surfaces.cli.experiment import Meant
from omx_autoresearch.surfaces.cli.experiment_options import given_options, start_options
from omx_autoresearch.surfaces.cli.experiment_plans import PlanTeller, plan_document, print_plan
from omx_autoresearch.surfaces.cli.experiment_running import attended, frozen_paths

if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.core.experiments import ExperimentConfig, ExperimentState
    from omx_autoresearch.runtime.experiments.controller import AutoresearchController
    from omx_autoresearch.surfaces.cli.caller import Caller
    from omx_autoresearch.surfaces.cli.experiment_documents import ExperimentStartDocument

FROZEN_SHOWN = 8


@click.command("start")
@start_options
@click.option(
    "--config",
    "page_path",
    default="",
    metavar="FILE",
    help="A file with an `experiment:` block in its frontmatter.  [default: sandbox.md of --task, if it has one]",
)
@click.option("--task", default="", metavar="TASK", help="The mission that the experiment counts for.")
@click.option("--no-baseline", is_flag=True, help="Measure the base later, when the first trial begins.")
@click.option("--dry-run", is_flag=True, help="Show what would be run and begin nothing.")
@json_option
def experiment_start(
    page_path: str, task: str, no_baseline: bool, dry_run: bool, as_json: bool, **given: Any
) -> int:
    """Begin an experiment on a clean checkout: nothing in it is touched until you accept the final patch.

    The files that the commands name are frozen, two worktrees are made in a private folder, the base is checked, and
    measured against itself to learn how noisy the metric is. The plan says what a trial will cost before that takes
    long.
    """
    from omx_autoresearch.core.experiment_faults import checked_config
    from omx_autoresearch.runtime.experiments.configuration import configure
    from omx_autoresearch.runtime.experiments.controller import AutoresearchController

    caller = this_caller()
    root_path = caller.new_workspace_path()
    options = given_options(given)
    _require_owner_for(caller, options)
    task_id = caller.task(task) if task else caller.held_task()
    config = checked_config(configure(options, page_path=page_path or _page_of(caller, task_id)))
    if dry_run:
        _show(root_path, config, as_json=as_json)
        return 0
    controller = AutoresearchController(root_path, config, runtime=caller.runtime, task_id=task_id)
    return _begun(caller, controller, has_baseline=not no_baseline, as_json=as_json)


def _require_owner_for(caller: Caller, options: dict[str, Any]) -> None:
    """What isolates the commands, and what the agent must not see, is the owner's to choose."""
    from omx_autoresearch.runtime.owners import require_owner

    for name in ("sandbox", "held_out"):
        if name in options:
            require_owner(caller.runtime, f"experiment start --{name.replace('_', '-')}")


def _page_of(caller: Caller, task_id: str) -> str:
    """The mission's sandbox.md; empty where there is none."""
    from omx_autoresearch.storage.missions import MissionStore

    if not task_id:
        return ""
    mission = MissionStore(caller.runtime.home).load(task_id)
    path = os.path.join(mission.project_path, mission.specs_path, "sandbox.md")
    return path if os.path.isfile(path) else ""


def _show(root_path: str, config: ExperimentConfig, *, as_json: bool) -> None:
    """What a start would do."""
    from omx_autoresearch.core.shape import to_plain
    from omx_autoresearch.surfaces.cli.experiment_documents import ExperimentStartDocument

    plan = plan_document(config, None, 0.0)
    document = ExperimentStartDocument(
        None, plan, config.protect, (f"in {root_path}",), True, "the same without --dry-run"
    )
    if as_json:
        print_json(document)
        return
    plain = to_plain(config)
    print_rows(
        [
            (name.replace("_", " "), harmless(_words(value)), "")
            for name, value in plain.items()
            if value or value == 0
        ]
    )
    print_plan(plan)
    say(f"  next: {document.next}", "dim")


def _words(value: Any) -> str:
    """A value of the configuration for people; what is not set within one is left out."""
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_words(item)}" for name, item in value.items() if item)
    if isinstance(value, list):
        return "; ".join(map(_words, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _begun(caller: Caller, controller: AutoresearchController, *, has_baseline: bool, as_json: bool) -> int:
    """Measure the base where that is asked for, and print the plan."""
    from omx_autoresearch.storage.experiments import ExperimentStore

    found = Meant(caller, ExperimentStore(caller.runtime.home), controller.experiment_id)
    frozen = frozen_paths(found, controller.state)
    if not as_json:
        _tell_frozen(frozen)
    with attended(controller, as_json=as_json) as progress:
        plans = PlanTeller(controller.state.config, progress)
        controller.subscribe(plans)
        if has_baseline:
            controller.establish_baseline()
    state = found.load()  # with the word that this process let go of it
    document = _document(found, state, frozen, plans.run_seconds)
    if as_json:
        print_json(document)
    else:
        _print(document, state)
    return INTERRUPTED if controller.was_interrupted else 0


def _tell_frozen(frozen: tuple[str, ...]) -> None:
    globs = [path for path in frozen if set(path) & set("*?[")]
    files = [path for path in frozen if path not in globs]
    shown = ", ".join(files[:FROZEN_SHOWN])
    more = f" and {len(files) - FROZEN_SHOWN} more" if len(files) > FROZEN_SHOWN else ""
    named = f": {shown}{more}" if files else "; name the scripts in the commands, or --protect them"
    beside = f"; whatever matches {', '.join(globs)}" if globs else ""
    tell(harmless(f"frozen: {count_of(len(files), 'file')}{named}{beside}"))


def _document(
    found: Meant, state: ExperimentState, frozen: tuple[str, ...], run_seconds: float
) -> ExperimentStartDocument:
    from omx_autoresearch.runtime.experiments.views import experiments_of
    from omx_autoresearch.storage.pins import load_manifest
    from omx_autoresearch.surfaces.cli.experiment_documents import ExperimentStartDocument

    document = found.document(found.load())
    notes = list(load_manifest(found.folder.frozen_path, state.pin_digest).notes)
    if state.is_agents:
        notes.append("an agent chose what judges: no criterion of the mission is met by what this brings")
    others = [
        other.experiment_id
        for other in experiments_of(found.store, (state.project_path,))
        if other.phase != "completed" and other.experiment_id != found.experiment_id
    ]
    if others:
        said = "is under way, too, so each verb wants an id" if len(others) == 1 else "are under way, too"
        notes.append(f"{', '.join(others[:5])} {said}; end one by: omx-autoresearch experiment cancel ID")
    if state.config.sandbox == "none":
        notes.append("the commands run without a sandbox, with your rights")
    elif state.usage.runs:
        notes.append(f"the commands ran isolated by: {state.isolation}")
    if not state.config.check:
        notes.append("no check is set: a candidate that breaks the program may be accepted")
    plan = plan_document(state.config, state.calibration, run_seconds) if run_seconds else None
    return ExperimentStartDocument(document, plan, frozen, tuple(notes), False, document.next)


def _print(document: ExperimentStartDocument, state: ExperimentState) -> None:
    from omx_autoresearch.surfaces.cli.experiment_display import phase_words

    if document.experiment is None:
        raise UsageError("nothing was begun", next_step="omx-autoresearch experiment start")
    say(
        f"Experiment {document.experiment.experiment_id} is {phase_words(state, is_at_work=False)}; "
        "your checkout was not touched."
    )
    if document.plan is not None:
        print_plan(document.plan)
    for note in document.notes:
        tell(f"note: {harmless(note)}", "yellow")
    if document.experiment.phase != "completed":
        say(
            f"  or: an agent changes {document.experiment.workspace_path} and calls `experiment trial`", "dim"
        )
    say(f"  next: {document.next}", "dim")
