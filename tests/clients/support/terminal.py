"""An agent CLI as a person sees it: in a terminal, with a keyboard. tmux draws the screen."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

from tests.clients.support.scripted_model import Move, Script

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from tests.clients.support.stage import Stage


class ClaudeTerminal:
    """One interactive session on a stage; a context manager that ends with the session killed.

    Attributes:
        ready: what the client's empty input line shows.
        script: what the model answers in this session.
    """

    ready = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"

    def __init__(self, stage: Stage, *moves: Move, environment: Mapping[str, str] | None = None) -> None:
        self.script = stage.model.script = Script(*moves)
        self._stage = stage
        self._environment = stage.client_environment() | dict(environment or {})
        # A socket's path must be short, which the scratch directory of a test need not be.
        self._folder_path = tempfile.mkdtemp(prefix="tty-")
        fifo_path = os.path.join(self._folder_path, "drawn")
        os.mkfifo(fifo_path)
        self._drawn = os.open(fifo_path, os.O_RDWR | os.O_NONBLOCK)
        self._tmux("new-session", "-d", "-x", "160", "-y", "50", str(stage.binary_path))
        self._tmux("pipe-pane", f"exec cat > {fifo_path}")

    def _tmux(self, *words: str) -> str:
        socket_path = os.path.join(self._folder_path, "tmux")
        return subprocess.run(
            self._stage.inside("tmux", "-S", socket_path, "-f", os.devnull, *words),
            cwd=self._stage.place.workspace,
            env=self._environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def screen(self) -> str:
        """What the terminal shows now, its scrollback too; wrapped lines are joined."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-")

    def wait_for(self, text: str, limit_seconds: float = 60) -> str:
        """The screen as soon as it shows a text; looks again whenever something was drawn.

        Raises:
            AssertionError: the limit passed; says what was on the screen.
        """
        end = time.monotonic() + limit_seconds
        while text not in (screen := self.screen()):
            left = end - time.monotonic()
            assert left > 0, f"no {text!r} on the screen after {limit_seconds} s:\n{screen}"
            select.select([self._drawn], [], [], left)
            self._forget_drawn()
        return screen

    def _forget_drawn(self) -> None:
        """Empty the pipe of drawing commands; only that there were some matters."""
        try:
            while os.read(self._drawn, 65536):
                pass
        except BlockingIOError:
            return

    def enter(self, line: str) -> None:
        """Type a line and press Enter once it stands on the screen."""
        self._tmux("send-keys", "-l", line)
        self.wait_for(line)
        self._tmux("send-keys", "Enter")

    def close(self) -> None:
        """Kill the session."""
        self._tmux("kill-server")
        os.close(self._drawn)
        shutil.rmtree(self._folder_path)

    def __enter__(self) -> ClaudeTerminal:
        self.wait_for(self.ready)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()


class GeminiTerminal(ClaudeTerminal):
    """The same of Gemini CLI."""

    ready = "Type your message"


class CodexTerminal(ClaudeTerminal):
    """The same of Codex CLI."""

    ready = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
