from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from omx_autoresearch.agents import registry
from omx_autoresearch.agents.events import HookEvent
from omx_autoresearch.foundation import clients
from omx_autoresearch.foundation.clients import CLIENT_NAMES
from omx_autoresearch.foundation.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
STOP_EVENTS = {"claude": "Stop", "codex": "Stop", "gemini": "AfterAgent"}


def parsed(name: str, environ: dict[str, str] | None = None, **fields: object) -> HookEvent:
    return registry.parse_bytes(name, json.dumps(fields).encode(), environ or {})


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_an_adapter_states_its_own_name_and_registers_its_stop_first(name: str) -> None:
    client = registry.adapter(name).CLIENT
    assert client.name == name
    assert client.entries[0].native_event == STOP_EVENTS[name]
    assert client.entries[0].kind == "stop"


def test_an_unknown_client_is_a_usage_error_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="claude, codex, gemini"):
        registry.adapter("telnet")


@pytest.mark.requirement("HOOK-04")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_every_registered_event_is_one_that_the_adapter_understands(name: str) -> None:
    for entry in registry.adapter(name).CLIENT.entries:
        assert parsed(name, hook_event_name=entry.native_event, session_id="s1").kind != "other"


@pytest.mark.case("HIO-05")
@pytest.mark.parametrize("name", CLIENT_NAMES)
@pytest.mark.parametrize(
    "raw", [b"{", b"", b"null", b"[]", b'"x"', b"a" * 200_000, b"[" * 100_000, b"\xff\xfe{\x00"]
)
def test_garbage_is_an_event_with_a_fault_that_proves_no_session(name: str, raw: bytes) -> None:
    event = registry.parse_bytes(name, raw, {})
    assert event == HookEvent(client=name, kind="other", fault=event.fault)
    assert event.fault
    assert registry.parse_bytes(name, raw, {}) == event


@pytest.mark.parametrize("name", CLIENT_NAMES)
@pytest.mark.parametrize("value", [None, 0, True, 1.5, "", "x", [], [1], {}, {"a": 1}, "\ud800", "\x00"])
def test_no_type_of_any_field_can_make_an_adapter_fail(name: str, value: object) -> None:
    fields = [
        "hook_event_name",
        "session_id",
        "cwd",
        "agent_id",
        "prompt",
        "source",
        "stop_reason",
        "reason",
        "error",
        "background_tasks",
        "tool_name",
        "tool_input",
        "tool_response",
        "last_assistant_message",
        "prompt_response",
        "unknown",
    ]
    for entry in registry.adapter(name).CLIENT.entries:
        for field in fields:
            payload = {"hook_event_name": entry.native_event, "session_id": "s1", field: value}
            event = registry.parse_bytes(name, json.dumps(payload).encode(), {})
            assert isinstance(event, HookEvent)
            for attribute in event.__slots__:
                text = getattr(event, attribute)
                if isinstance(text, str):
                    text.encode()  # no lone surrogate is left


@pytest.mark.case("HIO-07")
@pytest.mark.requirement("HOOK-03")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_the_locale_has_no_say_in_how_a_payload_is_read(name: str) -> None:
    payload = {"hook_event_name": STOP_EVENTS[name], "session_id": "s1", "cwd": "/repo/ñ"}
    payload |= {"last_assistant_message": '表\\" ok', "prompt_response": '表\\" ok'}
    raw = json.dumps(payload, ensure_ascii=False).encode()
    code = (
        "import sys; from omx_autoresearch.agents.registry import parse_bytes\n"
        f"event = parse_bytes({name!r}, sys.stdin.buffer.read(), {{}})\n"
        "sys.stdout.buffer.write(repr((event.session_id, event.cwd, event.last_message)).encode())"
    )
    environ = {"LC_ALL": "C", "PYTHONIOENCODING": "cp932", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], input=raw, capture_output=True, env=environ, cwd=ROOT, check=True
    )
    assert done.stdout.decode() == repr(("s1", "/repo/ñ", '表\\" ok'))


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_a_byte_order_mark_changes_nothing(name: str) -> None:
    raw = json.dumps({"hook_event_name": STOP_EVENTS[name], "session_id": "s1"}).encode()
    with_mark, without = (registry.parse_bytes(name, data, {}) for data in (b"\xef\xbb\xbf" + raw, raw))
    assert (with_mark.kind, with_mark.session_id) == (without.kind, without.session_id) == ("stop", "s1")


def test_the_same_bytes_have_the_same_digest_and_tool_events_have_none() -> None:
    first = parsed("claude", hook_event_name="Stop", session_id="s1", last_assistant_message="a")
    again = parsed("claude", hook_event_name="Stop", session_id="s1", last_assistant_message="a")
    other = parsed("claude", hook_event_name="Stop", session_id="s1", last_assistant_message="b")
    assert first.payload_digest == again.payload_digest != other.payload_digest
    assert len(first.payload_digest) == 64
    assert parsed("claude", hook_event_name="PostToolUse", session_id="s1").payload_digest == ""


@pytest.mark.requirement("SESS-15")
@pytest.mark.parametrize("name", CLIENT_NAMES)
@pytest.mark.parametrize(
    "mark",
    [
        {"AI_AGENT": "claude-code_2-1-332_agent"},
        {"CODEX_THREAD_ID": "t"},
        {"CODEX_TOOL_CALL_ID": "c"},
        {"GEMINI_CLI": "1"},
        {"QWEN_CODE": "1"},
        {"COPILOT_AGENT_SESSION_ID": "x"},
    ],
)
def test_a_prompt_event_out_of_a_tool_shell_is_no_persons(name: str, mark: dict[str, str]) -> None:
    prompt = {"claude": "UserPromptSubmit", "codex": "UserPromptSubmit", "gemini": "BeforeAgent"}[name]
    fields = {"hook_event_name": prompt, "session_id": "s1", "prompt": "$autoresearch cancel"}
    assert parsed(name, {}, **fields).origin.standing != "no_person"
    assert parsed(name, mark, **fields).origin.standing == "no_person"


def test_the_marks_that_claudes_own_hooks_carry_do_not_make_a_prompt_forged() -> None:
    hook = {
        "CLAUDECODE": "1",
        "CLAUDE_CODE_SESSION_ID": "s1",
        "CLAUDE_CODE_CHILD_SESSION": "1",
        "AI_AGENT": "claude-code_2-1-332_harness",
        "GEMINI_SESSION_ID": "g1",
    }
    found = parsed("claude", hook, hook_event_name="UserPromptSubmit", prompt="go on")
    assert found.origin.standing != "no_person"


def test_the_session_of_a_tool_shell_is_read_best_variable_first() -> None:
    environ = {"CODEX_THREAD_ID": "thread", "CODEX_SESSION_ID": "session", "CODEX_CI": "1"}
    assert clients.session_from_environment(environ) == ("codex", "session")
    assert clients.session_from_environment({"GEMINI_CLI": "1"}) == ("", "")
    assert clients.session_from_environment({}) == ("", "")


def test_a_client_inside_another_names_two_sessions_and_neither_is_chosen() -> None:
    environ = {"CODEX_SESSION_ID": "outer", "CLAUDE_CODE_SESSION_ID": "inner"}
    assert clients.session_from_environment(environ) == ("", "")


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_the_marks_of_every_client_are_among_all_marks(name: str) -> None:
    marks = clients.KNOWN[name].shell_marks
    assert marks
    assert set(marks) <= set(clients.SHELL_MARKS)


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_one_adapter_is_imported_and_nothing_heavy_with_it(name: str) -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from omx_autoresearch.agents.registry import parse_bytes\n"
        f'parse_bytes({name!r}, b\'{{"hook_event_name":"PostToolUse"}}\', {{}})\n'
        "print(*sorted(set(sys.modules) - before))"
    )
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"]
    found = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert f"omx_autoresearch.agents.clients.{name}" in found
    others = {f"omx_autoresearch.agents.clients.{other}" for other in CLIENT_NAMES if other != name}
    heavy = {
        "subprocess",
        "pathlib",
        "tempfile",
        "shlex",
        "logging",
        "asyncio",
        "ctypes",
        "pydantic",
        "click",
    }
    assert not found & (
        others | heavy | {"omx_autoresearch.agents.hook_lines", "omx_autoresearch.agents.headless"}
    )
