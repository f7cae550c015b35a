"""The settings of Claude Code that we change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omx_autoresearch.agents.clients.claude import CLIENT, managed_settings, settings_paths
from omx_autoresearch.agents.machine import home_path
from omx_autoresearch.agents.parts import NO_MODEL_URL, Installation, ToolServer, Trial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omx_autoresearch.agents.parts import Scope

RAISED_CAP = 16
"""The limit that the installer writes, in refusals in a row without a tool.

A mission's default allowances end such a row before it: 3 refusals without a tool, and 6 for a running validation.
Claude Code's own guard of a goal that calls no tool is the same number, in every session, so that it is no higher.
"""
_FORMER_CAP = "250"
_NOTES = {
    "user": "Claude Code asks before it first calls a tool; to allow all of them, permit mcp__omx-autoresearch",
    "project": "Claude Code asks each user of the project whether to trust the server in .mcp.json",
}
_TRIAL = Trial(
    ("-p",),
    (
        ("ANTHROPIC_BASE_URL", NO_MODEL_URL),
        ("ANTHROPIC_API_KEY", "trial"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("DISABLE_TELEMETRY", "1"),
    ),
)


def installation(scope: Scope, environ: Mapping[str, str], project_path: str) -> Installation:
    """``settings.json`` of the user or of the project."""
    return Installation(
        client=CLIENT,
        scope=scope,
        settings_paths=settings_paths(environ, project_path),
        managed_paths=managed_settings(),
        plugins_folder="plugins",
        environment=((CLIENT.stop_cap.setting, str(RAISED_CAP)),),
        former_values=(_FORMER_CAP,),
        environment_note=(
            f"{CLIENT.stop_cap.setting} also bounds Claude Code's own /goal, in every session: a goal that calls no "
            f"tool ends after {RAISED_CAP} rounds (8 without the setting)"
        ),
        off_variables=("CLAUDE_CODE_SIMPLE",),
        off_switches=(("disableAllHooks",), ("allowManagedHooksOnly",)),
        has_status_line=True,
        server=ToolServer(_servers_path(scope, environ, project_path), has_type=True, note=_NOTES[scope]),
        has_skill=True,
        trial=_TRIAL,
    )


def _servers_path(scope: Scope, environ: Mapping[str, str], project_path: str) -> str:
    """``.claude.json`` beside the user's folder (inside a CLAUDE_CONFIG_DIR), or the project's ``.mcp.json``."""
    if scope == "project":
        return os.path.join(project_path, ".mcp.json")
    return os.path.join(environ.get("CLAUDE_CONFIG_DIR") or home_path(environ), ".claude.json")
