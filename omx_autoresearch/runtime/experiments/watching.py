"""What the runs of one arm do to worktrees: to the other arm's, and to their own.

While the candidate runs nothing else works in the incumbent's worktree, so whatever changes there meanwhile was changed
by the candidate: it reached over to slow the other down. What is compared is everything that could change a run: files
that differ from the checkpoint, files of git's own folder, and kept paths, by inode, mode, size and times.

What the runs of one arm alone leave in its worktree is removed before its next one: an answer that was kept there at
the first run would be replayed at all others, and no fresh checkout has it. What the set-up made stays, and what both
arms leave (a build folder, a log).

A look takes as long as looking at every file does. It is taken where an acceptance or a claim rests on the runs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omx_autoresearch.system.removal import remove

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omx_autoresearch.system.worktrees import Workspaces

    Marks = dict[str, tuple[int, ...]]

_GIT_FOLDER = ".git"


class Watch:
    """Looks at worktrees before and after a run.

    Args:
        workspaces: the two worktrees.
        kept: ignored paths of them that checkpoints do not restore (``config.keep`` and ``config.link``).
    """

    def __init__(self, workspaces: Workspaces, kept: Sequence[str]) -> None:
        self._workspaces = workspaces
        self._kept = (_GIT_FOLDER, *kept)
        self._made: dict[str, set[str]] = {}  # what stood in a worktree after its set-up

    def settle(self, path: str) -> None:
        """A worktree was set up; what stands in it now is no run's.

        Raises:
            WorkspaceFault: the worktree is gone, or cannot be read.
        """
        self._made[path] = set(self._workspaces.drift_sides(path)[1])

    def clear(self, path: str, other_path: str) -> None:
        """Remove what the runs in this worktree left there, and those in the other one did not.

        Nothing where one of them was not set up under this watch.

        Raises:
            WorkspaceFault: a worktree is gone, or something cannot be removed.
        """
        if path not in self._made or other_path not in self._made:
            return
        left = set(self._workspaces.drift_sides(path)[1]) - self._made[path]
        for name in left - set(self._workspaces.drift_sides(other_path)[1]) if left else ():
            remove(os.path.join(path, name))

    def marks(self, path: str) -> Marks:
        """How everything stands in a worktree that is not just as its checkpoint has it.

        Raises:
            WorkspaceFault: the worktree is gone, or cannot be read.
        """
        found: Marks = {}
        for name in (*self._workspaces.drift(path), *self._kept):
            for below in _paths_below(path, name):
                found[below] = _mark(os.path.join(path, below))
        return found

    def touched(self, path: str, before: Marks) -> tuple[str, ...]:
        """Paths of a worktree that were changed, added or removed since; sorted.

        Raises:
            WorkspaceFault: as `marks`.
        """
        after = self.marks(path)
        moved = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        return tuple(sorted(moved))


def _paths_below(root_path: str, name: str) -> Iterator[str]:
    """A path and everything below it, relative; links are not followed."""
    yield name
    top = os.path.join(root_path, name)
    if os.path.islink(top) or not os.path.isdir(top):
        return
    for folder, folders, files in os.walk(top):
        for each in (*folders, *files):
            yield os.path.relpath(os.path.join(folder, each), root_path)


def _mark(path: str) -> tuple[int, ...]:
    try:
        known = os.lstat(path)
    except OSError:
        return ()
    return (known.st_ino, known.st_mode, known.st_size, known.st_mtime_ns, known.st_ctime_ns)
