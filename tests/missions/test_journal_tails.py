"""A journal that a crash has torn or that somebody else has written to, and a run that its owner no longer wants."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.validation import runs
from omx_autoresearch.missions.views import view
from omx_autoresearch.system.processes import identify, wait_for
from tests.support.scratch import Scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission


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


def _edit_the_first_line(world: Scratch, mission: Mission) -> Path:
    path = Path(world.home.mission(mission.task_id).journal_path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"write the answer", b"write the ANSWER", 1))
    return path


@pytest.mark.requirement("STATE-23")
@pytest.mark.parametrize("look", ["status", "resumed session", "prompt", "stop"])
def test_an_edited_line_in_the_middle_is_noticed_by_the_next_look(world: Scratch, look: str) -> None:
    mission = world.mission()
    world.stop()
    path = _edit_the_first_line(world, mission)
    if look == "status":
        shown = view(world.runtime(), mission.task_id)
        assert shown.status == "invalid"
        assert str(path) in repr(shown)
        return
    if look == "stop":
        told = world.stop()
    elif look == "prompt":
        told = world.prompt("how is it going?")
    else:
        told = world.tell(world.payload("SessionStart", source="resume"))
    assert told.refusal == ""
    assert str(path) in told.person_message + told.context + told.fault


@pytest.mark.requirement("STATE-23")
def test_a_journal_is_read_once_after_another_hand_touched_it_and_then_not_again(world: Scratch) -> None:
    mission = world.mission()
    folder = world.home.mission(mission.task_id)
    seen = Path(folder.seen_path)
    after_us = seen.read_bytes()
    os.utime(folder.journal_path)
    view(world.runtime(), mission.task_id)
    kept = seen.read_bytes()
    assert kept != after_us
    view(world.runtime(), mission.task_id)
    assert seen.read_bytes() == kept
    _edit_the_first_line(world, mission)
    status = os.stat(folder.journal_path)
    seen.write_text(f"{status.st_ino} {status.st_size} {status.st_ctime_ns}")
    assert world.load(mission).goal == "write the answer"  # as it was folded: no line was read


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
