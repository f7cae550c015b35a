"""Records of directions: what was declared, what the runtime demanded."""

from __future__ import annotations

from omx_autoresearch.core.directions import Direction, Tried
from omx_autoresearch.core.shape import nested
from omx_autoresearch.core.values import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from omx_autoresearch.core.mission import Mission

KEPT_RECENT = 8


@dataclass(frozen=True, slots=True)
class DirectionDeclared:
    """A direction was declared, by the agent or injected by the owner."""

    kind: ClassVar[str] = "direction_declared"
    direction: Direction = nested(Direction)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The current direction; a repeated one is remembered for the stop that ends this iteration."""
        new = self.direction
        known = next((item for item in mission.directions if item.fingerprint == new.fingerprint), None)
        iteration = mission.iteration
        if known is None:
            tried = (*mission.directions, Tried(new.fingerprint, new.summary, iteration, iteration, 1))
        else:
            more = replace(known, last_seen_iteration=iteration, count=known.count + 1)
            tried = tuple(more if item is known else item for item in mission.directions)
        is_untried_pivot = new.is_pivot and known is None
        return replace(
            mission,
            directions=tried,
            recent_directions=(*mission.recent_directions, new)[-KEPT_RECENT:],
            pivot_count=mission.pivot_count + (1 if is_untried_pivot else 0),
            turn_has_pivot=mission.turn_has_pivot or is_untried_pivot,
            turn_has_direction=True,
            turn_repeats_direction=mission.turn_repeats_direction
            or (known is not None and new.by == "agent"),
            updated_at=ts,
        )


@dataclass(frozen=True, slots=True)
class PivotRequired:
    """The stale count reached the point at which a change of structure is demanded."""

    kind: ClassVar[str] = "pivot_required"
    stale: int
    axis: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Shown; the count itself stands in the usage."""
        return replace(mission, updated_at=ts)
