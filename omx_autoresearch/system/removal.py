"""Removing whatever an agent left behind: folders without permissions, read-only files, links, pipes.

A link is removed and never followed, and nothing outside the given path changes.
"""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.errors import WorkspaceFault

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def remove(path: bytes | str) -> None:
    """Remove a file or a folder with all that is in it; nothing where there is none.

    Raises:
        WorkspaceFault: something of it cannot be removed (owned by somebody else, a mount point); it is named.
    """
    raw = os.fsencode(path)
    try:
        if stat.S_ISDIR(os.lstat(raw).st_mode):
            shutil.rmtree(raw, onerror=_again_with_permission)
        else:
            os.unlink(raw)
    except FileNotFoundError:
        return
    except OSError as fault:
        where = os.fsdecode(fault.filename or raw)
        raise WorkspaceFault(
            f"{where} cannot be removed: {fault.strerror}", next_step=f"sudo rm -rf -- {where}"
        ) from fault


def _again_with_permission(act: Callable[..., Any], path: Any, info: Any) -> None:
    """Give a folder its owner's permissions back, and go on; `shutil.rmtree` calls this for what fails."""
    error = info[1]
    if isinstance(error, FileNotFoundError):
        return
    if not isinstance(error, PermissionError):
        raise error
    raw = os.fsencode(path)
    folder = raw if stat.S_ISDIR(os.lstat(raw).st_mode) else os.path.dirname(raw)
    mode = stat.S_IMODE(os.lstat(folder).st_mode)
    if mode & stat.S_IRWXU == stat.S_IRWXU:
        raise error
    os.chmod(folder, mode | stat.S_IRWXU)
    if act in (os.unlink, os.rmdir):
        act(raw)
    else:
        shutil.rmtree(raw, onerror=_again_with_permission)
