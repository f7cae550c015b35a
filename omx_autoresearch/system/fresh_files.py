"""Files that were written within the last second: what happens to them in that second, git cannot see.

The index keeps ctimes in whole seconds. Whoever takes the permissions of a file away in the second in which it was
written leaves an index entry that looks right for ever. So the exact times of such files are noted, until one look
after that second has found them unchanged.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from omx_autoresearch.system.removal import remove

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECOND_NS = 1_000_000_000


class FreshFiles:
    """The exact times of files written a moment ago, in memory and in a file for the next process.

    Args:
        root_path: the work tree.
        notes_path: the file, beside the index.
    """

    def __init__(self, root_path: str, notes_path: str) -> None:
        self._prefix = os.fsencode(root_path) + b"/"
        self._notes_path = notes_path
        self._times: dict[bytes, list[int]] | None = None

    def note(self, paths: Iterable[bytes]) -> None:
        """These files have just been written."""
        times = self._load()
        since = time.time_ns() // _SECOND_NS - 1
        for path in paths:
            found = self._facts(path)
            if found and found[1] // _SECOND_NS >= since:
                times[path] = found
        self._save(times)

    def drop(self, paths: Iterable[bytes]) -> None:
        """These files are others now, or gone."""
        times = self._load()
        kept = times.keys() - set(paths)
        if len(kept) < len(times):
            self._save({path: times[path] for path in kept})

    def changed(self) -> list[bytes]:
        """Noted files that are not as they were written; those whose second is over are noted no more."""
        times = self._load()
        if not times:
            return []
        changed = [path for path, noted in times.items() if self._facts(path) != noted]
        until = time.time_ns() // _SECOND_NS - 1
        kept = {path: noted for path, noted in times.items() if noted[1] // _SECOND_NS >= until}
        if len(kept) < len(times):
            self._save(kept)
        return changed

    def _facts(self, path: bytes) -> list[int]:
        try:
            status = os.lstat(self._prefix + path)
        except OSError:
            return []
        return [status.st_ino, status.st_ctime_ns, status.st_mtime_ns]

    def _load(self) -> dict[bytes, list[int]]:
        if self._times is None:
            try:
                with open(self._notes_path, encoding="ascii") as stream:
                    self._times = {os.fsencode(path): noted for path, noted in json.load(stream).items()}
            except (OSError, ValueError, AttributeError):
                self._times = {}
        return self._times

    def _save(self, times: dict[bytes, list[int]]) -> None:
        self._times = times
        if times:
            with open(self._notes_path, "w", encoding="ascii") as stream:
                json.dump({os.fsdecode(path): noted for path, noted in times.items()}, stream)
        else:
            remove(self._notes_path)
