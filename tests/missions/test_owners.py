"""Owner or agent: who is taken for which, and what an attempt leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from omx_autoresearch.foundation.clients import SHELL_MARKS
from omx_autoresearch.foundation.errors import OwnerOnly
from omx_autoresearch.foundation.times import to_the_second
from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.lifecycle_commands import marks_of_agent, require_owner
from omx_autoresearch.missions.registry import Registry
from omx_autoresearch.missions.sessions import missions_around
from omx_autoresearch.missions.views import view
from omx_autoresearch.system.processes import identify
from tests.support.scratch import OTHER, PACKAGE, SESSION, Scratch

ASK = """
import json, os, sys
sys.path.insert(0, {root!r})
from omx_autoresearch.foundation.clients import SHELL_MARKS
from omx_autoresearch.foundation.errors import OwnerOnly
from omx_autoresearch.journal.layout import Runtime
from omx_autoresearch.missions.lifecycle_commands import require_owner
runtime = Runtime.of_process(home_path={home!r}, shell_marks=SHELL_MARKS)
try:
    require_owner(runtime, "cancel", {task!r})
    print(json.dumps("the owner"))
except OwnerOnly as error:
    print(json.dumps(str(error)))
"""


def ask_in_a_child(world: Scratch, task_id: str, **environ: str) -> str:
    """Ask in a child of this process whether it is the owner's."""
    program = ASK.format(root=str(PACKAGE.parent), home=str(world.home_path), task=task_id)
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**world.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return str(json.loads(said.stdout))


@pytest.fixture
def _no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle_commands, "command_name", lambda _: "init")


@pytest.mark.requirement("LIFE-06")
@pytest.mark.usefixtures("_no_sandbox")
@pytest.mark.parametrize("mark", sorted(set(SHELL_MARKS)))
def test_each_mark_of_a_tool_shell_is_an_agents_and_is_named_without_its_value(
    world: Scratch, mark: str
) -> None:
    mission = world.mission(session="")
    runtime = world.runtime(**{mark: "secret-value"})
    assert marks_of_agent(runtime) == (f"the environment has {mark}",)
    with pytest.raises(OwnerOnly) as error:
        require_owner(runtime, "cancel", mission.task_id)
    assert mark in error.value.message
    assert "secret-value" not in str(error.value)
    assert "unset the variable or open a fresh terminal" in error.value.next_step
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("LIFE-06")
@pytest.mark.usefixtures("_no_sandbox")
def test_an_attempt_is_recorded_and_shown_to_the_owner_in_status_and_notice(world: Scratch) -> None:
    mission = world.mission()
    for _ in range(2):
        with pytest.raises(OwnerOnly):
            require_owner(world.runtime(CLAUDECODE="1"), "approve", mission.task_id)
    record = world.records(mission, "owner_verb_refused")[0]["data"]
    assert record == {"verb": "approve", "marks": ["the environment has CLAUDECODE"]}
    notices = view(world.runtime(), mission.task_id).notices
    assert len([notice for notice in notices if "approve" in notice]) == 2
    notice = Path(world.home.mission(mission.task_id).root_path, "NOTICE").read_text()
    assert "owner verbs that an agent tried" in notice
    assert notice == to_the_second(notice)


@pytest.mark.requirement("LIFE-06")
@pytest.mark.usefixtures("_no_sandbox")
def test_a_verb_without_a_mission_is_shown_in_the_mission_that_is_meant_by_its_session(
    world: Scratch,
) -> None:
    mission, other = world.mission(), world.mission(session=OTHER, goal="another")
    runtime = world.runtime(CLAUDE_CODE_SESSION_ID=SESSION)
    assert missions_around(runtime) == (mission.task_id,)
    with pytest.raises(OwnerOnly):
        require_owner(runtime, "uninstall")
    assert world.load(mission).refused_verbs
    assert not world.load(other).refused_verbs


@pytest.mark.requirement("LIFE-06")
def test_whatever_a_bound_client_started_is_an_agents_without_any_mark(world: Scratch) -> None:
    mission = world.mission()  # bound to a client, which is this process
    said = ask_in_a_child(world, mission.task_id)
    assert f"process {os.getpid()}, a client bound to a mission, started it" in said
    assert "unset the variable" not in said
    assert "no agent CLI and no command of the runtime started" in said
    assert world.load(mission).refused_verbs
    entry = Registry(world.home).find(SESSION)
    assert entry is not None
    Registry(world.home).put(replace(entry, client_started="another process of this pid"))
    assert "a client bound to a mission" not in ask_in_a_child(world, mission.task_id)


@pytest.mark.requirement("LIFE-06")
@pytest.mark.parametrize("name", ["bwrap", "codex-linux-sandbox", "codex-linux-san"])
def test_a_clients_sandbox_is_an_agents_and_another_container_is_not(
    world: Scratch, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(lifecycle_commands, "command_name", lambda pid: name if pid == 1 else "x")
    assert marks_of_agent(world.runtime()) == (f"pid 1 is {name}, the sandbox of an agent CLI",)
    for other in ("systemd", "docker-init", "tini", "sh"):
        monkeypatch.setattr(lifecycle_commands, "command_name", lambda _, other=other: other)
        assert marks_of_agent(world.runtime()) == ()


@pytest.mark.requirement("LIFE-06")
@pytest.mark.usefixtures("_no_sandbox")
def test_the_refusal_stands_where_it_cannot_be_recorded(world: Scratch) -> None:
    mission = world.mission()
    Path(world.home.mission(mission.task_id).journal_path).write_bytes(b"")
    with pytest.raises(OwnerOnly):
        require_owner(world.runtime(CLAUDECODE="1"), "cancel", mission.task_id)
    with pytest.raises(OwnerOnly):
        require_owner(world.runtime(CLAUDECODE="1"), "cancel", "no-such-mission")


@pytest.mark.requirement("LIFE-06")
@pytest.mark.usefixtures("_no_sandbox")
def test_the_owner_passes_and_leaves_no_trace(world: Scratch) -> None:
    mission = world.mission()
    before = world.kinds(mission)
    require_owner(world.runtime(), "cancel", mission.task_id)
    assert world.kinds(mission) == before
    me = identify(os.getpid())
    assert me is not None
