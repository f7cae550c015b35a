"""The owner's verbs: approve, pause, resume, unblock, cancel, unbind, repair."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from omx_autoresearch.surfaces.cli.caller import json_option, reason_option, task_argument, this_caller
from omx_autoresearch.surfaces.cli.display import print_json, say
from omx_autoresearch.surfaces.cli.init import print_started
from omx_autoresearch.surfaces.cli.mission_options import changed_draft, contract_options
from omx_autoresearch.surfaces.cli.status import print_step, say_unblock

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from omx_autoresearch.missions.lifecycle_commands import Extension
    from omx_autoresearch.missions.rules.intake import MissionDraft


def _extension_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "--add-refusals", type=int, default=0, metavar="N", help="Add to the mission's refusals."
    )(function)
    return click.option(
        "--add-hours", type=float, default=0.0, metavar="H", help="Add to the mission's wall clock."
    )(function)


def _extension(add_hours: float, add_refusals: int) -> Extension:
    from omx_autoresearch.missions.lifecycle_commands import Extension

    return Extension(add_hours, add_refusals)


@click.command("approve")
@task_argument
@click.option("--unsandboxed", is_flag=True, help="For an agent CLI that runs in a sandbox, too.")
@json_option
def approve_verb(task: str, unsandboxed: bool, as_json: bool) -> None:
    """Allow the mission's commands, under its pins as they are, to run outside a sandbox."""
    from omx_autoresearch.missions import lifecycle_commands

    caller = this_caller()
    task_id = caller.owned_task("approve", task)
    key = lifecycle_commands.approve(caller.runtime, task_id, is_unsandboxed=unsandboxed)
    if as_json:
        from omx_autoresearch.surfaces.documents import ApprovalDocument

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
    from omx_autoresearch.missions import lifecycle_commands

    caller = this_caller()
    task_id = caller.owned_task("pause", task)
    lifecycle_commands.pause(caller.runtime, task_id, reason=reason)
    print_step(caller, task_id, "paused; nobody is held", as_json=as_json)


@click.command("resume")
@task_argument
@reason_option
@_extension_options
@json_option
def resume_verb(task: str, reason: str, add_hours: float, add_refusals: int, as_json: bool) -> None:
    """Let a paused mission go on, with fresh stall allowances."""
    from omx_autoresearch.missions import lifecycle_commands

    caller = this_caller()
    task_id = caller.owned_task("resume", task)
    lifecycle_commands.resume(
        caller.runtime, task_id, reason=reason, extension=_extension(add_hours, add_refusals)
    )
    print_step(caller, task_id, "running again", as_json=as_json)


@click.command("unblock")
@task_argument
@reason_option
@_extension_options
@json_option
def unblock_verb(task: str, reason: str, add_hours: float, add_refusals: int, as_json: bool) -> None:
    """Let a blocked mission go on, with fresh stall allowances."""
    from omx_autoresearch.missions import lifecycle_commands

    caller = this_caller()
    task_id = caller.owned_task("unblock", task)
    lifecycle_commands.unblock(
        caller.runtime, task_id, reason=reason, extension=_extension(add_hours, add_refusals)
    )
    print_step(caller, task_id, "running again", as_json=as_json)


@click.command("cancel")
@task_argument
@reason_option
@json_option
def cancel_verb(task: str, reason: str, as_json: bool) -> None:
    """Give a mission up; nothing re-opens it."""
    from omx_autoresearch.missions import lifecycle_commands

    caller = this_caller()
    task_id = caller.owned_task("cancel", task)
    lifecycle_commands.cancel(caller.runtime, task_id, reason=reason)
    print_step(caller, task_id, "cancelled; nobody is held", as_json=as_json)


@click.command("unbind")
@task_argument
@reason_option
@json_option
def unbind_verb(task: str, reason: str, as_json: bool) -> None:
    """Let the mission's session go; the mission itself stays and can be bound again."""
    from omx_autoresearch.missions import lifecycle_commands

    caller = this_caller()
    task_id = caller.owned_task("unbind", task)
    lifecycle_commands.unbind(caller.runtime, task_id, reason=reason)
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
    from omx_autoresearch.missions import lifecycle_commands

    caller = this_caller()
    task_id = caller.owned_task("repair --accept", task) if accept else caller.task(task)
    lifecycle_commands.repair(caller.runtime, task_id, accept_loss=accept)
    print_step(caller, task_id, "rebuilt from its journal", as_json=as_json)


# --- ``amend``: the owner changes what a live mission is held to.


@click.command("amend")
@task_argument
@contract_options
@click.option("--workspace", default="", metavar="PATH", help="Where the workspace is now.")
@json_option
def amend_verb(task: str, workspace: str, as_json: bool, **given: Any) -> None:
    """Change what a mission is held to, from its files and the options given here.

    What was edited in mission.md and sandbox.md since the start counts from now on, too, and sandbox.md is written as
    the new contract has it. Files are pinned anew, old verdicts no longer count, and stall allowances begin afresh.
    """
    from omx_autoresearch.missions.launch import amend_mission

    caller = this_caller()
    task_id = caller.owned_task("amend", task)
    workspace_path = os.path.abspath(workspace) if workspace else ""
    started = amend_mission(
        caller.runtime,
        task_id,
        lambda draft: changed_draft(_of_one_mode(draft, given), given),
        reason=given["reason"],
        workspace_path=workspace_path,
    )
    print_started(caller, started, is_agent=False, as_json=as_json)
    if not as_json:
        say_unblock(caller, task_id)


def _of_one_mode(draft: MissionDraft, given: dict[str, Any]) -> MissionDraft:
    """Drop the other mode's fields when the options choose a new one."""
    if given["validator"] and not given["prompt"] and draft.validator_prompt:
        return replace(
            draft, validation_mode="", validator_prompt="", output_artifact_path="", reviewer_command=""
        )
    if given["prompt"] and not given["validator"] and draft.validator_command:
        return replace(draft, validation_mode="", validator_command="")
    return draft
