"""Sessions that come out of a held one: a client within the client, a fork, a cleared session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.missions import sessions
from omx_autoresearch.missions.registry import Registry
from omx_autoresearch.missions.views import view
from omx_autoresearch.system.processes import ProcessIdentity, identify
from tests.support.scratch import OTHER, SESSION, Scratch, fingerprint

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission

PERSONS_CLIENT = identify(os.getppid())
"""Stands for the person's client: every hook process of these tests has this very test process for its client,
which then runs inside that one."""


def held_by(world: Scratch, client: ProcessIdentity | None) -> Mission:
    mission = world.mission()
    act = sessions.Act(SESSION, "claude", "prompt", client)
    return sessions.bind(world.runtime(), mission.task_id, act)


def prompt(world: Scratch, text: str, session: str) -> bytes:
    answer = world.hook(world.payload("UserPromptSubmit", session, prompt=text))
    assert answer.exit_status == 0
    return answer.stdout


def notices(world: Scratch, mission: Mission) -> str:
    return "\n".join(view(world.runtime(), mission.task_id).notices)


# --- a client within the client


@pytest.mark.requirement("SESS-15")
@pytest.mark.parametrize("session", [SESSION, OTHER])
def test_a_command_to_a_client_within_a_bound_client_is_no_persons_whatever_session_it_resumes(
    world: Scratch, session: str
) -> None:
    mission = held_by(world, PERSONS_CLIENT)
    assert b"must be typed by a person" in prompt(world, "$autoresearch cancel", session)
    assert world.load(mission).phase == "running"
    (attempt,) = world.records(mission, "owner_verb_refused")
    assert attempt["data"]["verb"] == "$autoresearch cancel"
    assert f"process {os.getppid()}" in attempt["data"]["marks"][0]


@pytest.mark.requirement("SESS-15")
def test_a_prompt_to_a_client_within_begins_no_turn_of_a_person(world: Scratch) -> None:
    mission = held_by(world, PERSONS_CLIENT)
    assert prompt(world, "go on", SESSION) == b""
    assert world.records(mission, "person_prompted") == []


@pytest.mark.requirement("SESS-15")
def test_a_prompt_to_the_bound_client_itself_is_a_persons(world: Scratch) -> None:
    mission = held_by(world, identify(os.getpid()))
    assert b"must be typed by a person" not in prompt(world, "go on", SESSION)
    assert len(world.records(mission, "person_prompted")) == 1
    assert b"is paused" in prompt(world, "$autoresearch pause", SESSION)


@pytest.mark.requirement("SESS-15")
def test_a_session_resumed_in_a_client_within_does_not_take_the_persons_client_out_of_sight(
    world: Scratch,
) -> None:
    held_by(world, PERSONS_CLIENT)
    world.hook(world.payload("SessionStart", source="resume"))
    entry = Registry(world.home).find(SESSION)
    assert entry is not None
    assert entry.client_pid == os.getppid()


@pytest.mark.requirement("SESS-10")
def test_a_session_resumed_by_a_person_is_known_by_its_new_client(world: Scratch) -> None:
    held_by(world, ProcessIdentity(2**22 - 1, "gone"))
    world.hook(world.payload("SessionStart", source="resume"))
    entry = Registry(world.home).find(SESSION)
    assert entry is not None
    assert entry.client_pid == os.getpid()


# --- a fork, a cleared session


@pytest.mark.requirement("SESS-11")
def test_a_fork_is_not_held_and_status_says_so_once(world: Scratch) -> None:
    mission = held_by(world, identify(os.getpid()))
    (world.project / "deeper").mkdir()
    for _ in range(2):
        fork = world.payload("SessionStart", OTHER, source="fork", cwd=str(world.project / "deeper"))
        assert world.hook(fork).is_silent
    assert world.hook(world.payload("Stop", OTHER)).is_silent
    assert notices(world, mission).count(OTHER) == 1
    assert f"$autoresearch {mission.task_id}" in notices(world, mission)
    assert world.load(mission).binding == mission.binding


@pytest.mark.requirement("SESS-11")
@pytest.mark.parametrize("how", ["elsewhere", "another client", "ended"])
def test_a_fork_that_cannot_be_of_the_held_session_changes_nothing(world: Scratch, how: str) -> None:
    mission = held_by(world, identify(os.getpid()))
    if how == "ended":
        world.prompt("$autoresearch pause")
    before = fingerprint(world.home_path, without=(SESSION,))  # who began last in the process stands there
    cwd = world.root if how == "elsewhere" else world.project
    fork = world.payload("SessionStart", OTHER, source="fork", cwd=str(cwd))
    assert world.hook(fork, "codex" if how == "another client" else "claude").is_silent
    assert fingerprint(world.home_path, without=(SESSION,)) == before
    assert OTHER not in notices(world, mission)


@pytest.mark.requirement("SESS-11")
def test_a_fork_is_told_nothing_of_a_mission_that_cannot_be_read(world: Scratch) -> None:
    mission = held_by(world, identify(os.getpid()))
    Path(world.home.mission(mission.task_id).journal_path).write_bytes(b"{}\n")
    fork = world.payload("SessionStart", OTHER, source="fork")
    assert world.hook(fork).is_silent


@pytest.mark.requirement("SESS-11")
def test_a_cleared_session_of_the_same_client_process_stays_held_and_status_says_so(world: Scratch) -> None:
    mission = held_by(world, identify(os.getpid()))
    cleared = world.hook(world.payload("SessionStart", OTHER, source="clear"))
    assert mission.task_id in cleared.json["hookSpecificOutput"]["additionalContext"]
    assert "was cleared" in notices(world, mission)
    assert world.hook(world.payload("Stop", OTHER)).reason
    assert world.hook(world.payload("Stop", SESSION)).is_silent


@pytest.mark.requirement("SESS-11")
@pytest.mark.parametrize("source", ["startup", "resume", "fork"])
def test_no_other_start_in_the_same_client_process_is_bound(world: Scratch, source: str) -> None:
    held_by(world, identify(os.getpid()))
    assert world.hook(world.payload("SessionStart", OTHER, source=source)).is_silent
    assert world.hook(world.payload("Stop", OTHER)).is_silent
