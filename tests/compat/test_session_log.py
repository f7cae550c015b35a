"""``.auto/`` on disk: durable appends, torn tails, and nothing that leads out of the workspace."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.compat.auto_log import (
    CHECKS,
    MEASURE,
    SessionFolder,
    append_line,
    load_log,
    script_command,
    session_folder,
    write_script,
)
from omx_autoresearch.foundation.errors import StateUntrusted, WorkspaceFault
from omx_autoresearch.journal.layout import StateHome

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {"type": "config", "name": "n", "metricName": "m", "bestDirection": "lower"}
RUN = {"run": 1, "status": "keep", "metric": 3}


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    (tmp_path / "work").mkdir()
    return session_folder(StateHome(str(tmp_path / "state")), str(tmp_path / "work"))


def log_path(tmp_path: Path) -> Path:
    return tmp_path / "work" / ".auto" / "log.jsonl"


@pytest.mark.requirement("AUTO-04")
def test_lines_are_appended_and_what_stood_before_stays(folder: SessionFolder, tmp_path: Path) -> None:
    append_line(folder, CONFIG)
    before = log_path(tmp_path).read_bytes()
    append_line(folder, RUN)
    assert log_path(tmp_path).read_bytes() == before + json.dumps(RUN, separators=(",", ":")).encode() + b"\n"
    assert load_log(folder).best == 3


@pytest.mark.requirement("AUTO-04")
@pytest.mark.parametrize(
    "torn", [b'{"run":2,"sta', b"\xff\xfe", json.dumps({**RUN, "run": 2, "metric": 2}).encode()]
)
def test_a_torn_tail_is_tolerated_and_stays_a_line_of_its_own(
    folder: SessionFolder, tmp_path: Path, torn: bytes
) -> None:
    append_line(folder, CONFIG)
    append_line(folder, RUN)
    with log_path(tmp_path).open("ab") as stream:
        stream.write(torn)
    before = load_log(folder)
    append_line(folder, {**RUN, "run": 3, "metric": 1})
    after = load_log(folder)
    assert after.best == 1
    assert after.runs[:-1] == before.runs
    assert after.faults == before.faults
    assert log_path(tmp_path).read_bytes().count(torn) == 1


@pytest.mark.requirement("AUTO-04")
def test_there_is_no_log_before_the_first_line(folder: SessionFolder) -> None:
    assert load_log(folder).config is None


@pytest.mark.requirement("AUTO-04")
def test_a_line_without_end_is_refused(folder: SessionFolder) -> None:
    with pytest.raises(StateUntrusted):
        append_line(folder, {"run": 1, "description": "x" * 2_000_000})


@pytest.mark.requirement("AUTO-06")
@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_no_log_that_leads_elsewhere_is_written_or_read(
    folder: SessionFolder, tmp_path: Path, what: str
) -> None:
    victim = tmp_path / "profile"
    victim.write_text("mine\n")
    path = log_path(tmp_path)
    path.parent.mkdir()
    if what == "link":
        path.symlink_to(victim)
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    for act in (lambda: append_line(folder, CONFIG), lambda: load_log(folder)):
        with pytest.raises((WorkspaceFault, StateUntrusted)):
            act()
    assert victim.read_text() == "mine\n"


@pytest.mark.requirement("AUTO-06")
def test_a_linked_folder_is_not_followed(folder: SessionFolder, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work" / ".auto").symlink_to(tmp_path / "elsewhere")
    for act in (lambda: append_line(folder, CONFIG), lambda: write_script(folder, MEASURE, "true")):
        with pytest.raises(WorkspaceFault):
            act()
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.requirement("AUTO-06")
def test_a_script_is_written_only_where_there_is_none(folder: SessionFolder, tmp_path: Path) -> None:
    assert not script_command(folder, MEASURE)
    assert write_script(folder, MEASURE, "echo METRIC m=1")
    assert not write_script(folder, MEASURE, "echo other")
    assert "METRIC m=1" in (tmp_path / "work" / ".auto" / MEASURE).read_text()
    assert script_command(folder, MEASURE) == "./.auto/measure.sh"
    victim = tmp_path / "work" / ".auto" / CHECKS
    victim.symlink_to(tmp_path / "made")
    assert not write_script(folder, CHECKS, "true")
    assert not (tmp_path / "made").exists()
    with pytest.raises(WorkspaceFault):
        script_command(folder, CHECKS)


@pytest.mark.requirement("AUTO-06")
@pytest.mark.parametrize(("text", "mode"), [("echo hi\n", 0o755), ("#!/bin/sh\necho hi\n", 0o644)])
def test_a_script_that_cannot_run_by_itself_is_run_by_bash(
    folder: SessionFolder, tmp_path: Path, text: str, mode: int
) -> None:
    path = tmp_path / "work" / ".auto" / MEASURE
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(mode)
    assert script_command(folder, MEASURE) == "bash ./.auto/measure.sh"


@pytest.mark.requirement("AUTO-04")
def test_two_workspaces_share_no_session(tmp_path: Path) -> None:
    home = StateHome(str(tmp_path))
    one, two = session_folder(home, str(tmp_path / "a")), session_folder(home, str(tmp_path / "b"))
    assert one.own_path != two.own_path
    assert one.own_path == session_folder(home, str(tmp_path / "b" / ".." / "a")).own_path
