"""The newest run of a mission's validator or reviewer, printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omx_autoresearch.core.readiness import open_criteria
from omx_autoresearch.surfaces.cli.display import harmless, print_json, print_rows, say

if TYPE_CHECKING:
    from omx_autoresearch.core.mission import Mission
    from omx_autoresearch.runtime.context import Runtime
    from omx_autoresearch.surfaces.cli.documents import RunDocument

TAIL_CHARACTERS = 4000
_STYLES = {"passed": "green", "failed": "red", "error": "red", "tampered": "red"}


def print_run(runtime: Runtime, task_id: str, *, is_running: bool, as_json: bool) -> Mission:
    """Print the newest run, or that one still goes on; returns the mission as it is now."""
    from omx_autoresearch.storage.missions import MissionStore

    mission = MissionStore(runtime.home).load(task_id)
    document = _document(runtime, mission, is_running=is_running)
    if as_json:
        print_json(document)
    else:
        _print(document, runtime, mission)
    return mission


def _document(runtime: Runtime, mission: Mission, *, is_running: bool) -> RunDocument:
    from omx_autoresearch.runtime.validation import output_tail
    from omx_autoresearch.storage.outputs import output_path
    from omx_autoresearch.surfaces.cli.documents import RunDocument

    run = mission.attestation
    return RunDocument(
        task_id=mission.task_id,
        is_running=is_running,
        run_id=run.run_id if run else "",
        verdict=run.verdict if run else None,
        cause=run.cause if run else "",
        summary=run.summary if run else "",
        is_fresh=run.is_fresh if run else False,
        exit_status=run.exit_status if run else None,
        score=run.score if run else None,
        tests=run.tests if run else None,
        isolation=run.isolation if run else "none",
        duration_seconds=run.duration_seconds if run else 0.0,
        leaked=run.leaked if run else (),
        output_path=output_path(runtime.home.mission(mission.task_id), run.run_id) if run else "",
        output_tail=output_tail(runtime, mission, TAIL_CHARACTERS),
        next=_next(mission, is_running=is_running),
    )


def _next(mission: Mission, *, is_running: bool) -> str:
    from omx_autoresearch.core.lifecycle import COMMAND_FOR

    run = mission.attestation
    if is_running:
        return f"omx-autoresearch wait {mission.task_id}"
    if mission.phase != "running":
        return COMMAND_FOR[mission.phase].format(task=mission.task_id)
    if run is not None and run.verdict == "tampered":
        return f"omx-autoresearch restore {mission.task_id}"
    return f"omx-autoresearch status {mission.task_id}"


def _print(document: RunDocument, runtime: Runtime, mission: Mission) -> None:
    if document.is_running:
        say(f"Still running; call again: {document.next}", "yellow")
        return
    if document.verdict is None:
        say(f"No run yet.\n  next: {document.next}")
        return
    if document.output_tail:
        say("\n".join(f"| {line}" for line in harmless(document.output_tail).splitlines()))
    numbers = [f"score {document.score:g}"] if document.score is not None else []
    numbers += [f"{document.tests} tests"] if document.tests is not None else []
    print_rows(
        [
            ("verdict", f"{document.verdict} ({document.cause})", _STYLES[document.verdict]),
            ("summary", harmless(document.summary), ""),
            ("measured", ", ".join(numbers), ""),
            ("note", *_note(document, runtime, mission)),
            ("leaked", "\n".join(map(harmless, document.leaked)), "yellow"),
            (
                "run",
                f"{document.run_id}, {document.duration_seconds:.1f} s, "
                + ("not sandboxed" if document.isolation == "none" else f"sandboxed in {document.isolation}"),
                "",
            ),
            ("output", document.output_path, "dim"),
            ("next", "" if document.next.startswith("omx-autoresearch status") else document.next, ""),
        ]
    )


def _note(document: RunDocument, runtime: Runtime, mission: Mission) -> tuple[str, str]:
    """What follows from a run that passed, and the colour of that."""
    if document.verdict != "passed":
        return "", ""
    from omx_autoresearch.runtime.looks import take_look

    if not document.is_fresh:
        return "the workspace moved while it ran, so it completes nothing", "yellow"
    if mission.phase != "running":
        return "", ""
    if lacking := open_criteria(mission, take_look(runtime.home.mission(mission.task_id), mission)):
        named = harmless(", ".join(lacking))
        return f"criteria are open: {named}; see omx-autoresearch readiness {mission.task_id}", "yellow"
    return "the mission is complete at the agent's next stop, unless something changes before", ""
