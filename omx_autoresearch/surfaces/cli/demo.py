"""``demo``: one mission from start to end in a scratch repository, with a scripted agent, in a few lines to read.

The agent is a script; everything else is real: the hook processes as an agent CLI starts them, the gate, the validator,
the journal. Nothing outside a temporary folder is touched. ``doctor`` makes its held session here, too.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from omx_autoresearch import surfaces
from omx_autoresearch.agents.hook_lines import HookProgram
from omx_autoresearch.foundation.errors import CommandFault
from omx_autoresearch.foundation.records import dataclass, field
from omx_autoresearch.journal.layout import Runtime, StateHome
from omx_autoresearch.missions.rules.briefing import completion_path
from omx_autoresearch.missions.rules.intake import MissionDraft
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.surfaces.cli.console import Document, json_option, print_json, say, verb

if TYPE_CHECKING:
    from typing import Any

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
        root_path: the folder; its maker removes it.
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


def hook_program(state_home_path: str) -> HookProgram:
    """What the hooks run: this interpreter, and the hook process's file beside this package."""
    entry_path = os.path.join(os.path.dirname(os.path.abspath(surfaces.__file__)), "hook_start.py")
    return HookProgram(state_home_path, sys.executable, entry_path)


@dataclass(frozen=True, slots=True)
class DemoDocument:
    """``demo``.

    Attributes:
        task_id: of the scratch mission.
        refusal: what the agent read when it first stopped.
        is_released: it was let go after the validator passed.
        run_id: the attested run that completed the mission.
        completion: the completion artifact.
    """

    task_id: str
    refusal: str
    is_released: bool
    run_id: str
    completion: dict[str, object] = field(default_factory=dict)


GOAL = "Find the answer and write it to answer.txt"
_SESSION = "00000000-0000-4000-8000-0000000de300"
_SECONDS = 60.0


@verb("demo", Document("demo", DemoDocument))
@json_option
def demo_verb(as_json: bool) -> None:
    """Play one mission in a scratch repository: an agent stops, is refused, does the missing work, and is released."""
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
                f"the scratch repository could not be created: {said.decode('utf-8', 'replace').strip()}",
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
                f"the demo did not end as expected: {answer}, {mission.phase}",
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
        return MissionStore(self._scratch.runtime().home).load(self._mission.task_id)

    def _completion(self, mission: Mission) -> dict[str, Any]:
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
