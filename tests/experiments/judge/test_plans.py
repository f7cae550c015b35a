"""Around single judgements: order of the runs, re-verification, the verified claim, the plan, what is stored."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from omx_autoresearch.experiments.judge.calibration import AcceptanceRule, Calibration, calibrate, verify_rule
from omx_autoresearch.experiments.judge.decision import Judge, claim
from omx_autoresearch.experiments.judge.metrics import MetricSpec
from omx_autoresearch.experiments.judge.plans import Option, Plan, plan_of
from omx_autoresearch.experiments.judge.state import Claim, ExperimentConfig, ExperimentLimits
from omx_autoresearch.experiments.judge.statistics import BLOCK_SIZES, orders
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.input_validation import validated
from omx_autoresearch.foundation.records import from_plain, to_plain

HYBRID = AcceptanceRule()


def pairs_of(
    factor: float, count: int = 30, seed: int = 1, sigma: float = 0.01
) -> list[tuple[float, float, bool]]:
    """Pairs of a base and a final state whose metric is ``factor`` times the base's."""
    chance, order = random.Random(seed), orders(seed)
    return [
        (100 * math.exp(chance.gauss(0, sigma)), factor * 100 * math.exp(chance.gauss(0, sigma)), next(order))
        for _ in range(count)
    ]


NOISY = calibrate(pairs_of(1.0, 15))
STILL = calibrate([(7.0, 7.0)] * 3)


# --- Order ---


@pytest.mark.requirement("ACC-14")
def test_the_same_seed_gives_the_same_order_and_another_another() -> None:
    first, again, other = (list(islice(orders(seed), 200)) for seed in (7, 7, 8))
    assert first == again != other


@pytest.mark.requirement("ACC-14")
def test_both_orders_are_balanced_in_short_blocks_that_cannot_be_foreseen() -> None:
    starts = set()
    for seed in range(400):
        order = list(islice(orders(seed), 60))
        starts.add(tuple(order[:4]))
        lead = [sum(order[:count]) - count / 2 for count in range(61)]
        assert max(map(abs, lead)) <= max(BLOCK_SIZES) / 2
    assert len(starts) == 14  # all but four times the same: blocks of six allow three
    firsts = [next(orders(seed)) for seed in range(2000)]
    assert 900 < sum(firsts) < 1100


@pytest.mark.requirement("ACC-14")
def test_an_order_depends_on_no_state_of_the_process() -> None:
    random.seed(1)
    before = list(islice(orders(-3), 50))
    random.seed(2)
    list(islice(orders(99), 10))
    assert list(islice(orders(-3), 50)) == before


# --- Re-verification ---


@pytest.mark.requirement("ACC-11")
@pytest.mark.parametrize(
    ("trials", "alpha"), [(1, 0.05), (40, 0.05), (70, 0.05), (100, 0.035), (1000, 0.0035)]
)
def test_an_accepted_step_is_judged_again_so_that_a_mission_keeps_false_ones_seldom(
    trials: int, alpha: float
) -> None:
    second = verify_rule(AcceptanceRule(min_effect=0.01, max_pairs=20), trials)
    assert second.alpha == pytest.approx(alpha)
    assert trials * 0.01 * second.alpha <= 0.035 + 1e-12
    assert (second.has_futility, second.min_effect, second.max_pairs) == (False, 0.01, 20)


@pytest.mark.requirement("ACC-11")
def test_a_step_that_the_median_rule_accepted_is_judged_again_by_pairs() -> None:
    second = verify_rule(AcceptanceRule(name="median", min_effect=2.0, direction="higher"), 40)
    assert (second.name, second.scale, second.min_effect, second.direction) == (
        "hybrid",
        "difference",
        2.0,
        "higher",
    )
    assert second.alpha == pytest.approx(0.035 / 20)
    judge = Judge(second, calibrate(pairs_of(1.0, 15)))
    for base, final, is_first in pairs_of(1.2):
        if judge.add_pair(base, final, is_first) is not None:
            break
    assert judge.verdict is not None
    assert judge.verdict.outcome == "accepted"


@pytest.mark.requirement("ACC-11")
@pytest.mark.parametrize("trials", [0, -1, 1.5, True])
def test_a_mission_has_a_whole_number_of_trials(trials: Any) -> None:
    with pytest.raises(UsageError, match="number of trials"):
        verify_rule(HYBRID, trials)


# --- The verified claim ---


@pytest.mark.requirement("ACC-12")
@pytest.mark.parametrize(("factor", "direction"), [(0.9, "lower"), (1.1, "higher")])
def test_a_claim_is_the_gain_of_fresh_pairs_with_its_interval(factor: float, direction: Any) -> None:
    found = claim(pairs_of(factor), AcceptanceRule(direction=direction), NOISY)
    assert found.estimate == pytest.approx(0.1, abs=0.006)
    assert found.interval[0] < found.estimate < found.interval[1]
    assert (found.has_gain, found.scale, found.is_exact, found.pairs) == (True, "ratio", False, 30)
    assert found.final / found.base == pytest.approx(factor, rel=0.01)


@pytest.mark.requirement("ACC-12")
def test_an_interval_that_contains_no_gain_says_so() -> None:
    assert not claim(pairs_of(1.0), HYBRID, NOISY).has_gain
    assert not claim(pairs_of(1.1), HYBRID, NOISY).has_gain


@pytest.mark.requirement("ACC-12")
def test_a_claim_on_repeats_is_exact() -> None:
    found = claim([(7.0, 5.0)] * 3, HYBRID, STILL)
    assert (found.is_exact, found.has_gain, found.interval) == (True, True, (2 / 7, 2 / 7))
    equal = claim([(7.0, 7.0)] * 2, HYBRID, STILL)
    assert (equal.is_exact, equal.has_gain, equal.estimate) == (True, False, 0.0)
    moved = claim([(7.0, 5.0), (7.0, 5.5), (7.0, 5.0)], HYBRID, STILL)
    assert not moved.is_exact
    assert not claim([(7.0, 5.0)], HYBRID, STILL).is_exact  # nothing was repeated


@pytest.mark.requirement("ACC-12")
def test_a_claim_of_few_pairs_is_as_wide_as_calibration_was_noisy() -> None:
    pairs = [(100.0, 99.0), (100.0, 99.1)]
    wide, narrow = claim(pairs, HYBRID, NOISY), claim(pairs, HYBRID)
    assert wide.estimate == pytest.approx(narrow.estimate)
    assert wide.interval[1] - wide.interval[0] > 5 * (narrow.interval[1] - narrow.interval[0])
    assert not wide.has_gain


@pytest.mark.requirement("ACC-12")
def test_a_claim_takes_the_effect_of_the_order_out() -> None:
    slow = [
        (one, two * 1.05, first) if first else (one * 1.05, two, first)
        for one, two, first in pairs_of(0.97, 30)
    ]
    with_order = claim(slow, HYBRID, NOISY)
    without = claim([(one, two) for one, two, _ in slow], HYBRID, NOISY)
    assert with_order.estimate == pytest.approx(0.03, abs=0.006)
    width = with_order.interval[1] - with_order.interval[0]
    assert width < 0.5 * (without.interval[1] - without.interval[0])


@pytest.mark.requirement("ACC-12")
def test_a_claim_keeps_the_scale_of_the_experiment() -> None:
    assert claim(pairs_of(0.9), AcceptanceRule(name="median"), NOISY).scale == "difference"
    assert claim(pairs_of(0.9), AcceptanceRule(name="median"), NOISY).estimate == pytest.approx(10, abs=1)
    below = calibrate([(-1.0, 1.0), (2.0, -3.0)])
    assert claim(pairs_of(0.9), HYBRID, below).scale == "difference"
    assert claim(pairs_of(0.9), HYBRID).scale == "ratio"
    reached_zero = [(4.0, 0.0), (4.0, 1.0), (5.0, 0.0)] * 4
    found = claim(reached_zero, HYBRID, calibrate([(4.0, 4.0), (5.0, 4.0)]))
    assert (found.scale, found.has_gain) == ("ratio", True)
    assert found.estimate == pytest.approx(1.0, abs=0.1)


@pytest.mark.requirement("ACC-12")
def test_a_claim_without_any_pair_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one pair"):
        claim([], HYBRID, NOISY)


# --- The plan ---


def planned(
    rule: AcceptanceRule, calibration: Calibration | None, run_seconds: float = 1.0, **limits: Any
) -> Plan:
    """The plan of an experiment that has no limit but these."""
    config = ExperimentConfig(
        "plan", MetricSpec("ms"), rule=rule, limits=replace(ExperimentLimits(trials=0), **limits)
    )
    return plan_of(config, calibration, run_seconds)


def named(options: tuple[Option, ...]) -> dict[str, Option]:
    """Options by their name."""
    return {option.name: option for option in options}


@pytest.mark.requirement("ACC-13")
def test_a_plan_of_five_minute_runs_says_what_they_cost() -> None:
    plan = planned(HYBRID, NOISY, 300.0, wall_seconds=24 * 3600.0)
    assert plan.claim_hours == pytest.approx(62 * 300 / 3600)
    chosen = plan.chosen
    assert 18 < chosen.runs_without_effect < 24
    assert 34 < chosen.runs_with_effect < 44
    assert chosen.hours_without_effect == pytest.approx(chosen.runs_without_effect * 300 / 3600)
    assert chosen.trials == math.floor((24 * 3600 - 94 * 300) / (chosen.runs_without_effect * 300))
    assert chosen.visible_effect == NOISY.minimum_detectable_effect
    assert chosen.visible_sigmas == pytest.approx(0.8 * math.sqrt(2))
    assert (chosen.false_accepts, plan.verify_alpha, plan.scale) == (0.01, 0.05, "ratio")


@pytest.mark.requirement("ACC-13")
def test_cheaper_ways_are_named_with_their_price() -> None:
    plan = planned(HYBRID, NOISY)
    cheaper = named(plan.alternatives)
    assert cheaper.keys() == {"fewer_pairs", "relaxed_alpha", "median"}
    assert all(option.runs_without_effect < plan.chosen.runs_without_effect for option in plan.alternatives)
    seen = plan.chosen.visible_effect or 0.0
    assert (cheaper["fewer_pairs"].visible_effect or 0.0) > seen
    assert cheaper["relaxed_alpha"].false_accepts == 0.05
    assert (cheaper["median"].runs_without_effect, cheaper["median"].false_accepts) == (12, 0.5)


@pytest.mark.requirement("ACC-13")
def test_a_plan_before_calibration_counts_effects_in_sigmas() -> None:
    plan = planned(HYBRID, None, runs=500, trials=40)
    assert plan.chosen.visible_effect is None
    assert plan.chosen.visible_sigmas > 1
    assert plan.chosen.trials == math.floor((500 - 94) / plan.chosen.runs_without_effect)
    assert planned(HYBRID, None).chosen.trials is None
    assert planned(HYBRID, None, trials=7).chosen.trials == 7
    assert planned(HYBRID, None, 60.0, wall_seconds=60.0).chosen.trials == 0


@pytest.mark.requirement("ACC-13")
def test_a_deterministic_metric_costs_two_pairs_a_trial_and_nothing_is_cheaper() -> None:
    plan = planned(HYBRID, STILL)
    assert (plan.chosen.runs_without_effect, plan.chosen.runs_with_effect) == (6, 6)
    assert (plan.chosen.visible_effect, plan.chosen.false_accepts) == (0.0, 0.0)
    assert plan.alternatives == ()
    assert plan.claim_hours == pytest.approx((2 * 3 + 2) / 3600), (
        "both sides repeat their values: three pairs are exact"
    )


@pytest.mark.requirement("ACC-13")
def test_a_threshold_makes_the_median_rule_honest_where_it_exceeds_the_noise() -> None:
    def price(threshold: float) -> float:
        rule = AcceptanceRule(name="median", min_effect=threshold)
        return planned(rule, NOISY).chosen.false_accepts

    assert price(0.0) == 0.5
    assert 0.01 < price(1.0) < 0.3
    assert price(10.0) < 1e-6


# --- What is stored ---


@pytest.mark.requirement("ACC-09")
@pytest.mark.parametrize(
    "value",
    [AcceptanceRule(alpha=0.05, direction="higher"), NOISY, STILL, claim(pairs_of(0.9), HYBRID, NOISY)],
    ids=["rule", "calibration", "deterministic", "claim"],
)
def test_a_rule_a_calibration_and_a_claim_survive_a_record(value: Any) -> None:
    stored = json.loads(json.dumps(to_plain(value), allow_nan=False))
    assert from_plain(type(value), stored) == value


@pytest.mark.requirement("ACC-09")
def test_a_stored_calibration_judges_as_the_one_that_was_measured() -> None:
    stored = from_plain(Calibration, to_plain(NOISY))
    judges = Judge(HYBRID, NOISY), Judge(HYBRID, stored)
    for pair in pairs_of(0.98):
        one, other = (judge.add_pair(*pair) for judge in judges)
        assert one == other
        if one is not None:
            break


@pytest.mark.requirement("ACC-08")
def test_a_rule_from_outside_is_held_to_the_same_limits() -> None:
    assert validated(AcceptanceRule, {"alpha": 0.05}, where="rule") == AcceptanceRule(alpha=0.05)
    with pytest.raises(UsageError, match="alpha"):
        validated(AcceptanceRule, {"alpha": 0.9}, where="rule", error=UsageError)
    assert validated(Claim, to_plain(claim(pairs_of(0.9), HYBRID)), where="claim").pairs == 30
