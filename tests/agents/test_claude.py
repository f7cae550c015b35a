from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.agents.clients import claude
from omx_autoresearch.agents.clients.claude.installation import RAISED_CAP, installation
from omx_autoresearch.agents.registry import parse_bytes
from omx_autoresearch.foundation.clients import KNOWN
from omx_autoresearch.missions.rules.allowances import Limits

if TYPE_CHECKING:
    from omx_autoresearch.agents.events import HookEvent

SAMPLES = [
    json.loads(line) for line in (Path(__file__).parent / "samples" / "claude.jsonl").read_text().splitlines()
]


def samples(event: str) -> list[HookEvent]:
    rows = [row["stdin"] for row in SAMPLES if row["event"] == event]
    return [parse_bytes("claude", json.dumps(row).encode(), {}) for row in rows]


def event(**fields: object) -> HookEvent:
    return claude.parse({"session_id": "s1", **fields})


@pytest.mark.requirement("HOOK-04")
@pytest.mark.parametrize(
    ("native", "kind"),
    [
        ("Stop", "stop"),
        ("SubagentStop", "subagent_stop"),
        ("StopFailure", "stop_failure"),
        ("SessionStart", "session_start"),
        ("UserPromptSubmit", "prompt"),
        ("PostToolUse", "tool"),
        ("PreCompact", "pre_compact"),
        ("SessionEnd", "session_end"),
        ("PreToolUse", "other"),
        ("PostCompact", "other"),
        ("statusLine", "other"),
    ],
)
def test_every_captured_event_is_understood(native: str, kind: str) -> None:
    found = samples(native)
    assert found
    assert {(one.kind, one.session_id, one.fault) for one in found} == {
        (kind, "00000000-0000-4000-8000-000000000001", "")
    }


def test_a_stop_carries_the_last_message_and_no_background_work() -> None:
    first = samples("Stop")[0]
    assert (first.last_message, first.background_tasks, first.host_end) == ("I am done (1).", (), "")


def test_a_session_start_says_where_it_comes_from() -> None:
    assert {one.source for one in samples("SessionStart")} == {"startup", "resume", "compact"}


def test_a_prompt_is_kept_verbatim() -> None:
    assert samples("UserPromptSubmit")[0].prompt == "Please finish the mission."
    assert samples("UserPromptSubmit")[0].origin.standing != "no_person"


def test_a_tool_event_gives_command_and_output() -> None:
    shell, mcp = samples("PostToolUse")
    assert (shell.tool_command, shell.tool_output) == ("echo TOOL-RAN-42", "TOOL-RAN-42")
    assert (mcp.tool_command, mcp.tool_output) == ("", "MCP-ANSWER mission=m-1 running")


def test_a_failed_tool_gives_its_error_as_output() -> None:
    failed = event(
        hook_event_name="PostToolUseFailure",
        tool_name="Bash",
        tool_input={"command": "false"},
        error="Exit code 3\nout\nerr",
    )
    assert (failed.kind, failed.tool_command) == ("tool", "false")
    assert failed.tool_output == "Exit code 3\nout\nerr"


@pytest.mark.case("SES-09")
@pytest.mark.requirement("SESS-05")
def test_a_stop_with_an_agent_id_is_a_sub_agents() -> None:
    assert event(hook_event_name="Stop", agent_id="a1").kind == "subagent_stop"
    assert event(hook_event_name="SubagentStop").kind == "subagent_stop"
    assert event(hook_event_name="Stop", agent_id="").kind == "stop"


def test_a_sub_agents_prompt_is_no_persons() -> None:
    child = event(hook_event_name="UserPromptSubmit", prompt="go", agent_id="a1")
    assert child.origin.standing == "no_person"


@pytest.mark.case("LOOP-07")
def test_running_tasks_are_background_work_and_timers_are_not() -> None:
    running = [{"id": "t1", "type": "subagent", "status": "running"}]
    assert event(hook_event_name="Stop", background_tasks=running).background_tasks
    assert not event(
        hook_event_name="Stop", background_tasks=[], session_crons=[{"id": "c"}]
    ).background_tasks
    assert not event(hook_event_name="Stop", background_tasks="running").background_tasks


@pytest.mark.case("LOOP-05")
def test_a_stop_failure_names_why_the_host_ended() -> None:
    assert event(hook_event_name="StopFailure", error="rate_limit").host_end == "rate_limit"
    assert event(hook_event_name="StopFailure", error="authentication_failed").host_end == "auth_failure"
    assert samples("StopFailure")[0].host_end == ""
    assert event(hook_event_name="SessionStart", reason="context_limit").host_end == ""


@pytest.mark.requirement("SESS-02")
@pytest.mark.parametrize(
    ("typed", "seen"),
    [
        ("/omx:autoresearch TASK", "/autoresearch TASK"),
        ("/omx-autoresearch:autoresearch TASK", "/autoresearch TASK"),
        ("/omx:autoresearch", "/autoresearch"),
        ("/autoresearch TASK", "/autoresearch TASK"),
        ("$autoresearch TASK", "$autoresearch TASK"),
        ("/omx:autoresearchers TASK", "/omx:autoresearchers TASK"),
        ("/other:autoresearch TASK", "/other:autoresearch TASK"),
        ("say /omx:autoresearch TASK", "say /omx:autoresearch TASK"),
    ],
)
def test_the_plugins_prefix_is_taken_off_our_command_only(typed: str, seen: str) -> None:
    assert event(hook_event_name="UserPromptSubmit", prompt=typed).prompt == seen


def test_a_prompt_field_on_another_event_is_not_a_prompt() -> None:
    assert event(hook_event_name="PostToolUse", prompt="$autoresearch TASK").prompt == ""


@pytest.mark.requirement("INST-03")
def test_the_raised_cap_is_finite_and_above_what_a_mission_may_refuse() -> None:
    limits = Limits()
    longest_row = limits.idle_refusals + limits.wait_refusals
    assert longest_row < RAISED_CAP - 1, "no mission of default limits expects an override"
    assert RAISED_CAP <= 2 * 8, "Claude Code's own guard of a goal stays near what it was"
    found = installation("user", {"HOME": "/h"}, "/p")
    known, (cap, raised) = KNOWN["claude"], found.environment[0]
    assert known.installed_setting == f'"{cap}": "{raised}"'
    assert known.hold_settings == (*(keys[-1] for keys in found.off_switches), cap)
    assert found.environment == (("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", "16"),)


@pytest.mark.requirement("INST-05")
def test_settings_stand_with_the_user_or_in_the_project() -> None:
    assert installation("user", {"HOME": "/h"}, "/p").settings_path == "/h/.claude/settings.json"
    assert installation("user", {"CLAUDE_CONFIG_DIR": "/c"}, "/p").settings_path == "/c/settings.json"
    project = installation("project", {"HOME": "/h"}, "/p")
    assert project.settings_path == "/p/.claude/settings.json"
    assert project.other_settings_paths == ("/h/.claude/settings.json", "/p/.claude/settings.local.json")
