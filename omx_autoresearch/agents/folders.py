"""Where a client keeps its files, as far as all clients agree: below the user's home."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def home_path(environ: Mapping[str, str]) -> str:
    """Give the user's home folder: ``HOME``, else what the system says."""
    return environ.get("HOME") or os.path.expanduser("~")


def without_waiting(path: str, flags: int) -> int:
    """Be the ``opener`` of :func:`open` where somebody may have put a pipe in the place of a file: it reads empty."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
