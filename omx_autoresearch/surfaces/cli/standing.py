"""How a mission stands, printed: the page of ``status``, and the line after a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omx_autoresearch.surfaces.cli.display import harmless, print_json, print_rows, say

if TYPE_CHECKING:
    from omx_autoresearch.runtime.status import StatusView
    from omx_autoresearch.surfaces.cli.caller import Caller
    from omx_autoresearch.surfaces.cli.display import Row

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


_MISSING = {
    "validation": "a passing run of what judges it",
    "review": "an approving review",
    "output-artifact": "the output artifact",
    "verification": "verification of the code that changed since the launch",
    "state-files": "state files as the journal has them",
    "final-iteration": "evidence of the last iteration, since the mission was stale",
}
"""What an open criterion asks for, in words."""


def word_of(view: StatusView) -> str:
    """The one word that says how a mission stands: its phase, or ``invalid``, ``missing``."""
    return view.phase or view.status


def print_step(caller: Caller, task_id: str, what: str, *, as_json: bool) -> None:
    """Say what a step did; with ``--json`` the status after it."""
    from omx_autoresearch.runtime import status

    view = status.view(caller.runtime, task_id)
    if as_json:
        print_json(view)
        return
    say(f"Mission {task_id} is {what}.")
    if _next(view) and view.phase not in ("complete", "cancelled"):
        say(f"  next: {_next(view)}", "dim")


def say_unblock(caller: Caller, task_id: str) -> None:
    """After a step that mends what blocked a mission, and leaves it blocked: what lets it go on."""
    from omx_autoresearch.storage.missions import MissionStore

    if MissionStore(caller.runtime.home).load(task_id).phase == "blocked":
        say(f"  next: omx-autoresearch unblock {task_id}", "dim")


def print_status(view: StatusView) -> None:
    """The page of one mission, for people."""
    word = word_of(view)
    rows: list[Row] = [
        ("mission", view.task_id, "bold"),
        ("goal", harmless(view.goal), ""),
        ("phase", word, STYLES.get(word, "")),
        ("problem" if view.status in ("invalid", "missing") else "blocked", harmless(view.blocker), "red"),
        ("next", _next(view), "bold" if view.blocker else ""),
    ]
    if view.phase:
        rows += _progress(view)
    if view.phase == "running" and view.session_id:
        rows.append(("to leave", f"omx-autoresearch pause {view.task_id}  or  cancel {view.task_id}", ""))
    rows += [("notice", harmless(notice), "yellow") for notice in view.notices]
    print_rows(rows)


def _next(view: StatusView) -> str:
    """What to type next; nothing that leads back to this page."""
    if view.next_command.startswith("omx-autoresearch status"):
        return ""
    where = "type in the agent: " if view.next_command.startswith("$") else ""
    return where + view.next_command


def _progress(view: StatusView) -> list[Row]:
    pressure = "; a change of structure is due" if view.pivot_required else ""
    none = "none yet" if view.phase == "draft" else "none since the start"
    run = f"{view.last_run_id}: {view.last_verdict}" if view.last_run_id else none
    session = f"{view.session_id} ({view.client or 'client unknown'})" if view.session_id else "unbound"
    return [
        ("iteration", f"{view.iteration}, {view.stale_count} without progress{pressure}", ""),
        ("direction", harmless(view.current_direction), ""),
        ("refusals", f"{view.refusals} of {view.max_refusals}", ""),
        ("hours", f"{view.hours_used:.2f} of {view.max_hours:g}", ""),
        ("judged by", harmless(view.judged_by), ""),
        ("newest run", run, ""),
        ("missing", _lacking(view), ""),
        ("findings", f"{view.finding_count}, in state/findings.jsonl" if view.finding_count else "", ""),
        ("session", session, ""),
        ("hold", view.hold, "green" if view.hold.startswith("proven") else "yellow"),
        ("heard of", view.last_heartbeat_at or "never", ""),
        ("files", view.task_path, "dim"),
    ]


def _lacking(view: StatusView) -> str:
    """What is still missing, a line each."""
    if not view.open_criteria and view.phase == "running":
        return "nothing; the agent's next stop completes it"
    return "\n".join(map(_missing, view.open_criteria))


def _missing(criterion: str) -> str:
    """One open criterion, for people."""
    if criterion.startswith("criterion:"):
        return f"evidence for {harmless(criterion.removeprefix('criterion:'))}"
    return _MISSING.get(criterion, harmless(criterion))
