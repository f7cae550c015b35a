"""Logs of pi-autoresearch, in the shapes that people's repositories hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.compat.auto_history import find_auto_log, read_auto_log
from omx_autoresearch.experiments.judge.summary import quoted_claim, steps_of
from omx_autoresearch.experiments.reports.pages import (
    ReportMaterial,
    markdown_report,
    trials_csv,
    trials_jsonl,
)
from omx_autoresearch.experiments.reports.plots import plot_specification
from omx_autoresearch.foundation.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

HEADER = {
    "type": "config",
    "name": "parse and render",
    "metricName": "combined_µs",
    "metricUnit": "µs",
    "bestDirection": "lower",
}


def a_run(run: int, metric: float | None, status: str, **more: Any) -> dict[str, Any]:
    return {
        "run": run,
        "commit": f"c09e7{run:02}",
        "metric": metric,
        "metrics": {"allocations": 24881},
        "status": status,
        "description": f"idea {run}",
        "timestamp": 1773348490227 + run * 1000,
        "segment": 0,
        **more,
    }


def write_log(folder: Path, *lines: Any, name: str = ".auto/log.jsonl") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


@pytest.mark.requirement("SEE-06")
def test_a_log_becomes_rows_with_everything_that_it_says(tmp_path: Path) -> None:
    path = write_log(
        tmp_path,
        HEADER,
        a_run(1, 3818, "keep"),
        a_run(2, 4063, "discard", confidence=2.1, asi={"learned": "no"}),
    )
    log = read_auto_log(str(tmp_path))
    assert (log.path, log.faults) == (str(path), ())
    (session,) = log.sessions
    assert session.config.metric.name == "combined_µs"
    assert session.config.metric.unit == "µs"
    assert session.project_path == str(tmp_path)
    assert session.baseline == 3818
    kept, dropped = session.rows
    assert (kept.status, kept.reason_code, kept.candidate_commit) == ("accepted", "baseline", "c09e701")
    assert (dropped.status, dropped.metric, dropped.others) == ("rejected", 4063, {"allocations": 24881.0})
    assert dropped.checkpoint == "c09e701"
    assert dropped.ended_at == "2026-03-12T20:48:12.227000Z"
    assert dropped.metadata == {"confidence": 2.1, "asi": {"learned": "no"}}


@pytest.mark.case("STA-10")
@pytest.mark.requirement("SEE-06")
def test_a_crash_has_no_value_however_good_its_zero_looks(tmp_path: Path) -> None:
    write_log(
        tmp_path,
        HEADER,
        a_run(1, 3818, "keep"),
        a_run(2, 0, "crash"),
        a_run(3, 75854, "checks_failed"),
        a_run(4, 3314, "keep"),
    )
    (session,) = read_auto_log(str(tmp_path)).sessions
    crash, broken = session.rows[1], session.rows[2]
    assert (crash.status, crash.metric, crash.metadata["reported_metric"]) == ("failed", None, 0)
    assert (broken.status, broken.metric, broken.reason_code) == ("rejected", None, "check_failed")
    assert [row.iteration for row in steps_of(session)] == [4]


@pytest.mark.case("STA-12")
@pytest.mark.requirement("SEE-06")
def test_a_run_that_was_kept_though_it_is_no_better_moves_no_step(tmp_path: Path) -> None:
    write_log(
        tmp_path,
        HEADER,
        a_run(1, 3818, "keep"),
        a_run(21, 3314, "keep"),
        a_run(23, 3445, "keep"),
    )
    (session,) = read_auto_log(str(tmp_path)).sessions
    last = session.rows[-1]
    assert (last.status, last.reason_code) == ("accepted", "kept_without_gain")
    assert "3445 is no better than 3314" in last.reason
    assert session.checkpoints == ("c09e721",)
    assert session.incumbent_commit == "c09e721"


@pytest.mark.case("STA-09")
@pytest.mark.requirement("SEE-06")
def test_broken_lines_are_named_and_count_for_nothing(tmp_path: Path) -> None:
    path = write_log(
        tmp_path,
        HEADER,
        a_run(1, 9, "keep"),
        {"run": 2, "metric": None, "status": "oops"},
        "{cut",
        '{"run":3,"run":4,"metric":1,"status":"keep"}',
        '{"run":5,"metric":NaN,"status":"keep"}',
        a_run(6, None, "keep"),
    )
    before = path.read_bytes()
    log = read_auto_log(str(tmp_path))
    assert [fault.partition(":")[0] for fault in log.faults] == [
        f"line {number}" for number in (3, 4, 5, 6, 7)
    ]
    assert "oops" in log.faults[0]
    assert "given twice" in log.faults[2]
    assert [row.iteration for row in log.sessions[0].rows] == [1]
    assert path.read_bytes() == before


@pytest.mark.requirement("SEE-06")
def test_each_header_begins_a_session_of_its_own(tmp_path: Path) -> None:
    second = {"type": "config", "metricName": "f1", "bestDirection": "higher", "maxIterations": 4}
    write_log(
        tmp_path,
        HEADER,
        a_run(1, 20, "keep"),
        {"type": "hook", "stage": "after", "exit_code": 0},
        second,
        a_run(2, 0.5, "keep"),
        a_run(3, 0.4, "keep"),
        a_run(4, 0.7, "keep"),
        HEADER,
    )
    first, other = read_auto_log(str(tmp_path)).sessions
    assert (first.config.name, other.config.name) == ("parse and render", "f1")
    assert other.config.limits.trials == 4
    assert [row.iteration for row in steps_of(other)] == [4]


def test_runs_before_any_header_are_shown_too(tmp_path: Path) -> None:
    write_log(tmp_path, a_run(1, 20, "keep"), name="autoresearch.jsonl")
    (session,) = read_auto_log(str(tmp_path)).sessions
    assert session.config.metric.name == "metric"
    assert session.project_path == str(tmp_path)


@pytest.mark.requirement("SEE-06")
def test_numbers_that_begin_again_within_a_session_are_counted_anew_and_noted(tmp_path: Path) -> None:
    write_log(tmp_path, HEADER, a_run(1, 20, "keep"), a_run(2, 19, "keep"), a_run(1, 18, "keep"))
    log = read_auto_log(str(tmp_path))
    assert log.notes == ("line 4: run 1 follows run 2, so the numbering started again",)
    assert [(row.iteration, row.hypothesis_id) for row in log.sessions[0].rows] == [
        (1, "run-1"), (2, "run-2"), (3, "run-1")
    ]  # fmt: skip


def test_a_baseline_that_is_run_zero_is_the_base(tmp_path: Path) -> None:
    write_log(tmp_path, HEADER, a_run(0, 20, "keep"), a_run(1, 19, "keep"))
    log = read_auto_log(str(tmp_path))
    assert log.faults == ()
    assert (log.sessions[0].baseline, log.sessions[0].rows[0].iteration) == (20, 0)
    assert plot_specification(log.sessions[0], origin=log.origin)


def test_times_in_seconds_are_read_too(tmp_path: Path) -> None:
    write_log(tmp_path, HEADER, a_run(1, 20, "keep", timestamp=1773348490))
    assert read_auto_log(str(tmp_path)).sessions[0].rows[0].ended_at == "2026-03-12T20:48:10.000000Z"


def test_lines_of_other_tools_are_left_alone(tmp_path: Path) -> None:
    write_log(tmp_path, {"event": "init", "metric_name": "x"}, HEADER, {"type": "hook"}, a_run(1, 20, "keep"))
    log = read_auto_log(str(tmp_path))
    assert (log.faults, len(log.sessions)) == ((), 1)


def test_a_byte_order_mark_and_empty_lines_do_no_harm(tmp_path: Path) -> None:
    path = write_log(tmp_path, f"\ufeff{json.dumps(HEADER)}", "", a_run(1, 20, "keep"))
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    log = read_auto_log(str(path))
    assert log.faults == ()
    assert len(log.sessions[0].rows) == 1


@pytest.mark.parametrize("timestamp", [None, "soon", -5, 1e300, True])
def test_a_time_that_is_none_stays_empty(tmp_path: Path, timestamp: object) -> None:
    write_log(tmp_path, HEADER, a_run(1, 20, "keep", timestamp=timestamp))
    assert read_auto_log(str(tmp_path)).sessions[0].rows[0].ended_at == ""


def test_metadata_too_deep_to_be_exported_is_left_out(tmp_path: Path) -> None:
    deep = json.loads("[" * 200 + "]" * 200)
    write_log(tmp_path, HEADER, a_run(1, 20, "keep", asi=deep))
    (session,) = read_auto_log(str(tmp_path)).sessions
    assert session.rows[0].metadata == {}
    assert trials_jsonl(session)
    assert trials_csv(session)


def test_todays_place_comes_before_the_older_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no \.auto/log\.jsonl"):
        find_auto_log(str(tmp_path))
    old = write_log(tmp_path, HEADER, name="autoresearch.jsonl")
    assert find_auto_log(str(tmp_path)) == str(old)
    new = write_log(tmp_path, HEADER)
    assert find_auto_log(str(tmp_path)) == str(new)
    assert read_auto_log(str(tmp_path)).sessions == ()


@pytest.mark.requirement("SEE-06")
def test_a_report_of_a_log_says_that_nothing_was_measured_here(tmp_path: Path) -> None:
    write_log(tmp_path, HEADER, a_run(1, 20, "keep"), a_run(2, 10, "keep"), "{cut")
    log = read_auto_log(str(tmp_path))
    (session,) = log.sessions
    assert not quoted_claim(session).is_verified
    report = markdown_report(session, ReportMaterial(origin=log.origin, faults=log.faults))
    assert "this runtime measured, checked and isolated none of it" in report
    assert "1 invalid line was ignored" in report.replace("\\", "")
    assert "line 4: it is not JSON" in report
    assert "How to accept" not in report
