"""A fresh copy of what git tracks, in which a pass is asked for once more (``confirm: clean``).

A check that passes in the workspace may lean on what only stands there: a file that was never added, a cache, an
ignored result of an earlier run. The copy holds the tracked files as they are in the work tree, the pinned files as
they were frozen, what the owner names with ``keep`` as copies and with ``link`` as symbolic links, and nothing else; no
``.git`` unless it is named.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager

from omx_autoresearch.foundation.errors import CommandFault, WorkspaceFault
from omx_autoresearch.system.git import cannot_read, find_root, run_git

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Mounts = tuple[tuple[str, str], ...]

_NAMED = 5


@contextmanager
def clean_copy(
    workspace_path: str, copies: Mounts, *, keep: Sequence[str] = (), link: Sequence[str] = ()
) -> Iterator[tuple[str, Mounts]]:
    """A clean copy for the time of one run.

    Args:
        workspace_path: inside a git work tree.
        copies: pinned files of the workspace and their frozen copies.
        keep: paths of the workspace that are copied although git does not track them.
        link: paths of the workspace that the copy links to.

    Yields:
        The folder that stands for the workspace, and the pinned files in it with their frozen copies.

    Raises:
        WorkspaceFault: there is no repository, git refuses, or a path of ``keep`` or ``link`` is missing.
        CommandFault: a file cannot be copied.
    """
    root = os.path.realpath(workspace_path)
    frozen = [(os.path.relpath(path, root), copy) for path, copy in copies]
    with tempfile.TemporaryDirectory(prefix="omx-autoresearch-", ignore_cleanup_errors=True) as folder:
        target = _fill(workspace_path, os.path.join(folder, "copy"), frozen, keep, link)
        yield target, tuple((os.path.join(target, path), copy) for path, copy in frozen)


def _fill(
    workspace_path: str,
    copy_path: str,
    frozen: Sequence[tuple[str, str]],
    keep: Sequence[str],
    link: Sequence[str],
) -> str:
    workspace = os.path.realpath(workspace_path)
    root = find_root(workspace)
    if root is None:
        raise WorkspaceFault(
            f"{workspace_path} is in no git repository, so there is no clean copy to confirm a pass in",
            next_step="git init, or take `confirm: clean` out of the mission",
        )
    below = os.path.relpath(workspace, root)
    target = os.path.normpath(os.path.join(copy_path, below))
    try:
        os.makedirs(target)
        for name in _listed(root, "--cached", "--recurse-submodules"):
            _copy(os.path.join(root, name), os.path.join(copy_path, name))
        for path in keep:
            _copy(_existing(workspace, path, "keep"), os.path.join(target, path))
        for path in link:
            place = os.path.join(target, path)
            _remove(place)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.symlink(_existing(workspace, path, "link"), place)
        for path, frozen_path in frozen:
            _copy(frozen_path, os.path.join(target, path))
    except (OSError, shutil.Error) as error:
        raise CommandFault(
            f"no clean copy of {workspace_path} could be made: {error}",
            next_step="free space in the state home, then validate again",
        ) from error
    return target


def lacking(workspace_path: str, *, keep: Sequence[str] = (), link: Sequence[str] = ()) -> str:
    """Name some files that a clean copy lacks because git does not track them, new ones first; empty for none.

    Raises:
        WorkspaceFault: git refuses.
    """
    there = tuple(os.path.normpath(path) for path in (*keep, *link))
    options = ("--others", "--exclude-standard", "--directory", "--no-empty-directory")
    new = _listed(workspace_path, *options)
    names = (name.rstrip("/") for name in (*new, *_listed(workspace_path, "--ignored", *options)))
    missing = [name for name in names if name not in there and not name.startswith(".omx")][:_NAMED]
    return f"git does not track {', '.join(missing)} (git add, --keep or --link)" if missing else ""


def _listed(folder_path: str, *options: str) -> list[str]:
    result = run_git(["ls-files", "-z", *options], cwd=folder_path)
    if result.exit_status != 0:
        raise cannot_read(folder_path, result)
    return [os.fsdecode(name) for name in result.stdout.split(b"\0") if name]


def _existing(workspace: str, path: str, option: str) -> str:
    full_path = os.path.join(workspace, path)
    if not os.path.lexists(full_path):
        raise WorkspaceFault(
            f"{option}: {path} does not exist in {workspace}",
            next_step="omx-autoresearch amend, without that path",
        )
    return full_path


def _copy(source: str, target: str) -> None:
    """Copy a file, a link or a folder; a tracked file that was deleted is missing in the copy as well."""
    if not os.path.lexists(source):
        return
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    _remove(target)
    if not os.path.islink(source) and not os.path.isfile(source):
        return  # a pipe, a socket or a device: nothing to copy, and nothing to wait for
    shutil.copy2(source, target, follow_symlinks=False)


def _remove(path: str) -> None:
    if os.path.lexists(path):
        os.remove(path)
