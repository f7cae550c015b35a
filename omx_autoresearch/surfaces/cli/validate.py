"""The verbs that an agent may use itself: validate, restore, block, note.

In a sandbox that cannot write the state, ``validate``, ``block`` and ``note`` only print the request: the client's
hook, which runs outside, sees the command and carries it out (``missions/claims.py``).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import StorageFailed, UsageError
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.missions import claims, lifecycle_commands
from omx_autoresearch.missions.rules.evidence import judging_command
from omx_autoresearch.missions.validation.asked import validate_now
from omx_autoresearch.surfaces.cli.console import (
    CHECK_SAID_NO,
    RELAY,
    Caller,
    Document,
    is_relayed,
    json_option,
    print_json,
    reason_option,
    say,
    task_argument,
    this_caller,
    verb,
)
from omx_autoresearch.surfaces.cli.status import RUN, STATUS, WAIT_SECONDS, print_run, print_step, say_unblock
from omx_autoresearch.surfaces.documents import NoteDocument

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission


seconds_option = click.option(
    "--seconds",
    type=click.FloatRange(0, 7 * 24 * 3600),
    default=None,
    help=f"Wait at most this long; the run goes on by itself.  [default: {WAIT_SECONDS:g}; at a person's "
    "terminal until it ends]",
)


# --- validate


@verb("validate", RUN, RELAY)
@task_argument
@seconds_option
@json_option
def validate_verb(task: str, seconds: float | None, as_json: bool) -> int:
    """Run the validator now, as a stop does, and show its verdict.

    Exits with 0 if it passed, else with 9. A passing run completes the mission at the agent's next stop.
    """
    caller = this_caller()
    task_id = caller.task(task)
    mission = lifecycle_commands.require_runnable(caller.runtime, task_id, is_review=False)
    if is_relayed(caller, task_id, "validate", as_json=as_json):
        return 0
    return run_now(caller, mission, seconds, as_json=as_json)


def run_now(caller: Caller, mission: Mission, seconds: float | None, *, as_json: bool) -> int:
    """Run the validator or the reviewer, print its verdict, and return the exit status that says it."""
    ended = validate_now(caller.runtime, mission, wait_seconds=_patience(caller, mission, seconds))
    mission = caller.mission(mission.task_id)
    run = mission.attestation
    print_run(caller, mission, is_running=not ended, as_json=as_json)
    return 0 if ended and run is not None and run.verdict == "passed" else CHECK_SAID_NO


def _patience(caller: Caller, mission: Mission, seconds: float | None) -> float:
    """How long to wait: a person at a terminal until the end, an agent less than its client's limit."""
    if seconds is not None:
        return seconds
    if sys.stdout.isatty() and mission.contract is not None and not caller.is_agent():
        return mission.contract.timeout_seconds + 60
    return WAIT_SECONDS


@dataclass(frozen=True, slots=True)
class RestoreDocument:
    """``restore``.

    Attributes:
        task_id: of the mission.
        restored: paths that were put back, relative to the workspace.
        aside_path: the folder that has what stood there, likewise; empty when nothing was put back.
        next: the command that follows.
    """

    task_id: str
    restored: tuple[str, ...]
    aside_path: str
    next: str


# --- restore, block, note


@verb("restore", Document("restore", RestoreDocument))
@task_argument
@reason_option
@json_option
def restore_verb(task: str, reason: str, as_json: bool) -> None:
    """Restore the pinned files to their frozen content; what stood in their place is moved aside, never deleted."""
    caller = this_caller()
    task_id = caller.task(task)
    restored = lifecycle_commands.restore(caller.runtime, task_id, reason=reason)
    next_step = judging_command(caller.mission(task_id))
    if as_json:
        print_json(RestoreDocument(task_id, restored.paths, restored.aside_path, next_step))
    elif not restored.paths:
        say("Every pinned file already has its frozen content.")
    else:
        say(f"Restored {count_of(len(restored.paths), 'pinned file')}:")
        for path in restored.paths:
            say(f"  {path}")
        say(f"What stood there is in {restored.aside_path}.")
        say(f"  next: {next_step}", "dim")
    if not as_json:
        say_unblock(caller, task_id)


@verb("block", STATUS, RELAY)
@task_argument
@reason_option
@click.option("--needs", default="", help="The smallest action by a person that would help.")
@json_option
def block_verb(task: str, reason: str, needs: str, as_json: bool) -> None:
    """Block the mission until a person acts; the agent is released.

    An agent may always use this; it never completes a mission.
    """
    caller = this_caller()
    task_id = caller.task(task)
    if reason.strip() and needs.strip() and is_relayed(caller, task_id, "block", as_json=as_json):
        return
    by = "agent" if caller.is_agent() else "owner"
    lifecycle_commands.block(caller.runtime, task_id, reason=reason, needs=needs, by=by)
    print_step(caller, task_id, "blocked until a person acts", as_json=as_json)


@verb("note", Document("note", NoteDocument), RELAY)
@click.argument("words", nargs=-1, required=True, metavar="[TASK] TEXT")
@json_option
def note_verb(words: tuple[str, ...], as_json: bool) -> None:
    """Add a note to the mission. It is a claim: kept and shown, but never proof."""
    caller = this_caller()
    named, said = caller.split(words)
    task_id, text = caller.task(named), " ".join(said).strip()
    if not text:
        raise UsageError("the note is empty", next_step=f'omx-autoresearch note {task_id} "..."')
    try:
        noted = claims.note(caller.runtime, task_id, text, origin="cli")
    except StorageFailed:
        if not is_relayed(caller, task_id, "note", as_json=as_json):
            raise
        return
    is_recorded = not noted.inbox_file_path
    if as_json:
        print_json(NoteDocument(task_id, text, is_recorded))
    else:
        say(f"Noted in {task_id}, as a claim." if is_recorded else claims.waiting_line(task_id, "It"))
