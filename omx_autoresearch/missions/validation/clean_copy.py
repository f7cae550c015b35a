"""A fresh copy of what git tracks, in which a pass is asked for once more (``confirm: clean``).

A check that passes in the workspace may lean on what only stands there: a file that was never added, a cache, an
ignored result of an earlier run. The copy holds the tracked files as they are in the work tree, the pinned files as
they were frozen, what the owner names with ``keep`` as copies and with ``link`` as symbolic links, and nothing else; no
``.git`` unless it is named. A tracked link that leads back into the work tree by an absolute path is left out, and so
is the content of a repository within that is no submodule: a clone elsewhere has neither.

The runtime makes the copy outside every sandbox, from files that an agent wrote. So no path is read or written through
a symbolic link: not in the work tree, and not in the copy, where a link may have been copied just before.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager

from omx_autoresearch.foundation.errors import CommandFault, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.system.files import DISPOSABLE_NAMES, Entries, add, describe_file
from omx_autoresearch.system.git import cannot_read, find_root, git_dir, run_git

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Mounts = tuple[tuple[str, str], ...]

_NAMED = 5


@dataclass(frozen=True, slots=True)
class CleanCopy:
    """A clean copy of a repository, or of what git tracks of it, for the time of one run.

    Attributes:
        path: the folder that stands for the workspace.
        root_path: that of the whole repository.
        scratch_path: for a scratch folder; outside the copy.
        mounts: the pinned files in it with their frozen copies.
        tracked: names of its files that git tracks, from the root.
        git_path: the folder of the repository's own data.
    """

    path: str
    root_path: str
    scratch_path: str
    mounts: Mounts
    tracked: tuple[str, ...]
    git_path: str

    def content(self) -> dict[bytes, bytes]:
        """Mode and id of each file that git tracks or does not ignore, by its name; each is read.

        Raises:
            WorkspaceFault: git refuses.
        """
        others = ("--others", "--exclude-standard")
        new = _listed(
            self.root_path, *others, place=(f"--git-dir={self.git_path}", f"--work-tree={self.root_path}")
        )
        entries = Entries()
        for name in map(os.fsencode, (*self.tracked, *new)):
            path = os.path.join(os.fsencode(self.root_path), name)
            if DISPOSABLE_NAMES.isdisjoint(name.split(b"/")) and os.path.lexists(path):
                add(entries, name, describe_file(path, os.lstat(path), entries))
        return entries


@contextmanager
def clean_copy(
    workspace_path: str, copies: Mounts, *, keep: Sequence[str] = (), link: Sequence[str] = ()
) -> Iterator[CleanCopy]:
    """A clean copy for the time of one run.

    Args:
        workspace_path: inside a git work tree.
        copies: pinned files of the workspace and their frozen copies.
        keep: paths of the workspace that are copied although git does not track them.
        link: paths of the workspace that the copy links to.

    Raises:
        WorkspaceFault: there is no repository, git refuses, or a path of ``keep`` or ``link`` is missing or leads
            through a symbolic link.
        CommandFault: a file cannot be copied.
    """
    workspace = os.path.realpath(workspace_path)
    root = find_root(workspace)
    if root is None:
        raise WorkspaceFault(
            f"{workspace_path} is in no git repository, so there is no clean copy to confirm a pass in",
            next_step="git init, or: omx-autoresearch amend --confirm none",
        )
    frozen = [(os.path.relpath(path, workspace), copy) for path, copy in copies]
    linked = tuple(os.path.join(os.path.normpath(path), "") for path in link)
    with tempfile.TemporaryDirectory(prefix="omx-autoresearch-", ignore_cleanup_errors=True) as folder:
        root_path = os.path.join(os.path.realpath(folder), "copy")
        target = os.path.normpath(os.path.join(root_path, os.path.relpath(workspace, root)))
        try:
            tracked = _fill(root, root_path)
            os.makedirs(target, exist_ok=True)
            for path in keep:
                _put(_named(workspace, path, "keep"), target, path)
            for path in link:
                source = _named(workspace, path, "link")
                os.symlink(source, _place(target, path))
            for path, frozen_path in frozen:
                if not path.startswith(linked):  # a folder in the place of the link would lack the rest
                    _put(frozen_path, target, path)
        except (OSError, shutil.Error) as error:
            raise CommandFault(
                f"no clean copy of {workspace_path} could be made: {error}",
                next_step="see that there is space for it in the folder for temporary files, then validate again",
            ) from error
        mounts = tuple((os.path.join(target, path), copy) for path, copy in frozen)
        scratch_path = os.path.join(os.path.dirname(root_path), "scratch")
        yield CleanCopy(target, root_path, scratch_path, mounts, tracked, git_dir(root) or "")


def _fill(root: str, copy_path: str) -> tuple[str, ...]:
    """Copy the tracked files of a work tree and return their names.

    One that was deleted, or stands behind a link now, is left out.
    """
    os.makedirs(copy_path)
    names = _listed(root, "--cached", "--recurse-submodules")
    for name in names:
        source = os.path.join(root, name)
        if not _is_real(root, os.path.dirname(name)) or not os.path.lexists(source):
            continue
        if os.path.islink(source):
            text = os.readlink(source)
            if not (os.path.isabs(text) and _is_within(root, text)):
                os.symlink(text, _place(copy_path, name))
        elif os.path.isdir(source):  # a repository within: a clone has an empty folder there
            os.makedirs(_place(copy_path, name))
        else:
            _put(source, copy_path, name)
    return tuple(names)


def _put(source: str, target: str, path: str) -> None:
    """Copy a file or a folder to ``path`` below ``target``, in the place of what stands there."""
    place = _place(target, path)
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, place, symlinks=True)
    elif os.path.isfile(source) or os.path.islink(
        source
    ):  # no pipe, socket or device, for which one would wait
        shutil.copy2(source, place, follow_symlinks=False)


def _place(target: str, path: str) -> str:
    """Make way for ``path`` below ``target``: real folders on the way, and nothing at its end."""
    place = target
    *folders, name = os.path.normpath(path).split(os.sep)
    for folder in folders:
        place = os.path.join(place, folder)
        if os.path.islink(place) or not os.path.isdir(place):
            _remove(place)
            os.mkdir(place)
    place = os.path.join(place, name)
    _remove(place)
    return place


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def _named(workspace: str, path: str, option: str) -> str:
    """The path of an option, which must exist and be reached through real folders."""
    full_path = os.path.join(workspace, path)
    if not os.path.lexists(full_path) or not _is_real(workspace, os.path.dirname(os.path.normpath(path))):
        raise WorkspaceFault(
            f"{option}: {path} does not exist in {workspace}, or stands behind a symbolic link",
            next_step=f"name another path: omx-autoresearch amend --{option} PATH",
        )
    return full_path


def _is_real(root: str, path: str) -> bool:
    """Whether every folder on the way from the root is one, and no link."""
    place = root
    for folder in filter(None, path.split(os.sep)):
        place = os.path.join(place, folder)
        if os.path.islink(place) or not os.path.isdir(place):
            return False
    return True


def _is_within(root: str, path: str) -> bool:
    return os.path.commonpath((root, os.path.realpath(path))) == root


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
    return f"git does not track {', '.join(missing)} (git add, or amend --keep or --link)" if missing else ""


def _listed(folder_path: str, *options: str, place: tuple[str, ...] = ()) -> list[str]:
    result = run_git([*place, "ls-files", "-z", *options], cwd=folder_path)
    if result.exit_status != 0:
        raise cannot_read(folder_path, result)
    return [os.fsdecode(name) for name in result.stdout.split(b"\0") if name]
