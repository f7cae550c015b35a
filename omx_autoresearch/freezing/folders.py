"""Folders of a workspace as an evaluator uses them: cases that it walks, data of tests, programs in front of others.

A check that walks a folder is emptied by emptying the folder; a program of the workspace's virtual environment is
found before the system's. Both are looked for at launch alone.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from omx_autoresearch.journal.safe_files import first_link
from omx_autoresearch.system.files import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CASE_LIMIT = 2_000
"""A folder of cases with more files is not pinned by default; a note tells the owner."""
CASE_LIMIT_BYTES = 256 * 1024 * 1024
INTERPRETERS = frozenset({"bash", "env", "node", "python", "python3", "sh"})
"""Programs that a shebang starts although no command names them."""


def real_folder(workspace_path: str, word: str, folders: tuple[str, ...]) -> str:
    """The real folder of the workspace that a word names from one of these folders; empty for none or for the root."""
    root = os.path.normpath(workspace_path)
    for folder in folders:
        path = os.path.normpath(os.path.join(root, folder, word))
        relative = os.path.relpath(path, root)
        if not path.startswith(root + os.sep) or relative.split(os.sep, 1)[0] in (".git", ".omx"):
            continue
        try:
            is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
        except (OSError, ValueError):
            continue
        if is_folder and not first_link(workspace_path, relative):
            return relative
    return ""


def paths_below(workspace_path: str, start: str, is_skipped: Callable[[str], bool]) -> Iterator[str]:
    """Every file and link below ``start``; ``is_skipped`` is given the name of a folder."""

    def is_left_out(_: str, entry: os.DirEntry[str]) -> bool:
        return entry.is_dir(follow_symlinks=False) and is_skipped(entry.name)

    for path, entry in walk(os.path.join(workspace_path, start), is_left_out=is_left_out):
        if not entry.is_dir(follow_symlinks=False):
            yield f"{start}/{path}" if start else path


def are_few(workspace_path: str, paths: list[str]) -> bool:
    """True when these files may be pinned by default."""
    if len(paths) > CASE_LIMIT:
        return False
    return sum(os.lstat(os.path.join(workspace_path, path)).st_size for path in paths) <= CASE_LIMIT_BYTES


def programs_inside(
    workspace_path: str, search_path: str, words: frozenset[str]
) -> tuple[list[str], list[str]]:
    """Find named programs in folders of PATH inside the workspace, and places there where no new one may appear.

    Args:
        workspace_path: of the mission.
        search_path: the owner's PATH; its relative folders are never searched.
        words: that may be programs.

    Returns:
        Paths that exist, and paths at which a new file would be found before a program further back on PATH.
    """
    root = os.path.join(os.path.realpath(workspace_path), "")
    folders = [folder for folder in search_path.split(os.pathsep) if os.path.isabs(folder)]
    present: list[str] = []
    absent: list[str] = []
    for number, folder in enumerate(folders):
        real = os.path.join(os.path.realpath(folder), "")
        if not real.startswith(root):
            continue
        for name in sorted(words | INTERPRETERS):
            path = os.path.join(real[len(root) :], name)
            if os.path.lexists(os.path.join(root, path)):
                present.append(path)
            elif any(os.access(os.path.join(later, name), os.X_OK) for later in folders[number + 1 :]):
                absent.append(path)
    return list(dict.fromkeys(present)), list(dict.fromkeys(absent))


def is_snapshot(path: str) -> bool:
    """True for a file that a test runner records and compares."""
    return any(folder in ("__snapshots__", "snapshots") for folder in path.split("/")[:-1])


def is_foreign(name: str) -> bool:
    """True for the name of a folder that belongs to no project: of git, of ours, or of what is installed."""
    return name in (".git", ".omx", "node_modules", "__pycache__", ".venv")


def literal_folder(workspace_path: str, glob: str) -> str:
    """The deepest folder that a glob names outright: there its walk begins, so pruned folders can be protected."""
    parts: list[str] = []
    if "/" in glob.rstrip("/"):
        for part in glob.strip("/").split("/"):
            if any(c in part for c in "*?"):
                break
            parts.append(part)
    folder = "/".join(parts)
    if folder and not os.path.isdir(os.path.join(workspace_path, folder)):
        folder = folder.rpartition("/")[0]
    return "" if first_link(workspace_path, folder) else folder
