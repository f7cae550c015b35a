"""Missions with many pinned files: a refused stop compares most of them by the ids of the tree, a pass reads each."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.freezing import discovery, light_pins, pins
from omx_autoresearch.missions import workspace
from tests.support.needs import needs_user_namespaces
from tests.support.scratch import CHECK, Scratch

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.missions.rules.mission import Mission


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    monkeypatch.setattr(light_pins, "HELD_FROM", 3)
    found = Scratch.make(tmp_path)
    count = tmp_path / "runs"
    found.write(
        "check.sh", CHECK.replace("#!/bin/sh\n", f"#!/bin/sh\necho run >> {count}\n"), executable=True
    )
    for number in range(6):
        found.write(f"data/case-{number}", f"case {number}\n")
    found.write("data/test_one.py", "def test_one():\n    assert 1\n")
    found.commit("Add cases")
    return found


def held_mission(world: Scratch, **fields: Any) -> Mission:
    mission = world.mission(protect=("data/**",), **fields)
    contract = world.load(mission).contract
    assert contract is not None
    path = os.path.join(world.home.mission(mission.task_id).frozen_path, f"light-{contract.pin_digest}.json")
    light = light_pins.load(path, contract.pin_digest)
    assert light is not None
    assert "data/case-0" in light.held
    return mission


def is_tampered(world: Scratch, path: str) -> bool:
    refusal = world.stop().refusal
    return "(tampered)" in refusal and path in refusal


def count_of_runs(world: Scratch) -> int:
    path = world.root / "runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.requirement("WORK-05")
def test_a_held_file_that_changed_is_tampering_at_the_next_stop_also_with_its_old_time(
    world: Scratch,
) -> None:
    held_mission(world)
    assert "(tampered)" not in world.stop().refusal
    path = world.project / "data" / "case-3"
    before = path.stat()
    path.write_text("CASE 3\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert is_tampered(world, "data/case-3")


@pytest.mark.requirement("WORK-05")
@pytest.mark.parametrize("hidden", ["assume-unchanged", "skip-worktree"])
def test_an_index_that_is_told_not_to_look_hides_no_edit(world: Scratch, hidden: str) -> None:
    held_mission(world)
    world.git("update-index", f"--{hidden}", "data/case-3")
    world.write("data/case-3", "another\n")
    assert is_tampered(world, "data/case-3")


@pytest.mark.requirement("WORK-05")
def test_a_held_file_that_is_gone_is_tampering(world: Scratch) -> None:
    held_mission(world)
    (world.project / "data" / "case-5").unlink()
    assert is_tampered(world, "data/case-5")


@pytest.mark.requirement("WORK-05")
def test_a_folder_of_held_files_that_became_a_link_is_tampering_though_they_read_the_same(
    world: Scratch,
) -> None:
    held_mission(world)
    data = world.project / "data"
    data.rename(world.root / "elsewhere")
    data.symlink_to(world.root / "elsewhere")
    assert is_tampered(world, "data/case-0")


@pytest.mark.requirement("WORK-05")
def test_a_touch_a_commit_and_new_files_are_no_tampering(world: Scratch) -> None:
    held_mission(world)
    (world.project / "data" / "case-1").touch()
    world.write("data/case-new", "new\n")
    world.commit("Go on")
    assert "(tampered)" not in world.stop().refusal


@needs_user_namespaces
@pytest.mark.requirement("WORK-05")
def test_a_held_test_may_be_formatted(world: Scratch) -> None:
    held_mission(world, has_baseline=True)
    world.write("data/test_one.py", "def test_one():\n\n    assert 1\n")
    assert "(tampered)" not in world.stop().refusal


@pytest.mark.requirement("WORK-05")
def test_a_pass_is_decided_by_a_run_with_every_pinned_file_and_a_refusal_by_one_run(world: Scratch) -> None:
    mission = held_mission(world)
    world.stop()
    assert count_of_runs(world) == 1
    world.write("answer.txt", "42\n")
    world.stop()
    assert world.load(mission).phase == "complete"
    assert count_of_runs(world) == 3


@pytest.mark.requirement("WORK-05")
def test_a_long_check_is_not_run_twice(world: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "LONG_SECONDS", 0.0)
    mission = held_mission(world)
    world.stop()
    world.write("answer.txt", "42\n")
    world.stop()
    assert world.load(mission).phase == "complete"
    assert count_of_runs(world) == 2


@pytest.mark.requirement("WORK-05")
def test_a_pass_of_a_check_that_changed_a_held_file_is_tampering(world: Scratch) -> None:
    world.write("check.sh", "#!/bin/sh\necho easy > data/case-2\nexit 0\n", executable=True)
    mission = held_mission(world)
    assert is_tampered(world, "data/case-2")
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("WORK-05")
def test_without_the_light_list_every_pinned_file_is_compared(world: Scratch) -> None:
    mission = held_mission(world)
    for path in (world.root / world.home.mission(mission.task_id).frozen_path).glob("light-*.json"):
        path.write_text("{")
    assert "(tampered)" not in world.stop().refusal
    world.write("data/case-4", "another\n")
    assert is_tampered(world, "data/case-4")


@pytest.mark.requirement("WORK-05")
def test_what_a_runner_loads_by_its_name_stays_compared_one_by_one(world: Scratch) -> None:
    for name in ("tests/conftest.py", "tests/test_a.py", "tests/helper.py", "tests/types.py"):
        world.write(name, "")
    world.commit("Add tests")
    project, frozen_path = str(world.project), str(world.root / "frozen")
    manifest = discovery.find(project, commands=["pytest tests"])
    pins.pin(frozen_path, manifest, project)
    light_pins.keep(frozen_path, manifest, project)
    light = light_pins.load(os.path.join(frozen_path, f"light-{manifest.digest}.json"), manifest.digest)
    assert light is not None
    assert "tests/test_a.py" in light.held
    assert "tests/conftest.py" not in light.held
    assert pins.compare(light.manifest, project).is_intact
    world.write("conftest.py", "")
    assert pins.compare(light.manifest, project).added == ("conftest.py",)


def test_a_few_pinned_files_have_no_light_list(world: Scratch) -> None:
    mission = world.mission()
    assert not list((world.root / world.home.mission(mission.task_id).frozen_path).glob("light-*"))
