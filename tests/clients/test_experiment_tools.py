"""Measured experiments through our tools (MCP), called from real agent CLIs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.clients.support.owned_mission import PRODUCT
from tests.clients.support.wire_formats import Turn
from tests.clients.test_tools import once_declared

if TYPE_CHECKING:
    from tests.clients.support.stage import Stage

pytestmark = pytest.mark.client

MEASURE = "#!/bin/sh\necho METRIC total_ms=$(cat value.txt)\n"
PATCH = "--- a/value.txt\n+++ b/value.txt\n@@ -1 +1 @@\n-100\n+{}\n"
STARTED = (
    "start", "--metric", "total_ms", "--measure", "./measure.sh", "--check", "test -s value.txt",
    "--protect", "!value.txt", "--calibration-pairs", "2", "--json",
)  # fmt: skip


@pytest.mark.requirement("MCP-08")
def test_an_agent_has_its_changes_judged_and_only_the_better_one_is_kept(stage: Stage) -> None:
    workspace, tool = stage.place.workspace, stage.cli.tool
    (workspace / "measure.sh").write_text(MEASURE)
    (workspace / "measure.sh").chmod(0o755)
    (workspace / "value.txt").write_text("100\n")
    stage.commit("Something to optimize")
    stage.owner(PRODUCT, "install", stage.cli.name)
    started = stage.owner_json(PRODUCT, "experiment", *STARTED)
    experiment_id = str(started["experiment"]["experiment_id"])
    better = {"description": "A smaller number", "patch": PATCH.format(90)}
    worse = {"description": "A larger number", "patch": PATCH.format(100).replace("-100", "-90")}
    run = stage.run(
        "Make it faster.",
        once_declared(
            stage,
            Turn("What is measured?", (tool("experiment_status", {}),)),
            Turn("I try a change.", (tool("experiment_trial", better),), needs="total_ms"),
            Turn("And another one.", (tool("experiment_trial", worse),), needs="accepted"),
            Turn("That is all.", needs="rejected"),
        ),
    )
    assert run.exit_code == 0, run
    status = stage.owner_json(PRODUCT, "experiment", "status", experiment_id, "--json")
    assert [(row["status"], row["description"]) for row in status["rows"]] == [
        ("accepted", "A smaller number"),
        ("rejected", "A larger number"),
    ]
    assert (workspace / "value.txt").read_text() == "100\n"


@pytest.mark.requirement("AUTO-02")
def test_an_agent_uses_the_older_session_tools_where_they_were_asked_for(claude_stage: Stage) -> None:
    stage, tool = claude_stage, claude_stage.cli.tool
    auto = stage.place.workspace / ".auto"
    auto.mkdir()
    (auto / "measure.sh").write_text(MEASURE)
    (stage.place.workspace / "value.txt").write_text("100\n")
    stage.owner(PRODUCT, "install", stage.cli.name, "--session-tools")
    run = stage.run(
        "Make it faster.",
        once_declared(
            stage,
            Turn("I begin.", (tool("init_experiment", {"name": "fast", "metric_name": "total_ms"}),)),
            Turn("The baseline.", (tool("run_experiment", {"description": "baseline"}),), needs="segment"),
            Turn("That is all.", needs="keep"),
        ),
    )
    assert run.exit_code == 0, run
    lines = [json.loads(line) for line in (auto / "log.jsonl").read_text().splitlines()]
    assert [(line.get("status"), line.get("metric")) for line in lines] == [(None, None), ("keep", 100)]
