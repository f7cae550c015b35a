"""What an agent adds, empties or replaces beside the validator, so that the validator itself need not be touched."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.freezing import discovery
from tests.support.scratch import Scratch

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.missions.rules.mission import Mission

WALKS = {
    "glob": 'for f in corpus/*.in; do grep -q right "$f" || exit 1; done',
    "name": "find corpus -name '*.in' | while read -r f; do grep -q right $f || exit 1; done",
    "cd": "cd corpus && for f in *; do grep -q right $f || exit 1; done",
    "variable": 'for n in 1 2 3; do test ! -e "corpus/$n.in" || grep -q right "corpus/$n.in" || exit 1; done',
    "diff": 'test -z "$(grep -L right -r ./corpus/)"',
}


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


def is_tampered(world: Scratch, mission: Mission, path: str) -> bool:
    refusal = world.stop().refusal
    assert world.load(mission).phase == "running"
    return "(tampered)" in refusal and path in refusal


@pytest.mark.requirement("DONE-14")
@pytest.mark.parametrize("walk", WALKS)
def test_a_failing_case_that_was_deleted_is_missed(world: Scratch, walk: str) -> None:
    world.write("check.sh", f"#!/bin/sh\n{WALKS[walk]}\n", executable=True)
    for number, text in enumerate(("right", "right", "wrong"), 1):
        world.write(f"corpus/{number}.in", text)
    world.commit("Add cases")
    mission = world.mission()
    assert world.stop().refusal
    (world.project / "corpus" / "3.in").unlink()
    assert is_tampered(world, mission, "corpus/3.in")


@pytest.mark.requirement("DONE-15")
def test_a_new_case_and_what_a_check_writes_are_no_tampering(world: Scratch) -> None:
    world.write(
        "check.sh",
        "#!/bin/sh\necho x > test-output/log\ntest -e corpus/2.in && ls corpus/*.in\n",
        executable=True,
    )
    world.write("corpus/1.in", "right")
    world.write("test-output/log", "of an earlier run")
    world.write(".gitignore", "test-output/\n")
    mission = world.mission()
    assert world.stop().refusal
    world.write("corpus/2.in", "right")
    world.stop()
    assert world.load(mission).phase == "complete"


def test_a_folder_of_work_is_told_and_not_pinned(tmp_path: Path) -> None:
    for name in ("src/a.py", "expected/a", "results/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    manifest = discovery.find(str(tmp_path), commands=["./run src/ && diff -r results expected"])
    assert [pin.path for pin in manifest.pins if pin.kind == "file"] == ["expected/a"]


def test_a_folder_of_cases_that_is_too_large_is_told_to_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omx_autoresearch.freezing.folders.CASE_LIMIT", 2)
    (tmp_path / "cases").mkdir()
    for number in range(3):
        (tmp_path / "cases" / str(number)).write_text("")
    manifest = discovery.find(str(tmp_path), commands=["ls cases"])
    assert (manifest.frozen_count, "--protect cases pins it" in manifest.notes[0]) == (0, True)


# --- modules


@pytest.mark.requirement("DONE-15")
@pytest.mark.parametrize(
    ("command", "script", "added"),
    [
        ("python3 check.py", "check.py", "json.py"),
        ("python3 check.py", "check.py", "json/__init__.py"),
        ("./judge", "check.py", "json.py"),
        ("python3 tests/check.py", "tests/check.py", "tests/helper/__init__.py"),
        ("python3 tests/check.py", "tests/check.py", "tests/subprocess.py"),
    ],
)
def test_a_module_in_the_place_of_one_that_the_check_imports_tampers(
    world: Scratch, command: str, script: str, added: str
) -> None:
    text = "import sys, json, subprocess\nif 'tests' in __file__: import helper\nsys.exit(1)\n"
    world.write(script, text)
    world.write("tests/helper.py", "")
    world.write("judge", "#!/bin/sh\npython3 -c 'import json, sys; sys.exit(1)' check.py\n", executable=True)
    world.environ["PATH"] = f"{sys.prefix}/bin:{world.environ['PATH']}"
    world.commit("Judge by Python")
    mission = world.mission(validator_command=command)
    assert world.stop().refusal
    world.write(added, "import os\nos._exit(0)\n")
    world.write("newcomer.py", "nobody imports it by accident\n")
    assert is_tampered(world, mission, added.removesuffix("/__init__.py"))
    world.tell(world.payload("PostToolUse", tool_name="Bash", tool_input={}, tool_response={}))
    from omx_autoresearch.missions.lifecycle_commands import restore

    assert restore(world.runtime(), mission.task_id).paths == (added.removesuffix("/__init__.py"),)
    assert "(tampered)" not in world.stop().refusal


def test_modules_that_stood_there_at_launch_may_stay(world: Scratch) -> None:
    world.write("check.py", "import sys\nsys.exit(1)\n")
    world.write("queue.py", "")
    world.write("calendar/__init__.py", "")
    world.commit("Begin with two")
    world.mission(validator_command="python3 check.py")
    world.write("calendar/more.py", "")
    world.write("random", "no module\n")
    (world.project / "string").mkdir()
    assert "(validation)" in world.stop().refusal


# --- programs


@pytest.mark.requirement("DONE-04", "DONE-14")
@pytest.mark.parametrize("planted", ["judge", "grep", "sh", "env"])
def test_a_program_of_the_workspace_that_stands_first_on_path_is_pinned_or_guarded(
    world: Scratch, planted: str
) -> None:
    world.write(".gitignore", ".venv/\n")
    world.write(".venv/bin/judge", "#!/bin/sh\nexit 1\n", executable=True)
    world.write("check.sh", "#!/usr/bin/env sh\ngrep -q 42 answer.txt && judge\n", executable=True)
    world.commit("Judge by a program")
    world.environ["PATH"] = f"{world.project}/.venv/bin:{world.environ['PATH']}"
    mission = world.mission()
    assert world.stop().refusal
    world.write(f".venv/bin/{planted}", "#!/bin/sh\nexit 0\n", executable=True)
    world.write(".venv/bin/newcomer", "#!/bin/sh\n", executable=True)
    assert is_tampered(world, mission, f".venv/bin/{planted}")


def test_programs_of_the_workspace_alone_are_no_evaluator(world: Scratch) -> None:
    world.write(".venv/bin/python3", "#!/bin/sh\n", executable=True)
    path = f"{world.project}/.venv/bin:/usr/bin:/bin"
    manifest = discovery.find(str(world.project), commands=["python3 -c 1"], search_path=path)
    assert (manifest.frozen_count, manifest.judging_count) == (1, 0)


def test_a_relative_folder_of_path_is_nobodys(world: Scratch) -> None:
    world.environ["PATH"] = f".:{world.environ['PATH']}::bin"
    mission = world.mission()
    world.write("grep", "#!/bin/sh\nexit 0\n", executable=True)
    world.write("bin/grep", "#!/bin/sh\nexit 0\n", executable=True)
    assert "answer.txt does not say 42" in world.stop().refusal
    contract = mission.contract
    assert contract is not None
    assert all(folder.startswith("/") for folder in contract.environment["PATH"].split(":"))
