"""What ``install`` wrote, judged by the agent CLI itself."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.clients.support.codex_trust import listed_hooks
from tests.clients.support.owned_mission import EVIDENCE, PRODUCT, REFUSED, OwnedMission
from tests.clients.support.terminal import ClaudeTerminal
from tests.clients.support.wire_formats import Turn

if TYPE_CHECKING:
    from tests.clients.support.scripted_model import Request
    from tests.clients.support.stage import Stage

pytestmark = pytest.mark.client
SEEN_SECONDS = 90
"""More than a terminal waits for a text, so that the screen's own message is the one that is read."""


def test_codex_trusts_every_hook_that_was_installed(codex_stage: Stage) -> None:
    codex_stage.owner(PRODUCT, "install", "codex")
    hooks = listed_hooks(codex_stage)
    assert hooks
    assert {hook["trustStatus"] for hook in hooks} == {"trusted"}


def test_codex_finds_no_hook_after_uninstall(codex_stage: Stage) -> None:
    codex_stage.owner(PRODUCT, "install", "codex")
    codex_stage.owner(PRODUCT, "uninstall", "codex")
    assert listed_hooks(codex_stage) == []


@pytest.mark.requirement("LINE-01")
@pytest.mark.requirement("LINE-02")
def test_claudes_status_line_shows_the_mission_until_it_is_done(claude_stage: Stage) -> None:
    mission = OwnedMission(claude_stage).start()
    is_seen = threading.Event()

    def works_once_the_line_is_seen(_: Request) -> Turn:
        """Nothing happens in the mission until the screen shows how it stands."""
        assert is_seen.wait(SEEN_SECONDS), "the test never saw the status line"
        return claude_stage.cli.does("Then I write the answer.", EVIDENCE, needs=REFUSED)

    ends = Turn("Now it is done.")
    with ClaudeTerminal(claude_stage, Turn("I am done."), works_once_the_line_is_seen, ends) as terminal:
        terminal.enter(mission.prompt_line)
        terminal.wait_for("Research 1")
        is_seen.set()
        screen = terminal.wait_for("Done")
    assert terminal.script.misfits == []
    assert "open 0 checked" in " ".join(screen.split())  # Claude Code writes its blanks as no-break spaces
    mission.assert_let_go_with_evidence()
