"""Every event but a stop: the pulse, the summary, the person's word; none of them holds or releases anybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.missions import lifecycle_commands, sessions
from omx_autoresearch.missions.claims import relay_line
from omx_autoresearch.missions.registry import Registry
from omx_autoresearch.missions.views import view
from tests.support.scratch import OTHER, SESSION, Scratch

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission


def beats(world: Scratch, mission: Mission) -> list[str]:
    path = Path(world.home.mission(mission.task_id).heartbeat_path)
    return [json.loads(line)["status"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.requirement("HOOK-07")
@pytest.mark.parametrize("is_process", [True, False])
def test_each_event_of_a_held_session_leaves_its_beat(world: Scratch, is_process: bool) -> None:
    mission = world.mission()
    tell = world.hook if is_process else world.tell
    tell(world.payload("SessionStart", source="startup"))
    tell(world.payload("UserPromptSubmit", prompt="begin"))
    tell(world.payload("PostToolUse", tool_name="Bash"))
    tell(world.payload("PostToolUseFailure", tool_name="Bash"))
    tell(world.payload(last_assistant_message="done"))
    tell(world.payload("PreCompact", trigger="auto"))
    tell(world.payload("StopFailure", error="rate_limit"))
    tell(world.payload("SessionEnd", reason="exit"))
    assert beats(world, mission) == [
        "session_start", "starting_turn", "tool", "tool", "turn_done", "compacting", "stop_failure", "session_end",
    ]  # fmt: skip


@pytest.mark.requirement("HOOK-05", "SESS-01")
@pytest.mark.parametrize(
    "event", ["SessionStart", "UserPromptSubmit", "PostToolUse", "PreCompact", "SessionEnd"]
)
def test_events_of_other_sessions_and_of_sub_agents_say_and_leave_nothing(world: Scratch, event: str) -> None:
    mission = world.mission()
    before = world.kinds(mission)
    fields = {
        "prompt": "hello",
        "source": "startup",
        "tool_name": "Bash",
        "trigger": "auto",
        "reason": "exit",
    }
    assert world.tell(world.payload(event, OTHER, **fields)).is_silent
    assert world.tell(world.payload(event, "", **fields)).is_silent
    assert world.tell(world.payload(event, agent_id="a1", **fields)).is_silent
    assert beats(world, mission) == []
    assert world.kinds(mission) == before


@pytest.mark.requirement("HOOK-07")
@pytest.mark.parametrize("event", ["UserPromptSubmit", "SessionStart", "PostToolUse"])
def test_a_beat_that_cannot_be_written_warns_and_everything_goes_on(world: Scratch, event: str) -> None:
    mission = world.mission()
    heartbeat = Path(world.home.mission(mission.task_id).heartbeat_path)
    heartbeat.mkdir()
    answer = world.hook(world.payload(event, prompt="hello", source="startup", tool_name="Bash"))
    assert f"the heartbeat of {mission.task_id} could not be written" in answer.json["systemMessage"]
    assert world.hook(world.payload(last_assistant_message="done")).reason, "it holds all the same"
    if event == "UserPromptSubmit":
        assert "person_prompted" in world.kinds(mission)


@pytest.mark.requirement("SESS-09")
@pytest.mark.parametrize("ts", ["", "yesterday", "2026-01-02T03:04:05", "2026-13-02T03:04:05.000000Z", "9"])
def test_a_beat_whose_time_nobody_can_read_is_none(world: Scratch, ts: str) -> None:
    mission = world.mission()
    world.tell(world.payload("SessionStart", source="startup"))
    shown = view(world.runtime(), mission.task_id).last_heartbeat_at
    with open(world.home.mission(mission.task_id).heartbeat_path, "a", encoding="utf-8") as stream:
        stream.write(json.dumps({"ts": ts, "status": "tool", "session": SESSION}) + "\n")
    assert view(world.runtime(), mission.task_id).last_heartbeat_at == shown
    assert world.hook(world.payload()).reason


@pytest.mark.requirement("HOOK-05")
@pytest.mark.parametrize("step", ["running", "paused", "blocked"])
def test_a_session_start_puts_the_mission_before_the_agents_eyes(world: Scratch, step: str) -> None:
    mission = world.mission()
    world.stop()
    if step == "paused":
        lifecycle_commands.pause(world.runtime(), mission.task_id)
    if step == "blocked":
        lifecycle_commands.block(world.runtime(), mission.task_id, reason="no device", needs="a device")
    summary = world.tell(world.payload("SessionStart", source="startup")).context
    assert summary.startswith(f"[omx-autoresearch] Mission {mission.task_id}\nGoal: {mission.goal}")
    assert f"Phase {step}, iteration 1" in summary
    assert "Newest run r-" in summary
    assert ("It refuses no stop now." in summary) == (step != "running")
    assert ("no device" in summary) == (step == "blocked")
    assert len(summary) < 1200


@pytest.mark.requirement("GATE-13")
def test_a_persons_prompt_is_recorded_once_a_prompt_and_only_while_the_mission_runs(world: Scratch) -> None:
    mission = world.mission()
    world.prompt("try the other parser")
    assert world.kinds(mission).count("person_prompted") == 1
    journal = Path(world.home.mission(mission.task_id).journal_path).read_text()
    assert "other parser" not in journal, "what a person says is not kept"
    lifecycle_commands.pause(world.runtime(), mission.task_id)
    world.prompt("and this")
    assert world.kinds(mission).count("person_prompted") == 1


@pytest.mark.requirement("GATE-14", "GATE-18")
def test_a_turn_that_a_person_began_and_that_used_no_tool_is_no_iteration(world: Scratch) -> None:
    mission = world.mission()
    world.stop()
    for _ in range(3):
        world.prompt("what do you think?")
        assert world.stop().refusal
    talked = world.load(mission)
    assert (talked.iteration, talked.usage.stale, talked.usage.refusals) == (1, 0, 4)
    world.prompt("go on then")
    world.tool()
    world.stop()
    assert (world.load(mission).iteration, world.load(mission).usage.stale) == (2, 1)


@pytest.mark.requirement("SESS-16", "LIFE-07")
def test_an_agent_that_can_write_nothing_is_heard_through_its_client(world: Scratch) -> None:
    mission = world.mission()
    command = 'omx-autoresearch block --reason "no device" --needs "a device"'
    world.tool(command=command, output="blocked")
    assert world.load(mission).phase == "running", "only where the command said that it could not"
    world.tool(OTHER, command=command, output=relay_line("block"))
    world.tool(command=command, output=relay_line("block"), agent_id="a1")
    assert world.load(mission).phase == "running"
    answer = world.hook(
        world.payload(
            "PostToolUse",
            tool_name="Bash",
            tool_input={"command": command},
            tool_response={"stdout": "", "stderr": relay_line("block")},
        )
    )
    assert answer.exit_status == 0
    after = world.load(mission)
    assert (after.phase, after.blocker and after.blocker.what) == ("blocked", "no device")
    assert "no device" in world.stop().person_message
    assert world.stop().is_silent


@pytest.mark.requirement("LIFE-06")
def test_no_owner_verb_is_heard_through_a_client(world: Scratch) -> None:
    mission = world.mission()
    for verb in ("cancel", "pause", "approve", "unbind", "amend"):
        world.tool(command=f"omx-autoresearch {verb} {mission.task_id}", output=relay_line(verb))
    assert world.load(mission).phase == "running"
    assert world.load(mission).binding is not None


@pytest.mark.requirement("SESS-10")
def test_the_client_of_a_session_that_was_bound_by_id_alone_is_known_from_its_first_prompt(
    world: Scratch,
) -> None:
    mission = world.mission(session="")
    sessions.bind(world.runtime(), mission.task_id, sessions.Act(SESSION, "", "session-option"))
    entry = Registry(world.home).find(SESSION)
    assert entry is not None
    assert entry.client_pid == 0
    world.prompt("begin")
    entry = Registry(world.home).find(SESSION)
    me = sessions.client_process()
    assert entry is not None
    assert me is not None
    assert (entry.client, entry.client_pid) == ("claude", me.pid)
    before = world.kinds(mission)
    world.prompt("go on")
    assert world.kinds(mission) == [*before, "person_prompted"]


@pytest.mark.requirement("GATE-03")
@pytest.mark.parametrize("event", ["SessionStart", "UserPromptSubmit"])
def test_a_fault_at_another_event_is_told_and_logged(world: Scratch, event: str) -> None:
    mission = world.mission()
    journal = Path(world.home.mission(mission.task_id).journal_path)
    journal.write_bytes(b"")
    answer = world.hook(world.payload(event, prompt="hello", source="startup"))
    assert set(answer.json) == {"systemMessage"}
    assert str(journal) in (world.home_path / "hook.log").read_text()
    again = world.hook(world.payload(event, prompt="hello again", source="startup"))
    assert again.is_silent == (event != "SessionStart"), "a new start tells it once more"
