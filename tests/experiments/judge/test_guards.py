"""A guard compares medians, names what failed, and takes a missing metric for a failure."""

from __future__ import annotations

import pytest

from omx_autoresearch.experiments.judge.decision import guard_failures, guard_faults
from omx_autoresearch.experiments.judge.metrics import Guard, samples_of


def failures(guard: Guard, incumbent: list[float], candidate: list[float]) -> tuple[str, ...]:
    return guard_failures([guard], {guard.name: incumbent}, {guard.name: candidate})


@pytest.mark.requirement("METRIC-09")
@pytest.mark.parametrize(
    ("guard", "incumbent", "candidate", "holds"),
    [
        (Guard("m", bound=20.0), [5.0], [20.0], True),
        (Guard("m", bound=20.0), [5.0], [20.1], False),
        (Guard("m", bound=20.0, direction="higher"), [50.0], [20.0], True),
        (Guard("m", bound=20.0, direction="higher"), [50.0], [19.9], False),
        (Guard("m", bound=20.0), [5.0], [1.0, 2.0, 900.0], True),
        (Guard("m", bound=20.0), [5.0], [1.0, 30.0, 31.0], False),
        (Guard("m", max_regression=2.0), [10.0], [12.0], True),
        (Guard("m", max_regression=2.0), [10.0], [12.1], False),
        (Guard("m", max_regression=0.0), [10.0], [10.0], True),
        (Guard("m", max_regression=2.0, direction="higher"), [10.0], [8.0], True),
        (Guard("m", max_regression=2.0, direction="higher"), [10.0], [7.9], False),
        (Guard("m", max_regression=2.0), [10.0], [-90.0], True),
        (Guard("m", max_regression_percent=10.0), [0.3], [0.33], True),
        (Guard("m", max_regression_percent=10.0), [0.3], [0.331], False),
        (Guard("m", max_regression_percent=10.0), [-10.0], [-9.0], True),
        (Guard("m", max_regression_percent=10.0), [-10.0], [-8.9], False),
        (Guard("m", max_regression_percent=10.0), [0.0], [0.0], True),
        (Guard("m", max_regression_percent=10.0), [0.0], [0.001], False),
        (Guard("m", bound=100.0, max_regression_percent=5.0), [10.0], [11.0], False),
        (Guard("m", max_regression=9.0, max_regression_percent=5.0), [10.0], [11.0], False),
    ],
)
def test_a_guard_holds_up_to_its_limit_and_no_further(
    guard: Guard, incumbent: list[float], candidate: list[float], holds: bool
) -> None:
    told = failures(guard, incumbent, candidate)
    assert len(told) == (0 if holds else 1)
    assert holds or told[0].startswith("guard m: the median")


@pytest.mark.requirement("METRIC-09")
def test_a_guarded_metric_that_is_missing_is_a_failure_that_says_where() -> None:
    guard = Guard("m", max_regression=1.0)
    assert guard_failures([guard], {"m": [1.0]}, {}) == (
        "guard m: the metric is missing in every run of the candidate",
    )
    assert guard_failures([guard], {}, {"m": [1.0]}) == (
        "guard m: the metric is missing in every run of the incumbent",
    )
    some = samples_of([{"m": 1.0}, {}, {"m": 1.0}])
    assert "missing in 1 of 3 runs of the candidate" in guard_failures([guard], {"m": [1.0]}, some)[0]


def test_a_bound_alone_asks_nothing_of_the_incumbent() -> None:
    assert guard_failures([Guard("m", bound=2.0)], {}, {"m": [1.0]}) == ()


@pytest.mark.requirement("METRIC-09")
def test_each_guard_is_judged_by_itself() -> None:
    guards = [Guard("a", bound=1.0), Guard("b", bound=1.0), Guard("c", bound=1.0)]
    told = guard_failures(guards, {}, {"a": [2.0], "b": [1.0], "c": [3.0]})
    assert [reason.split(":")[0] for reason in told] == ["guard a", "guard c"]


def test_a_guard_compares_names_in_their_normal_form() -> None:
    assert guard_failures([Guard("\u00b5s", bound=1.0)], {}, {"\u03bcs": [1.0]}) == ()


@pytest.mark.parametrize(
    "guard",
    [
        Guard("m"),
        Guard("m", max_regression=-1.0),
        Guard("m", bound=float("nan")),
        Guard("m", max_regression_percent=float("inf")),
        Guard("a b", bound=1.0),
    ],
)
def test_a_guard_that_cannot_stand_says_why(guard: Guard) -> None:
    assert len(guard_faults(guard)) == 1
