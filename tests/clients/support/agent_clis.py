"""The agent CLIs that the missions run on: where they are, how each is started without a person."""

from __future__ import annotations

import json
import shutil
import subprocess
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.clients.support.wire_formats import Json, ToolCall, Turn

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Pin:
    """The version of a client that the facts in its dialect were seen with.

    Attributes:
        package: its name on npm.
        version: the only one that the tests take.
        node_major: the oldest Node.js that runs it; 0 for a native binary.
    """

    package: str
    version: str
    node_major: int


def read_pins() -> dict[str, Pin]:
    """The pins by client, from the file that ``.ci/clients`` installs from."""
    lines = Path(__file__).parents[3].joinpath(".ci", "clients.txt").read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {
        name: Pin(package, version, 0 if node == "-" else int(node)) for name, package, version, node in rows
    }


@cache
def node_major() -> int:
    """The major version of the Node.js on PATH; 0 where there is none."""
    node = shutil.which("node")
    said = subprocess.check_output([node, "--version"], text=True) if node else "v0"
    return int(said.removeprefix("v").split(".")[0])


PINS = read_pins()


@dataclass(frozen=True, slots=True)
class Place:
    """Where one story happens.

    Attributes:
        home: a scratch home.
        workspace: a repository in it.
        model_url: where the scripted model listens.
    """

    home: Path
    workspace: Path
    model_url: str


class AgentCli(ABC):
    """How to drive one agent CLI headless against the scripted model.

    Attributes:
        name: as in ``omx-autoresearch install NAME``.
        binary: relative to ``node_modules``; a glob, as the native binaries carry the platform in their path.
        hooks_file: relative to the home.
        stop_event: the client's name of the event.
        prompt_event: likewise, when a prompt is submitted.
        transcripts: a glob, relative to the home, of the files from which it resumes a session.
        timeout_unit: how many of the client's time-out units make one second.
    """

    name: str
    binary: str
    hooks_file: str
    transcripts: str
    stop_event: str = "Stop"
    prompt_event: str = "UserPromptSubmit"
    timeout_unit: int = 1

    @abstractmethod
    def settle(self, place: Place) -> None:
        """Write what the client wants to find in a home where a person has already used it."""

    @abstractmethod
    def environment(self, place: Place) -> dict[str, str]:
        """Its own variables: the model's address, dummy keys, no telemetry."""

    @abstractmethod
    def arguments(self, prompt: str, resume: bool) -> list[str]:
        """One headless run; ``resume`` goes on with the newest session of the workspace."""

    @abstractmethod
    def shell(self, command: str) -> ToolCall:
        """The call of its shell tool."""

    @abstractmethod
    def tool(self, name: str, arguments: Json) -> ToolCall:
        """The call of one of our own tools (MCP)."""

    def does(self, text: str, command: str, needs: str = "") -> Turn:
        """A turn that runs one shell command."""
        return Turn(text, (self.shell(command),), needs)

    def missing(self, clients_path: Path) -> str:
        """Why it cannot be run from a folder of clients, and what to do; empty where it can."""
        pin = PINS[self.name]
        if self.binary_path(clients_path) is None:
            return f"{pin.package} {pin.version} is not installed; get it with .ci/clients"
        if pin.node_major > node_major():
            return f"{pin.package} {pin.version} needs Node.js {pin.node_major} or newer"
        return ""

    def binary_path(self, clients_path: Path) -> Path | None:
        """The executable of the pinned version below a folder of clients; None where it is not installed."""
        modules = clients_path / self.name / "node_modules"
        manifest = modules / PINS[self.name].package / "package.json"
        if not manifest.is_file() or json.loads(manifest.read_text())["version"] != PINS[self.name].version:
            return None
        return next(iter(sorted(modules.glob(self.binary))), None)

    def has_saved(self, place: Place, text: str) -> bool:
        """A transcript on disk holds a text, so that a resumed session will know it."""
        return any(text in path.read_text(errors="replace") for path in place.home.glob(self.transcripts))

    def register(self, place: Place, hooks: Mapping[str, str]) -> None:
        """Register one command an event, the way an installer does."""
        path = place.home / self.hooks_file
        settings: Json = json.loads(path.read_text()) if path.exists() else {}
        timeout = 30 * self.timeout_unit
        settings["hooks"] = {
            event: [{"hooks": [{"type": "command", "command": command, "timeout": timeout}]}]
            for event, command in hooks.items()
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings))

    def hook_line(self, place: Place, event: str) -> str:
        """The shell line that is registered for an event."""
        settings: Json = json.loads((place.home / self.hooks_file).read_text())
        return str(settings["hooks"][event][0]["hooks"][0]["command"])


class ClaudeCode(AgentCli):
    """Claude Code. The native binary is called directly: the wrapper of the package wants a newer Node."""

    name = "claude"
    binary = "@anthropic-ai/claude-code-*/claude"
    hooks_file = ".claude/settings.json"
    transcripts = ".claude/projects/*/*.jsonl"

    def settle(self, place: Place) -> None:
        """Onboarding done, folder trusted, dummy key approved (all three only matter in a terminal)."""
        project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True, "allowedTools": []}
        config = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": ["dummy"], "rejected": []},
            "projects": {str(place.workspace): project},
        }
        (place.home / ".claude.json").write_text(json.dumps(config))
        settings = place.home / self.hooks_file
        settings.parent.mkdir()
        settings.write_text(json.dumps({"permissions": {"allow": ["Bash", "mcp__omx-autoresearch"]}}))

    def environment(self, place: Place) -> dict[str, str]:
        """``IS_SANDBOX`` lets it run as root."""
        switched_off = (
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
            "DISABLE_TELEMETRY",
            "DISABLE_AUTOUPDATER",
        )
        environment = dict.fromkeys(switched_off, "1")
        return environment | {
            "ANTHROPIC_BASE_URL": place.model_url,
            "ANTHROPIC_API_KEY": "dummy",
            "IS_SANDBOX": "1",
        }

    def arguments(self, prompt: str, resume: bool) -> list[str]:
        """``stream-json`` is the only headless form that carries what a person would be shown."""
        how = ["--output-format", "stream-json", "--verbose", "--model", "claude-sonnet-4-5"]
        return ["-p", prompt, *how, *(["--continue"] if resume else [])]

    def shell(self, command: str) -> ToolCall:
        """``Bash``."""
        return ToolCall("Bash", {"command": command, "description": "A step"})

    def tool(self, name: str, arguments: Json) -> ToolCall:
        """``mcp__SERVER__TOOL``."""
        return ToolCall(f"mcp__omx-autoresearch__{name}", arguments)


class CodexCli(AgentCli):
    """Codex CLI."""

    name = "codex"
    binary = "@openai/codex-*/vendor/*/bin/codex"
    hooks_file = ".codex/hooks.json"
    transcripts = ".codex/sessions/*/*/*/*.jsonl"

    def settle(self, place: Place) -> None:
        """A provider on loopback. The temporary folders stay read-only in its sandbox: the scratch home lies there."""
        config = f"""\
model = "gpt-5.4"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[sandbox_workspace_write]
exclude_slash_tmp = true
exclude_tmpdir_env_var = true
[model_providers.scripted]
name = "scripted"
base_url = "{place.model_url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = false
[projects."{place.workspace}"]
trust_level = "trusted"
"""
        (place.home / ".codex").mkdir()
        (place.home / ".codex/config.toml").write_text(config)

    def environment(self, place: Place) -> dict[str, str]:  # noqa: ARG002 - one signature for all
        """The address stands in its configuration."""
        return {"SCRIPTED_KEY": "dummy"}

    def arguments(self, prompt: str, resume: bool) -> list[str]:
        """``exec``, or ``exec resume --last``."""
        return ["exec", *(["resume", "--last"] if resume else []), "--json", "--skip-git-repo-check", prompt]

    def set_sandbox(self, place: Place, mode: str) -> None:
        """Run its tools in a sandbox: ``read-only`` or ``workspace-write``."""
        path = place.home / ".codex/config.toml"
        path.write_text(path.read_text().replace('"danger-full-access"', f'"{mode}"'))

    def shell(self, command: str) -> ToolCall:
        """``exec_command``."""
        return ToolCall("exec_command", {"cmd": command})

    def tool(self, name: str, arguments: Json) -> ToolCall:
        """The tool's own name in the namespace ``mcp__SERVER``; Codex writes an underscore for the hyphen."""
        return ToolCall(name, arguments, "mcp__omx_autoresearch")


class GeminiCli(AgentCli):
    """Gemini CLI, on Node."""

    name = "gemini"
    binary = ".bin/gemini"
    hooks_file = ".gemini/settings.json"
    transcripts = ".gemini/tmp/*/chats/*"
    stop_event = "AfterAgent"
    prompt_event = "BeforeAgent"
    timeout_unit = 1000

    def settle(self, place: Place) -> None:
        """Signed in with a key, nothing sent home."""
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        }
        path = place.home / self.hooks_file
        path.parent.mkdir()
        path.write_text(json.dumps(settings))

    def environment(self, place: Place) -> dict[str, str]:
        """The folder is trusted by environment, as a headless run can ask nobody."""
        return {
            "GEMINI_API_KEY": "dummy",
            "GOOGLE_GEMINI_BASE_URL": place.model_url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }

    def arguments(self, prompt: str, resume: bool) -> list[str]:
        """A named model, as the automatic choice would ask a router first."""
        how = ["--yolo", "--model", "gemini-2.5-flash", "--output-format", "json"]
        return ["--prompt", prompt, *how, *(["--resume", "latest"] if resume else [])]

    def shell(self, command: str) -> ToolCall:
        """``run_shell_command``, which itself refuses command substitution."""
        return ToolCall("run_shell_command", {"command": command, "description": "A step"})

    def tool(self, name: str, arguments: Json) -> ToolCall:
        """``mcp_SERVER_TOOL``."""
        return ToolCall(f"mcp_omx-autoresearch_{name}", arguments)


CLAUDE, CODEX, GEMINI = ClaudeCode(), CodexCli(), GeminiCli()
AGENT_CLIS: tuple[AgentCli, ...] = (CLAUDE, CODEX, GEMINI)
