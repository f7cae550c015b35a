"""What a person is told of an experiment: one number, and only where it was verified."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omx_autoresearch.experiments.judge.calibration import AcceptanceRule
from omx_autoresearch.experiments.judge.metrics import MetricSpec
from omx_autoresearch.experiments.judge.state import Claim, ExperimentConfig, ExperimentState
from omx_autoresearch.experiments.judge.summary import (
    KEPT_WITHOUT_GAIN,
    count_kinds,
    effect_interval,
    effect_scale,
    effect_text,
    effect_words,
    figure,
    kind_of,
    metric_band,
    percent,
    quoted_claim,
    steps_of,
)
from tests.experiments.samples import a_claim, a_row, a_state, a_story, accepted, commit, judged


@pytest.mark.requirement("SEE-01")
def test_nothing_is_quoted_before_base_and_final_were_measured_against_each_other() -> None:
    quoted = quoted_claim(replace(a_story(), claim=None))
    assert not quoted.is_verified
    assert "Not verified yet" in quoted.sentence
    assert not any(character.isdigit() for character in quoted.sentence)


@pytest.mark.requirement("SEE-01")
def test_the_verified_claim_is_quoted_with_its_interval_and_its_pairs() -> None:
    quoted = quoted_claim(a_story())
    assert quoted.sentence == (
        "Verified: total_ms is 23.1 % lower than at the base "
        "(95 % interval of the gain 21.8 % to 24.5 %, 30 fresh interleaved pairs)."
    )
    assert quoted.has_gain
    assert quoted.is_current
    assert quoted.warnings == ()


@pytest.mark.requirement("SEE-01")
def test_an_interval_without_a_certain_gain_is_a_warning() -> None:
    quoted = quoted_claim(replace(a_story(), claim=a_claim(0.002, -0.01, 0.014)))
    assert quoted.is_verified
    assert not quoted.has_gain
    assert quoted.sentence.startswith("Verified, but no gain is certain: total_ms is 0.2 % lower")
    assert "no measurement supports accepting" in quoted.warnings[0]


def test_a_claim_that_came_out_worse_says_worse() -> None:
    quoted = quoted_claim(replace(a_story(), claim=a_claim(-0.05, -0.06, -0.04)))
    assert "is 5 % higher than at the base (95 % interval of the gain -6 % to -4 %" in quoted.sentence


@pytest.mark.requirement("SEE-01")
def test_a_claim_about_an_earlier_checkpoint_says_that_it_is_not_about_the_final_one() -> None:
    quoted = quoted_claim(replace(a_story(), claim_commit=commit(2)))
    assert not quoted.is_current
    assert commit(2)[:12] in quoted.warnings[0]


def test_an_exact_claim_in_the_metrics_own_unit_names_no_interval() -> None:
    claim = Claim(12.0, (12.0, 12.0), 3, has_gain=True, scale="difference", is_exact=True)
    quoted = quoted_claim(replace(a_story(), claim=claim))
    assert "total_ms is 12 ms lower" in quoted.sentence
    assert "both repeated their value exactly in 3 fresh interleaved pairs" in quoted.sentence


def test_an_unchanged_final_is_called_the_same() -> None:
    claim = Claim(0.0, (0.0, 0.0), 1, has_gain=False, is_exact=True)
    assert "is the same as at the base" in quoted_claim(replace(a_story(), claim=claim)).sentence


def test_an_ended_experiment_without_a_step_has_nothing_to_verify() -> None:
    ended = a_state([judged(1, 100, 101)], completed_reason="budget_trials")
    assert "nothing" not in quoted_claim(a_state([judged(1, 100, 101)])).sentence
    assert quoted_claim(ended).sentence == "No step was accepted, so there is no result to verify."


def test_a_higher_metric_gets_higher_by_a_gain() -> None:
    config = ExperimentConfig("speed", MetricSpec("score", "higher"))
    assert "score is 23.1 % higher" in quoted_claim(replace(a_story(), config=config)).sentence


def test_tampering_is_a_kind_of_its_own() -> None:
    counts = count_kinds(a_story().rows)
    assert counts == {"accepted": 2, "rejected": 4, "failed": 1, "tampered": 1, "running": 1}
    assert kind_of(a_row(1, reason_code="tampered")) == "tampered"


@pytest.mark.case("STA-12")
@pytest.mark.requirement("SEE-06")
def test_a_row_that_was_kept_without_a_gain_is_no_step() -> None:
    state = a_state([accepted(1, 100, 90), accepted(2, 90, 95, reason_code=KEPT_WITHOUT_GAIN)])
    assert [row.iteration for row in steps_of(state)] == [1]


def test_the_scale_is_the_judges() -> None:
    state = a_state()
    assert effect_scale(state) == "ratio"
    median = replace(state.config, rule=AcceptanceRule(name="median"))
    assert effect_scale(replace(state, config=median)) == "difference"
    fixed = replace(state.config, rule=AcceptanceRule(scale="difference"))
    assert effect_scale(replace(state, config=fixed)) == "difference"
    assert effect_scale(replace(state, calibration=None)) == "ratio"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (a_state(), (88.5, 91.5)),
        (replace(a_state(), config=ExperimentConfig("s", MetricSpec("m", "higher"))), (108.5, 111.5)),
    ],
    ids=["lower", "higher"],
)
def test_an_interval_stands_around_the_incumbent_that_was_measured_beside_it(
    state: ExperimentState, expected: tuple[float, float]
) -> None:
    assert metric_band(state, accepted(1, 100, 90)) == pytest.approx(expected)


def test_a_row_without_interval_or_without_incumbent_has_no_band() -> None:
    assert metric_band(a_state(), a_row(1)) is None
    assert metric_band(a_state(), accepted(1, 100, 90, incumbent_samples=())) is None


def test_a_difference_is_in_the_metrics_unit_also_around_a_negative_incumbent() -> None:
    state = replace(
        a_state(), config=ExperimentConfig("s", MetricSpec("m"), rule=AcceptanceRule(scale="difference"))
    )
    row = judged(1, -10.0, -12.0, incumbent_samples=(-10.0,), interval=(1.0, 3.0))
    assert metric_band(state, row) == pytest.approx((-13.0, -11.0))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (100.0, "100"),
        (4948607.0, "4948607"),
        (0.1234567, "0.123457"),
        (1e18, "1e+18"),
        (-2.5, "-2.5"),
    ],
)
def test_figures_read_well(value: float | None, text: str) -> None:
    assert figure(value) == text


def test_figures_carry_their_unit() -> None:
    assert figure(3.0, "ms") == "3 ms"
    assert effect_text(0.0312, "ratio") == "3.12 %"
    assert effect_text(12.0, "difference", "ms") == "12 ms"
    assert effect_interval((), "ratio") == ""
    assert effect_interval((-0.01, 0.02), "ratio") == "-1 % to 2 %"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1 - 0.0035 / 7.27, "99.952"),
        (0.9996, "99.96"),
        (0.99999, "99.999"),
        (1 - 1e-9, "99.9999999"),
        (1.0004, "100.04"),
        (-0.9996, "-99.96"),
        (1.0, "100"),
        (0.685, "68.5"),
        (0.00012345, "0.0123"),
        (0.0, "0"),
    ],
)
def test_a_gain_is_told_as_100_percent_only_where_it_is(value: float, text: str) -> None:
    assert percent(value) == text


def test_rows_and_the_quoted_claim_tell_a_large_gain_alike() -> None:
    gain, ends = 1 - 0.0035 / 7.27, (0.99951, 0.99953)
    row = accepted(1, 7.27, 0.0035, improvement=gain, interval=ends)
    state = a_state([row], claim=a_claim(gain, *ends))
    assert effect_words(state, row) == "+99.952 % (+99.951 to +99.953)"
    assert "is 99.952 % lower" in quoted_claim(state).sentence
    assert "interval of the gain 99.951 % to 99.953 %" in quoted_claim(state).sentence
