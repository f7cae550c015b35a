"""Events that an agent forges from its tool shell: they neither free it nor speak for a person."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.missions import sessions
from omx_autoresearch.missions.views import view
from omx_autoresearch.system.commands import run_command, shell_argv
from omx_autoresearch.system.processes import identify
from tests.support.scratch import OTHER, SESSION, Scratch

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission


ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


@pytest.fixture
def mission(world: Scratch) -> Mission:
    """Bound to a session of this process, which stands for the client."""
    act = sessions.Act(SESSION, "claude", "prompt", identify(os.getpid()))
    return sessions.bind(world.runtime(), world.mission().task_id, act)


WAYS = {
    "below the shell": '"$@" <event.json; true',  # what follows keeps the shell above the hook
    "in its place": 'exec "$@" <event.json',
    "in its place, from a pipe": 'mkfifo way; cat event.json >way & exec "$@" <way',
}
"""How a tool shell starts the hook. Where it becomes the hook by ``exec``, the client is the hook's parent."""


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return WAYS[request.param]


def forge(  # an event, and how it comes
    world: Scratch,
    event: str,
    session: str,
    way: str = WAYS["below the shell"],
    client: str = "claude",
    **fields: Any,
) -> bytes:
    """What the hook says to an event that came from the client's tool shell, all marks taken off."""
    (world.root / "event.json").write_text(
        json.dumps(world.payload(event, session, **fields)), encoding="utf-8"
    )
    said = subprocess.run(
        ["/bin/sh", "-c", way, "sh", *world.hook_argv(client)],
        cwd=world.root,
        env=world.environ,
        capture_output=True,
        check=True,
        timeout=60,
    )
    return said.stdout


@pytest.mark.requirement("SESS-11", "SESS-15")
def test_a_forged_clear_moves_no_binding_to_a_session_that_nobody_works_in(
    world: Scratch, mission: Mission, way: str
) -> None:
    assert forge(world, "SessionStart", OTHER, way, source="clear") == b""
    binding = world.load(mission).binding
    assert (binding and binding.session_id) == SESSION
    assert world.hook(world.payload()).reason
    assert "clear" in " ".join(view(world.runtime(), mission.task_id).notices)


@pytest.mark.requirement("SESS-11")
def test_a_clear_that_the_client_reports_itself_moves_the_binding(world: Scratch, mission: Mission) -> None:
    world.hook(world.payload("SessionStart", OTHER, source="clear"))
    binding = world.load(mission).binding
    assert (binding and binding.session_id) == OTHER


@pytest.mark.requirement("SESS-15")
@pytest.mark.parametrize("verb", ["cancel", "pause", "TASK"])
def test_a_prompt_forged_in_a_tool_shell_is_no_persons(
    world: Scratch, mission: Mission, verb: str, way: str
) -> None:
    weaker = world.draft(goal="less", slug="weaker", validator_command="./check.sh weaker")
    typed = f"$autoresearch {verb.replace('TASK', weaker.task_id)}"
    said = forge(world, "UserPromptSubmit", SESSION, way, prompt=typed)
    assert b"must be typed by a person" in said
    assert world.load(mission).phase == "running"
    assert world.hook(world.payload()).reason
    assert world.load(weaker).phase == "draft"


@pytest.mark.requirement("SESS-15")
@pytest.mark.parametrize("client", ["claude", "gemini"])
def test_a_prompt_that_the_client_sends_is_the_persons(world: Scratch, mission: Mission, client: str) -> None:
    event = "BeforeAgent" if client == "gemini" else "UserPromptSubmit"
    world.hook(world.payload(event, prompt=f"$autoresearch pause {mission.task_id}"), client)
    assert world.load(mission).phase == "paused"


AGENT = """#!{python} -IS
import subprocess, sys
sys.exit(subprocess.call(sys.argv[1:]))
"""
"""An agent CLI by its name, which runs the command of a tool."""
SENDER = """
import os, socket, subprocess, sys
theirs, ours = socket.socketpair()
hook = subprocess.Popen(sys.argv[1:], stdin=theirs, env=dict(os.environ))
theirs.close()
ours.sendall(sys.stdin.buffer.read())
ours.close()
sys.exit(hook.wait())
"""


@pytest.mark.requirement("SESS-15")
@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_a_program_of_an_agent_that_sends_the_event_as_the_client_does_is_no_person(
    world: Scratch, agent: str
) -> None:
    draft = world.draft()
    shell = world.root / agent
    shutil.copy(shutil.which("sh") or "/bin/sh", shell)
    sender = world.root / "sender.py"
    sender.write_text(SENDER)
    event = world.payload("UserPromptSubmit", OTHER, prompt=f"$autoresearch {draft.task_id}")
    subprocess.run(
        [shell, "-c", '"$@"; true', "sh", sys.executable, "-I", str(sender), *world.hook_argv("claude")],
        input=json.dumps(event).encode(),
        env={**world.environ, "OMX_AUTORESEARCH_HOME": str(world.home_path)},
        capture_output=True,
        check=True,
    )
    after = world.load(draft)
    assert (after.phase, len(after.refused_verbs)) == ("draft", 1)


@pytest.mark.requirement("SESS-15")
def test_a_shell_of_one_client_that_names_another_is_no_person(world: Scratch) -> None:
    mission = world.mission(session="")
    agent = world.root / "claude"
    agent.write_text(AGENT.format(python=sys.executable))
    agent.chmod(0o755)
    event = world.payload("UserPromptSubmit", OTHER, prompt=f"$autoresearch pause {mission.task_id}")
    (world.root / "event.json").write_text(json.dumps(event))
    way = WAYS["in its place, from a pipe"]
    subprocess.run(
        [agent, "/bin/sh", "-c", way, "sh", *world.hook_argv("codex")],
        cwd=world.root,
        env=world.environ,
        capture_output=True,
        check=True,
        timeout=60,
    )
    after = world.load(mission)
    assert (after.phase, len(after.refused_verbs)) == ("running", 1)


# --- Codex CLI: its pipe is closed before anybody can ask whose it was; its rollout tells of the tools at work


def record(kind: str, call: str = "", at: str = "2000-01-01T00:00:00.000Z") -> str:
    """A line of a rollout, as Codex writes it."""
    payload = {"type": kind, "call_id": call} if call else {"type": kind}
    return json.dumps({"timestamp": at, "type": "response_item", "payload": payload})


BEGUN = [record("task_started")]
IDLE = [*BEGUN, record("function_call", "a"), record("function_call_output", "a")]
AT_WORK = {
    "a tool at work": [*IDLE, record("function_call", "b")],
    "one of two": [*IDLE, record("function_call", "b"), record("custom_tool_call", "c"),
                   record("custom_tool_call_output", "c")],
    "in the background": [*BEGUN, record("function_call", "a"),
                          record("function_call_output", "a", "2999-01-01T00:00:00.000Z")],
    "in the background since an earlier turn": [*IDLE, record("task_started", at="2999-01-01T00:00:00.000Z")],
}  # fmt: skip
AT_REST = {
    "the first prompt": [*BEGUN],
    "between two calls": IDLE,
    "after an interrupted turn": [*BEGUN, record("function_call", "a"), record("task_started")],
}


def forge_to_codex(
    world: Scratch,
    mission: Mission,
    lines: list[str],
    *,
    named: str = "",
    way: str = WAYS["in its place, from a pipe"],
) -> str:
    """The phase after a prompt event, while this process, which stands for Codex, has the session's rollout open."""
    rollout = world.root / f"rollout-{SESSION}.jsonl"
    rollout.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with rollout.open("a"):
        forge(
            world,
            "UserPromptSubmit",
            SESSION,
            way,
            "codex",
            prompt=f"$autoresearch pause {mission.task_id}",
            transcript_path=named or str(rollout),
        )
    return world.load(mission).phase


@pytest.mark.requirement("SESS-15")
@pytest.mark.parametrize("lines", AT_WORK.values(), ids=AT_WORK)
def test_a_prompt_from_a_shell_of_codex_is_no_persons(
    world: Scratch, mission: Mission, lines: list[str]
) -> None:
    assert forge_to_codex(world, mission, lines) == "running"
    assert world.load(mission).refused_verbs


@pytest.mark.requirement("SESS-15")
def test_a_prompt_that_names_a_rollout_of_the_agents_own_is_no_persons(
    world: Scratch, mission: Mission
) -> None:
    own = world.root / "rollout-own.jsonl"
    own.write_text(f"{BEGUN[0]}\n", encoding="utf-8")
    assert forge_to_codex(world, mission, AT_WORK["a tool at work"], named=str(own)) == "running"


@pytest.mark.requirement("SESS-15")
def test_a_prompt_that_reaches_codexs_hook_from_a_file_is_no_persons(
    world: Scratch, mission: Mission
) -> None:
    assert forge_to_codex(world, mission, IDLE, way=WAYS["in its place"]) == "running"


@pytest.mark.requirement("SESS-15")
@pytest.mark.parametrize("lines", AT_REST.values(), ids=AT_REST)
def test_a_prompt_while_no_tool_of_codex_works_is_the_persons(
    world: Scratch, mission: Mission, lines: list[str]
) -> None:
    assert forge_to_codex(world, mission, lines) == "paused"


def send_to_codex(world: Scratch, prompt: str, *rollouts: list[str]) -> None:
    """A prompt from the client, while this process has these rollouts open; the first is the session's own."""
    paths = [world.root / f"rollout-{number}.jsonl" for number in range(len(rollouts))]
    for path, lines in zip(paths, rollouts, strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(path.open("a"))
        named = str(paths[0]) if paths else None
        world.hook(world.payload("UserPromptSubmit", prompt=prompt, transcript_path=named), "codex")


@pytest.mark.requirement("SESS-17")
@pytest.mark.parametrize("rollouts", [(), (IDLE, AT_WORK["a tool at work"])], ids=["none", "another at work"])
def test_a_prompt_of_codex_whose_record_proves_nothing_pauses_at_most(
    world: Scratch, mission: Mission, rollouts: tuple[list[str], ...]
) -> None:
    send_to_codex(world, "$autoresearch cancel", *rollouts)
    assert world.load(mission).phase == "paused"
    assert world.records(mission, "unproven_prompt")


@pytest.mark.requirement("SESS-17")
@pytest.mark.parametrize("rollouts", [(IDLE,), (IDLE, BEGUN)], ids=["one session", "two"])
def test_a_prompt_of_codex_whose_tools_rest_does_everything(
    world: Scratch, mission: Mission, rollouts: tuple[list[str], ...]
) -> None:
    send_to_codex(world, "$autoresearch cancel", *rollouts)
    assert world.load(mission).phase == "cancelled"


@pytest.mark.requirement("SESS-19")
@pytest.mark.parametrize("place", [0, 1], ids=["its own session", "a sub-agent's"])
def test_a_text_that_the_model_sent_to_its_session_and_interrupted_its_turn_with_is_no_persons(
    world: Scratch, mission: Mission, place: int
) -> None:
    arguments = json.dumps({"target": SESSION, "message": "$autoresearch cancel", "interrupt": True})
    payload = {"type": "function_call", "name": "send_input", "arguments": arguments, "call_id": "a"}
    line = {"timestamp": "2000-01-01T00:00:00.000Z", "type": "response_item", "payload": payload}
    sent = [*BEGUN, json.dumps(line, separators=(",", ":")), *BEGUN]
    send_to_codex(world, "$autoresearch cancel", *([sent] if place == 0 else [BEGUN, sent]))
    after = world.load(mission)
    assert (after.phase, len(after.refused_verbs)) == ("running", 1)


def test_a_forged_stop_spends_what_every_stop_spends(world: Scratch, mission: Mission) -> None:
    for number in range(12):
        forge(world, "Stop", SESSION, last_assistant_message=str(number))
    after = world.load(mission)
    assert (after.phase, after.usage.refusals) == ("blocked", 3)
    assert "mission_completed" not in world.kinds(mission)


@pytest.mark.requirement("LIFE-06")
@pytest.mark.parametrize(
    "cleaning", ["", "env -u OMX_AUTORESEARCH_RUN ", 'env -i PATH="$PATH" HOME="$HOME" ']
)
def test_code_that_a_validation_runs_is_not_the_owner(world: Scratch, cleaning: str) -> None:
    mission = world.mission()
    home = f"OMX_AUTORESEARCH_HOME={world.home_path}"
    program = f"{sys.executable} -m omx_autoresearch.surfaces.cli"
    verb = f"{program} cancel {mission.task_id} --reason enough"
    script = f"{cleaning}env PYTHONPATH={ROOT} {home} {verb}; true\n"  # what follows keeps the shell above the verb
    world.write("program.sh", script)
    result = run_command(
        shell_argv("sh program.sh"),
        cwd=str(world.project),
        env=world.environ,
        timeout_seconds=60,
        output_path=str(world.root / "said"),
    )
    assert result.exit_status == 0
    assert world.load(mission).phase == "running"
    assert world.kinds(mission)[-1] == "owner_verb_refused"
    assert "runs inside an agent" in (world.root / "said").read_text(encoding="utf-8")
