"""``amend``: the owner changes what a live mission is held to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from omx_autoresearch.core.values import replace
from omx_autoresearch.surfaces.cli.beginning import print_started
from omx_autoresearch.surfaces.cli.caller import json_option, task_argument, this_caller
from omx_autoresearch.surfaces.cli.drafting import changed_draft, contract_options
from omx_autoresearch.surfaces.cli.standing import say_unblock

if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.core.intake import MissionDraft


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
    from omx_autoresearch.runtime.amending import amend_mission

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
