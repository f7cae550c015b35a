"""Codex's own word on the hooks that it found, and the trust that a person would give them in its dialog.

Speaks JSON-RPC with ``codex app-server`` on stdio; ``hooks/list`` gives each hook's key, current hash and trust status
(seen with 0.171.0).
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.clients.support.stage import Stage
    from tests.clients.support.wire_formats import Json


def listed_hooks(stage: Stage) -> list[Json]:
    """Every hook that Codex would consider in the stage's repository."""
    hello = {"clientInfo": {"name": "tests", "title": "tests", "version": "0"}}
    calls: list[Json] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "initialized"},
        {"id": 2, "method": "hooks/list", "params": {"cwds": [str(stage.place.workspace)]}},
    ]
    with subprocess.Popen(
        stage.inside(str(stage.binary_path), "app-server"),
        cwd=stage.place.workspace,
        env=stage.client_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdin
        assert server.stdout
        for call in calls:
            server.stdin.write(json.dumps(call) + "\n")
        server.stdin.flush()
        answers = (json.loads(line) for line in server.stdout)
        answer: Json = next(answer for answer in answers if answer.get("id") == 2)
        server.terminate()
    return [hook for entry in answer["result"]["data"] for hook in entry["hooks"]]


def trust_hooks(stage: Stage) -> None:
    """Trust every hook that Codex lists, as ``/hooks`` does: its hash in ``config.toml``."""
    with (stage.place.home / ".codex/config.toml").open("a") as config:
        for hook in listed_hooks(stage):
            config.write(
                f'\n[hooks.state.{json.dumps(hook["key"])}]\ntrusted_hash = "{hook["currentHash"]}"\n'
            )
