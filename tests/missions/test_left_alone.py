"""A mission left alone: its time is not charged, its end keeps its date, a cancel means the one at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.rules.mission import seconds_running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.scratch import Scratch


@pytest.mark.requirement("SESS-09")
def test_the_hours_after_a_binding_expired_are_not_charged(world: Scratch) -> None:
    mission = world.mission()
    world.clock.move(hours=1)
    world.stop()
    world.clock.move(hours=40)
    world.prompt(f"$autoresearch {mission.task_id}")
    state = world.load(mission)
    assert seconds_running(state, world.runtime().now()) < 2 * 3600
    assert world.stop().refusal, "held again, not blocked for time that nobody used"


@pytest.mark.requirement("STATE-06")
def test_repair_keeps_the_time_of_the_completion(world: Scratch) -> None:
    mission = world.mission(validator_command="true", unfrozen_reason="a test")
    world.stop()
    path = world.project / mission.specs_path / "completion.json"
    written = path.read_bytes()
    world.clock.move(hours=3)
    path.unlink()
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert path.read_bytes() == written


@pytest.mark.requirement("SESS-15")
def test_a_cancel_without_a_task_in_an_unrelated_project_cancels_nothing(
    world: Scratch, tmp_path: Path
) -> None:
    mission = world.mission()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    world.tell(
        {
            **world.payload(
                "UserPromptSubmit", "0a1b2c3d-0000-4000-8000-0000000000ff", prompt="$autoresearch cancel"
            ),
            "cwd": str(elsewhere),
        }
    )
    assert world.load(mission).phase == "running"
