"""``amend``: the owner changes what a live mission is held to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from omx_autoresearch.errors import StepIllegal
from omx_autoresearch.surfaces.cli.beginning import print_started
from omx_autoresearch.surfaces.cli.caller import json_option, task_argument, this_caller
from omx_autoresearch.surfaces.cli.drafting import changed_draft, contract_options

if TYPE_CHECKING:
    from typing import Any


@click.command("amend")
@task_argument
@contract_options
@click.option("--workspace", default="", metavar="PATH", help="Where the workspace is now.")
@json_option
def amend_verb(task: str, workspace: str, as_json: bool, **given: Any) -> None:
    """Compile a live mission's contract anew, from its files and the options given here.

    What was edited in mission.md and sandbox.md since the start counts from now on, too. Files are pinned anew, old
    verdicts no longer count, and stall allowances begin afresh.
    """
    from omx_autoresearch.runtime.intake import read_intake
    from omx_autoresearch.runtime.launch import amend
    from omx_autoresearch.storage.missions import MissionStore

    caller = this_caller()
    task_id = caller.owned_task("amend", task)
    mission = MissionStore(caller.runtime.home).load(task_id)
    specs_path = os.path.join(mission.project_path, mission.specs_path)
    if mission.phase == "draft":
        raise StepIllegal(
            f"mission {task_id} is a draft, which is changed in {specs_path}/sandbox.md",
            next_step=f"omx-autoresearch start {task_id}",
        )
    draft = changed_draft(read_intake(specs_path), given)
    workspace_path = os.path.abspath(workspace) if workspace else ""
    started = amend(caller.runtime, task_id, draft, reason=given["reason"], workspace_path=workspace_path)
    print_started(caller, started, is_agent=False, as_json=as_json)
