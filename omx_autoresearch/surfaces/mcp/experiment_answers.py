"""From an experiment's state to what the tools answer; texts of others are cut, and said to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omx_autoresearch.core.calibration import known_effect
from omx_autoresearch.core.experiment_budget import budget_left
from omx_autoresearch.core.experiment_summary import count_kinds, effect_scale, effect_text, quoted_claim
from omx_autoresearch.surfaces.mcp.experiment_results import (
    BudgetItem,
    ExperimentStatus,
    PatchFile,
    PatchResult,
    TrialItem,
    TrialList,
    TrialResult,
)
from omx_autoresearch.surfaces.mcp.results import fitted, shown

if TYPE_CHECKING:
    from omx_autoresearch.core.experiments import ExperimentState, TrialRow
    from omx_autoresearch.runtime.context import Runtime
    from omx_autoresearch.runtime.experiments.background import TrialView
    from omx_autoresearch.runtime.experiments.views import PatchLook

PATHS_SHOWN = 50
OUTPUT_CHARACTERS = 4000

_NEXT = {
    "accepted": "it is kept: read the files again where you work (the incumbent changed), then try the next change",
    "rejected": "it was rolled back: read why, then try another change",
    "failed": "it was rolled back and could not be judged: read why, then try again or another change",
}


def status_answer(runtime: Runtime, state: ExperimentState) -> ExperimentStatus:
    """How an experiment stands."""
    from omx_autoresearch.runtime.experiments.views import candidate_path, frozen_paths, is_at_work

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
