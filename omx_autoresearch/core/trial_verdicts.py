"""What becomes of a candidate, and the two comparisons that need no statistics: of medians, and of equal repeats.

Both are exact: values count as the decimals that they are printed as, so that a gain equal to the threshold is equal.
"""

from __future__ import annotations

from typing import Literal

from omx_autoresearch.core.gains import exact, exact_gain, relative
from omx_autoresearch.core.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from omx_autoresearch.core.acceptance_rules import AcceptanceRule

Judged = Literal["accepted", "rejected", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a candidate.

    Attributes:
        outcome: ``accepted``; ``rejected``, not better or by too little to be seen; ``inconclusive``, nobody can say.
        estimate: its gain over the incumbent, positive is better: a fraction on a ratio, else in the metric's unit.
        interval: lower and upper end around it, 95 % for a fixed number of pairs; empty where nothing can be said. A
            verdict that came early or among many claims too much: quote only the fresh check of base against final.
        pairs: how many were judged.
        minimum_detectable_effect: gain over ``min_effect`` that would have been accepted about four times in five.
        reason_code: ``improved``; ``not_better`` or ``too_small``; ``undecided``, ``underpowered`` or ``not_positive``.
        scale: ``ratio`` or ``difference``, of the three figures above.
        regime: how it was decided: ``deterministic``, ``noisy``, ``underpowered``, or ``median``.
    """

    outcome: Judged
    estimate: float
    interval: tuple[float, ...]
    pairs: int
    minimum_detectable_effect: float
    reason_code: str
    scale: str = "ratio"
    regime: str = "noisy"


def median_verdict(rule: AcceptanceRule, incumbents: Sequence[float], candidates: Sequence[float]) -> Verdict:
    """The verdict of rule ``median``: the candidate's median is better by more than ``min_effect``.

    The interval is what the extremes of both arms leave open; it has no stated coverage.
    """
    older, newer = [[exact(value) for value in arm] for arm in (incumbents, candidates)]
    gain = exact_gain(_middle(older), _middle(newer), rule.direction)
    gains = (
        exact_gain(min(older), max(newer), rule.direction),
        exact_gain(max(older), min(newer), rule.direction),
    )
    is_better = gain > exact(rule.min_effect)
    return Verdict(
        outcome="accepted" if is_better else "rejected",
        estimate=float(gain),
        interval=(float(min(gains)), float(max(gains))),
        pairs=len(older),
        minimum_detectable_effect=float(max(gains) - min(gains)) / 2,
        reason_code="improved" if is_better else "not_better",
        scale="difference",
        regime="median",
    )


def _middle(values: list[Fraction]) -> Fraction:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def repeated_verdict(
    rule: AcceptanceRule, incumbents: Sequence[float], candidates: Sequence[float], scale: str
) -> Verdict | None:
    """The verdict of a deterministic metric: exact, once both arms repeated their value; None where one did not.

    On a ratio ``min_effect`` and the estimate are fractions of the incumbent's size, so zero and negative values have
    their answer here.
    """
    if len(set(incumbents)) > 1 or len(set(candidates)) > 1:
        return None
    incumbent, candidate = exact(incumbents[0]), exact(candidates[0])
    gain = exact_gain(incumbent, candidate, rule.direction)
    threshold = exact(rule.min_effect) * (abs(incumbent) if scale == "ratio" else 1)
    estimate = relative(gain, incumbent, candidate) if scale == "ratio" else float(gain)
    is_better = gain > threshold
    return Verdict(
        outcome="accepted" if is_better else "rejected",
        estimate=estimate,
        interval=(estimate, estimate),
        pairs=len(incumbents),
        minimum_detectable_effect=0.0,
        reason_code="improved" if is_better else "not_better",
        scale=scale,
        regime="deterministic",
    )
