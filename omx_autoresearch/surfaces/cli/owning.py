"""The owner's verbs: approve, pause, resume, unblock, cancel, unbind, repair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omx_autoresearch.surfaces.cli.caller import json_option, reason_option, task_argument, this_caller
from omx_autoresearch.surfaces.cli.display import print_json, say
from omx_autoresearch.surfaces.cli.standing import print_step, say_unblock

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from omx_autoresearch.runtime.missions import Extension


def _extension_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "--add-refusals", type=int, default=0, metavar="N", help="Add to the mission's refusals."
    )(function)
    return click.option(
        "--add-hours", type=float, default=0.0, metavar="H", help="Add to the mission's wall clock."
    )(function)


def _extension(add_hours: float, add_refusals: int) -> Extension:
    from omx_autoresearch.runtime.missions import Extension

    return Extension(add_hours, add_refusals)


@click.command("approve")
@task_argument
@click.option("--unsandboxed", is_flag=True, help="For an agent CLI that runs in a sandbox, too.")
@json_option
def approve_verb(task: str, unsandboxed: bool, as_json: bool) -> None:
    """Allow the mission's commands, under its pins as they are, to run outside a sandbox."""
    from omx_autoresearch.runtime import missions

    caller = this_caller()
    task_id = caller.owned_task("approve", task)
    key = missions.approve(caller.runtime, task_id, is_unsandboxed=unsandboxed)
    if as_json:
        from omx_autoresearch.surfaces.cli.documents import ApprovalDocument

        print_json(ApprovalDocument(task_id, key, unsandboxed))
    else:
        where = "outside any sandbox" if unsandboxed else "with your rights, in a client without a sandbox"
        say(f"The commands of {task_id} may run {where}, until contract or pinned files change.")
        say_unblock(caller, task_id)


@click.command("pause")
@task_argument
@reason_option
@json_option
def pause_verb(task: str, reason: str, as_json: bool) -> None:
    """Pause a mission: nobody is held until it is resumed."""
    from omx_autoresearch.runtime import missions

    caller = this_caller()
    task_id = caller.owned_task("pause", task)
    missions.pause(caller.runtime, task_id, reason=reason)
    print_step(caller, task_id, "paused; nobody is held", as_json=as_json)


@click.command("resume")
@task_argument
@reason_option
@_extension_options
@json_option
def resume_verb(task: str, reason: str, add_hours: float, add_refusals: int, as_json: bool) -> None:
    """Let a paused mission go on, with fresh stall allowances."""
    from omx_autoresearch.runtime import missions

    caller = this_caller()
    task_id = caller.owned_task("resume", task)
    missions.resume(caller.runtime, task_id, reason=reason, extension=_extension(add_hours, add_refusals))
    print_step(caller, task_id, "running again", as_json=as_json)


@click.command("unblock")
@task_argument
@reason_option
@_extension_options
@json_option
def unblock_verb(task: str, reason: str, add_hours: float, add_refusals: int, as_json: bool) -> None:
    """Let a blocked mission go on, with fresh stall allowances."""
    from omx_autoresearch.runtime import missions

    caller = this_caller()
    task_id = caller.owned_task("unblock", task)
    missions.unblock(caller.runtime, task_id, reason=reason, extension=_extension(add_hours, add_refusals))
    print_step(caller, task_id, "running again", as_json=as_json)


@click.command("cancel")
@task_argument
@reason_option
@json_option
def cancel_verb(task: str, reason: str, as_json: bool) -> None:
    """Give a mission up; nothing re-opens it."""
    from omx_autoresearch.runtime import missions

    caller = this_caller()
    task_id = caller.owned_task("cancel", task)
    missions.cancel(caller.runtime, task_id, reason=reason)
    print_step(caller, task_id, "cancelled; nobody is held", as_json=as_json)


@click.command("unbind")
@task_argument
@reason_option
@json_option
def unbind_verb(task: str, reason: str, as_json: bool) -> None:
    """Let the mission's session go; the mission itself stays and can be bound again."""
    from omx_autoresearch.runtime import missions

    caller = this_caller()
    task_id = caller.owned_task("unbind", task)
    missions.unbind(caller.runtime, task_id, reason=reason)
    print_step(caller, task_id, "bound to no session; nobody is held", as_json=as_json)


@click.command("repair")
@task_argument
@click.option(
    "--accept",
    is_flag=True,
    help="Go on with the records that are there although more were acknowledged; the owner's decision.",
)
@json_option
def repair_verb(task: str, accept: bool, as_json: bool) -> None:
    """Rebuild everything that is derived from the journal: state, projections, registry."""
    from omx_autoresearch.runtime import missions

    caller = this_caller()
    task_id = caller.owned_task("repair --accept", task) if accept else caller.task(task)
    missions.repair(caller.runtime, task_id, accept_loss=accept)
    print_step(caller, task_id, "rebuilt from its journal", as_json=as_json)
