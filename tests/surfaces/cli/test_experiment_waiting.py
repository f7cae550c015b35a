"""A trial from the command line that goes on by itself, below the limit that a client puts on its agent's commands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.surfaces.cli.test_json import check
from tests.surfaces.support.command_line import AGENT
from tests.surfaces.support.experiments import Researcher

if TYPE_CHECKING:
    from pathlib import Path

PATCH = "--- a/work.sh\n+++ b/work.sh\n@@ -1,2 +1,2 @@\n #!/bin/sh\n-echo 100\n+echo {}\n"


@pytest.fixture
def person(tmp_path: Path) -> Researcher:
    """Somebody whose check waits at a gate, where there is one."""
    made = Researcher(tmp_path)
    gate = made.root / "gate"
    made.write("check.sh", f"#!/bin/sh\nif [ -p {gate} ]; then read _ <{gate}; fi\n", mode=0o755)
    made.commit("A check that can wait")
    made.begin()
    return made


def tried(person: Researcher, cost: int, *more: str, status: int) -> dict[str, object]:
    path = person.root / "change.patch"
    path.write_text(PATCH.format(cost))
    found: dict[str, object] = person.json("experiment", "trial", "--patch", str(path), *more, status=status)
    return found


@pytest.mark.requirement("MCP-09")
def test_a_trial_goes_on_by_itself_and_is_waited_for(person: Researcher) -> None:
    gate = person.root / "gate"
    os.mkfifo(gate)
    begun = tried(person, 50, "--seconds", "0", "--cost", "0.5", status=9)
    check("experiment-wait", begun)
    assert begun["is_running"]
    assert str(begun["next"]).startswith("omx-autoresearch experiment wait ")
    assert "a trial has been under way" in person.refused("experiment", "trial", "--seconds", "0", status=5)
    assert person.json("experiment", "wait", "--seconds", "0", status=9)["is_running"]
    shown = person.run("experiment", "wait", "--seconds", "0")
    assert (shown.returncode, "goes on" in shown.stdout) == (9, True)
    gate.write_text("go\n")
    gate.unlink()
    ended = person.json("experiment", "wait")
    assert (ended["is_running"], ended["row"]["status"], ended["row"]["cost_usd"]) == (False, "accepted", 0.5)
    assert "accepted" in person.ok("experiment", "wait")


@pytest.mark.requirement("MCP-09")
def test_an_agents_trial_is_waited_for_by_default_and_says_why_it_was_none(person: Researcher) -> None:
    path = person.root / "change.patch"
    path.write_text(PATCH.format(50).replace("100", "7"))
    misfit = person.json("experiment", "trial", "--patch", str(path), env=AGENT, status=9)
    check("experiment-wait", misfit)
    assert misfit["row"] is None
    assert "does not fit" in misfit["fault"]
    assert "kept in" in misfit["next"]
    assert "does not fit" in person.run("experiment", "wait").stdout
    assert "to its end" in person.refused("experiment", "trial", "--seconds", "1", "--", "true", status=2)


@pytest.mark.requirement("MCP-09")
def test_without_a_trial_a_wait_says_so(person: Researcher) -> None:
    done = person.run("experiment", "wait")
    assert (done.returncode, "no trial yet" in done.stdout) == (9, True)
