"""What stands around an evaluator and is part of it all the same: folders of cases, programs of the workspace on PATH.

A check that walks a folder is emptied by emptying the folder; a program of the workspace's virtual environment is found
before the system's. Both are looked for at launch alone.
"""

from __future__ import annotations

import os
import stat

from omx_autoresearch.storage.inside import first_link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CASE_LIMIT = 2_000
"""Files of one folder of cases that are pinned without being asked for; a larger one is told to the owner."""
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
    """Every path that is no real folder below ``start``, links among them, sorted within each folder."""
    waiting = [start]
    while waiting:
        folder = waiting.pop()
        try:
            entries = sorted(os.scandir(os.path.join(workspace_path, folder)), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if not entry.is_dir(follow_symlinks=False):
                yield path
            elif not is_skipped(entry.name):
                waiting.append(path)


def are_few(workspace_path: str, paths: list[str]) -> bool:
    """True when these files may be pinned without being asked for."""
    if len(paths) > CASE_LIMIT:
        return False
    return sum(os.lstat(os.path.join(workspace_path, path)).st_size for path in paths) <= CASE_LIMIT_BYTES


def programs_inside(
    workspace_path: str, search_path: str, words: frozenset[str]
) -> tuple[list[str], list[str]]:
    """Of programs that are named: those in a folder of PATH inside the workspace, and places where none may appear.

    Args:
        workspace_path: of the mission.
        search_path: the owner's PATH; its relative folders are never searched.
        words: that may be programs.

    Returns:
        Paths that exist, and paths at which a new file would be found before a program that stands further back.
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
