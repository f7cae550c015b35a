from __future__ import annotations

import json

import pytest

from omx_autoresearch.agents import payloads


@pytest.mark.case("HIO-05")
@pytest.mark.requirement("HOOK-03")
@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"null", "not an object"),
        (b"[]", "not an object"),
        (b'"x"', "not an object"),
        (b"a" * 200_000, "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"session_id":"a","session_id":"b"}', "'session_id' appears twice"),
        (b'{"n":' + b"9" * 5000 + b"}", "not JSON"),
        (b"\x00" * 40, "not JSON"),
    ],
)
def test_garbage_is_one_named_fault_in_one_line(raw: bytes, word: str) -> None:
    with pytest.raises(payloads.PayloadFault, match=word) as caught:
        payloads.read_object(raw)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_payload_over_the_bound_is_not_even_parsed() -> None:
    raw = b'{"a":"' + b"x" * payloads.MAX_PAYLOAD_BYTES + b'"}'
    with pytest.raises(payloads.PayloadFault, match="larger than"):
        payloads.read_object(raw)


@pytest.mark.requirement("HOOK-03")
def test_a_byte_order_mark_is_skipped_and_bad_bytes_do_no_harm() -> None:
    raw = b"\xef\xbb\xbf" + b'{"session_id":"s1","last":"\xff\xfe\xe8\xa1"}'
    assert payloads.read_object(raw)["session_id"] == "s1"


def test_a_repeated_key_inside_tool_data_is_the_tools_own_affair() -> None:
    value = payloads.read_object(b'{"tool_input":{"a":1,"a":2},"session_id":"s1"}')
    assert value == {"tool_input": {"a": 2}, "session_id": "s1"}


def test_a_lone_surrogate_becomes_the_replacement_character_and_a_pair_stays() -> None:
    value = json.loads('{"a":"x\\ud800y","b":"\\ud83d\\ude00"}')
    assert payloads.text_of(value, "a") == "x\ufffdy"
    assert payloads.text_of(value, "b") == "\U0001f600"


@pytest.mark.parametrize("value", [5, True, [], {}, ["s1"], 1.5])
def test_a_session_id_of_another_type_proves_no_session(value: object) -> None:
    with pytest.raises(payloads.PayloadFault, match="session_id"):
        payloads.session_id_of({"session_id": value})


def test_a_missing_session_id_is_empty() -> None:
    assert payloads.session_id_of({}) == payloads.session_id_of({"session_id": None}) == ""


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("make test", "make test"),
        (["bash", "-lc", "make test"], "make test"),
        (["git", "status"], "git status"),
        (["git", 1], ""),
        (None, ""),
        ({"x": 1}, ""),
    ],
)
def test_the_command_of_a_shell_tool_is_a_text_or_an_argument_vector(command: object, text: str) -> None:
    assert (
        payloads.tool_command_of({"tool_name": "Bash", "tool_input": {"command": command}}, ("Bash",)) == text
    )


def test_a_tool_without_arguments_has_no_command() -> None:
    for payload in ({"tool_name": "Bash", "tool_input": "ls"}, {"tool_name": "Bash"}, {}):
        assert payloads.tool_command_of(payload, ("Bash",)) == ""


def test_output_is_found_in_every_form_that_clients_send() -> None:
    assert payloads.output_text("plain") == "plain"
    assert payloads.output_text({"stdout": "out", "stderr": "err"}) == "out\nerr"
    assert payloads.output_text([{"type": "text", "text": "part"}, {"text": "two"}]) == "part\ntwo"
    assert payloads.output_text({"content": [{"type": "text", "text": "mcp"}, 3]}) == "mcp"
    assert payloads.output_text({"content": "flat"}) == "flat"
    assert payloads.output_text(None) == payloads.output_text(7) == ""


def test_a_long_output_keeps_its_end_where_the_bind_token_stands() -> None:
    text = payloads.end_of("x" * 200_000 + "TOKEN")
    assert text.endswith("TOKEN")
    assert len(text) == payloads.MAX_TEXT_CHARS


@pytest.mark.case("LOOP-05")
@pytest.mark.parametrize("key", ["stop_reason", "end_turn_reason", "reason", "error", "error_message"])
@pytest.mark.parametrize("is_camel", [False, True])
@pytest.mark.parametrize(
    ("value", "end"),
    [
        ("context_limit", "context_limit"),
        ("contextLimit", "context_limit"),
        ("context window exceeded", "context_limit"),
        ("Conversation too long", "context_limit"),
        ("prompt is too long: 210000 tokens > 200000 maximum", "context_limit"),
        ("user_abort", "user_abort"),
        ("cancelled", "user_abort"),
        ("userInterrupt", "user_abort"),
        ("rate_limit", "rate_limit"),
        ("API Error: 429 Too Many Requests", "rate_limit"),
        ("authentication_failed", "auth_failure"),
        ("compaction", "compaction"),
    ],
)
def test_a_turn_that_the_host_ended_is_known_by_its_typed_field(
    key: str, is_camel: bool, value: str, end: str
) -> None:
    if is_camel:
        head, *rest = key.split("_")
        key = head + "".join(word.capitalize() for word in rest)
    assert payloads.host_end_of({key: value}) == end


@pytest.mark.parametrize(
    "value", ["end_turn", "stop", "tool_use", "other", "complete", "", None, 5, ["abort"], "max_tokens"]
)
def test_an_ordinary_reason_is_no_end_by_the_host(value: object) -> None:
    assert payloads.host_end_of({"stop_reason": value}) == ""


def test_what_the_model_writes_never_ends_a_turn() -> None:
    payload = {
        "last_assistant_message": "context_limit",
        "prompt_response": "rate limit",
        "message": "user abort",
    }
    assert payloads.host_end_of(payload) == ""


def test_an_error_object_is_read_by_its_type() -> None:
    assert payloads.host_end_of({"error": {"type": "rate_limit_error", "message": "x"}}) == "rate_limit"
    assert payloads.host_end_of({"error": {"code": 5}}) == ""


@pytest.mark.case("LOOP-07")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([{"id": "t1", "type": "subagent", "status": "running"}], True),
        ([{"id": "t1", "status": "completed"}, {"id": "t2", "status": "running"}], True),
        ([], False),
        ([{"id": "t1", "status": "completed"}], False),
        ("running", False),
        ({"status": "running"}, False),
        ([["running"], None, {"status": ["running"]}], False),
        (None, False),
    ],
)
def test_only_a_well_formed_running_task_is_background_work(value: object, expected: bool) -> None:
    assert bool(payloads.running_tasks(value)) is expected


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "  \n",
        "<task-notification>done</task-notification>",
        '<agent-message from="a1">go on</agent-message>',
        "<teammate-message teammate_id='t'>go on</teammate-message>",
        "<cross-session-message>go on",
        '<codex_internal_context source="goal">go on</codex_internal_context>',
        "[omx-autoresearch] not yet",
        "\n[omx-autoresearch] x",
    ],
)
def test_prompts_that_no_person_typed(prompt: str) -> None:
    assert payloads.prompt_origin(prompt, "").standing == "no_person"


@pytest.mark.parametrize(
    "prompt", ["go on", "<div class='my-class'>why?</div>", "a < b-c > d", "<3 that-was nice"]
)
def test_prompts_that_a_person_may_have_typed(prompt: str) -> None:
    assert payloads.prompt_origin(prompt, "").standing != "no_person"
    assert payloads.prompt_origin(prompt, "agent-1").standing == "no_person"
