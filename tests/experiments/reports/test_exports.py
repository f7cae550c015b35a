"""The table of trials for other programs."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.experiments.judge.state import ExperimentState, TrialRow
from omx_autoresearch.experiments.reports.pages import (
    MINIMUM_FIELDS,
    SPREAD_COLUMNS,
    exported_events,
    trial_records,
    trial_table,
    trials_csv,
    trials_jsonl,
)
from omx_autoresearch.foundation.errors import StateUntrusted
from omx_autoresearch.foundation.records import fields
from tests.experiments.samples import a_row, a_state, a_story, judged

if TYPE_CHECKING:
    from pathlib import Path


def read_csv(state: ExperimentState) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(trials_csv(state).decode("utf-8"), newline="")))


@pytest.mark.requirement("SEE-02")
def test_the_first_columns_are_those_that_every_host_shows() -> None:
    columns = trial_table(a_story()).columns
    assert columns[1 : len(MINIMUM_FIELDS) + 1] == MINIMUM_FIELDS


@pytest.mark.requirement("SEE-02")
def test_every_field_of_a_trial_is_exported_in_both_forms() -> None:
    names = {item.name for item in fields(TrialRow)}
    assert names <= set(trial_records(a_story())[0])
    assert names <= set(trial_table(a_story()).columns)


@pytest.mark.requirement("SEE-02")
def test_json_lines_give_back_every_value() -> None:
    lines = trials_jsonl(a_story()).decode("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["iteration"] for record in records] == list(range(1, 10))
    assert records[1]["samples"] == list(a_story().rows[1].samples)
    assert records[1]["metadata"] == {"model": "m-1"}
    assert {tuple(record) for record in records} == {tuple(records[0])}  # one order of keys


def test_a_table_without_a_trial_still_has_its_header() -> None:
    assert trials_jsonl(a_state()) == b""
    assert trials_csv(a_state()).decode().splitlines()[0].startswith("experiment_id,iteration,hypothesis_id")


@pytest.mark.requirement("SEE-02")
def test_secondary_metrics_and_metadata_have_columns_of_their_own() -> None:
    cells = read_csv(a_state([judged(1, 100, 98), a_row(2, metadata={"tokens": {"in": 5}})]))
    assert cells[0]["others.peak_mb"] == "12.5"
    assert cells[0]["metadata.model"] == "m-1"
    assert cells[1]["metadata.model"] == ""
    assert json.loads(cells[1]["metadata.tokens"]) == {"in": 5}


def test_more_names_than_columns_stay_together_in_one_cell() -> None:
    metadata = {f"k{number:03}": number for number in range(SPREAD_COLUMNS + 5)}
    table = trial_table(a_state([a_row(1, metadata=metadata)]))
    assert sum(name.startswith("metadata.") for name in table.columns) == SPREAD_COLUMNS
    assert json.loads(table.rows[0]["metadata"]) == {f"k{number}": number for number in range(100, 105)}


@pytest.mark.requirement("SEE-03")
@pytest.mark.parametrize("opening", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"])  # noqa: RUF001
def test_no_text_is_a_formula_for_a_spreadsheet(opening: str) -> None:
    text = f"{opening}HYPERLINK(1)"
    (cells,) = read_csv(a_state([a_row(1, description=text, metadata={text: text})]))
    assert cells["description"] == f"'{text}"
    assert all(not value.startswith(opening) for value in cells.values())
    assert all(not name.startswith(opening) for name in cells)


@pytest.mark.requirement("SEE-03")
def test_a_negative_number_stays_a_number() -> None:
    (cells,) = read_csv(a_state([judged(1, 100, 103)]))
    assert float(cells["improvement"]) == pytest.approx(-0.03)


@pytest.mark.parametrize("text", ["two\nlines", 'quo"te, comma', "carriage\r\nreturn", "µ😀", "a|b"])
def test_any_text_comes_back_from_a_cell(text: str) -> None:
    (cells,) = read_csv(a_state([a_row(1, description=text)]))
    assert cells["description"] == text


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    state = a_state([a_row(1, description="a\ud800b", changed_paths=("f\udcff",))])
    assert read_csv(state)[0]["description"] == "a\ufffdb"
    assert json.loads(trials_jsonl(state))["changed_paths"] == ["f\ufffd"]


@pytest.mark.parametrize(
    ("written", "data", "torn"),
    [(b"", b"", 0), (b'{"a":1}\n{"b":2}\n', b'{"a":1}\n{"b":2}\n', 0), (b'{"a":1}\n{"b', b'{"a":1}\n', 3)],
    ids=["empty", "whole", "torn"],
)
def test_events_are_passed_on_byte_for_byte_without_a_torn_line(
    tmp_path: Path, written: bytes, data: bytes, torn: int
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(written)
    found = exported_events(str(path))
    assert (found.data, found.torn_bytes) == (data, torn)


def test_a_missing_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StateUntrusted, match="is missing"):
        exported_events(str(tmp_path / "none"))


def test_numbers_stay_numbers_in_the_table() -> None:
    row: dict[str, Any] = trial_table(a_state([judged(1, 100, 98)])).rows[0]
    assert row["pairs"] == 8
    assert row["metric"] == 98
    assert row["candidate_commit"] == ""
