"""Real repositories for the tests, made as a person makes them."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from omx_autoresearch.system.git import git_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.experiments.worktrees.pair import WorktreePair

OLD_NS = 1_700_000_000 * 10**9


def git(path: Path, *args: str) -> str:
    """Run git the way a person does, as somebody, with nothing of the surrounding configuration."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    for role in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{role}_NAME": "A", f"GIT_{role}_EMAIL": "a@example.org"}
    words = ["git", "-c", "protocol.file.allow=always", "-C", str(path), *args]
    return subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout.strip()


_templates: dict[tuple[str, ...], str] = {}


def copy_of(path: Path, name: str, make: Callable[[Path], None], *variant: str) -> Path:
    """A repository that ``make`` fills once a process, copied: starting git costs more than the copy."""
    if (name, *variant) not in _templates:
        folder = tempfile.TemporaryDirectory(prefix="omx-template-")
        atexit.register(folder.cleanup)
        root = Path(folder.name, name)
        root.mkdir()
        make(root)
        shutil.rmtree(root / ".git" / "hooks")
        _templates[name, *variant] = str(root)
    return Path(shutil.copytree(_templates[name, *variant], path, symlinks=True))


def settle(repository: Path) -> None:
    """Make every file older than the index, as in a repository at rest, so that the index is believed."""
    for folder, folders, names in os.walk(repository):
        if ".git" in folders:
            folders.remove(".git")
        for name in names:
            os.utime(os.path.join(folder, name), ns=(OLD_NS, OLD_NS), follow_symlinks=False)
    git(repository, "update-index", "-q", "--really-refresh")
    index = os.path.join(git_dir(str(repository)) or "", "index")
    later = os.stat(index).st_mtime_ns + 10**9
    os.utime(index, ns=(later, later))


def store_of(worktrees: WorktreePair) -> str:
    """The repository beside both worktrees that has their checkpoints."""
    return os.path.join(os.path.dirname(worktrees.candidate.root_path), "checkpoints")


def tree_of(worktrees: WorktreePair, commit: str) -> str:
    """The id of a checkpoint's tree."""
    return git(Path(worktrees.candidate.root_path), "rev-parse", f"{commit}^{{tree}}")
