"""Find changes in a worktree that git does not see: names in folders, and files written a moment ago.

Names come and go in a folder only when its mtime and ctime change (and no process can set a ctime), so a folder that is
as it was after the last look is not read again. Git is asked about contents, and looks at each file; here only folders
are looked at, which is fifty times as fast, and finds what git passes over: pipes, sockets, devices, repositories
inside tracked folders, links in the place of folders, empty folders, and folders whose permissions were taken away.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass

from omx_autoresearch.system.files import kind_of, list_folder, remove

_RACY_NS = 2_000_000_000
"""A folder that changed this recently may change again under the same time stamp (coarse clocks of file systems)."""

_FOLDER_MODE = 0o777


@dataclass(frozen=True, slots=True)
class Extra:
    """Something that the checkpoint does not have.

    Attributes:
        path: relative to the root of the work tree.
        kind: ``file``, ``link``, ``folder``, or ``special`` for a pipe, socket or device.
    """

    path: bytes
    kind: str


class FolderScan:
    """The folders of one work tree: which names belong to the checkpoint, and how each folder looked when it was right.

    Args:
        root: the work tree.
        opaque: paths that are never looked into and may be there or not: kept ones, and submodules; the ``.git``
            of a work tree is one.
    """

    def __init__(self, root: bytes, opaque: frozenset[bytes] = frozenset()) -> None:
        self._prefix = root + b"/"
        self._opaque = opaque
        self._names: dict[bytes, set[bytes]] = {b"": set()}
        self._right: dict[bytes, tuple[int, int, int, int]] = {}
        self.umask = _umask()
        self._folder_mode = _FOLDER_MODE & ~self.umask
        self.has_mended = False

    def expect(self, paths: Iterable[bytes]) -> None:
        """Take these files, and no others, for those of the checkpoint."""
        self._names = {b"": set()}
        self._right = {}
        grouped: dict[bytes, set[bytes]] = {}
        for path in paths:
            folder, _, name = path.rpartition(b"/")
            names = grouped.get(folder)
            if names is None:
                names = grouped[folder] = set()
            names.add(name)
        for folder, names in grouped.items():
            self._enter(folder)
            self._names[folder] |= names
        for path in self._opaque:
            self.add(path)

    def add(self, path: bytes) -> None:
        """The checkpoint has one more file."""
        folder, _, name = path.rpartition(b"/")
        self._enter(folder)
        self._names[folder].add(name)
        self._right.pop(folder, None)

    def discard(self, path: bytes) -> None:
        """The checkpoint has a file no more."""
        while path:
            folder, _, name = path.rpartition(b"/")
            names = self._names.get(folder)
            if names is None:
                return
            names.discard(name)
            self._right.pop(folder, None)
            if names or not folder:
                return
            del self._names[folder]
            path = folder

    def has_name(self, name: bytes) -> bool:
        """Some folder of the checkpoint has a file of this name."""
        return any(name in names for names in self._names.values())

    def look(self) -> list[Extra]:
        """Everything that does not belong here, the topmost of each; folders get their permissions back.

        ``has_mended`` then says whether one had lost them.

        Raises:
            OSError: a folder cannot be read.
        """
        self.has_mended = False
        found: list[Extra] = []
        lost: set[bytes] = set()
        for folder in sorted(self._names):
            if folder and folder.rpartition(b"/")[0] in lost:
                lost.add(folder)
                continue
            if not self._look_into(folder, found, lost):
                lost.add(folder)
        return found

    def _look_into(self, folder: bytes, found: list[Extra], lost: set[bytes]) -> bool:
        """Look into one folder; False where there is none."""
        path = self._prefix + folder
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if not stat.S_ISDIR(status.st_mode):
            return False
        stamp = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_dev)
        if self._right.get(folder) == stamp:
            return True
        self._right.pop(folder, None)
        if status.st_mode & _FOLDER_MODE != self._folder_mode:
            os.chmod(path, (status.st_mode & ~_FOLDER_MODE) | self._folder_mode)
            stamp = (0, 0, 0, 0)
            self.has_mended = True
        extras = list(self._foreign(folder, path))
        found += extras
        lost.update(extra.path for extra in extras)
        changed_ns = max(status.st_mtime_ns, status.st_ctime_ns)
        if not extras and stamp[0] and changed_ns < time.time_ns() - _RACY_NS:
            self._right[folder] = stamp
        return True

    def _foreign(self, folder: bytes, path: bytes) -> Iterable[Extra]:
        names = self._names[folder]
        prefix = folder + b"/" if folder else b""
        for entry in list_folder(path):
            full = prefix + entry.name
            if full in self._opaque:
                continue
            kind = kind_of(entry)
            is_folder = full in self._names
            if entry.name not in names or (kind == "folder") != is_folder or kind == "special":
                yield Extra(full, kind)

    def _enter(self, folder: bytes) -> None:
        """Expect a folder, and those above it."""
        while folder not in self._names:
            self._names[folder] = set()
            parent, _, name = folder.rpartition(b"/")
            if parent in self._names:
                self._names[parent].add(name)
                self._right.pop(parent, None)
                return
            self._enter(parent)
            self._names[parent].add(name)


def _umask() -> int:
    """The process's umask, read without changing it where the system shows it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as stream:
            for line in stream:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


# --- files written a moment ago

# Files that were written within the last second: git cannot see what happens to them in that second.
#
# The index keeps ctimes in whole seconds. A process that takes the permissions of a file away in the second in
# which it was written leaves an index entry that looks right for ever. So the exact times of such files are
# noted, until one look after that second has found them unchanged.


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
