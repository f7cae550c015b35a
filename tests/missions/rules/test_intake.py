"""A draft stands or is refused with the reason: placeholders, modes, limits, names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from omx_autoresearch.missions.rules.intake import (
    MissionDraft,
    draft_faults,
    limits_of,
    placeholder_reason,
    settled,
)

SCRIPT = MissionDraft(goal="make the parser pass the corpus", validator_command="./check.sh")
REVIEW = MissionDraft(
    goal="write the report", validator_prompt="Is it sound?", output_artifact_path="report.md"
)


@pytest.mark.requirement("LIFE-11")
@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "\n", "<command>", " <your goal> ", "run <command> now", "./x <file>", "TODO", "todo.", "TBD",
        "FIXME: later", "...", "..", "…", "???", "-", "your goal here", "Your validator command goes here!",
        "Enter your goal", "insert the goal here", "your goal", "lorem ipsum dolor", "Lorem Ipsum", "none", "N/A",
        "null", "placeholder", "change me", "{{ goal }}", "[your goal]", "[TODO]", "goal", "command", "xxx",
    ],
)  # fmt: skip
def test_a_placeholder_is_refused_with_the_reason(text: str) -> None:
    reason = placeholder_reason(text)
    assert reason
    assert draft_faults(replace(SCRIPT, goal=text)) == [f"goal: {reason}"]
    if text:
        assert draft_faults(replace(SCRIPT, validator_command=text)) == [f"validator_command: {reason}"]


@pytest.mark.requirement("LIFE-10")
@pytest.mark.parametrize(
    "text",
    [
        "./check.sh", "./check.sh <in.txt >out.txt", "./check.sh < file > out", "go test ./...", "sort <(ls) | wc -l",
        "remove every TODO from the code", "fix TODO comments", "echo ${#x} # not a comment", "true", "x",
        "test 1 -lt 2", "make the command faster", "Kürze die Laufzeit", "把解析器改好",
        "a <= b and c >= d", "python -c 'print([1][0])'",
        "cat <<EOF\nx\nEOF", "docker inspect -f '{{ .State }}' x",
        "replace lorem ipsum by real texts", "find the path here", "[ -f report.md ]",
    ],
)  # fmt: skip
def test_a_real_answer_is_no_placeholder(text: str) -> None:
    assert placeholder_reason(text) == ""


def test_two_sound_drafts_stand() -> None:
    assert draft_faults(SCRIPT) == []
    assert draft_faults(REVIEW) == []


@pytest.mark.requirement("DONE-01")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"validator_prompt": "Is it?"}, "both modes are given"),
        ({"validator_command": ""}, "no mode is given"),
        ({"validation_mode": "both"}, "must be mission-validator-script or prompt-architect-artifact"),
        ({"validation_mode": "prompt-architect-artifact"}, "but with validator_command"),
        ({"reviewer_command": "claude -p"}, "belongs to prompt-architect-artifact"),
    ],
)
def test_exactly_one_mode_with_its_own_fields_is_taken(changes: dict[str, Any], said: str) -> None:
    assert said in draft_faults(replace(SCRIPT, **changes))[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"output_artifact_path": ""}, "output_artifact_path: the file under review is needed"),
        ({"output_artifact_path": "<file>"}, "output_artifact_path: it holds a placeholder"),
        ({"reviewed_by": ()}, "the list is empty"),
        ({"reviewed_by": ("command",)}, "only a command may review, but none is given"),
    ],
)
def test_a_review_needs_an_artifact_and_somebody_to_review(changes: dict[str, Any], said: str) -> None:
    assert said in draft_faults(replace(REVIEW, **changes))[0]


def test_the_mode_follows_from_the_fields_only_where_they_leave_no_doubt() -> None:
    assert settled(SCRIPT).validation_mode == "mission-validator-script"
    assert settled(REVIEW).validation_mode == "prompt-architect-artifact"
    assert settled(MissionDraft()).validation_mode == ""
    assert settled(replace(SCRIPT, validator_prompt="x")).validation_mode == ""


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"refusals": 3}, "'refusals' is unknown; known are idle_refusals"),
        ({"refusals_total": 0}, "must be a positive whole number, received 0"),
        ({"refusals_total": True}, "received True"),
        ({"refusals_total": 2.5}, "must be a positive whole number, received 2.5"),
        ({"wall_clock_hours": float("inf")}, "received inf"),
        ({"wall_clock_hours": float("nan")}, "received nan"),
        ({"wall_clock_hours": 10**400}, "must be a positive finite number"),
        ({"stale_pivot": 9}, "stale_pivot <= stale_fresh"),
    ],
)
def test_an_unknown_or_endless_limit_is_refused(limits: dict[str, Any], said: str) -> None:
    assert said in draft_faults(replace(SCRIPT, limits=limits))[0]


def test_a_limit_changes_its_own_default_alone() -> None:
    limits = limits_of(replace(SCRIPT, limits={"refusals_total": 5, "wall_clock_hours": 2}))
    assert (limits.refusals_total, limits.wall_clock_hours, limits.idle_refusals) == (5, 2.0, 3)
    assert type(limits.wall_clock_hours) is float


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_timeout_is_finite_and_positive(seconds: float) -> None:
    assert draft_faults(replace(SCRIPT, timeout_seconds=seconds))[0].startswith("timeout_seconds: must be")


@pytest.mark.parametrize("glob", ["", "!", "/etc/*", "../x", "a/../b", "~/x", "a\nb"])
def test_a_glob_that_leaves_or_names_nothing_is_refused(glob: str) -> None:
    assert draft_faults(replace(SCRIPT, protect=(glob,)))[0].startswith("protect: ")


@pytest.mark.parametrize("name", ["", "A=1", "1A", "A B", "A\n"])
def test_what_is_no_name_of_a_variable_is_refused(name: str) -> None:
    assert draft_faults(replace(SCRIPT, environment_names=(name,)))[0].startswith("env: ")


@pytest.mark.parametrize("text", ["a\0b", "a\ud800", "ab" * 10_001])
def test_a_text_that_no_file_could_hold_is_refused(text: str) -> None:
    assert draft_faults(replace(SCRIPT, goal=text))[0].startswith("goal: it h")


def test_every_fault_is_named_at_once() -> None:
    draft = replace(SCRIPT, goal="TODO", scope=("...",), protect=("/x",), limits={"no": 1})
    assert [fault.split(":")[0] for fault in draft_faults(draft)] == ["goal", "scope", "limits", "protect"]
