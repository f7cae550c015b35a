"""A journal whose last line a crash has torn, and a run that its owner no longer wants."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.validation import runs
from omx_autoresearch.missions.views import view
from omx_autoresearch.system.processes import identify, wait_for
from tests.support.scratch import Scratch


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


@pytest.mark.requirement("STATE-04")
def test_a_torn_last_line_of_the_journal_is_told_to_the_owner(world: Scratch) -> None:
    mission = world.mission()
    path = Path(world.home.mission(mission.task_id).journal_path)
    path.write_bytes(path.read_bytes() + b'{"seq":99,"ts":"2026')
    world.stop()
    (notice,) = [text for text in view(world.runtime(), mission.task_id).notices if "tore" in text]
    assert "torn/line-" in notice
    assert "nothing that was acknowledged is missing" in notice


@pytest.mark.requirement("LIFE-02")
def test_a_cancel_ends_the_run_under_way_with_all_its_processes(world: Scratch) -> None:
    os.mkfifo(world.root / "pid")
    world.write(
        "check.sh", f'#!/bin/sh\nsleep 600 &\necho $$ $! > "{world.root}/pid"\nwait\n', executable=True
    )
    mission = world.mission()
    assert not runs.validate(world.runtime(), mission.task_id, runs.Ask("none"), wait_seconds=0)
    processes = [identify(int(pid)) for pid in (world.root / "pid").read_text().split()]
    assert all(processes)
    lifecycle_commands.cancel(world.runtime(), mission.task_id)
    assert [process for process in processes if process and not wait_for(process, 30)] == []
    assert world.load(mission).phase == "cancelled"
