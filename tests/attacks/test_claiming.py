"""False evidence, false novelty and hostile folders: nothing of it completes a mission, holds up a stop, or leaks."""

from __future__ import annotations

import json
import os
import subprocess
import unicodedata
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.agents.machine import newest_lines
from omx_autoresearch.compat.adoption import adopt, draft_of, read_origin
from omx_autoresearch.foundation.errors import MissionInvalid, StepIllegal, UsageError
from omx_autoresearch.journal.safe_files import FILE_LIMIT_BYTES
from omx_autoresearch.missions import launch, registry, sessions, workspace
from omx_autoresearch.missions.amending import amend_mission
from omx_autoresearch.missions.api import Store
from omx_autoresearch.missions.directions import declare
from omx_autoresearch.missions.rules.criteria import Finding, criterion_of
from omx_autoresearch.missions.rules.directions import (
    DIRECTIONS_LIMIT,
    direction_faults,
    direction_of,
    fingerprint_of,
)
from omx_autoresearch.missions.rules.evidence import open_criteria
from omx_autoresearch.missions.validation import checks
from omx_autoresearch.missions.workspace import snapshot_workspace
from omx_autoresearch.surfaces import statusline
from omx_autoresearch.surfaces.mcp.calls import tool_caller
from omx_autoresearch.system.processes import identify
from tests.support.scratch import OTHER, Scratch

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.missions.rules.mission import Mission

INVISIBLE = [
    *("\u034f", "\u115f", "\u1160", "\u17b4", "\u180b", "\u180f", "\u200b", "\u2065", "\u3164", "\uffa0", "\ufff0"),
    *("\U0001d159", "\U000e0080", "\U000e0fff"),
]  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


def with_criteria(world: Scratch, *criteria: str) -> Mission:
    return world.mission(criteria=tuple(map(criterion_of, criteria)))


# --- evidence


@pytest.mark.requirement("EVID-01", "READY-10")
def test_what_was_seen_under_an_older_contract_is_not_recorded_under_the_amended_one(world: Scratch) -> None:
    mission = with_criteria(world, "report: x :: file: report.md")
    world.write("report.md", "nothing yet\n")
    record = checks.checking(world.runtime(), "none", names=("report",))(world.load(mission), "r-1")
    stricter = (criterion_of("report: x :: file: report.md ~ ^## Findings"),)
    amend_mission(world.runtime(), mission.task_id, lambda draft: replace(draft, criteria=stricter))
    with world.store.transaction(mission.task_id, world.runtime().now()) as transaction:
        record(transaction)
    state = world.load(mission)
    assert open_criteria(state) == ("report",)
    assert not state.evidence_ids.get("report")
    before, offered = world.load(mission), Finding("f-1", "file", "it is there", criterion_id="report")
    assert mission.contract is not None
    with pytest.raises(StepIllegal, match="amended"):
        checks.examine_now(world.runtime(), mission, mission.contract.criteria[0], offered)
    assert world.load(mission) == before


@pytest.mark.requirement("EVID-04")
def test_sparse_files_in_the_place_of_evidence_are_not_read_at_every_stop(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = with_criteria(world, *(f"c{n}: x :: file: {n}.md" for n in range(3)))
    world.write(".git/info/exclude", "*.md\n")
    for name, size in (("0.md", FILE_LIMIT_BYTES + 1), ("1.md", 3), ("2.md", 3)):
        with world.write(name, "").open("r+b") as stream:
            stream.truncate(size)
    monkeypatch.setattr(workspace, "CRITERIA_FILES_BYTES", 5)
    monkeypatch.setattr(
        "omx_autoresearch.journal.safe_files.CHUNK_BYTES", 0
    )  # whoever reads one, reads it as empty
    faults = snapshot_workspace(world.home.mission(mission.task_id), mission).file_faults
    assert "larger than" in faults["0.md"]
    assert "is empty" in faults["1.md"]
    assert "together" in faults["2.md"]


# --- directions


@pytest.mark.requirement("DIR-01")
@pytest.mark.parametrize("sign", INVISIBLE, ids=lambda sign: f"U+{ord(sign):04X}")
def test_no_invisible_sign_makes_another_direction(sign: str) -> None:
    assert fingerprint_of(f"try{sign} a {sign} cache") == fingerprint_of("try a cache")
    assert fingerprint_of(sign) == ""
    assert fingerprint_of(f"cafe{sign}\u0301") == fingerprint_of("caf\u00e9"), "nor between letter and accent"


@pytest.mark.requirement("DIR-01")
def test_a_blank_of_braille_is_a_space_and_hangul_stays_what_it_is() -> None:
    assert fingerprint_of("try\u2800a cache") == fingerprint_of("try a cache")
    assert fingerprint_of(unicodedata.normalize("NFD", "\ud55c\uad6d")) == fingerprint_of("\ud55c\uad6d")
    assert fingerprint_of("\ud55c") != fingerprint_of("\ud558")


@pytest.mark.requirement("DIR-01")
def test_thousands_of_unknown_axes_are_told_in_a_few_lines() -> None:
    assert len(direction_faults("try it", {f"axis {n}": "x" for n in range(5000)})) < 20


@pytest.mark.parametrize("status", ["a" * 300_000, None, {"a": 1}])
def test_a_sign_of_life_is_a_short_text(world: Scratch, status: Any) -> None:
    mission = world.mission()
    store = Store(str(world.project), home_path=str(world.home_path), environ=world.environ)
    with pytest.raises(UsageError, match="status: a string of at most"):
        store.append_heartbeat(mission.task_id, status)
    assert registry.size_of(world.home.mission(mission.task_id).heartbeat_path) == 0


# --- another session


@pytest.mark.requirement("MCP-04")
def test_a_server_that_was_started_elsewhere_does_not_speak_for_the_session_that_a_call_names(
    world: Scratch,
) -> None:
    mission = world.mission(session="")
    with subprocess.Popen(["sleep", "60"]) as client:
        act = sessions.Act(OTHER, "codex", "prompt", identify(client.pid))
        sessions.bind(world.runtime(), mission.task_id, act)
        caller = tool_caller(world.runtime(), {"sessionId": OTHER})
        client.kill()
    assert (caller.task_id, "another client" in caller.why_not) == ("", True)
    assert tool_caller(world.runtime(), {"sessionId": OTHER}).task_id == mission.task_id, "its client is gone"


# --- pipes where a hook or the status line looks


@pytest.mark.requirement("LINE-03")
def test_the_status_line_does_not_wait_for_a_pipe_in_the_project(world: Scratch) -> None:
    folder = world.project / ".omx" / "state" / "sessions" / OTHER
    folder.mkdir(parents=True)
    os.mkfifo(folder / "autoresearch-state.json")
    asked = {"session_id": OTHER, "workspace": {"project_dir": str(world.project)}}
    assert statusline.line_for(json.dumps(asked).encode(), str(world.home_path)) == ""


@pytest.mark.parametrize("name", ["settings.json", "settings.local.json"])
def test_a_pipe_in_the_place_of_the_clients_settings_holds_up_no_stop(world: Scratch, name: str) -> None:
    world.mission()
    (world.project / ".claude").mkdir()
    os.mkfifo(world.project / ".claude" / name)
    assert world.stop().refusal


def test_a_pipe_in_the_place_of_a_transcript_reads_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert list(newest_lines(str(tmp_path / "pipe"), b"x", 100)) == []


# --- hostile folders


def task_folder(world: Scratch, **spec: Any) -> Path:
    folder = world.project / ".reasonix" / "autoresearch" / "t1"
    folder.mkdir(parents=True)
    (folder / "task_spec.json").write_text(json.dumps({"goal": "find it", **spec}), encoding="utf-8")
    (folder / "progress.json").write_text('{"status": "running"}', encoding="utf-8")
    return folder


@pytest.mark.requirement("RESUME-04")
@pytest.mark.parametrize("is_whole_folder", [False, True])
def test_a_link_in_a_task_folder_leads_nowhere_out_of_it(world: Scratch, is_whole_folder: bool) -> None:
    secret = world.root / "secret"
    secret.mkdir()
    (secret / "task_spec.md").write_text("# Goal\nthe owner's key\n", encoding="utf-8")
    (secret / "progress.json").write_text('{"status": "running"}', encoding="utf-8")
    folder = world.project / ".reasonix" / "autoresearch" / "t1"
    folder.mkdir(parents=True)
    if is_whole_folder:
        (folder / "state").symlink_to(secret)
    else:
        (folder / "progress.json").write_text('{"status": "running"}', encoding="utf-8")
        (folder / "task_spec.md").symlink_to(secret / "task_spec.md")
    with pytest.raises(MissionInvalid, match="symbolic link") as refused:
        read_origin(str(folder))
    assert "owner's key" not in str(refused.value)


@pytest.mark.requirement("RESUME-04")
def test_a_folder_of_thousands_of_directions_leaves_room_for_the_missions_own(world: Scratch) -> None:
    folder = task_folder(world)
    said = [f"try way {chr(97 + n % 26)} of {n}" for n in range(2 * DIRECTIONS_LIMIT)]
    (folder / "directions_tried.json").write_text(json.dumps(said), encoding="utf-8")
    origin = read_origin(str(folder))
    assert origin.directions[-1].summary == said[-1]
    assert any("oldest 750 directions" in note for note in origin.notes)
    draft = replace(draft_of(origin, str(world.project)), validator_command="./check.sh")
    mission = adopt(world.runtime(), str(world.project), origin, draft)
    launch.start(
        world.runtime(), mission.task_id, launch.StartOptions(has_baseline=False, take=lambda *_: None)
    )
    assert declare(world.runtime(), mission.task_id, direction_of("a way of my own", {})).is_recorded


@pytest.mark.requirement("RESUME-04")
def test_a_command_that_comes_with_a_folder_is_shown_to_its_owner(world: Scratch) -> None:
    folder = task_folder(
        world, success_criteria=[{"id": "a", "description": "fine", "accepts": "command: curl evil"}]
    )
    assert any("command: curl evil" in note for note in read_origin(str(folder)).notes)
