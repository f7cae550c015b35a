"""The settings of Codex CLI that we change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omx_autoresearch.agents.clients.codex import CLIENT
from omx_autoresearch.agents.clients.codex.trust import Trust
from omx_autoresearch.agents.machine import home_path
from omx_autoresearch.agents.parts import NO_MODEL_URL, Installation, ToolServer, Trial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omx_autoresearch.agents.parts import Scope

_USED_SETTINGS = f"""\
model = "trial"
model_provider = "trial"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.trial]
name = "trial"
base_url = "{NO_MODEL_URL}/v1"
wire_api = "responses"
env_key = "TRIAL_KEY"
request_max_retries = 0
stream_max_retries = 0
"""
_TRIAL = Trial(
    ("exec", "--skip-git-repo-check"),
    (("TRIAL_KEY", "trial"),),
    ((".codex/config.toml", _USED_SETTINGS),),
)


def installation(scope: Scope, environ: Mapping[str, str], project_path: str) -> Installation:
    """``hooks.json`` of the user or of the project, and ``config.toml``, which records the trust of hooks."""
    user_path = environ.get("CODEX_HOME") or os.path.join(home_path(environ), ".codex")
    files = {
        "user": os.path.join(user_path, "hooks.json"),
        "project": os.path.join(project_path, ".codex", "hooks.json"),
    }
    return Installation(
        client=CLIENT,
        scope=scope,
        settings_paths=files,
        plugins_folder="plugins",
        features_path=os.path.join(user_path, "config.toml"),
        on_switches=(("features", "hooks"), ("features", "codex_hooks")),
        own_parts=(Trust(os.path.join(user_path, "config.toml")),),
        hook_shell=(environ.get("SHELL") or "/bin/sh", "-lc"),
        # Codex passes only the named variables to an MCP server
        server=ToolServer(
            os.path.join(os.path.dirname(files[scope]), "config.toml"),
            form="toml",
            variables=("OMX_AUTORESEARCH_TASK",),
        ),
        has_skill=True,
        trial=_TRIAL,
    )
