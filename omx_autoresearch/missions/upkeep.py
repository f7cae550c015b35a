"""The upkeep of the state home: whether records can be made there, what killed processes left, and how much it grows.

The gate lets a session go where it cannot record, so ``doctor`` and ``status`` try the real folders, not a copy. Every
verb of the owner, and ``doctor``, removes what is left of writers that were killed. Outputs of runs are bounded; whole
missions go by ``remove`` and ``list --prune``.
"""

from __future__ import annotations

import contextlib
import errno
import os

from omx_autoresearch.foundation.errors import (
    AutoresearchError,
    StateUntrusted,
    StepIllegal,
    StorageFailed,
    WorkspaceFault,
)
from omx_autoresearch.foundation.times import UTC, datetime, seconds_between
from omx_autoresearch.journal.safe_files import (
    Lock,
    is_abandoned,
    names_in,
    open_regular,
    replace_file,
    storage_failed,
    sweep_temporary,
    temporary_name,
)
from omx_autoresearch.missions.registry import Registry
from omx_autoresearch.missions.rules.mission import FINAL_PHASES
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.system.clock import format_time
from omx_autoresearch.system.files import list_folder, remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from omx_autoresearch.journal.layout import MissionFolder, Runtime, StateHome
    from omx_autoresearch.missions.registry import ActiveSession
    from omx_autoresearch.missions.rules.mission import Mission

LEAST_FREE_BYTES = 1024 * 1024
"""With less free space than this a disk counts as full."""
OUTDATED_DAYS = 30
"""Logs of faults, and what sessions were told, are removed after so many days."""
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
    home, told_path = runtime.home, os.path.dirname(runtime.home.told_path(""))
    folders = [home.root_path, home.approved_path, told_path]
    oldest = runtime.clock.now().timestamp() - OUTDATED_DAYS * 86400
    removed = _outdated((told_path, os.path.join(home.root_path, "faults")), oldest)
    try:
        for name in filter(is_abandoned, names_in(home.missions_path)):
            remove(os.path.join(home.missions_path, name))
            removed.append(os.path.join(home.missions_path, name))
        folders += [home.mission(task_id).root_path for task_id in MissionStore(home).task_ids()]
        for path in folders:
            removed += [os.path.join(path, name) for name in sweep_temporary(path)]
        removed += Registry(home).remove_if(lambda entry: _is_over(home, entry, runtime.now()))
    except (StorageFailed, WorkspaceFault):
        pass
    return tuple(removed)


def _outdated(folder_paths: Iterable[str], oldest: float) -> list[str]:
    """Remove the files of folders that were changed before ``oldest``, in seconds since 1970; returns their paths."""
    removed = []
    for folder_path in folder_paths:
        with contextlib.suppress(OSError):
            for entry in list_folder(folder_path):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)
                    removed.append(entry.path)
    return removed


def _is_over(home: StateHome, entry: ActiveSession, now: str) -> bool:
    """True for an entry whose mission's journal says that it has ended, or that nobody can redeem any more."""
    if entry.expires_at and entry.expires_at < now:
        return True
    try:
        return MissionStore(home).load(entry.task_id).phase in FINAL_PHASES
    except AutoresearchError:
        return False  # a journal that is gone or broken says nothing


# --- what grows

NEWEST_OUTPUTS = 50
OUTPUTS_BYTES = 256 * 1024 * 1024
"""Of the outputs of a mission's runs so many of the newest are kept, of so many bytes together."""


def bound_outputs(folder: MissionFolder, mission: Mission) -> None:
    """Remove old outputs of runs beyond the bounds; the first, the newest, and those that verdicts rest on stay.

    What cannot be removed stays for the next run.
    """
    kept = {mission.completed_run_id, *(check.run_id for check in mission.checks)}
    if mission.attestation is not None:
        kept.add(mission.attestation.run_id)
    found = []
    with contextlib.suppress(OSError):
        for entry in list_folder(folder.outputs_path):
            status = entry.stat(follow_symlinks=False)
            found.append((status.st_mtime_ns, status.st_size, entry.name))
    size_bytes = 0
    for number, (_, size, name) in enumerate(sorted(found, reverse=True), 1):
        size_bytes += size
        is_bound = number > NEWEST_OUTPUTS or size_bytes > OUTPUTS_BYTES
        if is_bound and 1 < number < len(found) and name.removesuffix(".txt") not in kept:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder.outputs_path, name))


def ended_missions(runtime: Runtime, days: float) -> tuple[str, ...]:
    """The missions that ended more than ``days`` ago, and what a beginning left that was killed so long ago."""
    now = runtime.now()
    return tuple(
        task_id
        for task_id in MissionStore(runtime.home).task_ids()
        if (ended_at := _ended_at(runtime.home, task_id)) and seconds_between(ended_at, now) > days * 86400
    )


def _ended_at(home: StateHome, task_id: str) -> str:
    """When a mission ended, or its beginning was killed; empty for one that is neither, or cannot be read."""
    store, folder = MissionStore(home), home.mission(task_id)
    try:
        if store.exists(task_id):
            mission = store.load(task_id)
            return mission.updated_at if mission.phase in FINAL_PHASES else ""
        changed_at = os.stat(folder.root_path).st_mtime
    except (AutoresearchError, OSError):
        return ""
    return format_time(datetime.fromtimestamp(changed_at, UTC))


def remove_mission(runtime: Runtime, task_id: str) -> None:
    """Remove all that the state home has of a mission that is over, was never launched, or cannot be read.

    Its files in the project stay. A removal that was killed is finished by :func:`sweep`.

    Raises:
        StepIllegal: the mission is under way.
        StorageFailed: it cannot be read whether it is, or its folder cannot be moved away.
        WorkspaceFault: a part of the folder cannot be removed.
    """
    home, store = runtime.home, MissionStore(runtime.home)
    try:
        if store.exists(task_id) and (phase := store.load(task_id).phase) not in ("draft", *FINAL_PHASES):
            raise StepIllegal(
                f"mission {task_id} is {phase}",
                next_step=f"omx-autoresearch cancel {task_id}",
            )
        for key in _approved_keys(store, task_id):
            remove(os.path.join(home.approved_path, key))
    except StateUntrusted as error:
        if isinstance(error, StorageFailed):
            raise
    Registry(home).remove_task(task_id)
    folder_path = home.mission(task_id).root_path
    doomed_path = os.path.join(home.missions_path, temporary_name())
    try:
        os.rename(folder_path, doomed_path)
    except FileNotFoundError:
        return  # only a session knew of it
    except OSError as error:
        raise storage_failed("remove", folder_path, error) from error
    remove(doomed_path)


def _approved_keys(store: MissionStore, task_id: str) -> list[str]:
    if not store.exists(task_id):
        return []
    return [
        str(entry.data["key"]) for entry in store.journal(task_id).read() if entry.kind == "commands_approved"
    ]
