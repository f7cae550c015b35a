from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.agents.clients import gemini
from omx_autoresearch.agents.clients.gemini.installation import installation
from omx_autoresearch.agents.registry import parse_bytes

if TYPE_CHECKING:
    from omx_autoresearch.agents.events import HookEvent

SAMPLES = [
    json.loads(line) for line in (Path(__file__).parent / "samples" / "gemini.jsonl").read_text().splitlines()
]


def samples(event: str) -> list[HookEvent]:
    rows = [row["stdin"] for row in SAMPLES if row["event"] == event]
    return [parse_bytes("gemini", json.dumps(row).encode(), {}) for row in rows]


def event(**fields: object) -> HookEvent:
    return gemini.parse({"session_id": "s1", **fields})


@pytest.mark.case("HIO-04")
@pytest.mark.requirement("HOOK-04")
@pytest.mark.parametrize(
    ("native", "kind"),
    [
        ("AfterAgent", "stop"),
        ("SessionStart", "session_start"),
        ("BeforeAgent", "prompt"),
        ("AfterTool", "tool"),
        ("PreCompress", "other"),
        ("SessionEnd", "session_end"),
        ("BeforeTool", "other"),
    ],
)
def test_every_captured_event_is_understood(native: str, kind: str) -> None:
    found = samples(native)
    assert found
    assert {(one.kind, one.session_id, one.fault) for one in found} == {
        (kind, "00000000-0000-4000-8000-000000000001", "")
    }


@pytest.mark.case("HIO-04")
def test_the_gate_is_registered_on_after_agent_and_the_sessions_end_never_refuses() -> None:
    assert gemini.CLIENT.entries[0].native_event == "AfterAgent"
    assert event(hook_event_name="SessionEnd").kind == "session_end"


def test_a_compression_is_not_registered_since_it_comes_before_every_call_of_the_model() -> None:
    assert "PreCompress" not in {entry.native_event for entry in gemini.CLIENT.entries}


@pytest.mark.requirement("SESS-02")
@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ("<hook_context>summary\nof two lines</hook_context>\n\n$autoresearch TASK", "$autoresearch TASK"),
        ("$autoresearch TASK", "$autoresearch TASK"),
        ("see <hook_context>x</hook_context>", "see <hook_context>x</hook_context>"),
        (
            "<hook_context>a</hook_context>\n\nsee <hook_context>b</hook_context>",
            "see <hook_context>b</hook_context>",
        ),
    ],
)
def test_the_context_before_the_first_prompt_is_taken_off(sent: str, seen: str) -> None:
    found = event(hook_event_name="BeforeAgent", prompt=sent)
    assert (found.prompt, found.origin.standing) == (seen, "by_signs")


def test_our_own_refusal_that_comes_back_as_a_prompt_is_no_persons() -> None:
    for sent in (
        "[omx-autoresearch] still missing",
        "<hook_context>x</hook_context>\n\n[omx-autoresearch] no",
    ):
        assert event(hook_event_name="BeforeAgent", prompt=sent).origin.standing == "no_person"


def test_a_stop_carries_what_the_turn_has_said_so_far() -> None:
    first, second = samples("AfterAgent")
    assert second.last_message.startswith(first.last_message)
    assert second.prompt == ""


def test_a_tool_event_gives_what_the_person_sees_and_else_what_the_model_sees() -> None:
    shell, mcp = samples("AfterTool")
    assert (shell.tool_command, shell.tool_output) == ("echo TOOL-RAN-42", "TOOL-RAN-42")
    assert mcp.tool_output == "MCP-ANSWER mission=m-1 running"
    hidden = event(hook_event_name="AfterTool", tool_response={"llmContent": [{"text": "only here"}]})
    assert hidden.tool_output == "only here"


def test_no_line_for_gemini_holds_a_dollar_sign_which_it_would_replace() -> None:
    assert all(entry.guard != "start" for entry in gemini.CLIENT.entries)


def test_settings_stand_with_the_user_or_in_the_project() -> None:
    assert installation("user", {"HOME": "/h"}, "/p").settings_path == "/h/.gemini/settings.json"
    assert installation("user", {"HOME": "/h", "GEMINI_CLI_HOME": "/g"}, "/p").settings_path.startswith("/g/")
    assert installation("project", {"HOME": "/h"}, "/p").settings_path == "/p/.gemini/settings.json"
