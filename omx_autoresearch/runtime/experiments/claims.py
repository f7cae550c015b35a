"""The verified claim: base against final on fresh interleaved pairs; the only number that may be quoted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omx_autoresearch.core.acceptance import claim, orders
from omx_autoresearch.core.experiment_budget import budget_left
from omx_autoresearch.core.experiment_events import ClaimVerified
from omx_autoresearch.core.experiment_plans import DETERMINISTIC_PAIRS
from omx_autoresearch.runtime.experiments.ending import TrialEnded
from omx_autoresearch.runtime.experiments.judging import seed_of, value_of
from omx_autoresearch.runtime.experiments.measuring import ARMS, Place

if TYPE_CHECKING:
    from omx_autoresearch.runtime.experiments.measuring import Measuring
    from omx_autoresearch.runtime.experiments.recording import ExperimentLog
    from omx_autoresearch.runtime.experiments.site import Site
    from omx_autoresearch.runtime.experiments.steps import Steps

LEAST_PAIRS = 2
_STRETCH = 5


def measure_claim(site: Site, steps: Steps) -> ClaimVerified:
    """Measure base (arm ``incumbent``) against final (arm ``candidate``), and run the held-out check on the final.

    Raises:
        TrialEnded: a run did not do what it should, a budget is spent, or somebody cancelled.
    """
    log, state = site.log, site.log.state
    measuring = site.measuring(steps, Place(-1, "claim"))
    for arm in ARMS:
        site.set_up(measuring, arm)
    held_out = _held_out(measuring) if state.config.held_out else ""
    for arm in ARMS:
        measuring.warm_up(arm)
    calibration = state.calibration
    is_exact = calibration is not None and calibration.regime == "deterministic"
    order = orders(seed_of(state.config.seed, len(state.rows) + 1, _STRETCH))
    values: list[tuple[float, float, bool]] = []
    wanted = _pair_count(log)
    while len(values) < wanted:
        pair = measuring.pair(len(values) + 1, is_candidate_first=next(order))
        values.append(
            (value_of(pair.incumbent.metric), value_of(pair.candidate.metric), pair.is_candidate_first)
        )
        repeats = len({base for base, _, _ in values}) == len({final for _, final, _ in values}) == 1
        if is_exact and repeats and len(values) >= DETERMINISTIC_PAIRS:
            break
    return ClaimVerified(
        claim=claim(values, state.config.rule, calibration),
        commit=state.incumbent_commit,
        held_out=held_out,
        usage=log.usage(),
    )


def _pair_count(log: ExperimentLog) -> int:
    left = budget_left(log.state.config.limits, log.usage()).runs
    wanted = log.state.config.claim_pairs
    return wanted if left is None else max(LEAST_PAIRS, min(wanted, left // 2))


def _held_out(measuring: Measuring) -> str:
    try:
        measuring.check_held_out("candidate")
    except TrialEnded as end:
        if end.code != "held_out_failed":
            raise
        return "failed"
    return "passed"
