"""The hold as it is: what proves it, what ends it, and that its owner is told."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.agents.clients.claude import CLIENT as CLAUDE
from omx_autoresearch.agents.events import StopCap
from omx_autoresearch.missions import holds, lifecycle_commands, sessions
from omx_autoresearch.missions.registry import Registry, beat
from omx_autoresearch.missions.views import view
from omx_autoresearch.system.processes import identify
from tests.support.scratch import OTHER, SESSION, Scratch

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission


def hold(world: Scratch, mission: Mission) -> str:
    return view(world.runtime(), mission.task_id).hold


def told(world: Scratch, mission: Mission, *words: str) -> None:
    """A lost hold: shown with a next step, as a notice, in NOTICE, and recorded once however often one looks."""
    for _ in range(3):
        shown = view(world.runtime(), mission.task_id)
        assert all(word in shown.hold for word in words), shown.hold
    world.follow()
    shown = view(world.runtime(), mission.task_id)
    assert shown.next_command
    assert shown.next_command in (
        f"$autoresearch {mission.task_id}",
        f"omx-autoresearch doctor {shown.client}",
    )
    assert any(words[0] in notice for notice in shown.notices), shown.notices
    notice = Path(world.home.mission(mission.task_id).notice_path).read_text()
    assert "HOLD LOST" in notice
    assert f"next: type in the agent: $autoresearch {mission.task_id}" in notice
    assert words[0] in notice
    assert "holds session" not in notice
    assert len(world.records(mission, "hold_lost")) == 1


@pytest.mark.requirement("SESS-20")
def test_a_session_that_ends_in_mid_mission_is_told_as_ended(world: Scratch) -> None:
    mission = world.mission()
    assert world.stop().refusal
    world.tell(world.payload("SessionEnd", reason="other"))
    told(world, mission, "session ended (in mid-mission, at ")
    assert view(world.runtime(), mission.task_id).next_command == f"$autoresearch {mission.task_id}"


@pytest.mark.requirement("SESS-20")
@pytest.mark.parametrize(
    ("events", "how"),
    [
        (("tool",), "the client did not ask the stop hook before it ended"),
        (("tool", "turn_done"), "its last stop got no answer from the hook"),
        ((), ""),
    ],
)
def test_the_end_of_a_session_says_what_the_client_left_out_before(
    world: Scratch, events: tuple[str, ...], how: str
) -> None:
    mission = world.mission()
    world.stop()
    for status in events:  # turn_done without a record is a stop that the client gave up on
        path = world.home.mission(mission.task_id).heartbeat_path
        beat(path, at=world.runtime().now(), status=status, session_id=SESSION)
    world.tell(world.payload("SessionEnd", reason="other"))
    assert how in hold(world, mission)
    assert (";" in hold(world, mission)) is bool(how)


@pytest.mark.requirement("SESS-20")
def test_a_cleared_session_and_one_of_an_ended_mission_are_no_lost_holds(world: Scratch) -> None:
    mission = world.mission()
    world.stop()
    world.tell(world.payload("SessionEnd", reason="clear"))
    lifecycle_commands.pause(world.runtime(), mission.task_id)
    world.tell(world.payload("SessionEnd", reason="other"))
    assert not world.records(mission, "hold_lost")
    assert hold(world, mission) == "let go (the mission is paused)"


@pytest.mark.requirement("SESS-20")
def test_any_later_event_of_the_session_proves_that_it_came_back(world: Scratch) -> None:
    mission = world.mission()
    world.stop()
    world.tell(world.payload("SessionEnd", reason="other"))
    world.tool()
    assert hold(world, mission).startswith("proven")
    world.stop()
    assert world.load(mission).lost_hold is None
    assert hold(world, mission).startswith("proven")


@pytest.mark.requirement("SESS-20")
def test_a_client_that_was_killed_is_gone_and_its_agents_own_look_is_not_asked(world: Scratch) -> None:
    mission = world.mission(session="")
    with subprocess.Popen(["sleep", "600"]) as client:
        act = sessions.Act(SESSION, "claude", "prompt", client_process=identify(client.pid))
        sessions.bind(world.runtime(), mission.task_id, act)
        world.stop()
        assert hold(world, mission).startswith("proven")
        client.kill()
    # an agent in a sandbox sees no process of its own client
    assert view(world.runtime(CLAUDECODE="1"), mission.task_id).hold.startswith("proven")
    told(world, mission, "lost (client gone: process ")


@pytest.mark.requirement("SESS-20")
def test_a_stop_without_an_answer_loses_the_hold_once_no_hook_can_answer_it(world: Scratch) -> None:
    mission = world.mission()
    world.stop()
    path = world.home.mission(mission.task_id).heartbeat_path
    beat(path, at=world.runtime().now(), status="turn_done", session_id=SESSION)
    assert hold(world, mission).startswith("proven"), "the hook may still be at work"
    world.clock.move(seconds=holds.ANSWER_SECONDS + 1)
    told(world, mission, "lost (the stop at ", "got no answer")
    assert view(world.runtime(), mission.task_id).next_command == "omx-autoresearch doctor claude"


@pytest.mark.requirement("SESS-20")
def test_a_refusal_at_the_clients_cap_may_have_been_overridden(world: Scratch) -> None:
    mission = world.mission()
    capped = replace(CLAUDE, stop_cap=StopCap(limit=2))
    world.clock.move(seconds=1)
    assert world.stop(client=capped).refusal
    assert world.load(mission).last_stop.override_expected  # type: ignore[union-attr]
    assert hold(world, mission).startswith("proven")
    world.clock.move(seconds=holds.OVERRIDE_SECONDS + 1)
    told(world, mission, "lost (the client's cap")
    world.tool()
    assert hold(world, mission).startswith("proven"), "the agent went on"


@pytest.mark.requirement("SESS-20")
@pytest.mark.parametrize(
    ("client", "file", "settings", "word"),
    [
        ("claude", ".claude/settings.local.json", {"disableAllHooks": True}, "disableAllHooks is true"),
        ("claude", ".claude/settings.json", {"env": {"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "1"}}, "CAP is 1"),
        ("gemini", ".gemini/settings.json", {"hooksConfig": {"enabled": False}}, "enabled is false"),
    ],
)
def test_a_setting_that_turns_the_hooks_off_loses_the_hold(
    world: Scratch, client: str, file: str, settings: Any, word: str
) -> None:
    mission = world.mission(client=client)
    world.stop()
    world.write(file, json.dumps(settings))
    told(world, mission, "lost (", word)
    assert view(world.runtime(), mission.task_id).next_command == f"omx-autoresearch doctor {client}"
    (world.project / file).unlink()
    assert hold(world, mission).startswith(("proven", "lost"))


@pytest.mark.requirement("SESS-20")
def test_a_stop_that_was_let_through_is_shown_as_let_go_until_the_agent_works_again(world: Scratch) -> None:
    mission = world.mission()
    world.stop(stop_reason="rate_limit")
    assert hold(world, mission).startswith("let go (the client ended the turn: rate limit; ")
    world.tool()
    assert hold(world, mission).startswith("proven (stop answered ")


@pytest.mark.requirement("SESS-20")
def test_tools_that_close_after_a_call_that_no_hook_followed_lose_the_hold(world: Scratch) -> None:
    mission = world.mission()
    world.stop()
    entry = Registry(world.home).find(SESSION)
    assert entry is not None
    holds.tools_closed(world.runtime(), [entry], "")
    called_at = world.runtime().now()
    world.tool()
    holds.tools_closed(world.runtime(), [entry], called_at)
    assert not world.records(mission, "hold_lost"), "a hook followed the call"
    holds.tools_closed(world.runtime(), [entry], world.runtime().now())
    told(world, mission, "lost (the client closed its tools")


@pytest.mark.requirement("SESS-20")
def test_another_sessions_end_is_nothing_to_the_bound_one(world: Scratch) -> None:
    mission = world.mission()
    world.stop()
    path = world.home.mission(mission.task_id).heartbeat_path
    beat(path, at=world.runtime().now(), status="session_end", session_id=OTHER)
    assert hold(world, mission).startswith("proven")


@pytest.mark.requirement("SESS-13")
def test_before_a_session_is_bound_the_hold_waits_with_doctors_proof(world: Scratch) -> None:
    runtime, folder = world.runtime(), Path(world.home.root_path) / "installed"
    record = folder / "claude-0.json"
    assert "UNPROVEN" in holds.waiting_text(runtime)
    holds.remember_proof(runtime, str(record), is_held=True)
    assert "UNPROVEN" in holds.waiting_text(runtime), "nothing is installed"
    folder.mkdir(parents=True)
    record.write_text("{}")
    holds.remember_proof(runtime, str(record), is_held=True)
    world.clock.move(seconds=130)
    assert holds.waiting_text(world.runtime()).startswith("waits for a session (proven 2 min 1")
    holds.remember_proof(runtime, str(record), is_held=False)
    assert "UNPROVEN" in holds.waiting_text(runtime)
    assert os.listdir(folder) == ["claude-0.json"]
