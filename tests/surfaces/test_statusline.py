from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import pytest

from omx_autoresearch.agents.clients.claude import CLIENT
from omx_autoresearch.agents.hook_lines import HookProgram, hook_script
from omx_autoresearch.agents.parts.status_line import status_line
from omx_autoresearch.foundation.types import Phase
from omx_autoresearch.missions import lifecycle_commands, registry, snapshots, views
from omx_autoresearch.missions.store import standing_of
from omx_autoresearch.surfaces import statusline
from tests.support.scratch import HOOK, OTHER, SESSION, Scratch


def asked(scratch: Scratch, session: str = SESSION, **fields: Any) -> bytes:
    """What Claude Code gives its status line, as far as it concerns us."""
    where = {"current_dir": str(scratch.project), "project_dir": str(scratch.project)}
    return json.dumps(
        {"hook_event_name": "Status", "session_id": session, "workspace": where, **fields}
    ).encode()


def line_of(scratch: Scratch, session: str = SESSION) -> str:
    return statusline.line_for(asked(scratch, session), str(scratch.home_path))


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


@pytest.mark.requirement("LINE-01")
def test_a_running_mission_shows_iteration_stale_count_open_criteria_and_heartbeat(scratch: Scratch) -> None:
    mission = scratch.mission()
    assert line_of(scratch) == "Research 0      stale  0  open  1  checked   -  heard   -"
    scratch.stop()
    path = scratch.home.mission(mission.task_id).heartbeat_path
    registry.beat(path, at="2020-01-02T03:04:05.123456Z", status="tool", session_id=SESSION)
    loaded = scratch.load(mission)
    line = line_of(scratch)
    assert line.startswith(f"Research {loaded.iteration} ")
    assert f"stale  {loaded.usage.stale}" in line
    assert "  checked  0s  heard 99d" in line or "  checked  1s  heard 99d" in line


@pytest.mark.requirement("LINE-01")
def test_the_open_criteria_are_those_of_the_status(scratch: Scratch) -> None:
    mission = scratch.mission()
    lacking = views.view(scratch.runtime(), mission.task_id).open_criteria
    assert f"open {len(lacking):>2}" in line_of(scratch)


def shown_by_status(scratch: Scratch, task_id: str) -> dict[str, Any]:
    """Of the fields that the line is made from, those that the status has."""
    view = asdict(views.view(scratch.runtime(), task_id))
    return {name: view[name] for name in standing_of(scratch.load(task_id))}


@pytest.mark.requirement("LINE-01", "LINE-06")
def test_the_snapshot_holds_for_the_line_what_the_status_says(scratch: Scratch) -> None:
    mission = scratch.mission()
    folder_path = scratch.home.mission(mission.task_id).root_path
    for step in (scratch.tool, scratch.stop, lambda: scratch.write("answer.txt", "42\n"), scratch.stop):
        step()
        _, content = next(snapshots.newest(folder_path))
        said = shown_by_status(scratch, mission.task_id)
        assert content["shown"] == content["shown"] | json.loads(json.dumps(said))
    assert scratch.load(mission).phase == "complete"


def test_a_snapshot_of_an_older_version_is_made_up_from_the_journal(scratch: Scratch) -> None:
    mission = scratch.mission()
    folder_path = scratch.home.mission(mission.task_id).root_path
    before = line_of(scratch)
    number, content = next(snapshots.newest(folder_path))
    snapshots.save(folder_path, {**content, "shown": {"open": 9, "checked_at": ""}}, after=number)
    assert line_of(scratch) == before


@pytest.mark.requirement("LINE-01")
def test_a_due_pivot_a_block_and_a_pause_each_have_their_word(scratch: Scratch) -> None:
    mission = scratch.mission()
    for _ in range(3):
        scratch.tool()
        scratch.stop()
    assert line_of(scratch).startswith("Pivot ")
    lifecycle_commands.block(scratch.runtime(), mission.task_id, reason="no corpus", needs="the corpus")
    assert line_of(scratch).startswith("Blocked ")
    lifecycle_commands.unblock(scratch.runtime(), mission.task_id)
    lifecycle_commands.pause(scratch.runtime(), mission.task_id)
    assert line_of(scratch).startswith("Paused ")


@pytest.mark.requirement("LINE-02")
def test_a_completed_mission_is_shown_as_done_to_its_session_for_a_while(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch.mission()
    scratch.write("answer.txt", "42\n")
    scratch.stop()
    assert line_of(scratch).startswith("Done ")
    assert line_of(scratch, OTHER) == ""
    monkeypatch.setattr(statusline, "DONE_SECONDS", -1)
    assert line_of(scratch) == ""


@pytest.mark.requirement("LINE-02")
def test_a_mode_state_that_somebody_wrote_makes_no_other_session_done(scratch: Scratch) -> None:
    mission = scratch.mission()
    scratch.write("answer.txt", "42\n")
    scratch.stop()
    state = {"task_id": mission.task_id, "phase": "complete"}
    scratch.write(f".omx/state/sessions/{OTHER}/autoresearch-state.json", json.dumps(state))
    assert line_of(scratch, OTHER) == ""


@pytest.mark.requirement("LINE-03")
@pytest.mark.parametrize(
    "label", [*(f"Research {n}" for n in (0, 9, 10_000, 123_456)), *get_args(Phase), "Invalid"]
)
@pytest.mark.parametrize("heard", ["", "1s", "59m"])
def test_the_line_is_as_wide_whatever_stands_in_it(label: str, heard: str) -> None:
    widths = {len(statusline.composed(label, stale, 7, heard, heard)) for stale in (0, 12, 345)}
    assert widths == {len(statusline.composed("Done", 0, 0, "9h", "2d"))}


@pytest.mark.requirement("LINE-03")
@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, ""), (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (172_800, "2d")],
)
def test_an_age_takes_at_most_three_characters(seconds: float | None, shown: str) -> None:
    assert statusline._age_text(seconds) == shown


@pytest.mark.requirement("LINE-04")
@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"{}", b'{"session_id": 5}', b'{"session_id": null}']
)
def test_what_is_no_session_gets_nothing(scratch: Scratch, raw: bytes) -> None:
    scratch.mission()
    assert statusline.line_for(raw, str(scratch.home_path)) == ""


@pytest.mark.requirement("LINE-04")
def test_another_session_gets_nothing(scratch: Scratch) -> None:
    scratch.mission()
    assert line_of(scratch, OTHER) == ""


@pytest.mark.requirement("LINE-04")
def test_a_session_id_that_is_no_file_name_is_found_all_the_same(scratch: Scratch) -> None:
    session = "Session/Ω \\ 1"
    scratch.mission(session=session)
    assert line_of(scratch, session).startswith("Research 0")


@pytest.mark.requirement("LINE-05")
def test_a_journal_that_is_gone_or_broken_is_said_and_never_raises(scratch: Scratch) -> None:
    folder = scratch.home.mission(scratch.mission().task_id)
    journal = Path(folder.journal_path)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], b"no record\n", *lines[1:]]))
    assert line_of(scratch).startswith("Invalid ")
    journal.unlink()
    assert line_of(scratch).startswith("Missing ")


@pytest.mark.requirement("LINE-05")
def test_a_snapshot_that_is_behind_is_caught_up(scratch: Scratch) -> None:
    mission = scratch.mission()
    folder = Path(scratch.home.mission(mission.task_id).root_path)
    old = {path: path.read_bytes() for path in folder.glob("status*.json")}
    assert old
    lifecycle_commands.pause(scratch.runtime(), mission.task_id)
    for path in folder.glob("status*.json"):
        path.unlink()
    for path, content in old.items():
        path.write_bytes(content)
    assert line_of(scratch).startswith("Paused ")
    for content in (b"", b"{"):
        for path in old:
            path.write_bytes(content)
        assert line_of(scratch).startswith("Paused ")


def shell(scratch: Scratch, raw: bytes, line: str = "") -> subprocess.CompletedProcess[bytes]:
    """The installed line, as a client runs it."""
    program = HookProgram(str(scratch.home_path), sys.executable, str(HOOK))
    scratch.home_path.mkdir(exist_ok=True)
    script = scratch.home_path / "hook"
    script.write_text(hook_script(program))
    script.chmod(0o755)
    return subprocess.run(
        ["sh", "-c", line or status_line(str(scratch.home_path))],
        input=raw,
        capture_output=True,
        cwd=scratch.project,
        env=scratch.environ,
        check=False,
    )


@pytest.mark.requirement("LINE-04")
@pytest.mark.requirement("LINE-05")
def test_the_installed_line_prints_the_line_or_nothing_and_ends_with_0(scratch: Scratch) -> None:
    silent = (0, b"", b"")
    done = shell(scratch, asked(scratch))
    assert (done.returncode, done.stdout, done.stderr) == silent
    scratch.mission()
    done = shell(scratch, asked(scratch))
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        b"Research 0      stale  0  open  1  checked   -  heard   -\n",
        b"",
    )
    for raw in (asked(scratch, OTHER), b"", b"{"):
        done = shell(scratch, raw)
        assert (done.returncode, done.stdout, done.stderr) == silent


@pytest.mark.requirement("LINE-06")
def test_without_a_mission_no_interpreter_starts(scratch: Scratch) -> None:
    line = status_line(str(scratch.home_path))
    done = shell(scratch, asked(scratch), line.replace("exec ", "echo started; exec "))
    assert done.stdout == b""


@pytest.mark.requirement("LINE-06")
def test_a_session_without_a_mission_costs_no_more_modules_than_the_hook(scratch: Scratch) -> None:
    scratch.mission()
    program = (
        f"import sys; sys.path.insert(0, {str(HOOK.parents[2])!r}); "
        "from omx_autoresearch.surfaces import hook; before = set(sys.modules); "
        "from omx_autoresearch.surfaces import statusline; "
        f"statusline.main(['', {str(scratch.home_path)!r}, 'statusline']); "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input=asked(scratch, OTHER),
        capture_output=True,
        cwd=scratch.project,
        check=True,
    )
    loaded = set(done.stdout.decode().split())
    assert loaded <= {"omx_autoresearch.surfaces.statusline", "select", "time"}


@pytest.mark.requirement("SESS-20", "LINE-01")
def test_a_lost_hold_and_hooks_that_are_turned_off_show_as_unheld(scratch: Scratch) -> None:
    mission = scratch.mission()
    scratch.stop()
    assert line_of(scratch).startswith("Research 1 ")
    off = scratch.write(".claude/settings.local.json", '{"disableAllHooks": true}')
    assert line_of(scratch).startswith("Unheld ")
    off.unlink()
    user = Path(os.environ["HOME"], ".claude", "settings.json")
    user.parent.mkdir(exist_ok=True)
    cap = CLIENT.stop_cap.setting
    for path in (user, off):
        for settings, word in (
            ({"env": {cap: "16"}}, "Research 1"),
            ({"env": {cap: 16}}, "Research 1"),
            ({"env": {cap: "3"}}, "Unheld"),
            ({"disableAllHooks": False}, "Research 1"),
            ({"disableAllHooks": True}, "Unheld"),
        ):
            path.write_text(json.dumps(settings), "utf-8")
            assert line_of(scratch).startswith(f"{word} "), (path, settings)
        path.unlink()
    scratch.tell(scratch.payload("SessionEnd", reason="other"))
    assert line_of(scratch).startswith("Unheld ")
    scratch.tool()
    assert line_of(scratch).startswith("Research 1 "), "the session came back"
    assert scratch.load(mission).phase == "running"
