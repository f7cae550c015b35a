"""Our tools (MCP), called from real agent CLIs: the server knows the session, and an agent in a sandbox can write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.system.sandbox import box
from tests.clients.support.agent_clis import CODEX
from tests.clients.support.owned_mission import EVIDENCE, PRODUCT, REFUSED, OwnedMission
from tests.clients.support.wire_formats import Turn
from tests.clients.test_missions import bind_and_kill

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.support.scripted_model import Request
    from tests.clients.support.stage import Stage

pytest.importorskip("mcp")
pytestmark = pytest.mark.client


@pytest.mark.requirement("MCP-02")
@pytest.mark.requirement("MCP-04")
def test_an_agent_adds_a_finding_reads_the_status_and_blocks(stage: Stage) -> None:
    tool = stage.cli.tool
    mission = OwnedMission(stage).start()
    run = stage.run(
        mission.prompt_line,
        once_declared(
            stage,
            Turn("I found something.", (tool("finding_add", {"summary": "the corpus is empty"}),)),
            Turn("How does it stand?", (tool("status", {}),), needs="is_known"),
            Turn(
                "A person must act.",
                (tool("block", {"reason": "no corpus", "needs": "the corpus in corpus/"}),),
                needs="is_own",
            ),
            Turn("I stop here.", needs="unblock"),
        ),
    )
    assert run.exit_code == 0, run
    assert [line["finding"]["summary"] for line in mission.records("finding_recorded")] == [
        "the corpus is empty"
    ]
    status = mission.status()
    assert (status["phase"], status["finding_count"]) == ("blocked", 1)
    assert "the corpus in corpus/" in str(status["blocker"])


@pytest.mark.requirement("MCP-06")
def test_an_agent_starts_the_prepared_mission_through_a_tool_and_is_held(stage: Stage) -> None:
    start_and_be_held(stage)


@pytest.mark.requirement("MCP-06")
def test_an_agent_in_codexs_sandbox_starts_the_mission_that_its_shell_could_not(codex_stage: Stage) -> None:
    CODEX.set_sandbox(codex_stage.place, "workspace-write")
    start_and_be_held(codex_stage)


@pytest.mark.requirement("MCP-04")
def test_a_resumed_session_is_known_to_the_tools_of_its_new_process(stage: Stage) -> None:
    mission = OwnedMission(stage).start()
    bind_and_kill(mission)
    tool = stage.cli.tool
    block = tool("block", {"reason": "no corpus", "needs": "the corpus in corpus/"})
    run = stage.run(
        "Go on.",
        once_declared(stage, Turn("A person must act.", (block,)), Turn("I stop here.", needs="unblock")),
        resume=True,
    )
    assert run.exit_code == 0, run
    assert mission.status()["phase"] == "blocked"


@pytest.mark.requirement("MCP-05")
def test_a_run_through_a_tool_gets_no_more_rights_than_codexs_sandbox_leaves(codex_stage: Stage) -> None:
    CODEX.set_sandbox(codex_stage.place, "workspace-write")
    mission = OwnedMission(codex_stage).start()
    run = codex_stage.run(
        mission.prompt_line,
        once_declared(
            codex_stage,
            Turn("I check it.", (CODEX.tool("validate", {}),)),
            Turn(
                "A person must act.", (CODEX.tool("block", {"reason": "a", "needs": "b"}),), needs="isolation"
            ),
            Turn("I stop here."),
        ),
    )
    assert run.turns[-1].find(r"isolation\W+(\w+)") == box().backend


def start_and_be_held(stage: Stage) -> None:
    mission = OwnedMission(stage)
    run = stage.run(
        "Start the mission that I prepared.",
        once_declared(
            stage,
            Turn("I start it.", (stage.cli.tool("start", {}),)),
            Turn("I am done.", needs="running"),
            stage.cli.does("Then I write the answer.", EVIDENCE, needs=REFUSED),
            Turn("Now it is done."),
        ),
    )
    assert run.exit_code == 0, run
    mission.task_id = run.turns[-1].find(r"\d{8}-\d{6}-answer")
    mission.assert_let_go_with_evidence()


def once_declared(stage: Stage, *turns: Turn) -> Callable[[Request], Turn]:
    """Look around until the client offers our tools (Codex does not wait for a server's start), then play the turns."""
    waiting = list(turns)

    def play(request: Request) -> Turn:
        # The skill names our tools, too; Claude tells the whole names of tools that it defers in a text.
        declared = json.dumps(request.body.get("tools"))
        is_deferred = "mcp__omx-autoresearch__finding_add" in json.dumps(request.body)
        is_declared = "finding_add" in declared or is_deferred
        if len(waiting) == len(turns) and not is_declared:
            return stage.cli.does("I look around.", f"{PRODUCT} list")
        return waiting.pop(0)

    return play
