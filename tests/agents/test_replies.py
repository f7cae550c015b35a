from __future__ import annotations

import json
from typing import get_args

import pytest

from omx_autoresearch.agents.events import SILENCE, HookEvent, Reply
from omx_autoresearch.agents.payloads import MAX_REPLY_CHARS, fitting
from omx_autoresearch.agents.registry import adapter
from omx_autoresearch.foundation.clients import CLIENT_NAMES
from omx_autoresearch.foundation.types import EventKind

EVERYTHING = Reply(refusal="[omx-autoresearch] not yet", context="the mission", person_message="held")

ALLOWED: dict[str, set[str]] = {
    "stop": {"decision", "reason", "systemMessage"},
    "subagent_stop": set(),
    "session_start": {"hookSpecificOutput", "systemMessage"},
    "prompt": {"hookSpecificOutput", "systemMessage"},
    "tool": {"hookSpecificOutput", "systemMessage"},
    "pre_compact": {"systemMessage"},
    "session_end": set(),
    "stop_failure": set(),
    "other": set(),
}
"""The keys that every client takes for a kind of event; an unknown one voids the answer and lets the agent go."""

CONTEXT_NAMES = {
    "claude": {"session_start": "SessionStart", "prompt": "UserPromptSubmit", "tool": "PostToolUse"},
    "codex": {"session_start": "SessionStart", "prompt": "UserPromptSubmit", "tool": "PostToolUse"},
    "gemini": {"session_start": "SessionStart", "prompt": "BeforeAgent", "tool": "AfterTool"},
}


EACH: list[tuple[str, EventKind]] = [(name, kind) for name in CLIENT_NAMES for kind in get_args(EventKind)]


@pytest.mark.case("HIO-01")
@pytest.mark.requirement("HOOK-01")
@pytest.mark.parametrize(("name", "kind"), EACH)
def test_silence_is_not_one_byte(name: str, kind: EventKind) -> None:
    assert adapter(name).render(HookEvent(client=name, kind=kind), SILENCE) == b""


@pytest.mark.case("HIO-02")
@pytest.mark.requirement("HOOK-02")
@pytest.mark.parametrize(("name", "kind"), EACH)
def test_only_keys_that_the_client_takes_for_the_event_are_printed(name: str, kind: EventKind) -> None:
    raw = adapter(name).render(
        HookEvent(client=name, kind=kind, native_event=CONTEXT_NAMES[name].get(kind, "")), EVERYTHING
    )
    value = json.loads(raw) if raw else {}
    assert set(value) == ALLOWED[kind]
    specific = value.get("hookSpecificOutput")
    if specific:
        assert specific == {"hookEventName": CONTEXT_NAMES[name][kind], "additionalContext": "the mission"}


@pytest.mark.case("HIO-02")
@pytest.mark.case("HIO-04")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_a_refusal_is_block_with_a_reason(name: str) -> None:
    raw = adapter(name).render(
        HookEvent(client=name, kind="stop"), Reply(refusal="[omx-autoresearch] missing: proof")
    )
    assert json.loads(raw) == {"decision": "block", "reason": "[omx-autoresearch] missing: proof"}


@pytest.mark.case("SES-09")
@pytest.mark.case("HIO-04")
@pytest.mark.parametrize("name", CLIENT_NAMES)
@pytest.mark.parametrize("kind", ["subagent_stop", "session_end", "stop_failure", "other"])
def test_nothing_but_a_stop_is_ever_refused(name: str, kind: EventKind) -> None:
    assert adapter(name).render(HookEvent(client=name, kind=kind), EVERYTHING) == b""


def test_a_failed_tool_of_claude_is_answered_under_its_own_event_name() -> None:
    raw = adapter("claude").render(
        HookEvent(client="claude", kind="tool", native_event="PostToolUseFailure"), Reply(context="x")
    )
    assert json.loads(raw)["hookSpecificOutput"]["hookEventName"] == "PostToolUseFailure"


@pytest.mark.requirement("SESS-14")
@pytest.mark.parametrize(("name", "kind"), EACH)
def test_no_answer_grants_a_permission_or_ends_a_session(name: str, kind: EventKind) -> None:
    raw = adapter(name).render(HookEvent(client=name, kind=kind), EVERYTHING)
    assert b"permission" not in raw
    assert b'"continue"' not in raw


@pytest.mark.case("HIO-10")
@pytest.mark.case("HIO-12")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_the_answer_is_one_strict_document_whatever_a_validator_printed(name: str) -> None:
    noise = b"a\x00b\x1b[31mred\x1b[0m \xff\xfe\xe8\xa1 \x07\r\n".decode("utf-8", "surrogateescape")
    raw = adapter(name).render(
        HookEvent(client=name, kind="stop"),
        Reply(refusal=f"not yet: {noise}\ud800 end", person_message=noise),
    )
    value = json.loads(raw.decode("ascii"), parse_constant=pytest.fail)
    assert raw.count(b"\n") == 1
    assert not any(byte < 32 for byte in raw.rstrip(b"\n"))
    assert value["reason"].startswith("not yet: a\\x00bred ")
    assert value["reason"].endswith(" end")
    value["reason"].encode()
    assert not any(ord(char) < 32 for char in value["reason"] if char not in "\n\t")


def test_tabs_and_line_ends_stay_and_terminal_sequences_go() -> None:
    assert fitting("a\tb\r\nc\x1b]8;;http://x\x07link\x1b]8;;\x07 \x9b2J") == "a\tb\nclink"


def test_a_long_text_loses_its_middle_and_says_how_much() -> None:
    text = fitting("[omx-autoresearch] first " + "x" * 50_000 + " last")
    assert len(text) <= MAX_REPLY_CHARS
    assert text.startswith("[omx-autoresearch] first")
    assert text.endswith("last")
    assert "characters left out" in text


def test_a_refusal_of_nothing_but_control_characters_is_no_empty_refusal() -> None:
    raw = adapter("claude").render(HookEvent(client="claude", kind="stop"), Reply(refusal=" \n\t "))
    assert raw == b""
