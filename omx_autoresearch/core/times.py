"""Times as text, compared without a clock: every time comes in as an argument."""

from __future__ import annotations

from datetime import datetime


def seconds_between(earlier: str, later: str) -> float:
    """Seconds from ``earlier`` to ``later`` (ISO 8601, aware); never negative, so a clock set back charges nothing."""
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())
