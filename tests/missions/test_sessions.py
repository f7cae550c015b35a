"""The four acts that bind a session, what ends a binding, and what is no way out of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import OwnerOnly, StepIllegal
from omx_autoresearch.journal.layout import session_file_name
from omx_autoresearch.missions import launch, lifecycle_commands, sessions
from omx_autoresearch.missions.launch import StartOptions
from omx_autoresearch.missions.registry import TOKEN_WORD, Registry
from omx_autoresearch.missions.views import view
from omx_autoresearch.system.processes import identify
from tests.support.scratch import OTHER, SESSION, Scratch, fingerprint

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission

THIRD = "0a1b2c3d-0000-4000-8000-00000000000c"


def holder(world: Scratch, mission: Mission | str) -> str:
    binding = world.load(mission).binding
    return binding.session_id if binding else ""


def started(world: Scratch, **fields: object) -> launch.Started:
    draft = world.draft(**fields)
    return launch.start(world.runtime(), draft.task_id, StartOptions(has_baseline=False))


# --- the four acts


@pytest.mark.requirement("SESS-01", "SESS-02")
@pytest.mark.parametrize("form", ["$autoresearch {}", "/autoresearch {}", "  $autoresearch '{}' please",
                                  "$autoresearch .omx/autoresearch/{}/state", "/omx:autoresearch {}"])  # fmt: skip
def test_a_prompt_command_binds_and_launches_a_draft_too(world: Scratch, form: str) -> None:
    draft = world.draft()
    answer = world.hook(world.payload("UserPromptSubmit", prompt=form.format(draft.task_id)))
    context = answer.json["hookSpecificOutput"]
    assert context["hookEventName"] == "UserPromptSubmit"
    assert f"This session now works on mission {draft.task_id}" in context["additionalContext"]
    after = world.load(draft)
    assert (after.phase, holder(world, draft)) == ("running", SESSION)
    assert after.binding is not None
    assert (after.binding.how, after.binding.client) == ("prompt", "claude")
    assert world.stop().refusal


@pytest.mark.requirement("SESS-02")
def test_geminis_first_prompt_binds_behind_the_context_that_the_client_puts_before_it(world: Scratch) -> None:
    mission = world.mission(session="")
    prompt = f"<hook_context>\nsomething\n</hook_context>\n\n$autoresearch {mission.task_id}"
    world.hook(world.payload("BeforeAgent", prompt=prompt), "gemini")
    assert holder(world, mission) == SESSION
    assert world.hook(world.payload("AfterAgent", prompt_response="done"), "gemini").reason


@pytest.mark.requirement("SESS-01")
@pytest.mark.case("LOOP-13")
@pytest.mark.parametrize(
    "prompt",
    [
        "please run $autoresearch {}",
        "> $autoresearch {}",
        "`$autoresearch {}`",
        "```\n$autoresearch {}\n```",
        "[omx-autoresearch] to go on type: $autoresearch {}",
        "omx-autoresearch start {}",
        "$autoresearchx {}",
        "<task-notification>$autoresearch {}</task-notification>",
        "",
        "{}",
    ],
)
def test_no_other_text_binds(world: Scratch, prompt: str) -> None:
    mission = world.mission(session="")
    world.hook(world.payload("UserPromptSubmit", prompt=prompt.format(mission.task_id)))
    assert holder(world, mission) == ""
    assert world.stop().is_silent


@pytest.mark.requirement("SESS-01", "SESS-13")
def test_the_owner_binds_by_an_option_and_the_hold_is_unproven_until_a_stop_is_answered(
    world: Scratch,
) -> None:
    draft = world.draft()
    launch.start(world.runtime(), draft.task_id, StartOptions(session_id=SESSION, has_baseline=False))
    assert view(world.runtime(), draft.task_id).hold == "unproven"
    assert world.hook(world.payload()).reason
    assert view(world.runtime(), draft.task_id).hold.startswith("proven (stop answered ")


@pytest.mark.requirement("SESS-01", "SESS-03")
def test_the_environment_binds_the_first_session_start_that_sees_it_and_no_other(world: Scratch) -> None:
    launched = started(world)
    task_id, variable = launched.mission.task_id, f"{launched.mission.task_id}:{launched.nonce}"
    wrong = world.payload("SessionStart", source="startup", session=THIRD)
    assert world.hook(wrong, env={"OMX_AUTORESEARCH_TASK": f"{task_id}:000000000000"}).is_silent
    assert world.hook(wrong, env={"OMX_AUTORESEARCH_TASK": task_id}).is_silent
    first = world.hook(
        world.payload("SessionStart", source="startup"), env={"OMX_AUTORESEARCH_TASK": variable}
    )
    assert task_id in first.json["hookSpecificOutput"]["additionalContext"]
    second = world.payload("SessionStart", source="startup", session=OTHER)
    assert world.hook(second, env={"OMX_AUTORESEARCH_TASK": variable}).is_silent
    assert holder(world, task_id) == SESSION
    assert launched.nonce not in Path(world.home.mission(task_id).journal_path).read_text()


@pytest.mark.requirement("SESS-03")
def test_a_nonce_that_two_session_starts_see_at_once_binds_one(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = started(world)
    variable = f"{launched.mission.task_id}:{launched.nonce}"
    runtime = world.runtime(OMX_AUTORESEARCH_TASK=variable)
    real = sessions.bind

    def slower(runtime_: object, task_id: str, act: sessions.Act) -> Mission:
        monkeypatch.setattr(sessions, "bind", real)
        assert sessions.consume_environment(runtime, OTHER, "claude") is not None  # between check and bind
        return real(runtime, task_id, act)

    monkeypatch.setattr(sessions, "bind", slower)
    assert sessions.consume_environment(runtime, SESSION, "claude") is None
    assert holder(world, launched.mission) == OTHER


@pytest.mark.requirement("SESS-01", "SESS-04")
def test_an_agents_own_start_binds_when_its_client_shows_the_command(world: Scratch) -> None:
    draft = world.draft()
    agents = launch.start(
        world.runtime(),
        draft.task_id,
        StartOptions(session_id=SESSION, client="claude", is_agent=True, has_baseline=False),
    )
    assert (agents.token, agents.nonce) == ("", "")
    assert holder(world, draft) == ""
    assert world.stop().is_silent, "pending holds nobody"
    world.tool(command="ls", output=f"omx-autoresearch start {draft.task_id}")
    world.tool(session=OTHER, command=f"omx-autoresearch start {draft.task_id}")
    world.tool(command=f"omx-autoresearch start {draft.task_id}", agent_id="a1")
    assert holder(world, draft) == ""
    reply = world.tool(command=f"cd sub && omx-autoresearch start {draft.task_id}")
    assert f"now works on mission {draft.task_id}" in reply.context
    assert holder(world, draft) == SESSION
    binding = world.load(draft).binding
    assert binding is not None
    assert binding.how == "agent-start"
    lifecycle_commands.approve(world.runtime(), draft.task_id)
    assert world.stop().refusal


@pytest.mark.requirement("SESS-04")
def test_a_pending_start_that_nobody_confirms_in_ten_minutes_is_void(world: Scratch) -> None:
    draft = world.draft()
    options = StartOptions(session_id=SESSION, client="claude", is_agent=True, has_baseline=False)
    launch.start(world.runtime(), draft.task_id, options)
    world.clock.move(seconds=601)
    world.tool(command=f"omx-autoresearch start {draft.task_id}")
    assert holder(world, draft) == ""
    assert Registry(world.home).find(SESSION) is None
    launch.start(world.runtime(), draft.task_id, options)
    world.tool(command=f"omx-autoresearch start {draft.task_id}")
    assert holder(world, draft) == SESSION


@pytest.mark.requirement("SESS-04")
@pytest.mark.parametrize("failed", [False, True])
def test_where_the_shell_knows_no_session_a_token_in_the_output_binds_once(
    world: Scratch, failed: bool
) -> None:
    draft = world.draft()
    agents = launch.start(world.runtime(), draft.task_id, StartOptions(is_agent=True, has_baseline=False))
    assert agents.token.startswith(TOKEN_WORD)
    everything = b"".join(path.read_bytes() for path in world.home_path.rglob("*") if path.is_file())
    assert agents.token.encode() not in everything, "stored by its digest only"
    assert agents.token not in " ".join(os.listdir(world.home.active_path))

    output = f"started {draft.task_id}\n{agents.token}\n"
    event: dict[str, Any] = {"tool_name": "run_shell_command", "tool_input": {"command": "x"}}
    payload = world.payload("AfterTool", tool_response={"llmContent": output}, **event)
    if failed:
        payload["tool_response"]["error"] = {"message": "exit 1"}
    answer = world.hook(payload, "gemini")
    assert draft.task_id in answer.json["hookSpecificOutput"]["additionalContext"]
    assert holder(world, draft) == SESSION
    world.hook({**payload, "session_id": OTHER}, "gemini")
    assert holder(world, draft) == SESSION, "used up"


@pytest.mark.requirement("SESS-04")
def test_a_token_is_void_after_ten_minutes_and_a_guessed_one_is_none(world: Scratch) -> None:
    draft = world.draft()
    agents = launch.start(world.runtime(), draft.task_id, StartOptions(is_agent=True, has_baseline=False))
    assert sessions.confirm_token(world.runtime(), SESSION, "gemini", TOKEN_WORD + "0" * 32) is None
    world.clock.move(seconds=601)
    assert sessions.confirm_token(world.runtime(), SESSION, "gemini", agents.token) is None
    assert holder(world, draft) == ""
    assert not os.path.exists(world.home.active_path)


# --- no way out


@pytest.mark.requirement("LIFE-06")
@pytest.mark.parametrize("has_session", [True, False])
def test_a_weaker_mission_is_no_way_out_of_a_held_session(world: Scratch, has_session: bool) -> None:
    held = world.mission()
    weak = world.draft(goal="do nothing", validator_command="true", unfrozen_reason="easy")
    if has_session:
        options = StartOptions(session_id=SESSION, client="claude", is_agent=True, has_baseline=False)
        with pytest.raises(OwnerOnly, match="is held by mission"):
            launch.start(world.runtime(), weak.task_id, options)
        world.tool(command=f"omx-autoresearch start {weak.task_id}")
    else:
        agents = launch.start(world.runtime(), weak.task_id, StartOptions(is_agent=True, has_baseline=False))
        world.tool(command="env -u X omx-autoresearch start", output=agents.token)
    assert (holder(world, held), holder(world, weak)) == (SESSION, "")
    assert world.stop().refusal
    shown = view(world.runtime(), held.task_id)
    assert any("an agent tried an owner verb" in notice and "start" in notice for notice in shown.notices)


@pytest.mark.requirement("LIFE-06")
def test_another_session_of_an_agent_takes_no_mission_over(world: Scratch) -> None:
    held = world.mission()
    options = StartOptions(session_id=OTHER, client="claude", is_agent=True, has_baseline=False)
    with pytest.raises(OwnerOnly, match="holds another session"):
        launch.start(world.runtime(), held.task_id, options)
    assert holder(world, held) == SESSION


@pytest.mark.requirement("SESS-01")
def test_an_agents_start_of_its_own_mission_again_changes_nothing(world: Scratch) -> None:
    held = world.mission()
    before = world.kinds(held)
    options = StartOptions(session_id=SESSION, client="claude", is_agent=True, has_baseline=False)
    assert launch.start(world.runtime(), held.task_id, options).token == ""
    assert world.kinds(held) == before
    assert world.stop().refusal


NESTED = """
import socket, subprocess, sys
ours, theirs = socket.socketpair()
ours.sendall(sys.argv[1].encode())
ours.close()
print(subprocess.run(sys.argv[2:], stdin=theirs, capture_output=True).stdout.decode())
"""


@pytest.mark.requirement("SESS-15", "LIFE-06")
@pytest.mark.parametrize("session", [OTHER, SESSION])
@pytest.mark.parametrize("verb", ["cancel", "pause", ""])
def test_a_client_inside_a_bound_client_is_no_person(world: Scratch, session: str, verb: str) -> None:
    mission = world.mission()
    other = world.mission(session="", goal="another")
    meant = other if not verb else mission
    prompt = f"$autoresearch {verb} {meant.task_id}".replace("  ", " ")
    payload = json.dumps(world.payload("UserPromptSubmit", session, prompt=prompt))
    said = subprocess.run(
        [sys.executable, "-c", NESTED, payload, *world.hook_argv()],
        env=world.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "must be typed by a person" in said.stdout
    after = world.load(mission)
    assert (after.phase, holder(world, mission), holder(world, other)) == ("running", SESSION, "")
    assert world.load(meant).refused_verbs, "shown to the owner"
    assert world.stop().refusal


@pytest.mark.requirement("SESS-15")
@pytest.mark.parametrize(
    "mark", [{"CODEX_THREAD_ID": "x"}, {"GEMINI_CLI": "1"}, {"AI_AGENT": "claude-code_2-1-332_agent"}]
)
def test_a_prompt_event_from_a_tool_shell_is_no_person(world: Scratch, mark: dict[str, str]) -> None:
    mission = world.mission()
    for prompt in (f"$autoresearch cancel {mission.task_id}", "go on"):
        world.hook(world.payload("UserPromptSubmit", prompt=prompt), env=mark)
    assert world.load(mission).phase == "running"
    assert "person_prompted" not in world.kinds(mission)
    assert len(world.load(mission).refused_verbs) == 1


@pytest.mark.requirement("SESS-15")
def test_a_prompt_event_that_a_shell_started_is_no_person(world: Scratch) -> None:
    mission = world.mission()
    payload = json.dumps(world.payload("UserPromptSubmit", prompt="$autoresearch cancel")).replace("'", "")
    line = f"echo '{payload}' | env -i {' '.join(world.hook_argv())}; true"
    subprocess.run(["/bin/sh", "-c", line], env=world.environ, check=True, capture_output=True)
    assert world.load(mission).phase == "running"
    assert world.load(mission).refused_verbs


# --- what ends a binding, and what keeps it


@pytest.mark.requirement("SESS-09")
@pytest.mark.parametrize("end", ["unbind", "cancel", "complete"])
def test_a_binding_ends_with_its_mission_and_by_the_owner(world: Scratch, end: str) -> None:
    mission = world.mission()
    if end == "unbind":
        lifecycle_commands.unbind(world.runtime(), mission.task_id, reason="enough")
    elif end == "cancel":
        lifecycle_commands.cancel(world.runtime(), mission.task_id)
    else:
        world.write("answer.txt", "42\n")
        world.stop()
    assert Registry(world.home).entries() == ()
    assert not os.path.exists(world.home.active_path), "step 1 finds nothing"
    assert holder(world, mission) == ""
    assert world.stop().is_silent


@pytest.mark.requirement("SESS-09")
def test_a_session_works_on_one_mission_and_a_mission_holds_one_session(world: Scratch) -> None:
    first, second = world.mission(goal="first"), world.mission(session=OTHER, goal="second")
    world.prompt(f"$autoresearch {second.task_id}")
    assert (holder(world, first), holder(world, second)) == ("", SESSION)
    assert world.stop(OTHER).is_silent
    assert second.task_id in world.stop().refusal
    assert view(world.runtime(), first.task_id).hold == "unbound"


@pytest.mark.requirement("SESS-09", "LIFE-02")
def test_a_bind_that_fails_lets_nobody_go(world: Scratch) -> None:
    held, ended = world.mission(goal="held"), world.mission(session="", goal="ended")
    lifecycle_commands.cancel(world.runtime(), ended.task_id)
    reply = world.prompt(f"$autoresearch {ended.task_id}")
    assert "is cancelled; it takes no session" in reply.person_message
    assert holder(world, held) == SESSION
    assert world.stop().refusal
    with pytest.raises(StepIllegal, match="no session id"):
        sessions.bind(world.runtime(), held.task_id, sessions.Act("", "claude", "prompt"))


@pytest.mark.requirement("SESS-10")
@pytest.mark.parametrize("source", ["resume", "compact", "startup"])
def test_a_resumed_or_compacted_session_stays_bound_and_is_told_its_mission(
    world: Scratch, source: str
) -> None:
    mission = world.mission()
    summary = world.hook(world.payload("SessionStart", source=source)).json["hookSpecificOutput"]
    assert summary["hookEventName"] == "SessionStart"
    for told in (mission.task_id, mission.goal, "./check.sh", "Phase running"):
        assert told in summary["additionalContext"]
    assert world.stop().refusal


@pytest.mark.requirement("SESS-10")
def test_after_a_resume_in_another_process_that_process_is_the_client(world: Scratch) -> None:
    mission = world.mission()
    entry = Registry(world.home).find(SESSION)
    assert entry is not None
    Registry(world.home).put(replace(entry, client_pid=2**22 - 1, client_started="gone"))
    world.hook(world.payload("SessionStart", source="resume"))
    entry = Registry(world.home).find(SESSION)
    me = identify(os.getpid())
    assert entry is not None
    assert me is not None
    assert (entry.client_pid, entry.client_started) == (me.pid, me.started)
    assert holder(world, mission) == SESSION


@pytest.mark.requirement("SESS-11")
def test_a_cleared_session_goes_on_under_its_new_id_and_status_says_so(world: Scratch) -> None:
    mission = world.mission()
    world.hook(world.payload("SessionEnd", reason="clear"))
    start = world.hook(world.payload("SessionStart", OTHER, source="clear"))
    assert mission.task_id in start.json["hookSpecificOutput"]["additionalContext"]
    assert holder(world, mission) == OTHER
    assert world.stop(OTHER).refusal
    assert world.stop(SESSION).is_silent
    binding = world.load(mission).binding
    assert binding is not None
    assert binding.how == "clear"
    assert any("was cleared" in notice for notice in view(world.runtime(), mission.task_id).notices)


@pytest.mark.requirement("SESS-11")
def test_a_clear_in_another_client_process_is_another_session(world: Scratch) -> None:
    mission = world.mission()
    payload = json.dumps(world.payload("SessionStart", OTHER, source="clear"))
    subprocess.run(
        [sys.executable, "-c", NESTED, payload, *world.hook_argv()],
        env=world.environ,
        check=True,
        capture_output=True,
    )
    assert holder(world, mission) == SESSION


@pytest.mark.requirement("SESS-11")
def test_a_process_that_serves_several_sessions_does_not_say_which_one_was_cleared(world: Scratch) -> None:
    first, second = world.mission(goal="first"), world.mission(session=OTHER, goal="second")
    assert world.hook(world.payload("SessionStart", THIRD, source="clear")).is_silent
    assert (holder(world, first), holder(world, second)) == (SESSION, OTHER)


@pytest.mark.requirement("SESS-11", "SESS-09")
def test_a_clear_brings_no_expired_binding_back(world: Scratch) -> None:
    world.clock.move(hours=-40)
    mission = world.mission()
    world.clock.move(hours=40)
    assert world.hook(world.payload("SessionStart", OTHER, source="clear")).is_silent
    assert holder(world, mission) == SESSION


@pytest.mark.requirement("SESS-11")
def test_a_fork_is_not_bound_by_itself_and_status_says_so(world: Scratch) -> None:
    mission = world.mission()
    world.hook(world.payload("SessionStart", OTHER, source="fork"))
    assert holder(world, mission) == SESSION
    assert world.stop(OTHER).is_silent
    assert any("fork" in notice for notice in view(world.runtime(), mission.task_id).notices)


# --- names of sessions

HOSTILE = (
    "../../../../x", "a/b", "..", ".", "x" * 5000, "a\0b", "CON", "con", "\n", " ", "h-0", "ä", "A" * 40,
    "a\ud800b", "active", "-rf", "*", "h-token-" + "0" * 64,
)  # fmt: skip


@pytest.mark.requirement("SESS-07")
@pytest.mark.case("SES-11")
@pytest.mark.parametrize("session", HOSTILE, ids=[f"id{number}" for number in range(len(HOSTILE))])
def test_no_session_id_makes_a_file_outside_the_registry(world: Scratch, session: str) -> None:
    mission = world.mission()
    before = set(fingerprint(world.root))
    for event in ("Stop", "SessionStart", "UserPromptSubmit"):
        answer = world.hook(world.payload(event, session, prompt="hello", source="startup"))
        assert answer.is_silent
    assert set(fingerprint(world.root)) == before

    assert world.hook(
        world.payload("UserPromptSubmit", session, prompt=f"$autoresearch {mission.task_id}")
    ).stdout
    new = set(fingerprint(world.root)) - before
    placed = {
        name for name in new if not name.startswith(("project/.omx/state/sessions/", "state/missions/"))
    }
    assert len(placed) <= 1
    assert all(name.startswith("state/active/") and name.count("/") == 2 for name in placed)
    answer = world.hook(world.payload(session=session))
    assert answer.reason or "\ud800" in session, "held under its own name"


@pytest.mark.requirement("SESS-07")
@pytest.mark.case("SES-11")
def test_two_ids_never_share_a_record(world: Scratch) -> None:
    names = {session_file_name(session) for session in HOSTILE}
    assert len(names) == len(HOSTILE)
    mission = world.mission(session="a/b")
    assert world.stop("a_b").is_silent
    assert world.stop("A/B").is_silent
    assert world.stop("a/b").refusal
    assert holder(world, mission) == "a/b"


@pytest.mark.requirement("SESS-06")
def test_a_session_in_a_worktree_is_validated_there(world: Scratch) -> None:
    mission = world.mission(session="")
    tree = world.root / "tree"
    world.git("worktree", "add", "-q", str(tree), "-b", "work")
    payload = {
        **world.payload("UserPromptSubmit", prompt=f"$autoresearch {mission.task_id}"),
        "cwd": str(tree),
    }
    world.hook(payload, cwd=tree)
    assert world.load(mission).workspace_path == str(tree)
    (world.project / "answer.txt").write_text("42\n")
    assert "(validation)" in world.hook(world.payload()).reason, "the main checkout is not the workspace"
    (tree / "answer.txt").write_text("42\n")
    assert "is complete" in world.hook(world.payload()).json["systemMessage"]
    assert world.completion(world.load(mission))["passed"] is True
    assert not (tree / ".omx").exists()


@pytest.mark.requirement("SESS-06")
def test_another_repository_is_no_workspace_of_the_mission(world: Scratch) -> None:
    mission = world.mission(session="")
    foreign = world.root / "foreign"
    world.git("clone", "-q", str(world.project), str(foreign), cwd=world.root)
    payload = {
        **world.payload("UserPromptSubmit", prompt=f"$autoresearch {mission.task_id}"),
        "cwd": str(foreign),
    }
    world.hook(payload, cwd=foreign)
    assert holder(world, mission) == SESSION
    assert world.load(mission).workspace_path == str(world.project)


@pytest.mark.requirement("SESS-12")
def test_a_damaged_registry_file_lets_go_loudly_and_a_person_replaces_it(world: Scratch) -> None:
    mission = world.mission()
    path = Path(world.home.session_path(SESSION))
    path.write_text('{"state": "bo')
    answer = world.hook(world.payload())
    assert str(path) in answer.json["systemMessage"]
    assert not answer.reason
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert world.hook(world.payload()).reason
    path.write_text("")
    world.prompt(f"$autoresearch {mission.task_id}")
    assert world.hook(world.payload()).reason
