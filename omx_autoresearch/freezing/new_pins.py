"""Pins of files as they are now, within the bounds of what a stop can compare."""

from __future__ import annotations

import hashlib
import os
import stat

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.freezing.manifest import Pin
from omx_autoresearch.journal.safe_files import open_inside, read_chunks

PIN_LIMIT = 10_000
"""More pinned files than this would slow every stop down: a clear error at launch instead."""
PIN_LIMIT_BYTES = 1024 * 1024 * 1024


def pin_of(workspace_path: str, path: str) -> Pin:
    """The pin of a file or link as it is now.

    Raises:
        WorkspaceFault: it cannot be read.
    """
    full_path = os.path.join(workspace_path, path)
    if os.path.islink(full_path):
        text = os.fsencode(os.readlink(full_path))
        return Pin(path, "symlink", hashlib.sha256(text).hexdigest(), len(text))
    try:
        descriptor = open_inside(workspace_path, path)
        try:
            digest = hashlib.sha256()
            for chunk in read_chunks(descriptor):
                digest.update(chunk)
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise WorkspaceFault(
            f"{path} belongs to the evaluator but cannot be read: {error.strerror}",
            next_step=f"ls -l {full_path}; or exclude it: --protect '!{path}'",
        ) from error
    return Pin(path, "file", digest.hexdigest(), status.st_size, stat.S_IMODE(status.st_mode))


def check_bounds(pins: list[Pin]) -> None:
    """Refuse more bytes than can be pinned, with a `WorkspaceFault`."""
    total = sum(pin.size_bytes for pin in pins)
    if total > PIN_LIMIT_BYTES:
        paths = [pin.path for pin in sorted(pins, key=lambda pin: -pin.size_bytes)]
        raise too_many(f"{total} bytes would be pinned, more than {PIN_LIMIT_BYTES}", paths[:1])


def too_many(what: str, paths: list[str]) -> WorkspaceFault:
    """The fault for an evaluator that is too large, with the folder to leave out."""
    folders = [path.rpartition("/")[0] or path for path in paths]
    largest = max(set(folders), key=folders.count)
    return WorkspaceFault(
        f"{what}; most of that is in {largest}", next_step=f"exclude it: --protect '!{largest}'"
    )
