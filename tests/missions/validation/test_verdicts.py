"""One content has one verdict: what was rejected stands until it changes, and reviews are finite."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import StepIllegal
from omx_autoresearch.missions import lifecycle_commands, sessions
from omx_autoresearch.missions.amending import amend_mission
from omx_autoresearch.missions.rules.reviews import content_mark
from omx_autoresearch.missions.validation import runs
from omx_autoresearch.missions.validation.asked import validate_now
from omx_autoresearch.missions.validation.reviews import record_review
from omx_autoresearch.missions.views import open_items
from tests.support.scratch import OTHER, SESSION, Scratch

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.missions.rules.mission import Mission

ROLLS = """#!/bin/sh
nonce=$(sed -n 's/.*"nonce": "\\([0-9a-f]*\\)".*/\\1/p')
echo called >> "{calls}"
verdict=rejected
[ "$(wc -l < "{calls}")" -ge {approves_at} ] && verdict=approved
printf '{{"nonce": "%s", "verdict": "%s", "summary": "no source"}}\\n' "$nonce" "$verdict"
"""
"""A reviewer that approves whatever it reads from its Nth call on."""


class Rolled:
    """A mission whose reviewer would approve at a later call, whatever it reads."""

    def __init__(self, world: Scratch, *, approves_at: int = 2, **fields: Any) -> None:
        self.world = world
        self.calls_path = world.root / "calls"
        script = ROLLS.format(calls=self.calls_path, approves_at=approves_at)
        world.write("review.sh", script, executable=True)
        self.mission = world.mission(
            validator_prompt="Is every claim sourced?",
            output_artifact_path="report.md",
            reviewer_command="./review.sh",
            **fields,
        )

    @property
    def calls(self) -> int:
        return len(self.calls_path.read_text().splitlines()) if self.calls_path.exists() else 0

    def now(self) -> Mission:
        return self.world.load(self.mission)


@pytest.mark.requirement("DONE-41")
def test_a_rejection_stands_however_often_and_by_whomever_it_is_asked_again(world: Scratch) -> None:
    rolled = Rolled(world)
    world.write("report.md", "All is well.\n")
    assert "failed (rejected): no source" in world.stop().refusal
    asked_again = world.stop().refusal
    assert "so this verdict stands and no reviewer is asked again" in asked_again
    assert "next: change report.md" in asked_again
    assert "omx-autoresearch review" not in asked_again, "no refusal tells the agent to roll again"
    world.prompt("look again, please")
    assert "failed (rejected)" in world.stop().refusal
    with pytest.raises(StepIllegal, match=r"report\.md was rejected as it is"):
        validate_now(world.runtime(), rolled.now(), wait_seconds=60)
    runs.validate(world.runtime(), rolled.mission.task_id, runs.Ask("none"), wait_seconds=60)
    lifecycle_commands.pause(world.runtime(), rolled.mission.task_id)
    lifecycle_commands.resume(world.runtime(), rolled.mission.task_id)
    assert "failed (rejected)" in world.stop().refusal
    assert rolled.calls == 1


@pytest.mark.requirement("DONE-41")
@pytest.mark.parametrize(
    "text",
    [
        "All  is\nwell.\n\n\n",
        "\ufeffAll is well.",
        "Allis well.",
        "All\u00a0is\u2003well.",
        "A\u200bll is w\u2060ell\u00ad.",
        "A\ufe0fll is\u3164 well.\x00",
    ],
)
def test_white_space_and_what_nobody_sees_make_no_new_content(world: Scratch, text: str) -> None:
    rolled = Rolled(world)
    world.write("report.md", "All is well.\n")
    world.stop()
    world.write("report.md", text)
    refusal = world.stop().refusal
    assert "only white space changed since, so this verdict stands" in refusal
    assert rolled.calls == 1


@pytest.mark.requirement("DONE-41")
def test_content_that_changed_is_reviewed_and_an_older_rejected_one_is_not(world: Scratch) -> None:
    rolled = Rolled(world, approves_at=3)
    for text in ("one\n", "two\n"):
        world.write("report.md", text)
        assert "failed (rejected): no source" in world.stop().refusal
    world.write("report.md", "one\n")
    assert "so this verdict stands" in world.stop().refusal
    assert rolled.calls == 2
    world.write("report.md", "three\n")
    assert "(approved after 2 rejections)" in world.stop().person_message
    assert world.completion(rolled.mission)["architect_review"] == {"verdict": "approved", "rejections": 2}


@pytest.mark.requirement("DONE-41")
def test_the_verdict_on_an_earlier_content_is_told_as_one(world: Scratch) -> None:
    rolled = Rolled(world)
    world.write("report.md", "one\n")
    world.stop()
    world.write("report.md", "two\n")
    _, (item,) = open_items(world.runtime(), rolled.now())
    assert item.received.startswith("no review of this content yet; of an earlier one: run r-")
    assert item.next_command == f"omx-autoresearch review {rolled.mission.task_id}"


@pytest.mark.requirement("DONE-41")
def test_under_another_contract_the_same_content_is_judged_anew(world: Scratch) -> None:
    rolled = Rolled(world)
    world.write("report.md", "one\n")
    world.stop()
    task_id = rolled.mission.task_id
    amend_mission(world.runtime(), task_id, lambda draft: replace(draft, limits={"refusals_total": 300}))
    assert "so this verdict stands" in world.stop().refusal, "an allowance is no other contract"
    amend_mission(world.runtime(), task_id, lambda draft: replace(draft, validator_prompt="Is it short?"))
    assert "is complete" in world.stop().person_message
    assert rolled.calls == 2


@pytest.mark.requirement("DONE-41")
def test_only_a_person_overrules_a_rejection(world: Scratch) -> None:
    rolled = Rolled(world, reviewed_by=("command", "person", "session"))
    world.write("report.md", "one\n")
    world.stop()
    task_id = rolled.mission.task_id
    with pytest.raises(StepIllegal, match="was rejected as it is"):
        record_review(world.runtime(), task_id, "session", is_approved=True, session_id=OTHER)
    record_review(world.runtime(), task_id, "person", is_approved=True)
    assert "(approved after 1 rejection)" in world.stop().person_message


# --- how many reviews there are


@pytest.mark.requirement("DONE-42")
def test_when_the_reviews_are_spent_the_owner_is_asked_and_new_content_waits(world: Scratch) -> None:
    rolled = Rolled(world, approves_at=3, limits={"reviews": 2})
    for text in ("one\n", "two\n"):
        world.write("report.md", text)
        assert "failed (rejected)" in world.stop().refusal
    assert world.stop().refusal, "what was rejected is the agent's work, reviews or not"
    world.write("report.md", "three\n")
    told = world.stop().person_message
    task_id = rolled.mission.task_id
    assert "(reviews-spent): all reviews of this mission (2) are spent" in told
    assert f"omx-autoresearch amend {task_id} --limit reviews=4 && omx-autoresearch unblock {task_id}" in told
    assert rolled.now().phase == "blocked"
    lifecycle_commands.unblock(world.runtime(), task_id)
    assert "reviews-spent" in world.stop().person_message, "unblock alone adds none"
    with pytest.raises(StepIllegal, match="are spent"):
        validate_now(world.runtime(), rolled.now(), wait_seconds=60)
    amend_mission(world.runtime(), task_id, lambda draft: replace(draft, limits={"reviews": 4}))
    lifecycle_commands.unblock(world.runtime(), task_id)
    assert "is complete" in world.stop().person_message
    assert rolled.calls == 3


@pytest.mark.requirement("DONE-42")
def test_a_review_that_was_killed_counts_as_well(world: Scratch) -> None:
    world.write("review.sh", "#!/bin/sh\nkill -9 $$\n", executable=True)
    mission = world.mission(
        validator_prompt="Is it true?", output_artifact_path="report.md", reviewer_command="./review.sh"
    )
    world.write("report.md", "one\n")
    world.stop()
    assert world.load(mission).review_count == 1


@pytest.mark.requirement("DONE-42")
def test_a_look_at_criteria_is_no_review(world: Scratch) -> None:
    mission = world.mission()
    world.stop()
    assert world.load(mission).review_count == 0


# --- what is the same content


def test_what_is_no_text_is_compared_by_its_bytes() -> None:
    assert content_mark(b"\xff a") != content_mark(b"\xffa")
    assert content_mark("größer".encode()) == content_mark("grö ßer\u200b".encode())
    assert content_mark(b"one") != content_mark(b"two")


# --- verdicts that come at the same time


MEANWHILE = """#!/bin/sh
nonce=$(sed -n 's/.*"nonce": "\\([0-9a-f]*\\)".*/\\1/p')
: > "{began}"
while [ ! -e "{go_on}" ]; do sleep 0.02; done
printf '{{"nonce": "%s", "verdict": "{verdict}", "summary": "by the command"}}\\n' "$nonce"
"""


@pytest.mark.requirement("DONE-41")
@pytest.mark.parametrize("is_approved", [True, False])
def test_what_a_person_said_while_the_reviewer_read_the_same_content_stands(
    world: Scratch, *, is_approved: bool
) -> None:
    began, go_on = world.root / "began", world.root / "go-on"
    verdict = "rejected" if is_approved else "approved"
    script = MEANWHILE.format(began=began, go_on=go_on, verdict=verdict)
    world.write("review.sh", script, executable=True)
    mission = world.mission(
        validator_prompt="Is it true?", output_artifact_path="report.md", reviewer_command="./review.sh"
    )
    world.write("report.md", "one\n")

    def speak(wait: Callable[[float], bool], seconds: float) -> bool:
        while not began.exists():
            assert not wait(0.02)
        record_review(world.runtime(), mission.task_id, "person", is_approved=is_approved, summary="read it")
        go_on.touch()
        return wait(seconds)

    runs.validate(world.runtime(), mission.task_id, runs.Ask("none"), wait_seconds=60, waits=speak)
    said = world.stop()
    assert ("is complete" in said.person_message) is is_approved
    assert ("rejected-by-person): read it" in said.refusal) is not is_approved


@pytest.mark.requirement("DONE-41")
def test_approved_content_is_not_reviewed_again_either(world: Scratch) -> None:
    rolled = Rolled(world, approves_at=1)
    world.write("report.md", "one\n")
    for _ in range(2):
        assert validate_now(world.runtime(), rolled.now(), wait_seconds=60)
    assert rolled.calls == 1
    assert "is complete" in world.stop().person_message


@pytest.mark.requirement("DONE-43")
def test_no_session_that_worked_on_the_mission_reviews_it(world: Scratch) -> None:
    mission = world.mission(
        validator_prompt="Is it true?", output_artifact_path="report.md", reviewed_by=("session",)
    )
    world.write("report.md", "one\n")
    sessions.bind(world.runtime(), mission.task_id, sessions.Act(OTHER, "claude", "prompt"))
    for session in (SESSION, OTHER):
        with pytest.raises(StepIllegal, match="cannot review itself"):
            record_review(world.runtime(), mission.task_id, "session", is_approved=True, session_id=session)
