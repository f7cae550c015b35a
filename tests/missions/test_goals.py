"""A mission beside a goal of the client's own: named with its way out, and it does not drive a let-go agent on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.agents.clients.claude import CLIENT as CLAUDE
from omx_autoresearch.agents.registry import denial_of, goal_of, parse_bytes, running_client
from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.views import view
from tests.support.scratch import SESSION, Answer, Scratch

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission

GOAL = "all tests pass"


def status(*, met: bool = False, **fields: Any) -> dict[str, Any]:
    """What Claude Code writes to its transcript of its goal."""
    return {
        "type": "attachment",
        "attachment": {"type": "goal_status", "met": met, "condition": GOAL, **fields},
    }


def updated(state: str) -> dict[str, Any]:
    """The same of Codex."""
    goal = {"status": state, "objective": GOAL}
    return {"type": "event_msg", "payload": {"type": "thread_goal_updated", "goal": goal}}


def record(world: Scratch, *lines: object) -> None:
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    (world.root / "transcript.jsonl").write_text(text)


def stop(world: Scratch, client: str = "claude", said: str = "done") -> Answer:
    return world.hook(world.payload(last_assistant_message=said), client)


def ended(answer: Answer) -> bool:
    """The client was told not to go on by itself."""
    return bool(answer.stdout) and answer.json.get("continue") is False


@pytest.mark.requirement("SESS-21")
@pytest.mark.parametrize(
    ("client", "lines", "expected"),
    [
        ("claude", [status()], GOAL),
        ("claude", [status(met=True), status()], GOAL),
        ("claude", [status(), status(met=True)], ""),
        ("claude", [status(failed=True)], ""),
        ("claude", [status(), 'no json "goal_status"\n'], ""),
        ("claude", [status(), {"type": "user", "text": 'the word "goal_status" alone'}], GOAL),
        ("claude", [], ""),
        ("codex", [updated("active")], GOAL),
        ("codex", [updated("active"), updated("complete")], ""),
        ("codex", [updated("active"), updated("budget_limited")], ""),
        ("codex", [{"type": "event_msg", "payload": {"type": "thread_goal_updated", "goal": 3}}], ""),
        ("gemini", [status()], ""),
    ],
)
def test_an_active_goal_is_read_from_the_clients_own_record(
    world: Scratch, client: str, lines: list[Any], expected: str
) -> None:
    record(world, *lines)
    assert goal_of(parse_bytes(client, json.dumps(world.payload()).encode(), {})) == expected


@pytest.mark.requirement("SESS-21")
def test_a_refusal_ends_no_turn_and_status_and_notice_name_the_goal_with_its_way_out(world: Scratch) -> None:
    mission = world.mission()
    record(world, status())
    answer = stop(world)
    assert answer.reason
    assert not ended(answer)
    world.follow()
    told = f'Claude Code\'s own goal "{GOAL}" is active and goes on by itself until a person types `/goal clear`.'
    assert any(told in notice for notice in view(world.runtime(), mission.task_id).notices)
    assert told in Path(world.home.mission(mission.task_id).notice_path).read_text()
    record(world, status(met=True))
    stop(world, said="again")
    assert not any("goal" in notice for notice in view(world.runtime(), mission.task_id).notices)


def blocked(world: Scratch, client: str) -> tuple[Mission, Answer]:
    """A mission that its last stop blocked, beside an active goal."""
    mission = world.mission(client=client, is_unsandboxed=True)
    answers = [stop(world, client, said=f"done {number}") for number in range(4)]
    assert world.load(mission).phase == "blocked"
    return mission, answers[-1]


@pytest.mark.requirement("SESS-21")
def test_after_a_blocked_release_claudes_goal_does_not_drive_the_agent_on(world: Scratch) -> None:
    record(world, status())
    _, answer = blocked(world, "claude")
    assert ended(answer)
    assert "BLOCKED" in answer.json["stopReason"]
    assert "/goal clear" in answer.json["systemMessage"]


@pytest.mark.requirement("SESS-21")
def test_codex_is_told_in_words_alone_for_an_unknown_key_would_void_the_answer(world: Scratch) -> None:
    record(world, updated("active"))
    _, answer = blocked(world, "codex")
    assert "continue" not in answer.json
    assert "`/goal clear` or `/goal pause`" in answer.json["systemMessage"]


@pytest.mark.requirement("SESS-21")
def test_after_a_pause_the_goal_is_ended_once_and_a_later_one_is_the_persons_own(world: Scratch) -> None:
    mission = world.mission()
    record(world, status())
    stop(world)
    lifecycle_commands.pause(world.runtime(), mission.task_id)
    assert ended(stop(world, said="first"))
    assert stop(world, said="second").is_silent
    lifecycle_commands.resume(world.runtime(), mission.task_id)
    assert stop(world, said="third").reason


@pytest.mark.requirement("SESS-21")
def test_a_typed_pause_names_the_goal(world: Scratch) -> None:
    world.mission()
    record(world, status())
    answer = world.hook(world.payload("UserPromptSubmit", prompt="$autoresearch pause"))
    assert "is paused" in answer.json["systemMessage"]
    assert "/goal clear" in answer.json["systemMessage"]


@pytest.mark.requirement("SESS-21")
def test_a_completed_mission_names_the_goal_and_leaves_it(world: Scratch) -> None:
    mission = world.mission()
    record(world, status())
    world.write("answer.txt", "42\n")
    answer = stop(world)
    assert world.load(mission).phase == "complete"
    assert not ended(answer)
    assert "is complete" in answer.json["systemMessage"]
    assert "/goal clear" in answer.json["systemMessage"]


@pytest.mark.requirement("SESS-21")
def test_without_a_goal_no_turn_is_ended(world: Scratch) -> None:
    _, answer = blocked(world, "claude")
    assert not ended(answer)
    assert "goal" not in answer.json["systemMessage"]


# --- a tool that the client denied


DENIED = "Claude requested permissions to write to /p/answer.txt, but you haven't granted it yet."


def result(text: str, *, is_error: bool = True) -> dict[str, Any]:
    """A tool's result in Claude Code's transcript."""
    part = {"type": "tool_result", "tool_use_id": "t1", "content": text, "is_error": is_error}
    return {"type": "user", "message": {"role": "user", "content": [part]}}


@pytest.mark.requirement("GATE-11")
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([result(DENIED)], DENIED),
        ([result("Permission to use Write has been denied.")], "Permission to use Write has been denied."),
        (
            [
                result(
                    "<tool_use_error>File is denied by your permission settings.</tool_use_error>\n\n<x>y</x>"
                )
            ],
            "File is denied by your permission settings.",
        ),
        ([result("exit code 1: access to the device has been denied")], ""),
        ([result(DENIED), result("ok", is_error=False)], ""),
        ([result(DENIED, is_error=False)], ""),
        ([result("exit code 1")], ""),
        ([{"type": "user", "message": {"content": '"tool_result"'}}], ""),
        ([], ""),
    ],
)
def test_a_denial_is_the_newest_tools(world: Scratch, lines: list[Any], expected: str) -> None:
    record(world, *lines)
    assert denial_of(parse_bytes("claude", json.dumps(world.payload()).encode(), {})) == expected


@pytest.mark.requirement("GATE-11", "GATE-20")
def test_a_denied_tool_is_named_to_the_person_and_ends_as_denied_not_as_stalled(world: Scratch) -> None:
    mission = world.mission()
    record(world, result(DENIED))
    assert DENIED in stop(world, said="first").json["systemMessage"]
    answers = [stop(world, said=f"done {number}") for number in range(3)]
    assert world.load(mission).phase == "blocked"
    assert "(tools-denied)" in answers[-1].json["systemMessage"]
    assert not world.load(mission).has_stalled


# --- a client that takes the hooks of another one's project settings


@pytest.mark.requirement("SESS-22")
def test_a_client_that_borrows_the_hooks_of_another_is_known_by_its_mark_and_cap(world: Scratch) -> None:
    assert running_client(CLAUDE, {}) == CLAUDE
    nested = {"COPILOT_CLI": "1", "CLAUDECODE": "1"}
    assert running_client(CLAUDE, nested) == CLAUDE, "it was started from the other one's shell"
    found = running_client(CLAUDE, {"COPILOT_CLI": "1"})
    assert (found.name, found.title, found.stop_cap.limit) == ("copilot", "Copilot CLI", 8)
    mission = world.mission(session="")
    prompt = world.payload("UserPromptSubmit", prompt=f"$autoresearch {mission.task_id}")
    world.hook(prompt, env={"COPILOT_CLI": "1"})
    binding = world.load(mission).binding
    assert binding is not None
    assert (binding.session_id, binding.client) == (SESSION, "copilot")
    assert world.hook(world.payload(), env={"COPILOT_CLI": "1"}).reason
    assert "copilot" in view(world.runtime(), mission.task_id).client
