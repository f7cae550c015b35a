"""Removing missions from the state home: ``remove``, and ``list --prune``, which removes those that ended long ago."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.missions import upkeep
from omx_autoresearch.missions.lifecycle_commands import require_owner
from omx_autoresearch.missions.views import known_ids
from omx_autoresearch.surfaces.cli.console import (
    Document,
    confirm,
    json_option,
    print_json,
    say,
    this_caller,
    verb,
)

if TYPE_CHECKING:
    from omx_autoresearch.surfaces.cli.console import Caller


@dataclass(frozen=True, slots=True)
class RemovalDocument:
    """``remove`` and ``list --prune``.

    Attributes:
        removed: ids of the missions of which the state home has nothing any more.
    """

    removed: tuple[str, ...]


REMOVAL = Document("removal", RemovalDocument)


@verb("remove", REMOVAL)
@click.argument("task")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def remove_verb(task: str, yes: bool, as_json: bool) -> None:
    """Remove a mission that has ended, was never launched, or cannot be read: its journal, outputs, and frozen files.

    Its files in the project stay. This cannot be undone.
    """
    caller = this_caller()
    task_id = task if task in known_ids(caller.runtime) else caller.task(task)
    require_owner(caller.runtime, "remove", task_id)
    remove_missions(
        caller, (task_id,), f"Remove mission {task_id} with its journal?", yes=yes, as_json=as_json
    )


def prune(caller: Caller, days: float, *, yes: bool, as_json: bool) -> None:
    """Remove the missions that ended more than ``days`` ago."""
    require_owner(caller.runtime, "list --prune")
    found = upkeep.ended_missions(caller.runtime, days)
    question = f"Remove {count_of(len(found), 'mission')} that ended more than {days:g} days ago?"
    remove_missions(caller, found, question, yes=yes, as_json=as_json)


def remove_missions(
    caller: Caller, meant: tuple[str, ...], question: str, *, yes: bool, as_json: bool
) -> None:
    """Remove missions, after ``question`` unless ``yes``, and print which."""
    if meant and not yes:
        confirm(question, "--yes", "Nothing was removed.")
    for task_id in meant:
        upkeep.remove_mission(caller.runtime, task_id)
    if as_json:
        print_json(RemovalDocument(meant))
    elif not meant:
        say("Nothing to remove.")
    for task_id in () if as_json else meant:
        say(f"Removed {task_id}.")
