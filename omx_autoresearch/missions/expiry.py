"""When a binding has expired: a session that nobody heard of for long holds nobody, until a person speaks."""

from __future__ import annotations

from omx_autoresearch.foundation.times import seconds_between
from omx_autoresearch.missions import heartbeat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.mission import Mission


def is_expired(runtime: Runtime, mission: Mission, now: str) -> bool:
    """True when the bound session was not heard of for longer than ``session_idle_hours``.

    A person's ``resume`` or ``unblock`` counts as hearing of it.
    """
    if mission.binding is None:
        return True
    return seconds_unheard(runtime, mission, now) > mission.limits.session_idle_hours * 3600


def seconds_unheard(runtime: Runtime, mission: Mission, now: str) -> float:
    """How long nobody heard of a bound mission, in seconds; 0 for one that holds nobody."""
    if mission.binding is None:
        return 0.0
    last = heartbeat.last_beat(runtime.home.mission(mission.task_id).heartbeat_path)
    newest = max(last.at if last else "", mission.binding.at, mission.running_since)
    return seconds_between(newest, now)
