"""Fixtures of the tests of git and of work trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.system.repositories import git, settle

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, two files and a settled index."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "a.py").write_text("one\n")
    (root / "pkg").mkdir()
    (root / "pkg" / "b.py").write_text("two\n")
    (root / ".gitignore").write_text("ignored\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    settle(root)
    return root
