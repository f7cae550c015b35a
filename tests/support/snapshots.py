"""What tests do to the snapshots of a mission: lose them, damage them, look into them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omx_autoresearch.missions import snapshots, store

if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import MissionFolder


def paths(folder: MissionFolder) -> list[Path]:
    """The files that are there, the newest last."""
    found = [Path(folder.root_path) / name for name in snapshots.NAMES]
    return sorted((path for path in found if path.exists()), key=lambda path: os.stat(path).st_mtime_ns)


def content(folder: MissionFolder) -> dict[str, Any]:
    """What the newest one says."""
    return next(iter(snapshots.newest(folder.root_path)))[1]


def lose(folder: MissionFolder) -> None:
    """As a new process finds it, and without a snapshot."""
    store.forget(folder)
    for path in paths(folder):
        path.unlink()


def overwrite(folder: MissionFolder, data: bytes) -> None:
    """As a new process finds it, with these bytes in the place of every snapshot."""
    store.forget(folder)
    for name in snapshots.NAMES:
        (Path(folder.root_path) / name).write_bytes(data)
