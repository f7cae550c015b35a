"""The newest run of a mission's validator or reviewer, as every surface shows it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.times import seconds_between
from omx_autoresearch.foundation.types import RunVerdict
from omx_autoresearch.missions.rules.mission import next_command
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.validation.runs import output_tail

if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.mission import Mission

_TAIL_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class RunView:
    """The newest run of a mission's validator or reviewer.

    Attributes:
        task_id: of the mission.
        workspace_path: the folder that is judged.
        is_running: a validation goes on; its verdict is not here yet, and no older one is.
        run_id: of the newest ended run; empty when there was none.
        verdict: of that run; null when there was none, or it left none.
        cause: one word for the verdict; ``lost`` where it left none.
        summary: one line.
        is_fresh: it passed, and the workspace did not move while it ran; false for every other verdict.
        exit_status: of the command; null where it did not end by itself.
        score: the validator's score, if it printed one.
        tests: the number of tests that a known runner reports.
        isolation: what isolated the run.
        is_mounted: it saw the frozen files in the places of the pinned ones.
        duration_seconds: wall time.
        leaked: command lines of processes that outlived the run and were ended.
        output_path: the whole output; empty for a verdict that no command gave, and for one that was cleared away.
        output_tail: its end.
        next: the command that follows.
    """

    task_id: str
    workspace_path: str
    is_running: bool
    run_id: str = ""
    verdict: RunVerdict | None = None
    cause: str = ""
    summary: str = ""
    is_fresh: bool = False
    exit_status: int | None = None
    score: float | None = None
    tests: int | None = None
    isolation: str = "none"
    is_mounted: bool = False
    duration_seconds: float = 0.0
    leaked: tuple[str, ...] = ()
    output_path: str = ""
    output_tail: str = ""
    next: str = ""


_LEFT_NO_VERDICT = "it ended without a verdict: its process was killed or could not record one"
_OF_RUN = (
    *("run_id", "verdict", "cause", "summary", "is_fresh", "exit_status", "score", "tests"),
    *("isolation", "is_mounted", "duration_seconds", "leaked"),
)
"""Fields of a view that its attestation has, too."""


def run_view(runtime: Runtime, task_id: str, *, is_running: bool = False) -> RunView:
    """The newest run of a mission; ``is_running`` where one goes on."""
    mission = MissionStore(runtime.home).load(task_id)
    run = mission.attestation
    if is_running or mission.lost_run_id:
        return RunView(
            task_id,
            mission.workspace_path,
            is_running,
            run_id=mission.lost_run_id,
            cause="lost" if mission.lost_run_id else "",
            summary=_LEFT_NO_VERDICT if mission.lost_run_id else "",
            next=_wait_command(runtime, mission) if is_running else next_command(mission),
        )
    return RunView(
        task_id=task_id,
        workspace_path=mission.workspace_path,
        is_running=False,
        output_path=_output_path(runtime, task_id, run.run_id) if run else "",
        output_tail=output_tail(runtime, mission, _TAIL_CHARACTERS),
        next=next_command(mission, is_after_run=True),
        **{name: getattr(run, name) for name in _OF_RUN if run},
    )


def _output_path(runtime: Runtime, task_id: str, run_id: str) -> str:
    path = runtime.home.mission(task_id).output_path(run_id)
    return path if os.path.exists(path) else ""


def _wait_command(runtime: Runtime, mission: Mission) -> str:
    """The command that waits for the run under way; it changes from call to call.

    A client may take equal commands for a loop and end its agent's run.
    """
    going = mission.running_validation
    spent_seconds = int(max(0.0, seconds_between(going.started_at, runtime.now()))) if going else 0
    return f"{next_command(mission, is_validating=True)} --seconds {60 + spent_seconds % 31}"
