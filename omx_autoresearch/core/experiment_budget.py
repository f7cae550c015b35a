"""What an experiment may still spend, which budget is spent, and how a cost is charged.

Every limit and every usage is a finite number that never falls; what could poison a total (NaN, infinity, a negative
number, text) is refused where it comes in, so a budget always ends a loop.
"""

from __future__ import annotations

from omx_autoresearch.core.experiments import ExperimentLimits, ExperimentUsage
from omx_autoresearch.core.values import dataclass, fields, replace
from omx_autoresearch.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.experiments import CompletedReason

_ENDLESS = float("inf")
_REASONS: tuple[tuple[str, CompletedReason], ...] = (
    ("wall_seconds", "budget_wall"),
    ("cost_usd", "budget_cost"),
    ("disk_bytes", "budget_disk"),
    ("runs", "budget_runs"),
    ("trials", "budget_trials"),
)
_BEFORE_TRIALS = ("trials", "cost_usd")


@dataclass(frozen=True, slots=True)
class BudgetLeft:
    """What may still be spent, in the units of `ExperimentLimits`; None where there is no limit; never below 0."""

    trials: int | None
    wall_seconds: float | None
    cost_usd: float | None
    disk_bytes: int | None
    runs: int | None


def budget_left(limits: ExperimentLimits, usage: ExperimentUsage) -> BudgetLeft:
    """What may still be spent."""
    left = {}
    for name, _ in _REASONS:
        limit = getattr(limits, name)
        left[name] = max(0, limit - getattr(usage, name)) if limit else None
    return BudgetLeft(**left)


def spent_budget(
    limits: ExperimentLimits, usage: ExperimentUsage, *, is_in_trial: bool = False
) -> CompletedReason | None:
    """The budget that is spent, None where none is.

    Within a trial neither the number of trials nor the cost counts: the one under way was admitted, its agent is paid,
    and what is left of it costs nothing.
    """
    for name, reason in _REASONS:
        limit = getattr(limits, name)
        if limit and getattr(usage, name) >= limit and not (is_in_trial and name in _BEFORE_TRIALS):
            return reason
    return None


def checked_cost(cost: object) -> float:
    """The cost that a host reported, when it is one: a finite number of dollars, not negative.

    Raises:
        UsageError: it is something else; a total is never poisoned.
    """
    if isinstance(cost, bool) or not isinstance(cost, (int, float)):
        raise UsageError(
            f"cost_usd: a number of dollars is needed, received {repr(cost)[:80]}", next_step=_COST_NEXT
        )
    if not 0 <= cost < _ENDLESS:  # false for NaN, too
        raise UsageError(
            f"cost_usd: a finite number that is not negative is needed, received {cost!r}",
            next_step=_COST_NEXT,
        )
    return float(cost)


_COST_NEXT = "report what the turn cost in dollars, 0.0 where it is not known"


def charge(
    usage: ExperimentUsage,
    *,
    cost_usd: object = 0.0,
    runs: int = 0,
    trials: int = 0,
    wall_seconds: float = 0.0,
) -> ExperimentUsage:
    """The usage after some more was spent.

    Raises:
        UsageError: the cost is none, or the total would not be finite any more.
    """
    total = usage.cost_usd + checked_cost(cost_usd)
    if not total < _ENDLESS:
        raise UsageError(
            f"cost_usd: the total {usage.cost_usd!r} and {cost_usd!r} are no finite number together",
            next_step=_COST_NEXT,
        )
    return replace(
        usage,
        cost_usd=total,
        runs=usage.runs + runs,
        trials=usage.trials + trials,
        wall_seconds=usage.wall_seconds + max(0.0, wall_seconds),
    )


def limit_faults(limits: ExperimentLimits) -> tuple[str, ...]:
    """What is wrong with limits, a sentence each; empty where nothing is. 0 is no limit."""
    faults = []
    for known in fields(limits):
        value = getattr(limits, known.name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 <= value < _ENDLESS:
            faults.append(
                f"limits.{known.name}: a finite number that is not negative is needed (0 for none), "
                f"received {repr(value)[:80]}"
            )
    return tuple(faults)
