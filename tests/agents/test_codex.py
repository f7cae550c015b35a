from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.agents.clients import codex
from omx_autoresearch.agents.clients.codex.installation import installation
from omx_autoresearch.agents.registry import parse_bytes

if TYPE_CHECKING:
    from omx_autoresearch.agents.events import HookEvent

SAMPLES = [
    json.loads(line) for line in (Path(__file__).parent / "samples" / "codex.jsonl").read_text().splitlines()
]


def samples(event: str) -> list[HookEvent]:
    rows = [row["stdin"] for row in SAMPLES if row["event"] == event]
    return [parse_bytes("codex", json.dumps(row).encode(), {}) for row in rows]


def event(**fields: object) -> HookEvent:
    return codex.parse({"session_id": "s1", **fields})


@pytest.mark.requirement("HOOK-04")
@pytest.mark.parametrize(
    ("native", "kind"),
    [
        ("Stop", "stop"),
        ("SessionStart", "session_start"),
        ("UserPromptSubmit", "prompt"),
        ("PostToolUse", "tool"),
        ("SessionEnd", "session_end"),
        ("PreToolUse", "other"),
    ],
)
def test_every_captured_event_is_understood(native: str, kind: str) -> None:
    found = samples(native)
    assert found
    assert {(one.kind, one.session_id, one.fault) for one in found} == {
        (kind, "00000000-0000-4000-8000-000000000001", "")
    }


def test_a_stop_carries_the_last_message_and_null_is_none() -> None:
    assert samples("Stop")[0].last_message == "I am done (1)."
    assert event(hook_event_name="Stop", last_assistant_message=None).last_message == ""


def test_a_tool_event_gives_command_and_output() -> None:
    found = samples("PostToolUse")[0]
    assert (found.tool_command, found.tool_output) == ("echo TOOL-RAN-42", "TOOL-RAN-42\n")


@pytest.mark.case("SES-09")
@pytest.mark.requirement("SESS-05")
def test_a_sub_agents_prompt_under_the_parents_session_is_no_persons() -> None:
    child = event(hook_event_name="UserPromptSubmit", prompt="$autoresearch TASK", agent_id="a1")
    assert (child.origin.standing, child.agent_id) == ("no_person", "a1")
    assert event(hook_event_name="Stop", agent_id="a1").kind == "subagent_stop"


def test_hooks_and_trust_stand_in_codex_home() -> None:
    found = installation("user", {"HOME": "/h", "CODEX_HOME": "/c", "SHELL": "/bin/zsh"}, "/p")
    assert (found.settings_path, found.features_path) == ("/c/hooks.json", "/c/config.toml")
    assert found.hook_shell == ("/bin/zsh", "-lc")
    project = installation("project", {"HOME": "/h"}, "/p")
    assert (project.settings_path, project.features_path) == ("/p/.codex/hooks.json", "/h/.codex/config.toml")
