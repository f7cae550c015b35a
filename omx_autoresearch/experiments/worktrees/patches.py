"""What lies between two checkpoints: changed files, and a patch that makes the one out of the other.

Compared are trees, in our own repository: no setting of a user and no attribute of a work tree has a say, and line ends
are the bytes that git stores. A patch is whole at any size; applied to the older tree it gives exactly the later one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omx_autoresearch.system.git import Git

GITLINK = "160000"
LINK = "120000"

_PATCH = (
    "diff-tree",
    "-p",
    "-r",
    "--binary",
    "--full-index",
    "--find-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-indent-heuristic",
    "--diff-algorithm=myers",
    "--unified=3",
    "--inter-hunk-context=0",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--ignore-submodules=none",
    "--submodule=short",
)


@dataclass(frozen=True, slots=True)
class TreeChange:
    """One path that differs between two trees.

    Attributes:
        path: relative to the root, as the file system has it (bytes that are no UTF-8 are surrogates).
        status: ``A`` added, ``D`` deleted, ``M`` modified, ``T`` another type.
        mode: the new mode, octal; zeros where it is deleted.
        object_id: the new content; zeros where it is deleted.
        old_mode: the old mode, octal; zeros where it is added.
        old_object_id: the old content; zeros where it is added.
    """

    path: str
    status: str
    mode: str
    object_id: str
    old_mode: str
    old_object_id: str

    def reversed(self) -> TreeChange:
        """The change that undoes this one."""
        status = {"A": "D", "D": "A"}.get(self.status, self.status)
        return TreeChange(self.path, status, self.old_mode, self.old_object_id, self.mode, self.object_id)


@dataclass(frozen=True, slots=True)
class FileChange:
    """One changed file as people are shown it.

    Attributes:
        path: where it is now.
        status: ``A`` added, ``D`` deleted, ``M`` modified, ``R`` renamed, ``T`` another type.
        old_path: where it was, for a renamed one; else empty.
        added_lines: None for a binary file.
        deleted_lines: None for a binary file.
    """

    path: str
    status: str
    old_path: str
    added_lines: int | None
    deleted_lines: int | None


def tree_changes(git: Git, base: str, final: str) -> tuple[TreeChange, ...]:
    """Every path that differs between two trees or commits, renames as a deletion and an addition.

    Raises:
        WorkspaceFault: git cannot read one of them.
    """
    said = git.output("diff-tree", "-r", "-z", "--no-renames", "--ignore-submodules=none", base, final)
    return tuple(read_changes(said))


def read_changes(said: bytes) -> Iterator[TreeChange]:
    """The paths in git's raw output with ``-z`` and without renames."""
    words = iter(said.split(b"\0"))
    for facts in words:
        if not facts.startswith(b":"):
            continue
        old_mode, mode, old_id, object_id, status = facts[1:].decode("ascii").split(" ")
        yield TreeChange(os.fsdecode(next(words)), status[:1], mode, object_id, old_mode, old_id)


def file_changes(git: Git, base: str, final: str) -> tuple[FileChange, ...]:
    """The changed files between two commits with the number of lines, renames found.

    Raises:
        WorkspaceFault: git cannot read one of them.
    """
    options = ("-r", "-z", "--find-renames", "--raw", "--numstat", "--no-ext-diff", "--no-textconv")
    words = iter(git.output("diff-tree", *options, base, final).split(b"\0"))
    states: dict[str, tuple[str, str]] = {}
    found = []
    for word in words:
        if word.startswith(b":"):
            status = word.rpartition(b" ")[2][:1].decode("ascii")
            old = os.fsdecode(next(words))
            path = os.fsdecode(next(words)) if status in "RC" else old
            states[path] = (status, old if path != old else "")
        elif word:
            added, deleted, name = word.split(b"\t", 2)
            if not name:
                next(words)
                name = next(words)
            path = os.fsdecode(name)
            status, old = states.get(path, ("M", ""))
            found.append(FileChange(path, status, old, _count(added), _count(deleted)))
    return tuple(found)


def write_patch(git: Git, base: str, final: str, to_path: str) -> int:
    """Write the whole patch from one commit to another into a new file; returns its size in bytes.

    ``git apply --whitespace=nowarn`` on the base gives the tree of the final commit, with binary files, modes, links,
    renames and line ends.

    Raises:
        WorkspaceFault: git cannot read one of them, or the file cannot be written.
    """
    git.output(*_PATCH, base, final, to_path=to_path)
    return os.path.getsize(to_path)


def _count(digits: bytes) -> int | None:
    return None if digits == b"-" else int(digits)
