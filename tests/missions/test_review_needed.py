"""A mission that only a person can review: the agent is not refused for what it cannot do."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.missions.validation.reviews import record_review

if TYPE_CHECKING:
    from tests.support.scratch import Scratch

REVIEWED: dict[str, Any] = {
    "validator_command": "",
    "validator_prompt": "Is the report sound?",
    "output_artifact_path": "report.md",
    "reviewed_by": ("person",),
}


@pytest.mark.requirement("GATE-07")
def test_an_artifact_that_waits_for_a_person_blocks_at_once_and_names_the_review(world: Scratch) -> None:
    mission = world.mission(**REVIEWED)
    assert "report.md" in world.stop().refusal
    world.write("report.md", "# Report\n")
    world.tool()
    reply = world.stop()
    assert not reply.refusal
    blocker = world.load(mission).blocker
    assert blocker is not None
    assert blocker.reason_code == "review-needed"
    assert f"omx-autoresearch review {mission.task_id}" in reply.person_message
    assert sha256(b"# Report\n").hexdigest() in reply.person_message, "what is approved has a name"


@pytest.mark.requirement("GATE-07")
def test_after_the_approval_and_unblock_the_next_stop_completes(world: Scratch) -> None:
    mission = world.mission(**REVIEWED)
    world.write("report.md", "# Report\n")
    world.stop()
    record_review(world.runtime(), mission.task_id, "person", is_approved=True)
    world.stop()
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("GATE-07")
def test_a_rejected_artifact_is_the_agents_work_again(world: Scratch) -> None:
    mission = world.mission(**REVIEWED)
    world.write("report.md", "# Report\n")
    world.stop()
    record_review(world.runtime(), mission.task_id, "person", is_approved=False, summary="no sources")
    assert "no sources" in world.stop().refusal
