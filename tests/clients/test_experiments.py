"""Real agent CLIs, driven through two trials: one good hypothesis, one bad; only the good one is kept."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.support.owned_mission import PRODUCT
from tests.clients.support.scripted_model import Script
from tests.clients.support.wire_formats import Turn

if TYPE_CHECKING:
    from tests.clients.support.stage import Stage

pytestmark = pytest.mark.client

AGENTS = {
    "claude": "claude -p --permission-mode acceptEdits --output-format json --model claude-sonnet-4-5",
    "codex": "codex exec --json --skip-git-repo-check -",
    "gemini": "gemini --yolo --model gemini-2.5-flash --output-format json",
}
"""As a person would type them, with the prompt on stdin."""
FILES = {
    "measure.sh": "#!/bin/sh\nprintf 'METRIC ms=%s\\n' \"$(cat cost.txt)\"\n",
    "check.sh": "#!/bin/sh\ntest -s cost.txt\n",
    "cost.txt": "100\n",
}
BEGIN = (
    *(
        "experiment",
        "start",
        "--metric",
        "ms",
        "--measure",
        "./measure.sh",
        "--check",
        "./check.sh",
        "--json",
    ),
    *("--calibration-pairs", "2", "--claim-pairs", "3", "--protect", "check.sh"),
)
LIMIT_SECONDS = 180


def settle(stage: Stage) -> None:
    """A program whose cost stands in a file."""
    for name, text in FILES.items():
        path = stage.place.workspace / name
        path.write_text(text)
        path.chmod(0o755)
    stage.commit("Add a program with a cost")


def product(stage: Stage, *command: str) -> Any:
    """What a command of the owner prints, in a terminal in which the client would find its key."""
    done = subprocess.run(
        stage.inside(PRODUCT, *command),
        cwd=stage.place.workspace,
        env=stage.client_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)


@pytest.mark.requirement("DRIVE-18")
def test_an_agent_is_driven_through_a_good_and_a_bad_hypothesis(stage: Stage) -> None:
    settle(stage)
    product(stage, *BEGIN)
    does = stage.cli.does
    script = stage.model.script = Script(
        does("I will halve it.", "echo 50 > cost.txt"),
        Turn("Halved.\n\nDIRECTION: less work\nHYPOTHESIS: half the steps"),
        does("I will try more.", "echo 200 > cost.txt"),
        Turn("More.\n\nHYPOTHESIS: twice the steps"),
    )
    document = product(
        stage, "experiment", "run", "--agent", AGENTS[stage.cli.name], "--trials", "2", "--json"
    )
    assert not script.misfits
    rows = document["experiment"]["rows"]
    assert [(row["status"], row["reason_code"], row["description"]) for row in rows] == [
        ("accepted", "improved", "half the steps"),
        ("rejected", "not_better", "twice the steps"),
    ], rows
    assert "ms is 50 % lower" in document["experiment"]["result"]
    assert (stage.place.workspace / "cost.txt").read_text() == "100\n"

    first, second = (next(item for item in script.requests if item.turn == turn) for turn in (0, 2))
    assert "One trial of a measured experiment" in first.conversation
    assert "There are none yet." in first.conversation
    assert "| 1 | half the steps | accepted |" in second.conversation
    assert "I will halve it." not in second.conversation, "a session of its own"

    for row in rows:
        assert row["metadata"]["client"] == stage.cli.name
        assert sum(row["metadata"]["tokens"].values()) > 0
        assert row["metadata"]["is_cost_reported"] is (stage.cli.name == "claude")
        assert (row["cost_usd"] > 0) is (stage.cli.name == "claude")


@pytest.mark.requirement("DRIVE-10")
def test_an_agent_has_its_own_change_judged_from_its_shell(stage: Stage) -> None:
    settle(stage)
    started = product(stage, *BEGIN)
    path = started["experiment"]["workspace_path"]
    trial = f"echo 50 > {path}/cost.txt && {PRODUCT} experiment trial --hypothesis mine --description 'half of it'"
    run = stage.run(
        "Make it faster.",
        stage.cli.does("I change it there.", trial),
        Turn("It was kept.", needs="accepted"),
    )
    assert run.exit_code == 0, run
    (row,) = product(stage, "experiment", "status", "--json")["rows"]
    assert (row["status"], row["hypothesis_id"], row["description"]) == ("accepted", "mine", "half of it")
    said = stage.run(
        "And take it over.",
        stage.cli.does("I accept it.", f"{PRODUCT} experiment accept --yes; true"),
        Turn("I may not.", needs="only the owner may run"),
    )
    assert said.exit_code == 0, said
    assert (stage.place.workspace / "cost.txt").read_text() == "100\n"
