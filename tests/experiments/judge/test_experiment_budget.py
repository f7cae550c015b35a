"""Budgets: what is left, what is spent, and what no total takes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from omx_autoresearch.experiments.configuration import checked_config, limit_faults
from omx_autoresearch.experiments.judge.metrics import MetricSpec
from omx_autoresearch.experiments.judge.state import (
    ExperimentConfig,
    ExperimentLimits,
    ExperimentUsage,
    budget_left,
    charge,
    checked_cost,
    spent_budget,
)
from omx_autoresearch.foundation.errors import MissionInvalid, UsageError


@pytest.mark.case("BUD-01")
@pytest.mark.requirement("EXP-09")
@pytest.mark.parametrize("cost", [math.nan, math.inf, -math.inf, -5, None, "1", True, [1.0]])
def test_a_cost_that_is_none_is_refused_and_the_total_stays(cost: object) -> None:
    before = ExperimentUsage(cost_usd=2.0)
    with pytest.raises(UsageError, match="cost_usd"):
        charge(before, cost_usd=cost)
    assert charge(before, cost_usd=1).cost_usd == 3.0


@pytest.mark.case("BUD-01")
def test_a_total_that_would_not_be_finite_is_refused_and_the_cap_is_reached_before() -> None:
    once = charge(ExperimentUsage(), cost_usd=1e308)
    assert spent_budget(ExperimentLimits(cost_usd=10.0), once) == "budget_cost"
    with pytest.raises(UsageError, match="not add up to a finite number"):
        charge(once, cost_usd=1e308)


def test_a_cost_may_be_a_whole_number_and_nothing() -> None:
    assert checked_cost(3) == 3.0
    assert checked_cost(0.0) == 0.0


@pytest.mark.case("BUD-01")
@pytest.mark.parametrize("value", [math.nan, math.inf, -1, "5", None, True])
def test_a_limit_that_is_no_number_is_refused_by_name(value: object) -> None:
    limits = replace(ExperimentLimits(), cost_usd=value)  # type: ignore[arg-type]
    assert [fault.field for fault in limit_faults(limits)] == ["limits.cost_usd"]
    config = ExperimentConfig("x", MetricSpec("ms"), measure="m", check="c", limits=limits)
    with pytest.raises(MissionInvalid, match=r"limits\.cost_usd"):
        checked_config(config)


@pytest.mark.parametrize(
    ("usage", "reason"),
    [
        (ExperimentUsage(), None),
        (ExperimentUsage(trials=3), "budget_trials"),
        (ExperimentUsage(wall_seconds=60.0, trials=3), "budget_wall"),
        (ExperimentUsage(cost_usd=5.5), "budget_cost"),
        (ExperimentUsage(disk_bytes=2000), "budget_disk"),
        (ExperimentUsage(runs=100), "budget_runs"),
    ],
)
def test_the_spent_budget_is_named(usage: ExperimentUsage, reason: str | None) -> None:
    limits = ExperimentLimits(trials=3, wall_seconds=60.0, cost_usd=5.0, disk_bytes=2000, runs=100)
    assert spent_budget(limits, usage) == reason


@pytest.mark.parametrize(
    ("limits", "usage", "reason"),
    [
        (ExperimentLimits(trials=1), ExperimentUsage(trials=1), "budget_trials"),
        (ExperimentLimits(cost_usd=1.0), ExperimentUsage(cost_usd=2.0), "budget_cost"),
    ],
)
def test_neither_the_number_of_trials_nor_the_cost_ends_the_trial_under_way(
    limits: ExperimentLimits, usage: ExperimentUsage, reason: str
) -> None:
    assert spent_budget(limits, usage, is_in_trial=True) is None
    assert spent_budget(limits, usage) == reason


def test_what_is_left_is_never_negative_and_none_without_a_limit() -> None:
    left = budget_left(
        ExperimentLimits(trials=2, wall_seconds=10.0), ExperimentUsage(trials=1, wall_seconds=12.5)
    )
    assert (left.trials, left.wall_seconds, left.cost_usd, left.runs) == (1, 0.0, None, None)


def test_a_configuration_names_every_fault_at_once() -> None:
    broken = ExperimentConfig(
        "", MetricSpec(""), measure=" ", check="", keep=("../x",), target=math.nan, calibration_pairs=1
    )
    with pytest.raises(MissionInvalid) as caught:
        checked_config(broken)
    for word in (
        "name:",
        "measure:",
        "check:",
        "keep:",
        "target:",
        "calibration_pairs:",
        "a metric needs a name",
    ):
        assert word in str(caught.value)


def test_the_rule_judges_in_the_direction_of_the_metric() -> None:
    config = ExperimentConfig("x", MetricSpec("score", "higher"), measure="m", check="c")
    assert checked_config(config).rule.direction == "higher"
