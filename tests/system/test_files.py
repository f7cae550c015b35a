"""The walker of folders: everything once, in one order, no link followed, no pipe opened, and never without end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.system import files

if TYPE_CHECKING:
    from pathlib import Path


def _made(root: Path) -> Path:
    for name in ("b.txt", "b/z.txt", "b/c/deep.txt", "a/one.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def test_a_folder_is_walked_in_one_order_as_text_or_as_bytes(tmp_path: Path) -> None:
    expected = ["a", "b", "b.txt", "a/one.txt", "b/c", "b/z.txt", "b/c/deep.txt"]
    assert [name for name, _ in files.walk(str(_made(tmp_path)))] == expected
    assert [os.fsdecode(name) for name, _ in files.walk(os.fsencode(tmp_path))] == expected


def test_links_are_named_and_not_followed_and_pipes_not_opened(tmp_path: Path) -> None:
    root = tmp_path / "root"
    _made(tmp_path / "elsewhere")
    root.mkdir()
    (root / "loop").symlink_to(root)
    (root / "out").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(root / "pipe")
    (root / "plain").touch()
    kinds = {name: files.kind_of(entry) for name, entry in files.walk(str(root))}
    assert kinds == {"loop": "link", "out": "link", "pipe": "special", "plain": "file"}


def test_what_is_left_out_is_not_entered(tmp_path: Path) -> None:
    found = files.walk(str(_made(tmp_path)), is_left_out=lambda name, _: name in ("b", "a/one.txt"))
    assert [name for name, _ in found] == ["a", "b.txt"]


def test_a_folder_that_cannot_be_listed_is_passed_over_and_named(tmp_path: Path) -> None:
    faults: list[str] = []
    assert not list(files.walk(str(tmp_path / "absent"), on_fault=lambda name, _: faults.append(name)))
    assert faults == [""]
    assert not list(files.walk(str(tmp_path / "absent")))


def test_a_walk_without_end_is_refused_with_a_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ENTRY_LIMIT", 6)
    with pytest.raises(WorkspaceFault, match="more than 6 files and folders") as refused:
        list(files.walk(str(_made(tmp_path))))
    assert str(tmp_path) in refused.value.next_step
