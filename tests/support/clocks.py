"""A clock for time limits: the limit is over when the command got as far as the test needs, on any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omx_autoresearch.system.clock import SystemClock

if TYPE_CHECKING:
    from pathlib import Path


class ClockUntil(SystemClock):
    """The machine's clock, and a day ahead of it as soon as a file is there.

    A command makes the file and then prints something: its supervisor looks at the clock whenever it is woken.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def monotonic(self) -> float:
        return super().monotonic() + (86400.0 if self._path.exists() else 0.0)
