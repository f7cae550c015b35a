"""One story's stage: a scratch home, a repository, a scripted model, and real agent CLIs that run on it offline."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.clients.support.agent_clis import AgentCli, Place
from tests.clients.support.scripted_model import ModelServer, Move, Request, Script
from tests.clients.support.wire_formats import Turn

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.support.network import OfflineNetwork
    from tests.clients.support.wire_formats import Json


@dataclass(frozen=True, slots=True)
class ClientRun:
    """What one run of an agent CLI showed.

    Attributes:
        exit_code: as subprocess gives it, a negative signal number when it was killed.
        hit_limit: it did not end by itself within its wall-clock limit.
        stdout: everything it printed.
        stderr: likewise.
        requests: everything that reached the model, in order.
    """

    exit_code: int
    hit_limit: bool
    stdout: str
    stderr: str
    requests: tuple[Request, ...] = field(repr=False)

    @property
    def turns(self) -> list[Request]:
        """The requests that used up a turn of the script."""
        return [request for request in self.requests if request.kind == "main"]

    def first_turn_with(self, text: str) -> int:
        """Which turn was the first whose request held a text; -1 where none did."""
        return next((turn.turn for turn in self.turns if text in turn.conversation), -1)


class Stage:
    """A scratch home with a repository, on which one agent CLI plays scripted stories.

    Attributes:
        cli: the agent CLI.
        place: home and repository.
        model: the scripted model.
        binary_path: the client's executable.
    """

    def __init__(self, cli: AgentCli, binary_path: Path, network: OfflineNetwork, root_path: Path) -> None:
        self.cli = cli
        self.binary_path = binary_path
        self._network = network
        self._root = root_path
        self._running: subprocess.Popen[bytes] | None = None
        self.model = ModelServer(network.listener)
        self.place = Place(root_path / "home", root_path / "home" / "repository", self.model.url)
        self.place.workspace.mkdir(parents=True)
        (root_path / "tmp").mkdir()
        (root_path / "bin").mkdir()
        (root_path / "bin" / cli.name).symlink_to(binary_path)
        self._settle_in()
        cli.settle(self.place)

    def _settle_in(self) -> None:
        """A home that commands are found from, and one commit by somebody with a name."""
        (self.place.home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n")
        # A login shell, which Codex starts for tools and hooks, takes its PATH from the profile.
        (self.place.home / ".profile").write_text(f"export PATH={shlex.quote(self.environment()['PATH'])}\n")
        (self.place.workspace / "README").write_text("scratch\n")
        self.owner("git", "init", "--quiet", "--initial-branch", "main")
        self.commit("Start")

    def commit(self, message: str) -> None:
        """Commit everything in the repository, as the owner."""
        self.owner("git", "add", "--all")
        self.owner("git", "commit", "--quiet", "--message", message)

    def environment(self) -> dict[str, str]:
        """A person's terminal, and nothing of the surrounding environment but where programs are."""
        node = shutil.which("node")
        folders = [
            str(self._root / "bin"),
            os.path.dirname(sys.executable),
            *([os.path.dirname(node)] if node else []),
            os.defpath,
        ]
        return {
            "PATH": os.pathsep.join(folders),
            "HOME": str(self.place.home),
            "TMPDIR": str(self._root / "tmp"),
            "SHELL": shutil.which("bash") or "/bin/sh",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }

    def client_environment(self) -> dict[str, str]:
        """A person's terminal from which the client is started."""
        return self.environment() | self.cli.environment(self.place)

    def inside(self, *command: str) -> list[str]:
        """A command that runs in the network namespace."""
        return [*self._network.prefix, *command]

    def owner(
        self, *command: str, may_fail: bool = False, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the repository as the person at the terminal, outside any agent."""
        done = subprocess.run(
            self.inside(*command),
            cwd=self.place.workspace,
            env=self.environment() | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if not may_fail:
            assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done

    def owner_json(self, *command: str) -> Json:
        """The JSON object that a command of the owner prints."""
        value: Json = json.loads(self.owner(*command).stdout)
        return value

    def run(
        self,
        prompt: str,
        *moves: Move,
        resume: bool = False,
        environment: Mapping[str, str] | None = None,
        limit_seconds: float = 120,
    ) -> ClientRun:
        """Run the agent CLI headless on one prompt; every process that it leaves behind is killed.

        Raises:
            AssertionError: a turn of the script did not fit its request.
        """
        script = self.model.script = Script(*moves)
        out_path, err_path = self._root / "stdout", self._root / "stderr"
        with out_path.open("wb") as out, err_path.open("wb") as err:
            process = self._running = subprocess.Popen(
                self.inside(str(self.binary_path), *self.cli.arguments(prompt, resume)),
                cwd=self.place.workspace,
                env=self.client_environment() | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            hit_limit = not self._ends_within(process, limit_seconds)
        stdout, stderr = out_path.read_text(errors="replace"), err_path.read_text(errors="replace")
        assert not script.misfits, f"{script.misfits}\nstdout: {stdout[-2000:]}\nstderr: {stderr[-2000:]}"
        return ClientRun(process.returncode, hit_limit, stdout, stderr, tuple(script.requests))

    def _ends_within(self, process: subprocess.Popen[bytes], limit_seconds: float) -> bool:
        """Wait for the client, then kill its group and whatever else lives in the namespace."""
        try:
            process.wait(limit_seconds)
            return True
        except subprocess.TimeoutExpired:
            self.kill_client()
            process.wait()
            return False
        finally:
            self._network.clear()

    def kill_client(self) -> None:
        """SIGKILL the running client and its process group; a turn of the script may do it."""
        if self._running is not None and self._running.poll() is None:
            os.killpg(self._running.pid, signal.SIGKILL)

    def kill_once_saved(self, text: str, limit_seconds: float = 20) -> Turn:
        """A turn: SIGKILL the client as soon as its transcript on disk holds a text (Claude Code writes it late)."""
        end = time.monotonic() + limit_seconds
        pause = threading.Event()
        while not self.cli.has_saved(self.place, text):
            if time.monotonic() > end:
                raise LookupError(f"{self.cli.name} saved no {text!r} within {limit_seconds} s")
            pause.wait(0.01)
        self.kill_client()
        return Turn("Nobody reads this.")

    def living_processes(self) -> list[int]:
        """The ids of what still lives in the stage's network namespace."""
        return self._network.processes()

    def close(self) -> None:
        """End the story."""
        self.kill_client()
        self._network.clear()
        self.model.close()


OpenStage = Callable[[AgentCli], Stage]
"""The fixture ``open_stage``."""
