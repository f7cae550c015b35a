"""A command sees frozen copies in the place of files, whatever happens to the originals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.system.commands import CommandResult, run_command, shell_argv
from omx_autoresearch.system.sandbox import Limits, run_limited
from tests.support.boxes import BOXES, take_box
from tests.support.needs import needs_user_namespaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Run = Callable[..., CommandResult]

pytestmark = needs_user_namespaces


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder whose check.sh is not what was frozen."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "check.sh").write_text("echo swapped\n")
    (tmp_path / "copy").write_text("echo frozen\n")
    return folder


@pytest.fixture
def run(tmp_path: Path, workspace: Path) -> Run:
    """Run a shell line with the frozen check.sh mounted."""

    def run_it(command: str | Sequence[str], **more: Any) -> CommandResult:
        return run_command(
            shell_argv(command) if isinstance(command, str) else command,
            cwd=str(workspace),
            env={"PATH": os.environ["PATH"]},
            timeout_seconds=20.0,
            output_path=str(tmp_path / "output"),
            mounts=((str(workspace / "check.sh"), str(tmp_path / "copy")),),
            **more,
        )

    return run_it


def said(result: CommandResult) -> str:
    """What the command printed."""
    return Path(result.output_path).read_text(encoding="utf-8")


def test_the_command_runs_the_copy_in_the_place_of_the_file(run: Run, workspace: Path) -> None:
    result = run("sh check.sh; pwd; id -u")

    assert said(result).split() == ["frozen", str(workspace), str(os.getuid())]
    assert result.mount_fault == ""
    assert result.displaced == ()


@pytest.mark.parametrize(
    "attack",
    [
        "echo 'echo swapped' > check.sh",
        "rm -f check.sh; echo 'echo swapped' > check.sh",
        "mv check.sh gone",
        "ln -sf /bin/true check.sh",
        "umount check.sh",
        "mount -o remount,bind,rw check.sh",
        "unshare -Urm sh -c 'umount check.sh; mount -o remount,bind,rw check.sh; echo echo swapped > check.sh'",
        "chmod 777 check.sh && echo swapped >> check.sh",
    ],
)
def test_no_process_of_the_command_changes_what_it_sees(run: Run, attack: str) -> None:
    result = run(f"({attack}) 2>/dev/null; sh check.sh")

    assert said(result).split() == ["frozen"]


@pytest.fixture
def meanwhile(tmp_path: Path) -> Iterator[Callable[[Callable[[], object]], str]]:
    """Do something in another process at a moment of a shell line; returns the words that wait for it there."""
    children = []

    def do(change: Callable[[], object]) -> str:
        for name in ("go", "done"):
            os.mkfifo(tmp_path / name)
        child = os.fork()
        if not child:
            try:
                (tmp_path / "go").read_text(encoding="utf-8")
                change()
                (tmp_path / "done").write_text("done\n", encoding="utf-8")
            finally:
                os._exit(0)
        children.append(child)
        return f"echo go > {tmp_path}/go; read word < {tmp_path}/done"

    yield do
    for child in children:
        os.waitpid(child, 0)


def test_what_another_process_writes_to_the_file_is_not_seen(
    run: Run, workspace: Path, meanwhile: Callable[[Callable[[], object]], str]
) -> None:
    wait = meanwhile(lambda: (workspace / "check.sh").write_text("echo swapped again\n"))

    result = run(f"{wait}; sh check.sh")

    assert said(result).split() == ["frozen"]
    assert (workspace / "check.sh").read_text() == "echo swapped again\n"


def test_a_file_that_another_process_replaces_is_told(
    run: Run, workspace: Path, meanwhile: Callable[[Callable[[], object]], str]
) -> None:
    (workspace / "new").write_text("echo replaced\n")
    wait = meanwhile(lambda: (workspace / "new").rename(workspace / "check.sh"))

    result = run(f"{wait}; sh check.sh")

    assert result.displaced == (str(workspace / "check.sh"),)


def test_a_folder_that_another_process_renames_is_told(
    run: Run, workspace: Path, tmp_path: Path, meanwhile: Callable[[Callable[[], object]], str]
) -> None:
    def swap() -> None:
        workspace.rename(tmp_path / "aside")
        workspace.mkdir()
        (workspace / "check.sh").write_text("echo swapped\n")

    result = run(meanwhile(swap))

    assert result.displaced == (str(workspace / "check.sh"),)


def test_the_command_has_no_capability(run: Run) -> None:
    result = run("grep -E '^Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | cut -f2 | sort -u")

    assert said(result).split() == ["0" * 16]


@pytest.mark.parametrize("kind", BOXES)
def test_the_copy_stands_in_the_box_too(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    take_box(monkeypatch, kind)
    (tmp_path / "scratch").mkdir()

    result = run_limited(
        shell_argv("(echo x > check.sh) 2>/dev/null; sh check.sh; echo made > new"),
        Limits(str(workspace), str(tmp_path / "scratch")),
        cwd=str(workspace),
        env={"PATH": os.environ["PATH"]},
        timeout_seconds=20.0,
        output_path=str(tmp_path / "output"),
        mounts=((str(workspace / "check.sh"), str(tmp_path / "copy")),),
    )

    assert said(result).split() == ["frozen"]
    assert (workspace / "new").read_text() == "made\n"


def test_a_missing_file_is_a_fault_of_the_mount_and_nothing_runs(
    workspace: Path, run: Run, tmp_path: Path
) -> None:
    (workspace / "check.sh").unlink()

    result = run("echo ran")

    assert result.outcome == "not_started"
    assert "check.sh" in result.mount_fault
    assert not said(result)


def test_what_the_command_leaves_running_is_ended(run: Run) -> None:
    result = run("sleep 600 & setsid -f sleep 601 & echo on")

    assert said(result).split() == ["on"]
    assert result.has_left_running


@pytest.mark.slow
def test_a_thousand_copies_are_mounted(run: Run, workspace: Path, tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(1000)]
    for name in names:
        (workspace / name).write_text("swapped")
        (tmp_path / name).write_text("frozen")

    result = run_command(
        shell_argv("cat f* | head -c 12"),
        cwd=str(workspace),
        env={"PATH": os.environ["PATH"]},
        timeout_seconds=60.0,
        output_path=str(tmp_path / "output"),
        mounts=tuple((str(workspace / name), str(tmp_path / name)) for name in names),
    )

    assert said(result) == "frozenfrozen"
