"""Times as text, compared without a clock: every time is an argument."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import UTC, datetime
else:
    # The module under `datetime`, whose own Python file is 1 ms of definitions that are thrown away.
    try:
        from _datetime import UTC, datetime
    except ImportError:
        from datetime import UTC, datetime

__all__ = ["UTC", "datetime", "seconds_between", "to_the_second"]


def seconds_between(earlier: str, later: str) -> float:
    """Seconds from ``earlier`` to ``later`` (ISO 8601, aware); never negative, so a clock set back charges nothing."""
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())


def to_the_second(text: str) -> str:
    """A text for people with the times in it, as records store them, cut to the second."""
    import re

    return re.sub(r"(\dT\d\d:\d\d:\d\d)\.\d{6}Z", r"\1Z", text)
