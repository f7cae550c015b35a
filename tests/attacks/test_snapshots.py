"""A snapshot that somebody edited: its checksum is right, and the journal says something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.missions import snapshots as stored
from omx_autoresearch.missions import store
from tests.support import snapshots
from tests.support.scratch import Scratch

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.missions.rules.mission import Mission


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


def edit(world: Scratch, mission: Mission, **changes: Any) -> None:
    """Write the newest snapshot anew with other facts about the newest run, as one who knows the format would."""
    folder = world.home.mission(mission.task_id)
    number, content = next(iter(stored.newest(folder.root_path)))
    content["mission"]["attestation"] |= changes
    stored.save(folder.root_path, content, after=number)
    store.forget(folder)


@pytest.mark.requirement("DONE-02")
def test_a_pass_that_stands_in_the_snapshot_alone_completes_nothing(world: Scratch) -> None:
    world.write(
        "check.sh", "#!/bin/sh\nsleep 1.1; exit 1\n", executable=True
    )  # so long that it is remembered
    mission = world.mission()
    assert world.hook(world.payload()).reason
    edit(world, mission, verdict="passed", is_fresh=True)
    answer = world.hook(world.payload(last_assistant_message="Now."))
    assert answer.reason
    assert "mission_completed" not in world.kinds(mission)
    assert world.load(mission).phase == "running"
    assert (
        snapshots.content(world.home.mission(mission.task_id))["mission"]["attestation"]["verdict"]
        == "failed"
    )


@pytest.mark.requirement("DONE-02")
def test_a_mission_completes_without_any_snapshot_by_the_run_that_its_journal_holds(world: Scratch) -> None:
    mission = world.mission()
    world.write("answer.txt", "42\n")
    snapshots.lose(world.home.mission(mission.task_id))
    assert world.hook(world.payload()).reason == ""
    (completed,) = world.records(mission, "mission_completed")
    (run,) = world.records(mission, "validation_finished")
    assert run["data"]["attestation"]["verdict"] == "passed"
    assert completed["data"]["run_id"] == run["data"]["attestation"]["run_id"]
