"""Lifecycle notices: what a host shows of a mission's life, kept newest last beside the state. The journal has all."""

from __future__ import annotations

from omx_autoresearch.core.values import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.mission import Mission

KEPT_NOTICES = 12


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


def noticed(mission: Mission, ts: str, kind: str, text: str) -> Mission:
    """The mission with one more notice; the oldest ones make room."""
    return replace(mission, notices=(*mission.notices, Notice(ts, kind, text))[-KEPT_NOTICES:])
