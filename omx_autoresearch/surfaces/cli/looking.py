"""Looking without changing anything: status, list, wait."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from omx_autoresearch.core.lifecycle import FINAL_PHASES
from omx_autoresearch.errors import UsageError
from omx_autoresearch.surfaces.cli.caller import json_option, task_argument, this_caller
from omx_autoresearch.surfaces.cli.display import harmless, print_json, print_table, say

if TYPE_CHECKING:
    from omx_autoresearch.runtime.status import StatusView
    from omx_autoresearch.surfaces.cli.caller import Caller

WAIT_SECONDS = 90.0
"""Below the limit that every known agent CLI puts on a command of its agent (Claude Code: 120 s)."""


@click.command("status")
@task_argument
@json_option
def status_verb(task: str, as_json: bool) -> None:
    """Show how a mission stands, what is in its way and what to type next."""
    from omx_autoresearch.surfaces.cli.standing import print_status

    view = _view(this_caller(), task, looks=True)
    if as_json:
        print_json(view)
    else:
        print_status(view)


def _view(caller: Caller, task: str, *, looks: bool = False) -> StatusView:
    """The mission that is meant; where none is under way, the one that cannot be read, else the last one here."""
    from omx_autoresearch.runtime import status

    if task in status.known_ids(caller.runtime):
        return status.view(caller.runtime, task, looks=looks)  # the trace of a lost one, too
    try:
        return status.view(caller.runtime, caller.task(task), looks=looks)
    except UsageError:
        if task:
            raise
        views = status.list_views(caller.runtime)
        if any(view.phase not in ("", *FINAL_PHASES) for view in views):
            raise
        broken = [view for view in views if not view.phase]
        ended = [view for view in views if view.phase and _is_of_project(caller, view)]
        found = broken if len(broken) == 1 else ended[:1]
        if not found:
            raise
        return found[0]


def shown_task(caller: Caller, task: str) -> str:
    """The mission that a verb looks back on: where none is under way, the last one that ended here.

    Raises:
        UsageError: none or several can be meant.
    """
    return _view(caller, task).task_id


def _is_of_project(caller: Caller, view: StatusView) -> bool:
    return bool(caller.cwd) and view.task_path.startswith(os.path.join(caller.project_path(), ".omx", ""))


@click.command("list")
@json_option
def list_verb(as_json: bool) -> None:
    """Show every mission, newest first."""
    from omx_autoresearch.runtime import status

    views = status.list_views(this_caller().runtime)
    if as_json:
        print_json(views)
    elif not views:
        say("No mission yet.\n  next: omx-autoresearch init")
    else:
        _print_list(views)


def _print_list(views: tuple[StatusView, ...]) -> None:
    from omx_autoresearch.surfaces.cli.standing import STYLES, word_of

    rows = [
        (
            view.task_id,
            word_of(view),
            str(view.iteration),
            f"{view.refusals}/{view.max_refusals}",
            view.hold.split(" ")[0] if view.phase == "running" else "",
            " ".join(harmless(view.goal or view.blocker).split()),
        )
        for view in views
    ]
    styles = [STYLES.get(word_of(view), "") for view in views]
    print_table(("MISSION", "PHASE", "ITERATION", "REFUSALS", "HOLD", "GOAL"), rows, styles)


@click.command("wait")
@task_argument
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    default=WAIT_SECONDS,
    show_default=True,
    help="Wait at most this long.",
)
@json_option
def wait_verb(task: str, seconds: float, as_json: bool) -> None:
    """Wait for a running validation or review and show its verdict.

    Ends with 0 whatever the verdict; a run that outlasts the wait is said to be still running: call again.
    """
    from omx_autoresearch.runtime import validation
    from omx_autoresearch.storage.missions import MissionStore
    from omx_autoresearch.surfaces.cli.runs import print_run
    from omx_autoresearch.system.processes import wait_for

    caller = this_caller()
    task_id = caller.task(task)
    running = validation.running_validation(caller.runtime, MissionStore(caller.runtime.home).load(task_id))
    is_running = running is not None and not wait_for(running, seconds)
    print_run(caller.runtime, task_id, is_running=is_running, as_json=as_json)
