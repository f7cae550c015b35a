from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from omx_autoresearch.agents import tool_events
from omx_autoresearch.agents.registry import CLIENT_NAMES, dialect

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_exactly_the_events_that_a_dialect_calls_tool_are_tool_events(name: str) -> None:
    module = dialect(name)
    for entry in module.CLIENT.entries:
        payload = {"hook_event_name": entry.native_event, "session_id": "s1"}
        found = module.parse(payload, "", {})
        assert tool_events.is_tool_event(name, payload) is (found.kind == "tool")


def test_an_unknown_client_has_no_tool_events() -> None:
    assert not tool_events.is_tool_event("telnet", {"hook_event_name": "PostToolUse"})


@pytest.mark.requirement("SPEED-04")
def test_a_tool_event_is_read_without_dataclasses_typing_or_the_rules() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules)\n"
        "from omx_autoresearch.agents import marks, payloads, tool_events\n"
        'p = payloads.read_object(b\'{"hook_event_name":"PostToolUse","tool_response":"x"}\')\n'
        "assert tool_events.tool_output_of('claude', p) == 'x'\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    found = set(done.stdout.split())
    assert not found & {"dataclasses", "typing", "inspect", "hashlib", "json", "re"}
    rules = {name for name in found if name.startswith("omx_autoresearch.missions.")}
    assert rules <= {"omx_autoresearch.foundation.json_codec"}  # reading JSON is no rule
