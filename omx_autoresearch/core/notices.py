"""Lifecycle notices: what a host shows of a mission's life, kept newest last beside the state. The journal has all."""

from __future__ import annotations

from omx_autoresearch.core.values import dataclass

KEPT_NOTICES = 16


@dataclass(frozen=True, slots=True)
class Notice:
    """Something in a mission's life that its owner, or a host, should see.

    Attributes:
        at: when, ISO 8601 UTC; empty for what is true now and was no event.
        kind: of the record that says it, or a word for what is true now.
        text: one line.
    """

    at: str
    kind: str
    text: str
