"""The tools of missions. They read any mission, and write only to the one that holds the caller's session.

A tool returns the document that its counterpart on the command line prints with ``--json``; next steps name tools.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.types import FindingKind
from omx_autoresearch.missions import lifecycle_commands, views
from omx_autoresearch.missions.rules.readiness import ReadinessReport
from omx_autoresearch.missions.run_view import RunView, run_view
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.validation import runs
from omx_autoresearch.missions.validation.asked import validate_now
from omx_autoresearch.surfaces.documents import (
    CriterionListDocument,
    DirectionDocument,
    DirectionListDocument,
    FindingDocument,
    FindingListDocument,
    NoteDocument,
    StartDocument,
    direction_document,
    direction_list_document,
    finding_document,
    finding_list_document,
    start_document,
)
from omx_autoresearch.surfaces.mcp.calls import (
    LIST_LIMIT,
    OUTPUT_CHARACTERS,
    TEXT_CHARACTERS,
    WAIT_SECONDS,
    Call,
    Limit,
    Seconds,
    make_tool,
)
from omx_autoresearch.system.processes import wait_for

if TYPE_CHECKING:
    from mcp.server.mcpserver.tools import Tool

    from omx_autoresearch.journal.layout import Runtime

Task = Annotated[str, Field(description="Task id; omit it for the mission that holds this session")]


@dataclass(frozen=True, slots=True)
class Ownership:
    """An addition to the view of a mission.

    Attributes:
        is_own: this mission holds the caller's session.
    """

    is_own: bool


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The end of a start's answer: a client may cut the answer, and its hook looks for the token at the end.

    Attributes:
        confirmation: the text by which the client's hook binds the session; do not show it anywhere else.
    """

    confirmation: str


MissionStatus = tuple[views.StatusView, Ownership]


# --- looking


def status(call: Call, task: Task = "") -> MissionStatus:
    """Show the state of the mission and the obstacles to its completion."""
    return _status(call, call.seen_task(task))


def readiness(call: Call, task: Task = "") -> ReadinessReport:
    """Show, item by item, whether the mission would complete now. Runs nothing."""
    return views.readiness(call.runtime, call.seen_task(task))


def criterion_list(call: Call, task: Task = "") -> CriterionListDocument:
    """List the criteria of the contract, each with the rule for the evidence that it accepts."""
    task_id = call.seen_task(task)
    return CriterionListDocument(task_id, False, views.criteria(call.runtime, task_id))


def finding_list(
    call: Call,
    task: Task = "",
    limit: Limit = 20,
    wanted: Literal["all", "accepted", "claims"] = "all",
    before: Annotated[int, Field(ge=0, description="Only findings with a smaller seq; 0 for all")] = 0,
) -> FindingListDocument:
    """List the newest findings: evidence first, then claims."""
    task_id = call.seen_task(task)
    return finding_list_document(call.runtime, task_id, limit=limit, wanted=wanted, before=before)


def direction_list(call: Call, task: Task = "") -> DirectionListDocument:
    """List the directions that were tried, and the owner's directions that wait."""
    mission = MissionStore(call.runtime.home).load(call.seen_task(task))
    return direction_list_document(mission, limit=LIST_LIMIT)


# --- writing


def finding_add(  # noqa: PLR0913, PLR0917 - each parameter is a field of the tool
    call: Call,
    summary: Annotated[str, Field(description="Your observation, in one sentence")],
    kind: FindingKind = "manual",
    criterion: Annotated[
        str, Field(description="Id of the criterion that it is evidence for; empty for none")
    ] = "",
    paths: Annotated[list[str] | None, Field(description="Files that the finding is about")] = None,
    shown_by: Annotated[str, Field(description="The command that showed it, as text; it is not run")] = "",
    finding_id: Annotated[str, Field(description="A unique id; generated if empty")] = "",
) -> FindingDocument:
    """Record a finding: it is evidence if the criterion's rule accepts it, and a claim otherwise."""
    from omx_autoresearch.missions.findings import Submission, add_finding

    task_id = call.own_task()
    submission = Submission(summary, kind, finding_id, shown_by, tuple(paths or ()), criterion)
    recorded = add_finding(call.runtime, task_id, submission, source="mcp")
    return finding_document(call.runtime, task_id, recorded)


def direction_add(
    call: Call,
    summary: Annotated[str, Field(description="The direction that you try next, in one sentence")],
    axes: Annotated[
        dict[str, str] | None, Field(description="The structural axes of the direction: a value by name")
    ] = None,
    is_pivot: Annotated[
        bool, Field(description="The direction changes the structure of the approach")
    ] = False,
) -> DirectionDocument:
    """Declare the direction that you try next."""
    from omx_autoresearch.missions.directions import declare, direction_of

    task_id = call.own_task()
    direction = direction_of(summary, axes or {}, is_pivot=is_pivot)
    return direction_document(task_id, declare(call.runtime, task_id, direction))


def note(call: Call, text: Annotated[str, Field(description="One or more sentences")]) -> NoteDocument:
    """Add a note to the mission. It is a claim: kept and shown, but never proof."""
    from omx_autoresearch.missions import claims

    task_id = call.own_task()
    noted = claims.note(call.runtime, task_id, text, origin="mcp")
    return NoteDocument(task_id, text, not noted.inbox_file_path)


def block(
    call: Call,
    reason: Annotated[str, Field(description="The obstacle")],
    needs: Annotated[str, Field(description="The smallest input from a person that would help")],
) -> MissionStatus:
    """Report that a person must act first. This blocks the mission, notifies the owner and lets you stop.

    It never completes the mission.
    """
    task_id = call.own_task()
    lifecycle_commands.block(call.runtime, task_id, reason=reason, needs=needs, by="agent")
    return _status(call, task_id)


def start(call: Call, task: Task = "") -> tuple[StartDocument, Confirmation]:
    """Launch a draft mission for this session; your client's hook confirms it automatically.

    The hook binds the session by the bind token in the answer; do not show the token anywhere else.
    """
    from omx_autoresearch.missions.launch import StartOptions
    from omx_autoresearch.missions.launch import start as launch

    task_id = views.resolve_task(call.runtime, task) if task else _only_draft(call)
    options = StartOptions(
        reason="started through a tool", client=call.client, is_agent=True, baseline_seconds=WAIT_SECONDS
    )
    started = launch(call.runtime, task_id, options)
    token = f"the bind token is {started.token} and is for your client alone" if started.token else ""
    confirmation = Confirmation(token or "the mission holds this session already")
    return start_document(call.runtime, started), confirmation


# --- running


def validate(call: Call, seconds: Seconds = WAIT_SECONDS) -> RunView:
    """Run the contract's validator now, as a stop would. If it passes, your next stop completes the mission."""
    return _run(call, call.own_task(), seconds, is_review=False)


def review(call: Call, seconds: Seconds = WAIT_SECONDS) -> RunView:
    """Run the contract's reviewer command on the artifact now."""
    return _run(call, call.own_task(), seconds, is_review=True)


def wait(call: Call, task: Task = "", seconds: Seconds = WAIT_SECONDS) -> RunView:
    """Wait for a running validation or review, and show its verdict."""
    task_id = call.seen_task(task)
    running = runs.running_validation(call.runtime, MissionStore(call.runtime.home).load(task_id))
    has_ended = running is None or call.wait(lambda left: wait_for(running, left), seconds)
    return _run_result(call, task_id, is_running=not has_ended)


LOOKING = (status, readiness, criterion_list, finding_list, direction_list, wait)
WRITING = (finding_add, direction_add, note, block, start)
RUNNING = (validate, review)


def mission_tools(runtime: Runtime) -> list[Tool]:
    """The tools of one state home."""
    return [
        make_tool(
            runtime,
            function,
            is_looking=function in LOOKING,
            is_idempotent=function not in (finding_add, direction_add, validate, review),
            text_characters=OUTPUT_CHARACTERS if function in (*RUNNING, wait) else TEXT_CHARACTERS,
        )
        for function in (*LOOKING, *WRITING, *RUNNING)
    ]


def _only_draft(call: Call) -> str:
    """The only draft mission of this project.

    Raises:
        UsageError: there is none, or there are several.
    """
    drafts = views.draft_tasks(call.runtime, os.getcwd())
    if len(drafts) != 1:
        if not drafts:
            raise UsageError(
                "this project has no draft mission",
                next_step="ask the owner to write one: omx-autoresearch init --goal ...",
            )
        raise UsageError(
            f"this project has {len(drafts)} draft missions: {', '.join(drafts[:8])}",
            next_step="call `start` with a task id",
        )
    return drafts[0]


def _status(call: Call, task_id: str) -> MissionStatus:
    view = views.view(call.runtime, task_id, looks=True)
    return view, Ownership(task_id == call.caller.task_id)


def _run(call: Call, task_id: str, seconds: float, *, is_review: bool) -> RunView:
    """Run the command of the owner's contract, with no more rights than the caller's sandbox has."""
    mission = lifecycle_commands.require_runnable(call.runtime, task_id, is_review=is_review)
    ended = validate_now(
        call.runtime, mission, is_sandboxed=call.is_sandboxed(), wait_seconds=seconds, waits=call.wait
    )
    return _run_result(call, task_id, is_running=not ended)


def _run_result(call: Call, task_id: str, *, is_running: bool) -> RunView:
    view = run_view(call.runtime, task_id, is_running=is_running)
    return replace(view, next=_next(view.verdict or "", view.cause or "", is_running=is_running))


def _next(verdict: str, cause: str, *, is_running: bool) -> str:
    if is_running:
        return "call the tool `wait`"
    if verdict == "passed":
        return "stop: the runtime confirms it and completes the mission"
    if verdict == "tampered" and cause != "pins-moved":
        return "run: omx-autoresearch restore"
    return "fix the named problems, then call the tool `validate`" if verdict else "call the tool `validate`"
