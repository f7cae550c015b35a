"""Where our parts stand in the settings of Codex CLI."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omx_autoresearch.agents.clients.codex import CLIENT
from omx_autoresearch.agents.clients.codex.trust import Trust
from omx_autoresearch.agents.machine import home_path
from omx_autoresearch.agents.parts import Installation, ToolServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omx_autoresearch.agents.parts import Scope


def installation(scope: Scope, environ: Mapping[str, str], project_path: str) -> Installation:
    """Say where Codex's hooks are set (``hooks.json``) and where their trust is kept (``config.toml``)."""
    user_path = environ.get("CODEX_HOME") or os.path.join(home_path(environ), ".codex")
    files = {
        "user": os.path.join(user_path, "hooks.json"),
        "project": os.path.join(project_path, ".codex", "hooks.json"),
    }
    return Installation(
        client=CLIENT,
        scope=scope,
        settings_path=files[scope],
        other_settings_paths=tuple(path for name, path in files.items() if name != scope),
        plugins_path=os.path.join(user_path, "plugins"),
        features_path=os.path.join(user_path, "config.toml"),
        on_switches=(("features", "hooks"), ("features", "codex_hooks")),
        own_parts=(Trust(os.path.join(user_path, "config.toml")),),
        hook_shell=(environ.get("SHELL") or "/bin/sh", "-lc"),
        # Codex hands its environment on to an MCP server by name only
        server=ToolServer(
            os.path.join(os.path.dirname(files[scope]), "config.toml"),
            form="toml",
            variables=("OMX_AUTORESEARCH_TASK",),
        ),
        skill_path=os.path.join(os.path.dirname(files[scope]), "skills", "autoresearch", "SKILL.md"),
    )
