"""Progress: what resets the stale count, what holds it, what adds to it, and what is nothing new."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.missions.rules.allowances import Limits, Usage
from omx_autoresearch.missions.rules.briefing import refusal
from omx_autoresearch.missions.rules.gate import (
    Observation,
    Situation,
    after_iteration,
    decide,
    is_stalled,
    progress_of,
)
from omx_autoresearch.missions.rules.run_reports import normalized_output
from tests.missions.rules.samples import NEEDED, a_mission

LIMITS = Limits()
STRONG_FIELDS = ("has_new_evidence", "has_better_score", "has_accepted_trial")
WEAK_FIELDS = ("has_tree_change", "has_new_output", "has_pivot", "has_reading")
NAMES = [item.name for item in fields(Observation)]
EVERY_OBSERVATION = [
    Observation(**dict(zip(NAMES, values, strict=True)))
    for values in product((False, True), repeat=len(NAMES))
]


def seen(*names: str) -> Observation:
    """An observation in which only these are true."""
    return Observation(**dict.fromkeys(names, True))


@pytest.mark.requirement("GATE-15")
def test_progress_is_strong_before_weak_before_none() -> None:
    for observation in EVERY_OBSERVATION:
        is_strong = any(getattr(observation, name) for name in STRONG_FIELDS)
        is_weak = any(getattr(observation, name) for name in WEAK_FIELDS)
        assert progress_of(observation) == ("strong" if is_strong else "weak" if is_weak else "none")


@pytest.mark.requirement("GATE-15")
@pytest.mark.parametrize("name", STRONG_FIELDS)
def test_strong_progress_sets_the_stale_count_and_the_allowances_back(name: str) -> None:
    usage = Usage(refusals=9, idle_refusals=2, stale=3, weak_holds=40, background_allows=8, wait_refusals=6)
    after = after_iteration(usage, seen(name, "has_metric_drop", "repeats_direction"), LIMITS)
    assert after == Usage(refusals=9, idle_refusals=2)


@pytest.mark.requirement("GATE-15", "STALL-01")
@pytest.mark.parametrize("name", WEAK_FIELDS)
def test_weak_progress_holds_the_stale_count_a_finite_number_of_times(name: str) -> None:
    usage = Usage(stale=2)
    for number in range(1, LIMITS.weak_holds + 1):
        usage = after_iteration(usage, seen(name), LIMITS)
        assert (usage.stale, usage.weak_holds) == (2, number)
    usage = after_iteration(usage, seen(name), LIMITS)
    assert (usage.stale, usage.weak_holds) == (3, LIMITS.weak_holds)


@pytest.mark.requirement("GATE-14")
def test_an_iteration_without_progress_adds_one() -> None:
    assert after_iteration(Usage(stale=1, weak_holds=5), Observation(), LIMITS) == Usage(
        stale=2, weak_holds=5
    )


@pytest.mark.requirement("GATE-14")
@pytest.mark.parametrize(
    "lost", [("has_metric_drop",), ("repeats_direction",), ("has_metric_drop", "repeats_direction")]
)
def test_a_drop_or_a_repeated_direction_adds_exactly_one_although_the_tree_changed(
    lost: tuple[str, ...],
) -> None:
    after = after_iteration(Usage(stale=1), seen("has_tree_change", *lost), LIMITS)
    assert (after.stale, after.weak_holds) == (2, 1)
    assert after_iteration(Usage(stale=1), seen(*lost), LIMITS).stale == 2


@pytest.mark.requirement("STALL-01")
@pytest.mark.parametrize("name", WEAK_FIELDS)
def test_a_repeated_direction_adds_one_whatever_weak_progress_came_with_it(name: str) -> None:
    assert after_iteration(Usage(stale=1), seen(name, "repeats_direction"), LIMITS).stale == 2


def test_a_persons_turn_without_tools_moves_nothing_unless_there_was_strong_progress() -> None:
    usage = Usage(stale=3, weak_holds=7)
    idle = "is_person_turn_without_tools"
    assert after_iteration(usage, seen(idle), LIMITS) == usage
    assert after_iteration(usage, seen(idle, "has_tree_change", "has_metric_drop"), LIMITS) == usage
    assert after_iteration(usage, seen(idle, "has_better_score"), LIMITS).stale == 0


@pytest.mark.requirement("GATE-16")
@given(
    st.sampled_from(EVERY_OBSERVATION),
    st.builds(Usage, stale=st.integers(0, 9), weak_holds=st.integers(0, 41), refusals=st.integers(0, 300)),
)
def test_one_iteration_adds_at_most_one_and_only_strong_progress_lowers(
    seen_: Observation, usage: Usage
) -> None:
    after = after_iteration(usage, seen_, LIMITS)
    is_strong = progress_of(seen_) == "strong"
    assert after.stale == 0 if is_strong else usage.stale <= after.stale <= usage.stale + 1
    assert is_strong or after.weak_holds >= usage.weak_holds
    spent = (after.stale - usage.stale) + (after.weak_holds - usage.weak_holds)
    assert is_strong or seen_.is_person_turn_without_tools or spent >= 1
    assert (after.refusals, after.idle_refusals) == (usage.refusals, usage.idle_refusals)


def test_a_mission_is_stalled_by_either_count() -> None:
    assert not is_stalled(Usage(stale=3, idle_refusals=2), LIMITS)
    assert is_stalled(Usage(stale=4), LIMITS)
    assert is_stalled(Usage(idle_refusals=3), LIMITS)


@pytest.mark.requirement("GATE-14")
@pytest.mark.parametrize(
    ("stale", "said"),
    [(0, ""), (1, ""), (2, "change the structure"), (3, "a direction that was not tried before")],
)
def test_two_demand_a_pivot_and_three_offer_a_fresh_direction(stale: int, said: str) -> None:
    mission = a_mission(usage=Usage(stale=stale))
    decision = decide(Situation(missing=(NEEDED,)), replace(mission.usage, stale=stale - 1), LIMITS)
    text = refusal(mission, decision, (NEEDED,))
    assert mission.is_pivot_required is (stale >= 2)
    assert said in text
    assert ("iterations without progress" in text) is (stale >= 2)


# --- new output


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3 failed in 0.12s", "3 failed in 9.81s"),
        ("3 failed", "17 failed"),
        ("at 2026-01-02T03:04:05Z: no", "at 2027-11-12T13:14:15Z: no"),
        ("open /tmp/a1/x.txt: no", "open /tmp/b2/deep/er/y.txt: no"),
        ("object at 0x7f00deadbeef", "object at 0x55aa"),
        ("commit 1a2b3c4d5e6f7a8b", "commit ffffffffffffffff"),
        ("id 1a2b3c4d-0a1b-4c2d-8e3f-0123456789ab", "id FFFFFFFF-FFFF-4FFF-8FFF-FFFFFFFFFFFF"),
        ("sum " + "0a" * 64, "sum " + "1b" * 64),
        ("\x1b[31mFAIL\x1b[0m  a", "FAIL a"),
        ("a\n\n\tb\r\n", "a b"),
    ],
)
def test_what_changes_by_itself_is_nothing_new(one: str, other: str) -> None:
    assert normalized_output(one) == normalized_output(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("case alpha failed", "case beta failed"),
        ("ok", ""),
        ("expected a", "expected a, got b"),
        ("/a", "/b"),
    ],
)
def test_other_words_are_something_new(one: str, other: str) -> None:
    assert normalized_output(one) != normalized_output(other)


def test_long_foreign_output_is_normalized_output_in_linear_steps() -> None:
    for piece in ("/a", "0x", "1", "f", " ", "\x1b[", "/a/b ", "-"):
        normalized_output(piece * 200_000)
