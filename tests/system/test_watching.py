"""What the kernel tells of folders and files while a command runs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.system.commands import run_command, shell_argv
from omx_autoresearch.system.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of what happens in folders")


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    watch.close()


def test_what_was_made_and_taken_away_again_is_told_and_so_is_a_folder_that_was_moved_and_put_back(
    watch: Watch, tmp_path: Path
) -> None:
    told: list[tuple[str, bool]] = []
    (tmp_path / "work").mkdir()
    watch.entries(str(tmp_path / "work"), lambda name, is_folder: told.append((name, is_folder)))
    (tmp_path / "work" / "a").touch()
    (tmp_path / "work" / "a").unlink()
    (tmp_path / "work" / "b").mkdir()
    (tmp_path / "work").rename(tmp_path / "aside")
    (tmp_path / "aside").rename(tmp_path / "work")
    watch.read()
    assert list(dict.fromkeys(told)) == [("a", False), ("b", True), ("", False)]
    assert not watch.fault


def test_a_file_that_is_written_is_told_and_one_that_is_touched_linked_or_read_is_not(
    watch: Watch, tmp_path: Path
) -> None:
    told: list[str] = []
    for name in ("written", "touched"):
        (tmp_path / name).write_text("x")
    watch.writes(str(tmp_path / "written"), lambda _name, _is_folder: told.append("written"))
    watch.writes(str(tmp_path / "touched"), lambda _name, _is_folder: told.append("touched"))
    (tmp_path / "written").write_text("y")
    os.utime(tmp_path / "touched")
    os.link(tmp_path / "touched", tmp_path / "linked")
    (tmp_path / "touched").chmod(0o600)
    (tmp_path / "touched").read_text()
    watch.read()
    assert set(told) == {"written"}


def test_a_queue_that_overflowed_is_a_fault(watch: Watch, tmp_path: Path) -> None:
    with open("/proc/sys/fs/inotify/max_queued_events", encoding="ascii") as stream:
        limit = int(stream.read())
    watch.entries(str(tmp_path), lambda _name, _is_folder: None)
    for number in range(limit + 1):
        os.mkfifo(tmp_path / str(number % 2))
        (tmp_path / str(number % 2)).unlink()
    watch.read()
    assert "queue" in watch.fault


def test_a_queue_is_emptied_while_a_command_runs(watch: Watch, tmp_path: Path) -> None:
    """The command goes on only once we were told of what it has made."""
    told: set[str] = set()
    (tmp_path / "work").mkdir()
    os.mkfifo(tmp_path / "go")
    watch.entries(str(tmp_path / "work"), lambda name, _is_folder: told.add(name))
    opened: list[int] = []

    def let_go(_name: str, _is_folder: bool) -> None:
        opened.append(os.open(tmp_path / "go", os.O_RDWR))
        os.write(opened[-1], b"go\n")

    watch.entries(str(tmp_path), let_go)
    result = run_command(
        shell_argv("touch work/a; touch ready; read -r word < go && touch work/b"),
        cwd=str(tmp_path),
        env={"PATH": os.environ["PATH"]},
        timeout_seconds=20.0,
        output_path=str(tmp_path.parent / "output"),
        watch=watch,
    )
    for descriptor in opened:
        os.close(descriptor)
    assert result.exit_status == 0
    watch.read()
    assert told == {"a", "b"}


def test_what_cannot_be_watched_is_a_fault_and_what_is_not_there_is_none(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.entries(str(tmp_path / "absent"), lambda _name, _is_folder: None)
    assert not watch.fault
    monkeypatch.setattr(watch, "_add_watch", lambda *_: -1)  # as where the user's watches are used up
    watch.entries(str(tmp_path), lambda _name, _is_folder: None)
    assert "fs.inotify.max_user_watches" in watch.fault


def test_a_system_without_such_a_queue_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    watch = Watch()
    watch.entries(str(tmp_path), lambda _name, _is_folder: None)
    watch.read()
    assert (watch.fd, watch.fault) == (-1, "this system tells of nothing that happens while a command runs")
