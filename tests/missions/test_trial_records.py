"""Records of a mission's experiments: they move the stall count once each, and a later claim opens a criterion anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omx_autoresearch.missions.records.work import (
    KEPT_EXPERIMENTS,
    ExperimentLinked,
    GainVerified,
    StopFacts,
    StopRefused,
    TrialsAccepted,
)
from omx_autoresearch.missions.rules.criteria import (
    Criterion,
    CriterionCheck,
    CriterionFault,
    WorkspaceSnapshot,
    criterion_of,
    criterion_text,
    has_measured,
    rule_of,
)
from omx_autoresearch.missions.rules.evidence import is_criterion_met
from omx_autoresearch.missions.rules.gate import observe, progress_of
from tests.missions.rules.samples import a_mission, at

LINKED = ExperimentLinked("e-1", "total_ms")


@pytest.mark.requirement("DRIVE-15")
def test_an_accepted_trial_is_strong_progress_until_the_stop_that_ends_the_iteration() -> None:
    mission = LINKED.apply(a_mission(), at(1))
    mission = TrialsAccepted("e-1", (2, 5), "c").apply(mission, at(2))
    assert (mission.turn_trials, mission.credited_trials) == (2, {"e-1": 5})
    seen = observe(mission, has_tree_change=False, used_tools=True)
    assert seen.has_accepted_trial
    assert progress_of(seen) == "strong"
    stop = StopFacts("s", "validation", mission.usage, is_iteration=True)
    after = StopRefused(stop, progress="strong").apply(mission, at(3))
    assert after.turn_trials == 0
    assert not observe(after, has_tree_change=False, used_tools=True).has_accepted_trial


@pytest.mark.requirement("DRIVE-15")
def test_a_trial_told_twice_or_of_a_foreign_experiment_is_no_progress() -> None:
    mission = LINKED.apply(a_mission(), at(1))
    mission = TrialsAccepted("e-1", (2,)).apply(mission, at(2))
    again = TrialsAccepted("e-1", (1, 2)).apply(replace(mission, turn_trials=0), at(3))
    assert again.turn_trials == 0
    assert TrialsAccepted("e-2", (1,)).apply(replace(mission, turn_trials=0), at(3)).turn_trials == 0
    assert GainVerified("e-2", "total_ms", "d", 0.1).apply(mission, at(3)).claim_digests == {}


def test_only_so_many_experiments_and_claims_are_remembered() -> None:
    mission = a_mission()
    for number in range(KEPT_EXPERIMENTS + 5):
        name = f"e-{number}"
        mission = ExperimentLinked(name, f"m{number}").apply(mission, at(1))
        mission = TrialsAccepted(name, (1,)).apply(mission, at(1))
        mission = GainVerified(name, f"m{number}", "d", 0.1).apply(mission, at(1))
    assert len(mission.experiments) == KEPT_EXPERIMENTS
    assert len(mission.claim_digests) == KEPT_EXPERIMENTS
    assert set(mission.credited_trials) <= set(mission.experiments)


@pytest.mark.requirement("DRIVE-16")
def test_a_newer_claim_about_the_metric_opens_its_criterion_anew() -> None:
    criterion = criterion_of("fast: the parser is faster :: trial total_ms 5%")
    mission = GainVerified("e-1", "total_ms", "one", 0.1).apply(LINKED.apply(a_mission(), at(1)), at(2))
    check = CriterionCheck("fast", True, "f-1", contract_digest=mission.contract_digest, content_digest="one")
    mission = replace(mission, checks=(check,))
    look = WorkspaceSnapshot("h", "t", "p")
    assert is_criterion_met(mission, criterion, look)
    other = GainVerified("e-1", "size", "three", 0.1).apply(mission, at(3))
    assert is_criterion_met(other, criterion, look), "a claim about another metric changes nothing"
    newer = GainVerified("e-1", "total_ms", "two", 0.01).apply(mission, at(3))
    assert not is_criterion_met(newer, criterion, look)


@pytest.mark.requirement("DRIVE-16")
@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("trial total_ms 5%", "trial total_ms 5%"),
        ("trial: total_ms 5 %", "trial total_ms 5%"),
        ("trial p99.9/µs 0.25", "trial p99.9/µs 0.25"),
        ("trial a:b 0", "trial a:b 0"),
        ("trial x 0.000001%", "trial x 0.000001%"),
    ],
)
def test_the_rule_of_a_trial_is_read_back_as_it_is_written(text: str, written: str) -> None:
    rule = rule_of(text)
    assert str(rule) == written
    assert rule_of(written) == rule
    criterion = criterion_of(f"fast: it is faster :: {text}")
    assert criterion_of(criterion_text(criterion)) == criterion


@pytest.mark.parametrize(
    "text", ["trial", "trial total_ms", "trial total ms 5%", "trial x -5%", "trial x nan", "trials x 5%"]
)
def test_what_is_no_rule_of_a_trial_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(CriterionFault, match="trial METRIC GAIN"):
        rule_of(text)


def test_only_a_required_trial_lets_a_mission_begin_with_a_passing_validator() -> None:
    criterion: Criterion = criterion_of("fast: it is faster :: trial x 5%")
    assert has_measured((criterion,))
    assert not has_measured((replace(criterion, is_required=False),))
