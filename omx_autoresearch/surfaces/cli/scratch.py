"""A mission in a folder of its own, for ``demo`` and ``doctor``: real use cases, nothing of the user's is touched.

Its environment is set explicitly, since both may run inside an agent: no mark of one gets in.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omx_autoresearch.journal.layout import Runtime, StateHome

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission

CHECK = """\
#!/bin/sh
grep -qx 42 answer.txt 2>/dev/null && exit 0
echo 'answer.txt must hold exactly one line: 42'
exit 1
"""
"""The validator of a scratch mission."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder with a state home and a project.

    Attributes:
        root_path: the folder; whoever made it removes it.
        home_path: its state home.
        project_path: its project, with ``check.sh``.
    """

    root_path: str
    home_path: str
    project_path: str

    def environment(self) -> dict[str, str]:
        """The environment of everything that happens in it."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": self.root_path,
            "LANG": "C.UTF-8",
            "OMX_AUTORESEARCH_HOME": self.home_path,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "Demo",
            "GIT_AUTHOR_EMAIL": "demo@example.invalid",
            "GIT_COMMITTER_NAME": "Demo",
            "GIT_COMMITTER_EMAIL": "demo@example.invalid",
        }

    def runtime(self) -> Runtime:
        """Its world."""
        return Runtime(home=StateHome(self.home_path), environ=self.environment())


def make_scratch(root_path: str, *, home_path: str = "") -> Scratch:
    """Make project and state home below a folder that exists."""
    root_path = os.path.realpath(root_path)
    scratch = Scratch(root_path, home_path or f"{root_path}/state", f"{root_path}/project")
    os.makedirs(scratch.project_path)
    os.makedirs(scratch.home_path, mode=0o700, exist_ok=True)
    script_path = os.path.join(scratch.project_path, "check.sh")
    with open(script_path, "w", encoding="utf-8") as script:
        script.write(CHECK)
    os.chmod(script_path, 0o700)
    return scratch


def start_mission(scratch: Scratch, *, goal: str, session_id: str = "") -> Mission:
    """Write down and launch a mission whose validator is ``./check.sh``; bind a session where one is named."""
    from omx_autoresearch.missions.launch import StartOptions, create_mission, start
    from omx_autoresearch.missions.rules.intake import MissionDraft

    runtime = scratch.runtime()
    draft = MissionDraft(goal=goal, slug="scratch", validator_command="./check.sh")
    mission = create_mission(runtime, scratch.project_path, draft)
    options = StartOptions(reason="scratch", session_id=session_id, has_baseline=not session_id)
    return start(runtime, mission.task_id, options).mission


def make_held_session(state_home_path: str) -> str:
    """An unfinished mission in a scratch state home, bound to a session; returns the session's id."""
    scratch = make_scratch(state_home_path, home_path=state_home_path)
    session_id = f"00000000-0000-4000-8000-{os.urandom(6).hex()}"
    start_mission(scratch, goal="Prove that a stop is held", session_id=session_id)
    return session_id
