"""What a mission is forbidden: the runtime's own commands run without it, whoever approved them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.missions import launch
from omx_autoresearch.missions.amending import amend_mission
from omx_autoresearch.missions.intake import read_intake
from omx_autoresearch.missions.rules.briefing import summary
from omx_autoresearch.missions.rules.criteria import criterion_of
from omx_autoresearch.missions.validation import checks, runs
from tests.support.boxes import take_box
from tests.support.needs import needs_bubblewrap

if TYPE_CHECKING:
    from tests.support.scratch import Scratch

WRITES = "#!/bin/sh\n: >written.txt\n"


def verdict(world: Scratch, task_id: str) -> tuple[str, str]:
    permit = runs.permission(world.runtime(), world.load(task_id))
    assert permit.may_run
    ask = runs.Ask(isolation=permit.isolation)
    assert runs.validate(world.runtime(), task_id, ask, wait_seconds=60)
    run = world.load(task_id).attestation
    assert run is not None
    return run.verdict, run.isolation


@pytest.mark.requirement("API-05")
@needs_bubblewrap
def test_a_forbidden_write_leaves_validator_and_criteria_a_read_only_workspace(world: Scratch) -> None:
    world.write("check.sh", WRITES, executable=True)
    world.commit("Write")
    criteria = (criterion_of("writes: it writes :: command: ./check.sh"),)
    mission = world.mission(forbid=("write",), criteria=criteria)
    assert verdict(world, mission.task_id) == ("failed", "bubblewrap")
    assert checks.check(world.runtime(), mission.task_id, ("writes",), wait_seconds=60)
    (check,) = world.load(mission).checks
    assert not check.is_met
    assert not (world.project / "written.txt").exists()
    free = world.mission(session="")
    assert verdict(world, free.task_id) == ("passed", "none")


@pytest.mark.requirement("API-05")
@needs_bubblewrap
def test_a_forbidden_network_is_not_there_though_the_owner_approved_the_command(world: Scratch) -> None:
    world.write("check.sh", "#!/bin/sh\ncat /proc/net/dev; exit 1\n", executable=True)
    world.commit("Look")
    mission = world.mission(forbid=("network",))
    verdict(world, mission.task_id)
    interfaces = [
        line.split(":")[0].strip()
        for line in runs.output_tail(world.runtime(), world.load(mission)).splitlines()
        if ":" in line
    ]
    assert interfaces == ["lo"]


@pytest.mark.requirement("API-05")
def test_without_bubblewrap_only_the_owner_can_let_a_confined_mission_run(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = world.mission(forbid=("network", "write"))
    take_box(monkeypatch, "none")  # it went after the start
    permit = runs.permission(world.runtime(), mission)
    assert not permit.may_run
    assert "forbids network and write" in permit.why
    world.write("answer.txt", "42\n")
    world.stop()
    after = world.load(mission)
    assert after.phase == "blocked"
    assert after.blocker is not None
    assert after.blocker.reason_code == "approval-missing"
    assert f"amend {mission.task_id} --allow network --allow write" in after.blocker.command


@pytest.mark.requirement("API-05")
def test_what_is_forbidden_stands_in_sandbox_md_in_the_contract_and_in_the_summary(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "can_isolate", lambda: True)
    mission = world.mission(forbid=("publish", "network"), milestones=("read it",))
    specs = world.project / mission.specs_path
    read = read_intake(str(specs))
    assert (set(read.forbid), read.milestones) == ({"publish", "network"}, ("read it",))
    assert "1. read it" in (specs / "mission.md").read_text("utf-8")
    assert mission.contract is not None
    assert mission.contract.forbidden == ("network", "publish")
    assert "Forbidden by the owner: network, publish." in summary(mission)
    amend_mission(world.runtime(), mission.task_id, lambda draft: replace(draft, forbid=()))
    assert "Forbidden" not in summary(world.load(mission))
