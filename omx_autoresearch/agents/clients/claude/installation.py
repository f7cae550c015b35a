"""Where our parts stand in the settings of Claude Code."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omx_autoresearch.agents.clients.claude import CLIENT, managed_settings
from omx_autoresearch.agents.machine import home_path
from omx_autoresearch.agents.parts import Installation, ToolServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omx_autoresearch.agents.parts import Scope

RAISED_CAP = 250
"""Written by the installer: finite, and above every allowance of a mission's default limits together (200 + 6 + 8)."""
_NOTES = {
    "user": "Claude Code asks before the first call of a tool; to allow them all, permit mcp__omx-autoresearch",
    "project": "Claude Code asks each user of the project whether to trust the server in .mcp.json",
}


def installation(scope: Scope, environ: Mapping[str, str], project_path: str) -> Installation:
    """Say where Claude Code's hooks are set: ``settings.json`` of the user or of the project."""
    user_path = environ.get("CLAUDE_CONFIG_DIR") or os.path.join(home_path(environ), ".claude")
    files = {
        "user": os.path.join(user_path, "settings.json"),
        "project": os.path.join(project_path, ".claude", "settings.json"),
        "local": os.path.join(project_path, ".claude", "settings.local.json"),
    }
    return Installation(
        client=CLIENT,
        scope=scope,
        settings_path=files[scope],
        other_settings_paths=(
            *(path for name, path in files.items() if name != scope),
            *managed_settings(),
        ),
        plugins_path=os.path.join(user_path, "plugins"),
        environment=((CLIENT.stop_cap.setting, str(RAISED_CAP)),),
        off_variables=("CLAUDE_CODE_SIMPLE",),
        off_switches=(("disableAllHooks",), ("allowManagedHooksOnly",)),
        has_status_line=True,
        server=ToolServer(_servers_path(scope, environ, project_path), has_type=True, note=_NOTES[scope]),
        skill_path=os.path.join(
            user_path if scope == "user" else os.path.join(project_path, ".claude"),
            "skills",
            "autoresearch",
            "SKILL.md",
        ),
    )


def _servers_path(scope: Scope, environ: Mapping[str, str], project_path: str) -> str:
    """``.claude.json`` beside the user's folder (inside a CLAUDE_CONFIG_DIR), or the project's ``.mcp.json``."""
    if scope == "project":
        return os.path.join(project_path, ".mcp.json")
    return os.path.join(environ.get("CLAUDE_CONFIG_DIR") or home_path(environ), ".claude.json")
