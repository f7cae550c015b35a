"""The verbs that only look: status, list, current, open, wait."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import CommandFault, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass, replace
from omx_autoresearch.foundation.text import count_of, duration_text
from omx_autoresearch.journal.layout import ProjectFolder
from omx_autoresearch.missions import views
from omx_autoresearch.missions.rules.briefing import judged_elsewhere
from omx_autoresearch.missions.rules.difference import count_text
from omx_autoresearch.missions.run_view import RunView, run_view
from omx_autoresearch.missions.upkeep import storage_fault
from omx_autoresearch.missions.validation import runs
from omx_autoresearch.missions.views import StatusView, open_items
from omx_autoresearch.missions.workspace import is_within
from omx_autoresearch.surfaces.cli.console import (
    Document,
    json_option,
    print_json,
    print_rows,
    print_table,
    reason_option,
    say,
    task_argument,
    this_caller,
    verb,
    with_options,
)
from omx_autoresearch.surfaces.cli.removal import REMOVAL, prune
from omx_autoresearch.system.processes import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.mission import Mission
    from omx_autoresearch.surfaces.cli.console import Caller, Row, Verb


LOOK_SECONDS = 1.0
"""What was seen within this time counts as now."""
WAIT_SECONDS = 90.0
"""Below the limit that every known agent CLI puts on a command of its agent (Claude Code: 120 s)."""


STATUS = Document("status", StatusView)
"""A verb that takes a mission a step further prints this, too."""
RUN = Document("run", RunView)


@verb("status", STATUS)
@task_argument
@click.option("--look", is_flag=True, help="Check the workspace now.")
@json_option
def status_verb(task: str, look: bool, as_json: bool) -> None:
    """Show the state of a mission, its obstacles, and the next command.

    The missing items come from the newest run or check, with its age; --look checks the workspace now.
    """
    caller = this_caller()
    view = _with_storage(caller, caller.shown_view(task, looks=look))
    if as_json:
        print_json(view)
        return
    print_status(view)
    if view.notices and not caller.is_agent():
        views.mark_told(caller.runtime, view)


def _with_storage(caller: Caller, view: StatusView) -> StatusView:
    """The view, whose hold is lost where its stops could not be recorded.

    An agent may run in a sandbox that forbids it to write what its hooks can, so its word is not asked for.
    """
    if view.phase != "running" or not view.session_id or caller.is_agent():
        return view
    fault = storage_fault(caller.runtime.home, (view.task_id,))
    if fault is None:
        return view
    return replace(view, hold=f"lost (every stop is let go: {fault.message})", next_command=fault.next_step)


@verb("list", Document("status-list", tuple[StatusView, ...]), REMOVAL)
@click.option("--prune", "prunes", is_flag=True, help="Remove missions that ended long ago instead.")
@click.option(
    "--days",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="With --prune: how long ago, at least.",
)
@click.option("--yes", is_flag=True, help="With --prune: do not ask.")
@json_option
def list_verb(prunes: bool, days: float, yes: bool, as_json: bool) -> None:
    """Show every mission, newest first."""
    if prunes:
        prune(this_caller(), days, yes=yes, as_json=as_json)
        return
    found = views.list_views(this_caller().runtime)
    if as_json:
        print_json(found)
    elif not found:
        say("No mission yet.\n  next: omx-autoresearch init")
    else:
        _print_list(found)


def _print_list(found: tuple[StatusView, ...]) -> None:
    rows = [
        (
            view.task_id,
            word_of(view),
            str(view.iteration),
            f"{view.refusals}/{view.max_refusals}",
            view.hold.split(" (")[0] if view.phase == "running" else "",
            " ".join((view.goal or view.blocker).split()),
        )
        for view in found
    ]
    styles = [STYLES.get(word_of(view), "") for view in found]
    print_table(("MISSION", "PHASE", "ITERATION", "REFUSALS", "HOLD", "GOAL"), rows, styles)
    for view in found:
        project_path = view.task_path.rpartition(f"{os.sep}.omx{os.sep}")[0]
        if project_path and not os.path.isdir(project_path):
            told = f"{project_path}, the project of {view.task_id}, is gone"
            say(f"note: {told}; omx-autoresearch status {view.task_id} says what to do", "yellow")


@verb("wait", RUN)
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

    Exits with 0 whatever the verdict. If the run outlasts the wait, call again.
    """
    caller = this_caller()
    task_id = caller.task(task)
    running = runs.running_validation(caller.runtime, caller.mission(task_id))
    is_running = running is not None and not wait_for(running, seconds)
    print_run(caller, caller.mission(task_id), is_running=is_running, as_json=as_json)


# --- How a mission stands, printed: the page of ``status``, and the line after a step.

STYLES = {
    "running": "cyan",
    "blocked": "red",
    "paused": "yellow",
    "complete": "green",
    "cancelled": "dim",
    "invalid": "red",
    "missing": "red",
    "draft": "yellow",
}
"""Colour of each phase, or of a status that has none."""


_LIVE = ("running", "blocked", "paused")
_MISSING = {
    "validation": "a passing run of its validator",
    "review": "an approving review",
    "output-artifact": "the output artifact",
    "verification": "verification of the code that changed since the launch",
    "state-files": "state files that match the journal",
    "final-iteration": "evidence from the last iteration, because the mission was stale",
}
"""What an open criterion asks for, in words."""


def word_of(view: StatusView) -> str:
    """The one word that says how a mission stands: its phase, or ``invalid``, ``missing``."""
    return view.phase or view.status


def print_step(caller: Caller, task_id: str, what: str, *, as_json: bool) -> None:
    """Print the result of a step; with ``--json`` the status after it."""
    view = views.view(caller.runtime, task_id)
    if as_json:
        print_json(view)
        return
    say(f"Mission {task_id} is {what}.")
    if _typed(view.next_command) and view.phase not in ("complete", "cancelled"):
        say(f"  next: {_typed(view.next_command)}", "dim")


def step_verb(
    name: str, step: Callable[..., object], done: str, *options: Callable[..., Any], text: str
) -> Verb:
    """A verb that only the owner may use, takes one step of a mission's life, and prints the status after it.

    Args:
        name: as typed.
        step: the use case; takes runtime, task id, reason, and a value for each option.
        done: how the mission is now, for people.
        options: beside TASK, ``--reason`` and ``--json``.
        text: the help of the verb.
    """

    @verb(name, STATUS, help=text)
    @with_options(task_argument, reason_option, *options, json_option)
    def take(task: str, reason: str, as_json: bool, **given: Any) -> None:
        caller = this_caller()
        task_id = caller.owned_task(name, task)
        step(caller.runtime, task_id, reason=reason, **given)
        print_step(caller, task_id, done, as_json=as_json)

    return take


def say_unblock(caller: Caller, task_id: str) -> None:
    """After a step that fixes the cause of a block: print the command that unblocks the mission."""
    if caller.mission(task_id).phase == "blocked":
        say(f"  next: omx-autoresearch unblock {task_id}", "dim")


def print_status(view: StatusView) -> None:
    """The page of one mission, for people."""
    word = word_of(view)
    rows: list[Row] = [
        ("mission", view.task_id, "bold"),
        ("goal", view.goal, ""),
        ("phase", word, STYLES.get(word, "")),
        ("problem" if view.status in ("invalid", "missing") else "blocked", view.blocker, "red"),
        ("next", _typed(view.next_command), "bold" if view.blocker else ""),
    ]
    if view.phase:
        rows += _progress(view)
    if view.phase == "running" and view.session_id:
        rows.append(("to leave", f"omx-autoresearch pause {view.task_id}  or  cancel {view.task_id}", ""))
    rows += [("notice", notice, "yellow") for notice in view.notices]
    print_rows(rows)


def _typed(command: str) -> str:
    """The next command and where to type it; empty if it is ``status`` itself."""
    if command.startswith("omx-autoresearch status"):
        return ""
    return f"type in the agent: {command}" if command.startswith("$") else command


def _progress(view: StatusView) -> list[Row]:
    pressure = "; a change of structure is due" if view.pivot_required else ""
    session = f"{view.session_id} ({view.client or 'client unknown'})" if view.session_id else "unbound"
    return [
        ("iteration", f"{view.iteration}, {view.stale_count} without progress{pressure}", ""),
        ("direction", view.current_direction, ""),
        ("refusals", f"{view.refusals} of {view.max_refusals}", ""),
        ("reviews", f"{view.reviews} of {view.max_reviews}" if view.max_reviews else "", ""),
        ("hours", f"{view.hours_used:.2f} of {view.max_hours:g}", ""),
        ("judged by", view.judged_by, ""),
        ("newest run", _newest_run(view), ""),
        ("missing", _lacking(view), ""),
        ("changed", _changed(view), ""),
        ("findings", f"{view.finding_count}, in state/findings.jsonl" if view.finding_count else "", ""),
        ("session", session, ""),
        ("hold", view.hold, "green" if view.hold.startswith("proven") else "yellow"),
        ("prompts", view.prompts, "green" if view.prompts.startswith("proven") else "yellow"),
        ("heard of", view.last_heartbeat_at or "never", ""),
        ("files", view.task_path, "dim"),
    ]


def _newest_run(view: StatusView) -> str:
    """The running validation, or the result of the newest one."""
    if view.running_since:
        return f"running since {view.running_since}; omx-autoresearch wait {view.task_id} shows its verdict"
    if view.lost_run_id:
        verb = "review" if view.validation_mode == "prompt-architect-artifact" else "validate"
        again = (
            f"; to run it again: omx-autoresearch {verb} {view.task_id}" if view.phase == "running" else ""
        )
        return f"{view.lost_run_id}: it ended without a verdict{again}"
    if view.last_run_id:
        return f"{view.last_run_id}: {view.last_verdict}"
    return "none yet" if view.phase == "draft" else "none since the start"


def _lacking(view: StatusView) -> str:
    """The missing items, one per line."""
    if view.phase not in _LIVE:
        return ""
    first = {"paused": "resume it first, then ", "blocked": "unblock it first, then "}.get(view.phase, "")
    lines = list(map(_missing, view.open_criteria)) or [f"nothing; {first}the agent's next stop completes it"]
    age = view.checked_age_seconds
    if age is None:
        lines.append("(nothing was run or checked yet; --look checks the workspace now)")
    elif age >= LOOK_SECONDS:
        lines.append(f"(checked {duration_text(age)} ago; --look checks the workspace now)")
    return "\n".join(lines)


def _changed(view: StatusView) -> str:
    """How much changed since the launch, and the verb that shows it."""
    if not view.validation_mode:
        return ""
    shows = f"omx-autoresearch diff {view.task_id}"
    if view.difference is None:
        return f"{shows} shows what changed since the launch" if view.phase in _LIVE else ""
    return count_text(view.difference) + (f"; {shows}" if view.difference.changes else "")


def _missing(criterion: str) -> str:
    """One open criterion, for people."""
    if criterion.startswith("criterion:"):
        return f"evidence for {criterion.removeprefix('criterion:')}"
    return _MISSING.get(criterion, criterion)


# --- The newest run of a mission's validator or reviewer, printed.

_VERDICT_STYLES = {"passed": "green", "failed": "red", "error": "red", "tampered": "red"}


def print_run(caller: Caller, mission: Mission, *, is_running: bool, as_json: bool) -> None:
    """Print the newest run, or that one still goes on."""
    view = run_view(caller.runtime, mission.task_id, is_running=is_running)
    if as_json:
        print_json(view)
    else:
        _print_run(view, caller.runtime, mission)
        if not is_within(caller.cwd, mission.workspace_path):
            say(f"  note: {judged_elsewhere(mission, caller.cwd)}", "yellow")


def _print_run(document: RunView, runtime: Runtime, mission: Mission) -> None:
    if document.is_running:
        say(f"Still running; call again: {document.next}", "yellow")
        return
    if document.verdict is None:
        lost = f"Run {document.run_id} ended without a verdict." if document.run_id else "No run yet."
        say(f"{lost}\n  next: {document.next}", "yellow" if document.run_id else "")
        return
    if document.output_tail:
        say("\n".join(f"| {line}" for line in document.output_tail.splitlines()))
    numbers = [f"score {document.score:g}"] if document.score is not None else []
    numbers += [count_of(document.tests, "test")] if document.tests is not None else []
    print_rows(
        [
            ("verdict", f"{document.verdict} ({document.cause})", _VERDICT_STYLES[document.verdict]),
            ("summary", document.summary, ""),
            ("judged", document.workspace_path, ""),
            ("measured", ", ".join(numbers), ""),
            ("note", *_run_note(document, runtime, mission)),
            ("leaked", "\n".join(document.leaked), "yellow"),
            (
                "run",
                f"{document.run_id}, a verdict without a run"
                if document.cause.endswith(("-by-person", "-by-session"))
                else f"{document.run_id}, {document.duration_seconds:.1f} s, "
                + ("not sandboxed" if document.isolation == "none" else f"sandboxed in {document.isolation}")
                + (", frozen files mounted" if document.is_mounted else ""),
                "",
            ),
            ("output", document.output_path, "dim"),
            ("next", _typed(document.next), ""),
        ]
    )


def _run_note(document: RunView, runtime: Runtime, mission: Mission) -> tuple[str, str]:
    """What follows from a run that passed, and the colour of that."""
    if document.verdict != "passed":
        return "", ""

    if not document.is_fresh:
        return "the workspace changed while it ran, so it completes nothing", "yellow"
    if mission.phase != "running":
        return "", ""
    _, items = open_items(runtime, mission)
    if items:
        named = ", ".join(item.code.removeprefix("criterion:") for item in items)
        return f"still open: {named}; see omx-autoresearch readiness {mission.task_id}", "yellow"
    return "the mission completes at the agent's next stop, unless something changes first", ""


OPENERS = {"darwin": "open"}
"""The command that shows a folder in the system's file browser, by platform; elsewhere ``xdg-open``."""


@dataclass(frozen=True, slots=True)
class CurrentDocument:
    """``current``.

    Attributes:
        mission: of the session, or of the project; null for none.
        candidates: where several are under way and none is named.
    """

    mission: StatusView | None
    candidates: tuple[str, ...]


@verb("current", Document("current", CurrentDocument))
@click.option("--session", default="", metavar="ID", help="The id of a session of an agent CLI.")
@json_option
def current_verb(session: str, as_json: bool) -> None:
    """Show the mission of a session, or of this project; finding none is not an error.

    Without --session: the mission of the calling session, else the active one of this project.
    """
    caller = this_caller()
    found = _current(caller, session)
    view = views.view(caller.runtime, found[0]) if len(found) == 1 else None
    if as_json:
        print_json(CurrentDocument(view, found if view is None else ()))
    elif view is not None:
        print_status(view)
    else:
        say(f"Several missions are active here: {', '.join(found)}" if found else "No mission here.")


def _current(caller: Caller, session: str) -> tuple[str, ...]:
    """The task ids that can be meant; one is the answer."""
    held = views.held_task(caller.runtime, session or caller.session_id)
    if held or session:
        return (held,) if held else ()
    return views.current_tasks(caller.runtime, caller.cwd)


@dataclass(frozen=True, slots=True)
class FolderDocument:
    """``open``.

    Attributes:
        task_id: of the mission.
        task_path: its folder in the project, for people.
        is_revealed: the system's file browser was asked to show it.
    """

    task_id: str
    task_path: str
    is_revealed: bool


@verb("open", Document("open", FolderDocument))
@task_argument
@click.option("--reveal", is_flag=True, help="Open it in the system's file browser.")
@json_option
def open_verb(task: str, reveal: bool, as_json: bool) -> None:
    """Print the path of a mission's readable folder; with --reveal, open it."""
    caller = this_caller()
    task_id = caller.owned_task("open --reveal", task) if reveal else caller.task(task)
    mission = caller.mission(task_id)
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
    import shlex
    import shutil
    import subprocess

    name = OPENERS.get(sys.platform, "xdg-open")
    opener = shutil.which(name)
    if opener is None:
        raise CommandFault(
            f"{name} is not installed, so no file browser can open {path}",
            next_step=f"cd {shlex.quote(path)}",
        )
    subprocess.Popen(
        [opener, path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
