"""What may be spent and what was: the finite allowances that every refusal draws on.

Counters stand between an agent and an endless loop. None is unlimited by accident: a limit is a positive finite number,
a whole one where it counts, and :func:`check_limits` refuses anything else with the field's name.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, fields, replace


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
        wait_refusals: refusals because a validation of ours still runs, between two strong progresses.
        wall_clock_hours: from launch; time in ``paused`` and ``blocked`` is not charged.
        session_idle_hours: a binding without any event for this long has expired.
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


@dataclass(frozen=True, slots=True)
class Usage:
    """What was spent of :class:`Limits`.

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
    """Why these limits cannot stand, a sentence a fault; empty when they can."""
    faults = []
    for item in fields(limits):
        value = getattr(limits, item.name)
        is_count = isinstance(item.default, int)
        if not _is_positive(value) or (is_count and not isinstance(value, int)):
            wanted = "a positive whole number" if is_count else "a positive finite number"
            faults.append(f"limits.{item.name} must be {wanted}, received {str(value)[:40]}")
    if not faults and not limits.stale_pivot <= limits.stale_fresh <= limits.stale_stalled:
        faults.append("limits must hold stale_pivot <= stale_fresh <= stale_stalled")
    return faults


def _is_positive(value: object) -> bool:
    """True for a finite number above zero that a float can hold; True and False are no numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    from math import isfinite

    try:
        return isfinite(value) and value > 0
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
    return replace(
        limits,
        wall_clock_hours=limits.wall_clock_hours + hours,
        refusals_total=limits.refusals_total + refusals,
    )
