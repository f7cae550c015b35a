"""The clock: aware UTC time for records, monotonic seconds for deadlines.

The rules take times as arguments; code that needs a clock takes one as a parameter, so that a test can pass its own. No
environment variable changes the clock: otherwise an agent could move a deadline.
"""

from __future__ import annotations

import time

from omx_autoresearch.foundation.times import UTC, datetime


class Clock:
    """A clock. `SystemClock` reads the machine's; tests derive one that they move by hand."""

    __slots__ = ()

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        raise NotImplementedError

    def monotonic(self) -> float:
        """Seconds since an arbitrary point, never decreasing; only differences have a meaning."""
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        """Wait for so many seconds."""
        raise NotImplementedError


class SystemClock(Clock):
    """The clock of this machine."""

    __slots__ = ()

    def now(self) -> datetime:
        """The current time of the machine, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds of the kernel's monotonic clock (stands still while the machine sleeps)."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Wait for so many seconds of the machine."""
        time.sleep(seconds)


def format_time(moment: datetime) -> str:
    """Format a time as records store it: ``2026-01-02T03:04:05.123456Z``.

    Raises:
        ValueError: the time has no time zone.
    """
    if moment.utcoffset() is None:
        raise ValueError(f"the time {moment.isoformat()} has no time zone")
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time(text: str) -> datetime:
    """Parse an ISO 8601 time with ``Z`` or an offset to aware UTC.

    Raises:
        ValueError: the text is not such a time, has no zone, or is outside the years 1 to 9999 in UTC.
    """
    moment = datetime.fromisoformat(text)
    if moment.utcoffset() is None:
        raise ValueError(f"the time {text!r} has no time zone (Z or an offset is needed)")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"the time {text!r} is outside the years 1 to 9999") from None
