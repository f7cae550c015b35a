"""A foreign tool with a ``command`` argument is no shell: its words start, block and bind nothing."""

from __future__ import annotations

import json

import pytest

from omx_autoresearch.agents.registry import parse_bytes

EVENTS = {"claude": "PostToolUse", "codex": "PostToolUse", "gemini": "AfterTool"}
SHELLS = {"claude": "Bash", "codex": "Bash", "gemini": "run_shell_command"}


@pytest.mark.requirement("SESS-04")
@pytest.mark.parametrize("client", sorted(EVENTS))
def test_only_the_clients_own_shell_tool_has_a_command(client: str) -> None:
    def command_of(tool: str) -> str:
        payload = {
            "hook_event_name": EVENTS[client],
            "session_id": "0a1b2c3d-0000-4000-8000-00000000000a",
            "tool_name": tool,
            "tool_input": {"command": "omx-autoresearch start"},
        }
        return parse_bytes(client, json.dumps(payload).encode(), {}).tool_command

    assert command_of(SHELLS[client]) == "omx-autoresearch start"
    assert command_of("mcp__other__run") == ""
