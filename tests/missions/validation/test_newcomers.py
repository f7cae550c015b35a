"""Names that other programs load and that appear while a check runs: told, and tampering only where it made them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.missions.validation import runs
from tests.support.boxes import BOXES, take_box
from tests.support.needs import HAS_LANDLOCK, needs_bubblewrap, needs_user_namespaces

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.missions.rules.mission import Attestation
    from tests.support.scratch import Scratch

MAKES_VSCODE = "mkdir .vscode && echo x > .vscode/tasks.json; exit 1"


def judged(world: Scratch, command: str, box: str) -> Attestation:
    """The attestation of one run of this command in a box."""
    world.write("check.sh", command)
    mission = world.mission(validator_command="sh check.sh")
    ask = runs.Ask(box.split(maxsplit=1)[0])
    assert runs.validate(world.runtime(), mission.task_id, ask, wait_seconds=60)
    attestation = world.load(mission).attestation
    assert attestation is not None
    return attestation


@needs_user_namespaces
@pytest.mark.parametrize("kind", BOXES)
def test_a_check_cannot_make_them(world: Scratch, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    take_box(monkeypatch, kind)

    run = judged(world, MAKES_VSCODE, kind)

    assert (run.verdict, run.cause, run.isolation) == ("failed", "exit-nonzero", kind)
    assert not (world.project / ".vscode").exists()


@needs_user_namespaces
@pytest.mark.parametrize("kind", BOXES)
def test_an_editor_that_makes_one_meanwhile_is_neither_told_nor_moved(
    world: Scratch, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    take_box(monkeypatch, kind)
    made = world.project / ".vscode"
    world.write("go", "")
    command = "echo > began; while [ ! -s go ]; do sleep 0.01; done; exit 1"
    editor = subprocess.Popen(
        ["sh", "-c", "while [ ! -e began ]; do sleep 0.01; done; mkdir .vscode; echo > go"], cwd=world.project
    )

    run = judged(world, command, kind)

    editor.wait()
    assert run.verdict == "failed"
    assert ".vscode" not in run.summary
    assert made.is_dir()


@needs_bubblewrap
def test_where_they_cannot_be_kept_from_it_they_are_told_and_an_editor_is_not_accused(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_box(monkeypatch, "bubblewrap without mounts")

    run = judged(world, MAKES_VSCODE, "bubblewrap")

    assert run.verdict == "failed"
    assert ".vscode appeared meanwhile, and other programs load it" in run.summary
    assert (world.project / ".vscode" / "tasks.json").exists()


@pytest.mark.skipif(not HAS_LANDLOCK, reason="the kernel has no Landlock")
def test_a_failure_in_a_box_that_lets_nothing_be_made_says_so_and_the_cure(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_box(monkeypatch, "landlock without mounts")

    run = judged(world, "touch made; exit 1", "landlock")

    assert run.verdict == "failed"
    assert "the box lets nothing be made, replaced or deleted at the top of the workspace" in run.summary
    assert "(install the package bubblewrap)" in run.summary
    assert not (world.project / "made").exists()


_ALONE = """
import os, sys
from omx_autoresearch.system import sandbox
from omx_autoresearch.system.surroundings import Surroundings
from omx_autoresearch.missions.validation.newcomers import take_aside
Surroundings.arrange = lambda _wanted: "this system has no such mounts"
workspace, scratch = sys.argv[1:]
result = sandbox.run_limited(
    ("/bin/sh", "-c", "mkdir .vscode; echo x > .vscode/tasks.json"), sandbox.Limits(workspace, scratch),
    cwd=workspace, env={"PATH": os.defpath}, timeout_seconds=20, output_path=os.devnull,
)
print(result.has_made_newcomers, take_aside(result, workspace, "r-1"))
"""


@needs_bubblewrap
@needs_user_namespaces
def test_what_nothing_but_the_check_can_have_made_is_moved_aside(tmp_path: Path) -> None:
    workspace, scratch = tmp_path / "workspace", tmp_path / "scratch"
    workspace.mkdir()
    scratch.mkdir()

    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    told = subprocess.run(
        [*alone, sys.executable, "-c", _ALONE, str(workspace), str(scratch)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert told == "True the command made .vscode, which other programs load; moved to .omx/aside/r-1\n"
    assert (workspace / ".omx" / "aside" / "r-1" / ".vscode" / "tasks.json").read_text() == "x\n"
    assert not (workspace / ".vscode").exists()
