"""A client whose tools run in a sandbox: its hook gives a validation no wider rights, unless the owner said so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.agents.registry import adapter, parse_bytes
from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.amending import amend_mission
from omx_autoresearch.missions.stop import answer_stop
from tests.support.boxes import BOXES, take_box
from tests.support.needs import needs_bubblewrap

if TYPE_CHECKING:
    from omx_autoresearch.agents.events import Reply
    from omx_autoresearch.missions.rules.mission import Mission
    from tests.support.scratch import Scratch

pytestmark = needs_bubblewrap


def sandboxed(world: Scratch) -> None:
    settings = Path(world.environ["HOME"], ".claude", "settings.json")
    settings.parent.mkdir()
    settings.write_text(json.dumps({"sandbox": {"enabled": True}}))


def sandboxed_stop(world: Scratch) -> Reply:
    """A stop of Codex as its hook answers it where the session says nothing of its policy; in this process."""
    facts = adapter("codex").CLIENT
    payload = world.payload(last_assistant_message=f"I am done ({world.clock.now().timestamp()}).")
    event = parse_bytes("codex", json.dumps(payload).encode(), world.runtime().environ)
    return answer_stop(world.runtime(), facts, replace(event, is_sandboxed=True))


def isolation_after_a_stop(world: Scratch, mission: Mission) -> str:
    assert world.hook(world.payload()).reason
    attestation = world.load(mission).attestation
    assert attestation is not None
    return attestation.isolation


@pytest.mark.requirement("DONE-17")
def test_a_stop_of_a_client_with_its_sandbox_on_is_judged_in_bubblewrap_whoever_approved(
    world: Scratch,
) -> None:
    mission = world.mission()
    assert isolation_after_a_stop(world, mission) == "none"
    sandboxed(world)
    assert isolation_after_a_stop(world, mission) == "bubblewrap"


@pytest.mark.requirement("DONE-17")
def test_the_owners_word_on_sandboxed_clients_outlives_an_amended_contract(world: Scratch) -> None:
    sandboxed(world)
    mission = world.mission()
    lifecycle_commands.approve(world.runtime(), mission.task_id, is_unsandboxed=True)
    amend_mission(
        world.runtime(), mission.task_id, lambda draft: replace(draft, validator_command="sh check.sh")
    )
    assert isolation_after_a_stop(world, mission) == "none"


@pytest.mark.requirement("DONE-17")
def test_an_amended_contract_widens_no_approval(world: Scratch) -> None:
    sandboxed(world)
    mission = world.mission()
    amend_mission(
        world.runtime(), mission.task_id, lambda draft: replace(draft, validator_command="sh check.sh")
    )
    assert isolation_after_a_stop(world, mission) == "bubblewrap"


@pytest.mark.requirement("DONE-17")
def test_a_codex_session_without_a_word_of_its_policy_is_judged_in_bubblewrap(world: Scratch) -> None:
    mission = world.mission(client="codex")
    assert world.hook(world.payload(), "codex").reason
    attestation = world.load(mission).attestation
    assert attestation is not None
    assert attestation.isolation == "bubblewrap"


@pytest.mark.requirement("DONE-17")
@pytest.mark.parametrize("kind", BOXES)
def test_a_codex_session_is_held_and_completed_in_the_box_that_the_machine_has(
    world: Scratch, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    take_box(monkeypatch, kind)
    mission = world.mission(client="codex")
    assert sandboxed_stop(world).refusal
    world.write("answer.txt", "42\n")

    assert "is complete" in sandboxed_stop(world).person_message

    completed = world.load(mission)
    assert completed.phase == "complete"
    assert completed.attestation is not None
    assert completed.attestation.isolation == kind


@pytest.mark.requirement("DONE-17")
def test_where_there_is_no_box_the_first_stop_says_which_is_missing_and_the_cure(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_box(monkeypatch, "none")
    world.mission(client="codex")

    told = sandboxed_stop(world).person_message

    assert "bubblewrap is missing, and so is Landlock" in told
    assert "install the package bubblewrap" in told


@pytest.mark.requirement("DONE-17")
@pytest.mark.parametrize("kind", BOXES)
def test_a_run_in_a_box_sees_no_state_of_a_mission_or_experiment(
    world: Scratch, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    take_box(monkeypatch, kind)
    secret = Path(world.home.experiments_path, "older", "held-out", "check")
    secret.parent.mkdir(parents=True)
    secret.write_text("secret\n")
    world.write("check.sh", f"cat {world.home.root_path}/*/*/journal.jsonl {secret}; test -f answer.txt\n")
    mission = world.mission(client="codex", validator_command="sh check.sh")

    assert sandboxed_stop(world).refusal

    attestation = world.load(mission).attestation
    assert attestation is not None
    output = Path(world.home.mission(mission.task_id).output_path(attestation.run_id)).read_text()
    assert "secret\n" not in output
    assert "mission_created" not in output


@pytest.mark.requirement("DONE-17", "DONE-09")
@pytest.mark.parametrize("is_sandboxed", [True, False])
def test_a_mission_that_a_sandboxed_run_completed_says_so(world: Scratch, is_sandboxed: bool) -> None:
    if is_sandboxed:
        sandboxed(world)
    mission = world.mission()
    world.write("answer.txt", "42\n")
    world.hook(world.payload())
    assert world.load(mission).phase == "complete"
    assert world.completion(mission)["sandboxed"] is is_sandboxed


@pytest.mark.requirement("DONE-52", "DONE-17")
def test_a_reviewer_that_fails_in_the_box_waits_for_the_owners_word(world: Scratch) -> None:
    world.write("review.sh", "#!/bin/sh\necho 'no network'\nexit 1\n", executable=True)
    mission = world.mission(
        validator_prompt="Is it true?", output_artifact_path="report.md", reviewer_command="./review.sh"
    )
    world.write("report.md", "It is.\n")
    told = sandboxed_stop(world).person_message
    assert "no network" in told
    assert f"omx-autoresearch approve {mission.task_id} --unsandboxed && omx-autoresearch unblock" in told
