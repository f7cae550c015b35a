"""The log of the older session tools: what is believed of it, which run is the best, how a run is judged."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from omx_autoresearch.compat.auto_log import (
    SessionConfig,
    SessionLog,
    SessionRun,
    judged,
    line_of,
    read_log,
    require_config,
    require_metrics,
)
from omx_autoresearch.foundation.errors import UsageError

HEADER = {
    "type": "config",
    "name": "fast",
    "metricName": "total_ms",
    "metricUnit": "ms",
    "bestDirection": "lower",
}


def log_of(*values: object) -> SessionLog:
    return read_log(enumerate(values, start=1))


def kept(run: float, metric: object, status: str = "keep") -> dict[str, object]:
    return {
        "run": run,
        "metric": metric,
        "metrics": {},
        "status": status,
        "description": "x",
        "commit": "abc1234",
    }


@pytest.mark.case("STA-09")
@pytest.mark.requirement("AUTO-03")
@pytest.mark.parametrize(
    "broken",
    [
        {"run": 2, "status": "oops"},
        {"run": 2, "status": "keep"},
        kept(2, 0, "oops"),
        kept(2, None),
        kept(2, True),
        kept(2, "0"),
        kept(-1, 1),
        kept(1.5, 1),
    ],
    ids=repr,
)
def test_a_run_of_unknown_status_or_without_a_value_is_reported_and_never_the_best(
    broken: dict[str, object],
) -> None:
    log = log_of(HEADER, kept(1, 9), broken)
    assert log.best == 9
    assert len(log.runs) == 1
    assert log.faults[0].startswith("line 3: ")


@pytest.mark.requirement("AUTO-03")
def test_a_crash_has_no_value_whatever_stands_in_its_line() -> None:
    log = log_of(HEADER, kept(1, 0, "crash"), kept(2, 7))
    assert [run.metric for run in log.runs] == [None, 7]
    assert (log.baseline, log.best) == (7, 7)


@pytest.mark.requirement("AUTO-03")
@pytest.mark.parametrize(
    ("direction", "best", "better", "worse"), [("lower", 3, 2.9, 3), ("higher", 9, 9.1, 9)]
)
def test_the_best_goes_in_the_direction_of_its_segment_and_a_tie_is_not_better(
    direction: str, best: float, better: float, worse: float
) -> None:
    log = log_of(
        {**HEADER, "bestDirection": direction}, kept(1, 5), kept(2, 9), kept(3, 3), kept(4, 1, "discard")
    )
    log = replace(log, runs=tuple(run for run in log.runs if run.status == "keep"))
    assert (log.baseline, log.best) == (5, best)
    run = SessionRun(5, "keep")
    assert judged(log, replace(run, metric=better)).status == "keep"
    assert judged(log, replace(run, metric=worse)).status == "discard"


@pytest.mark.requirement("AUTO-03")
def test_what_crashed_or_failed_its_checks_stays_that_however_good_its_value_is() -> None:
    log = log_of(HEADER, kept(1, 9))
    for run in (SessionRun(2, "crash"), SessionRun(2, "checks_failed", metric=1.0)):
        assert judged(log, run) == run


@pytest.mark.requirement("AUTO-03")
def test_a_new_header_begins_a_segment_with_a_best_of_its_own_and_numbers_go_on() -> None:
    log = log_of(HEADER, kept(1, 2), {**HEADER, "bestDirection": "higher"}, kept(2, 5), kept(3, 6))
    assert (log.segment, log.baseline, log.best, log.next_run) == (1, 5, 6, 4)
    assert len(log.runs) == 3


@pytest.mark.requirement("AUTO-03")
def test_lines_of_another_kind_are_passed_over_and_values_that_are_no_objects_are_faults() -> None:
    hook = {"type": "hook", "stage": "after", "exit_code": 0}
    log = log_of(HEADER, hook, [1], ValueError("it is not JSON"), kept(1, 4))
    assert [run.run for run in log.runs] == [1]
    assert log.faults == ("line 3: it is not a JSON object", "line 4: it is not JSON")


@pytest.mark.requirement("AUTO-03")
def test_a_header_of_unknown_direction_begins_nothing() -> None:
    log = log_of({**HEADER, "bestDirection": "up"}, {"type": "config", "name": "x"})
    assert log.config is None
    assert len(log.faults) == 2


@pytest.mark.requirement("AUTO-03")
def test_what_is_written_is_read_back_as_it_was() -> None:
    config = SessionConfig("fast", "total_µs", "µs", "higher", 12.5, 3.0, 7)
    run = SessionRun(
        1, "checks_failed", 3.5, {"a": 1.0}, "tried\nthis", "abc", 1_700_000_000_000, 0, 1.25, "why", "id-1",
        isolation="bubblewrap", checks="failed",
    )  # fmt: skip
    log = log_of(line_of(config), line_of(run))
    assert (log.config, log.runs, log.faults) == (config, (run,), ())
    assert log.find("id-1") == run
    assert log.find("") is None


@pytest.mark.requirement("AUTO-03")
def test_a_segment_is_full_at_its_limit() -> None:
    limited = line_of(SessionConfig("n", "m", max_iterations=1))
    assert not log_of(limited).is_full
    assert log_of(limited, kept(1, 1)).is_full
    assert not log_of(limited, kept(1, 1), limited).is_full


@pytest.mark.requirement("AUTO-01")
@pytest.mark.parametrize(
    "config",
    [
        SessionConfig(" ", "m"),
        SessionConfig("n", ""),
        SessionConfig("n", "total ms"),
        SessionConfig("n", "m\n"),
        SessionConfig("n" * 201, "m"),
        SessionConfig("n", "m", timeout_seconds=0),
        SessionConfig("n", "m", checks_timeout_seconds=math.inf),
        SessionConfig("n", "m", timeout_seconds=math.nan),
        SessionConfig("n", "m", max_iterations=-1),
    ],
    ids=repr,
)
def test_a_header_that_cannot_be_kept_is_refused(config: SessionConfig) -> None:
    with pytest.raises(UsageError):
        require_config(config)


@pytest.mark.requirement("AUTO-01")
@pytest.mark.parametrize(
    "metrics", [{"a": math.nan}, {"": 1.0}, {"a": math.inf}, {str(n): 1.0 for n in range(201)}]
)
def test_reported_values_are_finite_few_and_named(metrics: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        require_metrics(metrics)
