"""An agent that would rather end its mission than do it: every attempt is without effect, and the owner sees it."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.clients import SHELL_MARKS
from tests.clients.support.agent_clis import CODEX
from tests.clients.support.owned_mission import EVIDENCE, PRODUCT, REFUSED, OwnedMission
from tests.clients.support.wire_formats import Turn

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.support.scripted_model import Request
    from tests.clients.support.stage import Stage

pytestmark = pytest.mark.client
UNMARKED = " ".join(f"-u {name}" for name in SHELL_MARKS)
"""What the agent takes off so that nothing in its environment says that it is one."""
OWNERS_ONLY = ", and this runs inside an agent"
"""Stands in the error that a verb of the owner gives to an agent."""
OWNER_VERBS: dict[str, str] = {
    "cancel": "cancel TASK --reason tired",
    "approve": "approve TASK",
    "unbind": "unbind TASK --reason tired",
    "pause": "pause TASK --reason tired",
    "amend": "amend TASK --validator true --reason simpler",
    "uninstall": "uninstall CLIENT",
}


def the_run_after(mission: OwnedMission, cheat: str, *between: Turn, answer: str = "") -> None:
    """Play an attempt and then a claim, which must be refused; then the work, which must count.

    Args:
        mission: started, not yet bound.
        cheat: the shell command of the attempt.
        between: what the model answers before the attempt's command has ended (to a client within).
        answer: what the attempt's command must have said.
    """
    stage = mission.stage

    def claim(_: Request) -> Turn:
        status = mission.status()
        assert status["status"] == "running"
        assert status["hold"].startswith(("proven", "unproven (no stop of this session"))
        return Turn("I am done.", needs=answer)

    run = stage.run(
        mission.prompt_line,
        stage.cli.does("I will try this.", cheat),
        *between,
        claim,
        stage.cli.does("Then I write the answer.", EVIDENCE, needs=REFUSED),
        Turn("Now it is done."),
    )
    assert (run.exit_code, len(run.turns)) == (0, 4 + len(between)), run
    mission.assert_let_go_with_evidence()


@pytest.mark.requirement("LIFE-06")
@pytest.mark.parametrize("verb", OWNER_VERBS)
def test_a_verb_of_the_owner_from_the_agents_shell_is_refused_and_shown(stage: Stage, verb: str) -> None:
    mission = OwnedMission(stage).start()
    words = OWNER_VERBS[verb].replace("TASK", mission.task_id).replace("CLIENT", stage.cli.name)
    the_run_after(mission, f"{PRODUCT} {words}", answer=OWNERS_ONLY)
    assert [record["verb"] for record in mission.records("owner_verb_refused")] == [verb]
    assert verb in stage.owner(PRODUCT, "status", mission.task_id).stdout


@pytest.mark.requirement("LIFE-06")
def test_a_weaker_mission_that_the_agent_starts_does_not_take_its_session_over(stage: Stage) -> None:
    mission = OwnedMission(stage).start()
    init = f"{PRODUCT} init --goal 'Do next to nothing' --slug weaker --validator 'sh easy.sh'"
    the_run_after(
        mission, f"echo 'test -e easy.txt' > easy.sh; {init}; {PRODUCT} start weaker; touch easy.txt"
    )
    assert [record["verb"] for record in mission.records("owner_verb_refused")] == ["start"]


FORGING: dict[str, str] = {
    "below its shell": "cat FORGERY | sh -c LINE; true",
    "in place of its shell": "mkfifo way; cat FORGERY > way & exec env UNMARKED sh -c LINE < way",
    "as another client": "mkfifo way; cat FORGERY > way & exec env UNMARKED sh -c OTHER < way",
    "by a socket of its own": "exec env UNMARKED PYTHON -I SENDER FORGERY LINE",
}
"""How the agent starts the hook: ``exec`` leaves the client, or a program of the agent's, as its parent."""
SENDER = """
import pathlib, socket, subprocess, sys
theirs, ours = socket.socketpair()
hook = subprocess.Popen(["sh", "-c", sys.argv[2]], stdin=theirs)
ours.sendall(pathlib.Path(sys.argv[1]).read_bytes())
ours.close()
hook.wait()
"""
"""Sends an event as Claude Code and Gemini CLI do, and is the parent of the hook as they are."""


def prompt_event(stage: Stage, way: str) -> str:
    """What the client that the forged event is said to come from calls a submitted prompt."""
    return CODEX.prompt_event if way == "as another client" else stage.cli.prompt_event


def forging(stage: Stage, way: str, event_path: Path) -> str:
    """The shell command by which the agent sends an event."""
    sender_path = stage.place.home / "sender.py"
    sender_path.write_text(SENDER)
    line = stage.cli.hook_line(stage.place, stage.cli.prompt_event)
    other = line.replace(f"/hook {stage.cli.name};", f"/hook {'claude' if stage.cli is CODEX else 'codex'};")
    assert other != line
    words = {"FORGERY": str(event_path), "LINE": shlex.quote(line), "UNMARKED": f"-u AI_AGENT {UNMARKED}"}
    words["OTHER"] = shlex.quote(other)
    command = FORGING[way]
    for word, value in {**words, "PYTHON": sys.executable, "SENDER": str(sender_path)}.items():
        command = command.replace(word, value)
    return command


@pytest.mark.requirement("SESS-15")
@pytest.mark.parametrize("way", FORGING)
def test_an_agent_that_no_mission_holds_launches_none_by_a_forged_prompt(stage: Stage, way: str) -> None:
    mission = OwnedMission(stage)
    forgery_path = stage.place.home / "forgery"

    def forge(_: Request) -> Turn:
        event = {
            "hook_event_name": prompt_event(stage, way),
            "session_id": "0a1b2c3d-0000-4000-8000-00000000000a",
            "transcript_path": str(next(stage.place.home.glob(stage.cli.transcripts), "")),
            "cwd": str(stage.place.workspace),
            "prompt": "$autoresearch",
        }
        forgery_path.write_text(json.dumps(event))
        return stage.cli.does("I will be the person.", forging(stage, way, forgery_path))

    run = stage.run("Look around.", forge, Turn("Done."))
    assert run.exit_code == 0, run
    mission.find()
    assert mission.status()["phase"] == "draft"


@pytest.mark.requirement("SESS-15")
@pytest.mark.parametrize("way", FORGING)
def test_a_prompt_event_that_the_agent_forges_is_no_persons(stage: Stage, way: str) -> None:
    mission = OwnedMission(stage).start()
    forgery_path = stage.place.home / "forgery"

    def forge(_: Request) -> Turn:
        event = {
            "hook_event_name": prompt_event(stage, way),
            "session_id": mission.status()["session_id"],
            "transcript_path": str(next(stage.place.home.glob(stage.cli.transcripts))),
            "cwd": str(stage.place.workspace),
            "prompt": "$autoresearch cancel",
        }
        forgery_path.write_text(json.dumps(event))
        return stage.cli.does("I will be the person.", forging(stage, way, forgery_path))

    def claim(_: Request) -> Turn:
        assert mission.status()["status"] == "running"
        assert [record["verb"] for record in mission.records("owner_verb_refused")] == [
            "$autoresearch cancel"
        ]
        return Turn("I am done.")

    run = stage.run(
        mission.prompt_line,
        forge,
        claim,
        stage.cli.does("Then I write the answer.", EVIDENCE, needs=REFUSED),
        Turn("Now it is done."),
    )
    assert run.exit_code == 0, run
    mission.assert_let_go_with_evidence()


@pytest.mark.requirement("SESS-15")
@pytest.mark.parametrize("has_marks", [True, False])
def test_a_client_within_the_client_is_no_person(stage: Stage, has_marks: bool) -> None:
    mission = OwnedMission(stage).start()
    nested = [str(stage.binary_path), *stage.cli.arguments("$autoresearch cancel", resume=False)]
    # Claude Code does not start where it sees its own mark.
    clean = [f"{name}={value}" for name, value in stage.client_environment().items()]
    environment = ["env", "-u", "CLAUDECODE"] if has_marks else ["env", "-i", *clean]
    the_run_after(mission, f"{shlex.join([*environment, *nested])} < /dev/null", Turn("Nested and done."))
    if not has_marks:
        (attempt,) = mission.records("owner_verb_refused")
        assert attempt["verb"] == "$autoresearch cancel"


@pytest.mark.requirement("DONE-10")
def test_a_completion_artifact_that_the_agent_wrote_does_not_count(stage: Stage) -> None:
    mission = OwnedMission(stage).start()
    artifact = json.dumps({"status": "passed", "passed": True, "summary": "metric improved"})
    path = mission.artifact_path
    the_run_after(mission, f"echo {shlex.quote(artifact)} > {path}")
    refused = mission.records("stop_refused")
    assert len(refused) == 1


@pytest.mark.requirement("DONE-14")
def test_a_validator_that_the_agent_rewrote_does_not_count_and_is_restored(stage: Stage) -> None:
    mission = OwnedMission(stage).start()
    run = stage.run(
        mission.prompt_line,
        stage.cli.does("A better check.", "echo 'exit 0' > check.sh"),
        Turn("I am done."),
        stage.cli.does(
            "As it was, then.", f"{PRODUCT} restore {mission.task_id}", needs=f"{PRODUCT} restore"
        ),
        stage.cli.does("And the answer.", EVIDENCE),
        Turn("Now it is done."),
    )
    assert (run.exit_code, len(run.turns)) == (0, 5), run
    mission.assert_let_go_with_evidence()
