"""A report on a mission's files: every file that the runtime keeps is compared with the journal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.journal.layout import ProjectFolder
from omx_autoresearch.missions import lifecycle_commands, projection_texts, registry
from omx_autoresearch.missions.verification import validation_report
from tests.support.scratch import OTHER, SESSION

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission
    from tests.support.scratch import Scratch

TASK_FILES = (*projection_texts.LINE_FILES, *projection_texts.STATE_FILES)


def problems(world: Scratch, mission: Mission) -> list[tuple[str, str, str]]:
    """Path relative to the project, place and cause of each problem."""
    report = validation_report(world.runtime(), mission.task_id)
    assert report.is_valid is not bool(report.problems)
    assert {problem.next_command for problem in report.problems} <= {
        f"omx-autoresearch repair {mission.task_id}"
    }
    return [
        (str(Path(problem.path).relative_to(world.project)), problem.json_path, problem.cause)
        for problem in report.problems
    ]


def paths_of(mission: Mission) -> dict[str, str]:
    """Each kind of file of a held mission, relative to the project."""
    task = ProjectFolder("").task_path(mission.task_id)
    found = {name: f"{task}/{name}" for name in (*TASK_FILES, projection_texts.HEARTBEAT)}
    found["mode"] = projection_texts.mode_path(SESSION)
    return found | {
        name: f"{mission.specs_path}/{name}" for name in ("mission.md", "sandbox.md", "result.json")
    }


def held(world: Scratch) -> Mission:
    """A held mission with a line in every line file."""
    mission = world.mission()
    world.stop()
    world.tool()
    lifecycle_commands.pause(world.runtime(), mission.task_id)
    lifecycle_commands.resume(world.runtime(), mission.task_id)
    world.follow()
    return world.load(mission)


@pytest.mark.requirement("API-03")
@pytest.mark.parametrize("name", [*TASK_FILES, "mode"])
def test_an_edited_projection_is_named_with_its_place_and_mended_by_repair(world: Scratch, name: str) -> None:
    mission = held(world)
    assert problems(world, mission) == []
    path = world.project / paths_of(mission)[name]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([b"#", *lines]))
    is_line_file = name in projection_texts.LINE_FILES
    said = (
        ("line 1", "this line differs from the journal")
        if is_line_file
        else ("", "this file differs from the journal")
    )
    assert problems(world, mission) == [(paths_of(mission)[name], *said)]
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert problems(world, mission) == []


@pytest.mark.requirement("API-03")
@pytest.mark.parametrize("name", [*TASK_FILES, "mode", "mission.md", "sandbox.md", "result.json"])
def test_a_deleted_file_is_named_and_made_anew_by_repair(world: Scratch, name: str) -> None:
    mission = held(world)
    (world.project / paths_of(mission)[name]).unlink()
    assert problems(world, mission) == [(paths_of(mission)[name], "", "this file is missing")]
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert problems(world, mission) == []


@pytest.mark.parametrize("name", projection_texts.LINE_FILES)
def test_a_line_too_many_and_a_line_too_few_are_named_by_their_number(world: Scratch, name: str) -> None:
    mission = held(world)
    path = world.project / paths_of(mission)[name]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, b"more\n"]))
    assert [place for _, place, _ in problems(world, mission)] == [f"line {len(lines) + 1}"]
    path.write_bytes(b"".join(lines[:-1]))
    assert [place for _, place, _ in problems(world, mission)] == ([f"line {len(lines)}"] if lines else [])


def test_a_copy_of_the_heartbeat_may_lag_but_not_differ(world: Scratch) -> None:
    mission = held(world)
    source = Path(world.home.mission(mission.task_id).heartbeat_path)
    registry.beat(str(source), at=world.runtime().now(), status="tool", session_id=SESSION)
    copy = world.project / paths_of(mission)[projection_texts.HEARTBEAT]
    assert source.read_bytes().startswith(copy.read_bytes())
    assert source.read_bytes() != copy.read_bytes()
    assert problems(world, mission) == []
    copy.write_bytes(b"x" + copy.read_bytes()[1:])
    assert [(path, place) for path, place, _ in problems(world, mission)] == [
        (paths_of(mission)[projection_texts.HEARTBEAT], "line 1")
    ]
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert problems(world, mission) == []


def test_a_released_session_whose_mode_state_still_reads_active_is_named(world: Scratch) -> None:
    mission = held(world)
    path = world.project / projection_texts.mode_path(SESSION)
    active = path.read_bytes()
    world.prompt(f"$autoresearch {mission.task_id}", session=OTHER)
    assert problems(world, mission) == []
    path.write_bytes(active)
    (problem,) = problems(world, mission)
    assert problem[0] == projection_texts.mode_path(SESSION)
    assert "a session that it let go" in problem[2]
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert problems(world, mission) == []


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_completion_artifact_that_is_gone_or_edited_is_named_and_made_anew_by_repair(
    world: Scratch, is_deleted: bool
) -> None:
    mission = world.mission()
    world.write("answer.txt", "42\n")
    world.stop()
    assert world.load(mission).phase == "complete"
    assert problems(world, mission) == []
    path = world.project / mission.specs_path / "completion.json"
    whole = path.read_bytes()
    path.unlink()
    if not is_deleted:
        path.write_bytes(whole.replace(b"true", b"false"))
    word = "is missing" if is_deleted else "differs from the journal"
    assert problems(world, mission) == [(f"{mission.specs_path}/completion.json", "", f"this file {word}")]
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert path.read_bytes() == whole
    assert problems(world, mission) == []


def test_what_stands_in_the_place_of_a_file_is_named_and_not_read(world: Scratch) -> None:
    mission = held(world)
    path = world.project / paths_of(mission)[projection_texts.PROGRESS]
    path.unlink()
    path.symlink_to(world.write("elsewhere.json", "{}"))
    (problem,) = problems(world, mission)
    assert "is not a regular file of its own" in problem[2]
