"""Options and the block of a sandbox.md become one configuration; every fault is told at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.experiments.configuration import configure, guard_of, read_block, share_of, size_of
from omx_autoresearch.experiments.judge.metrics import Guard
from omx_autoresearch.foundation.errors import MissionInvalid, UsageError

if TYPE_CHECKING:
    from pathlib import Path

NEEDED: dict[str, Any] = {"metric": "total_ms", "measure": "./measure.sh", "check": "./check.sh"}
BLOCK = """\
---
validation_mode: mission-validator-script
validator_command: ./check.sh
experiment:
  metric: total_ms
  measure: ./measure.sh
  check: ./check.sh
  guard: ["peak_mb<=512"]
  budget_hours: 8
  env: {LEVEL: "3"}
---
Text.
"""


@pytest.mark.requirement("DRIVE-01")
def test_options_alone_make_a_configuration_with_the_documented_defaults() -> None:
    config = configure(NEEDED)
    assert (config.name, config.metric.name, config.metric.source, config.sandbox) == (
        "total_ms",
        "total_ms",
        "line",
        "none",
    )
    assert (config.limits.trials, config.limits.wall_seconds, config.calibration_pairs) == (40, 0.0, 15)
    assert (config.rule.name, config.rule.alpha, config.rule.direction) == ("hybrid", 0.01, "lower")


@pytest.mark.requirement("DRIVE-01")
def test_what_is_seen_from_outside_has_its_own_unit() -> None:
    assert configure({**NEEDED, "source": "wall"}).metric.unit == "s"
    assert configure({**NEEDED, "source": "memory", "unit": "B"}).metric.unit == "B"
    assert configure({**NEEDED, "unit": "MB"}).metric.unit == "MB"
    with pytest.raises(UsageError, match="the source memory is in B; leave the unit out"):
        configure({**NEEDED, "source": "memory", "unit": "MB"})


@pytest.mark.requirement("DRIVE-01")
def test_a_gain_that_nothing_can_reach_is_refused() -> None:
    assert configure({**NEEDED, "min_effect": "200%", "direction": "higher"}).rule.min_effect == 2.0
    with pytest.raises(UsageError, match="a value cannot fall by more than 100 %"):
        configure({**NEEDED, "min_effect": "200%"})


@pytest.mark.requirement("DRIVE-01")
@pytest.mark.parametrize(
    ("more", "least"),
    [
        ({}, 18),
        ({"warmups": 0}, 12),
        ({"reverification": "off"}, 12),
        ({"rule": "median", "runs": 3, "warmups": 2}, 18),
    ],
)
def test_a_budget_of_runs_that_ends_before_a_trial_is_refused_with_the_least_that_works(
    more: dict[str, Any], least: int
) -> None:
    assert configure({**NEEDED, **more, "budget_runs": least}).limits.runs == least
    assert configure({**NEEDED, **more, "budget_runs": 0}).limits.runs == 0
    with pytest.raises(UsageError, match=rf"--budget-runs: must be {least} or more"):
        configure({**NEEDED, **more, "budget_runs": least - 1})


@pytest.mark.case("BUD-01")
@pytest.mark.requirement("DRIVE-01")
@pytest.mark.parametrize("cost", [0, 0.0, -1.0, float("nan"), float("inf")])
def test_a_cap_of_costs_that_caps_nothing_is_refused(cost: float, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"budget.cost"):
        configure({**NEEDED, "budget_cost": cost})
    if cost == 0:
        path = tmp_path / "sandbox.md"
        path.write_text(BLOCK.replace("budget_hours: 8", "budget_cost: 0"))
        with pytest.raises(UsageError, match="budget_cost: must be above 0; leave it out for no limit"):
            configure({}, block=read_block(str(path)))
    assert configure(NEEDED).limits.cost_usd == 0.0


@pytest.mark.requirement("DRIVE-01", "WORK-01")
def test_an_experiment_has_the_work_of_its_mission_unless_it_names_its_own(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.md"
    path.write_text(BLOCK.replace("experiment:\n", "work: [src/**]\nexperiment:\n"))
    assert configure({}, block=read_block(str(path))).work == ("src/**",)
    assert configure({"work": ("lib/**",)}, block=read_block(str(path))).work == ("lib/**",)
    with pytest.raises(UsageError, match=r"--work: .* must be relative"):
        configure({**NEEDED, "work": ("../x",)})


@pytest.mark.requirement("DRIVE-01")
def test_a_path_is_taken_as_a_shell_completes_it() -> None:
    config = configure({**NEEDED, "link": (".venv/", "./data"), "keep": ("target/",)})
    assert (config.link, config.keep) == ((".venv", "data"), ("target",))
    with pytest.raises(UsageError, match="--keep: '/' is not a path inside the repository"):
        configure({**NEEDED, "keep": ("/",)})


@pytest.mark.requirement("DRIVE-01")
def test_a_guard_about_the_metric_itself_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(UsageError, match="total_ms is the metric itself"):
        configure({**NEEDED, "guard": ["total_ms<=3"]})


@pytest.mark.requirement("DRIVE-01")
def test_an_option_stands_before_the_block_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.md"
    path.write_text(BLOCK)
    config = configure(
        {"metric": "size", "direction": "higher", "budget_hours": 1.5}, block=read_block(str(path))
    )
    assert (config.metric.name, config.metric.direction, config.rule.direction) == (
        "size",
        "higher",
        "higher",
    )
    assert (config.measure, config.check, config.limits.wall_seconds) == (
        "./measure.sh",
        "./check.sh",
        5400.0,
    )
    assert config.guards == (Guard("peak_mb", bound=512.0),)
    assert config.env == {"LEVEL": "3"}


@pytest.mark.requirement("DRIVE-01")
def test_every_fault_is_told_at_once_with_its_option() -> None:
    options = {
        "guard": ("what",),
        "min_effect": "much",
        "budget_disk": "big",
        "timeout": 0,
        "source": "magic",
        "metric": "m",
        "env": {"A B": "x"},
    }
    with pytest.raises(UsageError) as caught:
        configure(options)
    for name in ("measure", "guard", "min-effect", "budget-disk", "timeout", "source", "env A B"):
        assert f"- --{name}: " in caught.value.message
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"direction": "down"}, "direction: must be 'lower' or 'higher'"),
        ({"budget_hours": "8"}, "budget_hours: must be a number"),
        ({"budget_hours": float("nan")}, "budget_hours: must be a finite number"),
        ({"budget_trials": True}, "budget_trials: must be a whole number"),
        ({"colour": 1}, "colour: unknown field"),
        ({"alpha": 0.9}, "alpha must be above 0"),
        ({"budget_trials": -1}, "--budget-trials: must be a whole number from 0"),
        ({"metric": "total ms"}, "metric:"),
        ({"source": "json:"}, "metric:"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_in_words(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        configure({**NEEDED, **options})
    assert said in caught.value.message


def test_a_fault_in_the_block_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.md"
    path.write_text(BLOCK.replace("budget_hours: 8", "budget_hours: soon"))
    with pytest.raises(MissionInvalid) as caught:
        configure({}, block=read_block(str(path)))
    assert str(path) in caught.value.message
    assert "line 9: budget_hours" in caught.value.message
    path.write_text(BLOCK.replace("peak_mb<=512", "peak_mb=512"))
    with pytest.raises(MissionInvalid, match="a guard is"):
        configure({}, block=read_block(str(path)))
    with pytest.raises(MissionInvalid, match="is missing"):
        configure({}, block=read_block(str(tmp_path / "none.md")))


@pytest.mark.parametrize(
    ("text", "guard"),
    [
        ("peak_mb<=512", Guard("peak_mb", bound=512.0)),
        ("score >= -0.5", Guard("score", bound=-0.5, direction="higher")),
        ("p99:+5%", Guard("p99", max_regression_percent=5.0)),
        ("accuracy:-1.5%", Guard("accuracy", max_regression_percent=1.5, direction="higher")),
        ("files: +0", Guard("files", max_regression=0.0)),
    ],
)
def test_a_guard_is_a_bound_or_a_largest_regression(text: str, guard: Guard) -> None:
    assert guard_of(text) == guard


@pytest.mark.parametrize("text", ["", "p99", "p99:5%", "p99<5", "<=5", "p99<=nan", "p 99<=5", "p99:+-5"])
def test_what_is_no_guard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"guard|metric"):
        guard_of(text)


def test_sizes_and_shares_are_read_as_people_write_them() -> None:
    assert [size_of(item) for item in (7, "7", "2k", "1.5MB", "2GiB")] == [7, 7, 2048, 1_572_864, 2**31]
    assert [share_of(item) for item in (0.5, "2%", "0.02", "1e-3")] == [0.5, 0.02, 0.02, 0.001]
