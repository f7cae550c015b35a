"""The hook process: bytes in, bytes out, never a status of 2, and nothing loaded that an event does not need."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from omx_autoresearch.agents.payloads import PROMPTING_TOOLS
from omx_autoresearch.agents.registry import parse_bytes
from omx_autoresearch.foundation.clients import CLIENT_NAMES
from omx_autoresearch.journal.layout import Runtime, session_file_name
from omx_autoresearch.missions import claims, launch, store, views
from omx_autoresearch.missions.registry import TOKEN_WORD, token_name
from omx_autoresearch.missions.rules.prompts import command_in
from omx_autoresearch.surfaces import hook
from tests.support.hook_path import unlisted
from tests.support.scratch import HOOK, OTHER, PACKAGE, SESSION, Answer, Scratch, fingerprint, finish

STOP_NAME = {"claude": "Stop", "codex": "Stop", "gemini": "AfterAgent"}


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


@pytest.fixture
def held(world: Scratch) -> Scratch:
    """A world in which something is active: one session is held."""
    limits = {"idle_refusals": 50, "stale_pivot": 50, "stale_fresh": 50, "stale_stalled": 50}
    world.mission(limits=limits, is_unsandboxed=True)
    return world


def answered_without_fault(answer: Answer) -> None:
    assert answer.exit_status == 0
    assert answer.stderr == b""
    if answer.stdout:
        assert answer.stdout.count(b"\n") == 1
        assert isinstance(json.loads(answer.stdout), dict)


# --- garbage

GARBAGE = {
    "cut": b"{",
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"x"',
    "a number": b"1e999",
    "endless": b"a" * 200_000,
    "deep": b'{"a":' * 50_000,
    "NUL": b"\0" * 1000,
    "UTF-16": json.dumps({"hook_event_name": "Stop", "session_id": SESSION}).encode("utf-16"),
    "half a character": b'{"session_id":"\xc3',
    "a key twice": b'{"session_id":"a","session_id":"' + SESSION.encode() + b'","hook_event_name":"Stop"}',
    "no text": b'{"session_id":{"a":1},"hook_event_name":"Stop"}',
    "one more bracket": json.dumps({"hook_event_name": "Stop", "session_id": SESSION}).encode() + b"}",
}


@pytest.mark.requirement("HOOK-03", "HOOK-06", "GATE-03")
@pytest.mark.case("HIO-05")
@pytest.mark.parametrize("raw", GARBAGE.values(), ids=GARBAGE)
def test_garbage_proves_no_session_and_is_let_go_with_a_line_in_the_log(held: Scratch, raw: bytes) -> None:
    answers = [held.hook(raw, client) for client in CLIENT_NAMES for _ in range(2)]
    for answer in answers:
        assert answer.exit_status == 0
        assert not answer.reason if answer.stdout else answer.is_silent
    lines = (held.home_path / "hook.log").read_text().splitlines()
    assert len(lines) == len(answers)
    assert held.hook(held.payload()).reason, "the next event is answered as ever"


@pytest.mark.requirement("HOOK-03")
def test_an_event_that_is_larger_than_any_is_let_go(held: Scratch) -> None:
    answer = held.hook(json.dumps(held.payload(last_assistant_message="x" * 17_000_000)).encode())
    assert "is larger than" in answer.json["systemMessage"], "a session that is held is let go loudly"
    assert "hook.log" in os.listdir(held.home_path)


@pytest.mark.requirement("HOOK-03")
@pytest.mark.case("HIO-09")
def test_a_byte_order_mark_changes_nothing(held: Scratch) -> None:
    assert held.hook(b"\xef\xbb\xbf" + json.dumps(held.payload()).encode()).reason


@pytest.mark.requirement("HOOK-03")
@pytest.mark.case("HIO-07")
@pytest.mark.parametrize(
    "environ",
    [
        {"PYTHONIOENCODING": "cp932", "LC_ALL": "C"},
        {"LC_ALL": "ja_JP.SJIS", "PYTHONUTF8": "0"},
        {"LC_ALL": "C.UTF-8"},
    ],
)
def test_the_event_is_utf_8_whatever_the_locale(held: Scratch, environ: dict[str, str]) -> None:
    payload = held.payload(last_assistant_message='表\\" ok')
    payload["cwd"] = str(held.root / "mañana")
    raw = json.dumps(payload, ensure_ascii=False).encode()
    answer = held.hook(raw, env=environ)
    answered_without_fault(answer)
    assert answer.reason


@pytest.mark.requirement("HOOK-03")
def test_unknown_fields_are_ignored(held: Scratch) -> None:
    payload = held.payload(new_field={"session": [1, None]}, hook_version=99, effort=None)
    assert held.hook(payload).reason
    assert held.hook(payload, "codex").reason


@pytest.mark.requirement("HOOK-03")
def test_a_client_that_leaves_its_end_open_is_answered(held: Scratch) -> None:
    with held.begin_hook() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(held.payload()).encode() + b"\n")
        process.stdin.flush()
        assert b'"block"' in process.stdout.readline()
        assert process.wait(60) == 0
        process.stdin.close()


def read_from_pipe(written: bytes) -> bytes:
    """What is read of a pipe that stays open behind ``written``."""
    reader, writer = os.pipe()
    try:
        os.write(writer, written)
        return hook.read_event(reader)
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.requirement("HOOK-03")
def test_half_an_event_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "READ_SECONDS", 0.05)
    assert read_from_pipe(b'{"session_id"') == b'{"session_id"'
    assert read_from_pipe(b"") == b""


@pytest.mark.requirement("HOOK-03")
def test_an_event_that_drips_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "READ_SECONDS", 0.3)
    drip = "import os, time\nwhile True:\n    os.write(1, b'a')\n    time.sleep(0.01)\n"
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", drip], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert set(hook.read_event(process.stdout.fileno())) <= {ord("a")}
        finally:
            process.kill()


@pytest.mark.requirement("HOOK-03")
def test_an_event_without_end_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "PAYLOAD_LIMIT_BYTES", 1 << 20)
    with open("/dev/zero", "rb") as endless:
        assert len(hook.read_event(endless.fileno())) <= 2 << 20


def test_an_object_that_ends_in_the_middle_of_the_event_is_not_taken_for_the_whole() -> None:
    whole = b'{"a":{"b":1},' + b'"c":' + b'"x"}'
    reader, writer = os.pipe()
    os.write(writer, whole[:12])  # ends like an object, and more comes
    feeder = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", f"import os; os.write(1, {whole[12:]!r})"], stdout=writer
    )
    os.close(writer)
    try:
        hook.QUIET_SECONDS, kept = 30.0, hook.QUIET_SECONDS
        assert hook.read_event(reader) == whole
    finally:
        hook.QUIET_SECONDS = kept
        feeder.wait()
        os.close(reader)


# --- faults of ours

FAULTY = """
import sys
sys.path.insert(0, {root!r})
from omx_autoresearch.surfaces import hook
def evaluate(*_):
    raise {fault}
hook.evaluate = evaluate
sys.exit(hook.main(["hook", {home!r}, "claude"]))
"""


@pytest.mark.requirement("HOOK-06", "GATE-03")
@pytest.mark.parametrize(
    "fault",
    [
        "RuntimeError('x')",
        "SystemExit(2)",
        "KeyboardInterrupt",
        "MemoryError",
        "RecursionError",
        "OSError(28)",
    ],
)
def test_no_fault_of_ours_ends_with_two_or_holds_anybody(held: Scratch, fault: str) -> None:
    program = FAULTY.format(root=str(PACKAGE.parent), home=str(held.home_path), fault=fault)
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input=json.dumps(held.payload()).encode(),
        env=held.environ,
        capture_output=True,
        check=False,
    )
    assert (said.returncode, said.stderr) == (0, b"")
    message = json.loads(said.stdout)
    assert set(message) == {"systemMessage"}
    assert fault.partition("(")[0] in message["systemMessage"]
    assert "omx-autoresearch doctor claude" in message["systemMessage"]
    assert fault.partition("(")[0] in (held.home_path / "hook.log").read_text()


@pytest.mark.requirement("HOOK-06")
def test_a_package_that_is_half_there_lets_go(held: Scratch, tmp_path: Path) -> None:
    surfaces = tmp_path / "broken" / "omx_autoresearch" / "surfaces"
    surfaces.mkdir(parents=True)
    for name in ("hook.py", "hook_start.py", "__init__.py"):
        (surfaces / name).write_bytes((HOOK.parent / name).read_bytes())
    (surfaces.parent / "__init__.py").touch()
    said = subprocess.run(
        [sys.executable, "-I", "-S", str(surfaces / "hook_start.py"), str(held.home_path), "claude"],
        input=json.dumps(held.payload()).encode(),
        env=held.environ,
        capture_output=True,
        check=False,
    )
    assert (said.returncode, said.stderr) == (0, b"")
    assert "ModuleNotFoundError" in json.loads(said.stdout)["systemMessage"]


@pytest.mark.requirement("HOOK-06")
def test_a_closed_stdout_is_no_refusal(held: Scratch) -> None:
    with held.begin_hook() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.write(json.dumps(held.payload()).encode())
        process.stdin.close()
        assert process.wait(60) in (0, 1)


@pytest.mark.requirement("HOOK-06")
@pytest.mark.parametrize("words", [[], ["x"], ["x", "claude", "more"]])
def test_a_wrong_call_ends_in_silence(held: Scratch, words: list[str]) -> None:
    said = subprocess.run(
        [sys.executable, "-I", "-S", str(HOOK), *words], input=b"{}", capture_output=True, check=False
    )
    assert (said.returncode, said.stdout, said.stderr) == (0, b"", b"")


def test_an_unknown_client_is_told_and_let_go(held: Scratch) -> None:
    answer = held.hook(held.payload(), "nobody")
    answered_without_fault(answer)
    assert set(answer.json) == {"systemMessage"}


@pytest.mark.requirement("HOOK-01", "GATE-01")
@pytest.mark.case("HIO-01")
@pytest.mark.parametrize("client", CLIENT_NAMES)
def test_without_any_mission_there_is_not_one_byte(world: Scratch, client: str) -> None:
    for event in (
        STOP_NAME[client],
        "SessionStart",
        "SessionEnd",
        "PostToolUse",
        "UserPromptSubmit",
        "BeforeAgent",
    ):
        payload = world.payload(event, prompt="hello", source="startup", stop_hook_active=False)
        assert world.hook(payload, client).is_silent
    assert not world.home_path.exists(), "and nothing is made"


@pytest.mark.requirement("HOOK-01")
def test_a_registry_that_is_no_folder_holds_nobody(world: Scratch) -> None:
    world.home_path.mkdir()
    (world.home_path / "active").write_text("x")
    answered_without_fault(world.hook(world.payload()))
    assert b"block" not in world.hook(world.payload()).stdout


@pytest.mark.requirement("HOOK-02")
@pytest.mark.case("HIO-02")
@pytest.mark.parametrize("client", CLIENT_NAMES)
def test_a_refusal_has_only_the_keys_that_every_client_takes(world: Scratch, client: str) -> None:
    world.mission(client=client, is_unsandboxed=True)
    answer = world.hook(world.payload(STOP_NAME[client], last_assistant_message="done"), client)
    assert set(answer.json) == {"decision", "reason", "systemMessage"}
    assert answer.json["decision"] == "block"
    assert "./check.sh" in answer.reason


# --- a prompt's verbs find their packages

VERBS = ("status", "pause", "resume", "cancel")


@pytest.mark.requirement("SESS-02", "HOOK-06")
def test_what_a_person_types_is_carried_out_by_the_bare_interpreter_of_the_hook(held: Scratch) -> None:
    phases = []
    task_id = held.store.task_ids()[0]
    for verb in VERBS:
        answer = held.hook(held.payload("UserPromptSubmit", prompt=f"$autoresearch {verb}"))
        assert set(answer.json) == {"systemMessage", "hookSpecificOutput"}
        assert "fault" not in answer.json["systemMessage"]
        phases.append(held.load(task_id).phase)
    assert phases == ["running", "paused", "running", "cancelled"]


# --- absence is proven, or nothing is

IDS = (
    SESSION,
    OTHER,
    "abcdefgh",
    "short",
    "UPPER-CASE-ID",
    "a/b",
    "h-12345678",
    "-begins-badly",
    "ä" * 9,
    "",
    "x" * 129,
)
KEYS = ("session_id", "hook_event_name", "prompt", "source", "agent_id", "tool_response", "tool_input",
        "last_assistant_message", "session", "sessionId")  # fmt: skip
WORDS = ("Stop", "AfterAgent", "UserPromptSubmit", "BeforeAgent", "SessionStart", "PostToolUse", "AfterTool",
         "PostToolUseFailure", "SubagentStop", "clear", "fork", "startup", "$autoresearch cancel", "/autoresearch",
         "omx-autoresearch start x", f"{TOKEN_WORD}{'0' * 32}", "session_id", '"session_id"', "hook_event_name", ":",
         "\\", "\\u0073", "\ud800", "a1", "")  # fmt: skip

values = st.one_of(
    st.sampled_from(IDS),
    st.sampled_from(WORDS),
    st.none(),
    st.integers(),
    st.text(max_size=5),
)
nested = st.one_of(
    values,
    st.lists(values, max_size=2),
    st.dictionaries(st.sampled_from((*KEYS, "x")), values, max_size=3),
    st.fixed_dictionaries({"stdout": st.sampled_from(WORDS), "llmContent": st.sampled_from(WORDS)}),
)
payloads = st.tuples(
    st.one_of(values, st.sampled_from(IDS)),
    st.sampled_from(WORDS),
    st.lists(st.tuples(st.sampled_from(KEYS), nested), max_size=5),
)


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """An event as bytes: any nesting, spacing, escapes, repeated keys, a mark before it, an end too early."""
    session, name, more = draw(payloads)
    pairs: list[tuple[str, Any]] = [("session_id", session), ("hook_event_name", name), *more]
    pairs = draw(st.permutations(pairs))
    if draw(st.booleans()):
        pairs = [
            pair for number, pair in enumerate(pairs) if pair[0] not in {key for key, _ in pairs[:number]}
        ]
    colon = draw(st.sampled_from([":", ": ", " : ", ":\n\t"]))
    parts = [
        f"{escaped(draw, json.dumps(key))}{colon}{escaped(draw, json.dumps(value))}" for key, value in pairs
    ]
    text = "{" + draw(st.sampled_from([",", ", ", ",\n  "])).join(parts) + "}"
    raw = text.encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        raw = b"\xef\xbb\xbf" + raw
    if draw(st.integers(0, 9)) == 0:
        raw = raw[: draw(st.integers(0, len(raw)))]
    return raw


def escaped(draw: st.DrawFn, text: str) -> str:
    """A JSON value with one of its letters written as an escape, now and then."""
    if draw(st.integers(0, 3)) or not text.startswith('"'):
        return text
    places = [
        at for at, char in enumerate(text) if char.isascii() and char.isalnum() and text[at - 1] != "\\"
    ]
    if not places or "\\" in text:
        return text
    at = draw(st.sampled_from(places))
    form = draw(st.sampled_from(["\\u{:04x}", "\\u{:04X}"]))
    return text[:at] + form.format(ord(text[at])) + text[at + 1 :]


def is_meant(client: str, raw: bytes, active: list[str], environ: dict[str, str]) -> bool:
    """What the full reading says: the event concerns an entry of the registry, or is a command of ours."""
    event = parse_bytes(client, raw, environ)
    if event.fault or event.agent_id:
        return False
    if event.session_id and session_file_name(event.session_id) in active:
        return True
    if event.kind == "prompt":
        return command_in(event.prompt) is not None
    if event.kind == "session_start":
        return bool(environ.get("OMX_AUTORESEARCH_TASK")) or (
            bool(active) and event.source in ("clear", "fork")
        )
    if event.kind == "tool":
        return any(token_name(word) in active for word in event.tool_output.split())
    return False


actives = st.lists(
    st.one_of(
        st.sampled_from(IDS).filter(bool).map(session_file_name),
        st.just(token_name(f"{TOKEN_WORD}{'0' * 32}")),
    ),
    max_size=3,
)


DECEPTIVE = (
    f'{{"tool_input":{{"session_id":"{OTHER}"}},"session_\\u0069d":"{SESSION}","hook_event_name":"Stop"}}',
    f'{{"session\\u005Fid":"{SESSION}","a":[{{"session_id":"{OTHER}"}}],"hook_event_name":"Stop"}}',
)


@pytest.mark.requirement("SPEED-02", "HOOK-03")
@example(raw=DECEPTIVE[0].encode(), active=[SESSION], client="claude", has_task=False)
@example(raw=DECEPTIVE[1].encode(), active=[SESSION], client="codex", has_task=False)
@given(raw=events(), active=actives, client=st.sampled_from(CLIENT_NAMES), has_task=st.booleans())
@settings(max_examples=400, deadline=None)
def test_step_two_says_absent_only_where_the_full_reading_agrees(
    raw: bytes, active: list[str], client: str, has_task: bool
) -> None:
    environ = {"OMX_AUTORESEARCH_TASK": "t:n"} if has_task else {}
    kept = os.environ.pop("OMX_AUTORESEARCH_TASK", None)
    os.environ.update(environ)
    try:
        is_absent = not hook.concerns_us(raw, active)
    finally:
        os.environ.pop("OMX_AUTORESEARCH_TASK", None)
        if kept is not None:
            os.environ["OMX_AUTORESEARCH_TASK"] = kept
    if is_absent:
        assert not is_meant(client, raw, active, environ)


@pytest.mark.slow
@given(raw=events(), active=actives, client=st.sampled_from(CLIENT_NAMES))
@settings(max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_step_two_says_absent_only_where_the_full_reading_agrees_deeply(
    raw: bytes, active: list[str], client: str
) -> None:
    if not hook.concerns_us(raw, active):
        assert not is_meant(client, raw, active, {})


@given(raw=events())
@settings(max_examples=300, deadline=None)
def test_a_session_that_the_bytes_are_sure_of_is_the_one_that_is_read(raw: bytes) -> None:
    session = hook.session_in(raw)
    event = parse_bytes("claude", raw, {})
    if session is not None and not event.fault and event.session_id:
        assert event.session_id.encode("utf-8", "surrogatepass") == session


def test_a_registry_that_cannot_be_listed_proves_nothing() -> None:
    assert hook.concerns_us(b'{"session_id":"abcdefgh"}', None)
    assert not hook.concerns_us(b'{"session_id":"abcdefgh"}', [])


# --- tool events

TOOL_NAMES = {"claude": "PostToolUse", "codex": "PostToolUse", "gemini": "AfterTool"}


def beats(world: Scratch) -> list[str]:
    path = Path(world.home.mission(world.store.task_ids()[0]).heartbeat_path)
    return [json.loads(line)["status"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.requirement("SPEED-04", "HOOK-07")
@pytest.mark.parametrize("client", CLIENT_NAMES)
def test_a_tool_event_of_a_held_session_leaves_its_beat_and_nothing_else(held: Scratch, client: str) -> None:
    held.hook(held.payload("SessionStart", source="startup"))
    before = fingerprint(held.root, without=["heartbeat.jsonl"])
    for _ in range(2):
        assert held.hook(held.payload(TOOL_NAMES[client], tool_name="x"), client).is_silent
    assert held.hook(held.payload(TOOL_NAMES[client], OTHER, tool_name="x"), client).is_silent
    assert beats(held)[1:] == ["tool", "tool"]
    assert fingerprint(held.root, without=["heartbeat.jsonl"]) == before


@pytest.mark.requirement("GATE-12", "SPEED-04")
@given(raw=events())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_only_a_tool_event_of_the_held_session_takes_the_short_way(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    home = tmp_path_factory.mktemp("home")
    mission = home / "missions" / "20260102-030405-x"
    mission.mkdir(parents=True)
    (home / "active").mkdir()
    (home / "active" / SESSION).write_text(
        f'{{"state":"bound","session_id":"{SESSION}","task_id":"{mission.name}","workspace_path":"/x"}}\n'
    )
    heartbeat = mission / "heartbeat.jsonl"
    heartbeat.write_text('{"ts":"2999-01-02T03:04:05.000000Z","status":"x","session":"x"}\n')
    if hook.beat_tool(raw, str(home), SESSION):
        readings = [parse_bytes(client, raw, {}) for client in CLIENT_NAMES]
        assert any(event.kind == "tool" and not event.agent_id for event in readings) or all(
            event.fault for event in readings
        )
        assert heartbeat.read_text().count("\n") == 2


def test_a_tool_event_long_after_the_last_one_goes_the_long_way(held: Scratch) -> None:
    heartbeat = Path(held.home.mission(held.store.task_ids()[0]).heartbeat_path)
    old = '{"ts":"2020-01-02T03:04:05.000000Z","status":"tool","session":"x"}\n'
    heartbeat.write_text(old)
    raw = json.dumps(held.payload("PostToolUse", tool_name="x")).encode()
    assert not hook.beat_tool(raw, str(held.home_path), SESSION)
    assert heartbeat.read_text() == old
    for content in ("", "garbage\n", '{"ts"'):
        heartbeat.write_text(content)
        assert not hook.beat_tool(raw, str(held.home_path), SESSION)


@pytest.mark.requirement("SPEED-04")
@pytest.mark.case("PRC-04")
def test_the_short_way_follows_no_link_and_makes_no_file(held: Scratch) -> None:
    heartbeat = Path(held.home.mission(held.store.task_ids()[0]).heartbeat_path)
    heartbeat.unlink(missing_ok=True)
    raw = json.dumps(held.payload("PostToolUse", tool_name="x")).encode()
    assert not hook.beat_tool(raw, str(held.home_path), SESSION)
    target = held.root / "target"
    target.write_text('{"ts":"2999-01-02T03:04:05.000000Z","status":"x","session":"x"}\n')
    heartbeat.symlink_to(target)
    assert not hook.beat_tool(raw, str(held.home_path), SESSION)
    assert target.read_text().count("\n") == 1


# --- what is loaded


def loaded(world: Scratch, payload: dict[str, Any], client: str = "claude") -> set[str]:
    """Every module that a hook process imports for one event, as the interpreter itself tells."""
    argv = world.hook_argv(client)
    said = subprocess.run(
        [argv[0], "-X", "importtime", *argv[1:]],
        input=json.dumps(payload).encode(),
        env=world.environ,
        capture_output=True,
        check=True,
    )
    return {line.rpartition(b"|")[2].strip().decode() for line in said.stderr.splitlines() if b"|" in line}


BARE = subprocess.run(
    [sys.executable, "-I", "-S", "-X", "importtime", "-c", "import os"], capture_output=True, check=True
).stderr
ALWAYS = {line.rpartition(b"|")[2].strip().decode() for line in BARE.splitlines() if b"|" in line}
STEP_TWO = {"__future__", "gc", "select", "time"} | {
    f"omx_autoresearch{name}" for name in ("", ".surfaces", ".surfaces.hook")
}
NEVER_ON_A_STOP = {
    "asyncio", "click", "ctypes.util", "dataclasses", "email", "http", "inspect", "jinja2", "logging", "pathlib",
    "psutil", "pydantic", "rich", "shlex", "socket", "sqlite3", "subprocess", "tempfile", "transitions", "typing",
    "unittest", "urllib", "yaml",
}  # fmt: skip


def test_the_first_look_knows_every_tool_whose_texts_may_come_back_as_a_prompt() -> None:
    assert [word.decode() for word in hook._PROMPTING_TOOLS] == list(PROMPTING_TOOLS)


@pytest.mark.requirement("SPEED-02")
def test_another_sessions_stop_loads_next_to_nothing(held: Scratch) -> None:
    for event in ("Stop", "PostToolUse", "UserPromptSubmit", "SessionStart"):
        names = loaded(held, held.payload(event, OTHER, prompt="hello", source="startup"))
        assert names - ALWAYS <= STEP_TWO, event


@pytest.mark.requirement("SPEED-04")
def test_a_tool_event_of_a_held_session_loads_no_rule_of_the_gate(held: Scratch) -> None:
    held.hook(held.payload("SessionStart", source="startup"))
    names = loaded(held, held.payload("PostToolUse", tool_name="x"))
    assert names - ALWAYS <= STEP_TWO


NEVER_WHERE_NOTHING_IS_SAID = {
    "collections", "contextlib", "copyreg", "ctypes", "datetime", "enum", "functools", "hashlib", "json", "math", "re",
    "shutil", "signal", "threading",
}  # fmt: skip
"""Loaded where a validator's words are read, where work is done that few stops ask for, or never."""


@pytest.mark.requirement("SPEED-03", "SPEED-06")
@pytest.mark.parametrize("client", CLIENT_NAMES)
def test_a_held_stop_whose_validator_says_nothing_loads_what_it_uses_and_no_more(
    world: Scratch, client: str
) -> None:
    world.mission(validator_command="false", unfrozen_reason="a test", client=client, is_unsandboxed=True)
    names = loaded(world, world.payload(STOP_NAME[client]), client)
    assert "omx_autoresearch.missions.stop" in names
    assert unlisted(names) == set(), "add it to tests/support/hook_path.py, and keep it light"
    tops = {name.partition(".")[0] for name in names - ALWAYS}
    assert tops & (NEVER_ON_A_STOP | NEVER_WHERE_NOTHING_IS_SAID) == set()
    unneeded = {
        "freezing.evaluator_commands",
        "missions.records.lifecycle",
        "missions.lifecycle_commands",
        "journal.index",
    }
    assert not {f"omx_autoresearch.{name}" for name in unneeded} & names


@pytest.mark.requirement("SPEED-03")
@pytest.mark.parametrize("client", CLIENT_NAMES)
def test_a_held_stop_loads_no_package_and_no_heavy_module(held: Scratch, client: str) -> None:
    names = loaded(held, held.payload(STOP_NAME[client]), client)
    assert "omx_autoresearch.missions.rules.gate" in names
    assert {
        name for name in names if name.partition(".")[0] in NEVER_ON_A_STOP or name in NEVER_ON_A_STOP
    } == set()
    foreign = {name for name in names - ALWAYS if not name.startswith("omx_autoresearch")}
    assert {name.partition(".")[0] for name in foreign} <= set(sys.stdlib_module_names) | {"sitecustomize"}
    dialects = {f"omx_autoresearch.agents.clients.{name}" for name in CLIENT_NAMES if name != client}
    assert not dialects & names
    unneeded = {
        f"omx_autoresearch.missions.{name}"
        for name in ("launch", "intake", "contracts", "views", "hook_events")
    }
    assert not unneeded & names


def test_the_story_of_a_held_stop_needs_no_launch_in_the_hook(world: Scratch) -> None:
    draft = world.draft()
    options = launch.StartOptions(session_id=SESSION, has_baseline=False)
    launch.start(world.runtime(), draft.task_id, options)
    process = world.begin_hook()
    assert finish(process, world.payload()).reason


# --- what people read follows once the answer is out


def answer_here(world: Scratch, monkeypatch: pytest.MonkeyPatch, payload: dict[str, Any]) -> int:
    monkeypatch.setattr(hook, "read_event", lambda _: json.dumps(payload).encode())
    monkeypatch.setattr(hook, "_began_at", str)  # the test's process is older than any hook may become
    return hook.main(["hook", str(world.home_path), "claude"])


def progress_of(world: Scratch) -> dict[str, Any]:
    (path,) = world.project.glob(".omx/autoresearch/*/state/progress.json")
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


@pytest.mark.requirement("STATE-19")
def test_the_answer_is_out_before_the_files_follow_and_both_before_the_hook_ends(
    held: Scratch, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    whole = claims.write_changed

    def write_changed(runtime: Runtime) -> tuple[str, ...]:
        said.append(capfd.readouterr().out)
        assert progress_of(held)["iteration"] == 0
        return whole(runtime)

    monkeypatch.setattr(claims, "write_changed", write_changed)
    assert answer_here(held, monkeypatch, held.payload()) == 0
    assert json.loads(said[-1])["decision"] == "block"
    assert capfd.readouterr().out == ""
    assert progress_of(held)["iteration"] == 1


@pytest.mark.requirement("STATE-19")
def test_files_that_take_too_long_are_left_to_the_next_look(
    held: Scratch, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hook, "FOLLOW_SECONDS", 1)
    with monkeypatch.context() as late:
        late.setattr(claims, "write_changed", lambda _: signal.pause())
        assert answer_here(held, monkeypatch, held.payload()) == 0
    assert json.loads(capfd.readouterr().out)["decision"] == "block"
    assert "were not brought up: _Late" in Path(held.home_path, "hook.log").read_text()
    assert progress_of(held)["iteration"] == 0
    store.changed.clear()  # the process is gone
    (task_id,) = held.store.task_ids()
    views.view(held.runtime(), task_id)
    assert progress_of(held)["iteration"] == 1


@pytest.mark.requirement("STATE-19")
def test_a_folder_that_cannot_be_written_holds_nobody_and_is_logged(held: Scratch, tmp_path: Path) -> None:
    (logs,) = held.project.glob(".omx/autoresearch/*/logs")
    shutil.rmtree(logs)
    os.symlink(tmp_path, logs)
    answer = held.hook(held.payload())
    assert answer.json["decision"] == "block"
    assert "older than its journal: logs is a symbolic link" in Path(held.home_path, "hook.log").read_text()
    logs.unlink()
    held.hook(held.payload(last_assistant_message="again"))
    assert progress_of(held)["iteration"] == 2
