"""What a host (an editor, a desktop client) asks beside ``status``, ``list`` and ``findings``: current, open."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import CommandFault, WorkspaceFault
from omx_autoresearch.surfaces.cli.caller import json_option, task_argument, this_caller
from omx_autoresearch.surfaces.cli.display import print_json, say

if TYPE_CHECKING:
    from omx_autoresearch.surfaces.cli.caller import Caller

OPENERS = {"darwin": "open"}
"""The command that shows a folder in the system's file browser, by platform; elsewhere ``xdg-open``."""


@click.command("current")
@click.option("--session", default="", metavar="ID", help="Of this session of an agent CLI.")
@json_option
def current_verb(session: str, as_json: bool) -> None:
    """Show the mission of a session, or of this project; nothing is no error.

    Without --session: the mission of the session that calls, else the one under way in this project.
    """
    from omx_autoresearch.missions import views
    from omx_autoresearch.surfaces.cli.status import print_status
    from omx_autoresearch.surfaces.documents import CurrentDocument

    caller = this_caller()
    found = _current(caller, session)
    view = views.view(caller.runtime, found[0]) if len(found) == 1 else None
    if as_json:
        print_json(CurrentDocument(view, found if view is None else ()))
    elif view is not None:
        print_status(view)
    else:
        say(f"Several missions are under way here: {', '.join(found)}" if found else "No mission here.")


def _current(caller: Caller, session: str) -> tuple[str, ...]:
    """The task ids that can be meant; one is the answer."""
    from omx_autoresearch.missions import views

    held = views.held_task(caller.runtime, session or caller.session_id)
    if held or session:
        return (held,) if held else ()
    return views.current_tasks(caller.runtime, caller.cwd)


@click.command("open")
@task_argument
@click.option("--reveal", is_flag=True, help="Show it in the system's file browser.")
@json_option
def open_verb(task: str, reveal: bool, as_json: bool) -> None:
    """Print the folder of a mission, as people read it; with --reveal, show it."""
    from omx_autoresearch.journal.layout import ProjectFolder
    from omx_autoresearch.missions.store import MissionStore
    from omx_autoresearch.surfaces.documents import FolderDocument

    caller = this_caller()
    task_id = caller.owned_task("open --reveal", task) if reveal else caller.task(task)
    mission = MissionStore(caller.runtime.home).load(task_id)
    path = ProjectFolder(mission.project_path).task_path(task_id)
    if not os.path.isdir(path):
        raise WorkspaceFault(f"{path} is not there", next_step=f"omx-autoresearch repair {task_id}")
    if reveal:
        _reveal(path)
    if as_json:
        print_json(FolderDocument(task_id, path, reveal))
    else:
        say(path)


def _reveal(path: str) -> None:
    """Start the system's own opener and leave it.

    Raises:
        CommandFault: there is none, as on a machine without a desktop.
    """
    import subprocess

    name = OPENERS.get(sys.platform, "xdg-open")
    opener = shutil.which(name)
    if opener is None:
        raise CommandFault(f"{name} is not there, so no file browser can show {path}", next_step=f"cd {path}")
    subprocess.Popen(
        [opener, path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
