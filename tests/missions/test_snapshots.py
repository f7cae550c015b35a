"""Two snapshots written in turn: one of them is whole, whatever happens to the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omx_autoresearch.foundation.errors import StorageFailed
from omx_autoresearch.missions import snapshots

ROOT = Path(__file__).resolve().parents[2]


def content(number: int) -> dict[str, object]:
    return {"head": {"seq": number}, "mission": {"goal": "é" * (number % 7) * 40, "iteration": number}}


def newest(folder: Path) -> tuple[int, dict[str, object]] | None:
    return next(snapshots.newest(str(folder)), None)


def grown(folder: Path, count: int) -> None:
    for number in range(1, count + 1):
        assert snapshots.save(str(folder), content(number), after=number - 1) == number


def test_a_folder_without_snapshots_has_none(tmp_path: Path) -> None:
    assert newest(tmp_path) is None
    assert newest(tmp_path / "gone") is None


@pytest.mark.parametrize("count", range(1, 9))
def test_the_newest_is_read_and_the_one_before_stands_beside_it(tmp_path: Path, count: int) -> None:
    grown(tmp_path, count)
    found = list(snapshots.newest(str(tmp_path)))
    assert found == [(number, content(number)) for number in (count, count - 1) if number]
    for path in tmp_path.iterdir():
        json.loads(path.read_bytes())  # a person may read them too


@pytest.mark.requirement("STATE-17")
def test_whatever_is_left_of_the_newest_the_older_one_is_whole(tmp_path: Path) -> None:
    grown(tmp_path, 3)
    path = tmp_path / snapshots.NAMES[1]
    old = (tmp_path / snapshots.NAMES[1]).read_bytes()
    snapshots.save(str(tmp_path), content(4), after=3)
    snapshots.save(str(tmp_path), content(5), after=4)
    new = path.read_bytes()
    for cut in [*range(0, len(new), 7), len(new) - 1]:
        path.write_bytes(new[:cut] + old[cut:])  # a write that stopped half-way
        assert newest(tmp_path) in ((4, content(4)), (5, content(5)))
        path.write_bytes(new[:cut])
        assert newest(tmp_path) == ((5, content(5)) if cut == len(new) - 1 else (4, content(4)))
    path.write_bytes(b"\0" * len(new))
    assert newest(tmp_path) == (4, content(4))


@pytest.mark.parametrize(
    "garbage", [b"", b"{", b"[]", b'{"format":3,"number":9,"sha256":"x","a":1}\n', b"\xff" * 99]
)
def test_what_is_no_snapshot_is_none(tmp_path: Path, garbage: bytes) -> None:
    for name in snapshots.NAMES:
        (tmp_path / name).write_bytes(garbage)
    assert newest(tmp_path) is None
    grown(tmp_path, 2)
    assert newest(tmp_path) == (2, content(2))


def test_a_pipe_or_link_in_its_place_is_neither_waited_for_nor_written_through(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    os.mkfifo(tmp_path / snapshots.NAMES[0])
    os.symlink(elsewhere, tmp_path / snapshots.NAMES[1])
    assert newest(tmp_path) is None
    for after in (0, 1):
        with pytest.raises(StorageFailed):
            snapshots.save(str(tmp_path), content(1), after=after)
    assert elsewhere.read_text() == "mine"


@pytest.mark.requirement("STATE-17")
def test_a_reader_beside_a_writer_always_finds_a_whole_one(tmp_path: Path) -> None:
    grown(tmp_path, 2)
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from tests.missions.test_snapshots import content\n"
        "from omx_autoresearch.missions import snapshots\n"
        "for number in range(3, 1500): snapshots.save(sys.argv[1], content(number), after=number - 1)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(ROOT)])
    last = 0
    while writer.poll() is None:
        found = newest(tmp_path)
        assert found is not None
        assert found[0] >= last - 1  # that one may be half written over by now
        assert found[1] == content(found[0])
        last = found[0]
    assert writer.returncode == 0
    assert newest(tmp_path) == (1499, content(1499))
