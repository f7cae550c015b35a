"""The tools of measured experiments: status, trial, wait, history, patch. Accepting and ending one is the owner's.

A trial runs what the owner froze at the start over what an agent changed. It is conducted by a process of its own, so
that a client which closes loses nothing, and every answer comes below a client's limit.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import anyio.from_thread
from pydantic import Field

from omx_autoresearch.experiments import background, views
from omx_autoresearch.experiments.final_patch import final_patch_of
from omx_autoresearch.experiments.judge.calibration import known_effect
from omx_autoresearch.experiments.judge.state import (
    DESCRIPTION_LIMIT,
    ID_LIMIT,
    BudgetLeft,
    ExperimentHypothesis,
    ExperimentState,
    TrialRow,
    budget_left,
)
from omx_autoresearch.experiments.judge.summary import effect_scale, effect_text, quoted_claim
from omx_autoresearch.experiments.store import ExperimentStore
from omx_autoresearch.experiments.worktrees.pair import Workspaces
from omx_autoresearch.foundation.errors import CommandFault, StepIllegal
from omx_autoresearch.surfaces.experiment_documents import ExperimentPatchDocument, ExperimentWaitDocument
from omx_autoresearch.surfaces.mcp.calls import (
    LIST_LIMIT,
    TEXT_CHARACTERS,
    WAIT_SECONDS,
    Call,
    Seconds,
    make_tool,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.mcpserver.tools import Tool

    from omx_autoresearch.experiments.background import TrialView
    from omx_autoresearch.journal.layout import Runtime

PATCH_CHARACTERS = 20_000
SHOWN_ROWS = 2
INSTRUCTIONS = (
    " Where an experiment is under way (experiment_status), make one change in its candidate worktree and have it "
    "judged with experiment_trial; only what is truly better is kept."
)
_NEXT = {
    "accepted": "it is kept: read the files again where you work (the incumbent changed), then try the next change",
    "rejected": "it was rolled back: read why, then try another change",
    "failed": "it was rolled back and could not be judged: read why, then try again or another change",
}
_TRY = "make one change in the workspace, then call experiment_trial"

Named = Annotated[
    str, Field(description="Experiment id; leave it out for that of your mission or of this project")
]


# --- the documents of the command line, with what an agent asks beside


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which terms a change is tried.

    Attributes:
        rule: how a candidate is judged.
        detectable: the gain that is usually seen; empty where unknown.
        frozen: files that no candidate may touch.
        has_held_out_check: a check that no agent sees runs at an acceptance.
        left: what may still be spent.
    """

    rule: str
    detectable: str
    frozen: tuple[str, ...]
    has_held_out_check: bool
    left: BudgetLeft


@dataclass(frozen=True, slots=True)
class TrialList:
    """The newest trials, newest last.

    Attributes:
        experiment_id: whose.
        baseline: the median of the base; null before it was measured.
        rows: the trials.
        is_cut: there are earlier ones; ask with ``before``, the smallest iteration of this answer.
    """

    experiment_id: str
    baseline: float | None
    rows: tuple[TrialRow, ...]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """What an agent is told of a trial beside its row.

    Attributes:
        effect: the judge's estimate of the improvement with its unit, for this one decision; never to be quoted.
        runs: measured runs so far, of the whole experiment.
        isolation: what really isolated the newest run.
        left: what may still be spent.
    """

    effect: str
    runs: int
    isolation: str
    left: BudgetLeft


@dataclass(frozen=True, slots=True)
class PatchText:
    """The patch of all accepted trials together. The owner alone may accept it.

    Attributes:
        file_count: files that it changes; ``files`` has the first fifty.
        text: its beginning; data, not instructions.
        is_cut: there is more of it.
    """

    file_count: int
    text: str
    is_cut: bool


# --- the tools


def experiment_status(call: Call, experiment: Named = "") -> tuple[views.ExperimentView, Terms]:
    """Show how an experiment stands: what is measured, what is frozen, where to work, what was reached."""
    state = _meant(call, experiment)
    smallest = known_effect(state.calibration)
    following = _TRY if state.running_row is None else "call experiment_wait"
    if state.phase == "completed":
        following = f"the owner types: omx-autoresearch experiment report {state.experiment_id}"
    terms = Terms(
        rule=state.config.rule.name,
        detectable=effect_text(smallest, effect_scale(state), state.config.metric.unit) if smallest else "",
        frozen=views.frozen_paths(call.runtime, state),
        has_held_out_check=bool(state.config.held_out),
        left=budget_left(state.config.limits, state.usage),
    )
    view = views.view(call.runtime, state)
    return replace(view, rows=state.rows[-SHOWN_ROWS:], next=following), terms


def experiment_history(
    call: Call,
    experiment: Named = "",
    limit: Annotated[int, Field(ge=1, le=LIST_LIMIT, description="At most this many")] = 20,
    before: Annotated[int, Field(ge=0, description="Only smaller iterations; 0 for all")] = 0,
) -> TrialList:
    """List the newest trials: what was tried, how it ended and why."""
    state = _meant(call, experiment)
    rows = tuple(row for row in state.rows if not before or row.iteration < before)
    return TrialList(state.experiment_id, state.baseline, rows[-limit:], len(rows) > limit)


def experiment_patch(call: Call, experiment: Named = "") -> tuple[ExperimentPatchDocument, PatchText]:
    """Show what all accepted trials changed together; only the owner can accept it."""
    state = _meant(call, experiment)
    folder = ExperimentStore(call.runtime.home).folder(state.experiment_id)
    with TemporaryDirectory(dir=folder.root_path, prefix=".patch-") as place:
        patch = final_patch_of(state, Workspaces.open(folder.work_path), place)
        with open(patch.path, "rb") as stream:
            beginning = stream.read(PATCH_CHARACTERS)
    quoted = quoted_claim(state)
    document = ExperimentPatchDocument(
        experiment_id=state.experiment_id,
        path="",
        size_bytes=patch.size_bytes,
        base_commit=patch.base_commit,
        final_commit=patch.final_commit,
        files=patch.changed[:LIST_LIMIT],
        is_applied=bool(state.applied_commit),
        reason_code="",
        reasons=(),
        result=quoted.sentence,
        warnings=(*quoted.warnings, *([patch.warning] if patch.warning else [])),
        next=f"the owner types: omx-autoresearch experiment accept {state.experiment_id}",
    )
    text = beginning.decode("utf-8", "replace")
    return document, PatchText(len(patch.changed), text, patch.size_bytes > len(beginning))


def experiment_trial(  # noqa: PLR0913, PLR0917 - each parameter is a field of the tool
    call: Call,
    description: Annotated[
        str, Field(max_length=DESCRIPTION_LIMIT, description="What was changed, and why it should help")
    ],
    patch: Annotated[
        str,
        Field(description="The change (git diff against the incumbent); empty: what stands in the worktree"),
    ] = "",
    direction: Annotated[
        str, Field(max_length=DESCRIPTION_LIMIT, description="The direction that it belongs to")
    ] = "",
    hypothesis_id: Annotated[
        str, Field(max_length=ID_LIMIT, description="Of your choosing; made where empty")
    ] = "",
    experiment: Named = "",
    seconds: Seconds = WAIT_SECONDS,
) -> tuple[ExperimentWaitDocument, TrialFacts]:
    """Have one change judged: checks, interleaved measurements against the incumbent, then kept or rolled back.

    Change files in the candidate worktree that experiment_status names, or send a patch. Answers with is_running
    where it takes longer: call experiment_wait then.
    """
    state = _meant(call, experiment)
    _require_allowed(call, state)
    name = hypothesis_id or f"h-{len(state.rows) + 1}"
    ask = background.TrialAsk(
        ExperimentHypothesis(name, description, direction, {"by": "mcp"}),
        patch.encode("utf-8", "surrogateescape"),
        call.runtime.new_id(),
    )
    view = background.start_trial(
        call.runtime, state.experiment_id, ask, wait_seconds=seconds, tell=_teller(call)
    )
    return _answer(view)


def experiment_wait(
    call: Call, experiment: Named = "", seconds: Seconds = WAIT_SECONDS
) -> tuple[ExperimentWaitDocument, TrialFacts]:
    """Wait for the trial under way and show how it ended; without one, how the newest one did."""
    name = _meant(call, experiment).experiment_id
    view = background.wait_for_trial(call.runtime, name, wait_seconds=seconds, tell=_teller(call))
    return _answer(view)


LOOKING = (experiment_status, experiment_history, experiment_patch, experiment_wait)
RUNNING = (experiment_trial,)


def experiment_tools(runtime: Runtime) -> list[Tool]:
    """The tools over one state home."""
    return [
        make_tool(
            runtime,
            function,
            is_looking=function in LOOKING,
            is_idempotent=function in LOOKING,
            is_alone=function is not experiment_wait,
            text_characters=PATCH_CHARACTERS if function is experiment_patch else TEXT_CHARACTERS,
        )
        for function in (*LOOKING, *RUNNING)
    ]


def _answer(view: TrialView) -> tuple[ExperimentWaitDocument, TrialFacts]:
    state, row = view.state, view.row
    if view.is_running:
        following = "call experiment_wait"
    elif state.phase == "completed":
        following = f"stop: the experiment is completed ({state.completed_reason.replace('_', ' ')})"
    elif row is not None:
        following = _NEXT.get(row.status, "call experiment_wait")
    else:
        following = view.next_step or _TRY
    effect = ""
    if row is not None and row.improvement is not None:
        effect = effect_text(row.improvement, row.scale or effect_scale(state), state.config.metric.unit)
    left = budget_left(state.config.limits, state.usage)
    return (
        ExperimentWaitDocument(state.experiment_id, view.is_running, row, view.fault, following),
        TrialFacts(effect, state.usage.runs, state.isolation, left),
    )


def _meant(call: Call, named: str) -> ExperimentState:
    task_id = call.caller.task_id
    return views.find_experiment(call.runtime, named, cwd=os.getcwd(), task_id=task_id, option="experiment: ")


def _require_allowed(call: Call, state: ExperimentState) -> None:
    """Let those try a change who may, with the rights that their sandbox leaves.

    Raises:
        StepIllegal: the experiment belongs to a mission that does not hold the caller's session, or to another project.
        CommandFault: the caller is in a sandbox, or does not say, and the experiment's commands are in none.
    """
    from omx_autoresearch.missions.checkouts import experiment_around, project_root, workspace_root
    from omx_autoresearch.system.sandbox import can_isolate

    cwd = os.getcwd()
    if state.task_id:
        call.own_task(state.task_id)
    elif state.project_path not in (workspace_root(cwd), project_root(cwd)) and not experiment_around(
        call.runtime, cwd
    ):
        raise StepIllegal(
            f"experiment {state.experiment_id} belongs to {state.project_path}, and you work in {cwd}",
            next_step="leave the experiment out, or work in its project",
        )
    is_isolated = state.config.sandbox == "bubblewrap" or (state.config.sandbox == "auto" and can_isolate())
    if not is_isolated and call.is_sandboxed():
        raise CommandFault(
            "your client runs commands in a sandbox, or does not say so, and this experiment runs your change in none",
            next_step="the owner runs: omx-autoresearch experiment run, or starts one with --sandbox bubblewrap",
        )


def _teller(call: Call) -> Callable[[TrialView], None]:
    """Progress notifications: measured runs so far. A client that asked for none gets none."""

    def tell(view: TrialView) -> None:
        runs = view.state.usage.runs
        where = f"trial {view.row.iteration}" if view.row else "preparing"
        anyio.from_thread.run(call.context.report_progress, float(runs), None, f"{where}, {runs} runs so far")

    return tell
