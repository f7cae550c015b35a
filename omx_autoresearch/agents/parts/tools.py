"""The tools for agents (an MCP server) in a client's settings.

JSON clients keep ``{"mcpServers": {NAME: {...}}}``, a TOML client a table ``[mcp_servers.NAME]``. An entry is ours when
it runs our command line's ``mcp``, by whatever interpreter; another one of the same name is its owner's and stays.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from omx_autoresearch.agents.json_rpc import last_answer
from omx_autoresearch.agents.parts import Check
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
    from omx_autoresearch.agents.parts import Change, Examination, Installation, ToolServer
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
    """The entry: this interpreter by its absolute path, blind to PYTHONPATH and to the folder it starts in.

    (A module of the agent's own named as one of ours would otherwise run outside of its sandbox.)
    """
    entry: dict[str, object] = {"type": "stdio"} if server.has_type else {}
    entry["command"] = program.python_path
    home_path = program.state_home_path
    entry["args"] = ["-E", "-P", "-m", _MODULE, "mcp", "--home", home_path, *program.tool_options]
    if server.variables:
        entry["env_vars"] = list(server.variables)
    return entry


def registered(text: str, server: ToolServer) -> Any:
    """The entry of our name in a text; None where there is none.

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


class Tools:
    """See :class:`omx_autoresearch.agents.parts.Part`."""

    name = "tools"
    needs_the_others = False

    def path(self, installation: Installation) -> str:
        """Where the client registers MCP servers."""
        return installation.server.path if installation.server else ""

    def add(self, file: SettingsFile, change: Change) -> None:
        """Register the server, unless the user has one of our name."""
        server = change.installation.server
        assert server, "the client has a file for it"
        assert change.program, "an installation has a program"
        entry, found = entry_of(server, change.program), registered(file.text, server)
        if found is not None and not is_ours(found):
            change.notes.append(f"{server.path} has an MCP server {NAME} of your own, which was kept")
        elif found != entry:
            if server.form == "json":
                file.text = with_value(file.text, _JSON_KEYS, entry, comments=server.allows_comments)
            else:
                file.text = with_table(without_table(file.text, _TABLE), _TABLE, entry)
        if server.note:
            change.notes.append(server.note)

    def remove(self, file: SettingsFile, change: Change) -> None:
        """Take our entry out."""
        server = change.installation.server
        assert server, "the client has a file for it"
        if not is_ours(registered(file.text, server)):
            return
        if server.form == "json":
            file.text = without_value(file.text, _JSON_KEYS, comments=server.allows_comments)
        else:
            file.text = without_table(file.text, _TABLE)

    def check(self, examination: Examination) -> list[Check]:
        """Start the server as the client does, and say hello."""
        server = examination.installation.server
        if server is None:
            return []
        try:
            entry = registered(readable_text(server.path), server)
        except TextFault as fault:
            return [_checked(f"{server.path}: {fault}", "fix the file")]
        if entry is None:
            return [_checked(f"our MCP server is not registered in {server.path}; `install` registers it")]
        if not is_ours(entry):
            return [_checked(f"the MCP server {NAME} in {server.path} is your own and was kept")]
        if why := _entry_fault(entry, examination):
            return [_checked(why, examination.install)]
        return [_checked(f"the MCP server in {server.path} starts and answers")]


def _checked(what: str, cure: str = "") -> Check:
    return Check(Tools.name, not cure, what, cure, is_about_hold=False)


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
    """Start an MCP server as a client does and say hello; what went wrong, empty for nothing."""
    try:
        answer = last_answer(command, (_HELLO,), environ=environ, wait_seconds=_START_SECONDS)
        named = answer.get("result", {}).get("serverInfo", {}).get("name")
    except (OSError, ValueError, AttributeError) as error:
        return str(error)
    return "" if named == NAME else f"it answered {json.dumps(answer)[:200]}"
