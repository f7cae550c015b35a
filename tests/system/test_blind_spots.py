"""What a machine cannot see of changes to files, and says."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.missions import launch
from omx_autoresearch.system import blind_spots
from tests.support.scratch import SESSION, Scratch

if TYPE_CHECKING:
    from pathlib import Path

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a table of mounts")
TABLE = """22 1 8:1 / / rw - ext4 /dev/sda rw
30 22 0:30 / {point} rw,relatime shared:1 master:2 - {kind} source rw
31 22 0:31 / {point}/below rw - tmpfs tmpfs rw
"""


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in whose place a file system is mounted, by a table that the test fills."""
    monkeypatch.setattr(blind_spots, "MOUNTS_PATH", str(tmp_path / "mountinfo"))
    folder = tmp_path / "a place"
    folder.mkdir()
    return folder


def mount(folder: Path, kind: str) -> None:
    table = TABLE.format(point=str(folder).replace(" ", "\\040"), kind=kind)
    (folder.parent / "mountinfo").write_text(table)


@needs_linux
@pytest.mark.requirement("DONE-25")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("vfat", "lies on vfat, which keeps no times"),
        ("exfat", "lies on exfat, which keeps no times"),
        ("nfs4", "lies on nfs4, whose times another program or machine keeps"),
        ("9p", "lies on 9p, whose times another"),
        ("fuse.sshfs", "lies on fuse.sshfs, whose times another"),
        ("ext4", ""),
        ("btrfs", ""),
        ("overlay", ""),
    ],
)
def test_a_file_system_whose_times_cannot_be_trusted_is_named(mounted: Path, kind: str, said: str) -> None:
    mount(mounted, kind)
    told = blind_spots.blind_spots(str(mounted))
    assert bool(told) == bool(said)
    assert said in "".join(told)
    assert blind_spots.file_system(str(mounted / "below" / "x")) == "tmpfs"
    assert blind_spots.file_system(f"{mounted}beside") == "ext4"


@needs_linux
def test_the_file_system_is_the_one_that_the_kernel_tells(tmp_path: Path) -> None:
    words = ["findmnt", "-n", "-o", "FSTYPE", "-T", str(tmp_path)]
    try:
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except OSError:
        pytest.skip("findmnt is missing")
    assert blind_spots.file_system(str(tmp_path)) == said.split()[0]


def test_a_system_without_namespaces_says_so_and_a_table_that_cannot_be_read_says_nothing(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert blind_spots.file_system(str(mounted)) == ""
    monkeypatch.setattr(sys, "platform", "darwin")
    [told] = blind_spots.blind_spots(str(mounted))
    assert told.startswith("this system has no mount namespaces")


@needs_linux
@pytest.mark.requirement("DONE-25")
@pytest.mark.parametrize("has_baseline", [True, False])
def test_start_says_what_the_machine_cannot_see(tmp_path: Path, mounted: Path, has_baseline: bool) -> None:
    world = Scratch.make(tmp_path / "world")
    table = TABLE.format(point=str(tmp_path), kind="vfat")
    (mounted.parent / "mountinfo").write_text(table)
    options = launch.StartOptions(session_id=SESSION, has_baseline=has_baseline)
    started = launch.start(world.runtime(), world.draft().task_id, options)
    assert any("lies on vfat" in note for note in started.notes)
