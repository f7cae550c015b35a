"""The tools of experiments, by the client of the official SDK: an agent tries changes, and only looks at the rest."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.experiments.background import wait_for_trial
from omx_autoresearch.experiments.controller import AutoresearchController
from omx_autoresearch.experiments.mission_link import link_experiment
from tests.support.experiments import Quiet
from tests.support.needs import needs_bubblewrap
from tests.support.scratch import OTHER, SESSION, Scratch

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import Implementation

from omx_autoresearch.surfaces.mcp import experiment_tools, server

CODEX = Implementation(name="codex-mcp-client", version="1")
FREE = {"x-codex-turn-metadata": {"sandbox_mode": "danger-full-access"}}
"""What Codex says with the call of a session that it runs without a sandbox."""
OWNERS = ("start", "run", "accept", "stop", "cancel", "resume", "finalize", "verify", "close", "remove")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    made = Scratch.make(tmp_path)
    monkeypatch.chdir(made.project)
    return made


@pytest.fixture
def quiet(scratch: Scratch) -> Quiet:
    return Quiet.begin(scratch)


def ask(
    scratch: Scratch,
    tool: str,
    /,
    *,
    session: str = SESSION,
    free: bool = True,
    progress: Any = None,
    **arguments: Any,
) -> Any:
    """Call one tool in this process, as Codex does."""
    meta: Any = {"sessionId": session, **(FREE if free else {})}

    async def talk() -> Any:
        async with Client(server.build_server(scratch.runtime()), client_info=CODEX) as client:
            return await client.call_tool(tool, arguments, meta=meta, progress_callback=progress)

    return asyncio.run(talk())


def told(scratch: Scratch, tool: str, /, **arguments: Any) -> dict[str, Any]:
    answer = ask(scratch, tool, **arguments)
    assert not answer.is_error, answer
    assert json.loads(answer.content[0].text) == answer.structured_content
    found: dict[str, Any] = answer.structured_content
    return found


def refused(scratch: Scratch, tool: str, /, **arguments: Any) -> str:
    answer = ask(scratch, tool, **arguments)
    assert answer.is_error
    return str(answer.content[0].text)


@pytest.mark.requirement("MCP-10")
def test_what_is_the_owners_is_no_tool(scratch: Scratch) -> None:
    async def listed() -> Any:
        async with Client(server.build_server(scratch.runtime())) as client:
            return (await client.list_tools()).tools

    names = {tool.name for tool in asyncio.run(listed())}
    assert names.isdisjoint(f"experiment_{verb}" for verb in OWNERS)
    assert {tool.__name__ for tool in (*experiment_tools.LOOKING, *experiment_tools.RUNNING)} <= names


@pytest.mark.requirement("MCP-08")
def test_an_agent_reads_where_to_work_tries_changes_and_sees_what_was_kept(quiet: Quiet) -> None:
    scratch = quiet.scratch
    status = told(scratch, "experiment_status")
    assert (status["experiment_id"], status["phase"], status["baseline"]) == (
        quiet.experiment_id,
        "ready",
        100,
    )
    assert (status["calibration"]["regime"], status["direction"], status["unit"]) == (
        "deterministic",
        "lower",
        "ms",
    )
    assert status["workspace_path"] == str(quiet.candidate)
    assert {"measure.sh", "correct.sh"} <= set(status["frozen"])
    assert "Not verified yet" in status["result"]
    assert not status["is_at_work"]
    quiet.change(90)
    trial = told(scratch, "experiment_trial", description="A smaller number", direction="numbers")
    assert not trial["is_running"]
    row = trial["row"]
    assert (row["iteration"], row["status"], row["metric"], row["direction"]) == (
        1,
        "accepted",
        90,
        "numbers",
    )
    assert (row["hypothesis_id"], row["changed_paths"], trial["effect"]) == (
        "h-1",
        ["value.txt"],
        "10 %",
    )
    assert trial["left"]["trials"] == 39
    worse = told(scratch, "experiment_trial", description="A larger one", patch=quiet.patch(90, 95))
    assert worse["row"]["status"] == "rejected"
    assert "rolled back" in worse["next"]
    status = told(scratch, "experiment_status")
    assert (status["counts"]["accepted"], status["counts"]["rejected"]) == (1, 1)
    assert status["rows"][-1]["iteration"] == 2
    assert told(scratch, "experiment_wait")["row"]["iteration"] == 2


@pytest.mark.slow
@pytest.mark.requirement("MCP-08")
def test_the_history_is_capped_and_pages_on(quiet: Quiet) -> None:
    for value in (110, 120, 130):
        told(quiet.scratch, "experiment_trial", description="x" * 5000, patch=quiet.patch(100, value))
    newest = told(quiet.scratch, "experiment_history", limit=2)
    assert [row["iteration"] for row in newest["rows"]] == [2, 3]
    assert newest["is_cut"]
    assert all(len(row["description"]) < 2100 for row in newest["rows"])
    rest = told(quiet.scratch, "experiment_history", limit=2, before=2)
    assert ([row["iteration"] for row in rest["rows"]], rest["is_cut"]) == ([1], False)
    assert "less than or equal to 50" in refused(quiet.scratch, "experiment_history", limit=51)


@pytest.mark.requirement("MCP-08")
def test_the_patch_is_shown_bounded_and_is_the_owners_to_accept(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = told(quiet.scratch, "experiment_patch")
    assert (empty["size_bytes"], empty["files"], empty["text"]) == (0, [], "")
    told(quiet.scratch, "experiment_trial", description="better", patch=quiet.patch(100, 90))
    shown = told(quiet.scratch, "experiment_patch")
    assert [(item["path"], item["status"], item["added_lines"]) for item in shown["files"]] == [
        ("value.txt", "M", 1)
    ]
    assert "-100\n+90\n" in shown["text"]
    assert not shown["is_cut"]
    assert shown["next"] == f"the owner types: omx-autoresearch experiment accept {quiet.experiment_id}"
    assert shown["warnings"]
    monkeypatch.setattr(experiment_tools, "PATCH_CHARACTERS", 20)
    cut = told(quiet.scratch, "experiment_patch")
    assert (len(cut["text"]), cut["is_cut"], cut["size_bytes"]) == (20, True, shown["size_bytes"])
    assert quiet.scratch.read("value.txt") == "100\n"


@pytest.mark.requirement("MCP-09")
def test_a_long_trial_answers_in_time_tells_its_progress_and_is_waited_for(quiet: Quiet) -> None:
    scratch = quiet.scratch
    heard: list[str] = []
    with quiet.gate() as gate:
        first = told(scratch, "experiment_trial", description="long", patch=quiet.patch(100, 90), seconds=0)
        assert (first["is_running"], first["next"]) == (True, "call experiment_wait")
        assert "a trial has been under way" in refused(
            scratch, "experiment_trial", description="another", patch=quiet.patch(100, 80)
        )

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            heard.append(str(message))

        assert told(scratch, "experiment_wait", seconds=1.2, progress=hear)["is_running"]
        gate.open()
    assert any("trial 1" in message for message in heard)
    ended = told(scratch, "experiment_wait")
    assert (ended["is_running"], ended["row"]["status"]) == (False, "accepted")


@pytest.mark.requirement("MCP-09")
def test_a_trial_survives_the_end_of_the_server_and_of_its_client(quiet: Quiet) -> None:
    scratch = quiet.scratch
    command = StdioServerParameters(
        command=sys.executable,
        args=["-E", "-P", "-m", "omx_autoresearch.surfaces.cli", "mcp", "--home", str(scratch.home_path)],
        env={**scratch.environ},
        cwd=str(scratch.project),
    )
    quiet.change(90)

    async def talk() -> Any:
        async with Client(stdio_client(command), client_info=CODEX) as client:
            arguments = {"description": "closed at once", "seconds": 0}
            meta: Any = {"sessionId": SESSION, **FREE}
            return await client.call_tool("experiment_trial", arguments, meta=meta)

    with quiet.gate() as gate:
        answer = asyncio.run(talk())
        assert answer.structured_content["is_running"], answer
        gate.open()  # the server is gone by now
    view = wait_for_trial(scratch.runtime(), quiet.experiment_id, wait_seconds=60)
    assert view.row is not None
    assert (view.row.status, view.row.description) == ("accepted", "closed at once")


@pytest.mark.requirement("MCP-10")
def test_an_experiment_of_a_mission_is_tried_by_the_session_that_the_mission_holds(scratch: Scratch) -> None:
    mission = scratch.mission()
    quiet = Quiet.begin(scratch, task_id=mission.task_id)
    link_experiment(scratch.runtime(), mission.task_id, quiet.experiment_id, "total_ms")
    patch = quiet.patch(100, 90)
    text = refused(scratch, "experiment_trial", session=OTHER, description="mine", patch=patch)
    assert "step-illegal: no mission holds this session" in text
    assert quiet.state.rows == ()
    assert told(scratch, "experiment_status", session=OTHER)["experiment_id"] == quiet.experiment_id
    trial = told(scratch, "experiment_trial", description="ours", patch=patch)
    assert trial["row"]["status"] == "accepted"
    assert scratch.records(mission, "trials_accepted")[0]["data"]["iterations"] == [1]


@pytest.mark.requirement("MCP-10")
def test_an_experiment_of_another_project_is_looked_at_and_not_tried(
    quiet: Quiet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert "usage: this project has no experiment" in refused(quiet.scratch, "experiment_status")
    found = told(quiet.scratch, "experiment_status", experiment=quiet.experiment_id)
    assert found["experiment_id"] == quiet.experiment_id
    text = refused(
        quiet.scratch,
        "experiment_trial",
        experiment=quiet.experiment_id,
        description="x",
        patch=quiet.patch(100, 90),
    )
    assert "step-illegal: experiment" in text
    assert quiet.state.rows == ()


@pytest.mark.requirement("MCP-10")
def test_a_change_of_a_sandboxed_client_runs_in_no_wider_rights(scratch: Scratch) -> None:
    quiet = Quiet.begin(scratch)
    patch = quiet.patch(100, 90)
    text = refused(scratch, "experiment_trial", free=False, description="x", patch=patch)
    assert "command: your client may run commands in a sandbox" in text
    assert "--sandbox bubblewrap" in text
    assert quiet.state.rows == ()


@pytest.mark.requirement("MCP-10")
@needs_bubblewrap
def test_an_experiment_in_a_sandbox_is_open_to_a_sandboxed_client(scratch: Scratch) -> None:
    quiet = Quiet.begin(scratch, sandbox="bubblewrap")
    trial = told(scratch, "experiment_trial", free=False, description="x", patch=quiet.patch(100, 90))
    assert (trial["row"]["status"], trial["isolation"]) == ("accepted", "bubblewrap")


@pytest.mark.requirement("MCP-03")
def test_an_error_of_an_experiment_says_the_next_step(quiet: Quiet) -> None:
    scratch = quiet.scratch
    text = refused(scratch, "experiment_trial", description="nothing")
    assert "usage: nothing was changed, so there is nothing to try" in text
    assert f"next: change files in {quiet.candidate}, or send a patch" in text
    assert "usage: 'nowhere' matches no experiment" in refused(
        scratch, "experiment_status", experiment="nowhere"
    )
    misfit = told(scratch, "experiment_trial", description="misfit", patch=quiet.patch(7, 6))
    assert (misfit["row"], misfit["left"]["trials"]) == (None, 40)
    assert "does not fit the incumbent" in misfit["fault"]
    assert "is kept in" in misfit["next"]


@pytest.mark.requirement("MCP-08")
def test_an_agent_within_the_worktree_means_that_experiment_and_its_driver_judges_the_change(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = quiet.scratch
    other = Quiet.begin_again(scratch)
    assert "2 experiments are under way" in refused(scratch, "experiment_status")
    monkeypatch.chdir(quiet.candidate)
    assert told(scratch, "experiment_status")["experiment_id"] == quiet.experiment_id
    monkeypatch.chdir(other.candidate)
    assert told(scratch, "experiment_status")["experiment_id"] == other.experiment_id
    with AutoresearchController.resume(other.experiment_id, runtime=scratch.runtime()):
        text = refused(scratch, "experiment_trial", description="x", patch=other.patch(100, 90))
    assert "has held this repository" in text
    assert other.state.rows == ()
