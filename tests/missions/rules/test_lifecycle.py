"""The phases: one table, the machine that runs it, and the fold that follows it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transitions import Machine, MachineError

from omx_autoresearch.foundation.errors import StepIllegal
from omx_autoresearch.foundation.types import Phase, Step
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
from omx_autoresearch.missions.records.sessions import SessionBound
from omx_autoresearch.missions.records.work import ValidationFinished
from omx_autoresearch.missions.rules.mission import (
    COMMAND_FOR,
    FINAL_PHASES,
    TRANSITIONS,
    WIRE_STATUS,
    RunningValidation,
    is_legal,
    legal_steps,
    machine_options,
    next_phase,
)
from tests.missions.rules.samples import BLOCKER, SCRIPT, TASK, a_mission, a_run, at

if TYPE_CHECKING:
    from omx_autoresearch.missions.records import Record
    from omx_autoresearch.missions.rules.mission import Attestation, Mission

PHASES: tuple[Phase, ...] = get_args(Phase)
STEPS: tuple[Step, ...] = get_args(Step)
RECORDS: tuple[tuple[Step, Record], ...] = (
    ("launch", MissionLaunched("running", SCRIPT, "contract")),
    ("complete", MissionCompleted("complete", "r-1")),
    ("block", MissionBlocked("blocked", BLOCKER)),
    ("unblock", MissionUnblocked("running")),
    ("pause", MissionPaused("paused")),
    ("resume", MissionResumed("running")),
    ("cancel", MissionCancelled("cancelled")),
    ("amend", MissionAmended(SCRIPT, "contract-2")),
)
EXPECTED: dict[tuple[Phase, Step], Phase] = {
    ("draft", "launch"): "running",
    ("draft", "cancel"): "cancelled",
    ("draft", "amend"): "draft",
    ("running", "complete"): "complete",
    ("running", "block"): "blocked",
    ("running", "pause"): "paused",
    ("running", "cancel"): "cancelled",
    ("running", "amend"): "running",
    ("blocked", "unblock"): "running",
    ("blocked", "cancel"): "cancelled",
    ("blocked", "amend"): "blocked",
    ("paused", "resume"): "running",
    ("paused", "cancel"): "cancelled",
    ("paused", "amend"): "paused",
}
"""Written out once more, by hand: what the table must say."""


def in_phase(phase: Phase) -> Mission:
    """A mission in a phase, with what belongs to it."""
    return a_mission(
        phase=phase,
        running_since=at(0) if phase == "running" else "",
        blocker=BLOCKER if phase == "blocked" else None,
        attestation=a_run("passed"),
    )


@pytest.mark.requirement("LIFE-01")
@pytest.mark.parametrize(("phase", "step"), [*product(PHASES, STEPS)])
def test_every_step_from_every_phase_leads_where_it_should_or_is_refused(phase: Phase, step: Step) -> None:
    wanted = EXPECTED.get((phase, step))
    assert is_legal(phase, step) is (wanted is not None)
    if wanted is not None:
        assert next_phase(phase, step) == wanted
        return
    with pytest.raises(StepIllegal, match=f"^a {phase}.* cannot be ") as caught:
        next_phase(phase, step, task_id=TASK)
    said = caught.value.message.partition("it can be ")[2].replace(" or ", ", ").split(", ")
    offered = [name for name in legal_steps(phase) if name != "complete"]
    assert len(set(said) - {""}) == len(offered), "an owner completes nothing"
    assert caught.value.next_step.startswith("omx-autoresearch ")
    assert "{" not in caught.value.next_step


@pytest.mark.requirement("LIFE-01")
def test_the_machine_has_the_tables_transitions_and_no_other() -> None:
    for phase, step in product(PHASES, STEPS):
        machine = Machine(**machine_options(TRANSITIONS, phase))
        wanted = [to for name, sources, to in TRANSITIONS if name == step and phase in sources]
        trigger = getattr(machine, step, None)
        if trigger is None:
            assert step == "amend"  # changes no phase, so that it is no transition
        elif wanted:
            trigger()
            assert [machine.state] == wanted
        else:
            with pytest.raises(MachineError):
                trigger()
    assert not hasattr(Machine(**machine_options(TRANSITIONS, "draft")), "to_complete"), (
        "no transition comes by itself"
    )


@pytest.mark.requirement("LIFE-02")
def test_final_phases_have_no_step_and_every_other_has_a_way_on() -> None:
    assert [phase for phase in PHASES if not legal_steps(phase)] == list(FINAL_PHASES)
    for phase in set(PHASES) - set(FINAL_PHASES):
        reached: set[Phase] = {phase}
        for _ in PHASES:
            reached |= {to for _, sources, to in TRANSITIONS if reached & set(sources)}
        assert {"running", "complete", "cancelled"} <= reached


def test_every_phase_has_a_wire_word_and_a_next_command() -> None:
    assert set(WIRE_STATUS) == set(COMMAND_FOR) == set(PHASES)
    assert WIRE_STATUS == {
        "draft": "running",
        "running": "running",
        "blocked": "blocked",
        "paused": "stopped",
        "complete": "complete",
        "cancelled": "stopped",
    }


@pytest.mark.requirement("LIFE-01", "LIFE-02")
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("number", range(len(RECORDS)), ids=[step for step, _ in RECORDS])
def test_the_fold_follows_the_table_and_a_record_without_a_step_changes_nothing(
    phase: Phase, number: int
) -> None:
    step, record = RECORDS[number]
    before = in_phase(phase)
    after = record.apply(before, at(9))
    wanted = EXPECTED.get((phase, step))
    assert after.phase == (wanted or phase)
    if wanted is None:
        assert after == before


@pytest.mark.requirement("LIFE-02", "LIFE-13")
def test_a_record_with_a_phase_that_its_step_does_not_lead_to_changes_nothing() -> None:
    running = in_phase("running")
    for record in (MissionPaused("complete"), MissionBlocked("running", BLOCKER), MissionCompleted("draft")):
        assert record.apply(running, at(9)) == running


@pytest.mark.requirement("LIFE-13")
@pytest.mark.parametrize(
    "run",
    [
        None,
        a_run("failed"),
        a_run("passed", run_id="r-2"),
        a_run("passed", contract_digest="an older contract"),
    ],
    ids=["no run", "a failed run", "another run", "a run under another contract"],
)
def test_a_completion_without_the_passed_run_that_it_names_is_not_believed(run: Attestation | None) -> None:
    before = replace(in_phase("running"), attestation=run)
    after = MissionCompleted("complete", "r-1").apply(before, at(9))
    assert after.phase == "running"
    assert "no run that passed" in after.notices[-1].text


@pytest.mark.requirement("LIFE-13")
def test_a_completion_without_a_run_counts_only_where_the_contract_takes_an_artifact() -> None:
    before = replace(in_phase("running"), attestation=None)
    taken = replace(before, contract=replace(SCRIPT, accept_unattested=True))
    assert MissionCompleted("complete").apply(before, at(9)).phase == "running"
    assert MissionCompleted("complete").apply(taken, at(9)).phase == "complete"


@pytest.mark.requirement("STATE-14")
def test_a_completion_of_an_older_journal_stays_as_it_is() -> None:
    before = replace(in_phase("running"), attestation=None, schema_version=3)
    assert MissionCompleted("complete", "r-1").apply(before, at(9)).phase == "complete"


@pytest.mark.requirement("LIFE-02")
@pytest.mark.case("LOOP-03")
@given(st.lists(st.sampled_from(RECORDS), max_size=12))
def test_no_sequence_of_records_leaves_a_final_phase(records: list[tuple[Step, Record]]) -> None:
    mission = in_phase("draft")
    ended: Mission | None = None
    for second, (_, record) in enumerate(records):
        mission = record.apply(mission, at(second))
        if ended is not None:
            assert mission == ended
        elif mission.phase in FINAL_PHASES:
            ended = mission


@pytest.mark.requirement("LIFE-02")
@pytest.mark.case("SES-04")
@pytest.mark.parametrize("phase", FINAL_PHASES)
def test_a_mission_that_ended_is_bound_to_nobody_and_keeps_the_run_that_ended_it(phase: Phase) -> None:
    ended = replace(in_phase(phase), attestation=a_run("passed"))
    assert SessionBound("s-2", "claude", "prompt").apply(ended, at(9)).binding is None
    late = ValidationFinished(a_run("failed", run_id="r-2")).apply(ended, at(9))
    assert late.attestation == ended.attestation
    for run_id, still in (("r-2", None), ("r-3", RunningValidation("r-3", 1, "mark", at(1), "tree"))):
        going = RunningValidation("r-3", 1, "mark", at(1), "tree")
        running = replace(ended, running_validation=going if still else replace(going, run_id=run_id))
        late = ValidationFinished(a_run("failed", run_id="r-2")).apply(running, at(9))
        assert late.running_validation == still


def test_a_second_creation_in_one_journal_is_ignored() -> None:
    second = MissionCreated("other", "other", "another goal", "standard", "/p", "/w", "specs")
    mission = in_phase("running")
    assert second.apply(mission, at(9)) == mission


def test_time_is_charged_for_running_stretches_only() -> None:
    mission = in_phase("running")
    mission = MissionPaused("paused").apply(mission, at(10))
    mission = MissionResumed("running").apply(mission, at(100))
    mission = MissionBlocked("blocked", BLOCKER).apply(mission, at(105))
    assert (mission.usage.seconds_running, mission.running_since) == (15.0, "")
    mission = MissionUnblocked("running").apply(mission, at(200))
    mission = MissionCancelled("cancelled").apply(mission, at(201))
    assert mission.usage.seconds_running == 16.0


def test_a_clock_that_was_set_back_charges_nothing() -> None:
    mission = replace(in_phase("running"), running_since=at(50), updated_at=at(50))
    assert MissionPaused("paused").apply(mission, at(10)).usage.seconds_running == 0.0


@pytest.mark.requirement("LIFE-04")
def test_going_on_refreshes_the_short_allowances_keeps_what_was_spent_and_adds() -> None:
    spent = replace(
        a_mission().usage, refusals=200, stale=4, idle_refusals=3, wait_refusals=6, seconds_running=9.0
    )
    blocked = replace(in_phase("blocked"), usage=spent)
    mission = MissionUnblocked("running", "more", add_hours=2.0, add_refusals=50).apply(blocked, at(9))
    assert (mission.usage.refusals, mission.usage.seconds_running) == (200, 9.0)
    assert (mission.usage.stale, mission.usage.idle_refusals, mission.usage.wait_refusals) == (0, 0, 0)
    assert (mission.limits.refusals_total, mission.limits.wall_clock_hours) == (250, 26.0)
    assert (mission.blocker, mission.running_since) == (None, at(9))
    only_hours = MissionResumed("running", add_hours=1.0).apply(in_phase("paused"), at(9)).limits
    assert (only_hours.wall_clock_hours, only_hours.refusals_total) == (25.0, 200)
    only_refusals = MissionUnblocked("running", add_refusals=1).apply(in_phase("blocked"), at(9)).limits
    assert (only_refusals.wall_clock_hours, only_refusals.refusals_total) == (24.0, 201)


@pytest.mark.requirement("DONE-08")
def test_after_the_owner_let_it_go_on_no_old_failure_is_reused() -> None:
    mission = MissionUnblocked("running").apply(replace(in_phase("blocked"), attestation=a_run()), at(9))
    assert (mission.is_recheck_due, mission.prompted_at) == (True, at(9))


def test_a_workspace_that_moved_is_taken_and_else_stays() -> None:
    draft, live = in_phase("draft"), in_phase("running")
    for moved, kept in (
        (
            MissionLaunched("running", SCRIPT, "c", workspace_path="/w").apply(draft, at(1)),
            MissionLaunched("running", SCRIPT).apply(draft, at(1)),
        ),
        (
            MissionAmended(SCRIPT, "c", workspace_path="/w").apply(live, at(1)),
            MissionAmended(SCRIPT).apply(live, at(1)),
        ),
    ):
        assert (moved.workspace_path, kept.workspace_path) == ("/w", "/project")


@pytest.mark.requirement("LIFE-05")
def test_an_amendment_takes_old_verdicts_out_of_the_count() -> None:
    mission = a_mission(attestation=a_run("passed"), best_score=9.0, last_score=9.0)
    amended = MissionAmended(replace(SCRIPT, baseline_score=1.0), "contract-2").apply(mission, at(9))
    assert (amended.phase, amended.best_score, amended.last_score) == ("running", 1.0, 1.0)
    assert amended.contract_digest == "contract-2"
