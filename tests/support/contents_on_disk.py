"""What stands in a folder, byte by byte, for tests that say what must and must not have changed."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def contents(root: Path, *, without: tuple[str, ...] = (".git",)) -> dict[str, tuple[str, int, bytes]]:
    """From relative paths to kind, permission bits and content; links are not followed."""
    found: dict[str, tuple[str, int, bytes]] = {}
    for folder, folders, names in os.walk(os.fsencode(root)):
        folders[:] = [name for name in folders if os.fsdecode(name) not in without]
        for name in [*folders, *names]:
            path = os.path.join(folder, name)
            shown = os.fsdecode(os.path.relpath(path, os.fsencode(root)))
            if shown in without:
                continue
            status = os.lstat(path)
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                found[shown] = ("link", mode, os.readlink(path))
            elif stat.S_ISDIR(status.st_mode):
                found[shown] = ("folder", mode, b"")
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as stream:
                    found[shown] = ("file", mode, stream.read())
            else:
                found[shown] = ("special", mode, b"")
    return found


def everything(root: Path) -> dict[str, tuple[str, int, bytes]]:
    """`contents` with the git directory, but for objects and the reference that keeps a base commit."""
    return {
        path: found
        for path, found in contents(root, without=()).items()
        if not path.startswith((".git/objects", ".git/refs/omx-autoresearch"))
    }


def script(path: Path, text: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
