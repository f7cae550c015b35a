"""A reviewer is tried before a mission depends on it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.surfaces.support.command_line import Person

ANSWERS = (
    '#!/bin/sh\nprompt=$(cat)\nnonce=$(printf %s "$prompt" | sed -n \'s/.*"nonce": "\\([0-9a-f]*\\)".*/\\1/p\')\n'
    'found=$(cat report.md)\nprintf \'{"nonce": "%s", "verdict": "rejected", "summary": "%s"}\\n\' "$nonce" "$found"\n'
)
"""A reviewer that rejects, with the artifact's content as its reason."""
ASKED = ("init", "--goal", "A report", "--prompt", "Is it true?", "--output", "report.md")


@pytest.mark.requirement("DONE-55")
def test_a_reviewer_is_tried_on_the_artifact_and_nothing_is_written(person: Person) -> None:
    person.write("review.sh", ANSWERS, mode=0o755)
    person.write("report.md", "It is 42.")
    said = person.ok(*ASKED, "--reviewer", "./review.sh", "--try-reviewer")
    assert "The reviewer says: failed (rejected): It is 42." in said
    assert "it took " in said
    assert "Nothing was written." in said
    assert person.json("list") == []


@pytest.mark.requirement("DONE-55")
def test_without_an_artifact_a_reviewer_is_tried_on_a_file_that_stands_for_it(person: Person) -> None:
    person.write("review.sh", ANSWERS, mode=0o755)
    told = json.loads(person.ok(*ASKED, "--reviewer", "./review.sh", "--try-reviewer", "--json"))
    assert told["reviewer"]["report"]["summary"] == "This file is not written yet."
    assert told["reviewer"]["duration_seconds"] > 0
    assert told["dry_run"] is True


@pytest.mark.requirement("DONE-55")
def test_what_a_client_says_of_its_cost_is_told(person: Person) -> None:
    usage = '"total_cost_usd": 0.0213, "usage": {"input_tokens": 1200, "output_tokens": 80}'
    report = (
        f'{{"type": "result", "is_error": true, "result": "Invalid API key", {usage}, "session_id": "s"}}'
    )
    person.write("review.sh", f"#!/bin/sh\ncat >/dev/null\necho '{report}'\n", mode=0o755)
    said = person.ok(*ASKED, "--reviewer", "./review.sh", "--try-reviewer")
    assert "The reviewer says: error (bad-report)" in said
    assert "it ends with: Invalid API key" in said
    for part in ("1200 input tokens", "80 output tokens", "$0.0213"):
        assert part in said


@pytest.mark.requirement("DONE-55")
def test_a_reviewer_that_is_not_there_is_told_by_a_dry_run(person: Person) -> None:
    done = person.run(
        *ASKED, "--reviewer", "no-such-reviewer", "--unfrozen", "--reason", "it is elsewhere", "--dry-run"
    )
    assert "no-such-reviewer is not found on your PATH" in done.stderr + done.stdout


@pytest.mark.requirement("DONE-55")
def test_there_must_be_a_reviewer_to_try(person: Person) -> None:
    done = person.run(*ASKED, "--try-reviewer")
    assert done.returncode == 2
    assert "the mission names no reviewer" in done.stderr
