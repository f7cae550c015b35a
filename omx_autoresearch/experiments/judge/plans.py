"""A forecast of an experiment's cost and of the smallest gain it can see, with cheaper ways to judge.

Expected runs come from the judge itself, fed with a seeded stream of normal noise: rules are free of the noise's size,
so alpha and the number of pairs decide alone. Other noise costs about the same (specs/acceptance.md).
"""

from __future__ import annotations

from functools import lru_cache
from math import cos, floor, log, pi, sin, sqrt

from omx_autoresearch.experiments.judge import statistics
from omx_autoresearch.experiments.judge.calibration import (
    MEDIAN_FALSE_ACCEPTS,
    WANTED_PAIRS,
    AcceptanceRule,
    Calibration,
    calibrate,
    detectable_effect,
    effect_of,
    known_effect,
    verify_rule,
)
from omx_autoresearch.experiments.judge.decision import Judge
from omx_autoresearch.experiments.judge.state import ExperimentConfig
from omx_autoresearch.foundation.records import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


SAMPLED_TRIALS = 150
"""Simulated trials of each kind; they give the mean number of runs to about one run."""
SECONDS_PER_HOUR = 3600.0
MEDIAN_SPREAD = 1.2533
"""Standard deviation of a median of normal values over that of their mean."""
RELAXED_ALPHA = 0.05
FEWER_PAIRS = 15
DETERMINISTIC_PAIRS = 3
"""Pairs of a claim where both sides repeat their values exactly; it goes on where they do not."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to judge, and its price.

    Attributes:
        name: ``chosen``, ``fewer_pairs``, ``relaxed_alpha`` or ``median``.
        rule: to be followed.
        runs_without_effect: measured runs of a trial whose candidate is no better, warm-ups included.
        runs_with_effect: of one whose candidate is better by the visible effect.
        hours_without_effect: of a trial whose candidate is no better, its measured runs alone.
        trials: how many without effect fit the budget beside calibration and claim; None where there is no budget.
        visible_effect: gain over ``min_effect`` that is accepted about four times in five, in the unit of estimates;
            None before calibration, and where its pairs are too few to tell.
        visible_sigmas: the same in standard deviations of one run.
        false_accepts: chance that a trial accepts a candidate without effect, before re-verification.
    """

    name: str
    rule: AcceptanceRule
    runs_without_effect: float
    runs_with_effect: float
    hours_without_effect: float
    trials: int | None
    visible_effect: float | None
    visible_sigmas: float
    false_accepts: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The forecast for an experiment.

    Attributes:
        chosen: the rule as configured.
        alternatives: cheaper ones.
        claim_hours: of the fresh check at the end.
        verify_alpha: of the re-verification of each accepted step.
        scale: of the visible effects; empty before calibration.
    """

    chosen: Option
    alternatives: tuple[Option, ...]
    claim_hours: float
    verify_alpha: float
    scale: str


def plan_of(config: ExperimentConfig, calibration: Calibration | None, run_seconds: float) -> Plan:
    """Forecast the cost of an experiment and the gain that it can see.

    Args:
        config: of it.
        calibration: None before it was measured: then a noisy metric is assumed, and effects are in sigmas only.
        run_seconds: one measured run, with the reset of caches before it; the agents' time comes on top.
    """
    rule = config.rule
    chosen = _option("chosen", config, calibration, run_seconds)
    alternatives = [
        _option(name, replace(config, rule=cheaper), calibration, run_seconds)
        for name, cheaper in _cheaper(rule, calibration).items()
    ]
    trials = config.limits.trials or chosen.trials or 0
    is_exact = calibration is not None and calibration.regime == "deterministic"
    claim_pairs = min(config.claim_pairs, DETERMINISTIC_PAIRS) if is_exact else config.claim_pairs
    return Plan(
        chosen=chosen,
        alternatives=tuple(
            option for option in alternatives if option.runs_without_effect < chosen.runs_without_effect
        ),
        claim_hours=run_seconds * 2 * (claim_pairs + rule.warmups) / SECONDS_PER_HOUR,
        verify_alpha=verify_rule(rule, max(1, trials)).alpha,
        scale=calibration.scale if calibration else "",
    )


def _cheaper(rule: AcceptanceRule, calibration: Calibration | None) -> dict[str, AcceptanceRule]:
    if rule.name == "median" or (calibration is not None and calibration.regime == "deterministic"):
        return {}
    cheaper = {}
    if rule.max_pairs > FEWER_PAIRS:
        cheaper["fewer_pairs"] = replace(rule, max_pairs=FEWER_PAIRS)
    if rule.alpha < RELAXED_ALPHA:
        pairs = min(rule.max_pairs, FEWER_PAIRS)
        cheaper["relaxed_alpha"] = replace(rule, alpha=RELAXED_ALPHA, max_pairs=pairs)
    cheaper["median"] = replace(rule, name="median", min_effect=0.0, scale="auto")
    return cheaper


def _option(
    name: str, config: ExperimentConfig, calibration: Calibration | None, run_seconds: float
) -> Option:
    rule = config.rule
    without, with_effect = _runs(rule, calibration)
    return Option(
        name=name,
        rule=rule,
        runs_without_effect=without,
        runs_with_effect=with_effect,
        hours_without_effect=without * run_seconds / SECONDS_PER_HOUR,
        trials=_trials(config, without, run_seconds),
        visible_effect=_visible_effect(rule, calibration),
        visible_sigmas=_visible_sigmas(rule),
        false_accepts=_false_accepts(rule, calibration),
    )


def _runs(rule: AcceptanceRule, calibration: Calibration | None) -> tuple[float, float]:
    """Runs of a trial without and with effect; both arms are warmed up, which is needed after an acceptance only."""
    warmups = 2.0 * rule.warmups
    if rule.name == "median":
        return warmups + 2 * rule.runs, warmups + 2 * rule.runs
    if calibration is not None and calibration.regime == "deterministic":
        return warmups + 4, warmups + 4
    pairs = WANTED_PAIRS if calibration is None else calibration.pairs
    without, with_effect = sampled_runs(
        rule.alpha, rule.max_pairs, has_futility=rule.has_futility, calibration_pairs=min(pairs, WANTED_PAIRS)
    )
    return warmups + without, warmups + with_effect


@lru_cache(maxsize=64)
def sampled_runs(
    alpha: float, max_pairs: int, *, has_futility: bool, calibration_pairs: int
) -> tuple[float, float]:
    """Mean measured runs of a trial without effect, and of one with the visible effect, under normal noise."""
    rule = AcceptanceRule(alpha=alpha, max_pairs=max_pairs, scale="difference", has_futility=has_futility)
    chance = statistics.uniform_stream(calibration_pairs)
    noise = _normals(chance)
    gain = _visible_sigmas(rule)
    without, with_effect = (
        sum(_sampled_pairs(rule, noise, effect, calibration_pairs) for _ in range(SAMPLED_TRIALS))
        for effect in (0.0, gain)
    )
    return 2 * without / SAMPLED_TRIALS, 2 * with_effect / SAMPLED_TRIALS


def _normals(chance: Iterator[float]) -> Iterator[float]:
    """Independent standard normal values (Box and Muller)."""
    while True:
        radius = sqrt(-2 * log(1 - next(chance)))
        angle = 2 * pi * next(chance)
        yield radius * cos(angle)
        yield radius * sin(angle)


def _sampled_pairs(rule: AcceptanceRule, noise: Iterator[float], gain: float, calibration_pairs: int) -> int:
    aa_pairs = [(next(noise), next(noise)) for _ in range(calibration_pairs)]
    judge = Judge(rule, calibrate(aa_pairs, rule))
    while judge.verdict is None:
        judge.add_pair(next(noise), next(noise) - gain, next(noise) < 0.0)
    return judge.pairs


def _trials(config: ExperimentConfig, runs: float, run_seconds: float) -> int | None:
    fixed = 2 * (config.calibration_pairs + config.claim_pairs) + 4 * config.rule.warmups
    limits = []
    if config.limits.trials:
        limits.append(config.limits.trials)
    if config.limits.runs:
        limits.append(max(0, floor((config.limits.runs - fixed) / runs)))
    if config.limits.wall_seconds and run_seconds:
        limits.append(max(0, floor((config.limits.wall_seconds / run_seconds - fixed) / runs)))
    return min(limits) if limits else None


def _visible_sigmas(rule: AcceptanceRule) -> float:
    if rule.name == "median":
        return statistics.normal_quantile(0.8) * MEDIAN_SPREAD * sqrt(2 / rule.runs)
    return detectable_effect(replace(rule, scale="difference"), sqrt(2), "difference")


def _visible_effect(rule: AcceptanceRule, calibration: Calibration | None) -> float | None:
    if calibration is None or known_effect(calibration) is None:
        return None
    if rule.name != "median":
        return detectable_effect(rule, calibration.noise * sqrt(2), calibration.scale)
    return effect_of(_visible_sigmas(rule) * calibration.noise, rule.direction, calibration.scale)


def _false_accepts(rule: AcceptanceRule, calibration: Calibration | None) -> float:
    if calibration is not None and calibration.regime == "deterministic":
        return 0.0
    if rule.name != "median":
        return rule.alpha
    deviation = _absolute_noise(calibration) * MEDIAN_SPREAD * sqrt(2 / rule.runs)
    if not rule.min_effect or not deviation:
        return MEDIAN_FALSE_ACCEPTS
    return 1 - statistics.normal_cdf(rule.min_effect / deviation)


def _absolute_noise(calibration: Calibration | None) -> float:
    """Standard deviation of a run in the metric's own unit; 0.0 where it is not known."""
    if calibration is None or not calibration.pairs:
        return 0.0
    level = statistics.median([abs(value) for value in calibration.firsts + calibration.seconds])
    return calibration.noise * (level if calibration.scale == "ratio" else 1.0)
