"""What every use case is given: where the truth stands, what time it is, whose environment this is."""

from __future__ import annotations

import os

from omx_autoresearch.foundation.records import dataclass, field
from omx_autoresearch.journal.layout import StateHome, state_home
from omx_autoresearch.system.clock import Clock, SystemClock, format_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def random_id() -> str:
    """Twelve hex digits from the operating system."""
    return os.urandom(6).hex()


@dataclass(frozen=True, slots=True)
class Runtime:
    """The world as a use case sees it.

    Attributes:
        home: where journals, registry and approvals stand.
        clock: the only source of time.
        environ: the environment of the caller.
        new_id: the only source of randomness.
        shell_marks: environment variables that agents' shells carry (facts of the dialects).
        sources: what missions ask of other parts of the runtime, by question; the door hands it in, since missions
            import none of them (``surfaces/sources.py``).
    """

    home: StateHome
    clock: Clock = field(default_factory=SystemClock)
    environ: Mapping[str, str] = field(default_factory=dict)
    new_id: Callable[[], str] = random_id
    shell_marks: tuple[str, ...] = ()
    sources: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    @classmethod
    def of_process(cls, *, home_path: str = "", shell_marks: tuple[str, ...] = ()) -> Runtime:
        """The runtime of this process; ``home_path`` where the installer baked one in."""
        return cls(
            home=StateHome(home_path or state_home(os.environ)),
            environ=dict(os.environ),
            shell_marks=shell_marks,
        )

    def now(self) -> str:
        """The time as it stands in records."""
        return format_time(self.clock.now())
