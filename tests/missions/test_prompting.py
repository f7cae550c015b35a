"""What a person types to the agent is carried out and told to both."""

from __future__ import annotations

import pytest

from omx_autoresearch.missions import hook_events, lifecycle_commands
from tests.support.scratch import OTHER, SESSION, Scratch


@pytest.mark.requirement("SESS-15", "LIFE-01")
def test_each_verb_is_carried_out_and_told_to_the_agent_and_to_the_person(world: Scratch) -> None:
    mission = world.mission()
    told: dict[str, list[tuple[str, str]]] = {}
    for verb in ("status", "pause", "pause", "resume", "cancel", "cancel"):
        reply = world.prompt(f"$autoresearch {verb} {mission.task_id}")
        assert reply.context
        assert reply.person_message == reply.context.splitlines()[0] or "next:" in reply.context
        told.setdefault(verb, []).append((world.load(mission).phase, reply.person_message))
    assert [phase for verb in told.values() for phase, _ in verb] == [
        "running", "paused", "paused", "running", "cancelled", "cancelled",
    ]  # fmt: skip
    assert "holds no session" in told["pause"][0][1]
    assert "a paused mission cannot be paused" in told["pause"][1][1]
    assert "it cannot be reopened" in told["cancel"][1][1]


@pytest.mark.requirement("SESS-15")
def test_resume_typed_by_a_person_lets_a_blocked_mission_go_on_and_binds(world: Scratch) -> None:
    mission = world.mission()
    lifecycle_commands.block(world.runtime(), mission.task_id, reason="no device", needs="a device")
    world.prompt("$autoresearch resume")
    after = world.load(mission)
    assert (after.phase, after.blocker) == ("running", None)
    world.prompt(f"$autoresearch resume {mission.task_id}", OTHER)
    assert world.stop(SESSION).is_silent
    assert world.stop(OTHER).refusal


@pytest.mark.requirement("SESS-02")
@pytest.mark.parametrize(("step", "way_back"), [("pause", "resume"), ("block", "unblock")])
def test_a_mission_that_is_not_running_is_not_bound_and_the_way_back_is_named(
    world: Scratch, step: str, way_back: str
) -> None:
    mission = world.mission(session="")
    if step == "pause":
        lifecycle_commands.pause(world.runtime(), mission.task_id)
    else:
        lifecycle_commands.block(world.runtime(), mission.task_id, reason="no device", needs="a device")
    reply = world.prompt(f"$autoresearch {mission.task_id}")
    assert f"omx-autoresearch {way_back} {mission.task_id}" in reply.context
    assert world.load(mission).binding is None


@pytest.mark.requirement("CLI-01", "SESS-02")
def test_without_a_name_the_bound_mission_is_meant_then_the_only_one_and_otherwise_it_is_asked(
    world: Scratch,
) -> None:
    first = world.mission(goal="first", session="")
    world.prompt("$autoresearch")
    assert world.load(first).binding is not None
    second = world.mission(goal="second", session=OTHER)
    world.prompt("$autoresearch pause")
    assert (world.load(first).phase, world.load(second).phase) == ("paused", "running")
    third = world.prompt("$autoresearch cancel", "0a1b2c3d-0000-4000-8000-00000000000c")
    assert "which mission? 2 are under way" in third.person_message
    assert (world.load(first).phase, world.load(second).phase) == ("paused", "running")
    unknown = world.prompt("$autoresearch no-such-mission")
    assert "no mission 'no-such-mission'" in unknown.person_message
    by_slug = world.prompt("$autoresearch status second")
    assert second.task_id in by_slug.context


@pytest.mark.requirement("SESS-15")
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("help", "`$autoresearch TASK` has a mission hold"),
        ("cancle", "did you mean `$autoresearch cancel`"),
        ("Staus", "did you mean `$autoresearch status`"),
    ],
)
def test_help_and_a_mistyped_verb_are_answered_with_the_verbs_and_change_nothing(
    world: Scratch, typed: str, said: str
) -> None:
    mission = world.mission()
    reply = world.prompt(f"$autoresearch {typed}")
    assert said in reply.person_message
    assert "`resume` and `cancel`" in reply.person_message
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("LIFE-03", "SESS-02")
def test_a_drafts_baseline_does_not_outlast_the_prompts_time(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_events, "BASELINE_SECONDS", 0.2)
    world.write("check.sh", "#!/bin/sh\nexec sleep 300\n", executable=True)
    draft = world.draft()
    world.prompt(f"$autoresearch {draft.task_id}")
    after = world.load(draft)
    assert after.phase == "running"
    assert after.contract is not None
    assert (after.contract.timeout_seconds, after.contract.baseline_tests) == (900.0, None)


@pytest.mark.requirement("LIFE-11")
def test_a_draft_that_cannot_stand_stays_a_draft_and_the_person_reads_why(world: Scratch) -> None:
    draft = world.draft()
    page = world.project / draft.specs_path / "sandbox.md"
    page.write_text(page.read_text().replace("./check.sh", "<your command>"))
    reply = world.prompt(f"$autoresearch {draft.task_id}")
    assert "placeholder" in reply.person_message
    assert world.load(draft).phase == "draft"
    assert world.stop().is_silent
