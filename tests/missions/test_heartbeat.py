"""The pulse of a session: appended without a lock, read from its end, never believed beyond what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omx_autoresearch.missions import registry
from tests.missions.real_missions import SESSION, at
from tests.support.scratch import Scratch


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pulse(tmp_path: Path) -> Path:
    return tmp_path / "heartbeat.jsonl"


def beat(pulse: Path, second: int, status: str) -> None:
    registry.beat(str(pulse), at=at(second), status=status, session_id=SESSION)


def test_nothing_was_heard_yet(pulse: Path) -> None:
    assert registry.last_beat(str(pulse)) is None
    assert registry.size_of(str(pulse)) == 0
    assert not registry.tools_after(str(pulse), 0)


def test_the_newest_whole_line_is_the_last_beat(pulse: Path) -> None:
    beat(pulse, 1, "starting_turn")
    beat(pulse, 2, "turn_done")
    with pulse.open("ab") as stream:
        stream.write(b'{"ts":"2099')
    assert registry.last_beat(str(pulse)) == registry.Beat(at(2), "turn_done", SESSION)


@pytest.mark.parametrize("line", [b"", b"\0\0\0", b"[]", b"null", b'{"ts":"x"}', b"\xff\xfe"])
def test_a_broken_line_is_passed_over(pulse: Path, line: bytes) -> None:
    beat(pulse, 1, "tool")
    with pulse.open("ab") as stream:
        stream.write(line + b"\n")
    found = registry.last_beat(str(pulse))
    assert found is not None
    assert found.at == at(1)


def test_tools_are_counted_from_the_turns_beginning_on(pulse: Path) -> None:
    beat(pulse, 1, "tool")
    offset = registry.size_of(str(pulse))
    beat(pulse, 2, "turn_done")
    assert not registry.tools_after(str(pulse), offset)
    beat(pulse, 3, "tool")
    assert registry.tools_after(str(pulse), offset)


def test_a_full_file_is_set_aside_and_nothing_is_forgotten_that_a_turn_needs(pulse: Path) -> None:
    beat(pulse, 1, "turn_done")
    filler = pulse.read_bytes()
    pulse.write_bytes(filler * (registry.HEARTBEAT_LIMIT_BYTES // len(filler) + 1))
    offset = registry.size_of(str(pulse))
    with pulse.open("ab") as stream:
        stream.write(filler.replace(b"turn_done", b"tool"))
    beat(pulse, 2, "tool")
    assert registry.size_of(str(pulse)) < 1000
    assert registry.tools_after(str(pulse), offset) == 2
    assert [found.status for found in registry.last_beats(str(pulse))[-3:]] == ["turn_done", "tool", "tool"]
    pulse.write_bytes(filler * (registry.HEARTBEAT_LIMIT_BYTES // len(filler) + 1))
    beat(pulse, 3, "turn_done")
    kept = sum(path.stat().st_size for path in pulse.parent.iterdir())
    assert kept < 2 * registry.HEARTBEAT_LIMIT_BYTES
    assert registry.last_beat(str(pulse)) == registry.Beat(at(3), "turn_done", SESSION)


def test_the_copy_in_the_workspace_follows_a_file_that_was_begun_anew(world: Scratch) -> None:
    mission = world.mission()
    assert world.stop().refusal
    source = Path(world.runtime().home.mission(mission.task_id).heartbeat_path)
    (copy,) = world.project.rglob("heartbeat.jsonl")
    assert copy.read_bytes() == source.read_bytes()
    source.unlink()
    registry.beat(str(source), at=at(3), status="turn_done", session_id=SESSION)
    source.write_bytes(source.read_bytes() * 100)
    assert world.stop(last_assistant_message="Again.").refusal
    assert copy.read_bytes() == source.read_bytes()


def test_a_session_id_that_looks_like_a_tool_event_is_none(pulse: Path) -> None:
    registry.beat(str(pulse), at=at(1), status="turn_done", session_id='"status":"tool"')
    assert not registry.tools_after(str(pulse), 0)


def test_a_link_in_its_place_is_not_written_through(pulse: Path, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("")
    os.symlink(tmp_path / "target", pulse)
    with pytest.raises(OSError, match="symbolic"):
        beat(pulse, 1, "tool")
    assert (tmp_path / "target").read_text() == ""


def test_many_processes_leave_whole_lines_and_tell_of_no_torn_one(pulse: Path) -> None:
    code = (
        "import sys\nfrom omx_autoresearch.missions import registry as heartbeat\n"
        "beat = lambda: heartbeat.beat(sys.argv[1], at='t', status='tool', session_id=sys.argv[2] * 50)\n"
        "sys.exit(sum(beat() for n in range(200)))\n"  # how often it told of a torn line
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(pulse), name], env={"PYTHONPATH": str(ROOT)})
        for name in "abc"
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    # An empty line stands where one process took what another was just writing for torn; readers pass it over.
    lines = [line for line in pulse.read_bytes().splitlines() if line]
    assert len(lines) == 600
    assert {len(line) for line in lines} == {len(lines[0])}


@pytest.mark.requirement("STATE-04")
def test_a_torn_line_is_told_and_the_next_one_stands_on_its_own(world: Scratch) -> None:
    mission = world.mission()
    path = Path(world.home.mission(mission.task_id).heartbeat_path)
    runtime = world.runtime()
    assert registry.leave_heartbeat(runtime, mission, "tool", SESSION) == ""
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"ts":"2026-01-02T03')
    assert "torn by a crash" in registry.leave_heartbeat(runtime, mission, "turn_done", SESSION)
    lines = path.read_bytes().split(b"\n")
    assert (lines[-1], lines[-3]) == (b"", b'{"ts":"2026-01-02T03')
    assert b'"status":"turn_done"' in lines[-2]
    assert registry.leave_heartbeat(runtime, mission, "tool", SESSION) == ""
