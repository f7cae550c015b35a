"""A person's prompt starts a draft: its baseline runs the agent's code, with no wider rights than the agent has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.scratch import Scratch


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    world = Scratch.make(tmp_path)
    world.write("check.sh", "#!/bin/sh\n. ./program.sh\n[ -e answer.txt ]\n", executable=True)
    world.write("program.sh", 'echo here > "$HOME/outside"\n')
    world.commit("Check by running the program")
    return world


@pytest.mark.requirement("DONE-17")
@pytest.mark.parametrize("is_sandboxed", [True, False])
def test_the_baseline_of_a_prompt_writes_outside_only_where_the_client_has_no_sandbox(
    world: Scratch, is_sandboxed: bool
) -> None:
    home = Path(world.environ["HOME"])
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"sandbox": {"enabled": is_sandboxed}}))
    mission = world.draft()
    world.hook(world.payload("UserPromptSubmit", prompt=f"$autoresearch {mission.task_id}"))
    assert world.load(mission).phase == "running"
    assert (home / "outside").exists() is not is_sandboxed
