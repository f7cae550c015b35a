"""Taking a mission up again: by its id, by a folder's path, by the session; and what happens where it is damaged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import JournalBroken, UsageError
from omx_autoresearch.missions import lifecycle_commands, store, views
from tests.support.scratch import OTHER, SESSION

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission
    from tests.support.scratch import Scratch


def meant(world: Scratch, named: str = "", session: str = "") -> str:
    return views.resolve_task(world.runtime(), named, session_id=session, cwd=str(world.project))


def break_line(world: Scratch, mission: Mission) -> Path:
    path = Path(world.home.mission(mission.task_id).journal_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b"kind", b"kinb", 1) + b"".join(lines[2:]))
    store.forget(world.home.mission(mission.task_id))
    for snapshot in Path(world.home.mission(mission.task_id).root_path).glob("status.*"):
        snapshot.unlink()
    return path


@pytest.mark.requirement("RESUME-02")
def test_a_task_is_meant_by_id_by_slug_by_path_and_by_its_session(world: Scratch) -> None:
    mission = world.mission()
    other = world.mission(session=OTHER, goal="another answer")
    task_id = mission.task_id
    for named in (
        task_id,
        mission.slug,
        f".omx/autoresearch/{task_id}/",
        f"'{world.project}/.omx/autoresearch/{task_id}/state/progress.json'.",
        f"/elsewhere/.reasonix/autoresearch/{task_id}",
        f"C:\\x\\.omx\\autoresearch\\{task_id}\\",
        f".omx/autoresearch/20200101-000000-gone,.omx/autoresearch/{task_id}",
    ):
        assert meant(world, named) == task_id
    assert meant(world, session=SESSION) == task_id
    assert meant(world, session=OTHER) == other.task_id


@pytest.mark.requirement("RESUME-01", "RESUME-02")
def test_a_paused_task_is_resumed_by_the_path_of_its_folder_in_a_prompt(world: Scratch) -> None:
    mission = world.mission()
    lifecycle_commands.pause(world.runtime(), mission.task_id)
    world.tell(
        world.payload(
            "UserPromptSubmit", prompt=f"$autoresearch resume .omx/autoresearch/{mission.task_id}/."
        )
    )
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("RESUME-03")
def test_corrupt_state_refuses_resume_and_prompt_and_names_file_and_repair(world: Scratch) -> None:
    mission = world.mission(session="")
    lifecycle_commands.pause(world.runtime(), mission.task_id)
    path = break_line(world, mission)
    before = path.read_bytes()
    with pytest.raises(JournalBroken, match="line 2") as error:
        lifecycle_commands.resume(world.runtime(), mission.task_id)
    assert str(path) in error.value.message
    assert f"omx-autoresearch repair {mission.task_id}" in error.value.next_step
    for verb in ("", "resume "):
        reply = world.tell(world.payload("UserPromptSubmit", prompt=f"$autoresearch {verb}{mission.task_id}"))
        assert f"{path} line 2" in reply.context
        assert f"repair {mission.task_id}" in reply.context
    assert path.read_bytes() == before
    assert views.view(world.runtime(), mission.task_id).status == "invalid"


@pytest.mark.requirement("RESUME-03")
def test_a_missing_folder_is_a_clear_error_and_is_shown_as_missing(world: Scratch) -> None:
    mission = world.mission()
    task_id = mission.task_id
    shutil.rmtree(world.home.mission(task_id).root_path)
    store.forget(world.home.mission(task_id))
    with pytest.raises(JournalBroken, match=f"mission {task_id} is missing") as error:
        meant(world, f".omx/autoresearch/{task_id}/")
    assert f"repair {task_id}" in error.value.next_step
    reply = world.tell(world.payload("UserPromptSubmit", OTHER, prompt=f"$autoresearch resume {task_id}"))
    assert "is missing" in reply.context
    assert [item.status for item in views.list_views(world.runtime())] == ["missing"]


@pytest.mark.requirement("RESUME-03")
def test_a_folder_that_nobody_adopted_says_how_and_one_that_is_not_there_says_that(world: Scratch) -> None:
    path = world.project / ".reasonix" / "autoresearch" / "20260629-153000-debug-lag"
    path.mkdir(parents=True)
    for named in (".reasonix/autoresearch/20260629-153000-debug-lag/", "20260629-153000-debug-lag"):
        with pytest.raises(UsageError, match="is not a mission yet") as error:
            meant(world, named)
        assert error.value.next_step == f"omx-autoresearch adopt {path}"
    with pytest.raises(UsageError, match=r"there is no folder \.omx/autoresearch/none"):
        meant(world, ".omx/autoresearch/none/")
