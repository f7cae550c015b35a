"""The upkeep of the state home: whether records can be made there at all.

The gate lets a session go where it cannot record, so ``doctor`` and ``status`` try the real folders, not a copy.
"""

from __future__ import annotations

import contextlib
import errno
import os

from omx_autoresearch.foundation.errors import StorageFailed
from omx_autoresearch.journal.safe_files import (
    Lock,
    open_regular,
    replace_file,
    storage_failed,
    temporary_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from omx_autoresearch.journal.layout import StateHome

LEAST_FREE_BYTES = 1024 * 1024
"""With less free space than this a disk counts as full."""
_APPENDED = ("journal.jsonl", "journal.lock", "heartbeat.jsonl", "status.0.json", "status.1.json")
"""Files of a mission that a stop opens for writing."""
_ACT = "make a record in"
_TRIED_BYTES = b"\0" * 4096


def storage_fault(home: StateHome, held: Iterable[str]) -> StorageFailed | None:
    """Why a stop of one of these missions could not be recorded; None if it could be.

    Everything that a record needs is done in the state home and in the missions' folders: lock, append, flush, rename.
    What was made for that is removed.
    """
    folders = [home.missions_path] if os.path.isdir(home.missions_path) else []
    try:
        for path in (_nearest_folder(home.root_path), *folders):
            _prove(path)
        for task_id in held:
            folder = home.mission(task_id)
            if os.path.isdir(folder.root_path):  # a lost mission is told elsewhere
                _prove(folder.root_path, _APPENDED)
    except StorageFailed as error:
        return error
    return None


def _nearest_folder(path: str) -> str:
    """The folder, or the one above it in which it will be made."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _prove(folder_path: str, names: Iterable[str] = ()) -> None:
    for name in names:
        path = os.path.join(folder_path, name)
        try:
            os.close(open_regular(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise storage_failed("append to", path, error) from error
    path = os.path.join(folder_path, temporary_name())
    try:
        with Lock(path, wait_seconds=0):
            replace_file(path, _TRIED_BYTES)
        disk = os.statvfs(folder_path)
    except (OSError, StorageFailed) as error:
        cause = error.__cause__ if isinstance(error, StorageFailed) else error
        if not isinstance(cause, OSError):
            raise
        raise storage_failed(_ACT, os.path.join(folder_path, ""), cause) from cause
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
    if disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES:
        raise storage_failed(_ACT, os.path.join(folder_path, ""), OSError(errno.ENOSPC, "full"))
