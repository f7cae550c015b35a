"""What a stop records of the iteration that it ends, for the iteration log; and what it says of readiness."""

from __future__ import annotations

from omx_autoresearch.core.evidence import missing_items
from omx_autoresearch.storage import heartbeat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.core.evidence import Missing
    from omx_autoresearch.core.findings import Look
    from omx_autoresearch.core.mission import Mission
    from omx_autoresearch.core.records.findings import ReadinessBlocked


def iteration_facts(mission: Mission, heartbeat_path: str, *, is_iteration: bool) -> dict[str, Any]:
    """The fields of :class:`~omx_autoresearch.core.records.stops.StopFacts` that tell of the iteration."""
    if not is_iteration:
        return {}
    run, last = mission.attestation, mission.last_stop
    is_current = run is not None and run.contract_digest == mission.contract_digest
    return {
        "iteration": mission.iteration + 1,
        "began_at": last.at if last is not None else mission.running_since,
        "tool_count": heartbeat.tools_after(heartbeat_path, mission.turn_heartbeat_bytes),
        "direction": mission.current_direction,
        "evidence_ids": mission.turn_evidence_ids,
        "verdict": run.verdict if run is not None and is_current else "",
        "run_id": run.run_id if run is not None and is_current else "",
    }


def readiness_blocked(
    mission: Mission, look: Look | None, missing: tuple[Missing, ...], reason_code: str
) -> tuple[ReadinessBlocked, ...]:
    """The notice that the contract's verdict is there and more is needed; told once as long as the reason stays."""
    last = mission.last_stop
    if look is None or not missing or missing_items(mission, look):
        return ()
    if last is not None and last.reason_code == reason_code:
        return ()
    from omx_autoresearch.core.records.findings import ReadinessBlocked

    return (ReadinessBlocked(tuple(item.code for item in missing)),)
