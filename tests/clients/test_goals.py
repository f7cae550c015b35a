"""A mission beside a real client's own goal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.support.owned_mission import OwnedMission, claims_without_end
from tests.clients.support.terminal import CodexTerminal

if TYPE_CHECKING:
    from tests.clients.support.stage import Stage

pytestmark = pytest.mark.client
MOST_TURNS = 6
"""Until a mission of default limits is blocked; the goal alone goes on as far as the client's cap."""


@pytest.mark.requirement("SESS-21")
def test_claudes_goal_is_named_and_drives_on_no_agent_that_a_blocked_mission_let_go(
    claude_stage: Stage,
) -> None:
    mission = OwnedMission(claude_stage, check="exit 1")
    variable = mission.start_and_take_variable()
    run = claude_stage.run(
        "/goal every test passes",
        claims_without_end,
        environment={"OMX_AUTORESEARCH_TASK": variable},
        limit_seconds=60,
    )
    assert not run.hit_limit, run
    assert len(run.turns) <= MOST_TURNS, run
    status = mission.status()
    assert status["phase"] == "blocked"
    assert any("/goal clear" in notice for notice in status["notices"]), status["notices"]


@pytest.mark.requirement("SESS-21")
def test_codexs_goal_is_named_with_its_way_out_when_a_mission_lets_its_agent_go(codex_stage: Stage) -> None:
    mission = OwnedMission(codex_stage, check="exit 1")
    variable = mission.start_and_take_variable()
    with CodexTerminal(
        codex_stage, claims_without_end, environment={"OMX_AUTORESEARCH_TASK": variable}
    ) as terminal:
        terminal.enter("/goal every test passes")
        terminal.wait_for("BLOCKED, not complete")
        status = mission.status()
    assert status["phase"] == "blocked"
    assert any("every test passes" in notice and "/goal clear" in notice for notice in status["notices"]), (
        status
    )
