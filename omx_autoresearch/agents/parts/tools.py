"""The tools for agents (an MCP server) in a client's settings.

JSON clients keep ``{"mcpServers": {NAME: {...}}}``, a TOML client a table ``[mcp_servers.NAME]``. An entry is ours if
it runs ``mcp`` of our command line, with any interpreter. We keep another entry of the same name: it is the user's.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from omx_autoresearch.agents.json_rpc import last_answer
from omx_autoresearch.agents.parts import Part
from omx_autoresearch.agents.settings_files import readable_text
from omx_autoresearch.agents.settings_text import (
    TextFault,
    inner_value,
    toml_values,
    value_at,
    with_table,
    with_value,
    without_table,
    without_value,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omx_autoresearch.agents.hook_lines import HookProgram
    from omx_autoresearch.agents.parts import Change, Check, Examination, Installation, ToolServer
    from omx_autoresearch.agents.settings_files import SettingsFile

NAME = "omx-autoresearch"
_START_SECONDS = 60.0
_MODULE = "omx_autoresearch.surfaces.cli"
_JSON_KEYS = ("mcpServers", NAME)
_TABLE = ("mcp_servers", NAME)
_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "doctor", "version": "1"},
    },
}


def entry_of(server: ToolServer, program: HookProgram) -> dict[str, object]:
    """The entry: the interpreter by its absolute path, with PYTHONPATH and the working directory ignored.

    Otherwise a module of the agent's with the name of one of ours would run outside the sandbox.
    """
    entry: dict[str, object] = {"type": "stdio"} if server.has_type else {}
    entry["command"] = program.python_path
    home_path = program.state_home_path
    entry["args"] = ["-E", "-P", "-m", _MODULE, "mcp", "--home", home_path, *program.tool_options]
    if server.variables:
        entry["env_vars"] = list(server.variables)
    return entry


def registered(text: str, server: ToolServer) -> Any:
    """The entry of our name in a text; None if there is none.

    Raises:
        TextFault: the text cannot be read.
    """
    if server.form == "json":
        return value_at(text, _JSON_KEYS, comments=server.allows_comments)
    return inner_value(toml_values(text), _TABLE)


def is_ours(entry: object) -> bool:
    """Whether an entry runs our command line's ``mcp``."""
    arguments = entry.get("args") if isinstance(entry, dict) else None
    return isinstance(arguments, list) and _MODULE in arguments and "mcp" in arguments


class Tools(Part):
    """The part for the MCP server."""

    name = "tools"

    def path(self, installation: Installation) -> str:
        """The file in which the client registers MCP servers."""
        return installation.server.path if installation.server else ""

    def add(self, file: SettingsFile, change: Change) -> None:
        """Register the server, unless the user has one of the same name."""
        server = change.installation.server
        assert server, "the client has a file for it"
        assert change.program, "an installation has a program"
        entry, found = entry_of(server, change.program), registered(file.text, server)
        if found is not None and not is_ours(found):
            change.notes.append(f"{server.path} has your own MCP server {NAME}, which was kept")
        elif found != entry:
            if server.form == "json":
                file.text = with_value(file.text, _JSON_KEYS, entry, comments=server.allows_comments)
            else:
                file.text = with_table(without_table(file.text, _TABLE), _TABLE, entry)
        if server.note:
            change.notes.append(server.note)

    def remove(self, file: SettingsFile, change: Change) -> None:
        """Remove our entry."""
        server = change.installation.server
        assert server, "the client has a file for it"
        if not is_ours(registered(file.text, server)):
            return
        if server.form == "json":
            file.text = without_value(file.text, _JSON_KEYS, comments=server.allows_comments)
        else:
            file.text = without_table(file.text, _TABLE)

    def check(self, examination: Examination) -> list[Check]:
        """Start the server as the client does, and initialize it."""
        server = examination.installation.server
        if server is None:
            return []
        try:
            entry = registered(readable_text(server.path), server)
        except TextFault as fault:
            return [self.found(f"{server.path}: {fault}", "fix the file")]
        if entry is None:
            return [self.found(f"our MCP server is not registered in {server.path}; `install` registers it")]
        if not is_ours(entry):
            return [self.found(f"{server.path} has your own MCP server {NAME}, which was kept")]
        if why := _entry_fault(entry, examination):
            return [self.found(why, examination.install)]
        return [self.found(f"the MCP server in {server.path} starts and answers")]


PART = Tools()


def _entry_fault(entry: dict[str, Any], examination: Examination) -> str:
    command = [str(entry.get("command")), *(str(item) for item in entry["args"])]
    home_path = command[command.index("--home") + 1] if "--home" in command[:-1] else ""
    if home_path != examination.hooks_home_path:
        return f"the tools look in {home_path}, the hooks in {examination.hooks_home_path}"
    if not os.access(command[0], os.X_OK):
        return f"the interpreter {command[0]} no longer exists"
    why = start_fault(command, examination.environ)
    return f"the MCP server does not start: {why}" if why else ""


def start_fault(command: list[str], environ: Mapping[str, str]) -> str:
    """Start an MCP server as a client does and initialize it; the fault, or an empty text."""
    try:
        answer = last_answer(command, (_HELLO,), environ=environ, wait_seconds=_START_SECONDS)
        named = answer.get("result", {}).get("serverInfo", {}).get("name")
    except (OSError, ValueError, AttributeError) as error:
        return str(error)
    return "" if named == NAME else f"it answered {json.dumps(answer)[:200]}"
