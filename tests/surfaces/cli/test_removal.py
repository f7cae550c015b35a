"""What grows is bounded, and whole missions can be removed: ``remove``, ``list --prune``, the outputs of runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.missions import upkeep
from omx_autoresearch.missions.rules.criteria import criterion_of
from omx_autoresearch.missions.validation import checks, runs
from tests.support.contents_on_disk import everything
from tests.support.scratch import Scratch

if TYPE_CHECKING:
    from tests.surfaces.support.command_line import Person


@pytest.mark.requirement("STATE-21")
def test_of_the_outputs_of_runs_the_first_the_newest_and_what_verdicts_rest_on_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Scratch.make(tmp_path)
    mission = world.mission(criteria=(criterion_of("right: it is right :: command: true"),))
    monkeypatch.setattr(upkeep, "NEWEST_OUTPUTS", 3)
    folder = Path(world.home.mission(mission.task_id).outputs_path)
    made: list[str] = []
    for number in range(8):
        if number == 2:
            assert checks.check(world.runtime(), mission.task_id, ("right",), wait_seconds=60)
        else:
            assert runs.validate(world.runtime(), mission.task_id, runs.Ask("none"), wait_seconds=60)
        made += [path.name for path in folder.iterdir() if path.name not in made]
        for age, name in enumerate(reversed(made)):
            if (folder / name).exists():
                os.utime(folder / name, (1_700_000_000 - age, 1_700_000_000 - age))
    (check,) = world.load(mission).checks
    assert made[2] == f"{check.run_id}.txt"
    assert {path.name for path in folder.iterdir()} == {made[0], made[2], *made[-3:]}


@pytest.mark.requirement("STATE-21")
def test_large_outputs_are_bounded_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Scratch.make(tmp_path)
    world.write("check.sh", "#!/bin/sh\nhead -c 1000 /dev/zero\nexit 1\n", executable=True)
    mission = world.mission()
    monkeypatch.setattr(upkeep, "OUTPUTS_BYTES", 2500)
    for _ in range(6):
        assert runs.validate(world.runtime(), mission.task_id, runs.Ask("none"), wait_seconds=60)
    assert len(os.listdir(world.home.mission(mission.task_id).outputs_path)) == 3, "two, and the first"


@pytest.mark.requirement("STATE-22")
def test_a_mission_that_has_ended_is_removed_and_nothing_of_it_is_left(person: Person) -> None:
    other = person.start("other")
    before = everything(person.home)
    task_id = person.start()
    person.bind(task_id)
    refused = person.run("remove", task_id, "--yes")
    assert (refused.returncode, f"next: omx-autoresearch cancel {task_id}" in refused.stderr) == (5, True)
    person.ok("cancel", task_id)
    asked = person.run("remove", task_id)
    assert (asked.returncode, "--yes" in asked.stderr) == (2, True)
    assert person.json("remove", task_id, "--yes") == {"removed": [task_id]}
    assert {path: what for path, what in everything(person.home).items() if "hook" not in path} == before
    assert (person.project / ".omx" / "autoresearch" / task_id).is_dir(), "what is the project's stays there"
    assert [view["task_id"] for view in person.json("list")] == [other]
    assert person.run("remove", task_id, "--yes").returncode == 2


@pytest.mark.requirement("STATE-22")
@pytest.mark.parametrize("left", ["empty", "broken"])
def test_what_cannot_be_read_is_removed_by_its_name(person: Person, left: str) -> None:
    task_id = person.start()
    if left == "empty":  # as `init` leaves it where it is killed at once
        shutil.rmtree(person.journal(task_id).parent)
        person.journal(task_id).parent.mkdir()
    else:
        person.journal(task_id).write_text("garbage\n")
    person.ok("remove", task_id, "--yes")
    assert person.json("list") == []


@pytest.mark.requirement("STATE-22")
def test_missions_that_ended_long_ago_are_pruned_and_no_other(person: Person) -> None:
    live, draft = person.start("live"), person.init("draft")
    ended = person.start("ended")
    person.ok("cancel", ended)
    killed = person.home / "missions" / "20200101-000000-killed"
    killed.mkdir()
    os.utime(killed, (1_500_000_000, 1_500_000_000))
    assert person.json("list", "--prune", "--days", "1", "--yes") == {"removed": [killed.name]}
    assert person.json("list", "--prune", "--days", "0", "--yes") == {"removed": [ended]}
    assert {view["task_id"] for view in person.json("list")} == {live, draft}
    assert "Nothing to remove." in person.ok("list", "--prune")


@pytest.mark.requirement("STATE-22", "LIFE-06")
@pytest.mark.parametrize("verb", [("remove", "TASK"), ("list", "--prune")], ids=lambda verb: verb[0])
def test_an_agent_removes_nothing(person: Person, verb: tuple[str, str]) -> None:
    task_id = person.start()
    person.ok("cancel", task_id)
    words = (word.replace("TASK", task_id) for word in verb)
    done = person.run(*words, "--yes", env={"CLAUDECODE": "1"})
    assert done.returncode == 5
    assert person.journal(task_id).exists()


@pytest.mark.requirement("STATE-22")
def test_a_removal_that_was_killed_is_finished_by_the_owners_next_verb(person: Person) -> None:
    task_id, other = person.start(), person.start("other")
    doomed = person.home / "missions" / ".4194305-0-00000000.tmp"
    person.journal(task_id).parent.rename(doomed)
    person.ok("pause", other)
    assert not doomed.exists()
