"""The finite allowances: what a limit may be, and what begins anew when."""

from __future__ import annotations

from dataclasses import fields, replace
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.missions.rules.allowances import (
    Limits,
    Usage,
    after_person_prompt,
    after_tool,
    check_limits,
    extended,
    refreshed,
)

NAMES = [item.name for item in fields(Limits)]
COUNTS = [item.name for item in fields(Limits) if isinstance(item.default, int)]
FULL = Usage(
    refusals=1, idle_refusals=2, refusals_in_row=3, stale=4, weak_holds=5, background_allows=6, wait_refusals=7,
    tamper_refusals=8, seconds_running=9.0, repeats=10,
)  # fmt: skip


def moved(before: Usage, after: Usage) -> set[str]:
    """Names of the counters that differ."""
    return {item.name for item in fields(Usage) if getattr(before, item.name) != getattr(after, item.name)}


def test_nothing_is_spent_at_first() -> None:
    assert {getattr(Usage(), item.name) for item in fields(Usage)} == {0}


@pytest.mark.requirement("GATE-17")
def test_the_defaults_are_the_published_ones_and_can_stand() -> None:
    assert Limits() == Limits(3, 2, 3, 4, 40, 200, 8, 6, 24.0, 24.0)
    assert check_limits(Limits()) == []


@pytest.mark.requirement("GATE-17")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "value", [nan, inf, -inf, 0, -1, -0.5, True, False, None, "5", [5], 10**400], ids=repr
)
def test_a_limit_that_is_no_positive_finite_number_is_refused_by_name(name: str, value: Any) -> None:
    faults = check_limits(replace(Limits(), **{name: value}))
    assert len(faults) == 1
    assert faults[0].startswith(f"limits.{name} must be a positive ")
    assert len(faults[0]) < 120


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [2.5, 3.0])
def test_a_count_is_a_whole_number(name: str, value: Any) -> None:
    assert check_limits(replace(Limits(), **{name: value}))[0].startswith(
        f"limits.{name} must be a positive whole"
    )


def test_hours_may_be_fractions_and_whole_numbers() -> None:
    assert check_limits(replace(Limits(), wall_clock_hours=0.5, session_idle_hours=2)) == []


def test_every_wrong_limit_is_named_at_once() -> None:
    faults = check_limits(replace(Limits(), idle_refusals=0, refusals_total=-1))
    assert [fault.split()[0] for fault in faults] == ["limits.idle_refusals", "limits.refusals_total"]


@pytest.mark.parametrize(("pivot", "fresh", "stalled"), [(3, 2, 4), (2, 5, 4), (5, 5, 4)])
def test_the_stale_steps_are_in_order(pivot: int, fresh: int, stalled: int) -> None:
    limits = Limits(stale_pivot=pivot, stale_fresh=fresh, stale_stalled=stalled)
    assert check_limits(limits) == ["limits must satisfy stale_pivot <= stale_fresh <= stale_stalled"]


def test_all_stale_steps_may_be_one() -> None:
    assert check_limits(Limits(stale_pivot=1, stale_fresh=1, stale_stalled=1)) == []


@pytest.mark.requirement("GATE-13")
def test_a_person_begins_the_idle_count_the_row_and_the_repeats_anew_and_nothing_else() -> None:
    after = after_person_prompt(FULL)
    assert moved(FULL, after) == {"idle_refusals", "refusals_in_row", "repeats"}
    assert (after.idle_refusals, after.refusals_in_row, after.repeats) == (0, 0, 0)


@pytest.mark.requirement("GATE-13", "GATE-22")
@pytest.mark.parametrize("resets_row", [False, True])
def test_a_tool_begins_the_idle_count_anew_and_the_row_where_the_client_does(resets_row: bool) -> None:
    after = after_tool(FULL, resets_row=resets_row)
    assert moved(FULL, after) == {"idle_refusals", "repeats"} | ({"refusals_in_row"} if resets_row else set())
    assert (after.idle_refusals, after.repeats, after.refusals_in_row) == (0, 0, 0 if resets_row else 3)


@pytest.mark.requirement("LIFE-04")
def test_going_on_keeps_what_the_mission_spent_and_nothing_else() -> None:
    assert refreshed(FULL) == Usage(refusals=1, seconds_running=9.0)


@pytest.mark.requirement("LIFE-04")
def test_more_hours_and_refusals_are_added_to_the_limits() -> None:
    more = extended(Limits(), hours=1.5, refusals=10)
    assert more == replace(Limits(), wall_clock_hours=25.5, refusals_total=210)
    assert extended(Limits()) == Limits()


@pytest.mark.parametrize("hours", [nan, inf, -24.0, -100.0])
def test_what_was_added_is_checked_like_any_limit(hours: float) -> None:
    assert check_limits(extended(Limits(), hours=hours)) != []


@given(
    st.builds(Usage, refusals=st.integers(0, 500), stale=st.integers(0, 9), idle_refusals=st.integers(0, 9))
)
def test_nothing_that_an_agent_or_a_person_does_lowers_the_missions_refusals(usage: Usage) -> None:
    for after in (after_tool(usage, resets_row=True), after_person_prompt(usage), refreshed(usage)):
        assert after.refusals == usage.refusals
