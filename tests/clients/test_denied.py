"""A real client that denies its agent a tool."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.clients.support.owned_mission import OwnedMission, claims_without_end
from tests.clients.support.wire_formats import ToolCall, Turn

if TYPE_CHECKING:
    from tests.clients.support.stage import Stage

pytestmark = pytest.mark.client


@pytest.mark.requirement("GATE-11")
@pytest.mark.parametrize(
    "rules",
    [{"deny": ["Edit(answer.txt)"]}, {"deny": ["Write"]}, {"ask": ["Write"]}],
    ids=["denied", "taken away", "not granted"],
)
def test_a_tool_that_claude_denies_blocks_as_denied_and_not_as_stalled(
    claude_stage: Stage, rules: dict[str, list[str]]
) -> None:
    mission = OwnedMission(claude_stage).start()
    folder = claude_stage.place.workspace / ".claude"
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({"permissions": rules}))
    path = str(claude_stage.place.workspace / "answer.txt")
    claude_stage.run(
        mission.prompt_line,
        Turn("I write the answer.", tools=(ToolCall("Write", {"file_path": path, "content": "42\n"}),)),
        claims_without_end,
    )
    status = mission.status()
    assert status["phase"] == "blocked"
    assert status["blocker"].startswith("tools-denied: "), status["blocker"]
