"""``repair``: everything derived is made anew from the journal, and nothing that somebody wrote there is lost."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.journal.layout import ProjectFolder
from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.views import view

if TYPE_CHECKING:
    from tests.support.scratch import Scratch


@pytest.mark.requirement("STATE-09")
def test_what_somebody_wrote_into_a_projection_is_a_claim_after_repair(world: Scratch) -> None:
    mission = world.mission()
    path = Path(ProjectFolder(str(world.project)).task_path(mission.task_id), "state", "findings.jsonl")
    path.write_text(path.read_text() + '{"finding":"by hand"}\n')
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert world.load(mission).claim_count == 1
    assert [line["data"]["origin"] for line in world.records(mission, "claim_recorded")] == ["unknown"]


@pytest.mark.requirement("STATE-06")
def test_what_a_killed_writer_left_is_gone_after_repair(world: Scratch) -> None:
    mission = world.mission()
    ended = subprocess.Popen(["true"])
    ended.wait()
    folder = world.home.mission(mission.task_id)
    left = [Path(path, f".{ended.pid}-1-0a.tmp") for path in (folder.root_path, folder.frozen_path)]
    for path in left:
        path.touch()
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert [path for path in left if path.exists()] == []


@pytest.mark.requirement("STATE-05", "CLI-03")
def test_a_mission_with_a_broken_line_says_what_mends_it(world: Scratch) -> None:
    mission = world.mission()
    journal = Path(world.home.mission(mission.task_id).journal_path)
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], b"x\n", *lines[1:]]))
    shown = view(world.runtime(), mission.task_id)
    assert (shown.status, shown.phase) == ("invalid", "")
    assert f"{journal} line 2" in shown.blocker
    assert shown.next_command == (
        f"restore the file from a copy, then: omx-autoresearch repair {mission.task_id}"
    )
    journal.write_bytes(whole)
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert view(world.runtime(), mission.task_id).status == "running"
