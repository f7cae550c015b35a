"""Records of directions: what was declared, what the owner injected, what the runtime demanded."""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, nested, replace
from omx_autoresearch.missions.rules.directions import (
    DIRECTIONS_LIMIT,
    OPEN_LIMIT,
    Direction,
    Tried,
    direction_faults,
    kept,
    near_key,
)
from omx_autoresearch.missions.rules.lifecycle import FINAL_PHASES
from omx_autoresearch.missions.rules.mission import Mission, noticed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


KEPT_RECENT = 8


@dataclass(frozen=True, slots=True)
class DirectionDeclared:
    """A direction was declared: by the agent, by the owner, or as a claim that came through the inbox."""

    kind: ClassVar[str] = "direction_declared"
    direction: Direction = nested(Direction)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The current direction; what it means for the iteration is remembered for the stop that ends it.

        A claim is remembered as tried and moves nothing else. One that the owner injected is no repetition, and
        neither is the same direction twice in one iteration.
        """
        new = self.direction
        known = next((item for item in mission.directions if item.fingerprint == new.fingerprint), None)
        is_invited = any(item.fingerprint == new.fingerprint for item in mission.open_directions)
        is_same_iteration = known is not None and known.first_seen_iteration >= mission.iteration
        if new.by == "claim" and known is not None and known.last_seen_iteration >= mission.iteration:
            return replace(mission, updated_at=ts)  # the claim of a direction that was declared meanwhile
        before = mission.recent_directions
        mission = replace(
            mission,
            directions=_tried(mission, new, known),
            recent_directions=(*before, kept(new))[-KEPT_RECENT:],
            updated_at=ts,
        )
        if new.by == "claim":
            return mission
        is_pivot = new.is_pivot and (known is None or is_same_iteration or is_invited)
        is_counted = any(item.is_pivot and item.fingerprint == new.fingerprint for item in before)
        is_repeated = known is not None and not is_same_iteration and not is_invited and new.by == "agent"
        return replace(
            mission,
            open_directions=tuple(
                item for item in mission.open_directions if item.fingerprint != new.fingerprint
            ),
            pivot_count=mission.pivot_count + (1 if is_pivot and not is_counted else 0),
            turn_has_direction=True,
            turn_has_pivot=mission.turn_has_pivot or is_pivot,
            turn_repeats_direction=mission.turn_repeats_direction or is_repeated,
        )


def claimed(mission: Mission, direction: Direction) -> DirectionDeclared | None:
    """The record of a direction that came as a claim; None for one that cannot stand."""
    if direction_faults(direction.summary, direction.axes) or mission.phase in FINAL_PHASES:
        return None
    if len(mission.directions) >= DIRECTIONS_LIMIT:
        return None
    return DirectionDeclared(replace(direction, by="claim", is_pivot=False))


def _tried(mission: Mission, new: Direction, known: Tried | None) -> tuple[Tried, ...]:
    """Every direction tried, with this one."""
    iteration = mission.iteration
    if known is None:
        summary, key = kept(new).summary, near_key(new.summary)
        return (*mission.directions, Tried(new.fingerprint, summary, iteration, iteration, 1, key))
    more = replace(known, last_seen_iteration=iteration, count=known.count + 1)
    return tuple(more if item is known else item for item in mission.directions)


@dataclass(frozen=True, slots=True)
class DirectionInjected:
    """The owner gave a direction: it is open until the agent takes it up."""

    kind: ClassVar[str] = "direction_injected"
    direction: Direction = nested(Direction)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Shown to the agent by the next summary and refusal."""
        older = (item for item in mission.open_directions if item.fingerprint != self.direction.fingerprint)
        return replace(mission, open_directions=(*older, self.direction)[-OPEN_LIMIT:], updated_at=ts)


@dataclass(frozen=True, slots=True)
class PivotRequired:
    """The stale count reached the point at which a change of structure is demanded; ``axis`` is offered."""

    kind: ClassVar[str] = "pivot_required"
    stale: int
    axis: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """A notice; the count itself stands in the usage."""
        text = f"{self.stale} iterations without progress: a structural pivot is required; offered axis {self.axis}"
        return replace(noticed(mission, ts, self.kind, text), updated_at=ts)
