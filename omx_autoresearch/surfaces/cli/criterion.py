"""Criteria, readiness and the iteration log on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.times import to_the_second
from omx_autoresearch.missions.findings import list_iterations
from omx_autoresearch.missions.rules.mission import Notice
from omx_autoresearch.missions.rules.readiness import ReadinessReport
from omx_autoresearch.missions.task_files import IterationLine
from omx_autoresearch.missions.validation import checks
from omx_autoresearch.missions.views import criteria, readiness
from omx_autoresearch.surfaces.cli.console import (
    CHECK_SAID_NO,
    Caller,
    Document,
    json_option,
    print_json,
    print_table,
    reason_option,
    say,
    task_argument,
    this_caller,
    verb,
)
from omx_autoresearch.surfaces.cli.status import step_verb
from omx_autoresearch.surfaces.documents import CriterionListDocument

if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.missions.rules.evidence import CriterionView


_STYLES = {"satisfied": "green", "blocked": "red", "open": "yellow"}


CRITERIA = Document("criterion-list", CriterionListDocument)


@verb("criterion list", CRITERIA)
@task_argument
@json_option
def criterion_list(task: str, as_json: bool) -> None:
    """Show every criterion, the evidence it accepts, and whether it is met now."""
    caller = this_caller()
    _print_criteria(caller, caller.task(task), as_json=as_json)


@verb("criterion check", CRITERIA)
@click.argument("words", nargs=-1, metavar="[TASK] [ID]...")
@click.option(
    "--seconds",
    type=click.FloatRange(0, 7 * 24 * 3600),
    default=90.0,
    show_default=True,
    help="Wait at most this long.",
)
@json_option
def criterion_check(words: tuple[str, ...], seconds: float, as_json: bool) -> int:
    """Check criteria now: run their commands and read their files. Without an ID, check all of them.

    Exits with 0 if every named criterion is met (without an ID, every required one), else with 9. The next stop checks
    them anyway.
    """
    caller = this_caller()
    named, names = caller.split(words, least=1)
    task_id = caller.task(named)
    ended = checks.check(caller.runtime, task_id, names, wait_seconds=seconds)
    lines = _print_criteria(caller, task_id, as_json=as_json, is_running=not ended)
    is_met = all(
        line.status == "satisfied" for line in lines if (line.id in names if names else line.required)
    )
    return 0 if ended and is_met else CHECK_SAID_NO


@verb("criterion accept", CRITERIA)
@click.argument("words", nargs=-1, required=True, metavar="[TASK] ID")
@reason_option
@json_option
def criterion_accept(words: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Confirm a criterion that a person decides."""
    caller = this_caller()
    named = words[0] if len(words) == 2 else ""
    task_id = caller.owned_task("criterion accept", named)
    if len(words) > 2:
        raise UsageError(
            "only one criterion can be accepted at a time",
            next_step=f"omx-autoresearch criterion list {task_id}",
        )
    checks.accept(caller.runtime, task_id, words[-1], reason)
    if not as_json:
        say(f"{words[-1]} of {task_id} is accepted by its owner.")
        return
    _print_criteria(caller, task_id, as_json=True)


excuse_verb = step_verb(
    "excuse",
    checks.excuse,
    "excused from verifying the code that changed",
    text="Accept a reason why the code that changed could not be verified.",
)


@verb("readiness", Document("readiness", ReadinessReport))
@task_argument
@json_option
def readiness_verb(task: str, as_json: bool) -> int:
    """Show whether the mission would complete now: every requirement, with the next command for each missing one.

    Runs nothing. Exits with 0 if it is ready, else with 9.
    """
    caller = this_caller()
    report = readiness(caller.runtime, caller.task(task))
    if as_json:
        print_json(report)
    else:
        _print_report(report, is_complete=caller.mission(report.task_id).phase == "complete")
    return 0 if report.is_ready else CHECK_SAID_NO


@dataclass(frozen=True, slots=True)
class LogDocument:
    """``log``.

    Attributes:
        task_id: of the mission.
        iterations: the newest first.
        lifecycle: the newest events of the mission's life, newest first; the journal has all.
    """

    task_id: str
    iterations: tuple[IterationLine, ...]
    lifecycle: tuple[Notice, ...]


@verb("log", Document("log", LogDocument))
@task_argument
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="At most this many."
)
@json_option
def log_verb(task: str, limit: int, as_json: bool) -> None:
    """Show the newest iterations, each with its evidence and the gate's answer, and the mission's newest events."""
    caller = this_caller()
    task_id = caller.shown_view(task).task_id
    found = list_iterations(caller.runtime, task_id, limit=limit)
    notices = caller.mission(task_id).notices[::-1][:limit]
    if as_json:
        print_json({"task_id": task_id, "iterations": found, "lifecycle": notices})
        return
    if found:
        _print_iterations(found)
    else:
        say(f"Mission {task_id} has finished no iteration yet.")
    for notice in notices:
        say(to_the_second(f"{notice.at}  {notice.kind}  {notice.text}"), "dim")


def _print_iterations(found: tuple[dict[str, Any], ...]) -> None:
    rows = [
        (
            str(line["iteration"]),
            line["at"],
            f"{line['answer']} ({line['reason_code']})",
            line["progress"],
            str(line["stale_count"]),
            str(line["tools_used"]),
            ", ".join(line["evidence_ids"]),
            line["direction"][:60],
        )
        for line in found
    ]
    header = ("N", "ENDED", "ANSWER", "PROGRESS", "STALE", "TOOLS", "EVIDENCE", "DIRECTION")
    print_table(header, rows, ["" for _ in rows])


# --- printing


def _print_criteria(
    caller: Caller, task_id: str, *, as_json: bool, is_running: bool = False
) -> tuple[CriterionView, ...]:
    lines = criteria(caller.runtime, task_id)
    if as_json:
        print_json(CriterionListDocument(task_id, is_running, lines))
        return lines
    if not lines:
        say(f"Mission {task_id} has no criteria besides its validator or review.")
        return lines
    rows = [
        (
            line.id,
            line.status,
            "required" if line.required else "optional",
            line.accepts,
            line.received or ", ".join(line.evidence_ids),
        )
        for line in lines
    ]
    styles = [_STYLES[line.status] for line in lines]
    print_table(("CRITERION", "IS", "", "ACCEPTS", "RECEIVED"), rows, styles)
    if is_running:
        say(f"A check still runs; call again: omx-autoresearch wait {task_id}", "yellow")
    return lines


def _print_report(report: ReadinessReport, *, is_complete: bool) -> None:
    word = "ready; the next stop completes it" if report.is_ready else "not ready"
    word = "complete" if is_complete else word
    say(f"Mission {report.task_id} is {word}.", "green" if report.is_ready else "yellow")
    for line in report.lines:
        mark = "+" if line.is_met else "-" if line.is_required else "~"
        rests_on = f"  [{', '.join(line.evidence_ids[-3:])}]" if line.evidence_ids and line.is_met else ""
        say(f"{mark} {line.what}{rests_on}", "" if line.is_met else "yellow")
        if line.received:
            say(f"    {line.received}", "dim")
        if line.next_command:
            say(f"    next: {line.next_command}")
