"""Write hooks/: the skill, and each agent CLI's configuration as the installer writes it into empty settings."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from omx_autoresearch.agents.hook_lines import HookProgram  # noqa: E402
from omx_autoresearch.agents.parts import Change  # noqa: E402
from omx_autoresearch.agents.parts.hooks import Hooks  # noqa: E402
from omx_autoresearch.agents.parts.skill import skill_bytes  # noqa: E402
from omx_autoresearch.agents.registry import installation_of  # noqa: E402
from omx_autoresearch.agents.settings_files import SettingsFile  # noqa: E402
from omx_autoresearch.foundation.clients import CLIENT_NAMES  # noqa: E402

STATE_HOME_PATH = "/Users/you/.local/state/omx-autoresearch"
"""A neutral stand-in for the folder that the installer bakes in."""


def rendered() -> dict[str, str]:
    """Give each file's text by its path below hooks/."""
    files = {"skills/autoresearch/SKILL.md": skill_bytes().decode()}
    for name in CLIENT_NAMES:
        installation = installation_of(name, "user", {"HOME": "/Users/you"}, "/Users/you/project")
        file = SettingsFile(installation.settings_path, None)
        Hooks().add(file, Change(installation, {}, HookProgram(STATE_HOME_PATH, "", "")))
        files[f"{name}/{Path(installation.settings_path).name}"] = file.text
    return files


def main() -> None:
    """Write every file."""
    for name, text in rendered().items():
        path = ROOT / "hooks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
