"""What the records of directions, evidence and stops make of a mission; no order of them holds one for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omx_autoresearch.missions.records.lifecycle import (
    MissionAmended,
    MissionBlocked,
    MissionCancelled,
    MissionCompleted,
    MissionCreated,
    MissionLaunched,
    MissionPaused,
    MissionResumed,
    MissionUnblocked,
)
from omx_autoresearch.missions.records.sessions import HeartbeatFailed
from omx_autoresearch.missions.records.work import (
    KEPT_RECENT,
    DirectionDeclared,
    DirectionInjected,
    FindingRecorded,
    PivotRequired,
    ReadinessBlocked,
    StopAllowed,
    StopFacts,
    StopRefused,
    StopReleased,
    pivot_demanded,
)
from omx_autoresearch.missions.rules.allowances import Limits, Usage
from omx_autoresearch.missions.rules.criteria import Evidence, Finding
from omx_autoresearch.missions.rules.directions import OPEN_LIMIT, direction_of
from omx_autoresearch.missions.rules.gate import Situation, decide, observe
from omx_autoresearch.missions.rules.mission import KEPT_NOTICES, Blocker
from tests.missions.rules.samples import BLOCKER, NEEDED, SCRIPT, TASK, a_mission, a_run, at

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission

SMALL = Limits(
    idle_refusals=50, stale_pivot=2, stale_fresh=3, stale_stalled=4, weak_holds=3, refusals_total=60
)


def after(mission: Mission, *records: Any) -> Mission:
    """The mission after some records."""
    for record in records:
        mission = record.apply(mission, at(1))
    return mission


def declared(text: str, *, is_pivot: bool = False, by: Any = "agent", **axes: str) -> DirectionDeclared:
    return DirectionDeclared(direction_of(text, axes, is_pivot=is_pivot, by=by))


def refused(mission: Mission, progress: str = "none") -> StopRefused:
    """A counted refusal that ends an iteration."""
    return StopRefused(StopFacts("s", "validation", mission.usage, is_iteration=True), progress=progress)


def finding(number: int, criterion: str = "", *, is_new: bool = True) -> FindingRecorded:
    evidence = Evidence(criterion, f"digest {number}", is_new=is_new) if criterion else None
    return FindingRecorded(Finding(f"f{number}", "manual", "seen", evidence=evidence))


# --- declarations


@pytest.mark.requirement("DIR-03")
def test_a_direction_is_counted_and_becomes_the_current_one() -> None:
    mission = after(a_mission(iteration=2), declared("profile it", search_space="parser"))
    mission = after(replace(mission, iteration=4), declared("Profile, it!"), declared("cache it"))
    first, second = mission.directions
    assert (first.first_seen_iteration, first.last_seen_iteration, first.count) == (2, 4, 2)
    assert (second.first_seen_iteration, second.count) == (4, 1)
    assert mission.current_direction == "cache it"
    assert first.summary == "profile it", "the words of its first declaration"


@pytest.mark.requirement("DIR-03")
def test_a_direction_of_an_earlier_iteration_is_a_repetition_and_the_same_iteration_is_not() -> None:
    mission = after(a_mission(), declared("profile it"), declared("profile it"))
    assert (mission.turn_has_direction, mission.turn_repeats_direction) == (True, False)
    mission = after(mission, refused(mission))
    assert mission.turn_has_direction is False
    mission = after(mission, declared("PROFILE it"))
    assert mission.turn_repeats_direction is True
    assert after(mission, refused(mission)).turn_repeats_direction is False


@pytest.mark.requirement("STALL-01")
def test_only_an_untried_pivot_counts_and_once() -> None:
    pivot = declared("from the other end", is_pivot=True, decomposition="backwards")
    mission = after(a_mission(), pivot, pivot)
    assert (mission.turn_has_pivot, mission.pivot_count) == (True, 1)
    mission = after(after(mission, refused(mission)), pivot)
    assert (mission.turn_has_pivot, mission.pivot_count) == (False, 1)
    same = after(a_mission(), declared("x"), declared("x", is_pivot=True, objective="y"))
    assert (same.turn_has_pivot, same.pivot_count) == (True, 1), "declared as a pivot a moment later"


@pytest.mark.requirement("DIR-07")
def test_a_claimed_direction_is_remembered_and_moves_nothing() -> None:
    before = a_mission(iteration=3, usage=Usage(stale=2))
    mission = after(before, declared("from the inbox", by="claim"), declared("from the inbox", by="claim"))
    assert [(item.summary, item.count) for item in mission.directions] == [("from the inbox", 1)]
    assert mission.current_direction == "from the inbox"
    assert mission.has_declared_direction is False
    assert (mission.turn_has_direction, mission.turn_has_pivot, mission.turn_repeats_direction) == (
        False,
    ) * 3
    assert (mission.usage, mission.pivot_count) == (before.usage, 0)
    later = after(replace(mission, iteration=4), declared("from the inbox", by="claim"))
    assert later.directions[0].count == 2
    assert later.turn_repeats_direction is False


@pytest.mark.requirement("DIR-06")
def test_an_injected_direction_is_open_until_it_is_taken_up_and_never_a_repetition() -> None:
    given_ = direction_of("ask the database team", {}, by="owner")
    mission = after(a_mission(), declared("ask the database team"))
    mission = after(after(mission, refused(mission)), DirectionInjected(given_), DirectionInjected(given_))
    assert mission.open_directions == (given_,)
    assert (mission.current_direction, len(mission.directions)) == ("ask the database team", 1)
    mission = after(mission, declared("Ask the database team."))
    assert mission.open_directions == ()
    assert mission.turn_repeats_direction is False
    many = after(mission, *(DirectionInjected(direction_of(f"way {n}", {})) for n in range(20)))
    assert len(many.open_directions) == OPEN_LIMIT


def test_long_directions_are_kept_short_in_the_state() -> None:
    mission = a_mission()
    for number in range(KEPT_RECENT + 3):
        mission = after(mission, declared(f"{'word ' * 2_000}{number}"))
    assert len(mission.recent_directions) == KEPT_RECENT
    assert len(mission.directions) == KEPT_RECENT + 3
    assert {len(item.summary) for item in mission.directions} == {300}
    assert {len(item.summary) for item in mission.recent_directions} == {300}


@pytest.mark.requirement("DIR-03")
def test_a_stall_is_remembered_over_an_unblock_until_strong_progress() -> None:
    mission = after(a_mission(), MissionBlocked("blocked", BLOCKER), MissionUnblocked("running"))
    assert (mission.usage.stale, mission.is_pivot_required, mission.is_after_stall) == (0, False, True)
    assert after(mission, refused(mission, "weak")).is_after_stall is True
    assert after(mission, StopAllowed(StopFacts("s", "host-user-abort", Usage()))).is_after_stall is True
    assert after(mission, refused(mission, "strong")).is_after_stall is False
    assert after(mission, StopReleased(StopFacts("s", "x", Usage()), "strong")).has_stalled is False
    other = after(
        a_mission(),
        MissionBlocked("blocked", replace(BLOCKER, reason_code="agent-blocked")),
        MissionUnblocked("running"),
    )
    assert other.is_after_stall is False
    assert a_mission(usage=Usage(stale=2)).is_after_stall is True


# --- what an iteration achieved


@pytest.mark.requirement("STALL-02")
def test_evidence_is_strong_once_for_each_criterion_and_the_same_again_is_nothing() -> None:
    mission = after(a_mission(), finding(1, "tests"))
    assert observe(mission, has_tree_change=False, used_tools=True).has_new_evidence is True
    mission = after(
        mission, refused(mission, "strong"), finding(2, "tests", is_new=False), finding(3, "tests")
    )
    assert observe(mission, has_tree_change=False, used_tools=True).has_new_evidence is False
    assert after(mission, finding(4, "other")).turn_evidence == 1


@pytest.mark.requirement("STALL-01")
@pytest.mark.parametrize(
    ("direction", "has_finding", "has_tree_change", "used_tools", "is_reading"),
    [
        ("agent", True, False, True, True),
        ("owner", True, False, True, True),
        ("claim", True, False, True, False),
        ("", True, False, True, False),
        ("agent", False, False, True, False),
        ("agent", True, True, True, False),
        ("agent", True, False, False, False),
    ],
)
def test_reading_counts_with_tools_a_declared_direction_and_a_finding(
    direction: str, has_finding: bool, has_tree_change: bool, used_tools: bool, is_reading: bool
) -> None:
    mission = after(a_mission(), declared("read the papers", by=direction)) if direction else a_mission()
    mission = after(mission, refused(mission))  # a direction stands until another one does
    if has_finding:
        mission = after(mission, finding(1))
    seen = observe(mission, has_tree_change=has_tree_change, used_tools=used_tools)
    assert seen.has_reading is is_reading


@pytest.mark.requirement("STALL-04")
def test_the_pivot_is_demanded_when_the_count_reaches_it_and_not_again() -> None:
    mission = a_mission(usage=Usage(stale=1))
    (demand,) = pivot_demanded(mission, Usage(stale=2))
    assert demand.stale == 2
    assert after(mission, demand).notices[-1].kind == "pivot_required"
    assert demand.axis in after(mission, demand).notices[-1].text
    assert pivot_demanded(mission, Usage(stale=1)) == ()
    assert pivot_demanded(a_mission(usage=Usage(stale=2)), Usage(stale=3)) == ()


# --- notices


@pytest.mark.requirement("BRIEF-03")
def test_each_step_of_a_mission_s_life_leaves_a_notice() -> None:
    created = MissionCreated(TASK, "p", "goal", "standard", "/p", "/p", ".omx/specs/autoresearch-p")
    mission = replace(created.apply(None, at(0)), phase="running", contract=SCRIPT)
    mission = replace(mission, contract_digest="contract", attestation=a_run("passed"))
    blocker = Blocker("agent-blocked", "no device", "a device", "omx-autoresearch unblock", "agent")
    mission = after(
        mission,
        HeartbeatFailed("turn_done", "No space left on device"),
        PivotRequired(2, "objective"),
        ReadinessBlocked(("criterion:tests",)),
        MissionBlocked("blocked", blocker),
        MissionUnblocked("running", "here it is"),
        MissionPaused("paused"),
        MissionResumed("running"),
        MissionCompleted("complete", "r-1"),
    )
    assert [notice.kind for notice in mission.notices] == [
        *("mission_created", "heartbeat_failed", "pivot_required", "readiness_blocked", "mission_blocked"),
        *("mission_unblocked", "mission_paused", "mission_resumed", "mission_completed"),
    ]
    texts = [notice.text for notice in mission.notices]
    assert "No space left on device" in texts[1]
    assert "criterion:tests" in texts[3]
    assert texts[4] == "agent-blocked: no device"
    assert texts[5].endswith("here it is")
    assert all(notice.at for notice in mission.notices)
    again = after(
        mission, MissionResumed("running"), MissionBlocked("blocked", blocker), MissionCompleted("complete")
    )
    assert again.notices == mission.notices, "a step that is not legal is no event"
    begun = after(
        created.apply(None, at(0)),
        MissionLaunched("running", SCRIPT, "d", reason="by hand"),
        MissionCancelled("cancelled", "enough"),
    )
    assert [notice.text for notice in begun.notices[1:]] == ["started: by hand", "cancelled: enough"]
    amended = after(a_mission(), MissionAmended(SCRIPT, "e", reason="a better check"))
    assert amended.notices[-1].text == "the contract was amended: a better check"
    many = after(a_mission(), *(PivotRequired(number, "objective") for number in range(40)))
    assert len(many.notices) == KEPT_NOTICES


# --- no order of them holds a mission for ever


ACTS = ("new", "same", "pivot", "claim", "finding", "evidence", "evidence again", "edit", "tool", "stop")


@pytest.mark.requirement("GATE-18", "STALL-01")
@settings(max_examples=300)
@given(st.lists(st.sampled_from(ACTS), max_size=120))
def test_pivots_directions_and_evidence_in_any_order_keep_the_bound(acts: list[str]) -> None:
    contract = replace(SCRIPT, limits=SMALL)
    mission, edits, tools, counted, number = a_mission(contract), 0, False, 0, 0
    for act in (*acts, *["pivot", "finding", "edit", "stop"] * 80):
        number += 1
        tools = tools or act != "stop"
        if act == "edit":
            edits += 1
        elif act != "stop":
            mission = after(mission, *_records(act, number))
            continue
        if act != "stop":
            continue
        seen = observe(mission, has_tree_change=edits > 0, used_tools=tools)
        decision = decide(
            Situation(missing=(NEEDED,), observation=seen, used_tools=tools), mission.usage, SMALL
        )
        if decision.answer == "release":
            return
        counted = 0 if decision.progress == "strong" else counted + 1
        assert counted <= SMALL.stale_stalled - 1 + SMALL.weak_holds
        facts = StopFacts("s", decision.reason_code, decision.usage, is_iteration=decision.is_iteration)
        mission, edits, tools = after(mission, StopRefused(facts, progress=decision.progress)), 0, False
    pytest.fail("it was never let go")


def _records(act: str, number: int) -> tuple[Any, ...]:
    """What an agent that would like to be held for ever may do between two stops."""
    made: dict[str, Any] = {
        "new": lambda: declared(f"way {number}"),
        "same": lambda: declared("the same way"),
        "pivot": lambda: declared(f"pivot {number}", is_pivot=True, objective=f"{number}"),
        "claim": lambda: declared(f"claim {number}", is_pivot=True, by="claim"),
        "finding": lambda: finding(number),
        "evidence": lambda: finding(number, f"criterion{number % 3}"),
        "evidence again": lambda: finding(number, "criterion0", is_new=False),
    }
    return (made[act](),) if act in made else ()
