"""The files of a project that a check opens, learned from the kernel while it runs (`system.watching`).

The run itself is not changed, so nothing tells which process opened a file: an editor or an indexer that is at work in
the meantime counts as well. A check that stops at its first failure opens no more than it needs up to there.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omx_autoresearch.system.watching import Told, Watch


class Opened:
    """What is opened in the folders of a project's files from now on.

    Attributes:
        fault: why files may have been opened that are not known; empty while that cannot be.
    """

    def __init__(self, watch: Watch, workspace_path: str, files: Iterable[str]) -> None:
        self._root = os.path.realpath(workspace_path)
        self._watch = watch
        self._began_ns = time.time_ns()
        self._opened: set[str] = set()
        self._written: set[str] = set()
        folders = sorted({path.rpartition("/")[0] for path in files})
        unwatched = [folder for folder in folders if not self._follow(folder)]
        self._unwatched = f"{len(unwatched)} folders could not be watched" if unwatched else ""

    @property
    def fault(self) -> str:
        """As above."""
        return self._watch.fault or self._unwatched

    def paths(self) -> set[str]:
        """The files that were opened so far, were there before and were not written."""
        self._watch.read()
        return {path for path in self._opened - self._written if self._stood_there_before(path)}

    def _follow(self, folder: str) -> bool:
        return self._watch.opens(
            os.path.join(self._root, folder),
            self._noting(self._opened, folder),
            self._noting(self._written, folder),
        )

    @staticmethod
    def _noting(found: set[str], folder: str) -> Told:
        def told(name: str, is_folder: bool) -> None:
            if name and not is_folder:
                found.add(f"{folder}/{name}" if folder else name)

        return told

    def _stood_there_before(self, path: str) -> bool:
        try:
            return os.lstat(os.path.join(self._root, path)).st_ctime_ns < self._began_ns
        except OSError:
            return False
