"""Missions whose owner names the work: what the check reads besides is frozen, and everything else may change."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import MissionInvalid
from omx_autoresearch.missions import launch
from omx_autoresearch.missions.contracts import dry_run
from omx_autoresearch.missions.intake import read_intake
from omx_autoresearch.missions.rules.intake import MissionDraft
from tests.missions.test_launch import amended
from tests.support.scratch import SESSION, Scratch

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.freezing.manifest import FileClasses
    from omx_autoresearch.missions.rules.mission import Mission

CHECK = """\
#!/bin/sh
date >> runs.log
cat .env > /dev/null
folder=$(printf want)
for name in 1 2; do
  wanted=$(cat "${folder}ed/part-$name") || exit 1
  test "$(cat src/part-$name 2>/dev/null)" = "$wanted" || exit 1
done
"""
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="no other system tells what is opened")


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    found = Scratch.make(tmp_path)
    found.write("check.sh", CHECK, executable=True)
    for name, text in {
        "wanted/part-1": "one",
        "wanted/part-2": "two",
        "src/part-1": "none",
        "README.md": "read me",
        "runs.log": "",
        ".env": "A=1",
        ".gitignore": ".env\nruns.log\n",
    }.items():
        found.write(name, text)
    found.commit("Lay the project out")
    return found


def started(world: Scratch, **fields: Any) -> tuple[Mission, FileClasses]:
    draft = world.draft(validator_command="./check.sh", **fields)
    found = launch.start(
        world.runtime(), draft.task_id, launch.StartOptions(session_id=SESSION, client="claude")
    )
    assert found.classes is not None
    return found.mission, found.classes


@needs_linux
@pytest.mark.requirement("WORK-02", "WORK-03")
def test_what_the_baseline_opened_outside_the_work_is_frozen_up_to_its_first_failure(world: Scratch) -> None:
    _, classes = started(world, work=("src/**",))
    assert classes.work == ("src/part-1",)
    assert classes.frozen == ("check.sh", "wanted/part-1")
    assert "README.md" in classes.shown
    assert "wanted/part-2" in classes.shown  # the check had failed by then
    assert classes.unknown == (".env",)  # git does not track it; runs.log is the check's own


@needs_linux
@pytest.mark.requirement("WORK-03")
def test_without_a_named_work_what_the_baseline_opened_is_told_and_not_frozen(world: Scratch) -> None:
    _, classes = started(world)
    assert classes.frozen == ("check.sh",)
    assert classes.unknown == (".env", "src/part-1", "wanted/part-1")


@needs_linux
@pytest.mark.requirement("WORK-02")
def test_an_edit_of_what_the_check_was_seen_to_read_is_tampering(world: Scratch) -> None:
    mission, _ = started(world, work=("src/**",))
    world.write("wanted/part-1", "none")
    refusal = world.stop().refusal
    assert "(tampered)" in refusal
    assert "wanted/part-1" in refusal
    assert world.load(mission).phase == "running"


@needs_linux
@pytest.mark.requirement("WORK-01")
def test_work_documents_and_new_files_may_change_and_the_mission_completes(world: Scratch) -> None:
    mission, _ = started(world, work=("src/**",))
    world.write("src/part-1", "one")
    world.write("src/part-2", "two")
    world.write("README.md", "written anew")
    world.write("tests/test_new.py", "def test_new(): pass\n")
    world.stop()
    assert world.load(mission).phase == "complete"


@needs_linux
@pytest.mark.requirement("WORK-03", "DONE-15")
def test_a_lock_file_that_the_check_opens_may_change(world: Scratch) -> None:
    world.write("check.sh", "#!/bin/sh\ncat uv.lock wanted/part-1 > /dev/null\nexit 1\n", executable=True)
    world.write("uv.lock", "version = 1\n")
    world.commit("Lock the versions")
    _, classes = started(world, work=("src/**",))
    assert "uv.lock" in classes.opened
    assert "uv.lock" in classes.shown
    assert "wanted/part-1" in classes.frozen
    world.write("uv.lock", "version = 2\n")
    assert "(tampered)" not in world.stop().refusal


@needs_linux
@pytest.mark.requirement("WORK-02")
def test_an_amendment_keeps_frozen_what_the_baseline_opened(world: Scratch) -> None:
    mission, _ = started(world, work=("src/**",))
    classes = amended(world, mission, timeout_seconds=60.0).classes
    assert classes is not None
    assert "wanted/part-1" in classes.frozen
    freed = amended(world, mission, work=("src/**", "wanted/**")).classes
    assert freed is not None
    assert freed.frozen == ("check.sh",)
    assert "wanted/part-1" in freed.work


@pytest.mark.requirement("WORK-01")
def test_the_work_is_written_to_sandbox_md_and_read_back(world: Scratch) -> None:
    mission = world.draft(validator_command="./check.sh", work=("src/**", "!src/keep"))
    assert read_intake(os.path.join(mission.project_path, mission.specs_path)).work == ("src/**", "!src/keep")


@pytest.mark.requirement("WORK-01")
@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"work": ("../x",)}, "work: '../x' must be relative"),
        ({"work": ("!src/**",)}, "no glob names any work"),
        ({"work": ("src/**",), "protect": ("src/**",)}, "cannot be frozen and free"),
    ],
)
def test_work_that_cannot_stand_is_refused(world: Scratch, fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(MissionInvalid, match="work: ") as caught:
        world.draft(validator_command="./check.sh", **fields)
    assert fault in caught.value.message


@needs_linux
@pytest.mark.requirement("WORK-04")
def test_a_dry_run_proposes_the_work_and_takes_nothing(world: Scratch) -> None:
    draft = MissionDraft(goal="make it pass", validator_command="./check.sh")
    found = dry_run(world.runtime(), str(world.project), draft)
    assert found.proposed_work == ("src/**",)
    assert found.contract.work == ()
    assert "src/part-1" in found.classes.unknown
