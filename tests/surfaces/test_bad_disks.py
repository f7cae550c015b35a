"""On bad disks: pipes and devices in the place of files, folders that cannot be written, disks that are full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.missions import lifecycle_commands
from tests.support.scratch import HOOK, SESSION, Scratch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


def command_line(world: Scratch, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, as the owner types it."""
    return subprocess.run(
        [sys.executable, "-m", "omx_autoresearch.surfaces.cli", *arguments],
        env={**world.environ, "OMX_AUTORESEARCH_HOME": str(world.home_path)},
        cwd=world.project,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# --- pipes and devices

OURS = (
    *(
        f"missions/TASK/{name}"
        for name in ("heartbeat.jsonl", "journal.jsonl", "journal.lock", "projected.json")
    ),
    *(
        f"missions/TASK/{name}"
        for name in ("status.0.json", "status.1.json", "index.sqlite", "NOTICE", "told")
    ),
    *(f"active/{SESSION}", f"told/{SESSION}", "hook.log"),
)
"""Every file of the state home that an event or a look opens."""


@pytest.mark.case("DSK-01")
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", OURS)
def test_what_is_no_file_in_the_place_of_one_of_ours_makes_nobody_wait(
    world: Scratch, name: str, kind: str
) -> None:
    mission = world.mission(is_unsandboxed=True)
    path = world.home_path / name.replace("TASK", mission.task_id)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    events = [
        world.payload("PostToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_response={}),
        world.payload("Stop"),
        world.payload("UserPromptSubmit", prompt="go on"),
        world.payload("SessionEnd"),
    ]
    for event in events:  # a hook that waited would end this test
        assert world.hook(event).exit_status == 0
    looked = command_line(world, "status", mission.task_id)
    assert "unexpected" not in looked.stderr
    shown = subprocess.run(
        [sys.executable, "-I", "-S", str(HOOK), str(world.home_path), "claude", "statusline"],
        input=b'{"session_id":"%b"}' % SESSION.encode(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert shown.returncode == 0


@pytest.mark.case("DSK-02")
def test_a_hook_that_gets_little_memory_holds_all_the_same(world: Scratch) -> None:
    mission = world.mission(is_unsandboxed=True)
    lifecycle_commands.approve(world.runtime(), mission.task_id, is_unsandboxed=True)
    little = ["sh", "-c", 'ulimit -v 60000 && exec "$@"', "sh", *world.hook_argv("codex")]
    done = subprocess.run(
        little,
        input=json.dumps(world.payload()).encode(),
        env=world.environ,
        cwd=world.project,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert json.loads(done.stdout)["decision"] == "block"
