"""Directions: what the agent declares, and what the owner injects.

declare   judged and recorded in one transaction, on the newest state; where the journal cannot be written, the inbox
inject    the owner's; open until the agent takes it up

``missions/claims.py`` takes in the claims of the inbox: they are remembered as tried, and nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from omx_autoresearch.foundation.errors import StepIllegal, StorageFailed
from omx_autoresearch.journal.layout import ProjectFolder, Runtime
from omx_autoresearch.missions import claims
from omx_autoresearch.missions.records.work import DirectionDeclared, DirectionInjected
from omx_autoresearch.missions.rules.directions import (
    DIRECTIONS_LIMIT,
    INJECTED_LIMIT,
    OPEN_LIMIT,
    RECENT,
    Direction,
    Tried,
    claim_text,
    direction_faults,
    direction_of,
    near,
    perturbation,
    pivot_faults,
    repeated,
)
from omx_autoresearch.missions.rules.mission import next_command
from omx_autoresearch.missions.store import MissionStore, refuse_ended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission


__all__ = ["Declared", "declare", "direction_of", "inject", "is_declared_now"]


@dataclass(frozen=True, slots=True)
class Declared:
    """The result of a declaration.

    Attributes:
        direction: as it is recorded, or would have been.
        mission: the newest state.
        repeats: the tried direction that it repeats exactly; None for a new one.
        near: the tried direction that it nearly repeats.
        faults: why it is not recorded, a sentence each; empty when it is.
        offered_axis: the axis to change next.
        inbox_file_path: of the claim that waits in the inbox; empty where the journal could be written.
    """

    direction: Direction
    mission: Mission
    repeats: Tried | None = None
    near: Tried | None = None
    faults: tuple[str, ...] = ()
    offered_axis: str = ""
    inbox_file_path: str = ""

    @property
    def is_recorded(self) -> bool:
        """It stands in the journal."""
        return not self.faults and not self.inbox_file_path

    @property
    def is_pivot_accepted(self) -> bool:
        """It was declared as a pivot, and is one."""
        return self.direction.is_pivot and self.is_recorded


def declare(runtime: Runtime, task_id: str, direction: Direction) -> Declared:
    """Declare a direction, made by :func:`direction_of`; one that is refused comes back with its faults.

    Where the journal cannot be written it waits in the inbox as a claim, which moves no counter.

    Raises:
        StepIllegal: the mission is not running.
        StorageFailed: neither journal nor inbox can be written.
    """
    store = MissionStore(runtime.home)
    mission = store.load(task_id)
    direction = _clean(direction)
    try:
        with store.transaction(task_id, runtime.now()) as transaction:
            declared = judge(transaction.mission, direction)
            if declared.faults:
                return declared
            after = transaction.record(DirectionDeclared(declared.direction))
            return replace(declared, mission=after, offered_axis=offered_axis(after))
    except StorageFailed:
        declared = judge(mission, direction)
        if declared.faults:
            return declared
        inbox_path = ProjectFolder(mission.project_path).inbox_path(task_id)
        text = claim_text(declared.direction)
        path = claims.drop_claim(inbox_path, text, verb=claims.DIRECTION_VERB, at=runtime.now())
        return replace(declared, inbox_file_path=path)


def judge(mission: Mission, direction: Direction) -> Declared:
    """The result that a declaration would have on this state; pure.

    Raises:
        StepIllegal: the mission is not running.
    """
    if mission.phase != "running":
        raise StepIllegal(
            f"mission {mission.task_id} is {mission.phase}; a direction can be declared only while it runs",
            next_step=next_command(mission),
        )
    direction, is_invited = _taken_up(mission, direction)
    tried = mission.directions
    same, similar = repeated(direction.summary, tried), near(direction.summary, tried)
    worn = None if same is None or is_invited or same.first_seen_iteration >= mission.iteration else same
    faults = direction_faults(direction.summary, direction.axes)
    if not faults:
        faults = _worn_faults(mission, direction, worn)
    if not faults and direction.is_pivot and not is_invited:
        faults = _untried_faults(direction, worn or similar)
    if not faults and direction.is_pivot:
        faults = pivot_faults(direction, _recent(mission, direction))
    return Declared(direction, mission, same, similar, tuple(faults), offered_axis(mission))


def _taken_up(mission: Mission, direction: Direction) -> tuple[Direction, bool]:
    """The owner's open direction that is meant, by its words or its fingerprint, with the axes of both."""
    for item in mission.open_directions:
        if item.fingerprint in (direction.fingerprint, direction.summary):
            axes = {**item.axes, **direction.axes}
            return direction_of(item.summary, axes, is_pivot=direction.is_pivot, by=direction.by), True
    return direction, False


def _worn_faults(mission: Mission, direction: Direction, worn: Tried | None) -> list[str]:
    if worn is not None and mission.is_after_stall and direction.by == "agent":
        told = f"{worn.summary[:80]!r} was first tried in iteration {worn.first_seen_iteration}"
        return [f"after a stall, a direction that was already tried is refused: {told}"]
    is_new = repeated(direction.summary, mission.directions) is None
    if is_new and len(mission.directions) >= DIRECTIONS_LIMIT:
        return [f"a mission remembers at most {DIRECTIONS_LIMIT} directions, and it has tried that many"]
    return []


def _untried_faults(direction: Direction, known: Tried | None) -> list[str]:
    if known is None:
        return []
    how = "repeats" if known.fingerprint == direction.fingerprint else "nearly repeats"
    return [f"a pivot must be new, but this {how} {known.summary[:80]!r}"]


def _recent(mission: Mission, direction: Direction) -> tuple[Direction, ...]:
    """The directions that a pivot is held against: the last declared ones, neither itself nor claims."""
    return tuple(
        item
        for item in mission.recent_directions
        if item.fingerprint != direction.fingerprint and item.by != "claim"
    )[-RECENT:]


def inject(runtime: Runtime, task_id: str, direction: Direction) -> Declared:
    """The owner gives a direction; the agent is told of it until it takes it up.

    Raises:
        StepIllegal: the mission has ended.
    """
    direction = replace(_clean(direction), by="owner")
    with MissionStore(runtime.home).transaction(task_id, runtime.now()) as transaction:
        mission = transaction.mission
        refuse_ended(mission, "no session works on it", next_step=next_command(mission))
        faults = direction_faults(direction.summary, direction.axes)
        if len(direction.summary) > INJECTED_LIMIT:
            faults.append(
                f"an injected direction has at most {INJECTED_LIMIT} characters, received {len(direction.summary)}"
            )
        others = [item for item in mission.open_directions if item.fingerprint != direction.fingerprint]
        if len(others) >= OPEN_LIMIT:
            faults.append(f"{OPEN_LIMIT} directions already wait for the agent")
        tried = mission.directions
        same, similar = repeated(direction.summary, tried), near(direction.summary, tried)
        declared = Declared(direction, mission, same, similar, tuple(faults), offered_axis(mission))
        if faults:
            return declared
        return replace(declared, mission=transaction.record(DirectionInjected(direction)))


def is_declared_now(mission: Mission, direction: Direction) -> bool:
    """True when the very direction was the last one declared in this iteration, by more than a claim."""
    last = mission.recent_directions[-1] if mission.recent_directions else None
    return (
        mission.turn_has_direction
        and last is not None
        and last.by != "claim"
        and (last.fingerprint, last.axes, last.is_pivot)
        == (direction.fingerprint, direction.axes, direction.is_pivot)
    )


def offered_axis(mission: Mission) -> str:
    """The axis to change next; the same for the same history."""
    return perturbation(mission.directions, mission.recent_directions)


def _clean(direction: Direction) -> Direction:
    """Without NUL bytes and lone surrogates, which no journal line holds."""
    axes = {claims.bounded_claim(name): claims.bounded_claim(value) for name, value in direction.axes.items()}
    return direction_of(
        claims.bounded_claim(direction.summary), axes, is_pivot=direction.is_pivot, by=direction.by
    )
