"""The record of a mission that began as another runtime's folder."""

from __future__ import annotations

from omx_autoresearch.core.records.notices import noticed
from omx_autoresearch.core.values import dataclass, field, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from omx_autoresearch.core.mission import Mission


@dataclass(frozen=True, slots=True)
class MissionAdopted:
    """What the mission was taken from; findings and directions follow as records of their own.

    Attributes:
        origin_path: the folder; it was read and not touched.
        layout: ``host``, ``own`` or ``protocol``.
        origin_task_id: its id there.
        origin_status: what it said of itself; nothing follows from it.
        origin_iteration: how far it said it was.
        finding_count: findings taken over, all of them claims.
        direction_count: directions taken over, as tried.
        digests: sha256 of each file that was read, by its name in the folder.
    """

    kind: ClassVar[str] = "mission_adopted"
    origin_path: str
    layout: str
    origin_task_id: str = ""
    origin_status: str = ""
    origin_iteration: int = 0
    finding_count: int = 0
    direction_count: int = 0
    digests: dict[str, str] = field(default_factory=dict)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """A notice, and where it comes from; counters begin at nothing."""
        text = (
            f"adopted from {self.origin_path} ({self.layout}, {self.origin_status}, iteration "
            f"{self.origin_iteration}): {self.finding_count} findings as claims, {self.direction_count} directions"
        )
        return replace(noticed(mission, ts, self.kind, text), adopted_from=self.origin_path, updated_at=ts)
