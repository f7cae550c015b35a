"""Directions over real files: declared, refused, injected, claimed, relayed, counted by two processes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import StepIllegal, StorageFailed
from omx_autoresearch.journal.layout import ProjectFolder
from omx_autoresearch.missions import claims, lifecycle_commands
from omx_autoresearch.missions.claims import relay_line, take_in
from omx_autoresearch.missions.directions import declare, inject
from omx_autoresearch.missions.records.work import DirectionDeclared
from omx_autoresearch.missions.rules.directions import (
    AXES,
    DIRECTIONS_LIMIT,
    INJECTED_LIMIT,
    OPEN_LIMIT,
    Direction,
    claim_text,
    claimed_direction,
    direction_of,
    fingerprint_of,
)
from omx_autoresearch.missions.views import view
from tests.support.scratch import OTHER, SESSION

if TYPE_CHECKING:
    from omx_autoresearch.missions.directions import Declared
    from omx_autoresearch.missions.rules.mission import Mission
    from tests.support.scratch import Scratch

PATIENT = {"idle_refusals": 50}


def begun(world: Scratch) -> Mission:
    """A patient mission whose validator has said what it says: from now on only what is done counts."""
    mission = world.mission(limits=PATIENT)
    world.stop()
    assert world.load(mission).usage.stale == 0
    return mission


def say(world: Scratch, mission: Mission, text: str, **options: Any) -> Declared:
    """Declare a direction as the agent."""
    axes = options.pop("axes", {})
    return declare(world.runtime(), mission.task_id, direction_of(text, axes, **options))


def drop(world: Scratch, mission: Mission, direction: Direction) -> None:
    """Leave a direction in the inbox, as a sandboxed command does."""
    path = ProjectFolder(str(world.project)).inbox_path(mission.task_id)
    claims.drop_claim(path, claim_text(direction), verb=claims.DIRECTION_VERB, at=world.runtime().now())


def without_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox that lets nobody write the state home."""

    def refuse(*_: object) -> None:
        raise StorageFailed("read-only", next_step="leave the sandbox")

    monkeypatch.setattr("omx_autoresearch.journal.log.Journal.locked", refuse)


def stall(world: Scratch, mission: Mission) -> None:
    """Refused until it is blocked as stalled."""
    for _ in range(4):
        world.tool()
        world.stop()
    assert world.load(mission).blocker is not None


# --- declared


@pytest.mark.requirement("DIR-05")
def test_the_axis_that_is_offered_was_not_named_lately_and_is_the_same_for_the_same_history(
    world: Scratch,
) -> None:
    offers = []
    for session in (SESSION, OTHER):
        mission = world.mission(session=session)
        named = {axis: "x" for axis in AXES if axis not in ("environment", "objective")}
        offers.append(
            [say(world, mission, text, axes=named).offered_axis for text in ("profile io", "cache")]
        )
    assert offers[0] == offers[1]
    assert set(offers[0]) <= {"environment", "objective"}


@pytest.mark.requirement("DIR-03")
def test_a_declared_direction_is_the_current_one_in_state_and_projections(world: Scratch) -> None:
    mission = world.mission()
    declared = say(world, mission, "Profile markdown rendering", axes={"search_space": "parser"})
    assert (declared.is_recorded, declared.faults, declared.repeats, declared.near) == (True, (), None, None)
    assert declared.mission.current_direction == "Profile markdown rendering"
    world.follow()
    state = world.project / ".omx" / "autoresearch" / mission.task_id / "state"
    assert json.loads((state / "directions_tried.json").read_bytes()) == [
        {
            "fingerprint": declared.direction.fingerprint,
            "summary": "Profile markdown rendering",
            "first_seen_iteration": 0,
            "last_seen_iteration": 0,
            "count": 1,
        }
    ]
    progress = json.loads((state / "progress.json").read_bytes())
    assert progress["current_direction"] == "Profile markdown rendering"
    assert (progress["stale_count"], progress["pivot_count"], progress["pivot_required"]) == (0, 0, False)


@pytest.mark.requirement("DIR-03")
@pytest.mark.parametrize("text", ["", "...", "\ud800", "\0"])
def test_a_direction_without_words_is_a_value_with_a_reason_and_nothing_is_recorded(
    world: Scratch, text: str
) -> None:
    mission = world.mission()
    before = world.kinds(mission)
    declared = say(world, mission, text)
    assert "say in words" in declared.faults[0]
    assert not declared.is_recorded
    assert world.kinds(mission) == before


def test_a_direction_of_any_text_survives_the_journal(world: Scratch) -> None:
    mission = world.mission()
    for text in ("x\0y \ud800 z", "word " * 3_000, "\U0001f680", "\u4f18\u5316\u6e32\u67d3", 'a "b" \\ $(c)'):
        assert say(world, mission, text).is_recorded
    for item, record in zip(
        world.load(mission).directions, world.records(mission, "direction_declared"), strict=True
    ):
        assert item.fingerprint == fingerprint_of(record["data"]["direction"]["summary"])


@pytest.mark.requirement("DIR-02")
def test_a_near_duplicate_is_recorded_and_flagged_with_the_one_that_it_repeats(world: Scratch) -> None:
    mission = world.mission()
    say(world, mission, "Profile markdown rendering")
    declared = say(world, mission, "rendering markdown profiles")
    assert declared.is_recorded
    assert declared.near is not None
    assert declared.near.summary == "Profile markdown rendering"
    pivot = say(world, mission, "markdown renderings: profile", is_pivot=True, axes={"objective": "speed"})
    assert "nearly repeats" in pivot.faults[0]
    assert not pivot.is_pivot_accepted


@pytest.mark.requirement("DIR-04")
def test_a_pivot_that_is_none_is_refused_with_the_reason_and_a_real_one_counts(world: Scratch) -> None:
    mission = world.mission()
    say(world, mission, "one", axes={"search_space": "parser"})
    for axes, why in (({}, "name the axis"), ({"search_space": "Parser 2"}, "changes no structural axis")):
        refused = say(world, mission, "two", is_pivot=True, axes=axes)
        assert why in refused.faults[0]
    accepted = say(world, mission, "two", is_pivot=True, axes={"search_space": "the cache"})
    assert accepted.is_pivot_accepted
    assert (accepted.mission.pivot_count, accepted.mission.turn_has_pivot) == (1, True)
    assert view(world.runtime(), mission.task_id).pivot_count == 1
    world.tool()
    world.stop()
    again = say(world, mission, "One!", is_pivot=True, axes={"objective": "other"})
    assert "repeats 'one'" in again.faults[0]


@pytest.mark.requirement("DIR-03")
@pytest.mark.parametrize("phase", ["draft", "paused", "blocked", "cancelled"])
def test_a_direction_is_declared_while_the_mission_runs(world: Scratch, phase: str) -> None:
    mission = world.draft() if phase == "draft" else world.mission()
    if phase == "paused":
        lifecycle_commands.pause(world.runtime(), mission.task_id)
    if phase == "blocked":
        lifecycle_commands.block(world.runtime(), mission.task_id, reason="no device", needs="one")
    if phase == "cancelled":
        lifecycle_commands.cancel(world.runtime(), mission.task_id)
    with pytest.raises(StepIllegal) as error:
        say(world, mission, "try it")
    assert phase in str(error.value)
    assert error.value.next_step


@pytest.mark.requirement("DIR-03", "STALL-01")
def test_a_repeated_direction_adds_one_although_the_tree_changed(world: Scratch) -> None:
    mission = begun(world)
    say(world, mission, "profile it")
    world.write("notes.md", "first\n")
    world.stop()
    assert world.load(mission).usage.stale == 0
    say(world, mission, "Profile it.")
    world.write("notes.md", "other\n")
    world.stop()
    assert world.load(mission).usage.stale == 1
    world.write("notes.md", "another\n")
    world.stop()
    assert world.load(mission).usage.stale == 1


@pytest.mark.requirement("DIR-03")
def test_after_a_stall_what_was_tried_is_refused_until_strong_progress(world: Scratch) -> None:
    world.write("check.sh", "#!/bin/sh\ncat score.txt\nexit 1\n", executable=True)
    world.write("score.txt", '{"score": 1}\n')
    mission = world.mission(limits=PATIENT, protect=("!score.txt",))
    world.stop()
    say(world, mission, "profile it")
    stall(world, mission)
    lifecycle_commands.unblock(world.runtime(), mission.task_id)
    refused = say(world, mission, "PROFILE it")
    assert "after a stall" in refused.faults[0]
    assert "'profile it'" in refused.faults[0]
    assert say(world, mission, "cache it").is_recorded
    assert say(world, mission, "PROFILE it", by="owner").is_recorded, "the owner may"
    world.write("score.txt", '{"score": 2}\n')
    assert world.stop().refusal
    assert world.load(mission).usage.stale == 0
    assert say(world, mission, "profile it").is_recorded


@pytest.mark.requirement("DIR-03")
def test_from_the_demanded_pivot_on_a_repetition_is_refused(world: Scratch) -> None:
    mission = begun(world)
    say(world, mission, "profile it")
    for _ in range(2):
        world.tool()
        world.stop()
    assert world.load(mission).is_pivot_required
    assert "after a stall" in say(world, mission, "profile it").faults[0]
    assert world.load(mission).turn_repeats_direction is False, "a refusal moves nothing"


def test_a_mission_remembers_a_bounded_number_of_directions_and_says_so(world: Scratch) -> None:
    mission = world.mission()
    with world.store.transaction(mission.task_id, world.runtime().now()) as transaction:
        transaction.record(*(DirectionDeclared(direction_of(str(n), {})) for n in range(DIRECTIONS_LIMIT)))
    assert f"at most {DIRECTIONS_LIMIT}" in say(world, mission, "one more").faults[0]
    assert say(world, mission, "7").is_recorded


# --- stall


@pytest.mark.requirement("STALL-01")
def test_an_untried_pivot_holds_the_count_and_the_same_again_does_not(world: Scratch) -> None:
    mission = begun(world)
    world.tool()
    world.stop()
    assert world.load(mission).usage.stale == 1
    say(world, mission, "from the other end", is_pivot=True, axes={"decomposition": "backwards"})
    world.tool()
    world.stop()
    assert (world.load(mission).usage.stale, world.load(mission).usage.weak_holds) == (1, 2)
    world.tool()
    world.stop()
    assert world.load(mission).usage.stale == 2


@pytest.mark.requirement("STALL-03", "STALL-04")
def test_the_demand_for_a_pivot_is_recorded_once_and_told_with_its_command(world: Scratch) -> None:
    mission = begun(world)
    said = []
    for _ in range(3):
        world.tool()
        said.append(world.stop().refusal)
    assert "direction add" not in said[0]
    (record,) = world.records(mission, "pivot_required")
    axis = record["data"]["axis"]
    assert "a structural pivot is required" in said[1]
    assert f'omx-autoresearch direction add {mission.task_id} "..." --axis {axis}="..." --pivot' in said[1]
    assert "take a direction that was not tried before" in said[2]
    world.tool()
    released = world.stop()
    assert released.refusal == ""
    assert "smallest external input" in released.person_message
    shown = view(world.runtime(), mission.task_id)
    assert any("a structural pivot is required" in notice for notice in shown.notices)
    kinds = [item.kind for item in shown.lifecycle]
    assert kinds == ["mission_created", "mission_launched", "pivot_required", "mission_blocked"]


@pytest.mark.requirement("STALL-03")
def test_a_pivot_that_was_just_declared_is_noted_and_not_demanded_again(world: Scratch) -> None:
    mission = begun(world)
    for _ in range(2):
        world.tool()
        world.stop()
    say(world, mission, "from the other end", is_pivot=True, axes={"decomposition": "backwards"})
    world.tool()
    refusal = world.stop().refusal
    assert 'Pivot noted: "from the other end"' in refusal
    assert "--pivot" not in refusal


# --- injected


@pytest.mark.requirement("DIR-06")
def test_an_injected_direction_is_told_until_it_is_taken_up_by_fingerprint_or_words(world: Scratch) -> None:
    mission = begun(world)
    given = inject(
        world.runtime(), mission.task_id, direction_of("Ask the database team", {"source_class": "people"})
    )
    fingerprint = given.direction.fingerprint
    world.tool()
    refusal = world.stop().refusal
    assert 'The owner directs: "Ask the database team"' in refusal
    assert f"next: omx-autoresearch direction add {mission.task_id} {fingerprint}" in refusal
    context = world.prompt("and?").context
    assert 'The owner directs: "Ask the database team"' in context
    taken = say(world, mission, fingerprint, is_pivot=True)
    assert taken.is_pivot_accepted
    assert (taken.direction.summary, taken.direction.axes) == (
        "Ask the database team",
        {"source_class": "people"},
    )
    assert taken.mission.open_directions == ()
    world.tool()
    assert "The owner directs" not in world.stop().refusal


@pytest.mark.requirement("DIR-06")
def test_what_the_owner_asks_for_is_no_repetition_even_after_a_stall(world: Scratch) -> None:
    mission = begun(world)
    say(world, mission, "profile it")
    stall(world, mission)
    declared = inject(world.runtime(), mission.task_id, direction_of("Profile it", {}))
    assert declared.repeats is not None
    lifecycle_commands.unblock(world.runtime(), mission.task_id)
    assert say(world, mission, "profile it").is_recorded
    assert world.load(mission).turn_repeats_direction is False


@pytest.mark.requirement("DIR-06")
def test_an_injection_has_limits_that_are_said(world: Scratch) -> None:
    mission = world.mission()
    long = inject(world.runtime(), mission.task_id, direction_of("x" * (INJECTED_LIMIT + 1), {}))
    assert f"at most {INJECTED_LIMIT}" in long.faults[0]
    for number in range(OPEN_LIMIT):
        assert not inject(world.runtime(), mission.task_id, direction_of(f"way {number}", {})).faults
    assert (
        "already wait for the agent"
        in inject(world.runtime(), mission.task_id, direction_of("more", {})).faults[0]
    )
    assert not inject(world.runtime(), mission.task_id, direction_of("way 3", {})).faults
    lifecycle_commands.cancel(world.runtime(), mission.task_id)
    with pytest.raises(StepIllegal):
        inject(world.runtime(), mission.task_id, direction_of("late", {}))


# --- claimed and relayed


@pytest.mark.requirement("DIR-07")
def test_a_sandboxed_declaration_waits_in_the_inbox_and_moves_no_counter(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = begun(world)
    with monkeypatch.context() as patch:
        without_journal(patch)
        axes = {"decomposition": "backwards"}
        declared = say(world, mission, "from the other end", is_pivot=True, axes=axes)
        assert declared.inbox_file_path
        assert (declared.is_recorded, declared.is_pivot_accepted) == (False, False)
        assert say(world, mission, "...").faults, "judged before anything is left there"
    world.tool()
    world.stop()
    after = world.load(mission)
    assert (after.current_direction, after.pivot_count, after.usage.stale) == ("from the other end", 0, 1)
    assert (after.claim_count, after.directions[0].count) == (1, 1)
    assert after.recent_directions[0].axes == axes
    assert world.records(mission, "direction_declared")[0]["data"]["direction"]["by"] == "claim"


@pytest.mark.requirement("DIR-07")
def test_a_claim_is_taken_in_once_and_none_of_garbage(world: Scratch) -> None:
    mission = world.mission()
    for text in ("one way", "one way", "..."):
        drop(world, mission, direction_of(text, {}, is_pivot=True))
    take_in(world.runtime(), mission.task_id)
    after = world.load(mission)
    assert [(item.summary, item.count) for item in after.directions] == [("one way", 1)]
    assert after.claim_count == 2
    assert (after.turn_has_pivot, after.turn_has_direction) == (False, False)


@pytest.mark.requirement("DIR-07")
def test_a_claim_of_what_was_declared_meanwhile_counts_nothing_more(world: Scratch) -> None:
    mission = world.mission()
    say(world, mission, "one way")
    drop(world, mission, direction_of("one way", {}))
    take_in(world.runtime(), mission.task_id)
    assert world.load(mission).directions[0].count == 1


def test_a_direction_says_the_same_in_the_inbox_and_out_of_it() -> None:
    direction = direction_of("try: it", {"objective": "a: b", "search_space": "c"}, by="claim")
    assert claimed_direction(claim_text(direction)) == direction


@pytest.mark.requirement("DIR-07", "SESS-16")
def test_the_hook_declares_what_a_sandboxed_command_asked_for_and_once(world: Scratch) -> None:
    mission = world.mission()
    command = (
        f"omx-autoresearch direction add {mission.task_id} 'from the other end' "
        "--axis decomposition=backwards --axis 'objective=less work' --pivot"
    )
    for _ in range(2):
        world.tool(command=command, output=relay_line("direction"))
    after = world.load(mission)
    assert (after.current_direction, after.pivot_count, after.turn_has_pivot) == (
        "from the other end",
        1,
        True,
    )
    assert after.recent_directions[0].axes == {"decomposition": "backwards", "objective": "less work"}
    assert after.directions[0].count == 1


@pytest.mark.requirement("SESS-16")
@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("omx-autoresearch direction add 'x y'", ""),
        ("omx-autoresearch direction add 'x y'", "note"),
        ("omx-autoresearch direction list", "direction"),
        ("omx-autoresearch direction add $(id)", "direction"),
        ("omx-autoresearch direction add x --by owner", "direction"),
        ("omx-autoresearch direction add '...'", "direction"),
        ("omx-autoresearch direction", "direction"),
        ("omx-autoresearch direct 'x y'", "direct"),
    ],
)
def test_the_hook_declares_nothing_else(world: Scratch, command: str, output: str) -> None:
    mission = world.mission()
    world.tool(command=command, output=relay_line(output) if output else "")
    assert world.load(mission).directions == ()
    assert world.load(mission).open_directions == ()


# --- logs


@pytest.mark.requirement("BRIEF-03")
def test_the_logs_tell_what_was_tried_as_decisions_of_the_agent_and_what_was_demanded_as_warnings(
    world: Scratch,
) -> None:
    mission = begun(world)
    say(world, mission, "one way")
    say(world, mission, "from behind", is_pivot=True, axes={"decomposition": "backwards"})
    inject(world.runtime(), mission.task_id, direction_of("ask somebody", {}))
    for _ in range(3):
        world.tool()
        world.stop()
    logs = Path(ProjectFolder(str(world.project)).task_path(mission.task_id), "logs")
    work = [json.loads(line) for line in (logs / "work.jsonl").read_text().splitlines()]
    assert [(line["source"], line["level"], line["event"], line["detail"]) for line in work] == [
        ("agent", "decision", "direction", "one way"),
        ("agent", "decision", "pivot", "from behind"),
    ]
    told = [json.loads(line) for line in (logs / "orchestrator.jsonl").read_text().splitlines()]
    found = {line["event"]: line for line in told}
    assert found["direction_injected"]["detail"] == "ask somebody"
    assert found["pivot_required"]["level"] == "warn"
    assert found["pivot_required"]["detail"].startswith("stale 2, offered axis ")
    assert "direction_declared" not in found


# --- two processes


@pytest.mark.requirement("DIR-08")
@pytest.mark.case("BUD-05")
def test_two_processes_of_two_hundred_records_each_end_at_four_hundred(world: Scratch) -> None:
    mission = world.mission()
    children = []
    for _ in range(2):
        pid = os.fork()
        if not pid:
            status = 1
            try:
                for number in range(200):
                    assert say(world, mission, f"way {number}").is_recorded
                world.follow()
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
    state = world.load(mission)
    assert len(world.records(mission, "direction_declared")) == 400
    assert [item.count for item in state.directions] == [2] * 200
    path = Path(
        ProjectFolder(str(world.project)).task_path(mission.task_id), "state", "directions_tried.json"
    )
    tried = json.loads(path.read_bytes())
    assert sum(item["count"] for item in tried) == 400
    assert len(path.read_text().splitlines()) == 202, "a line each"
