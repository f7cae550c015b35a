"""The JSON of headless runs, in the shapes that the clients print."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.agents.headless import last_words, stated
from omx_autoresearch.agents.headless_sessions import read_report

CLAUDE = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "duration_ms": 1200,
    "num_turns": 3,
    "result": "Unrolled it.\n\nDIRECTION: unrolling\nHYPOTHESIS: fewer branches in the inner loop",
    "session_id": "5e55",
    "total_cost_usd": 0.0125,
    "usage": {"input_tokens": 300, "output_tokens": 60, "service_tier": "standard"},
    "modelUsage": {"claude-sonnet-4-5": {"costUSD": 0.0125}},
}
CODEX = (
    {"type": "thread.started", "thread_id": "7a"},
    {"type": "turn.started"},
    {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": "I will look."}},
    {"type": "item.completed", "item": {"id": "2", "type": "command_execution", "command": "ls"}},
    {"type": "item.completed", "item": {"id": "3", "type": "agent_message", "text": "HYPOTHESIS: less work"}},
    {"type": "turn.completed", "usage": {"input_tokens": 10, "cached_input_tokens": 4, "output_tokens": 5}},
)
GEMINI = {
    "session_id": "9",
    "response": "HYPOTHESIS: a cache",
    "stats": {
        "models": {
            "gemini-2.5-pro": {"tokens": {"prompt": 10, "candidates": 3, "total": 13}},
            "gemini-2.5-flash": {"tokens": {"prompt": 2, "candidates": 1, "total": 3}},
        }
    },
}
NOISE = "Warning: no such theme\n{not json}\n"


def lines(*objects: object) -> str:
    return "".join(json.dumps(item) + "\n" for item in objects)


@pytest.mark.requirement("DRIVE-03")
@pytest.mark.parametrize(
    "output",
    [
        json.dumps(CLAUDE),
        NOISE + lines(CLAUDE) + "bye\n",
        lines({"type": "system", "subtype": "init"}, {"type": "assistant", "message": {}}, CLAUDE),
        json.dumps(CLAUDE, indent=2),
    ],
)
def test_the_cost_that_claude_code_reports_is_read_whatever_stands_around_it(output: str) -> None:
    report = read_report(output)
    assert (report.client, report.cost_usd, report.is_error, report.cost_fault) == (
        "claude",
        0.0125,
        False,
        "",
    )
    assert report.tokens == {"input_tokens": 300, "output_tokens": 60}
    assert (report.model, report.session_id) == ("claude-sonnet-4-5", "5e55")
    assert stated(report.text, "HYPOTHESIS") == "fewer branches in the inner loop"


@pytest.mark.requirement("DRIVE-03")
def test_codex_reports_tokens_and_no_cost() -> None:
    report = read_report(NOISE + lines(*CODEX))
    assert (report.client, report.cost_usd, report.is_error, report.session_id) == (
        "codex",
        None,
        False,
        "7a",
    )
    assert report.tokens == {"input_tokens": 10, "cached_input_tokens": 4, "output_tokens": 5}
    assert report.text == "HYPOTHESIS: less work"
    assert read_report(lines(*CODEX[:3], {"type": "turn.failed", "error": {"message": "limit"}})).is_error


@pytest.mark.requirement("DRIVE-03")
def test_gemini_reports_tokens_of_all_its_models_and_no_cost() -> None:
    report = read_report(NOISE + json.dumps(GEMINI, indent=2) + "\n")
    assert (report.client, report.cost_usd, report.text) == ("gemini", None, "HYPOTHESIS: a cache")
    assert report.tokens == {"prompt": 12, "candidates": 4, "total": 16}
    assert report.model == "gemini-2.5-flash, gemini-2.5-pro"
    assert read_report(
        json.dumps({"session_id": "9", "error": {"type": "Error", "code": 1}}, indent=2)
    ).is_error


@pytest.mark.requirement("DRIVE-03")
@pytest.mark.parametrize(
    "cost", ["NaN", "Infinity", "-Infinity", "-5", '"1"', "true", "1" + "0" * 400, "[1]"]
)
def test_a_cost_that_is_no_finite_number_from_zero_on_does_not_count_and_is_said(cost: str) -> None:
    report = read_report(json.dumps(CLAUDE).replace("0.0125,", f"{cost},", 1))
    assert report.cost_usd is None
    assert report.cost_fault


@given(st.text())
def test_any_output_has_a_report(output: str) -> None:
    assert read_report(output).text == output or read_report(output).client


def test_plain_text_and_half_a_line_are_taken_as_they_are() -> None:
    half = json.dumps(CLAUDE)[:-20]
    for output in ("", "I did it.\nHYPOTHESIS: fewer calls", half):
        assert (read_report(output).client, read_report(output).text) == ("", output)
    assert read_report(half + "\n" + json.dumps(CLAUDE)).client == "claude"


@pytest.mark.requirement("DRIVE-04")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("HYPOTHESIS: fewer calls", "fewer calls"),
        ("x\n  **Hypothesis:** fewer calls  \n\nDone.", "fewer calls"),
        ("HYPOTHESIS: first\nHYPOTHESIS: second\n", "second"),
        ("`HYPOTHESIS: fewer calls`", "fewer calls"),
        ("## HYPOTHESIS: fewer\tcalls\x1b[2J", "fewer calls [2J"),
        ("HYPOTHESIS: real\nHYPOTHESIS:", "real"),
        ("my hypothesis is: fewer", ""),
        ("", ""),
    ],
)
def test_the_last_stated_hypothesis_counts_without_its_markdown(text: str, said: str) -> None:
    assert stated(text, "HYPOTHESIS") == said


@pytest.mark.requirement("DRIVE-04")
def test_without_a_stated_hypothesis_the_last_words_stand_for_it_bounded() -> None:
    assert last_words("I made the loop shorter.\n\n---\n") == "I made the loop shorter."
    assert last_words("\n--\n") == ""
    assert len(last_words("word " * 10_000)) == 600
