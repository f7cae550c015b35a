"""What an experiment may still spend, which budget is spent, and how a cost is charged.

Every limit and every usage is a finite number that never falls; what could poison a total (NaN, infinity, a negative
number, text) is refused where it comes in, so a budget always ends a loop.
"""

from __future__ import annotations

from omx_autoresearch.experiments.judge.decision import guard_faults
from omx_autoresearch.experiments.judge.metrics import spec_faults
from omx_autoresearch.experiments.judge.rule import check_rule
from omx_autoresearch.experiments.judge.state import (
    CompletedReason,
    ExperimentConfig,
    ExperimentLimits,
    ExperimentUsage,
)
from omx_autoresearch.foundation.errors import MissionInvalid, UsageError
from omx_autoresearch.foundation.records import dataclass, fields, replace

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


# --- Whether an experiment can be run as it is configured; every fault is told at once.

NAME_LIMIT = 200
COMMAND_LIMIT = 20_000
PAIR_LIMIT = 1000

_INFINITY = float("inf")


def checked_config(config: ExperimentConfig) -> ExperimentConfig:
    """The configuration as it is run: the rule judges in the direction of the metric.

    Raises:
        MissionInvalid: it cannot be run; the message names every fault.
    """
    faults = config_faults(config)
    if faults:
        raise MissionInvalid(
            f"the experiment cannot be run as it is configured: {'; '.join(faults)}",
            next_step="mend the configuration and start again",
        )
    return replace(config, rule=replace(config.rule, direction=config.metric.direction))


def config_faults(config: ExperimentConfig) -> tuple[str, ...]:
    """What is wrong, a sentence each; empty where nothing is."""
    return (
        *_text_faults(config),
        *spec_faults(config.metric),
        *(fault for guard in config.guards for fault in guard_faults(guard)),
        *_rule_faults(config),
        *limit_faults(config.limits),
        *_number_faults(config),
    )


def _text_faults(config: ExperimentConfig) -> list[str]:
    faults = []
    if not config.name.strip() or len(config.name) > NAME_LIMIT:
        faults.append(f"name: a text of 1 to {NAME_LIMIT} characters is needed")
    faults += [
        f"{name}: a shell command is needed"
        for name in ("measure", "check")
        if not getattr(config, name).strip()
    ]
    for name in ("name", "measure", "check", "setup", "reset_caches", "held_out"):
        text = getattr(config, name)
        if "\0" in text:
            faults.append(f"{name}: it holds a NUL character")
        if len(text) > COMMAND_LIMIT:
            faults.append(f"{name}: {len(text)} characters; at most {COMMAND_LIMIT} are taken")
    for name, value in config.env.items():
        if not name or "=" in name or "\0" in name + value:
            faults.append(f"env: {name[:80]!r} is no name of a variable, or its value holds a NUL character")
    for name in ("keep", "link"):
        faults += [f"{name}: {fault}" for path in getattr(config, name) if (fault := _path_fault(path))]
    return faults


def _path_fault(path: str) -> str:
    parts = path.rstrip("/").split("/")
    if not path or path.startswith("/") or "\0" in path or ".." in parts or ".git" in parts or parts == ["."]:
        return f"{path[:80]!r} is no path within the repository"
    return ""


def _rule_faults(config: ExperimentConfig) -> list[str]:
    try:
        check_rule(config.rule)
    except UsageError as error:
        return [error.message]
    return []


def _number_faults(config: ExperimentConfig) -> list[str]:
    faults = []
    for name in ("calibration_pairs", "claim_pairs"):
        value = getattr(config, name)
        if type(value) is not int or not 2 <= value <= PAIR_LIMIT:
            faults.append(f"{name}: a whole number from 2 to {PAIR_LIMIT} is needed, received {value!r}")
    seconds = config.measure_timeout_seconds
    if not _is_finite(seconds) or seconds <= 0:
        faults.append(f"measure_timeout_seconds: a finite number above 0 is needed, received {seconds!r}")
    faults += [
        f"{name}: a finite number from 0 on is needed, received {getattr(config, name)!r}"
        for name in ("check_timeout_seconds", "hypothesis_timeout_seconds")
        if not _is_finite(getattr(config, name)) or getattr(config, name) < 0
    ]
    if config.target is not None and not _is_finite(config.target):
        faults.append(f"target: a finite number is needed, received {config.target!r}")
    return faults


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_INFINITY < value < _INFINITY
