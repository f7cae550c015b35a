"""The tools of measured experiments: status, trial, wait, history, patch. Accepting and ending one is the owner's.

A trial runs what the owner froze at the start over what an agent changed. It is conducted by a process of its own, so
that a client which closes loses nothing, and every answer comes below a client's limit.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import anyio.from_thread
from mcp.server.mcpserver import Context
from mcp_types import ToolAnnotations
from pydantic import Field

from omx_autoresearch.experiments.judge.calibration import known_effect
from omx_autoresearch.experiments.judge.state import (
    DESCRIPTION_LIMIT,
    ID_LIMIT,
    ExperimentState,
    TrialRow,
    budget_left,
)
from omx_autoresearch.experiments.judge.summary import count_kinds, effect_scale, effect_text, quoted_claim
from omx_autoresearch.journal.layout import Runtime
from omx_autoresearch.surfaces.mcp.calls import Call, begun
from omx_autoresearch.surfaces.mcp.results import (
    BudgetItem,
    ExperimentStatus,
    PatchFile,
    PatchResult,
    TrialItem,
    TrialList,
    TrialResult,
    fitted,
    shown,
)
from omx_autoresearch.surfaces.mcp.tools import LIST_LIMIT, WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.mcpserver import MCPServer

    from omx_autoresearch.experiments.background import TrialView
    from omx_autoresearch.experiments.views import PatchLook


# --- From an experiment's state to what the tools answer; texts of others are cut, and said to be.

PATHS_SHOWN = 50
OUTPUT_CHARACTERS = 4000

_NEXT = {
    "accepted": "it is kept: read the files again where you work (the incumbent changed), then try the next change",
    "rejected": "it was rolled back: read why, then try another change",
    "failed": "it was rolled back and could not be judged: read why, then try again or another change",
}


def status_answer(runtime: Runtime, state: ExperimentState) -> ExperimentStatus:
    """How an experiment stands."""
    from omx_autoresearch.experiments.views import candidate_path, frozen_paths, is_at_work

    counts, quoted, metric = count_kinds(state.rows), quoted_claim(state), state.config.metric
    calibration = state.calibration
    smallest = known_effect(calibration)
    ended = [row for row in state.rows if row.status != "running"]
    return ExperimentStatus(
        experiment_id=state.experiment_id,
        name=state.config.name,
        task_id=state.task_id,
        phase=state.phase,
        completed_reason=state.completed_reason,
        metric=metric.name,
        unit=metric.unit,
        direction=metric.direction,
        baseline=state.baseline,
        regime=calibration.regime if calibration else "",
        detectable=effect_text(smallest, effect_scale(state), metric.unit) if smallest else "",
        rule=state.config.rule.name,
        trials=len(state.rows),
        accepted=counts["accepted"],
        rejected=counts["rejected"],
        failed=counts["failed"],
        tampered=counts["tampered"],
        incumbent_commit=state.incumbent_commit,
        workspace=candidate_path(runtime, state.experiment_id),
        frozen=[shown(path) for path in frozen_paths(runtime, state)[:PATHS_SHOWN]],
        has_held_out_check=bool(state.config.held_out),
        result=quoted.sentence,
        warnings=list(quoted.warnings),
        left=_left(state),
        isolation=state.isolation,
        is_at_work=is_at_work(state),
        running=_item(state, state.running_row) if state.running_row else None,
        last=_item(state, ended[-1]) if ended else None,
        next=_status_next(state),
    )


def _status_next(state: ExperimentState) -> str:
    if state.phase == "completed":
        return f"the owner types: omx-autoresearch experiment report {state.experiment_id}"
    if state.running_row is not None:
        return "call experiment_wait"
    return "make one change in the workspace, then call experiment_trial"


def history_answer(state: ExperimentState, limit: int, before: int) -> TrialList:
    """The newest trials."""
    rows = [row for row in state.rows if not before or row.iteration < before]
    return TrialList(
        experiment_id=state.experiment_id,
        baseline=state.baseline,
        trials=[_item(state, row) for row in rows[-limit:]],
        is_cut=len(rows) > limit,
    )


def trial_answer(view: TrialView) -> TrialResult:
    """What became of a trial."""
    state, row = view.state, view.row
    if view.is_running:
        following = "call experiment_wait"
    elif row is not None:
        following = _NEXT.get(row.status, "call experiment_wait")
    else:
        following = view.next_step or "make one change in the workspace, then call experiment_trial"
    if state.phase == "completed" and not view.is_running:
        following = f"stop: the experiment is completed ({state.completed_reason.replace('_', ' ')})"
    return TrialResult(
        experiment_id=state.experiment_id,
        is_running=view.is_running,
        trial=_item(state, row) if row else None,
        runs=state.usage.runs,
        fault=shown(view.fault),
        isolation=state.isolation,
        left=_left(state),
        next=following,
    )


def patch_answer(state: ExperimentState, look: PatchLook, limit: int) -> PatchResult:
    """What all accepted trials changed together."""
    quoted = quoted_claim(state)
    warnings = [*quoted.warnings, *([look.warning] if look.warning else [])]
    return PatchResult(
        experiment_id=state.experiment_id,
        base_commit=state.base_commit,
        final_commit=state.incumbent_commit,
        files=[fitted(PatchFile, change) for change in look.changed[:limit]],
        file_count=len(look.changed),
        size_bytes=look.size_bytes,
        text=look.beginning.decode("utf-8", "replace"),
        is_cut=look.size_bytes > len(look.beginning),
        result=quoted.sentence,
        warnings=warnings,
        next=f"the owner types: omx-autoresearch experiment accept {state.experiment_id}",
    )


def _left(state: ExperimentState) -> BudgetItem:
    return fitted(BudgetItem, budget_left(state.config.limits, state.usage))  # type: ignore[no-any-return]


def _item(state: ExperimentState, row: TrialRow) -> TrialItem:
    text = ""
    if row.improvement is not None:
        text = effect_text(row.improvement, row.scale or effect_scale(state), state.config.metric.unit)
    return TrialItem(
        iteration=row.iteration,
        hypothesis_id=shown(row.hypothesis_id),
        description=shown(row.description),
        status=row.status,
        reason_code=row.reason_code,
        reason=shown(row.reason),
        metric=row.metric,
        improvement=row.improvement,
        improvement_text=text,
        pairs=row.pairs,
        changed_paths=[shown(path) for path in row.changed_paths[:PATHS_SHOWN]],
        direction=shown(row.direction),
        cost_usd=row.cost_usd,
        duration_seconds=row.duration_seconds,
    )


EXPERIMENT_LOOKING = ("experiment_status", "experiment_history", "experiment_patch", "experiment_wait")
EXPERIMENT_RUNNING = ("experiment_trial",)
PATCH_CHARACTERS = 20_000
INSTRUCTIONS = (
    " Where an experiment is under way (experiment_status), make one change in its candidate worktree and have it "
    "judged with experiment_trial; only what is truly better is kept."
)

_Context = Context[Any, Any]
_Named = Annotated[
    str, Field(description="Experiment id; leave it out for that of your mission or of this project")
]
_Seconds = Annotated[
    float, Field(ge=0, le=50, description="Wait at most this long; the trial goes on by itself")
]


class ExperimentTools:
    """The tools over one state home.

    Args:
        runtime: the world.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def experiment_status(self, ctx: _Context, experiment: _Named = "") -> ExperimentStatus:
        """Show how an experiment stands: what is measured, what is frozen, where to work, what was reached."""
        with begun(self._runtime, ctx) as call:
            return status_answer(call.runtime, _meant(call, experiment))

    def experiment_history(
        self,
        ctx: _Context,
        experiment: _Named = "",
        limit: Annotated[int, Field(ge=1, le=LIST_LIMIT, description="At most this many")] = 20,
        before: Annotated[int, Field(ge=0, description="Only smaller iterations; 0 for all")] = 0,
    ) -> TrialList:
        """List the newest trials: what was tried, how it ended and why."""
        with begun(self._runtime, ctx) as call:
            return history_answer(_meant(call, experiment), limit, before)

    def experiment_patch(self, ctx: _Context, experiment: _Named = "") -> PatchResult:
        """Show what all accepted trials changed together; only the owner can accept it."""
        from omx_autoresearch.experiments.views import look_at_patch

        with begun(self._runtime, ctx) as call:
            state = _meant(call, experiment)
            return patch_answer(state, look_at_patch(call.runtime, state, PATCH_CHARACTERS), LIST_LIMIT)

    def experiment_trial(  # noqa: PLR0913, PLR0917 - each parameter is a field of the tool
        self,
        ctx: _Context,
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
        experiment: _Named = "",
        seconds: _Seconds = WAIT_SECONDS,
    ) -> TrialResult:  # fmt: skip
        """Have one change judged: checks, interleaved measurements against the incumbent, then kept or rolled back.

        Change files in the candidate worktree that experiment_status names, or send a patch. Answers with is_running
        where it takes longer: call experiment_wait then.
        """
        from omx_autoresearch.experiments.background import TrialAsk, start_trial
        from omx_autoresearch.experiments.judge.state import ExperimentHypothesis

        with begun(self._runtime, ctx) as call:
            state = _meant(call, experiment)
            _require_allowed(call, state)
            number = len(state.rows) + 1
            ask = TrialAsk(
                ExperimentHypothesis(hypothesis_id or f"h-{number}", description, direction, {"by": "mcp"}),
                patch.encode("utf-8", "surrogateescape"),
                call.runtime.new_id(),
            )
            view = start_trial(
                call.runtime, state.experiment_id, ask, wait_seconds=seconds, tell=_teller(ctx)
            )
            return trial_answer(view)

    def experiment_wait(
        self, ctx: _Context, experiment: _Named = "", seconds: _Seconds = WAIT_SECONDS
    ) -> TrialResult:
        """Wait for the trial under way and show how it ended; without one, how the newest one did."""
        from omx_autoresearch.experiments.background import wait_for_trial

        with begun(self._runtime, ctx, is_alone=False) as call:
            state = _meant(call, experiment)
            view = wait_for_trial(call.runtime, state.experiment_id, wait_seconds=seconds, tell=_teller(ctx))
            return trial_answer(view)


def add_experiment_tools(server: MCPServer, runtime: Runtime) -> None:
    """Let a server offer them."""
    tools = ExperimentTools(runtime)
    for name in (*EXPERIMENT_LOOKING, *EXPERIMENT_RUNNING):
        hints = ToolAnnotations(
            read_only_hint=name in EXPERIMENT_LOOKING,
            destructive_hint=False,
            idempotent_hint=name in EXPERIMENT_LOOKING,
            open_world_hint=False,
        )
        function = getattr(tools, name)
        server.add_tool(
            function,
            name=name,
            description=" ".join(function.__doc__.split()),
            annotations=hints,
            structured_output=True,
        )


def _meant(call: Call, named: str) -> ExperimentState:
    from omx_autoresearch.experiments.views import find_experiment

    task_id = call.caller.task_id
    return find_experiment(call.runtime, named, cwd=os.getcwd(), task_id=task_id, option="experiment: ")


def _require_allowed(call: Call, state: ExperimentState) -> None:
    """Let those try a change who may, with the rights that their sandbox leaves.

    Raises:
        StepIllegal: the experiment belongs to a mission that does not hold the caller's session, or to another project.
        CommandFault: the caller is in a sandbox, or does not say, and the experiment's commands are in none.
    """
    from omx_autoresearch.foundation.errors import CommandFault, StepIllegal
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


def _teller(ctx: _Context) -> Callable[[TrialView], None]:
    """Progress notifications: measured runs so far. A client that asked for none gets none."""

    def tell(view: TrialView) -> None:
        row = view.row
        where = f"trial {row.iteration}" if row else "preparing"
        anyio.from_thread.run(
            ctx.report_progress,
            float(view.state.usage.runs),
            None,
            f"{where}, {view.state.usage.runs} runs so far",
        )

    return tell
