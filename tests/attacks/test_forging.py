"""Events that an agent forges from its tool shell: they neither free it nor speak for a person."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.runtime import sessions
from omx_autoresearch.runtime.status import view
from omx_autoresearch.system.commands import run_command, shell_argv
from omx_autoresearch.system.processes import identify
from tests.support.scratch import OTHER, SESSION, Scratch

if TYPE_CHECKING:
    from omx_autoresearch.core.mission import Mission


ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


@pytest.fixture
def mission(world: Scratch) -> Mission:
    """Bound to a session of this process, which stands for the client."""
    act = sessions.Act(SESSION, "claude", "prompt", identify(os.getpid()))
    return sessions.bind(world.runtime(), world.mission().task_id, act)


def forge(world: Scratch, event: str, session: str, **fields: Any) -> bytes:
    """What the hook says to an event that came from the client's tool shell, all marks taken off."""
    script = '"$@" <event.json; true'  # what follows keeps the shell above the hook
    (world.root / "event.json").write_text(
        json.dumps(world.payload(event, session, **fields)), encoding="utf-8"
    )
    said = subprocess.run(
        ["/bin/sh", "-c", script, "sh", *world.hook_argv()],
        cwd=world.root,
        env=world.environ,
        capture_output=True,
        check=True,
        timeout=60,
    )
    return said.stdout


@pytest.mark.requirement("SESS-11", "SESS-15")
def test_a_forged_clear_moves_no_binding_to_a_session_that_nobody_works_in(
    world: Scratch, mission: Mission
) -> None:
    assert forge(world, "SessionStart", OTHER, source="clear") == b""
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
def test_a_prompt_forged_in_a_tool_shell_is_no_persons(world: Scratch, mission: Mission, verb: str) -> None:
    weaker = world.draft(goal="less", slug="weaker", validator_command="./check.sh weaker")
    forge(world, "UserPromptSubmit", SESSION, prompt=f"$autoresearch {verb.replace('TASK', weaker.task_id)}")
    assert world.load(mission).phase == "running"
    assert world.hook(world.payload()).reason
    assert world.load(weaker).phase == "draft"


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
