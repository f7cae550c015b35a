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
    """A text for people, in which the times that records store are cut to the second; a hook loads no ``re`` for it."""
    head, *rest = text.split(".")
    for part in rest:
        is_fraction = head[-9:-8] == "T" and part[:6].isdecimal() and part[6:7] == "Z"
        head += part[6:] if is_fraction else f".{part}"
    return head
