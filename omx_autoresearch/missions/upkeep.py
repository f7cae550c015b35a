"""The upkeep of the state home: whether records can be made there at all, and what killed processes left there.

The gate lets a session go where it cannot record, so ``doctor`` and ``status`` try the real folders, not a copy. Every
verb of the owner, and ``doctor``, removes what is left of writers that were killed.
"""

from __future__ import annotations

import contextlib
import errno
import os

from omx_autoresearch.foundation.errors import AutoresearchError, StorageFailed
from omx_autoresearch.journal.safe_files import (
    Lock,
    open_regular,
    replace_file,
    storage_failed,
    sweep_temporary,
    temporary_name,
)
from omx_autoresearch.missions.registry import Registry
from omx_autoresearch.missions.rules.mission import FINAL_PHASES
from omx_autoresearch.missions.store import MissionStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from omx_autoresearch.journal.layout import Runtime, StateHome
    from omx_autoresearch.missions.registry import ActiveSession

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


def sweep(runtime: Runtime) -> tuple[str, ...]:
    """Remove what killed processes left: temporary files, and entries of sessions whose mission has ended.

    What cannot be removed stays for the next time.

    Returns:
        the paths that were removed.
    """
    home = runtime.home
    folders = [home.root_path, home.approved_path, os.path.dirname(home.told_path(""))]
    removed: list[str] = []
    try:
        folders += [home.mission(task_id).root_path for task_id in MissionStore(home).task_ids()]
        for path in folders:
            removed += [os.path.join(path, name) for name in sweep_temporary(path)]
        removed += Registry(home).remove_if(lambda entry: _is_over(home, entry, runtime.now()))
    except StorageFailed:
        pass
    return tuple(removed)


def _is_over(home: StateHome, entry: ActiveSession, now: str) -> bool:
    """True for an entry whose mission's journal says that it has ended, or that nobody can redeem any more."""
    if entry.expires_at and entry.expires_at < now:
        return True
    try:
        return MissionStore(home).load(entry.task_id).phase in FINAL_PHASES
    except AutoresearchError:
        return False  # a journal that is gone or broken says nothing
