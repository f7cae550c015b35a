"""A small path leads to one number of a document, or says why it does not."""

from __future__ import annotations

import pytest

from omx_autoresearch.experiments.judge.metrics import JsonPathFault, parse_json_path, raw_number_at

DOCUMENT = (
    '{"results": [{"mean": 1.5e-3}, {"mean": 2}], "p 99.9": 7, "a": {"b.c": -1}, "text": "5", "no": null}'
)


@pytest.mark.requirement("METRIC-08")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("results[0].mean", 0.0015),
        ("$.results[1].mean", 2.0),
        ("results[-1].mean", 2.0),
        ('["p 99.9"]', 7.0),
        ('$["a"]["b.c"]', -1.0),
        ('a["b.c"]', -1.0),
    ],
)
def test_a_path_leads_to_a_number(path: str, value: float) -> None:
    assert float(raw_number_at(DOCUMENT, parse_json_path(path))) == value


def test_what_stands_before_a_sharp_sign_is_a_file() -> None:
    assert parse_json_path("out/bench.json#results[0].mean").file_path == "out/bench.json"
    assert parse_json_path('#["a#b"]').steps == ("a#b",)
    assert parse_json_path("[0]").steps == (0,)


@pytest.mark.requirement("METRIC-08")
@pytest.mark.parametrize(
    "path", ["", "$", "file.json#", "a..b", "a[", "a[x]", "a b", "[1", "a.[", "ab]", "x" * 501]
)
def test_a_path_that_is_none_says_how_one_looks(path: str) -> None:
    with pytest.raises(JsonPathFault, match="JSON path"):
        parse_json_path(path)


@pytest.mark.requirement("METRIC-08")
@pytest.mark.parametrize(
    ("document", "path", "why"),
    [
        (DOCUMENT, "text", "is a string"),
        (DOCUMENT, "no", "is null"),
        (DOCUMENT, "a", "is an object"),
        (DOCUMENT, "results", "is an array"),
        ('{"a": true}', "a", "is a truth value"),
        (DOCUMENT, "results[2].mean", "has 2 items"),
        (DOCUMENT, "results[-3].mean", "has 2 items"),
        (DOCUMENT, "results.mean", "is not an object"),
        (DOCUMENT, "a[0]", "is not an array"),
        (DOCUMENT, "text.length", "is not an object"),
        (DOCUMENT, "b", "it has 'results'"),
        ('{"a": 1, "a": 1}', "a", "appears twice"),
        ('{"a": 1, "b": [{"x": 1, "x": 2}]}', "a", "appears twice"),
        ("{'a': 1}", "a", "not JSON"),
        ('{"a": 1} trailing', "a", "not JSON"),
        ("", "a", "not JSON"),
        ("[" * 100_000, "a", "nested too deeply"),
    ],
)
def test_whatever_is_no_number_there_is_named(document: str, path: str, why: str) -> None:
    with pytest.raises(JsonPathFault, match=why):
        raw_number_at(document, parse_json_path(path))
