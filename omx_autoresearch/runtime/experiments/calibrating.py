"""The baseline: the base is checked, and measured against itself in both worktrees."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from omx_autoresearch.core.acceptance import calibrate, orders
from omx_autoresearch.core.experiment_budget import budget_left
from omx_autoresearch.core.experiment_events import BaselineEstablished
from omx_autoresearch.core.guards import guard_failures
from omx_autoresearch.core.metrics import samples_of
from omx_autoresearch.runtime.experiments.ending import failed
from omx_autoresearch.runtime.experiments.judging import seed_of, value_of
from omx_autoresearch.runtime.experiments.measuring import Place

if TYPE_CHECKING:
    from omx_autoresearch.core.experiments import ExperimentConfig
    from omx_autoresearch.runtime.experiments.measuring import Measuring, PairRuns
    from omx_autoresearch.runtime.experiments.recording import ExperimentLog
    from omx_autoresearch.runtime.experiments.site import Site
    from omx_autoresearch.runtime.experiments.steps import Steps

LEAST_PAIRS = 2
BUDGET_SHARE = 4
"""A calibration takes at most a quarter of the budget of runs: what it measures is to be used, too."""


def measure_baseline(site: Site, steps: Steps) -> BaselineEstablished:
    """Check the base, measure A/A pairs across both worktrees, and calibrate.

    Raises:
        TrialEnded: the base does not pass its own check or guards, gives no metric, or a budget is spent.
    """
    log, state = site.log, site.log.state
    measuring = site.measuring(steps, Place(0, "calibration"))
    config = state.config
    site.set_up(measuring, "candidate")
    measuring.check("candidate")
    measuring.check_held_out("candidate")
    measuring.warm_up("candidate")
    site.make_ready(measuring, "incumbent")
    pairs = _pairs(measuring, config, _pair_count(log))
    _require_guards(config, pairs)
    values = [
        (value_of(pair.incumbent.metric), value_of(pair.candidate.metric), pair.is_candidate_first)
        for pair in pairs
    ]
    samples = tuple(value for first, second, _ in values for value in (first, second))
    return BaselineEstablished(
        metric=median(samples),
        calibration=calibrate(values, config.rule),
        samples=samples,
        checkpoint=state.base_commit,
        usage=log.usage(),
    )


def _pair_count(log: ExperimentLog) -> int:
    left = budget_left(log.state.config.limits, log.usage()).runs
    wanted = log.state.config.calibration_pairs
    return wanted if left is None else max(LEAST_PAIRS, min(wanted, left // (2 * BUDGET_SHARE)))


def _pairs(measuring: Measuring, config: ExperimentConfig, count: int) -> list[PairRuns]:
    order = orders(seed_of(config.seed, 0))
    return [measuring.pair(number, is_candidate_first=next(order)) for number in range(1, count + 1)]


def _require_guards(config: ExperimentConfig, pairs: list[PairRuns]) -> None:
    """The base must keep the bounds that every candidate is held to; how much worse it may get is not asked here."""
    bounds = [guard for guard in config.guards if guard.bound is not None]
    others = samples_of([run.others for pair in pairs for run in (pair.incumbent, pair.candidate)])
    for guard in config.guards:
        if guard.name not in others:
            raise failed(
                "guard_failed", f"the unchanged repository gives no metric {guard.name} for its guard"
            )
    reasons = guard_failures(bounds, others, others)
    if reasons:
        raise failed("guard_failed", f"the unchanged repository breaks a guard: {'; '.join(reasons)}")
