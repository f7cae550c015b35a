"""The content of a candidate's work tree as a git tree, or why it cannot be one.

Files that git ignores do not count: they are in no checkpoint and are gone before anything is measured. What no patch
could carry to the user is refused with its paths: nested repositories, changed submodules, pipes and sockets, links out
of the tree, files too large, paths outside a sparse checkout.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from omx_autoresearch.experiments.worktrees.checkout import named
from omx_autoresearch.experiments.worktrees.patches import GITLINK, LINK, TreeChange
from omx_autoresearch.foundation.errors import StepIllegal
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.system.contents import entries_below
from omx_autoresearch.system.git import find_root

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omx_autoresearch.experiments.worktrees.worktree import Extra, WorkTree

FILE_LIMIT_BYTES = 1024**3
"""The largest file that a checkpoint takes."""

_BARRED = ("..", ".git")
"""Where no link of a checkpoint may begin to lead, from the root."""
_NAMED_PATHS = 200
"""More than these are not named to git one by one: it then looks at the whole tree itself."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of a work tree.

    Attributes:
        tree: its id in our repository.
        changed: paths that differ from the checkpoint, a renamed file as both of its names.
    """

    tree: str
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TreeFault:
    """Why a work tree can be no checkpoint.

    Attributes:
        reason_code: ``nested_repository``, ``submodule_changed``, ``special_file``, ``link_outside``,
            ``file_too_large``, ``outside_sparse_checkout``, ``not_addable`` or ``workspace_lost``.
        paths: where.
        detail: a sentence for people.
    """

    reason_code: str
    paths: tuple[str, ...]
    detail: str


def take_snapshot(
    work_tree: WorkTree, base: str, limit_bytes: int = FILE_LIMIT_BYTES
) -> Snapshot | TreeFault:
    """The tree of a folder that was set to ``base`` before and has been worked on since.

    Raises:
        StepIllegal: nothing is known about the tree; restore it first.
        WorkspaceFault: git or the file system fails.
    """
    if work_tree.is_lost():
        return _fault("workspace_lost", (work_tree.root_path,), "the work tree is gone")
    if not work_tree.recall():
        raise StepIllegal(
            f"the index of {work_tree.root_path} is gone, so nobody can tell what changed",
            next_step="restore the tree first",
        )
    look = work_tree.look()
    fault = _nested_in_tracked(work_tree, look.extras) or _special(work_tree, look.extras)
    if fault is not None:
        return fault
    new = _untracked(work_tree, look.extras)
    nested = tuple(os.fsdecode(path.rstrip(b"/")) for path in new if path.endswith(b"/"))
    if nested:
        return _nested(nested)
    paths = sorted({*look.modified, *new})
    fault = _too_large(work_tree, paths, limit_bytes)
    if fault is None and paths:
        fault = _add(work_tree, paths)
    if fault is not None:
        work_tree.forget()
        return fault
    return _tree(work_tree, base)


def _tree(work_tree: WorkTree, base: str) -> Snapshot | TreeFault:
    """The tree that the index holds, and whether a patch can carry it."""
    tree = work_tree.update("write-tree").decode("ascii").strip()
    changes = work_tree.store.changes(base, tree)
    links = tuple(change.path for change in changes if change.mode == LINK and _leaves(work_tree, change))
    gitlinks = tuple(change.path for change in changes if GITLINK in (change.mode, change.old_mode))
    fault = None
    if gitlinks:
        added = tuple(change.path for change in changes if change.mode == GITLINK and change.status == "A")
        fault = (
            _nested(added)
            if added
            else _fault("submodule_changed", gitlinks, "a submodule names another commit or is gone")
        )
    elif links:
        fault = _fault("link_outside", links, "a link leads out of the tree")
    if fault is not None:
        work_tree.forget()
        return fault
    work_tree.take_over(tree, changes)
    return Snapshot(tree, tuple(change.path for change in changes))


def _untracked(work_tree: WorkTree, extras: Iterable[Extra]) -> list[bytes]:
    """Files among the extras that git does not ignore; a nested repository as a folder with a slash."""
    names = [os.fsdecode(extra.path) for extra in extras if extra.kind != "special"]
    if not names:
        return []
    args = ["ls-files", "-o", "-z", "--exclude-standard"]
    if len(names) <= _NAMED_PATHS:
        args += ["--", *names]
    git = work_tree.git.at(work_tree.root_path, GIT_LITERAL_PATHSPECS="1")
    tops = {extra.path for extra in extras}
    return [path for path in git.output(*args).split(b"\0") if path and _is_below(path, tops)]


def _is_below(path: bytes, tops: set[bytes]) -> bool:
    """A path, or a folder above it, is one of these; a kept path is not, though a candidate may not ignore it."""
    path = path.rstrip(b"/")
    while path:
        if path in tops:
            return True
        path = path.rpartition(b"/")[0]
    return False


def _add(work_tree: WorkTree, paths: list[bytes]) -> TreeFault | None:
    """Put the files into the index as they are."""
    beyond = _beyond_links(work_tree, paths)
    if (
        beyond
    ):  # files of a folder that is a link now: git names no path behind one, but forgets it when told so
        work_tree.update("update-index", "-z", "--force-remove", "--stdin", stdin=b"\0".join(beyond) + b"\0")
        paths = [path for path in paths if path not in beyond]
    args = ["add", "-A"] if work_tree.is_sparse else ["add", "-A", "--sparse"]
    stdin = b""
    # Without names git would look at submodules, too, and at kept paths that a candidate no longer ignores.
    if len(paths) <= _NAMED_PATHS or work_tree.is_sparse or work_tree.has_opaque:
        args += ["--pathspec-from-file=-", "--pathspec-file-nul"]
        stdin = b"".join(path + b"\0" for path in paths)
    result = work_tree.attempt(*args, stdin=stdin, is_literal=True)
    if result.exit_status == 0:
        return None
    outside = tuple(line for line in result.stderr.splitlines() if os.fsencode(line) in set(paths))
    if "sparse-checkout" in result.stderr:
        return _fault("outside_sparse_checkout", outside, "outside the sparse checkout")
    shown = tuple(os.fsdecode(path) for path in paths)
    return _fault("not_addable", shown, f"git cannot take it: {result.stderr}")


def _beyond_links(work_tree: WorkTree, paths: list[bytes]) -> frozenset[bytes]:
    """The paths that have a symbolic link on their way."""
    root = os.fsencode(work_tree.root_path)
    links: dict[bytes, bool] = {b"": False}

    def is_link(folder: bytes) -> bool:
        if folder not in links:
            links[folder] = is_link(os.path.dirname(folder)) or os.path.islink(os.path.join(root, folder))
        return links[folder]

    return frozenset(path for path in paths if is_link(os.path.dirname(path)))


def _nested_in_tracked(work_tree: WorkTree, extras: Iterable[Extra]) -> TreeFault | None:
    """A repository around tracked files, whose content git would pass over."""
    found = []
    for extra in extras:
        folder, _, name = extra.path.rpartition(b"/")
        if name == b".git":
            path = os.path.join(work_tree.root_path, os.fsdecode(folder)).rstrip("/")
            if find_root(path) == path:
                found.append(os.fsdecode(folder))
    return _nested(tuple(found)) if found else None


def _special(work_tree: WorkTree, extras: Iterable[Extra]) -> TreeFault | None:
    """Pipes, sockets and devices that are not ignored: git passes over them without a word."""
    root = os.fsencode(work_tree.root_path)
    found: list[bytes] = []
    for extra in extras:
        if extra.kind == "special":
            found.append(extra.path)
        elif extra.kind == "folder":
            found += (  # git names a folder that it cannot read
                extra.path + b"/" + name
                for name, entry in entries_below(os.path.join(root, extra.path))
                if not (
                    entry.is_dir(follow_symlinks=False)
                    or entry.is_symlink()
                    or entry.is_file(follow_symlinks=False)
                )
            )
    if not found:
        return None
    git = work_tree.git
    result = git.run("check-ignore", "-z", "--stdin", stdin=b"".join(path + b"\0" for path in found))
    ignored = set(result.stdout.split(b"\0"))
    paths = tuple(os.fsdecode(path) for path in found if path not in ignored)
    return _fault("special_file", paths, "a pipe, socket or device is no file") if paths else None


def _too_large(work_tree: WorkTree, paths: list[bytes], limit_bytes: int) -> TreeFault | None:
    root = os.fsencode(work_tree.root_path)
    large = tuple(os.fsdecode(path) for path in paths if _size(os.path.join(root, path)) > limit_bytes)
    if not large:
        return None
    return _fault("file_too_large", large, f"larger than {limit_bytes} bytes")


def _size(path: bytes) -> int:
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _leaves(work_tree: WorkTree, change: TreeChange) -> bool:
    """A link whose target is absolute, or outside of the root, or in git's own folder; targets need not exist.

    As it is written, and as the links on its way lead: ``sub/up/..`` is above the root where ``sub/up`` is the root.
    """
    root = work_tree.root_path
    folder = os.path.join(root, os.path.dirname(change.path))
    try:
        target = os.readlink(os.path.join(root, change.path))
    except OSError:
        return False
    real = os.path.realpath(os.path.join(folder, os.path.dirname(target)))
    places = (
        os.path.relpath(os.path.normpath(os.path.join(folder, target)), root),
        os.path.relpath(
            os.path.normpath(os.path.join(real, os.path.basename(target))), os.path.realpath(root)
        ),
    )
    return os.path.isabs(target) or any(place.split(os.sep)[0].lower() in _BARRED for place in places)


def _nested(paths: tuple[str, ...]) -> TreeFault:
    return _fault("nested_repository", paths, "a nested repository: no patch can carry its files")


def _fault(reason_code: str, paths: tuple[str, ...], what: str) -> TreeFault:
    return TreeFault(reason_code, paths, f"{what}: {named(paths)}" if paths else what)
