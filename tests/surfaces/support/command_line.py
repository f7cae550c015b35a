"""The command line from outside: real processes with an explicit environment, in a repository of a person's own."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.surfaces.support.warm import run_warm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CLIENT = (sys.executable, "-S", "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))")
"""A process of its own that starts a hook, as a client does: the bound client is never an ancestor of the owner."""
PROGRAM = (sys.executable, "-m", "omx_autoresearch.surfaces.cli")
SESSION = "11111111-2222-4333-8444-555555555555"
AGENT = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": SESSION}
"""What Claude Code sets for the commands that its agent runs."""
CHECK = "#!/bin/sh\ngrep -qx 42 answer.txt 2>/dev/null && exit 0\necho 'answer.txt must hold 42'\nexit 1\n"
REVIEWER = """\
#!/bin/sh
nonce=$(sed -n 's/.*"nonce": "\\([^"]*\\)".*/\\1/p')
printf '{"nonce": "%s", "verdict": "approved", "summary": "it holds"}\\n' "$nonce"
"""
"""Approves whatever it is shown."""
SECONDS = 60


@dataclass
class Person:
    """A person with a repository and a state home.

    Attributes:
        root: a scratch folder.
        extra: further variables of this person's environment.
    """

    root: Path
    extra: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.project.exists():
            shutil.copytree(_template(), self.project, symlinks=True)

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def home(self) -> Path:
        """The state home."""
        return self.root / "state"

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "PATH": os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath))),
            "HOME": str(self.root),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "OMX_AUTORESEARCH_HOME": str(self.home),
            **self.extra,
            **more,
        }

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.project / name
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return path

    def git(self, *arguments: str) -> None:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.invalid")
        subprocess.run(
            ["git", *who, *arguments],
            cwd=self.project,
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.root)},
            check=True,
            capture_output=True,
        )

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def run(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: bytes | int = b"",
        under: tuple[str, ...] = (),
    ) -> subprocess.CompletedProcess[str]:
        environment = self.environment(**(env or {}))
        own = {**self.extra, **(env or {})}
        if isinstance(stdin, bytes) and not under and not any(map(_is_of_the_interpreter, own)):
            done = run_warm(arguments, cwd or self.project, environment, stdin, SECONDS)
        else:
            done = subprocess.run(
                [*under, *PROGRAM, *arguments],
                cwd=cwd or self.project,
                env=environment,
                input=stdin if isinstance(stdin, bytes) else None,
                stdin=stdin if isinstance(stdin, int) else None,
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def ok(self, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        done = self.run(*arguments, env=env)
        assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *arguments: str, env: Mapping[str, str] | None = None, status: int = 0) -> Any:
        done = self.run(*arguments, "--json", env=env)
        assert done.returncode == status, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return json.loads(done.stdout)

    def init(self, slug: str = "answer", *more: str) -> str:
        """Write a mission down; returns its task id."""
        made = self.json("init", "--goal", "Write the answer", "--slug", slug, *more, *_judged_by(more))
        return str(made["task_id"])

    def start(self, slug: str = "answer", *more: str) -> str:
        """Write a mission down and launch it; returns its task id."""
        task_id = self.init(slug, *more)
        self.ok("start", task_id)
        return task_id

    def hook(
        self,
        event: str,
        session_id: str = SESSION,
        client: str = "claude",
        *,
        at: Path | None = None,
        **fields: Any,
    ) -> Any:
        """Send one hook event as Claude Code does, from a folder; returns its answer, None for silence."""
        payload = {
            "session_id": session_id,
            "cwd": str(self.project),
            "hook_event_name": event,
            **fields,
        }
        theirs, ours = socket.socketpair()
        with theirs, ours:
            ours.sendall(json.dumps(payload).encode())
            ours.close()
            done = self.run("hook", client, stdin=theirs.fileno(), under=CLIENT, cwd=at)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout) if done.stdout else None

    def stop(self, session_id: str = SESSION, **fields: Any) -> Any:
        return self.hook("Stop", session_id, **fields)

    def bind(self, task_id: str, session_id: str = SESSION) -> None:
        """The person types the prompt command."""
        self.hook("UserPromptSubmit", session_id, prompt=f"$autoresearch {task_id}")

    def journal(self, task_id: str) -> Path:
        return self.home / "missions" / task_id / "journal.jsonl"

    def records(self, task_id: str, kind: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.journal(task_id).read_text().splitlines()]
        return [line["data"] for line in lines if line["kind"] == kind]


def _judged_by(more: tuple[str, ...]) -> tuple[str, ...]:
    return () if "--prompt" in more or "--validator" in more else ("--validator", "./check.sh")


@dataclass(frozen=True)
class Shown:
    """What a terminal showed.

    Attributes:
        status: exit status.
        raw: everything, escape sequences too.
    """

    status: int
    raw: str

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw).replace("\r\n", "\n")


def _is_of_the_interpreter(name: str) -> bool:
    return name.startswith(("PYTHON", "LANG", "LC_"))


@cache
def _template() -> Path:
    """A repository to copy, made once a process."""
    folder = tempfile.TemporaryDirectory(prefix="omx-person-")
    atexit.register(folder.cleanup)
    Path(folder.name, "project").mkdir()
    first = Person(Path(folder.name))
    first.write("check.sh", CHECK, mode=0o755)
    first.git("init", "--quiet")
    first.commit("Start")
    return first.project


def _take_terminal() -> None:
    """Make standard input the controlling terminal, so that Ctrl-C reaches the process."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a job in the background begins with it ignored


def at_terminal(
    person: Person,
    *arguments: str,
    answers: tuple[tuple[str, str | Callable[[], str]], ...] = (),
    env: Mapping[str, str] | None = None,
    is_insisting: bool = False,
) -> Shown:
    """Run a command in a pseudo-terminal of its own.

    Args:
        person: who types.
        arguments: of the command.
        answers: (text that the screen must show, line to type then, or what is done before and returns it), in order.
        env: further variables.
        is_insisting: the last answer is given again whenever it is asked for again.
    """
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=person.project,
        env=person.environment(**(env or {})),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=_take_terminal,  # noqa: PLW1509  # the tests run no threads
    )
    os.close(slave)
    seen, waiting, mark = b"", list(answers), 0
    try:
        while True:
            ready, _, _ = select.select([master], [], [], SECONDS)
            assert ready, f"nothing more on the screen:\n{seen.decode(errors='replace')}"
            try:
                chunk = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            seen += chunk
            while waiting and waiting[0][0].encode() in seen[mark:]:
                mark = len(seen)
                answer = waiting[0] if is_insisting and len(waiting) == 1 else waiting.pop(0)
                line = answer[1] if isinstance(answer[1], str) else answer[1]()
                os.write(master, line.encode() + b"\n")
    finally:
        os.close(master)
        if process.poll() is None:
            process.wait(SECONDS)
    assert is_insisting or not waiting, f"never asked: {waiting}\n{seen.decode(errors='replace')}"
    return Shown(process.returncode, seen.decode(errors="replace"))
