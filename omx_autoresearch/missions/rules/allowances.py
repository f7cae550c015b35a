"""The allowances that every refusal draws on, and what was spent of them.

Each is finite, or an agent could loop for ever: :func:`check_limits` refuses anything but a positive finite number.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, fields, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeGuard


@dataclass(frozen=True, slots=True)
class Limits:
    """The owner's allowances for one mission.

    Attributes:
        idle_refusals: refusals in a row without a tool event between them.
        stale_pivot: stale count at which a structural pivot is demanded.
        stale_fresh: stale count at which a fresh direction is offered.
        stale_stalled: stale count at which the mission is stalled.
        weak_holds: weak progress holds the stale count at most this often between two strong ones.
        refusals_total: refusals of the whole mission, until the owner adds some.
        background_allows: stops let through for the client's own background work between two strong progresses.
        wait_refusals: refusals because a validation still runs, between two strong progresses.
        wall_clock_hours: from launch; time in ``paused`` and ``blocked`` is not charged.
        session_idle_hours: a binding without any event for this long has expired.
        reviews: verdicts by the reviewer command or by other sessions, of the whole mission.
    """

    idle_refusals: int = 3
    stale_pivot: int = 2
    stale_fresh: int = 3
    stale_stalled: int = 4
    weak_holds: int = 40
    refusals_total: int = 200
    background_allows: int = 8
    wait_refusals: int = 6
    wall_clock_hours: float = 24.0
    session_idle_hours: float = 24.0
    reviews: int = 12


@dataclass(frozen=True, slots=True)
class Usage:
    """The part of :class:`Limits` that is spent.

    Attributes:
        refusals: counted refusals of the mission.
        idle_refusals: counted refusals since the last tool event or person's prompt.
        refusals_in_row: refusals since the last answer of another kind or a person's prompt (for client caps).
        stale: iterations without progress since the last strong progress.
        weak_holds: times that weak progress held the stale count since the last strong progress.
        background_allows: stops let through for background work since the last strong progress.
        wait_refusals: refusals for a running validation since the last strong progress.
        tamper_refusals: refusals that named ``restore`` since the pinned files were last put back.
        seconds_running: time charged so far, up to the last phase change.
        repeats: times in a row that the agent's answer was the same and no tool ran.
    """

    refusals: int = 0
    idle_refusals: int = 0
    refusals_in_row: int = 0
    stale: int = 0
    weak_holds: int = 0
    background_allows: int = 0
    wait_refusals: int = 0
    tamper_refusals: int = 0
    seconds_running: float = 0.0
    repeats: int = 0


def check_limits(limits: Limits) -> list[str]:
    """The faults of these limits, a sentence each; empty when they are valid."""
    faults = []
    for item in fields(limits):
        value = getattr(limits, item.name)
        is_count = isinstance(item.default, int)
        if not is_finite_number(value) or value <= 0 or (is_count and not isinstance(value, int)):
            wanted = "a positive whole number" if is_count else "a positive finite number"
            faults.append(f"limits.{item.name} must be {wanted}, received {str(value)[:40]}")
    if not faults and not limits.stale_pivot <= limits.stale_fresh <= limits.stale_stalled:
        faults.append("limits must satisfy stale_pivot <= stale_fresh <= stale_stalled")
    return faults


def is_finite_number(value: object) -> TypeGuard[int | float]:
    """True for a number that a float can hold, neither infinite nor NaN; True and False are no numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return float(value) - float(value) == 0.0  # not isfinite: loading math costs a hook time
    except OverflowError:
        return False


def refreshed(usage: Usage) -> Usage:
    """After ``resume``, ``unblock`` or ``amend``: stall and idle allowances begin anew, what was spent stays spent."""
    return replace(
        usage, idle_refusals=0, refusals_in_row=0, stale=0, weak_holds=0, background_allows=0, wait_refusals=0,
        tamper_refusals=0, repeats=0,
    )  # fmt: skip


def after_person_prompt(usage: Usage) -> Usage:
    """A person spoke: refusals in a row begin anew; nothing else does."""
    return replace(usage, idle_refusals=0, refusals_in_row=0, repeats=0)


def after_tool(usage: Usage, *, resets_row: bool) -> Usage:
    """A tool ran since the last refusal; ``resets_row`` where the client's own cap is reset by tools."""
    return replace(
        usage, idle_refusals=0, repeats=0, refusals_in_row=0 if resets_row else usage.refusals_in_row
    )


def extended(limits: Limits, *, hours: float = 0.0, refusals: int = 0) -> Limits:
    """The limits after ``--add-hours`` and ``--add-refusals``; :func:`check_limits` says whether they can stand."""
    hours, refusals = limits.wall_clock_hours + hours, limits.refusals_total + refusals
    return replace(limits, wall_clock_hours=hours, refusals_total=refusals)
