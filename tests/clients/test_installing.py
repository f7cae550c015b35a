"""What ``install`` wrote, judged by the agent CLI itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.support.codex_trust import listed_hooks
from tests.clients.support.owned_mission import PRODUCT

if TYPE_CHECKING:
    from tests.clients.support.stage import Stage

pytestmark = pytest.mark.client


def test_codex_trusts_every_hook_that_was_installed(codex_stage: Stage) -> None:
    codex_stage.owner(PRODUCT, "install", "codex")
    hooks = listed_hooks(codex_stage)
    assert hooks
    assert {hook["trustStatus"] for hook in hooks} == {"trusted"}


def test_codex_finds_no_hook_after_uninstall(codex_stage: Stage) -> None:
    codex_stage.owner(PRODUCT, "install", "codex")
    codex_stage.owner(PRODUCT, "uninstall", "codex")
    assert listed_hooks(codex_stage) == []
