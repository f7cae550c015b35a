"""The settings of Gemini CLI that we change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omx_autoresearch.agents.clients.gemini import CLIENT
from omx_autoresearch.agents.machine import home_path
from omx_autoresearch.agents.parts import NO_MODEL_URL, Installation, ToolServer, Trial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omx_autoresearch.agents.parts import Scope

_USED_SETTINGS = """\
{"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"enableAutoUpdate": false},
 "telemetry": {"enabled": false}, "privacy": {"usageStatisticsEnabled": false}}
"""
_TRIAL = Trial(
    ("--prompt",),
    (
        ("GEMINI_API_KEY", "trial"),
        ("GOOGLE_GEMINI_BASE_URL", NO_MODEL_URL),
        ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
    ),
    ((".gemini/settings.json", _USED_SETTINGS),),
)


def installation(scope: Scope, environ: Mapping[str, str], project_path: str) -> Installation:
    """``settings.json`` of the user or of the project; its time-outs are in milliseconds."""
    user_path = os.path.join(environ.get("GEMINI_CLI_HOME") or home_path(environ), ".gemini")
    files = {
        "user": os.path.join(user_path, "settings.json"),
        "project": os.path.join(project_path, ".gemini", "settings.json"),
    }
    return Installation(
        client=CLIENT,
        scope=scope,
        settings_paths=files,
        plugins_folder="extensions",
        timeouts_per_second=1000,
        handler_name="omx-autoresearch",
        allows_comments=True,
        on_switches=(("hooksConfig", "enabled"),),
        hook_shell=("bash", "-c"),
        server=ToolServer(files[scope], allows_comments=True),
        hiding_paths=_hiding_paths(user_path, project_path, home_path(environ)),
        trial=_TRIAL,
    )


def _hiding_paths(user_path: str, project_path: str, home: str) -> tuple[str, ...]:
    """The files in which Gemini CLI would find a command or a skill for ``/autoresearch``."""
    project_folder = f"{project_path}/.gemini" if project_path else ""
    folders = [folder for folder in (user_path, project_folder) if folder]
    skills = [*folders, f"{home}/.agents", *([f"{project_path}/.agents"] if project_path else ())]
    return (
        *(f"{folder}/commands/autoresearch.toml" for folder in folders),
        *(f"{folder}/skills/autoresearch/SKILL.md" for folder in skills),
    )
