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

from omx_autoresearch.core.experiments import DESCRIPTION_LIMIT, ID_LIMIT
from omx_autoresearch.runtime.context import Runtime
from omx_autoresearch.surfaces.mcp.calls import begun
from omx_autoresearch.surfaces.mcp.experiment_answers import (
    history_answer,
    patch_answer,
    status_answer,
    trial_answer,
)
from omx_autoresearch.surfaces.mcp.experiment_results import (
    ExperimentStatus,
    PatchResult,
    TrialList,
    TrialResult,
)
from omx_autoresearch.surfaces.mcp.tools import LIST_LIMIT, WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.mcpserver import MCPServer

    from omx_autoresearch.core.experiments import ExperimentState
    from omx_autoresearch.runtime.experiments.background import TrialView
    from omx_autoresearch.surfaces.mcp.calls import Call

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
        from omx_autoresearch.runtime.experiments.views import look_at_patch

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
        from omx_autoresearch.core.experiments import ExperimentHypothesis
        from omx_autoresearch.runtime.experiments.background import TrialAsk, start_trial

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
        from omx_autoresearch.runtime.experiments.background import wait_for_trial

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
    from omx_autoresearch.runtime.experiments.views import find_experiment

    task_id = call.caller.task_id
    return find_experiment(call.runtime, named, cwd=os.getcwd(), task_id=task_id, option="experiment: ")


def _require_allowed(call: Call, state: ExperimentState) -> None:
    """Let those try a change who may, with the rights that their sandbox leaves.

    Raises:
        StepIllegal: the experiment belongs to a mission that does not hold the caller's session, or to another project.
        CommandFault: the caller is in a sandbox, or does not say, and the experiment's commands are in none.
    """
    from omx_autoresearch.errors import CommandFault, StepIllegal
    from omx_autoresearch.runtime.checkouts import experiment_around, project_root, workspace_root
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
