"""What each tool does. Looking works on any mission; writing only on the one that holds the caller's session."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from pydantic import Field

from omx_autoresearch.foundation.errors import CommandFault, StepIllegal, UsageError, WorkspaceFault
from omx_autoresearch.foundation.types import FindingKind
from omx_autoresearch.journal.layout import Runtime
from omx_autoresearch.surfaces.mcp import results
from omx_autoresearch.surfaces.mcp.calls import Call, begun
from omx_autoresearch.surfaces.mcp.results import fitted, shown

WAIT_SECONDS = 45.0
"""Below the limit that every known client puts on a call (Codex: 60 s)."""
LIST_LIMIT = 50
OUTPUT_CHARACTERS = 4000
SCRIPT_MODE = "mission-validator-script"

Task = Annotated[str, Field(description="Task id; leave it out for the mission that holds this session")]
Seconds = Annotated[
    float, Field(ge=0, le=50, description="Wait at most this long; the run goes on by itself")
]
Limit = Annotated[int, Field(ge=1, le=LIST_LIMIT, description="At most this many")]
_Context = Context[Any, Any]


class Tools:
    """The tools over one state home.

    Args:
        runtime: the world.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    # --- looking

    def status(self, ctx: _Context, task: Task = "") -> results.MissionStatus:
        """Show how the mission stands and what is in its way."""
        with begun(self._runtime, ctx) as call:
            return _status(call, call.seen_task(task))

    def readiness(self, ctx: _Context, task: Task = "") -> results.ReadinessResult:
        """Show line by line whether the mission would complete now; runs nothing."""
        from omx_autoresearch.missions.views import readiness

        with begun(self._runtime, ctx) as call:
            report = readiness(call.runtime, call.seen_task(task))
            found: results.ReadinessResult = fitted(results.ReadinessResult, report)
            return found

    def criterion_list(self, ctx: _Context, task: Task = "") -> results.CriterionList:
        """List the conditions of the contract, with the rule that says what counts for each."""
        from omx_autoresearch.missions.views import criteria

        with begun(self._runtime, ctx) as call:
            task_id = call.seen_task(task)
            return results.CriterionList(task_id=task_id, criteria=criteria(call.runtime, task_id))

    def finding_list(
        self,
        ctx: _Context,
        task: Task = "",
        limit: Limit = 20,
        wanted: Literal["all", "accepted", "claims"] = "all",
        before: Annotated[int, Field(ge=0, description="Only those with a smaller seq; 0 for all")] = 0,
    ) -> results.FindingList:
        """List the newest findings: evidence first, then claims."""
        from omx_autoresearch.missions.findings import list_findings

        with begun(self._runtime, ctx) as call:
            task_id = call.seen_task(task)
            lines = list_findings(call.runtime, task_id, limit=limit, wanted=wanted, before=before)
            items = [
                results.FindingItem(
                    seq=line["seq"],
                    id=line["id"],
                    kind=line["kind"],
                    summary=shown(line["summary"]),
                    source=line["source"],
                    accepted=line["accepted"],
                    paths=[shown(path) for path in line["paths"][:LIST_LIMIT]],
                    created_at=line["created_at"],
                    criterion_id=line.get("criterion_id") or "",
                )
                for line in lines
            ]
            return results.FindingList(task_id=task_id, findings=items, is_cut=len(items) == limit)

    def direction_list(self, ctx: _Context, task: Task = "") -> results.DirectionList:
        """List the directions that were tried, and those of the owner that wait."""
        from omx_autoresearch.missions.directions import offered_axis
        from omx_autoresearch.missions.store import MissionStore

        with begun(self._runtime, ctx) as call:
            mission = MissionStore(call.runtime.home).load(call.seen_task(task))
            newest = sorted(mission.directions, key=lambda item: item.last_seen_iteration)[-LIST_LIMIT:]
            return results.DirectionList(
                task_id=mission.task_id,
                current=shown(mission.current_direction),
                pivot_required=mission.is_pivot_required,
                offered_axis=offered_axis(mission),
                open=[shown(item.summary) for item in mission.open_directions],
                tried=[fitted(results.TriedDirection, item) for item in newest],
                is_cut=len(newest) < len(mission.directions),
            )

    # --- writing

    def finding_add(  # noqa: PLR0913, PLR0917 - each parameter is a field of the tool
        self,
        ctx: _Context,
        summary: Annotated[str, Field(description="What was observed, in a sentence")],
        kind: FindingKind = "manual",
        criterion: Annotated[str, Field(description="Criterion that it is offered for; empty for none")] = "",
        paths: Annotated[list[str] | None, Field(description="Files that it is about")] = None,
        shown_by: Annotated[
            str, Field(description="The command that showed it, as text; it is not run")
        ] = "",
        finding_id: Annotated[str, Field(description="Unique; made where empty")] = "",
    ) -> results.FindingResult:
        """Record a finding: evidence where the criterion's own rule accepts it, a claim everywhere else."""
        from omx_autoresearch.missions.findings import Submission, add_finding

        with begun(self._runtime, ctx) as call:
            task_id = call.own_task()
            submission = Submission(summary, kind, finding_id, shown_by, tuple(paths or ()), criterion)
            recorded = add_finding(call.runtime, task_id, submission, source="mcp")
            return fitted(results.FindingResult, recorded, task_id=task_id, id=recorded.finding.id)  # type: ignore[no-any-return]

    def direction_add(
        self,
        ctx: _Context,
        summary: Annotated[str, Field(description="What is tried next, in a sentence")],
        axes: Annotated[
            dict[str, str] | None, Field(description="Structural axes that are meant, by name")
        ] = None,
        is_pivot: Annotated[bool, Field(description="It changes the structure of the approach")] = False,
    ) -> results.DirectionResult:
        """Declare the direction that is taken next."""
        from omx_autoresearch.missions.directions import declare
        from omx_autoresearch.missions.rules.directions import direction_of

        with begun(self._runtime, ctx) as call:
            task_id = call.own_task()
            direction = direction_of(summary, axes or {}, is_pivot=is_pivot)
            declared = declare(call.runtime, task_id, direction)
            return results.DirectionResult(
                task_id=task_id,
                is_recorded=declared.is_recorded,
                summary=shown(declared.direction.summary),
                is_pivot=declared.is_pivot_accepted,
                faults=list(declared.faults),
                repeats=declared.repeats.summary if declared.repeats else "",
                near=declared.near.summary if declared.near else "",
                offered_axis=declared.offered_axis,
            )

    def note(
        self, ctx: _Context, text: Annotated[str, Field(description="In a sentence or more")]
    ) -> results.NoteResult:
        """Leave a note in the mission: a claim, kept and shown, never proof."""
        from omx_autoresearch.missions import claims

        with begun(self._runtime, ctx) as call:
            task_id = call.own_task()
            noted = claims.note(call.runtime, task_id, text, origin="mcp")
            return results.NoteResult(task_id=task_id, is_recorded=not noted.inbox_file_path)

    def block(
        self,
        ctx: _Context,
        reason: Annotated[str, Field(description="What is in the way")],
        needs: Annotated[str, Field(description="The smallest input of a person that would help")],
    ) -> results.MissionStatus:
        """Say that a person must act first: the mission is blocked, loudly, and you are let go. Never completes it."""
        from omx_autoresearch.missions import lifecycle_commands

        with begun(self._runtime, ctx) as call:
            task_id = call.own_task()
            lifecycle_commands.block(call.runtime, task_id, reason=reason, needs=needs, by="agent")
            return _status(call, task_id)

    def validate(self, ctx: _Context, seconds: Seconds = WAIT_SECONDS) -> results.RunResult:
        """Run the contract's validator now, as a stop would; what passes completes the mission at your next stop."""
        with begun(self._runtime, ctx) as call:
            return _run(call, call.own_task(), seconds, is_review=False)

    def review(self, ctx: _Context, seconds: Seconds = WAIT_SECONDS) -> results.RunResult:
        """Have the reviewer command of the contract judge the artifact now."""
        with begun(self._runtime, ctx) as call:
            return _run(call, call.own_task(), seconds, is_review=True)

    def wait(self, ctx: _Context, task: Task = "", seconds: Seconds = WAIT_SECONDS) -> results.RunResult:
        """Wait for a running validation or review and show its verdict."""
        from omx_autoresearch.missions.store import MissionStore
        from omx_autoresearch.missions.validation import runs
        from omx_autoresearch.system.processes import wait_for

        with begun(self._runtime, ctx) as call:
            task_id = call.seen_task(task)
            running = runs.running_validation(call.runtime, MissionStore(call.runtime.home).load(task_id))
            is_running = running is not None and not wait_for(running, seconds)
            return _run_result(call, task_id, is_running=is_running)

    def start(self, ctx: _Context, task: Task = "") -> results.StartResult:
        """Launch the mission that your person wrote down, for this very session; your client confirms it by itself."""
        from dataclasses import fields

        from omx_autoresearch.missions.launch import StartOptions, start
        from omx_autoresearch.missions.views import resolve_task

        with begun(self._runtime, ctx) as call:
            task_id = resolve_task(call.runtime, task) if task else _only_draft(call)
            options = StartOptions(
                reason="started through a tool",
                client=call.client,
                is_agent=True,
                baseline_seconds=WAIT_SECONDS,
            )
            started = start(call.runtime, task_id, options)
            mission, contract = started.mission, started.mission.contract
            limits = ", ".join(
                f"{item.name} {getattr(mission.limits, item.name):g}" for item in fields(mission.limits)
            )
            token = f"the bind token is {started.token} and nobody else needs it" if started.token else ""
            return results.StartResult(
                task_id=task_id,
                phase=mission.phase,
                validation_mode=contract.validation_mode if contract else "",
                validator_command=contract.validator_command if contract else "",
                limits=limits,
                confirmation=token or "this session is held by it already",
            )


def _only_draft(call: Call) -> str:
    """The one mission of this project that was written down and not launched.

    Raises:
        UsageError: there is none, or there are several.
    """
    from omx_autoresearch.missions.views import draft_tasks

    drafts = draft_tasks(call.runtime, os.getcwd(), is_here=True)
    if len(drafts) != 1:
        found = (
            f"{len(drafts)} are written down: {', '.join(drafts[:8])}" if drafts else "none is written down"
        )
        raise UsageError(
            f"which mission? {found}",
            next_step="call `start` with a task id; to write one down: omx-autoresearch init --goal ...",
        )
    return drafts[0]


def _status(call: Call, task_id: str) -> results.MissionStatus:
    from omx_autoresearch.missions import views

    view = views.view(call.runtime, task_id, looks=True)
    return fitted(  # type: ignore[no-any-return]
        results.MissionStatus,
        view,
        goal=shown(view.goal),
        current_direction=shown(view.current_direction),
        blocker=shown(view.blocker),
        is_own=task_id == call.caller.task_id,
    )


def _run(call: Call, task_id: str, seconds: float, *, is_review: bool) -> results.RunResult:
    """Run what the owner's contract names, with the rights that the caller's sandbox leaves."""
    from omx_autoresearch.missions.looks import take_look
    from omx_autoresearch.missions.rules.mission import next_command
    from omx_autoresearch.missions.store import MissionStore
    from omx_autoresearch.missions.validation import runs

    mission = MissionStore(call.runtime.home).load(task_id)
    contract = mission.contract
    if contract is None or mission.phase != "running":
        raise StepIllegal(
            f"mission {task_id} is {mission.phase}; there is nothing to run",
            next_step=next_command(mission),
        )
    if is_review == (contract.validation_mode == SCRIPT_MODE):
        judge, tool = ("its validator", "validate") if is_review else ("a review", "review")
        raise StepIllegal(f"mission {task_id} is judged by {judge}", next_step=f"call the tool `{tool}`")
    if is_review and not contract.reviewer_command:
        raise CommandFault(
            f"mission {task_id} names no reviewer command",
            next_step=f"a person types at a terminal: omx-autoresearch review {task_id} --approve (or --reject)",
        )
    look = take_look(call.runtime.home.mission(task_id), mission)
    permit = runs.permission(call.runtime, mission, is_sandboxed=call.is_sandboxed())
    if not permit.may_run and not look.changed_pins:
        raise CommandFault(permit.why, next_step=f"the owner types: {permit.command}")
    if look.artifact_fault:
        raise WorkspaceFault(
            f"there is nothing to review: {look.artifact_fault}",
            next_step=f"write {contract.output_artifact_path}",
        )
    ask = runs.Ask(isolation=permit.isolation, look=look)
    ended = runs.validate(call.runtime, task_id, ask, wait_seconds=seconds)
    return _run_result(call, task_id, is_running=not ended)


def _run_result(call: Call, task_id: str, *, is_running: bool) -> results.RunResult:
    from omx_autoresearch.missions.store import MissionStore
    from omx_autoresearch.missions.validation.runs import output_tail

    mission = MissionStore(call.runtime.home).load(task_id)
    run = mission.attestation
    return results.RunResult(
        task_id=task_id,
        is_running=is_running,
        run_id=run.run_id if run else "",
        verdict=run.verdict if run else "",
        cause=run.cause if run else "",
        summary=run.summary if run else "",
        is_fresh=run.is_fresh if run else False,
        exit_status=run.exit_status if run else None,
        score=run.score if run else None,
        tests=run.tests if run else None,
        isolation=run.isolation if run else "none",
        output_tail=output_tail(call.runtime, mission, OUTPUT_CHARACTERS) if run else "",
        next=_next(run.verdict if run else "", is_running=is_running),
    )


def _next(verdict: str, *, is_running: bool) -> str:
    if is_running:
        return "call the tool `wait`"
    if verdict == "passed":
        return "stop: the runtime confirms it and completes the mission"
    if verdict == "tampered":
        return "run: omx-autoresearch restore"
    return "work on what it says, then call the tool `validate`" if verdict else "call the tool `validate`"
