"""Judging a candidate: interleaved pairs in seeded blocks, until the judge knows."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from omx_autoresearch.core.acceptance import Judge, orders
from omx_autoresearch.core.metrics import samples_of

if TYPE_CHECKING:
    from omx_autoresearch.core.acceptance import AcceptanceRule, Calibration, Verdict
    from omx_autoresearch.runtime.experiments.measuring import Measuring, PairRuns

_STRIDE = 1_000_003
"""Between the seeds of two experiments that differ by one: no stretch of one meets a stretch of the other."""


class Judgement(NamedTuple):
    """A verdict with what it stands on.

    Attributes:
        verdict: of the judge.
        pairs: in the order in which they were measured.
    """

    verdict: Verdict
    pairs: tuple[PairRuns, ...]

    @property
    def candidates(self) -> tuple[float, ...]:
        """The candidate's values."""
        return tuple(value_of(pair.candidate.metric) for pair in self.pairs)

    @property
    def incumbents(self) -> tuple[float, ...]:
        """The incumbent's values."""
        return tuple(value_of(pair.incumbent.metric) for pair in self.pairs)

    @property
    def is_cut_short(self) -> bool:
        """Most of the candidate's runs left processes working, which were ended, and none of the incumbent's did."""
        left = sum(pair.candidate.has_left_running for pair in self.pairs)
        is_usual = any(pair.incumbent.has_left_running for pair in self.pairs)
        return not is_usual and 2 * left > len(self.pairs)

    @property
    def other_samples(self) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """Secondary metrics of incumbent and candidate, for guards."""
        return (
            samples_of([pair.incumbent.others for pair in self.pairs]),
            samples_of([pair.candidate.others for pair in self.pairs]),
        )

    @property
    def other_medians(self) -> dict[str, float]:
        """Medians of the candidate's secondary metrics that every run had."""
        found = self.other_samples[1]
        return {name: median(values) for name, values in found.items() if all(v == v for v in values)}  # noqa: PLR0124


def judge(measuring: Measuring, rule: AcceptanceRule, calibration: Calibration, seed: int) -> Judgement:
    """Measure pairs until the judge knows.

    Raises:
        TrialEnded: a run did not do what it should, a budget is spent, or somebody cancelled.
    """
    arbiter = Judge(rule, calibration)
    pairs: list[PairRuns] = []
    for number, is_candidate_first in enumerate(orders(seed), start=1):
        pair = measuring.pair(number, is_candidate_first=is_candidate_first)
        pairs.append(pair)
        verdict = arbiter.add_pair(
            value_of(pair.incumbent.metric), value_of(pair.candidate.metric), is_candidate_first
        )
        if verdict is not None:
            return Judgement(verdict, tuple(pairs))
    raise AssertionError("orders are endless")


def seed_of(seed: int, iteration: int, stretch: int = 0) -> int:
    """The seed of one stretch of pairs; the same again after a resume, another for every trial."""
    return seed * _STRIDE + iteration * 8 + stretch


def value_of(metric: float | None) -> float:
    """The metric of a run that has one."""
    if metric is None:
        raise AssertionError("a run without a fault has a metric")
    return metric
