"""What a measured command says is a number by one grammar, or a fault that shows what was seen."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.experiments.judge.metrics import (
    LINE_LIMIT,
    SECONDARY_LIMIT,
    Measured,
    MetricSpec,
    Reading,
    plain_text,
    read_metrics,
    samples_of,
    spec_faults,
)

LOSS = MetricSpec("loss")
SEEN = Measured(wall_seconds=2.0, cpu_seconds=1.5, peak_bytes=4096)


def read(output: str, spec: MetricSpec = LOSS, measured: Measured = SEEN) -> Reading:
    return read_metrics(output, spec, measured)


# --- The line --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("METRIC-01")
@pytest.mark.parametrize(
    "output",
    [
        "METRIC loss=0.5",
        "log\nMETRIC loss=0.5\nlog\n",
        "METRIC \t loss=0.5 \n",
        "METRIC loss=0.5\r\n",
        "METRIC loss =0.5",
    ],
)
def test_a_line_that_begins_with_the_word_is_the_metric(output: str) -> None:
    assert (read(output).primary, read(output).fault) == (0.5, "")


@pytest.mark.case("MET-07")
@pytest.mark.requirement("METRIC-01")
@pytest.mark.parametrize(
    "output",
    [
        "Error in line 42",
        "+ echo METRIC loss=1",
        "expected METRIC loss=1 but",
        "    METRIC loss=1",
        "\tMETRIC loss=1",
        "METRIC: loss=1",
        "metric loss=1",
        "Metric loss=1",
        "METRICS loss=1",
        "METRIC loss 1",
        "METRIC",
        '"METRIC loss=1"',
        "\x0bMETRIC loss=1",
        "log\u2028METRIC loss=1",
    ],
)
def test_what_does_not_begin_the_line_is_no_metric(output: str) -> None:
    reading = read(output)
    assert (reading.primary, reading.fault) == (None, "metric_missing")
    assert "METRIC loss=value" in reading.detail


def test_a_line_that_only_looks_like_a_metric_is_pointed_at() -> None:
    assert "'    METRIC loss=1'" in read("    METRIC loss=1").detail


@pytest.mark.case("MET-04")
@pytest.mark.requirement("METRIC-03")
@pytest.mark.parametrize(
    "output",
    [
        "\033[32mMETRIC loss=\033[1m0.5\033[0m\n",
        "\033]8;;https://example.invalid\033\\METRIC loss=0.5\033]8;;\033\\\n",
        "\033]0;title\007METRIC loss=0.5\n",
        "\033[2K\033[1GMETRIC\033[0m loss\033[33m=\033[0m0.5\n",
        "\x9b1mMETRIC loss=0.5\n",
        "\ufeffMETRIC loss=0.5\n",
        " 10%\r 50%\r100%\rMETRIC loss=0.5\n",
        "METRIC loss=0.5\rdone\n",
    ],
)
def test_colours_links_and_progress_bars_are_seen_through(output: str) -> None:
    assert read(output).primary == 0.5


@pytest.mark.requirement("METRIC-03")
def test_an_open_sequence_hides_no_more_than_its_own_line() -> None:
    assert plain_text("\033]0;never closed\nMETRIC loss=1\n") == "\nMETRIC loss=1\n"


@pytest.mark.requirement("METRIC-04")
@pytest.mark.parametrize(
    "output",
    [
        "METRIC loss=1\nMETRIC loss=2",
        "METRIC loss=1\nMETRIC loss=1",
        "METRIC loss=1\rMETRIC loss=2",
        "METRIC loss=1\nMETRIC loss=x",
    ],
)
def test_a_second_line_for_the_metric_is_an_error_that_shows_both(output: str) -> None:
    reading = read(output)
    assert (reading.primary, reading.fault) == (None, "metric_repeated")
    assert "'1'" in reading.detail


# --- Values ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("MET-03")
@pytest.mark.requirement("METRIC-02")
@pytest.mark.parametrize("raw", ["nan", "NaN", "inf", "-Infinity", "1e400"])
def test_a_metric_that_is_not_finite_is_a_fault_of_its_own(raw: str) -> None:
    reading = read(f"METRIC loss={raw}")
    assert (reading.primary, reading.fault) == (None, "metric_not_finite")
    assert f"'{raw}'" in reading.detail


@pytest.mark.case("MET-06")
@pytest.mark.requirement("METRIC-02")
@pytest.mark.parametrize(
    "raw", ["15,00", "1,234.5", "1.234,5", "1_000", "١٢", "12ms", "50%", "true", "0x10", "", "1 2"]
)
def test_a_spelling_that_is_not_ours_is_refused_and_shown(raw: str) -> None:
    reading = read(f"METRIC loss={raw}")
    assert (reading.primary, reading.fault) == (None, "metric_malformed")
    assert f"'{raw}'" in reading.detail


# --- Names -----------------------------------------------------------------------------------------------------------


@pytest.mark.case("MET-12")
@pytest.mark.requirement("METRIC-05")
@pytest.mark.parametrize("written", ["combined_\u00b5s", "combined_\u03bcs"])
def test_a_name_is_compared_in_its_normal_form(written: str) -> None:
    assert read(f"METRIC {written}=5", MetricSpec("combined_\u00b5s")).primary == 5.0


@pytest.mark.case("MET-12")
@pytest.mark.requirement("METRIC-05")
@pytest.mark.parametrize("name", ["__class__", "constructor", "__proto__", "a-b", "a/b", "p99.9", "primary"])
def test_a_hostile_name_is_a_name_like_any_other(name: str) -> None:
    assert read(f"METRIC {name}=5", MetricSpec(name)).primary == 5.0
    assert read(f"METRIC {name}=5\nMETRIC loss=1").others[name] == 5.0


@pytest.mark.requirement("METRIC-05")
def test_a_wrong_name_is_told_with_what_was_seen_and_what_was_probably_meant() -> None:
    reading = read("METRIC size=3\nMETRIC Total-ms=5\n", MetricSpec("total_ms"))
    assert reading.fault == "metric_missing"
    assert "seen: 'size', 'Total-ms'; did you mean 'Total-ms'?" in reading.detail


# --- Secondary metrics -----------------------------------------------------------------------------------------------


def test_secondary_metrics_and_what_the_runtime_saw_are_recorded() -> None:
    assert read("METRIC b=2\nMETRIC loss=1\nMETRIC a=3").others == {
        "wall_seconds": 2.0,
        "cpu_seconds": 1.5,
        "peak_bytes": 4096.0,
        "b": 2.0,
        "a": 3.0,
    }


@pytest.mark.requirement("METRIC-04")
@pytest.mark.parametrize(
    "line", ["METRIC b=nan", "METRIC b=2s", "METRIC b=1\nMETRIC b=2", "METRIC a b=1", f"METRIC {'b' * 300}=1"]
)
def test_a_secondary_metric_that_cannot_be_read_is_left_out_and_noted(line: str) -> None:
    reading = read(f"METRIC loss=1\n{line}")
    assert reading.primary == 1.0
    assert reading.others.keys() == {"wall_seconds", "cpu_seconds", "peak_bytes"}
    assert len(reading.notes) == 1
    assert reading.notes[0].isprintable()


@pytest.mark.requirement("METRIC-04")
def test_a_line_cannot_set_what_the_runtime_measures() -> None:
    reading = read("METRIC loss=1\nMETRIC wall_seconds=0\n")
    assert reading.others["wall_seconds"] == 2.0
    assert "itself" in reading.notes[0]
    assert read("METRIC loss=1\n", MetricSpec("loss", source="wall")).notes


def test_a_flood_of_metrics_is_recorded_up_to_a_limit() -> None:
    reading = read("\n".join(f"METRIC m{number}=1" for number in range(2000)) + "\nMETRIC loss=1")
    assert reading.primary == 1.0
    assert (len(reading.others), len(reading.notes)) == (SECONDARY_LIMIT, SECONDARY_LIMIT)


@pytest.mark.requirement("METRIC-04")
def test_the_metric_is_found_behind_a_flood_of_others_and_no_flood_of_itself_is_read_through() -> None:
    flood = "".join(f"METRIC m{number}=1\n" for number in range(LINE_LIMIT + 10))
    assert read(f"{flood}METRIC loss=1\n").primary == 1.0
    assert read(f"{flood}METRIC loss=1\nMETRIC loss=1\n").fault == "metric_repeated"
    assert "1000 times or more" in read("METRIC loss=1\n" * (LINE_LIMIT + 10)).detail
    assert len(read(flood).detail) < 2000


def test_a_line_of_blanks_is_looked_at_once() -> None:
    assert read("METRIC" + " " * 10**6 + "x" * 10**6).fault == "metric_missing"


def test_samples_of_several_runs_show_where_one_is_missing() -> None:
    samples = samples_of([{"a": 1.0, "b": 2.0}, {"a": 3.0}])
    assert samples["a"] == [1.0, 3.0]
    assert samples["b"][0] == 2.0
    assert math.isnan(samples["b"][1])


# --- Failures --------------------------------------------------------------------------------------------------------


@pytest.mark.case("MET-10")
@pytest.mark.requirement("METRIC-06")
@pytest.mark.parametrize(
    ("measured", "fault"),
    [
        (Measured(1.0, exit_status=1), "command_failed"),
        (Measured(1.0, exit_status=-11), "command_failed"),
        (Measured(1.0, exit_status=0, outcome="timed_out"), "timed_out"),
        (Measured(1.0, exit_status=None, outcome="timed_out"), "timed_out"),
        (Measured(1.0, exit_status=0, outcome="cancelled"), "cancelled"),
        (Measured(0.0, exit_status=None, outcome="not_started"), "not_started"),
    ],
)
def test_the_metric_of_a_command_that_failed_is_only_a_text(measured: Measured, fault: str) -> None:
    reading = read("METRIC loss=1\nMETRIC other=2\n", measured=measured)
    assert (reading.primary, reading.others, reading.fault) == (None, {}, fault)
    assert "'loss'='1'" in reading.detail


@pytest.mark.case("MET-09")
@pytest.mark.requirement("METRIC-06")
def test_a_command_that_measured_nothing_failed_with_its_last_lines_and_never_with_0() -> None:
    reading = read("".join(f"compiling {number}\n" for number in range(50)))
    assert (reading.primary, reading.fault) == (None, "metric_missing")
    assert "compiling 49" in reading.detail
    assert "compiling 20\n" not in reading.detail
    assert "wrote nothing" in read("").detail


@pytest.mark.requirement("METRIC-06")
@given(st.text(max_size=200), st.sampled_from(["line", "json"]))
def test_whatever_is_written_there_is_a_finite_number_or_a_fault(output: str, source: str) -> None:
    spec = MetricSpec("loss", source="json", json_path="loss") if source == "json" else LOSS
    for text in (output, f"METRIC loss={output}", f'{{"loss": {output}}}'):
        reading = read(text, spec)
        assert (reading.primary is None) == bool(reading.fault)
        assert reading.primary is None or math.isfinite(reading.primary)
        assert bool(reading.detail) == bool(reading.fault)


# --- Other sources ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("METRIC-07")
def test_wall_processor_memory_and_exit_status_need_no_line() -> None:
    seen = Measured(2.0, 1.5, 4096, exit_status=7)
    assert read("", MetricSpec("t", source="wall")).primary == 2.0
    assert read("", MetricSpec("t", source="cpu")).primary == 1.5
    assert read("", MetricSpec("t", source="memory")).primary == 4096.0
    assert read("", MetricSpec("t", source="exit"), seen).primary == 7.0
    assert read("", MetricSpec("t", source="exit")).primary == 0.0


@pytest.mark.requirement("METRIC-07")
def test_a_source_of_our_own_is_no_better_than_the_command() -> None:
    assert read("", MetricSpec("t", source="wall"), Measured(2.0, exit_status=1)).fault == "command_failed"
    assert read("", MetricSpec("t", source="exit"), Measured(2.0, exit_status=-9)).fault == "command_failed"
    assert read("", MetricSpec("t", source="memory"), Measured(2.0)).fault == "metric_missing"


@pytest.mark.requirement("METRIC-08")
def test_a_json_metric_stands_in_the_last_line_of_stdout_or_in_a_file() -> None:
    spec = MetricSpec("mean", source="json", json_path="results[0].mean")
    assert read('building\n{"results": [{"mean": 3}]}\n\n', spec).primary == 3.0
    assert read("METRIC other=1\n\033[0m" + '{"results": [{"mean": 3}]}', spec).others["other"] == 1.0
    filed = MetricSpec("mean", source="json", json_path="out.json#results[0].mean")
    assert read_metrics("", filed, SEEN, '{"results": [{"mean": 4}]}').primary == 4.0


@pytest.mark.requirement("METRIC-08")
def test_a_json_metric_that_is_not_there_is_missing_and_one_that_is_no_number_malformed() -> None:
    spec = MetricSpec("mean", source="json", json_path="out.json#mean")
    missing = read_metrics("", spec, SEEN, None)
    assert missing.fault == "metric_missing"
    assert "out.json" in missing.detail
    assert read_metrics("", spec, SEEN, '{"mean": "3"}').fault == "metric_malformed"
    assert read_metrics("", spec, SEEN, '{"mean": 3, "mean": 3}').fault == "metric_malformed"
    assert read_metrics("", spec, SEEN, '{"mean": Infinity}').fault == "metric_not_finite"
    assert read("", MetricSpec("mean", source="json", json_path="mean")).fault == "metric_missing"


# --- Descriptions ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("METRIC-08")
@pytest.mark.parametrize(
    "spec",
    [
        MetricSpec("a b"),
        MetricSpec("a", json_path="x"),
        MetricSpec("a", source="json"),
        MetricSpec("a", source="json", json_path="/etc/passwd#a"),
        MetricSpec("a", source="json", json_path="../out.json#a"),
        MetricSpec("a", source="json", json_path=".git/config#a"),
    ],
)
def test_a_metric_that_cannot_be_measured_is_told_before_it_is(spec: MetricSpec) -> None:
    assert len(spec_faults(spec)) == 1


def test_a_metric_that_can_be_measured_has_no_fault() -> None:
    assert spec_faults(LOSS) == []
    assert spec_faults(MetricSpec("a", source="json", json_path="out/bench.json#results[0].mean")) == []
