"""What an agent leaves in its workspace so that we wait: a hook that is late is given up, and holds nobody."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.freezing.tree import tree_state
from omx_autoresearch.missions import stop as stops
from omx_autoresearch.system import files, git
from omx_autoresearch.system.git import head_commit, run_git
from omx_autoresearch.system.supervisor import shebang
from tests.support.scratch import Scratch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


def pipe_at(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path, 0o700)


@pytest.mark.parametrize("name", ["HEAD", "refs/heads/main", "commondir"])
def test_a_pipe_in_a_file_of_git_blocks_the_mission_and_not_the_hook(
    world: Scratch, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(git, "TIMEOUT_SECONDS", 0.3)
    mission = world.mission()
    pipe_at(world.project / ".git" / name)
    assert "workspace-fault" in world.stop().person_message
    after = world.load(mission)
    assert (after.phase, after.blocker and after.blocker.reason_code) == ("blocked", "workspace-fault")


def test_a_pipe_in_the_place_of_a_program_is_no_endless_validation(world: Scratch) -> None:
    mission = world.mission(validator_command="./build/run check.sh")
    pipe_at(world.project / "build" / "run")
    assert "program-missing" in world.hook(world.payload()).reason
    assert world.load(mission).running_validation is None


def test_a_shebang_is_read_of_regular_files_only(tmp_path: Path) -> None:
    pipe_at(tmp_path / "pipe")
    (tmp_path / "script").write_bytes(b"#!/bin/sh -e\r\n")
    (tmp_path / "windows").write_bytes(b"#!/bin/sh\r\n")
    assert [shebang(str(tmp_path / name)) for name in ("pipe", "script", "windows", "none")] == [
        "",
        "/bin/sh",
        "/bin/sh\r",
        "",
    ]


def test_git_that_reads_from_a_pipe_is_given_up_long_before_a_client_gives_up_the_hook(
    world: Scratch,
) -> None:
    pipe_at(world.root / "pipe")
    with (world.project / ".git" / "config").open("a", encoding="utf-8") as stream:
        stream.write(f"[include]\n\tpath = {world.root / 'pipe'}\n")
    with pytest.raises(WorkspaceFault, match="did not end within"):
        run_git(["ls-files"], cwd=str(world.project), timeout_seconds=0.2)
    looks = 3  # before the run, after it, and for the answer
    assert looks * git.TIMEOUT_SECONDS <= stops.WAIT_SECONDS


def test_past_a_limit_size_and_times_stand_for_content(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "READ_LIMIT_BYTES", 10_000)
    for number in range(50):
        os.truncate(world.write(f"sparse/{number}", b""), 9_000)
    read: list[int] = []
    reading = files._read_whole

    def counted(descriptor: int) -> bytes:
        data = reading(descriptor)
        read.append(len(data))
        return data

    monkeypatch.setattr(files, "_read_whole", counted)
    before = tree_state(str(world.project))
    assert sum(read) <= 10_000
    assert tree_state(str(world.project)) == before
    os.truncate(world.project / "sparse" / "49", 8_999)
    assert tree_state(str(world.project)) != before


def test_a_file_without_an_end_is_not_read_to_its_end(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some files of /proc say that they are empty and go on for terabytes."""
    monkeypatch.setattr(files, "LARGE_FILE_BYTES", 1000)
    path = world.write("endless", b"x" * 999)
    status = os.lstat(path)
    path.write_bytes(b"x" * 5_000_000)
    described = files.describe_file(os.fsencode(path), status, files.Entries())
    assert described is not None
    assert described.startswith(b"100644 large:999:")


def test_the_wait_of_a_stop_ends_before_the_client_gives_the_hook_up(world: Scratch) -> None:
    """What the look cost is no longer there to be waited."""
    world.clock.stop()
    entered_at = world.runtime().now()
    world.clock.move(seconds=70)
    assert stops.wait_seconds(world.runtime(), entered_at, hook_timeout_seconds=120) == 35.0
    world.clock.move(seconds=100)
    assert stops.wait_seconds(world.runtime(), entered_at, hook_timeout_seconds=120) == 0.0
    world.clock.move(hours=-1)
    assert stops.wait_seconds(world.runtime(), entered_at, hook_timeout_seconds=120) == stops.WAIT_SECONDS


def test_the_git_of_the_workspace_is_never_run(world: Scratch) -> None:
    """An activated virtual environment stands first on PATH, and an agent in a sandbox may write there."""
    mission = world.mission()
    world.write(
        ".venv/bin/git",
        f'#!/bin/sh\necho run >> {world.root}/planted\nexec /usr/bin/git "$@"\n',
        executable=True,
    )
    (world.root / "elsewhere").symlink_to(world.project / ".venv" / "bin")
    path = f"{world.project}/.venv/bin:{world.root}/elsewhere:.venv/bin::{world.environ['PATH']}"
    assert world.hook(world.payload(), env={"PATH": path}).reason
    assert world.load(mission).usage.refusals == 1
    assert not (world.root / "planted").exists()
    with pytest.raises(WorkspaceFault, match="no folder on PATH outside the workspace"):
        run_git(["status"], cwd=str(world.project), environ={"PATH": ".venv/bin"})
    assert head_commit(str(world.project))


def test_a_clock_that_was_set_back_makes_no_refusal_free(world: Scratch) -> None:
    mission = world.mission()
    stop = world.payload(last_assistant_message="I am done.")
    assert world.tell(stop).refusal
    world.clock.move(hours=-3)
    answers = [world.tell(stop) for _ in range(10)]
    assert sum(bool(answer.refusal) for answer in answers) == 2
    assert world.load(mission).phase == "blocked"
