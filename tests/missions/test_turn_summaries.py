"""When an agent is told how its mission stands, and what is recorded where a heartbeat cannot be written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.directions import inject
from omx_autoresearch.missions.rules import briefing
from omx_autoresearch.missions.rules.directions import direction_of
from omx_autoresearch.missions.views import view
from tests.support.scratch import OTHER, fingerprint

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission
    from tests.support.scratch import Scratch


def start(world: Scratch, source: str, **more: str) -> str:
    """The context that a session start brings."""
    return world.tell(world.payload("SessionStart", source=source, **more)).context


@pytest.mark.requirement("BRIEF-02", "HOOK-05")
@pytest.mark.parametrize("source", ["startup", "resume", "compact"])
def test_a_session_start_and_a_compaction_bring_the_whole_summary(world: Scratch, source: str) -> None:
    mission = world.mission()
    assert start(world, source) == briefing.summary(world.load(mission))
    assert start(world, source), "each time, since the context before is gone"


@pytest.mark.requirement("BRIEF-02")
def test_a_prompt_brings_the_summary_where_a_word_of_it_changed_since_the_last_one(world: Scratch) -> None:
    mission = world.mission()
    first = world.prompt("how is it going?").context
    assert first == briefing.summary(world.load(mission))
    assert world.prompt("and now?").context == ""
    inject(world.runtime(), mission.task_id, direction_of("ask the database team", {}))
    assert "ask the database team" in world.prompt("now?").context
    assert world.prompt("now?").context == ""
    world.tool()
    world.stop()
    assert "iteration 1;" in world.prompt("now?").context


@pytest.mark.requirement("BRIEF-01", "BRIEF-02")
def test_a_session_without_a_mission_is_told_nothing_and_nothing_is_written(world: Scratch) -> None:
    mission = world.mission()
    before = fingerprint(world.root)
    assert world.prompt("hello", session=OTHER).is_silent
    assert fingerprint(world.root) == before
    assert world.tell(world.payload("SessionStart", OTHER, source="compact")).is_silent
    assert world.kinds(mission)[-1] == "session_bound"
    lifecycle_commands.pause(world.runtime(), mission.task_id)
    assert world.prompt("hello").is_silent, "a paused mission says nothing at a prompt"
    lifecycle_commands.unbind(world.runtime(), mission.task_id, reason="enough")
    assert start(world, "resume") == ""


@pytest.mark.requirement("BRIEF-02")
def test_a_summary_that_is_fed_back_as_a_prompt_moves_nothing(world: Scratch) -> None:
    mission = world.mission()
    said = world.prompt("go on").context
    before = world.kinds(mission)
    world.prompt(said)
    assert set(world.kinds(mission)[len(before) :]) <= {"person_prompted"}
    assert world.load(mission).binding == mission.binding


def unwritable_heartbeat(world: Scratch, mission: Mission) -> None:
    path = world.home.mission(mission.task_id).heartbeat_path
    if os.path.lexists(path):
        os.unlink(path)
    os.mkdir(path)


@pytest.mark.requirement("BRIEF-03", "HOOK-07")
def test_a_failed_heartbeat_is_recorded_once_a_turn_and_holds_nobody(world: Scratch) -> None:
    mission = world.mission()
    unwritable_heartbeat(world, mission)
    for _ in range(3):
        assert "could not be written" in world.tool().person_message
    assert [record["data"]["status"] for record in world.records(mission, "heartbeat_failed")] == ["tool"]
    assert world.stop().refusal
    assert len(world.records(mission, "heartbeat_failed")) == 1
    world.prompt("go on")
    assert len(world.records(mission, "heartbeat_failed")) == 2, "another turn"
    notices = view(world.runtime(), mission.task_id).notices
    assert any("the heartbeat tool was not written" in notice for notice in notices)


@pytest.mark.requirement("BRIEF-03")
def test_status_shows_the_events_of_a_missions_life_with_time_and_kind(world: Scratch) -> None:
    mission = world.mission()
    lifecycle_commands.block(world.runtime(), mission.task_id, reason="no device", needs="a device")
    lifecycle_commands.unblock(world.runtime(), mission.task_id, reason="here it is")
    lifecycle_commands.pause(world.runtime(), mission.task_id)
    lifecycle_commands.resume(world.runtime(), mission.task_id)
    world.write("answer.txt", "42\n")
    world.stop()
    shown = view(world.runtime(), mission.task_id).lifecycle
    assert [item.kind for item in shown] == [
        *("mission_created", "mission_launched", "mission_blocked", "mission_unblocked"),
        *("mission_paused", "mission_resumed", "mission_completed"),
    ]
    assert [item.at for item in shown] == sorted(item.at for item in shown)
