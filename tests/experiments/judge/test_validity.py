"""Why an acceptance can be believed: signs are fair coins, and their chances are counted."""

from __future__ import annotations

import itertools
import math
import random
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.acceptance import TRUE_AT, wilson
from benchmarks.acceptance_trials import Work, claims, missions, trials
from benchmarks.noise_worlds import NAMED, OTHERS, World
from omx_autoresearch.experiments.judge.calibration import AcceptanceRule, calibrate, order_gains
from omx_autoresearch.experiments.judge.decision import Judge, cleared, decision_of, estimate_of
from omx_autoresearch.experiments.judge.statistics import (
    ci_rank,
    exact_p_value,
    hodges_lehmann,
    median,
    normal_cdf,
    normal_quantile,
    robust_sd,
    scores_of,
    walsh_averages,
    z_statistic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = {
    "equal": [1.0] * 14,
    "growing": [1.3**at for at in range(14)],
    "shrinking": [1.3**-at for at in range(14)],
    "ordinary": [0.3, 1.9, 0.7, 0.1, 1.2, 2.4, 0.5, 0.9, 1.6, 0.2, 0.8, 1.1, 0.4, 3.0],
    "heavy": [0.1, 40.0, 0.3, 0.2, 9.0, 0.5, 0.4, 0.6, 90.0, 0.2, 0.8, 0.7, 30.0, 0.9],
    "ties": [0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 3.0, 0.0, 1.0, 2.0, 0.0, 1.0, 1.0],
}
"""Sizes of differences as they come; under the null hypothesis only their signs are chance."""


def accepted_share(rule: AcceptanceRule, sizes: Sequence[float]) -> float:
    """The share of all sign patterns that the rule accepts at some look, counted path by path."""

    def walk(differences: list[float]) -> int:
        """Accepted patterns of all that go on from here."""
        if differences:
            decision = decision_of(rule, differences, 0.0)
            if decision:
                return 2 ** (rule.max_pairs - len(differences)) if decision == "accept" else 0
        size = sizes[len(differences)]
        return walk([*differences, size]) + walk([*differences, -size])

    return float(walk([]) / 2**rule.max_pairs)


@pytest.mark.requirement("ACC-01")
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(("alpha", "pairs"), [(0.01, 10), (0.05, 8), (0.05, 11), (0.2, 9), (0.5, 6)])
def test_of_all_sign_patterns_no_more_than_alpha_are_accepted(
    sizes: Sequence[float], alpha: float, pairs: int
) -> None:
    share = accepted_share(AcceptanceRule(alpha=alpha, max_pairs=pairs, has_futility=False), sizes)
    assert share <= alpha


@pytest.mark.slow
@pytest.mark.requirement("ACC-01")
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_of_all_sign_patterns_of_fourteen_pairs_no_more_than_alpha_are_accepted(
    sizes: Sequence[float], alpha: float
) -> None:
    share = accepted_share(AcceptanceRule(alpha=alpha, max_pairs=14, has_futility=False), sizes)
    assert share <= alpha


@pytest.mark.requirement("ACC-01")
def test_an_acceptance_is_possible_wherever_alpha_and_pairs_allow_one() -> None:
    for alpha, pairs in ((0.01, 8), (0.05, 5), (0.2, 4)):
        assert accepted_share(AcceptanceRule(alpha=alpha, max_pairs=pairs), SIZES["equal"]) > 0


@pytest.mark.requirement("ACC-01")
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=10))
def test_the_chance_is_the_share_of_sign_patterns_that_do_at_least_as_well(differences: list[float]) -> None:
    scores = scores_of([abs(difference) for difference in differences])
    present = [score for score in scores if score]
    reached = sum(score for score, difference in zip(scores, differences, strict=True) if difference > 0)
    patterns = itertools.product((0, 1), repeat=len(present))
    sums = [sum(score for score, is_on in zip(present, signs, strict=True) if is_on) for signs in patterns]
    assert exact_p_value(differences, scores) == sum(total >= reached for total in sums) / len(sums)


@pytest.mark.requirement("ACC-01")
@given(st.lists(st.floats(-10, 10), min_size=4, max_size=40))
def test_no_chance_below_a_half_goes_uncounted(differences: list[float]) -> None:
    scores = scores_of([abs(difference) for difference in differences])
    assert z_statistic(differences, scores) > 0 or exact_p_value(differences, scores) >= 0.5


@pytest.mark.requirement("ACC-01")
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30))
def test_exchanging_the_arms_turns_the_standing_round(differences: list[float]) -> None:
    scores = scores_of([abs(difference) for difference in differences])
    mirrored = [-difference for difference in differences]
    assert scores == scores_of([abs(difference) for difference in mirrored])
    if 0.0 not in differences:
        assert z_statistic(mirrored, scores) == -z_statistic(differences, scores)
    gain, low, high = estimate_of(differences, 1.0)
    other, other_low, other_high = estimate_of(mirrored, 1.0)
    assert (other, other_low, other_high) == pytest.approx((-gain, -high, -low))


@pytest.mark.requirement("ACC-07")
@given(
    st.lists(st.tuples(st.floats(-10, 10), st.booleans(), st.booleans()), min_size=8, max_size=20),
    st.floats(-3, 3),
)
def test_a_correction_of_the_order_never_sees_the_arms(
    pairs: list[tuple[float, bool, bool]], order_effect: float
) -> None:
    """Exchanging the arms of any pairs turns the signs of exactly those differences and changes no size."""
    gains, orders = [gain for gain, _, _ in pairs], [int(first) for _, first, _ in pairs]
    turned = [-gain if is_turned else gain for gain, _, is_turned in pairs]
    turned_orders = [1 - order if pair[2] else order for order, pair in zip(orders, pairs, strict=True)]
    if len(set(orders)) < 2 or len(set(turned_orders)) < 2:
        return  # an order that never changes is the one case that is treated apart
    assert order_gains(gains, orders) == order_gains(turned, turned_orders)
    before = cleared(gains, orders, order_effect, [])
    after = cleared(turned, turned_orders, order_effect, [])
    for one, other, pair in zip(before, after, pairs, strict=True):
        assert other == pytest.approx(-one if pair[2] else one)


@pytest.mark.requirement("ACC-01")
@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(50, 200), st.floats(50, 200), st.booleans()), min_size=30, max_size=30))
def test_a_candidate_and_its_mirror_image_are_never_both_accepted(
    pairs: list[tuple[float, float, bool]],
) -> None:
    calibration = calibrate([(100.0, 101.0 + at, at % 2 == 0) for at in range(15)])
    outcomes = []
    for turned in (False, True):
        judge = Judge(AcceptanceRule(), calibration)
        for one, other, is_first in pairs:
            pair = (other, one, not is_first) if turned else (one, other, is_first)
            if judge.add_pair(*pair) is not None:
                break
        assert judge.verdict is not None
        outcomes.append(judge.verdict.outcome)
    assert outcomes.count("accepted") < 2


@pytest.mark.requirement("ACC-01")
def test_scores_grow_level_off_and_fall_to_nothing() -> None:
    assert scores_of(
        [1.0, 1.0, 1.0, 0.5, 2.0, 2.5, 3.0, 4.5, 6.0, 1000.0, 0.0, 1e-9, 1.0, 1.0, 1.0, 1.0]
    ) == ([24, 24, 24, 12, 48, 48, 48, 24, 0, 0, 0, 1, 24, 24, 24, 24])
    assert scores_of([0.0, 0.0]) == [0, 0]
    assert z_statistic([0.0, 0.0], [0, 0]) == 0.0
    assert exact_p_value([0.0], [0]) == 1.0


@pytest.mark.requirement("ACC-01")
def test_the_interval_of_six_values_and_more_has_95_per_cent_whatever_the_distribution() -> None:
    assert [ci_rank(count) for count in (5, 6, 7, 8, 15, 20, 30)] == [
        -1,
        0,
        2,
        3,
        25,
        52,
        137,
    ]  # tables of Wilcoxon
    assert walsh_averages([1.0, 3.0]) == [1.0, 2.0, 3.0]
    assert hodges_lehmann([1.0, 3.0, 100.0]) == 27.0 or hodges_lehmann([1.0, 3.0, 100.0]) == pytest.approx(
        26.75
    )


def test_figures_of_a_normal_distribution_are_those_of_the_tables() -> None:
    assert normal_quantile(0.975) == pytest.approx(1.959964, abs=1e-6)
    assert normal_quantile(0.5) == pytest.approx(0.0, abs=1e-12)
    assert normal_cdf(1.0) == pytest.approx(0.8413447, abs=1e-7)
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5
    draws = [random.Random(1).gauss(0, 2) for _ in range(1)] + [
        2 * normal_quantile((at + 0.5) / 999) for at in range(999)
    ]
    assert robust_sd(draws) == pytest.approx(2.0, rel=0.01)
    assert robust_sd([]) == 0.0


@pytest.mark.requirement("ACC-01")
def test_a_gain_on_ratios_must_hold_in_the_metrics_own_unit() -> None:
    gains, levels = [0.1] * 10 + [-0.12, -0.12], [100.0] * 10 + [160.0, 160.0]
    own = [100 * (1 - math.exp(-0.1))] * 10 + [160 * (1 - math.exp(0.12))] * 2
    on_ratios, in_units = (
        exact_p_value(found, scores_of([abs(gain) for gain in found])) for found in (gains, own)
    )
    assert on_ratios < in_units
    rule = AcceptanceRule(alpha=(on_ratios + in_units) / 2 / 0.75, max_pairs=12)
    assert decision_of(rule, gains, 0.0) == "accept"
    assert decision_of(rule, gains, 0.0, [100.0] * 12) == "accept"
    assert decision_of(rule, gains, 0.0, levels) == "stop"


# --- The production rule in simulated worlds; benchmarks/acceptance.py has the long form ---


@cache
def in_world(name: str, gain: float, count: int) -> Any:
    """The tally of so many trials in a world."""
    return trials(Work(_world(name), gain, count))


def _world(name: str) -> World:
    return next(world for world in (*NAMED["plain"], *NAMED["hard"], *OTHERS) if world.name == name)


@pytest.mark.requirement("ACC-15")
@pytest.mark.parametrize(
    "name", ["sigma 1 %", "candidate 3 x as noisy, 1 %", "20 % slow runs", "cold first run"]
)
def test_few_candidates_without_effect_are_accepted_in_a_simulated_world(name: str) -> None:
    tally = in_world(name, 0.0, 300)
    assert tally.accepted <= 300 * 0.03  # three times as many as there should be are seldom
    assert tally.runs / tally.trials <= 22


@pytest.mark.requirement("ACC-15")
@pytest.mark.parametrize("gain", TRUE_AT)
def test_real_gains_are_found_in_a_simulated_world(gain: int) -> None:
    tally = in_world("sigma 3 %", float(gain), 120)
    low, high = wilson(tally.accepted, tally.trials)
    assert low <= high
    assert high >= TRUE_AT[gain]


@pytest.mark.requirement("ACC-02", "ACC-15")
def test_noise_that_grew_after_calibration_does_not_pass_for_gains() -> None:
    tally = in_world("10 x as noisy after calibration", 0.0, 400)
    assert tally.accepted / tally.trials < 0.04


@pytest.mark.requirement("ACC-11", "ACC-15")
def test_a_simulated_mission_keeps_real_steps_and_drops_false_ones() -> None:
    seen = missions(Work(_world("sigma 3 %"), 10.0, 4))
    assert seen.missions == 4
    assert seen.real >= 16
    assert seen.fake <= 1
    assert seen.real <= seen.real_once
    assert seen.fake <= seen.fake_once


@pytest.mark.requirement("ACC-12", "ACC-15")
def test_verified_claims_are_right_on_average_in_a_simulated_world() -> None:
    seen = claims(Work(_world("sigma 1 %"), 20.0, 120))
    assert abs(seen.total / seen.claims) < 0.1
    assert seen.covered / seen.claims > 0.88
    assert math.sqrt(seen.squares / seen.claims) < 0.6
