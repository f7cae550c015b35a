"""What records of the lifecycle add to the notices of a mission; no record of its own."""

from __future__ import annotations

from omx_autoresearch.core.notices import KEPT_NOTICES, Notice
from omx_autoresearch.core.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.mission import Mission


def noticed(mission: Mission, ts: str, kind: str, text: str) -> Mission:
    """The mission with one more notice; the oldest ones make room."""
    return replace(mission, notices=(*mission.notices, Notice(ts, kind, text))[-KEPT_NOTICES:])
