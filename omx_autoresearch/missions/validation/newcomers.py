"""What the box of a run adds to its report: names that appeared meanwhile, and what it kept from the command."""

from __future__ import annotations

import os

from omx_autoresearch.foundation.records import replace
from omx_autoresearch.missions.rules.run_reports import RunReport
from omx_autoresearch.system.sandbox import box

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.system.commands import CommandResult


def take_aside(result: CommandResult, workspace_path: str, run_id: str) -> str:
    """Tell of names that other programs load and that appeared while a command ran in its box; empty for none.

    What nothing else can have made is moved to ``.omx/aside`` and is tampering. An editor may have made the rest.
    """
    names = ", ".join(result.newcomers)
    if not result.has_made_newcomers:
        return f"{names} appeared meanwhile, and other programs load it: look at it first" if names else ""
    aside = os.path.join(".omx", "aside", run_id)
    os.makedirs(os.path.join(workspace_path, aside), exist_ok=True)
    for name in result.newcomers:
        os.replace(os.path.join(workspace_path, name), os.path.join(workspace_path, aside, name))
    return f"the command made {names}, which other programs load; moved to {aside}"


def judged(report: RunReport, result: CommandResult, workspace_path: str, run_id: str) -> RunReport:
    """The report of a run, with what its box has to say of it; ``tampered`` where it made what others load."""
    told = take_aside(result, workspace_path, run_id) if result.newcomers else ""
    if result.has_made_newcomers:
        return RunReport("tampered", "names-made", told)
    note = f"{result.box_note} ({box().cure})" if result.box_note and report.verdict != "passed" else ""
    return replace(report, summary="; ".join(filter(None, (told, report.summary, note))))
