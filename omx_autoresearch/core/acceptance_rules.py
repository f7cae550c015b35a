"""How candidates are judged: the rule and its limits, and the stricter sibling that re-verifies an accepted step."""

from __future__ import annotations

from math import isfinite
from typing import Literal

from omx_autoresearch.core.values import dataclass, replace
from omx_autoresearch.errors import UsageError

RuleName = Literal["hybrid", "median"]
RuleDirection = Literal["lower", "higher"]
RuleScale = Literal["auto", "ratio", "difference"]

LARGEST_ALPHA = 0.5
LARGEST_PAIRS = 200
FINAL_SHARE = 0.75
"""Of alpha: what the last look at ``max_pairs`` may spend; the rest goes to the looks before it."""

MEDIAN_FALSE_ACCEPTS = 0.5
"""Of candidates without effect that the median rule accepts with threshold 0 where anything is noisy."""

VERIFIED_FALSE_ACCEPTS = 0.035
"""Expected over a mission without any real gain, after re-verification; below the 5 % that are promised."""
LARGEST_VERIFY_ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class AcceptanceRule:
    """How a candidate is judged against the incumbent.

    Attributes:
        name: ``hybrid``, the sequential rule on interleaved pairs; or ``median``, which compares two medians.
        alpha: the chance that ``hybrid`` accepts a candidate without effect, above 0 and at most 0.5.
        max_pairs: pairs after which ``hybrid`` decides, 2 to 200.
        min_effect: gain that a candidate must exceed, in the unit of the estimate: a fraction on a ratio, the metric's
            unit on a difference and under ``median``.
        direction: which values are better.
        scale: ``ratio`` for positive metrics, ``difference`` for others; ``auto`` takes what calibration fixed.
        runs: pairs that ``median`` judges.
        warmups: runs of each arm that the caller discards after its tree changed.
        has_futility: whether ``hybrid`` stops early where an acceptance became unlikely.

    Raises:
        UsageError: a value is outside its limits.
    """

    name: RuleName = "hybrid"
    alpha: float = 0.01
    max_pairs: int = 30
    min_effect: float = 0.0
    direction: RuleDirection = "lower"
    scale: RuleScale = "auto"
    runs: int = 5
    warmups: int = 1
    has_futility: bool = True

    def __post_init__(self) -> None:
        """Refuse what no judge could follow."""
        check_rule(self)


def check_rule(rule: AcceptanceRule) -> None:
    """Nothing where the rule can be followed.

    Raises:
        UsageError: it names every value that is off, what was received and what counts.
    """
    faults = [
        *_word_faults(rule),
        *_count_faults(rule),
        *_number_faults(rule),
    ]
    if faults:
        raise UsageError(
            f"the acceptance rule is off: {'; '.join(faults)}", next_step="mend it and start again"
        )


def _word_faults(rule: AcceptanceRule) -> list[str]:
    allowed = {
        "name": ("hybrid", "median"),
        "direction": ("lower", "higher"),
        "scale": ("auto", "ratio", "difference"),
    }
    return [
        f"{field} is one of {', '.join(words)}, received {getattr(rule, field)!r}"
        for field, words in allowed.items()
        if getattr(rule, field) not in words
    ]


def _count_faults(rule: AcceptanceRule) -> list[str]:
    limits = {"max_pairs": (2, LARGEST_PAIRS), "runs": (1, 1000), "warmups": (0, 1000)}
    return [
        f"{field} is a whole number from {low} to {high}, received {getattr(rule, field)!r}"
        for field, (low, high) in limits.items()
        if type(getattr(rule, field)) is not int or not low <= getattr(rule, field) <= high
    ]


def _number_faults(rule: AcceptanceRule) -> list[str]:
    faults = []
    if not _is_number(rule.alpha) or not 0.0 < rule.alpha <= LARGEST_ALPHA:
        faults.append(f"alpha is above 0 and at most {LARGEST_ALPHA}, received {rule.alpha!r}")
    if not _is_number(rule.min_effect) or rule.min_effect < 0.0:
        faults.append(f"min_effect is a finite number from 0 on, received {rule.min_effect!r}")
    elif is_out_of_reach(rule, rule.scale):
        faults.append(f"min_effect is a fraction below 1 on a ratio, received {rule.min_effect!r}")
    return faults


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def is_out_of_reach(rule: AcceptanceRule, scale: str) -> bool:
    """True where no positive metric could ever fall by ``min_effect``."""
    return rule.name == "hybrid" and scale == "ratio" and rule.direction == "lower" and rule.min_effect >= 1.0


def verify_rule(rule: AcceptanceRule, trials: int) -> AcceptanceRule:
    """The rule that judges an accepted step again, on fresh pairs with the worktrees swapped.

    Its alpha is such that a mission of ``trials`` candidates without effect keeps any false step with a chance below
    5 %: expected false acceptances of both rules together are 0.035. Futility is off, since few steps come here.
    A rule ``median`` is verified by ``hybrid`` on the same direction.

    Args:
        rule: the rule of the trials.
        trials: how many the mission may have, at least 1.

    Raises:
        UsageError: ``trials`` is no whole number from 1 on.
    """
    if type(trials) is not int or trials < 1:
        raise UsageError(
            f"a mission has a whole number of trials from 1 on, received {trials!r}",
            next_step="name the budget of trials",
        )
    first = MEDIAN_FALSE_ACCEPTS if rule.name == "median" else rule.alpha
    alpha = min(LARGEST_VERIFY_ALPHA, VERIFIED_FALSE_ACCEPTS / (trials * first))
    if rule.name == "median":
        scale: RuleScale = "difference"
        return replace(rule, name="hybrid", alpha=alpha, scale=scale, has_futility=False)
    return replace(rule, alpha=alpha, has_futility=False)
