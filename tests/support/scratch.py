"""A scratch world: a project in git, a state home outside it, a clock that moves by hand, missions, hook processes."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omx_autoresearch.agents.events import Client, Reply
from omx_autoresearch.agents.registry import adapter, parse_bytes
from omx_autoresearch.foundation.clients import SHELL_MARKS
from omx_autoresearch.journal.layout import Runtime, StateHome
from omx_autoresearch.missions import launch, lifecycle_commands, sessions
from omx_autoresearch.missions.claims import write_changed
from omx_autoresearch.missions.hook_events import answer_event
from omx_autoresearch.missions.rules.intake import MissionDraft
from omx_autoresearch.missions.stop import DEADLINE_MARGIN_SECONDS, answer_stop
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.surfaces.sources import SOURCES
from omx_autoresearch.system.clock import Clock, SystemClock
from omx_autoresearch.system.processes import identify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omx_autoresearch.missions.rules.mission import Mission

PACKAGE = Path(__file__).resolve().parents[2] / "omx_autoresearch"
HOOK = PACKAGE / "surfaces" / "hook_start.py"
SESSION = "0a1b2c3d-0000-4000-8000-00000000000a"
OTHER = "0a1b2c3d-0000-4000-8000-00000000000b"
GOAL = "write the answer"
CHECK = '#!/bin/sh\nif grep -qx 42 answer.txt; then echo right; else echo "answer.txt does not say 42"; exit 1; fi\n'
"""The validator of most missions: it passes once ``answer.txt`` says 42."""

Json = dict[str, Any]


class MovedClock(Clock):
    """The machine's clock, ahead by ``ahead``: it goes on by itself until it is stopped, and tests move it."""

    def __init__(self) -> None:
        self.ahead = timedelta()
        self.stopped_at: datetime | None = None

    def stop(self) -> None:
        self.stopped_at = datetime.now(UTC)

    def move(self, *, hours: float = 0.0, seconds: float = 0.0) -> None:
        self.ahead += timedelta(hours=hours, seconds=seconds)

    def now(self) -> datetime:
        return (self.stopped_at or datetime.now(UTC)) + self.ahead

    def monotonic(self) -> float:
        return SystemClock().monotonic()

    def wait(self, seconds: float) -> None:
        self.move(seconds=seconds)


class Told(Reply):
    """What a use case answered to one event."""

    __slots__ = ()

    @property
    def is_silent(self) -> bool:
        """Nothing at all is printed."""
        return not (self.refusal or self.context or self.person_message)


@dataclass
class Answer:
    """What one hook process said."""

    exit_status: int
    stdout: bytes
    stderr: bytes

    @property
    def json(self) -> Json:
        value = json.loads(self.stdout)
        assert isinstance(value, dict)
        return value

    @property
    def is_silent(self) -> bool:
        return (self.exit_status, self.stdout, self.stderr) == (0, b"", b"")

    @property
    def reason(self) -> str:
        """Why the stop was refused; empty when it was not."""
        return str(self.json["reason"]) if b'"block"' in self.stdout else ""


@dataclass
class Scratch:
    """One test's world.

    Attributes:
        root: everything of it.
        project: the repository in which the agent works.
        home_path: the state home.
        environ: of the owner.
        clock: of everything that runs in the test's own process.
    """

    root: Path
    project: Path
    home_path: Path
    environ: dict[str, str]
    clock: MovedClock = field(default_factory=MovedClock)

    @classmethod
    def make(cls, root: Path) -> Scratch:
        environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
        shutil.copytree(_template(), root / "project", symlinks=True)
        return cls(root, root / "project", root / "state", environ)

    # --- the project

    def git(self, *args: str, cwd: Path | None = None) -> str:
        said = subprocess.run(
            ["git", *args], cwd=cwd or self.project, check=True, capture_output=True, text=True, timeout=60
        )
        return said.stdout.strip()

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def write(self, name: str, text: str | bytes, *, executable: bool = False) -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        if executable:
            path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP)
        return path

    def read(self, name: str) -> str:
        return (self.project / name).read_text(encoding="utf-8")

    # --- missions

    @property
    def home(self) -> StateHome:
        return StateHome(str(self.home_path))

    @property
    def store(self) -> MissionStore:
        return MissionStore(self.home)

    def runtime(self, **environ: str) -> Runtime:
        """The owner's runtime, with ``environ`` on top of the owner's environment."""
        return Runtime(
            home=self.home,
            clock=self.clock,
            environ={**self.environ, **environ},
            shell_marks=SHELL_MARKS,
            sources=SOURCES,
        )

    def draft(self, **fields: Any) -> Mission:
        """A mission that was taken in and not launched."""
        if "validator_command" not in fields and "validator_prompt" not in fields:
            fields["validator_command"] = "./check.sh"
        draft = MissionDraft(goal=fields.pop("goal", GOAL), **fields)
        mission = launch.create_mission(self.runtime(), str(self.project), draft)
        self.follow()
        return mission

    def follow(self) -> None:
        """What people read follows the journal, as at the end of every process."""
        write_changed(self.runtime())

    def mission(self, *, session: str = SESSION, client: str = "claude", **fields: Any) -> Mission:
        """A mission that was started by the owner and bound to ``session`` by a prompt; an empty one binds nobody.

        The test's own process is the client: it starts the hooks. With ``is_unsandboxed`` the owner allows runs
        without a sandbox beside a client that has one, as Codex has: then the test needs no bubblewrap.
        """
        options = launch.StartOptions(has_baseline=fields.pop("has_baseline", False))
        is_unsandboxed = fields.pop("is_unsandboxed", False)
        task_id = self.draft(**fields).task_id
        mission = launch.start(self.runtime(), task_id, options).mission
        if is_unsandboxed:
            lifecycle_commands.approve(self.runtime(), task_id, is_unsandboxed=True)
        if session:
            act = sessions.Act(session, client, "prompt", client_process=identify(os.getpid()))
            mission = sessions.bind(self.runtime(), task_id, act)
        self.follow()
        return mission

    def load(self, mission: Mission | str) -> Mission:
        return self.store.load(mission if isinstance(mission, str) else mission.task_id)

    def records(self, mission: Mission | str, *kinds: str) -> list[Json]:
        """The journal's lines of these kinds (all without), oldest first."""
        path = self.home.mission(mission if isinstance(mission, str) else mission.task_id).journal_path
        lines = [json.loads(line) for line in Path(path).read_bytes().splitlines()]
        return [line for line in lines if not kinds or line["kind"] in kinds]

    def kinds(self, mission: Mission | str) -> list[str]:
        return [line["kind"] for line in self.records(mission)]

    def completion(self, mission: Mission) -> Json:
        path = self.project / mission.specs_path / "completion.json"
        value = json.loads(path.read_text(encoding="utf-8"))
        assert isinstance(value, dict)
        return value

    # --- events

    def payload(self, event: str = "Stop", session: str = SESSION, **fields: Any) -> Json:
        """An event as Claude Code and Codex send it."""
        return {
            "session_id": session,
            "transcript_path": str(self.root / "transcript.jsonl"),
            "cwd": str(self.project),
            "hook_event_name": event,
            **fields,
        }

    def tell(
        self, payload: Json | bytes, client: str | Client = "claude", runtime: Runtime | None = None
    ) -> Told:
        """Answer an event in this process, as step 3 of the hook does; ``client`` may be an altered one."""
        spoken = adapter(client if isinstance(client, str) else client.name)
        facts = spoken.CLIENT if isinstance(client, str) else client
        runtime = runtime or self.runtime()
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        event = parse_bytes(facts.name, raw, runtime.environ)
        answer = answer_stop if event.kind in ("stop", "subagent_stop") else answer_event
        try:
            reply = answer(runtime, facts, event)
        finally:
            write_changed(runtime)
        return Told(reply.refusal, reply.context, reply.person_message, reply.fault)

    def stop(self, session: str = SESSION, client: str | Client = "claude", **fields: Any) -> Told:
        """A stop, answered in this process; without a message of its own each has a new one."""
        fields.setdefault("last_assistant_message", f"I am done ({self.clock.now().timestamp()}).")
        return self.tell(self.payload("Stop", session, **fields), client)

    def tool(self, session: str = SESSION, command: str = "ls", output: str = "", **fields: Any) -> Told:
        """The event after a shell command of the agent."""
        return self.tell(
            self.payload(
                "PostToolUse",
                session,
                tool_name="Bash",
                tool_input={"command": command},
                tool_response={"stdout": output, "stderr": ""},
                **fields,
            )
        )

    def prompt(self, text: str, session: str = SESSION, **fields: Any) -> Told:
        """A submitted prompt."""
        return self.tell(self.payload("UserPromptSubmit", session, prompt=text, **fields))

    def hook_argv(self, client: str = "claude") -> list[str]:
        return [sys.executable, "-I", "-S", str(HOOK), str(self.home_path), client]

    def hook(
        self,
        payload: Json | bytes,
        client: str = "claude",
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Answer:
        """A real hook process."""
        with self.begin_hook(client, env=env, cwd=cwd) as process:
            return finish(process, payload)

    def begin_hook(
        self, client: str = "claude", *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """A real hook process that waits for its event, which comes to it as from its client."""
        theirs, ours = (-1, -1) if client == "codex" else event_socket()
        try:
            process = subprocess.Popen(
                self.hook_argv(client),
                stdin=subprocess.PIPE if client == "codex" else theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**self.environ, **(env or {})},
                cwd=cwd or self.project,
            )
        finally:
            if theirs >= 0:
                os.close(theirs)
        if ours >= 0:
            process.stdin = os.fdopen(ours, "wb", buffering=0)
        return process


def event_socket() -> tuple[int, int]:
    """The hook's end and the client's of a socket, by which Claude Code and Gemini CLI send an event."""
    theirs, ours = socket.socketpair()
    return theirs.detach(), ours.detach()


@cache
def _template() -> str:
    """A repository to copy, made once a process: starting git costs more than everything else of a small test."""
    folder = tempfile.TemporaryDirectory(prefix="omx-scratch-")
    atexit.register(folder.cleanup)
    world = Scratch(Path(folder.name), Path(folder.name, "project"), Path(folder.name, "state"), {})
    world.project.mkdir()
    world.git("init", "-q", "-b", "main")
    world.write("check.sh", CHECK, executable=True)
    world.write("notes.md", "# notes\n")
    world.commit("Begin")
    return str(world.project)


def finish(process: subprocess.Popen[bytes], payload: Json | bytes) -> Answer:
    """Give a waiting hook process its event and take its answer."""
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    stdout, stderr = process.communicate(raw, timeout=120)
    return Answer(process.returncode, stdout, stderr)


def with_timeout(client: Client, seconds: float) -> Client:
    """A client whose stop hook leaves ``seconds`` to wait for a validation."""
    stop = replace(client.entries[0], timeout_seconds=DEADLINE_MARGIN_SECONDS + seconds)  # type: ignore[arg-type]
    return replace(client, entries=(stop, *client.entries[1:]))


def fingerprint(folder: Path, *, without: Sequence[str] = ()) -> dict[str, str]:
    """Every file below a folder and the digest of its content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.name not in without
    }
