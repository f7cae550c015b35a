"""How a candidate is judged: rules, regimes, scales, orders, outcomes."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.experiments.judge.calibration import AcceptanceRule, Calibration, calibrate
from omx_autoresearch.experiments.judge.decision import Judge, Verdict
from omx_autoresearch.experiments.judge.statistics import orders
from omx_autoresearch.foundation.errors import StepIllegal, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


SIGMA = 0.01


def noisy(seed: int, level: float = 100.0, sigma: float = SIGMA) -> list[float]:
    """Two hundred values of one metric that differ by noise."""
    chance = random.Random(seed)
    return [level * math.exp(chance.gauss(0, sigma)) for _ in range(200)]


def same_code(count: int = 15, seed: int = 1, level: float = 100.0) -> Calibration:
    """Calibration by A/A pairs whose order is known."""
    values = noisy(seed, level)
    return calibrate([(values[2 * at], values[2 * at + 1], at % 3 == 0) for at in range(count)])


def fed(judge: Judge, pairs: Sequence[tuple[float, float]], firsts: Sequence[bool] | None = None) -> Verdict:
    """The verdict after as many of these pairs as the judge wants."""
    order = orders(3)
    for at, (incumbent, candidate) in enumerate(pairs):
        is_first = next(order) if firsts is None else firsts[at]
        verdict = judge.add_pair(incumbent, candidate, is_first)
        if verdict is not None:
            return verdict
    raise AssertionError("the judge wants more pairs than there are")


def trial(factor: float, seed: int = 5, **rule: Any) -> Verdict:
    """The verdict on a candidate whose metric is the incumbent's times ``factor``."""
    incumbents, candidates = noisy(seed), noisy(seed + 1000)
    pairs = [(one, other * factor) for one, other in zip(incumbents, candidates, strict=True)]
    return fed(Judge(AcceptanceRule(**rule), same_code()), pairs)


# --- Rules and values that nobody could follow ---


@pytest.mark.requirement("ACC-08")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpha", 0.0),
        ("alpha", -0.1),
        ("alpha", 0.51),
        ("alpha", math.nan),
        ("alpha", math.inf),
        ("alpha", "0.01"),
        ("alpha", True),
        ("max_pairs", 1),
        ("max_pairs", 201),
        ("max_pairs", 30.0),
        ("max_pairs", True),
        ("min_effect", -0.01),
        ("min_effect", math.nan),
        ("direction", "down"),
        ("scale", "log"),
        ("name", "mean"),
        ("runs", 0),
        ("warmups", -1),
    ],
)
def test_a_rule_outside_its_limits_is_refused_by_field_with_what_was_received(field: str, value: Any) -> None:
    given: dict[str, Any] = {field: value}
    with pytest.raises(UsageError, match=f"{field} must be .*received") as refused:
        AcceptanceRule(**given)
    assert repr(value) in str(refused.value)


@pytest.mark.requirement("ACC-08")
def test_every_fault_of_a_rule_is_named_at_once() -> None:
    wrong: Any = {"alpha": 2, "runs": 0, "direction": "up"}
    with pytest.raises(UsageError, match=r"direction.*runs.*alpha"):
        AcceptanceRule(**wrong)


@pytest.mark.requirement("ACC-08")
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, None, "1", 10**400, 1e301, -1e301])
def test_a_value_that_is_no_finite_number_is_refused_and_counts_nothing(value: Any) -> None:
    judge = Judge(AcceptanceRule(), same_code())
    for pair in ((value, 1.0), (1.0, value)):
        with pytest.raises(UsageError, match="must be"):
            judge.add_pair(*pair)
        with pytest.raises(UsageError, match="must be"):
            calibrate([pair])
    assert judge.pairs == 0


@pytest.mark.requirement("ACC-08")
def test_a_judge_that_has_decided_takes_no_further_pair() -> None:
    judge = Judge(AcceptanceRule(name="median", runs=1), calibrate([]))
    assert judge.add_pair(2.0, 1.0) is judge.verdict is not None
    with pytest.raises(StepIllegal, match="decided after 1 pair: accepted"):
        judge.add_pair(2.0, 1.0)


@pytest.mark.requirement("ACC-08")
def test_a_fall_by_all_of_a_positive_metric_is_no_threshold() -> None:
    with pytest.raises(UsageError, match="min_effect"):
        AcceptanceRule(scale="ratio", min_effect=1.0)
    with pytest.raises(UsageError, match="min_effect"):
        Judge(AcceptanceRule(min_effect=5.0), same_code())
    assert AcceptanceRule(name="median", min_effect=5.0).min_effect == 5.0
    assert AcceptanceRule(scale="ratio", min_effect=2.0, direction="higher").min_effect == 2.0


# --- The median rule ---


def medians(incumbents: list[float], candidates: list[float], **rule: Any) -> Verdict:
    """The verdict of rule ``median`` on these samples."""
    judge = Judge(AcceptanceRule(name="median", runs=len(incumbents), **rule), calibrate([]))
    return fed(judge, list(zip(incumbents, candidates, strict=True)))


@pytest.mark.case("MET-13")
@pytest.mark.requirement("ACC-04")
def test_one_lucky_sample_does_not_move_a_median() -> None:
    verdict = medians([659.4, 660, 658], [656.2, 690, 700], min_effect=5)
    assert (verdict.outcome, verdict.reason_code) == ("rejected", "not_better")
    assert verdict.estimate == pytest.approx(-30.6)
    assert verdict.scale == "difference"


@pytest.mark.case("MET-13")
@pytest.mark.requirement("ACC-04")
@pytest.mark.parametrize(
    ("incumbent", "candidate", "threshold", "outcome"),
    [
        (659.4, 654.4, 5.0, "rejected"),  # 5.0 exactly
        (0.3, 0.2, 0.1, "rejected"),  # 0.09999999999999998 in binary
        (1.1, 1.0, 0.1, "rejected"),  # 0.10000000000000009 in binary
        (1.1, 0.9999999, 0.1, "accepted"),
        (7.0, 7.0, 0.0, "rejected"),
        (7.0, 6.999999999999999, 0.0, "accepted"),
    ],
)
def test_a_gain_equal_to_the_threshold_is_rejected(
    incumbent: float, candidate: float, threshold: float, outcome: str
) -> None:
    assert medians([incumbent] * 3, [candidate] * 3, min_effect=threshold).outcome == outcome
    swapped = medians([candidate] * 3, [incumbent] * 3, min_effect=threshold, direction="higher")
    assert swapped.outcome == outcome


@pytest.mark.requirement("ACC-04")
def test_the_median_of_an_even_number_is_the_mean_of_the_middle_two() -> None:
    assert medians([4.0, 1.0, 3.0, 2.0], [2.5, 2.4, 0.0, 9.0]).estimate == pytest.approx(0.05)


@pytest.mark.requirement("ACC-04")
def test_the_median_rule_waits_for_its_runs_and_decides_then() -> None:
    judge = Judge(AcceptanceRule(name="median", runs=5), same_code())
    assert [judge.add_pair(2.0, 1.0) for _ in range(4)] == [None] * 4
    assert judge.add_pair(2.0, 1.0) is not None


@pytest.mark.case("STA-12")
@pytest.mark.requirement("ACC-04")
def test_a_candidate_is_compared_with_the_incumbent_measured_beside_it() -> None:
    values = [3350.0, 3314.0, 3445.0]
    outcomes = [medians([best], [candidate]).outcome for best, candidate in pairwise([3400.0, *values])]
    assert outcomes == ["accepted", "accepted", "rejected"]


# --- Deterministic metrics ---


@pytest.mark.requirement("ACC-03")
@pytest.mark.parametrize(
    ("candidate", "outcome"), [(99.0, "accepted"), (100.0, "rejected"), (101.0, "rejected")]
)
def test_equal_repeats_are_compared_exactly_once_both_arms_repeated(candidate: float, outcome: str) -> None:
    calibration = calibrate([(100.0, 100.0)] * 3)
    assert calibration.regime == "deterministic"
    judge = Judge(AcceptanceRule(), calibration)
    assert judge.add_pair(100.0, candidate) is None
    verdict = judge.add_pair(100.0, candidate)
    assert verdict is not None
    assert (verdict.outcome, verdict.pairs) == (outcome, 2)
    assert verdict.estimate == pytest.approx((100.0 - candidate) / 100.0)
    assert verdict.interval == (verdict.estimate, verdict.estimate)


@pytest.mark.requirement("ACC-03")
@pytest.mark.parametrize("second", [(100.0, 99.0), (101.0, 98.0)])
def test_a_difference_between_repeats_switches_to_noise(second: tuple[float, float]) -> None:
    judge = Judge(AcceptanceRule(), calibrate([(100.0, 100.0)] * 15))
    verdicts = [judge.add_pair(100.0, 98.0), judge.add_pair(*second)]
    assert verdicts == [None, None]
    while judge.verdict is None:
        judge.add_pair(100.0, 98.0, judge.pairs % 2 == 0)
    assert judge.verdict.pairs >= 11


@pytest.mark.requirement("ACC-03")
def test_one_pair_of_equal_values_says_nothing_about_repeats() -> None:
    assert calibrate([(5.0, 5.0)]).regime == "noisy"
    assert calibrate([(5.0, 5.0)] * 2).regime == "deterministic"


@pytest.mark.requirement("ACC-03", "ACC-05")
@pytest.mark.parametrize(
    ("incumbent", "candidate", "estimate", "outcome"),
    [
        (3.0, 0.0, 1.0, "accepted"),
        (0.0, 0.0, 0.0, "rejected"),
        (0.0, 2.0, -1.0, "rejected"),
        (0.0, -2.0, 1.0, "accepted"),
        (-1.0, -2.0, 1.0, "accepted"),
    ],
)
def test_a_repeated_metric_that_reaches_zero_has_its_answer(
    incumbent: float, candidate: float, estimate: float, outcome: str
) -> None:
    judge = Judge(AcceptanceRule(), calibrate([(3.0, 3.0)] * 2))
    verdict = fed(judge, [(incumbent, candidate)] * 2)
    assert (verdict.outcome, verdict.estimate) == (outcome, estimate)


@pytest.mark.requirement("ACC-03", "ACC-05")
@pytest.mark.parametrize(("candidate", "outcome"), [(98.0, "rejected"), (97.99, "accepted")])
def test_a_repeated_metric_must_gain_more_than_min_effect(candidate: float, outcome: str) -> None:
    judge = Judge(AcceptanceRule(min_effect=0.02), calibrate([(100.0, 100.0)] * 2))
    assert fed(judge, [(100.0, candidate)] * 2).outcome == outcome


# --- Noise ---


@pytest.mark.requirement("ACC-01")
@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_a_real_gain_is_accepted_and_a_loss_is_not(direction: Any) -> None:
    better, worse = (0.97, 1.03) if direction == "lower" else (1.03, 0.97)
    verdict = trial(better, direction=direction)
    assert (verdict.outcome, verdict.reason_code) == ("accepted", "improved")
    assert verdict.interval[0] < 0.03 < verdict.interval[1]
    assert trial(worse, direction=direction).outcome == "rejected"


@pytest.mark.requirement("ACC-05")
def test_min_effect_is_what_a_gain_must_exceed() -> None:
    assert trial(0.97, min_effect=0.01).outcome == "accepted"
    verdict = trial(0.97, min_effect=0.05)
    assert verdict.outcome == "rejected"
    assert verdict.estimate == pytest.approx(0.03, abs=0.01)  # the gain itself, not what it lacks


@pytest.mark.requirement("ACC-05")
@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_gains_around_zero_are_differences_in_the_metrics_own_unit(direction: Any) -> None:
    incumbents, candidates = ([100 * (value - 100) for value in noisy(seed)] for seed in (7, 8))
    calibration = calibrate(list(zip(noisy_around_zero(1), noisy_around_zero(2), strict=True))[:15])
    assert calibration.scale == "difference"
    sign = -1.0 if direction == "lower" else 1.0
    pairs = [(one, other + sign * 500) for one, other in zip(incumbents, candidates, strict=True)]
    verdict = fed(Judge(AcceptanceRule(direction=direction, min_effect=50), calibration), pairs)
    assert (verdict.outcome, verdict.scale) == ("accepted", "difference")
    assert verdict.estimate == pytest.approx(500, abs=150)
    rejected = fed(Judge(AcceptanceRule(direction=direction, min_effect=1000), calibration), pairs)
    assert rejected.outcome == "rejected"


def noisy_around_zero(seed: int) -> list[float]:
    """Values around zero with a deviation of about 100."""
    return [100 * (value - 100) for value in noisy(seed)]


@pytest.mark.requirement("ACC-05")
def test_the_scale_is_fixed_at_calibration_unless_the_rule_names_one() -> None:
    calibration = same_code()
    assert calibration.scale == "ratio"
    pairs = [(one, other - 5) for one, other in zip(noisy(3), noisy(4), strict=True)]
    verdict = fed(Judge(AcceptanceRule(scale="difference", min_effect=1.5), calibration), pairs)
    assert (verdict.outcome, verdict.scale) == ("accepted", "difference")
    assert verdict.estimate == pytest.approx(5, abs=1)
    with pytest.raises(UsageError, match="ratios need positive values"):
        Judge(AcceptanceRule(scale="ratio"), calibrate([(-1.0, 1.0), (2.0, 1.0)]))


@pytest.mark.requirement("ACC-05")
@pytest.mark.parametrize("pair", [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_a_value_that_is_not_positive_ends_a_trial_on_ratios_without_an_answer(
    pair: tuple[float, float],
) -> None:
    judge = Judge(AcceptanceRule(), same_code())
    judge.add_pair(100.0, 90.0)
    verdict = judge.add_pair(*pair)
    assert verdict is not None
    assert (verdict.outcome, verdict.reason_code, verdict.interval) == ("inconclusive", "not_positive", ())


@pytest.mark.requirement("ACC-01")
def test_ties_carry_nothing() -> None:
    calibration = calibrate([(10.0, 10.0)] * 14 + [(10.0, 11.0)])
    verdict = fed(Judge(AcceptanceRule(), calibration), [(10.0, 10.0)] * 30)
    assert (verdict.outcome, verdict.estimate, verdict.interval) == ("rejected", 0.0, (0.0, 0.0))


@pytest.mark.requirement("ACC-02")
def test_an_early_acceptance_needs_gains_beyond_the_noise_that_are_alike() -> None:
    calibration = same_code()
    far = [(100.0, 85.0), (100.0, 84.0), (100.0, 86.0)]
    assert fed(Judge(AcceptanceRule(), calibration), far).pairs == 3
    near = [(100.0, 99.5)] * 3
    unlike = [(100.0, 94.0), (100.0, 50.0), (100.0, 80.0)]
    for pairs in (near, unlike):
        judge = Judge(AcceptanceRule(), calibration)
        assert [judge.add_pair(*pair) for pair in pairs] == [None] * 3


@pytest.mark.requirement("ACC-02", "ACC-06")
def test_early_acceptance_is_off_without_ten_pairs_without_noise_and_for_a_small_alpha() -> None:
    far = [(100.0, 85.0), (100.0, 84.0), (100.0, 86.0)]
    still = calibrate([(10.0, 10.0)] * 14 + [(10.0, 11.0)])
    for rule, calibration in (
        (AcceptanceRule(), same_code(9)),
        (AcceptanceRule(), still),
        (AcceptanceRule(alpha=0.004), same_code()),
    ):
        judge = Judge(rule, calibration)
        assert [judge.add_pair(*pair) for pair in far] == [None] * 3


@pytest.mark.requirement("ACC-06")
@pytest.mark.parametrize("count", [0, 1, 2, 5, 9])
def test_few_pairs_or_none_are_enough_to_judge_and_say_what_they_lack(count: int) -> None:
    calibration = same_code(count)
    assert calibration.pairs == count
    assert "early_acceptance" in calibration.unavailable
    assert ("noise" in calibration.unavailable) == (count < 2)
    pairs = [(one, other * 0.9) for one, other in zip(noisy(3), noisy(4), strict=True)]
    verdict = fed(Judge(AcceptanceRule(), calibration), pairs)
    assert (verdict.outcome, verdict.scale) == ("accepted", "ratio")
    assert verdict.pairs >= 11


@pytest.mark.requirement("ACC-06")
def test_without_any_pair_the_first_pair_of_a_trial_fixes_the_scale() -> None:
    calibration = calibrate([])
    assert (calibration.scale, calibration.minimum_detectable_effect) == ("", None)
    pairs = [(one - 100, other - 110) for one, other in zip(noisy(3), noisy(4), strict=True)]
    pairs[0] = (-1.0, -11.0)
    assert fed(Judge(AcceptanceRule(), calibration), pairs).scale == "difference"
    with pytest.raises(UsageError, match="min_effect"):
        Judge(AcceptanceRule(min_effect=3.0), calibration).add_pair(1.0, 1.0)


# --- Order inside a pair ---


def cold(seed: int, effect: float, slower: float = 0.03) -> tuple[list[tuple[float, float]], list[bool]]:
    """Pairs whose first run is slower, and which arm ran first."""
    pairs, firsts = [], []
    for one, other, is_first in zip(noisy(seed), noisy(seed + 1), orders(seed), strict=False):
        incumbent, candidate = one, other * (1 - effect)
        pairs.append(
            (incumbent, candidate * (1 + slower)) if is_first else (incumbent * (1 + slower), candidate)
        )
        firsts.append(is_first)
    return pairs, firsts


@pytest.mark.requirement("ACC-07")
def test_a_cold_first_run_is_found_at_calibration_and_taken_out() -> None:
    pairs, firsts = cold(11, 0.0)
    calibration = calibrate([(*pair, first) for pair, first in zip(pairs, firsts, strict=True)][:15])
    assert calibration.order_effect == pytest.approx(-0.03, abs=0.008)
    assert calibration.noise == pytest.approx(SIGMA, rel=0.6)
    pairs, firsts = cold(21, 0.02)
    known = fed(Judge(AcceptanceRule(), calibration), pairs, firsts)
    assert known.outcome == "accepted"
    assert known.estimate == pytest.approx(0.02, abs=0.008)
    untold = fed(Judge(AcceptanceRule(), calibrate(pairs[100:115])), pairs, [False] * len(pairs))
    assert untold.pairs > known.pairs


@pytest.mark.requirement("ACC-07")
@pytest.mark.parametrize("is_first", [True, False])
def test_an_order_that_never_changes_is_corrected_against_the_candidate_only(is_first: bool) -> None:
    pairs, firsts = cold(11, 0.0)
    calibration = calibrate([(*pair, first) for pair, first in zip(pairs, firsts, strict=True)][:15])
    fixed = [
        (one, other * 1.03) if is_first else (one * 1.03, other)
        for one, other in zip(noisy(3), noisy(4), strict=True)
    ]
    verdict = fed(Judge(AcceptanceRule(), calibration), fixed, [is_first] * len(fixed))
    assert verdict.outcome != "accepted"
    assert verdict.estimate < 0.01


@pytest.mark.requirement("ACC-07")
def test_an_order_that_never_changes_takes_no_effect_for_its_own() -> None:
    verdict = fed(
        Judge(AcceptanceRule(), same_code()),
        [(one, other * 0.98) for one, other in zip(noisy(3), noisy(4), strict=True)],
        [False] * 200,
    )
    assert verdict.outcome == "accepted"
    assert verdict.estimate == pytest.approx(0.02, abs=0.01)


# --- Outcomes ---


@pytest.mark.requirement("ACC-10")
def test_a_small_positive_estimate_is_inconclusive_or_too_small_by_what_could_be_seen() -> None:
    seen = {
        (verdict.outcome, verdict.reason_code) for seed in range(200) if (verdict := trial(0.998, seed)).pairs
    }
    assert seen >= {("rejected", "not_better"), ("rejected", "too_small"), ("inconclusive", "undecided")}
    for seed in range(50):
        verdict = trial(0.998, seed)
        assert 0.004 < verdict.minimum_detectable_effect < 0.03
        if verdict.reason_code == "too_small":
            assert verdict.interval[1] < verdict.minimum_detectable_effect


@pytest.mark.requirement("ACC-10")
def test_pairs_too_few_for_any_acceptance_are_told_at_the_first_one() -> None:
    verdict = Judge(AcceptanceRule(max_pairs=5), calibrate([])).add_pair(100.0, 50.0)
    assert verdict is not None
    assert (verdict.outcome, verdict.reason_code, verdict.pairs) == ("inconclusive", "underpowered", 1)


@pytest.mark.requirement("ACC-10")
def test_a_metric_that_only_an_enormous_gain_could_move_is_underpowered() -> None:
    wild = noisy(1, sigma=0.8)
    calibration = calibrate(list(zip(wild[:15], wild[15:30], strict=True)))
    assert calibration.regime == "underpowered"
    assert (calibration.minimum_detectable_effect or 0) > 0.5
    outcomes = set()
    for seed in range(40):
        values = noisy(seed + 2, sigma=0.8)
        verdict = fed(
            Judge(AcceptanceRule(), calibration), list(zip(values[:40], values[40:80], strict=True))
        )
        outcomes.add((verdict.outcome, verdict.reason_code))
    assert ("inconclusive", "underpowered") in outcomes
    assert ("rejected", "too_small") not in outcomes


@pytest.mark.requirement("ACC-10")
def test_noise_that_is_mostly_zero_still_has_a_size() -> None:
    calibration = calibrate([(10.0, 10.0)] * 12 + [(10.0, 11.0)] * 3)
    assert calibration.regime == "noisy"
    assert calibration.noise > 0
    assert calibration.quick_gain == pytest.approx(math.log(1.1))


@pytest.mark.requirement("ACC-10")
def test_a_drift_of_the_machine_is_told() -> None:
    values = [100.0 * 1.01**at for at in range(15)]
    assert calibrate([(value, value * 1.001) for value in values]).drift == pytest.approx(14 * math.log(1.01))
    assert abs(same_code().drift) < 0.02


# --- Purity ---


@pytest.mark.requirement("ACC-09")
@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10), st.booleans()), min_size=1, max_size=40),
    st.integers(0, 15),
)
def test_the_same_pairs_give_the_same_verdicts(
    pairs: list[tuple[float, float, bool]], calibrated: int
) -> None:
    judges = [Judge(AcceptanceRule(), same_code(calibrated, level=1.0)) for _ in range(2)]
    for pair in pairs:
        first, second = (judge.add_pair(*pair) for judge in judges)
        assert first == second
        if first is not None:
            break


@pytest.mark.requirement("ACC-05")
@given(
    st.lists(
        st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300), st.booleans()), min_size=30, max_size=30
    ),
    st.sampled_from(["auto", "ratio", "difference"]),
    st.sampled_from(["lower", "higher"]),
    st.booleans(),
)
def test_whatever_is_finite_ends_in_a_finite_verdict_or_an_error_that_says_so(
    pairs: list[tuple[float, float, bool]], scale: Any, direction: Any, has_calibration: bool
) -> None:
    rule = AcceptanceRule(scale=scale, direction=direction, max_pairs=30)
    try:
        judge = Judge(rule, calibrate(pairs[:15] if has_calibration else [], rule))
        verdict = next(found for pair in pairs if (found := judge.add_pair(*pair)) is not None)
    except UsageError:
        return
    figures = (verdict.estimate, verdict.minimum_detectable_effect, *verdict.interval)
    assert all(math.isfinite(figure) for figure in figures)
    assert verdict.outcome in {"accepted", "rejected", "inconclusive"}
