"""What a prompt may command: everything where it is proven to be a person's, little where it is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.agents.clients.claude import CLIENT
from omx_autoresearch.agents.events import PROVEN, Origin, Reply
from omx_autoresearch.agents.registry import parse_bytes
from omx_autoresearch.missions import lifecycle_commands, speakers
from omx_autoresearch.missions.claims import write_changed
from omx_autoresearch.missions.hook_events import answer_event
from omx_autoresearch.missions.speakers import record_trial
from omx_autoresearch.missions.views import view
from tests.support.scratch import OTHER, SESSION, Scratch

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission

UNPROVEN = Origin("unproven", "Codex keeps no record of this session")


def say(world: Scratch, prompt: str, origin: Origin = UNPROVEN, session: str = SESSION) -> Reply:
    """The answer to a prompt of which the adapter found out this."""
    raw = json.dumps(world.payload("UserPromptSubmit", session, prompt=prompt)).encode()
    event = replace(parse_bytes("claude", raw, {}), origin=origin)
    reply = answer_event(world.runtime(), CLIENT, event)
    write_changed(world.runtime())
    return reply


def hand(world: Scratch, text: str) -> Reply:
    """The answer to a tool event: the model set a timer with this text."""
    return world.tell(world.payload("PostToolUse", tool_name="CronCreate", tool_input={"prompt": text}))


def unproven(world: Scratch, mission: Mission) -> list[str]:
    return [str(line["data"]["command"]) for line in world.records(mission, "unproven_prompt")]


@pytest.mark.requirement("SESS-17")
def test_an_unproven_prompt_looks_and_leaves_no_record(world: Scratch) -> None:
    mission = world.mission()
    assert mission.task_id in say(world, "$autoresearch status").context
    assert unproven(world, mission) == []


@pytest.mark.requirement("SESS-17")
def test_an_unproven_prompt_pauses_holds_again_and_binds_what_the_owner_started(world: Scratch) -> None:
    mission = world.mission(session="")
    say(world, f"$autoresearch {mission.task_id}")
    assert world.load(mission).binding is not None
    say(world, "$autoresearch pause")
    assert world.load(mission).phase == "paused"
    say(world, f"$autoresearch resume {mission.task_id}", session=OTHER)
    after = world.load(mission)
    assert (after.phase, after.binding and after.binding.session_id) == ("running", OTHER)
    assert unproven(world, mission) == ["$autoresearch bind", "$autoresearch pause", "$autoresearch resume"]


@pytest.mark.requirement("SESS-17")
def test_an_unproven_cancel_pauses_and_names_the_terminals_command(world: Scratch) -> None:
    mission = world.mission()
    reply = say(world, "$autoresearch cancel")
    assert world.load(mission).phase == "paused"
    assert f"omx-autoresearch cancel {mission.task_id}" in reply.context
    assert reply.person_message
    again = say(world, f"$autoresearch cancel {mission.task_id}")
    assert world.load(mission).phase == "paused"
    assert f"omx-autoresearch cancel {mission.task_id}" in again.context


@pytest.mark.requirement("SESS-17")
def test_an_unproven_prompt_launches_no_draft_and_unblocks_nothing(world: Scratch) -> None:
    draft = world.draft(slug="draft")
    reply = say(world, f"$autoresearch {draft.task_id}", session=OTHER)
    assert (world.load(draft).phase, unproven(world, draft)) == ("draft", ["$autoresearch bind"])
    assert f"omx-autoresearch start {draft.task_id}" in reply.person_message
    mission = world.mission(slug="blocked")
    lifecycle_commands.block(world.runtime(), mission.task_id, reason="no device", needs="a device")
    reply = say(world, f"$autoresearch resume {mission.task_id}")
    assert world.load(mission).phase == "blocked"
    assert f"omx-autoresearch unblock {mission.task_id}" in reply.person_message


@pytest.mark.requirement("SESS-17")
def test_a_proven_prompt_does_all_of_it(world: Scratch) -> None:
    draft = world.draft()
    say(world, f"$autoresearch {draft.task_id}", PROVEN)
    assert world.load(draft).phase == "running"
    lifecycle_commands.block(world.runtime(), draft.task_id, reason="no device", needs="a device")
    say(world, "$autoresearch resume", PROVEN)
    assert world.load(draft).phase == "running"
    say(world, "$autoresearch cancel", PROVEN)
    assert (world.load(draft).phase, unproven(world, draft)) == ("cancelled", [])


@pytest.mark.requirement("SESS-17")
def test_an_unproven_command_is_shown_in_notice_and_status_and_status_line_until_the_owner_speaks(
    world: Scratch,
) -> None:
    from omx_autoresearch.surfaces import statusline

    mission = world.mission()
    say(world, "$autoresearch pause")
    notice = Path(world.home.mission(mission.task_id).notice_path).read_text(encoding="utf-8")
    shown = view(world.runtime(), mission.task_id).notices
    line = json.dumps({"session_id": SESSION, "cwd": str(world.project)}).encode()
    assert "not proven to be a person's" in notice
    assert [item for item in shown if "$autoresearch pause" in item and UNPROVEN.why in item]
    assert statusline.line_for(line, str(world.home_path)).endswith("unproven prompt")
    lifecycle_commands.resume(world.runtime(), mission.task_id)
    assert "unproven" not in statusline.line_for(line, str(world.home_path))


@pytest.mark.requirement("SESS-17")
def test_an_unproven_prompt_without_a_command_begins_no_count_anew(world: Scratch) -> None:
    mission = world.mission()
    world.stop()
    assert world.load(mission).usage.idle_refusals == 1
    say(world, "go on")
    assert world.load(mission).usage.idle_refusals == 1
    say(world, "go on", PROVEN)
    assert world.load(mission).usage.idle_refusals == 0


@pytest.mark.requirement("SESS-18")
def test_a_client_that_fails_its_own_proof_goes_by_signs_and_status_says_so(world: Scratch) -> None:
    mission = world.mission()
    assert view(world.runtime(), mission.task_id).prompts.startswith("proven")
    forged = Origin("forged", "a file or a pipe gave this hook its event")
    assert "must be typed by a person" in say(world, "$autoresearch cancel", forged).context
    record_trial(world.runtime(), "claude", is_proven=False)
    assert view(world.runtime(), mission.task_id).prompts.startswith("by signs")
    say(world, "$autoresearch cancel", forged)
    assert world.load(mission).phase == "cancelled"


@pytest.mark.requirement("SESS-18")
def test_a_trial_that_succeeds_ends_going_by_signs(world: Scratch) -> None:
    mission = world.mission()
    record_trial(world.runtime(), "claude", is_proven=False)
    record_trial(world.runtime(), "claude", is_proven=True)
    say(world, "$autoresearch cancel", Origin("forged", "a pipe gave this hook its event"))
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("SESS-19")
def test_a_text_is_known_for_as_long_as_the_files_of_texts_have_room(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speakers, "HANDED_LIMIT_BYTES", 33 * 4)
    mission = world.mission()
    for number in range(14):
        hand(world, f"go on {number}")
        assert Path(world.home.handed_path).stat().st_size <= 33 * 8
    world.stop()
    world.prompt("go on 13")
    assert world.load(mission).usage.idle_refusals == 1
    world.prompt("go on 0")
    assert world.load(mission).usage.idle_refusals == 0


@pytest.mark.requirement("SESS-19")
def test_a_person_whose_words_an_agent_scheduled_is_told_another_way_that_works(world: Scratch) -> None:
    mission = world.mission()
    for verb, phase, terminal in (
        ("cancel", "running", "cancel"),
        ("pause", "running", "pause"),
        ("resume", "paused", "resume"),
    ):
        if phase == "paused":
            lifecycle_commands.pause(world.runtime(), mission.task_id)
        hand(world, f"$autoresearch {verb}")
        said = say(world, f"$autoresearch {verb}", PROVEN)
        assert said.person_message.endswith(
            f"in a terminal of your own: omx-autoresearch {terminal} {mission.task_id}"
        )
        assert world.load(mission).phase == phase
    lifecycle_commands.resume(world.runtime(), mission.task_id)
    lifecycle_commands.unbind(world.runtime(), mission.task_id)
    hand(world, f"$autoresearch {mission.task_id}")
    said = say(world, f"$autoresearch {mission.task_id}", PROVEN)
    assert world.load(mission).binding is None
    other = said.person_message.partition("in other words: ")[2]
    hand(world, other)
    assert "must be typed by a person" in say(world, other, PROVEN).context, (
        "whatever an agent hands on is known"
    )
    say(world, other.replace("please", "now"), PROVEN)
    assert world.load(mission).binding is not None


@pytest.mark.requirement("SESS-19")
def test_what_stands_in_the_place_of_the_texts_is_told_and_lets_no_stop_go(world: Scratch) -> None:
    world.mission()
    Path(world.home.handed_path).mkdir()
    assert "handed-texts" in hand(world, "go on").person_message
    crons = [{"id": "1", "schedule": "* * * * *", "prompt": "go on"}]
    assert world.stop(session_crons=crons).refusal
