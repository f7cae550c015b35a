"""What the runtime starts: it inherits no session, meets no lock of ours, and gets no wider rights."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.scratch import Scratch

PACKAGE = Path(__file__).resolve().parents[2] / "omx_autoresearch"
TRY_LOCK = (
    "import fcntl, sys; stream = open(sys.argv[1], 'rb');"
    "fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB); print('free')"
)
REJECTS = 'sed -n \'s/.*"nonce": "\\([0-9a-f]*\\)".*/{"nonce": "\\1", "verdict": "rejected"}/p\'\n'
"""The end of a reviewer's script that rejects, with the nonce of its prompt."""


@pytest.mark.requirement("SESS-12")
@pytest.mark.parametrize("mode", ["validator", "reviewer"])
def test_no_lock_is_held_while_a_command_runs(world: Scratch, mode: str) -> None:
    said = world.root / "said"
    ending = REJECTS if mode == "reviewer" else "exit 1\n"
    program = shlex.join([sys.executable, "-I", "-S", "-c", TRY_LOCK])
    world.write(
        "judge.sh",
        f"#!/bin/sh\n{program} {world.home_path}/missions/*/journal.lock >{said} 2>&1\n{ending}",
        executable=True,
    )
    world.write("report.md", "a report\n")
    world.commit("Judge")
    if mode == "validator":
        world.mission(validator_command="./judge.sh")
    else:
        world.mission(
            validator_prompt="Is it true?", output_artifact_path="report.md", reviewer_command="./judge.sh"
        )
    assert world.hook(world.payload()).reason
    assert said.read_text() == "free\n"


@pytest.mark.requirement("SESS-12")
def test_no_session_of_anybody_reaches_a_reviewer(world: Scratch) -> None:
    said = world.root / "said"
    world.write("judge.sh", f"#!/bin/sh\nenv >{said}\n{REJECTS}", executable=True)
    world.write("report.md", "a report\n")
    world.commit("Judge")
    world.mission(
        validator_prompt="Is it true?", output_artifact_path="report.md", reviewer_command="./judge.sh"
    )
    marks = {
        "CLAUDECODE": "1",
        "CLAUDE_CODE_SESSION_ID": "x",
        "CODEX_THREAD_ID": "x",
        "GEMINI_SESSION_ID": "x",
        "OMX_AUTORESEARCH_TASK": "task:nonce",
        "OMX_AUTORESEARCH_HOME": str(world.home_path),
    }
    assert world.hook(world.payload(), env=marks).reason
    names = {line.partition("=")[0] for line in said.read_text().splitlines()}
    assert names & marks.keys() == set()


@pytest.mark.requirement("SESS-14")
def test_no_command_of_ours_carries_a_flag_that_lets_an_agent_do_as_it_likes() -> None:
    flags = (
        "--dangerously",
        "--yolo",
        "bypassPermissions",
        "--allow-all",
        "--full-auto",
        "--approval-mode",
        "--skip-trust",
        "permissionDecision",
    )
    texts = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*") if path.suffix in (".py", ".j2")}
    wrong = [f"{path.name}: {flag}" for path, text in texts.items() for flag in flags if flag in text]
    suggested = {mode for text in texts.values() for mode in re.findall(r"--permission-mode[ =]?(\w*)", text)}
    assert wrong == []
    assert suggested <= {"acceptEdits"}, "what an owner is told to type lets edits pass, and nothing else"
