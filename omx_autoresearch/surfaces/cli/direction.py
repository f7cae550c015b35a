"""Directions: what the agent declares and looks up, and what the owner injects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import StorageFailed, UsageError
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.missions import directions
from omx_autoresearch.missions.claims import relay_line, waiting_line
from omx_autoresearch.missions.directions import direction_of
from omx_autoresearch.surfaces.cli.console import (
    CHECK_SAID_NO,
    RELAY,
    Document,
    RelayDocument,
    json_option,
    print_json,
    print_table,
    say,
    task_argument,
    tell,
    this_caller,
    verb,
)
from omx_autoresearch.surfaces.documents import (
    DirectionDocument,
    DirectionListDocument,
    direction_document,
    direction_list_document,
)

if TYPE_CHECKING:
    from omx_autoresearch.foundation.types import DirectionBy
    from omx_autoresearch.missions.directions import Declared


_axis_option = click.option(
    "--axis",
    "axes",
    multiple=True,
    metavar="NAME=VALUE",
    help="The value of one structural axis; may be given for several axes.",
)
_text_argument = click.argument("words", nargs=-1, required=True, metavar="[TASK] TEXT")


DIRECTION = Document("direction", DirectionDocument)


@verb("direction add", DIRECTION, RELAY)
@_text_argument
@_axis_option
@click.option(
    "--pivot", "is_pivot", is_flag=True, help="It changes the structure (an axis), not only a parameter."
)
@json_option
def direction_add(words: tuple[str, ...], axes: tuple[str, ...], is_pivot: bool, as_json: bool) -> int:
    """Declare the direction that you try now; the fingerprint of an open direction takes that one up.

    Exits with 9 if it cannot be declared: it has no words, it was tried before a stall, or it is a pivot that changes
    no axis.
    """
    caller = this_caller()
    named, text = caller.split(words)
    task_id = caller.task(named)
    by: DirectionBy = "agent" if caller.is_agent() else "owner"
    direction = direction_of(" ".join(text), _axes_of(axes), is_pivot=is_pivot, by=by)
    try:
        declared = directions.declare(caller.runtime, task_id, direction)
    except StorageFailed:
        if caller.can_write(task_id) or not caller.is_agent():
            raise
        _ask_hook(as_json=as_json)
        if as_json:
            print_json(RelayDocument(task_id, "direction"))
        return 0
    if declared.inbox_file_path and caller.is_agent():
        _ask_hook(as_json=as_json)
    return _print_declared(task_id, declared, as_json=as_json)


@verb("direction list", Document("direction-list", DirectionListDocument))
@task_argument
@json_option
def direction_list(task: str, as_json: bool) -> None:
    """Show every direction tried, the open ones, and the axis to change next."""
    caller = this_caller()
    mission = caller.mission(caller.task(task))
    document = direction_list_document(mission)
    (print_json if as_json else _print_list)(document)


@verb("direct", DIRECTION)
@_text_argument
@_axis_option
@json_option
def direct_verb(words: tuple[str, ...], axes: tuple[str, ...], as_json: bool) -> int:
    """Inject a direction: the agent is told of it until it takes it up."""
    caller = this_caller()
    named, text = caller.split(words)
    task_id = caller.owned_task("direct", named)
    declared = directions.inject(
        caller.runtime, task_id, direction_of(" ".join(text), _axes_of(axes), by="owner")
    )
    if as_json or declared.faults:
        return _print_declared(task_id, declared, as_json=as_json)
    say(f"A new open direction for {task_id}: {declared.direction.summary}")
    say("The agent is told at its next prompt, start, or refused stop.", "dim")
    _print_likeness(declared)
    if declared.mission.phase == "blocked":
        say(f"  next: omx-autoresearch unblock {task_id}", "dim")
    return 0


def _axes_of(given: tuple[str, ...]) -> dict[str, str]:
    """``NAME=VALUE``, each name once.

    Raises:
        UsageError: no ``=``, or a name twice.
    """
    axes: dict[str, str] = {}
    for item in given:
        name, is_given, value = item.partition("=")
        name = name.strip().replace("-", "_")
        if not is_given or not value.strip() or name in axes:
            why = f"appears twice: {name}" if name in axes else f"is NAME=VALUE, received {item[:80]!r}"
            raise UsageError(f"an axis {why}", next_step="omx-autoresearch direction add --help")
        axes[name] = value
    return axes


def _ask_hook(*, as_json: bool) -> None:
    """Ask the hook, which stands outside the sandbox, to declare it from this very command."""
    (tell if as_json else say)(relay_line("direction"))


def _print_declared(task_id: str, declared: Declared, *, as_json: bool) -> int:
    direction = declared.direction
    if as_json:
        print_json(direction_document(task_id, declared))
    elif declared.faults:
        for fault in declared.faults:
            tell(f"not declared: {fault}")
        tell(f"  offered axis: {declared.offered_axis}")
        tell(f"  next: omx-autoresearch direction list {task_id}")
    else:
        what = "Pivot" if direction.is_pivot else "Direction"
        say(f"{what} of {task_id}: {direction.summary[:300]}")
        if not declared.is_recorded:
            say(waiting_line(task_id, f"This {what.lower()}"))
        _print_likeness(declared)
    return CHECK_SAID_NO if declared.faults else 0


def _print_likeness(declared: Declared) -> None:
    """What it repeats, and how."""
    if declared.repeats is not None and declared.repeats.first_seen_iteration < declared.mission.iteration:
        known = declared.repeats
        say(
            f"It was declared before, {count_of(known.count, 'time')}, first in iteration "
            f"{known.first_seen_iteration}.",
            "yellow",
        )
    elif declared.near is not None:
        known = declared.near
        say(
            f"It nearly repeats what was tried in iteration {known.first_seen_iteration}: {known.summary}",
            "yellow",
        )


def _print_list(document: DirectionListDocument) -> None:
    rows = [
        (
            item.fingerprint,
            str(item.count),
            f"{item.first_seen_iteration}-{item.last_seen_iteration}",
            item.summary,
        )
        for item in document.tried
    ]
    if rows:
        print_table(("FINGERPRINT", "COUNT", "ITERATIONS", "DIRECTION"), rows, ["" for _ in rows])
    else:
        say("No direction was declared yet.")
    for item in document.open_directions:
        say(f"open: {item.fingerprint}: {item.summary}", "yellow")
    say(
        f"stale {document.stale_count}, pivots {document.pivot_count}; axis to change next: {document.offered_axis}"
    )
