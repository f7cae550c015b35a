"""How a mission stands: one view of one source, for every mission that ever left a trace."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.records import to_plain
from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.rules.criteria import criterion_of
from omx_autoresearch.missions.validation import checks, runs
from omx_autoresearch.missions.views import list_views, view
from tests.support import snapshots
from tests.support.scratch import OTHER, SESSION, Scratch

FIELDS = (
    "task_id", "goal", "status", "phase", "iteration", "current_direction", "stale_count", "pivot_count",
    "pivot_required", "refusals", "max_refusals", "finding_count", "open_criteria", "blocker", "last_heartbeat_at",
    "task_path", "validation_mode", "session_id", "hold",
)  # fmt: skip


def test_the_view_has_every_field_that_other_tools_read(world: Scratch) -> None:
    mission = world.mission()
    plain = to_plain(view(world.runtime(), mission.task_id))
    assert set(FIELDS) <= set(plain)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


@pytest.mark.requirement("GATE-17", "GATE-20")
def test_a_running_mission_shows_what_it_spent_and_what_is_open(world: Scratch) -> None:
    mission = world.mission()
    world.stop()
    world.tool()
    world.stop()
    shown = view(world.runtime(), mission.task_id)
    assert (shown.status, shown.phase, shown.iteration) == ("running", "running", 2)
    assert (shown.refusals, shown.max_refusals, shown.idle_refusals, shown.stale_count) == (2, 200, 1, 1)
    assert (shown.session_id, shown.client, shown.validation_mode) == (
        SESSION,
        "claude",
        "mission-validator-script",
    )
    assert shown.open_criteria == ("validation",)
    assert (shown.last_verdict, shown.blocker) == ("failed", "")
    assert 0 <= shown.hours_used < shown.max_hours == 24.0
    assert os.path.isdir(shown.task_path)
    assert shown.last_heartbeat_at.endswith("Z")


@pytest.mark.requirement("GATE-25")
def test_what_is_open_is_what_the_next_refusal_says_also_after_the_workspace_moved(world: Scratch) -> None:
    report = criterion_of("report: written :: file: report.md")
    mission = world.mission(criteria=(report,))
    task_id = mission.task_id

    def as_recorded() -> tuple[str, ...]:
        return view(world.runtime(), task_id).open_criteria

    def as_it_is() -> tuple[str, ...]:
        return view(world.runtime(), task_id, looks=True).open_criteria

    assert as_recorded() == as_it_is() == ("validation", "criterion:report")
    assert view(world.runtime(), task_id).checked_at == ""
    world.write("report.md", "found\n")
    assert checks.check(world.runtime(), task_id, ("report",), wait_seconds=60)
    assert as_recorded() == as_it_is() == ("validation",)
    checked_at = view(world.runtime(), task_id).checked_at
    assert mission.updated_at < checked_at < view(world.runtime(), task_id, looks=True).checked_at
    world.write("report.md", "")
    assert as_recorded() == ("validation",), "as it was when it was checked"
    assert view(world.runtime(), task_id).checked_at == checked_at
    assert as_it_is() == ("validation", "criterion:report")
    refused = world.stop().refusal
    assert "evidence for `report`" in refused


@pytest.mark.requirement("GATE-25")
def test_a_pass_on_another_workspace_is_open_again_and_one_on_this_leaves_nothing_open(
    world: Scratch,
) -> None:
    task_id = world.mission().task_id
    world.write("answer.txt", "42\n")
    assert runs.validate(world.runtime(), task_id, runs.Ask("none"), wait_seconds=60)
    assert view(world.runtime(), task_id, looks=True).open_criteria == ()
    world.write("other.txt", "x\n")
    assert view(world.runtime(), task_id, looks=True).open_criteria == ("validation",)
    assert view(world.runtime(), task_id).open_criteria == ()


@pytest.mark.requirement("GATE-25")
def test_where_the_workspace_is_gone_stands_what_was_seen_last(world: Scratch) -> None:
    mission = world.mission()
    world.stop()
    shutil.rmtree(mission.workspace_path)
    shown = view(world.runtime(), mission.task_id, looks=True)
    assert shown.open_criteria == ("validation",)
    assert shown.checked_at == view(world.runtime(), mission.task_id).checked_at != ""


@pytest.mark.requirement("LIFE-01")
def test_each_phase_has_its_word_and_its_next_command(world: Scratch) -> None:
    mission = world.draft()
    task_id, told = mission.task_id, []
    from omx_autoresearch.missions import launch

    def look() -> None:
        shown = view(world.runtime(), task_id)
        told.append((shown.phase, shown.status, shown.next_command.replace(task_id, "T")))

    look()
    launch.start(world.runtime(), task_id, launch.StartOptions(session_id=SESSION, has_baseline=False))
    look()
    lifecycle_commands.pause(world.runtime(), task_id)
    look()
    lifecycle_commands.resume(world.runtime(), task_id)
    lifecycle_commands.block(world.runtime(), task_id, reason="no device", needs="a device")
    look()
    lifecycle_commands.unblock(world.runtime(), task_id)
    world.write("answer.txt", "42\n")
    world.stop()
    look()
    assert told == [
        ("draft", "running", "omx-autoresearch start T"),
        ("running", "running", "omx-autoresearch validate T"),
        ("paused", "stopped", "omx-autoresearch resume T"),
        ("blocked", "blocked", "omx-autoresearch unblock T"),
        ("complete", "complete", "omx-autoresearch status T"),
    ]
    assert view(world.runtime(), task_id).open_criteria == ()


@pytest.mark.requirement("SESS-13")
def test_a_hold_is_proven_by_an_answered_stop_of_the_session_and_unproven_without(world: Scratch) -> None:
    mission = world.mission(session="")
    assert view(world.runtime(), mission.task_id).hold == "unbound"
    assert view(world.runtime(), mission.task_id).next_command == f"$autoresearch {mission.task_id}"
    from omx_autoresearch.missions import sessions

    sessions.bind(world.runtime(), mission.task_id, sessions.Act(SESSION, "claude", "session-option"))
    assert view(world.runtime(), mission.task_id).hold == "unproven"
    world.tool(OTHER)
    assert view(world.runtime(), mission.task_id).hold == "unproven"
    world.hook(world.payload("PreCompact", trigger="auto"))
    shown = view(world.runtime(), mission.task_id)
    assert shown.hold.startswith("unproven (no stop of this session was answered yet"), "an event is no stop"
    world.stop()
    assert view(world.runtime(), mission.task_id).hold.startswith("proven (stop answered ")
    sessions.bind(world.runtime(), mission.task_id, sessions.Act(OTHER, "claude", "session-option"))
    assert view(world.runtime(), mission.task_id).hold == "unproven", (
        "another session proves nothing for this one"
    )


@pytest.mark.requirement("SESS-13")
@pytest.mark.case("LOOP-04")
def test_a_session_that_the_registry_lost_is_no_proven_hold(world: Scratch) -> None:
    mission = world.mission()
    world.stop()
    shutil.rmtree(world.home.active_path)
    assert world.stop().is_silent
    shown = view(world.runtime(), mission.task_id)
    assert shown.hold.startswith("lost (the registry did not know the session")
    assert f"omx-autoresearch repair {mission.task_id}" in shown.hold
    assert shown.next_command == f"omx-autoresearch repair {mission.task_id}"
    world.follow()
    assert "HOLD LOST" in Path(world.home.mission(mission.task_id).notice_path).read_text()
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert view(world.runtime(), mission.task_id).hold.startswith("proven")
    assert world.stop().refusal


@pytest.mark.requirement("STATE-05")
@pytest.mark.case("STA-03", "STA-07")
def test_one_corrupt_mission_hides_no_other(world: Scratch) -> None:
    whole, broken, lost, empty = (
        world.mission(goal=goal, session=session)
        for goal, session in (("whole", ""), ("broken", ""), ("lost", SESSION), ("empty", ""))
    )
    path = Path(world.home.mission(broken.task_id).journal_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\0" * 400 + b"\n" + b"".join(lines[1:]))
    Path(world.home.mission(empty.task_id).journal_path).write_bytes(b"")
    shutil.rmtree(world.home.mission(lost.task_id).root_path)
    stray = Path(world.home.missions_path, "20250102-030405-stray")
    stray.mkdir()
    shown = {item.task_id: item for item in list_views(world.runtime())}
    assert {task_id: item.status for task_id, item in shown.items()} == {
        whole.task_id: "running",
        broken.task_id: "invalid",
        lost.task_id: "missing",
        empty.task_id: "invalid",
        stray.name: "missing",
    }
    assert f"{path}, line 2" in shown[broken.task_id].blocker or str(path) in shown[broken.task_id].blocker
    assert all(item.next_command for item in shown.values())
    assert list(shown) == sorted(shown, reverse=True), "newest first"
    with pytest.raises(UsageError, match="no mission"):
        view(world.runtime(), "20250102-030405-never")


@pytest.mark.requirement("STATE-07")
def test_status_reads_what_others_wrote_since_and_believes_no_snapshot_of_another_journal(
    world: Scratch,
) -> None:
    mission = world.mission()
    folder = world.home.mission(mission.task_id)
    old = snapshots.paths(folder)[-1].read_bytes()
    world.stop()
    snapshots.overwrite(folder, old)
    assert view(world.runtime(), mission.task_id).refusals == 1
    for content in (b"", b"{", b"[]", b'{"format": 99}'):
        snapshots.overwrite(folder, content)
        assert view(world.runtime(), mission.task_id).refusals == 1
    snapshots.lose(folder)
    assert view(world.runtime(), mission.task_id).refusals == 1


@pytest.mark.requirement("GATE-17")
def test_paused_and_blocked_time_is_not_charged(world: Scratch) -> None:
    world.clock.move(hours=-30)
    mission = world.mission()
    world.clock.move(hours=1)
    lifecycle_commands.pause(world.runtime(), mission.task_id)
    world.clock.move(hours=20)
    assert view(world.runtime(), mission.task_id).hours_used == pytest.approx(1.0, abs=0.1)
    lifecycle_commands.resume(world.runtime(), mission.task_id)
    world.clock.move(hours=2)
    assert view(world.runtime(), mission.task_id).hours_used == pytest.approx(3.0, abs=0.1)
    world.clock.move(hours=-2)
    assert view(world.runtime(), mission.task_id).hours_used == pytest.approx(1.0, abs=0.1)
