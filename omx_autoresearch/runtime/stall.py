"""What an iteration achieved, from attested runs, the tree and the records since the last stop; never from prose."""

from __future__ import annotations

from omx_autoresearch.core.evidence import is_better, run_score
from omx_autoresearch.core.stall import Observation
from omx_autoresearch.core.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.budget import Usage
    from omx_autoresearch.core.mission import Mission
    from omx_autoresearch.core.records.directions import PivotRequired


def observe(mission: Mission, *, has_tree_change: bool, used_tools: bool) -> Observation:
    """What the iteration that ends now achieved.

    Args:
        mission: the newest state that was seen.
        has_tree_change: the workspace's content is not that of the last judged stop.
        used_tools: a tool ran since the last answer.
    """
    run = mission.attestation
    is_current = run is not None and run.contract_digest == mission.contract_digest
    score = run_score(run, mission.contract) if run is not None and is_current else None
    direction = mission.contract.score_direction if mission.contract else "higher"
    seen = Observation(
        has_better_score=is_better(mission.best_score, score, direction),
        has_tree_change=has_tree_change,
        has_new_output=bool(
            run and is_current and run.output_mark and run.output_mark not in mission.output_marks
        ),
        has_metric_drop=is_better(score, mission.last_score, direction),
        is_person_turn_without_tools=mission.is_person_turn and not used_tools,
    )
    return with_records(seen, mission, used_tools=used_tools)


def with_records(seen: Observation, mission: Mission, *, used_tools: bool) -> Observation:
    """An observation with what the records since the last stop say of it, on the newest state.

    A reading turn used tools, left the tree as it was, and found something under a declared direction.
    """
    return replace(
        seen,
        has_new_evidence=mission.turn_evidence > 0,
        has_accepted_trial=mission.turn_trials > 0,
        has_pivot=mission.turn_has_pivot,
        has_reading=used_tools
        and not seen.has_tree_change
        and mission.turn_findings > 0
        and mission.has_declared_direction,
        repeats_direction=mission.turn_repeats_direction,
    )


def pivot_demanded(mission: Mission, usage: Usage) -> tuple[PivotRequired, ...]:
    """The record of a stale count that reaches the pivot with ``usage``; none where it had reached it, or does not."""
    if not mission.usage.stale < mission.limits.stale_pivot <= usage.stale:
        return ()
    from omx_autoresearch.core.directions import perturbation
    from omx_autoresearch.core.records.directions import PivotRequired

    return (PivotRequired(usage.stale, perturbation(mission.directions, mission.recent_directions)),)
