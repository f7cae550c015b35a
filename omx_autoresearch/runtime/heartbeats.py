"""A heartbeat that could not be written: warned of, recorded once a turn, and no reason to hold or release anybody."""

from __future__ import annotations

from omx_autoresearch.errors import AutoresearchError
from omx_autoresearch.storage.missions import MissionStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.mission import Mission
    from omx_autoresearch.runtime.context import Runtime


def note_failed_heartbeat(runtime: Runtime, mission: Mission, status: str, error: OSError) -> None:
    """Record that a heartbeat failed, where the journal can be written and has not said it in this turn."""
    if mission.turn_heartbeat_failed:
        return
    from omx_autoresearch.core.records.sessions import HeartbeatFailed

    try:
        with MissionStore(runtime.home).transaction(mission.task_id, runtime.now()) as transaction:
            if not transaction.mission.turn_heartbeat_failed:
                transaction.record(HeartbeatFailed(status, error.strerror or type(error).__name__))
    except AutoresearchError:
        return  # the disk that refuses the one will refuse the other
