"""``demo``: one mission from start to end in a scratch repository, with a scripted agent, in a few lines to read.

The agent is a script; everything else is real: the hook processes as an agent CLI starts them, the gate, the validator,
the journal. Nothing outside a temporary folder is touched.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import CommandFault
from omx_autoresearch.surfaces.cli.caller import json_option
from omx_autoresearch.surfaces.cli.display import print_json, say

if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.missions.rules.mission import Mission
    from omx_autoresearch.surfaces.cli.scratch import Scratch
    from omx_autoresearch.surfaces.documents import DemoDocument

GOAL = "Find the answer and write it to answer.txt"
_SESSION = "00000000-0000-4000-8000-0000000de300"
_SECONDS = 60.0


@click.command("demo")
@json_option
def demo_verb(as_json: bool) -> None:
    """Play one mission in a scratch repository: an agent stops, is refused, does what was missing, and is let go."""
    from omx_autoresearch.surfaces.cli.scratch import make_scratch, start_mission

    with tempfile.TemporaryDirectory(prefix="omx-autoresearch-demo-") as root_path:
        scratch = make_scratch(root_path)
        _make_repository(scratch)
        mission = start_mission(scratch, goal=GOAL)
        document = _Play(scratch, mission, is_quiet=as_json).play()
    if as_json:
        print_json(document)


def _make_repository(scratch: Scratch) -> None:
    for arguments in (
        ("init", "--quiet"),
        ("add", "--all"),
        ("commit", "--quiet", "--message", "Add the check"),
    ):
        try:
            subprocess.run(
                ["git", *arguments],
                cwd=scratch.project_path,
                env=scratch.environment(),
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", b"") or str(error).encode()
            raise CommandFault(
                f"the scratch repository could not be made: {said.decode('utf-8', 'replace').strip()}",
                next_step="install git, then run omx-autoresearch demo again",
            ) from None


class _Play:
    """The scripted agent, its person, and what they see."""

    def __init__(self, scratch: Scratch, mission: Mission, *, is_quiet: bool) -> None:
        self._scratch = scratch
        self._mission = mission
        self._is_quiet = is_quiet

    def play(self) -> DemoDocument:
        """The story."""
        from omx_autoresearch.surfaces.documents import DemoDocument

        task_id = self._mission.task_id
        self._tell("owner", f'init --goal "{GOAL}" --validator ./check.sh; start')
        self._tell("owner", f"types in the agent: $autoresearch {task_id}")
        self._hook("UserPromptSubmit", prompt=f"$autoresearch {task_id}")
        self._tell("agent", '"I am done." (it did nothing)')
        refusal = str(self._hook("Stop", last_assistant_message="I am done.").get("reason", ""))
        self._tell("gate", "REFUSED. The agent reads:", "red")
        self._quote(refusal)
        self._tell("agent", "echo 42 > answer.txt")
        self._work()
        self._tell("agent", '"I am done, really."')
        answer = self._hook("Stop", last_assistant_message="I am done, really.")
        mission = self._reloaded()
        is_released = mission.phase == "complete" and "decision" not in answer
        completion = self._completion(mission)
        if not refusal or not is_released:
            raise CommandFault(
                f"the demo did not end as it should: {answer}, {mission.phase}",
                next_step="omx-autoresearch doctor",
            )
        run = mission.attestation
        self._tell(
            "gate", f"LET GO: ./check.sh passed, run by the runtime ({run.run_id if run else ''}).", "green"
        )
        self._tell(
            "", f"completion.json: {json.dumps({key: completion[key] for key in ('status', 'passed')})}"
        )
        return DemoDocument(task_id, refusal, is_released, mission.completed_run_id, completion)

    def _work(self) -> None:
        """What the agent does, and its client's tool event."""
        with open(os.path.join(self._scratch.project_path, "answer.txt"), "w", encoding="utf-8") as answer:
            answer.write("42\n")
        self._hook(
            "PostToolUse", tool_name="Bash", tool_input={"command": "echo 42 > answer.txt"}, tool_response=""
        )

    def _hook(self, event: str, **fields: Any) -> dict[str, Any]:
        """Send one event as Claude Code does, to the hook process; returns its answer, empty for silence."""
        from omx_autoresearch.surfaces.cli.install import hook_program

        program = hook_program(self._scratch.home_path)
        payload = {
            "session_id": _SESSION,
            "cwd": self._scratch.project_path,
            "hook_event_name": event,
            **fields,
        }
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(json.dumps(payload).encode())
            ours.close()
            done = subprocess.run(
                [program.python_path, "-I", "-S", program.entry_path, program.state_home_path, "claude"],
                stdin=theirs.fileno(),
                env=self._scratch.environment(),
                cwd=self._scratch.project_path,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        if done.returncode:
            raise CommandFault(
                f"the hook ended with {done.returncode}: {done.stderr.decode('utf-8', 'replace').strip()[-500:]}",
                next_step="omx-autoresearch doctor",
            )
        answer: dict[str, Any] = json.loads(done.stdout or b"{}")
        return answer

    def _reloaded(self) -> Mission:
        from omx_autoresearch.missions.store import MissionStore

        return MissionStore(self._scratch.runtime().home).load(self._mission.task_id)

    def _completion(self, mission: Mission) -> dict[str, Any]:
        from omx_autoresearch.missions.rules.briefing import completion_path

        try:
            with open(os.path.join(mission.project_path, completion_path(mission)), encoding="utf-8") as file:
                document: dict[str, Any] = json.load(file)
                return document
        except FileNotFoundError:
            return {}

    def _tell(self, who: str, what: str, style: str = "") -> None:
        if not self._is_quiet:
            say(f"{who:<6} {what}", style)

    def _quote(self, text: str) -> None:
        for line in text.splitlines():
            self._tell("", f"  | {line}")
