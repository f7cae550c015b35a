"""What happens in folders and to files while a command runs, where two looks around the run would miss it.

The kernel tells of it (inotify(7), Linux): of names that are made, moved or replaced in a folder, of a folder that is
moved, of a file that is written, also where everything is as it was before when the command ends. It keeps what it
tells in a queue, which has an end, so the queue is read while the command runs (`commands.run_command`).
"""

from __future__ import annotations

import os
import struct
import sys

from omx_autoresearch.system.mounts import c_function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Told = Callable[[str, bool], None]
    """Takes the name of an entry, empty for the watched path itself, and whether that is a folder."""

_CLOSED_WRITABLE, _OPENED = 0x8, 0x20  # linux/inotify.h
_WRITTEN, _MOVED_AWAY, _MOVED_HERE, _MADE, _MOVED_ITSELF = 0x2, 0x40, 0x80, 0x100, 0x800
_OVERFLOW, _IS_FOLDER = 0x4000, 0x4000_0000
_ONLY_FOLDERS, _NO_LINKS, _ADD = 0x0100_0000, 0x0200_0000, 0x2000_0000
_HEAD = struct.Struct("iIII")  # watch, kind, cookie, length of the name that follows
_READ_BYTES = 64 * 1024


class Watch:
    """A queue of the kernel, and what is to be called for each event in it.

    Attributes:
        fd: becomes readable when something happened; negative where there is no queue.
        fault: why something may have happened that is not told; empty while that cannot be.
    """

    def __init__(self) -> None:
        self.fd = -1
        self.fault = "this system tells of nothing that happens while a command runs"
        self._told: dict[int, list[tuple[int, Told]]] = {}
        if sys.platform == "linux":
            self.fd = c_function("inotify_init1")(os.O_CLOEXEC | os.O_NONBLOCK)
            self.fault = "" if self.fd >= 0 else "the system grants no watch (fs.inotify.max_user_instances)"
            self._add_watch = c_function("inotify_add_watch")

    def close(self) -> None:
        """Give the queue back."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def entries(self, folder_path: str, told: Told) -> None:
        """Tell of the entries of a folder that are made, moved there or away, and where it is moved itself."""
        self._add(folder_path, _MADE | _MOVED_HERE | _MOVED_AWAY | _MOVED_ITSELF | _ONLY_FOLDERS, told)

    def moves(self, folder_path: str, told: Told) -> None:
        """Tell where a folder is moved itself; one that may not be read cannot be watched, and is left out."""
        self._add(folder_path, _MOVED_ITSELF | _ONLY_FOLDERS, told, is_needed=os.access(folder_path, os.R_OK))

    def writes(self, file_path: str, told: Told) -> None:
        """Tell where the content of a file is written; modes, times and links to it do not count."""
        self._add(file_path, _WRITTEN, told)

    def opens(self, folder_path: str, opened: Told, written: Told) -> bool:
        """Tell of the entries of a folder that are opened, and of those that were open for writing.

        False where the system does not watch it; that is no ``fault``.
        """
        return self._add(folder_path, _OPENED | _ONLY_FOLDERS, opened, is_needed=False) and self._add(
            folder_path, _CLOSED_WRITABLE | _ONLY_FOLDERS, written, is_needed=False
        )

    def _add(self, path: str, kinds: int, told: Told, *, is_needed: bool = True) -> bool:
        if self.fd < 0:
            return False
        number = self._add_watch(self.fd, os.fsencode(path), kinds | _NO_LINKS | _ADD)
        if number >= 0:
            self._told.setdefault(number, []).append((kinds, told))
        elif is_needed and os.path.lexists(path):
            self.fault = self.fault or f"the system does not watch {path} (fs.inotify.max_user_watches)"
        return number >= 0

    def read(self) -> None:
        """Take everything out of the queue."""
        while self.fd >= 0:
            try:
                data = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                number, kinds, _, length = _HEAD.unpack_from(data, at)
                name = data[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0")
                at += _HEAD.size + length
                if kinds & _OVERFLOW:
                    self.fault = self.fault or "more happened than the system's queue of events holds"
                for asked_for, told in self._told.get(number, ()):
                    if kinds & asked_for:
                        told(os.fsdecode(name), bool(kinds & _IS_FOLDER))
