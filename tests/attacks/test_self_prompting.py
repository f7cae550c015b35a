"""Prompts that a model has its client submit: they command nothing, and begin no count of refusals anew."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.scratch import OTHER, SESSION, Scratch

CANCEL = "$autoresearch cancel"
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "a wake-up of Claude Code": ("ScheduleWakeup", {"delaySeconds": 60, "reason": "x", "prompt": "PROMPT"}),
    "a timer": ("CronCreate", {"cron": "* * * * *", "prompt": "PROMPT", "recurring": True}),
    "a message of Codex": ("multi_agent_v1send_input", {"target": SESSION, "message": "PROMPT"}),
    "a message in parts": (
        "multi_agent_v1send_input",
        {"target": SESSION, "items": [{"type": "text", "text": "PRO"}, {"type": "text", "text": "MPT"}]},
    ),
    "a follow-up": ("followup_task", {"target": "/root", "message": "\n PROMPT"}),
}


def call(
    world: Scratch, tool: str, arguments: dict[str, Any], text: str, session: str = SESSION, **own: Any
) -> None:
    """A model calls a tool with the text in its arguments, and the real hook hears of it."""
    first, last = text[:7], text[7:]

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return {"PRO": first, "MPT": last}.get(value, value.replace("PROMPT", text))
        if isinstance(value, list):
            return [filled(item) for item in value]
        return {name: filled(item) for name, item in value.items()} if isinstance(value, dict) else value

    event = world.payload("PostToolUse", session, tool_name=tool, tool_input=filled(arguments), **own)
    world.hook({**event, "tool_response": {}})


@pytest.mark.requirement("SESS-19")
@pytest.mark.parametrize("way", CALLS)
def test_a_command_that_a_model_has_submitted_is_no_persons(world: Scratch, way: str) -> None:
    mission = world.mission()
    call(world, *CALLS[way], CANCEL)
    said = world.hook(world.payload("UserPromptSubmit", prompt=CANCEL))
    assert "must be typed by a person" in said.json["hookSpecificOutput"]["additionalContext"]
    after = world.load(mission)
    assert (after.phase, len(after.refused_verbs)) == ("running", 1)


@pytest.mark.requirement("SESS-19")
@pytest.mark.parametrize("tool", ["CronCreate", "mcp__any__tool"])
def test_no_command_hides_among_many_other_texts(world: Scratch, tool: str) -> None:
    mission = world.mission()
    call(world, tool, {"junk": ["x"] * 5000, "prompt": "PROMPT"}, CANCEL)
    said = world.hook(world.payload("UserPromptSubmit", prompt=CANCEL))
    assert "must be typed by a person" in said.json["hookSpecificOutput"]["additionalContext"]
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("SESS-19")
@pytest.mark.parametrize("way", CALLS)
def test_words_that_a_model_has_submitted_begin_no_count_anew(world: Scratch, way: str) -> None:
    mission = world.mission()
    world.stop()
    call(world, *CALLS[way], "go on, please")
    world.hook(world.payload("UserPromptSubmit", prompt="go on, please"))
    assert world.load(mission).usage.idle_refusals == 1
    world.hook(world.payload("UserPromptSubmit", prompt="go on, but faster"))
    assert world.load(mission).usage.idle_refusals == 0


@pytest.mark.requirement("SESS-19")
@pytest.mark.parametrize(
    ("given", "submitted"),
    [
        (f"  {CANCEL}", CANCEL),
        (f"{CANCEL}\nand a second line", f"{CANCEL}\nand another one"),
        ("/autoresearch cancel", CANCEL),
        ("/omx-autoresearch:autoresearch   cancel", "/omx-autoresearch:autoresearch cancel"),
        ("$autoresearch TASK", "$autoresearch TASK"),
    ],
)
def test_a_submitted_command_is_known_in_another_form(world: Scratch, given: str, submitted: str) -> None:
    mission = world.mission()
    weaker = world.draft(goal="less", slug="weaker", validator_command="./check.sh weaker")
    call(world, *CALLS["a wake-up of Claude Code"], given.replace("TASK", weaker.task_id))
    world.hook(world.payload("UserPromptSubmit", prompt=submitted.replace("TASK", weaker.task_id)))
    assert (world.load(mission).phase, world.load(weaker).phase) == ("running", "draft")


@pytest.mark.requirement("SESS-19")
@pytest.mark.parametrize("session", [SESSION, OTHER])
def test_a_tool_that_is_not_known_hands_no_command_on(world: Scratch, session: str) -> None:
    mission = world.mission()
    call(world, "mcp__clock__later", {"when": "soon", "say": {"text": "PROMPT"}}, CANCEL, session)
    world.hook(world.payload("UserPromptSubmit", prompt=CANCEL))
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("SESS-19")
def test_a_sub_agent_hands_no_command_on(world: Scratch) -> None:
    mission = world.mission()
    call(world, *CALLS["a message of Codex"], CANCEL, agent_id="agent-1")
    world.hook(world.payload("UserPromptSubmit", prompt=CANCEL))
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("SESS-19")
def test_a_skill_that_the_model_called_is_not_the_persons_and_one_that_was_typed_is(world: Scratch) -> None:
    mission = world.mission()
    world.hook(world.payload("UserPromptSubmit", prompt=f"/autoresearch pause {mission.task_id}"))
    assert world.load(mission).phase == "paused"
    call(world, "Skill", {"skill": "autoresearch", "args": "PROMPT"}, f"resume {mission.task_id}")
    world.hook(world.payload("UserPromptSubmit", prompt=f"/autoresearch resume {mission.task_id}"))
    assert world.load(mission).phase == "paused"


@pytest.mark.requirement("SESS-19")
def test_a_timer_that_was_set_before_the_mission_began_is_known_from_the_stop(world: Scratch) -> None:
    mission = world.mission()
    world.hook(world.payload(session_crons=[{"id": "1", "schedule": "* * * * *", "prompt": CANCEL}]))
    world.hook(world.payload("UserPromptSubmit", prompt=CANCEL))
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("SESS-19")
def test_a_goal_that_the_model_set_is_no_persons_prompt_and_a_typed_one_is(world: Scratch) -> None:
    mission = world.mission()
    world.stop()
    call(world, "SetGoal", {"condition": "PROMPT"}, "all tests pass")
    world.hook(world.payload("UserPromptSubmit", prompt="Goal set: all tests pass"))
    assert world.load(mission).usage.idle_refusals == 1
    world.hook(world.payload("UserPromptSubmit", prompt="/goal the answer stands"))
    assert world.load(mission).usage.idle_refusals == 0


@pytest.mark.requirement("SESS-19")
def test_what_a_shell_or_a_file_holds_takes_no_word_from_the_person(world: Scratch) -> None:
    mission = world.mission()
    call(world, "Bash", {"command": "PROMPT"}, CANCEL)
    call(world, "Write", {"file_path": "notes.md", "content": "Type PROMPT to leave."}, CANCEL)
    world.hook(world.payload("UserPromptSubmit", prompt=CANCEL))
    assert world.load(mission).phase == "cancelled"
