"""Guards: secondary metrics that must not get worse while the primary one gets better.

The rule compares medians over the runs of one trial. A guard holds where the candidate's median

- is not beyond ``bound`` (for ``lower``: at most the bound; for ``higher``: at least), and
- is worse than the incumbent's median of the same trial by no more than ``max_regression`` (in the metric's unit) or
  ``max_regression_percent`` (of the size of the incumbent's median; where that is 0, nothing worse is allowed).

Exactly the bound, or exactly the allowed regression, holds; a difference below one part in 10^9 is rounding. A guard
metric that is missing in any run of either side is a failure that says so.
"""

from __future__ import annotations

import math
import re
from statistics import median

from omx_autoresearch.core.decimals import decimal_of, shown
from omx_autoresearch.core.metric_names import name_faults, normal_name
from omx_autoresearch.core.metrics import Guard
from omx_autoresearch.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omx_autoresearch.core.words import MetricDirection

_ROUNDING = 1e-9
_BOUND = re.compile(r"(?P<name>.+?)\s*(?P<sign><=|>=)\s*(?P<value>[^<>=]+)")
_REGRESSION = re.compile(r"(?P<name>.+?)\s+(?P<sign>[+-])(?P<value>[^\s%+-][^\s%]*)(?P<percent>%?)")


def guard_of(text: str) -> Guard:
    """A guard as a person writes it.

    ``p99_ms<=20`` and ``throughput>=1000`` are bounds; ``peak_bytes +5%`` and ``size_bytes +100`` allow the metric
    to grow that much, ``score -2%`` and ``score -0.01`` to fall that much.

    Raises:
        UsageError: it is none of these.
    """
    stripped = text.strip()
    guard = None
    if found := _BOUND.fullmatch(stripped):
        value = decimal_of(found["value"]).value
        direction: MetricDirection = "lower" if found["sign"] == "<=" else "higher"
        guard = None if value is None else Guard(found["name"], bound=value, direction=direction)
    elif found := _REGRESSION.fullmatch(stripped):
        value = decimal_of(found["value"]).value
        direction = "lower" if found["sign"] == "+" else "higher"
        if found["percent"]:
            guard = Guard(found["name"], max_regression_percent=value, direction=direction)
        else:
            guard = Guard(found["name"], max_regression=value, direction=direction)
    faults = guard_faults(guard) if guard else ["it is neither a bound nor an allowed regression"]
    if guard is None or faults:
        raise UsageError(
            f"the guard {shown(text)} cannot be read: {faults[0]}",
            next_step="write e.g. 'p99_ms<=20', 'throughput>=1000', 'peak_bytes +5%' or 'score -0.01'",
        )
    return guard


def guard_faults(guard: Guard) -> list[str]:
    """Why a guard cannot stand; empty when it can."""
    faults = name_faults(guard.name)
    limits = (guard.bound, guard.max_regression, guard.max_regression_percent)
    if all(limit is None for limit in limits):
        faults.append(f"the guard on {shown(guard.name)} names neither a bound nor a largest regression")
    if any(limit is not None and not math.isfinite(limit) for limit in limits):
        faults.append(f"the guard on {shown(guard.name)} has a limit that is no finite number")
    if any(limit is not None and limit < 0 for limit in limits[1:]):
        faults.append(
            f"the guard on {shown(guard.name)} has a negative regression; name how much worse it may get"
        )
    return faults


def guard_failures(
    guards: Sequence[Guard],
    incumbent: Mapping[str, Sequence[float]],
    candidate: Mapping[str, Sequence[float]],
) -> tuple[str, ...]:
    """Why guards do not hold, a sentence each; empty when all hold.

    Args:
        guards: of the experiment.
        incumbent: the samples of the incumbent in this trial, by metric; NaN for a run that lacked it
            (:func:`.metrics.samples_of`).
        candidate: those of the candidate.
    """
    return tuple(
        reason for guard in guards if (reason := _failure(guard, _median_of(guard, incumbent), candidate))
    )


def _failure(guard: Guard, incumbent: float | str, candidate: Mapping[str, Sequence[float]]) -> str:
    now = _median_of(guard, candidate)
    if isinstance(now, str):
        return f"guard {guard.name}: {now} of the candidate"
    is_lower = guard.direction == "lower"
    if guard.bound is not None:
        beyond = now - guard.bound if is_lower else guard.bound - now
        if beyond > _ROUNDING * max(abs(now), abs(guard.bound)):
            word = "at most" if is_lower else "at least"
            return f"guard {guard.name}: the median is {now:g}, {word} {guard.bound:g} is allowed"
    if guard.max_regression is None and guard.max_regression_percent is None:
        return ""
    if isinstance(incumbent, str):
        return f"guard {guard.name}: {incumbent} of the incumbent"
    worse = now - incumbent if is_lower else incumbent - now
    allowances = _allowances(guard, incumbent)
    for allowed, told in allowances:
        if worse - allowed > _ROUNDING * max(abs(now), abs(incumbent)):
            return (
                f"guard {guard.name}: the median went from {incumbent:g} to {now:g}, {told} worse is allowed"
            )
    return ""


def _allowances(guard: Guard, incumbent: float) -> list[tuple[float, str]]:
    found = []
    if guard.max_regression is not None:
        found.append((guard.max_regression, f"{guard.max_regression:g}"))
    if guard.max_regression_percent is not None:
        percent = guard.max_regression_percent
        found.append((abs(incumbent) * percent / 100, f"{percent:g} %"))
    return found


def _median_of(guard: Guard, samples: Mapping[str, Sequence[float]]) -> float | str:
    """The median, or what is missing."""
    name = normal_name(guard.name)
    values = samples.get(name, ())
    missing = sum(not math.isfinite(value) for value in values)
    if not values:
        return "the metric is missing in every run"
    if missing:
        return f"the metric is missing in {missing} of {len(values)} runs"
    return float(median(values))
