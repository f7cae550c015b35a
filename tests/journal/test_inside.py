"""Files inside a workspace are reached without leaving it, waiting, or filling memory."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.journal.safe_files import digest_inside, path_faults

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.case("ART-04")
@pytest.mark.requirement("DONE-24")
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("../../etc/hosts", "leaves the workspace"),
        ("a/../../b", "leaves the workspace"),
        ("/etc/hosts", "absolute"),
        ("~/x", "absolute"),
        ("", "empty"),
        ("  ", "empty"),
        ("a\nb", "control character"),
        ("a\0b", "control character"),
        ("a" * 5000, "5000 characters"),
        ("folder/", "names a folder"),
        (".", "names a folder"),
        (".git/config", ".git"),
    ],
)
def test_a_path_that_cannot_be_inside_is_refused_with_the_rule(path: str, rule: str) -> None:
    assert rule in path_faults(path)[0]


@pytest.mark.parametrize("path", ["report.md", "a/b/ü.md", "..a/b..", "a b", ".omx/specs/x/report.md"])
def test_an_ordinary_path_is_taken(path: str) -> None:
    assert path_faults(path) == []


def outside_link(root: Path) -> None:
    (root / "x").symlink_to("/etc/hosts")


def parent_link(root: Path) -> None:
    (root.parent / "other").mkdir()
    (root.parent / "other/x").write_text("1")
    (root / "d").symlink_to("../other")


def device(root: Path) -> None:
    (root / "x").symlink_to("/dev/zero")


@pytest.mark.case("ART-04")
@pytest.mark.parametrize(
    ("make", "path", "rule"),
    [
        (outside_link, "x", "symbolic link"),
        (parent_link, "d/x", "symbolic link"),
        (device, "x", "symbolic link"),
        (lambda root: os.mkfifo(root / "x"), "x", "pipe"),
        (lambda root: (root / "x").mkdir(), "x", "folder"),
        (lambda root: (root / "x").touch(), "x", "empty"),
        (lambda root: (root / "x").write_text("12345"), "x", "larger than 4"),
    ],
    ids=["link", "parent", "device", "pipe", "folder", "empty", "large"],
)
def test_what_is_no_regular_file_inside_is_refused_without_waiting(
    tmp_path: Path, make: object, path: str, rule: str
) -> None:
    root = tmp_path / "w"
    root.mkdir()
    assert callable(make)
    make(root)
    with pytest.raises(WorkspaceFault, match=rule):
        digest_inside(str(root), path, limit_bytes=4)


def test_the_digest_is_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert digest_inside(str(tmp_path), "x") == hashlib.sha256(b"abc").hexdigest()
    with pytest.raises(FileNotFoundError):
        digest_inside(str(tmp_path), "y")
