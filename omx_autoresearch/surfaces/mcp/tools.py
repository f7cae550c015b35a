"""What each tool does. Looking works on any mission; writing only on the one that holds the caller's session.

A tool answers with the document that its twin on the command line prints with ``--json``; what follows names tools.
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
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.validation import runs
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
    TEXT_CHARACTERS,
    WAIT_SECONDS,
    Call,
    Seconds,
    make_tool,
)
from omx_autoresearch.system.processes import wait_for

if TYPE_CHECKING:
    from mcp.server.mcpserver.tools import Tool

    from omx_autoresearch.journal.layout import Runtime

OUTPUT_CHARACTERS = 4000

Task = Annotated[str, Field(description="Task id; leave it out for the mission that holds this session")]
Limit = Annotated[int, Field(ge=1, le=LIST_LIMIT, description="At most this many")]


@dataclass(frozen=True, slots=True)
class Ownership:
    """What the answer about a mission says beside its view.

    Attributes:
        is_own: this mission holds the session that asks.
    """

    is_own: bool


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What the answer of a start ends with, where a client may cut it: its hook looks for the token in the end.

    Attributes:
        confirmation: by this text the client's hook binds the session; to be shown nowhere else.
    """

    confirmation: str


MissionStatus = tuple[views.StatusView, Ownership]


# --- looking


def status(call: Call, task: Task = "") -> MissionStatus:
    """Show how the mission stands and what is in its way."""
    return _status(call, call.seen_task(task))


def readiness(call: Call, task: Task = "") -> ReadinessReport:
    """Show line by line whether the mission would complete now; runs nothing."""
    return views.readiness(call.runtime, call.seen_task(task))


def criterion_list(call: Call, task: Task = "") -> CriterionListDocument:
    """List the conditions of the contract, with the rule that says what counts for each."""
    task_id = call.seen_task(task)
    return CriterionListDocument(task_id, False, views.criteria(call.runtime, task_id))


def finding_list(
    call: Call,
    task: Task = "",
    limit: Limit = 20,
    wanted: Literal["all", "accepted", "claims"] = "all",
    before: Annotated[int, Field(ge=0, description="Only those with a smaller seq; 0 for all")] = 0,
) -> FindingListDocument:
    """List the newest findings: evidence first, then claims."""
    task_id = call.seen_task(task)
    return finding_list_document(call.runtime, task_id, limit=limit, wanted=wanted, before=before)


def direction_list(call: Call, task: Task = "") -> DirectionListDocument:
    """List the directions that were tried, and those of the owner that wait."""
    mission = MissionStore(call.runtime.home).load(call.seen_task(task))
    return direction_list_document(mission, limit=LIST_LIMIT)


# --- writing


def finding_add(  # noqa: PLR0913, PLR0917 - each parameter is a field of the tool
    call: Call,
    summary: Annotated[str, Field(description="What was observed, in a sentence")],
    kind: FindingKind = "manual",
    criterion: Annotated[str, Field(description="Criterion that it is offered for; empty for none")] = "",
    paths: Annotated[list[str] | None, Field(description="Files that it is about")] = None,
    shown_by: Annotated[str, Field(description="The command that showed it, as text; it is not run")] = "",
    finding_id: Annotated[str, Field(description="Unique; made where empty")] = "",
) -> FindingDocument:
    """Record a finding: evidence where the criterion's own rule accepts it, a claim everywhere else."""
    from omx_autoresearch.missions.findings import Submission, add_finding

    task_id = call.own_task()
    submission = Submission(summary, kind, finding_id, shown_by, tuple(paths or ()), criterion)
    recorded = add_finding(call.runtime, task_id, submission, source="mcp")
    return finding_document(call.runtime, task_id, recorded)


def direction_add(
    call: Call,
    summary: Annotated[str, Field(description="What is tried next, in a sentence")],
    axes: Annotated[
        dict[str, str] | None, Field(description="Structural axes that are meant, by name")
    ] = None,
    is_pivot: Annotated[bool, Field(description="It changes the structure of the approach")] = False,
) -> DirectionDocument:
    """Declare the direction that is taken next."""
    from omx_autoresearch.missions.directions import declare, direction_of

    task_id = call.own_task()
    direction = direction_of(summary, axes or {}, is_pivot=is_pivot)
    return direction_document(task_id, declare(call.runtime, task_id, direction))


def note(call: Call, text: Annotated[str, Field(description="In a sentence or more")]) -> NoteDocument:
    """Leave a note in the mission: a claim, kept and shown, never proof."""
    from omx_autoresearch.missions import claims

    task_id = call.own_task()
    noted = claims.note(call.runtime, task_id, text, origin="mcp")
    return NoteDocument(task_id, text, not noted.inbox_file_path)


def block(
    call: Call,
    reason: Annotated[str, Field(description="What is in the way")],
    needs: Annotated[str, Field(description="The smallest input of a person that would help")],
) -> MissionStatus:
    """Say that a person must act first: the mission is blocked, loudly, and you are let go. Never completes it."""
    task_id = call.own_task()
    lifecycle_commands.block(call.runtime, task_id, reason=reason, needs=needs, by="agent")
    return _status(call, task_id)


def start(call: Call, task: Task = "") -> tuple[StartDocument, Confirmation]:
    """Launch the mission that your person wrote down, for this very session; your client confirms it by itself.

    By the bind token in the answer your client's hook binds the session; show it nowhere else.
    """
    from omx_autoresearch.missions.launch import StartOptions
    from omx_autoresearch.missions.launch import start as launch

    task_id = views.resolve_task(call.runtime, task) if task else _only_draft(call)
    options = StartOptions(
        reason="started through a tool", client=call.client, is_agent=True, baseline_seconds=WAIT_SECONDS
    )
    started = launch(call.runtime, task_id, options)
    token = f"the bind token is {started.token} and is for your client alone" if started.token else ""
    confirmation = Confirmation(token or "this session is held by it already")
    return start_document(call.runtime, started), confirmation


# --- running


def validate(call: Call, seconds: Seconds = WAIT_SECONDS) -> views.RunView:
    """Run the contract's validator now, as a stop would; what passes completes the mission at your next stop."""
    return _run(call, call.own_task(), seconds, is_review=False)


def review(call: Call, seconds: Seconds = WAIT_SECONDS) -> views.RunView:
    """Have the reviewer command of the contract judge the artifact now."""
    return _run(call, call.own_task(), seconds, is_review=True)


def wait(call: Call, task: Task = "", seconds: Seconds = WAIT_SECONDS) -> views.RunView:
    """Wait for a running validation or review and show its verdict."""
    task_id = call.seen_task(task)
    running = runs.running_validation(call.runtime, MissionStore(call.runtime.home).load(task_id))
    return _run_result(call, task_id, is_running=running is not None and not wait_for(running, seconds))


LOOKING = (status, readiness, criterion_list, finding_list, direction_list, wait)
WRITING = (finding_add, direction_add, note, block, start)
RUNNING = (validate, review)


def mission_tools(runtime: Runtime) -> list[Tool]:
    """The tools over one state home."""
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
    """The one mission of this project that was written down and not launched.

    Raises:
        UsageError: there is none, or there are several.
    """
    drafts = views.draft_tasks(call.runtime, os.getcwd())
    if len(drafts) != 1:
        found = (
            f"{len(drafts)} are written down: {', '.join(drafts[:8])}" if drafts else "none is written down"
        )
        raise UsageError(
            f"which mission? {found}",
            next_step="call `start` with a task id; to write one down: omx-autoresearch init --goal ...",
        )
    return drafts[0]


def _status(call: Call, task_id: str) -> MissionStatus:
    view = views.view(call.runtime, task_id, looks=True)
    return view, Ownership(task_id == call.caller.task_id)


def _run(call: Call, task_id: str, seconds: float, *, is_review: bool) -> views.RunView:
    """Run what the owner's contract names, with the rights that the caller's sandbox leaves."""
    mission = lifecycle_commands.require_runnable(call.runtime, task_id, is_review=is_review)
    ended = runs.validate_now(call.runtime, mission, is_sandboxed=call.is_sandboxed(), wait_seconds=seconds)
    return _run_result(call, task_id, is_running=not ended)


def _run_result(call: Call, task_id: str, *, is_running: bool) -> views.RunView:
    view = views.run_view(call.runtime, task_id, is_running=is_running)
    return replace(view, next=_next(view.verdict or "", is_running=is_running))


def _next(verdict: str, *, is_running: bool) -> str:
    if is_running:
        return "call the tool `wait`"
    if verdict == "passed":
        return "stop: the runtime confirms it and completes the mission"
    if verdict == "tampered":
        return "run: omx-autoresearch restore"
    return "work on what it says, then call the tool `validate`" if verdict else "call the tool `validate`"
