"""Experiments as folded states, as short as the tests that show them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from omx_autoresearch.experiments.judge.calibration import calibrate
from omx_autoresearch.experiments.judge.metrics import MetricSpec
from omx_autoresearch.experiments.judge.state import (
    Claim,
    ExperimentConfig,
    ExperimentState,
    ExperimentUsage,
    TrialRow,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

BASE = "b" * 40
METRIC = MetricSpec("total_ms", unit="ms")


def at(minute: int) -> str:
    return f"2026-01-02T{3 + minute // 60:02}:{minute % 60:02}:00.000000Z"


def commit(number: int) -> str:
    return f"{number:02x}" * 20


def a_row(iteration: int, **changes: Any) -> TrialRow:
    row = TrialRow(
        iteration=iteration,
        hypothesis_id=f"h-{iteration}",
        description="use the smaller allocation path",
        status="rejected",
        checkpoint=BASE,
        started_at=at(iteration),
        ended_at=at(iteration + 1),
    )
    return replace(row, **changes)


def judged(iteration: int, incumbent: float, candidate: float, **changes: Any) -> TrialRow:
    """A trial that was measured: eight pairs around two medians."""
    spread = (0.98, 1.02, 0.99, 1.01, 1.0, 1.0, 0.985, 1.015)
    gain = (incumbent - candidate) / incumbent
    values: dict[str, Any] = {
        "status": "rejected",
        "metric": candidate,
        "samples": tuple(candidate * part for part in spread),
        "incumbent_samples": tuple(incumbent * part for part in spread),
        "improvement": gain,
        "interval": (gain - 0.015, gain + 0.015),
        "pairs": len(spread),
        "reason_code": "inconclusive",
        "reason": "no gain was shown in 8 pairs",
        "cost_usd": 0.12,
        "duration_seconds": 61.5,
        "others": {"peak_mb": 12.5},
        "metadata": {"model": "m-1"},
    }
    return a_row(iteration, **(values | changes))


def accepted(iteration: int, incumbent: float, candidate: float, **changes: Any) -> TrialRow:
    values: dict[str, Any] = {
        "status": "accepted",
        "reason_code": "improved",
        "reason": "better in 8 pairs",
        "candidate_commit": commit(iteration),
        "changed_paths": ("src/a.py",),
    }
    return judged(iteration, incumbent, candidate, **(values | changes))


def a_state(rows: Sequence[TrialRow] = (), **changes: Any) -> ExperimentState:
    """An experiment around 100 ms, calibrated, with these trials."""
    steps = [row.candidate_commit for row in rows if row.status == "accepted"]
    state = ExperimentState(
        experiment_id="20260102-030405-speed",
        project_path="/home/me/project",
        config=ExperimentConfig("speed", METRIC, measure="./measure.sh", check="./check.sh"),
        base_commit=BASE,
        incumbent_commit=steps[-1] if steps else BASE,
        checkpoints=tuple(steps),
        phase="ready",
        baseline=100.0,
        baseline_samples=(99.0, 100.0, 101.0),
        calibration=calibrate([(100.0 + n % 3, 101.0 - n % 2, n % 2 == 0) for n in range(15)]),
        rows=tuple(rows),
        usage=ExperimentUsage(trials=len(rows), wall_seconds=3661.0, cost_usd=0.48, runs=80),
        started_at=at(0),
        updated_at=at(len(rows) + 1),
    )
    return replace(state, **changes)


def a_claim(estimate: float = 0.231, low: float = 0.218, high: float = 0.245) -> Claim:
    return Claim(estimate=estimate, interval=(low, high), pairs=30, has_gain=low > 0)


def a_story() -> ExperimentState:
    """Every way in which a trial ends, two accepted steps, verified."""
    rows = (
        judged(1, 100.0, 101.5),
        accepted(2, 100.0, 90.0),
        a_row(3, status="failed", reason_code="metric_missing", reason="no METRIC line"),
        a_row(4, reason_code="tampered", reason="check.sh was edited", changed_paths=("check.sh",)),
        judged(5, 90.0, 90.4),
        accepted(6, 90.0, 77.0),
        judged(7, 77.0, 79.0, reason_code="no_better"),
        a_row(8, reason_code="check_failed", reason="the check ended with 1"),
        a_row(9, status="running", ended_at=""),
    )
    state = a_state(rows, claim=a_claim(), claim_commit=commit(6))
    return replace(state, phase="running")


def a_long_story(count: int = 1000, seed: int = 7) -> ExperimentState:
    """Many trials around a slowly falling incumbent."""
    chance, value = Random(seed), 100.0
    rows: list[TrialRow] = []
    for number in range(1, count + 1):
        draw = chance.random()
        if draw < 0.02:
            rows.append(accepted(number, value, value * 0.985))
            value *= 0.985
        elif draw < 0.1:
            rows.append(a_row(number, status="failed", reason_code="timed_out", reason="no end in 600 s"))
        else:
            rows.append(judged(number, value, value * chance.gauss(1.01, 0.01)))
    return a_state(rows)
