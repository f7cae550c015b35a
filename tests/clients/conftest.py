"""A stage for each agent CLI; skips where the client or a network namespace is missing, and says how to get it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.clients.support.agent_clis import AGENT_CLIS, CLAUDE, CODEX, AgentCli
from tests.clients.support.network import NoNamespace, OfflineNetwork
from tests.clients.support.stage import OpenStage, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def open_stage(tmp_path: Path, clients_path: Path) -> Iterator[OpenStage]:
    """Open a stage for a client, or skip."""
    with ExitStack() as stack:

        def open_one(cli: AgentCli) -> Stage:
            binary_path, why_not = cli.binary_path(clients_path), cli.missing(clients_path)
            if binary_path is None or why_not:
                pytest.skip(why_not)
            try:
                network = stack.enter_context(OfflineNetwork())
            except NoNamespace as reason:
                pytest.skip(str(reason))
            stage = Stage(cli, binary_path, network, tmp_path)
            stack.callback(stage.close)
            return stage

        yield open_one


@pytest.fixture(params=AGENT_CLIS, ids=lambda cli: cli.name)
def stage(request: pytest.FixtureRequest, open_stage: OpenStage) -> Stage:
    """A stage for each agent CLI in turn."""
    return open_stage(request.param)


@pytest.fixture
def claude_stage(open_stage: OpenStage) -> Stage:
    """A stage for Claude Code."""
    return open_stage(CLAUDE)


@pytest.fixture
def codex_stage(open_stage: OpenStage) -> Stage:
    """A stage for Codex CLI, without a sandbox."""
    return open_stage(CODEX)
