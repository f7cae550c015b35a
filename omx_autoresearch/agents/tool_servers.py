"""How the tools for agents (an MCP server) stand in a client's settings: as values and texts, touching no file.

JSON clients keep ``{"mcpServers": {NAME: {...}}}``, Codex a TOML table ``[mcp_servers.NAME]``. An entry is ours when it
runs our command line's ``mcp``, by whatever interpreter; another one of the same name is its owner's and stays.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from typing import Literal

from omx_autoresearch.agents.json_text import member, with_settings_member, without_member

NAME = "omx-autoresearch"
MODULE = "omx_autoresearch.surfaces.cli"
_JSON_PATH = ("mcpServers", NAME)
_TABLE = "mcp_servers"


class TomlFault(ValueError):
    """A TOML text cannot be read, or cannot be changed without touching anything else."""

    line = 1


@dataclass(frozen=True, slots=True)
class ToolServer:
    """Where a client registers MCP servers.

    Attributes:
        path: the file.
        form: how it is written.
        has_type: the entry says ``"type": "stdio"``.
        variables: environment variables that the client hands on only when they are named.
        allows_comments: the client reads JSON with comments.
        note: what a person has to do besides; empty for nothing.
    """

    path: str
    form: Literal["json", "toml"] = "json"
    has_type: bool = False
    variables: tuple[str, ...] = ()
    allows_comments: bool = False
    note: str = ""


def entry_of(
    server: ToolServer, python_path: str, state_home_path: str, options: tuple[str, ...] = ()
) -> dict[str, object]:
    """Compose the entry: this interpreter by its absolute path, blind to PYTHONPATH and to the folder it starts in.

    (A module of the agent's own named as one of ours would otherwise run outside of its sandbox.)
    """
    entry: dict[str, object] = {"type": "stdio"} if server.has_type else {}
    entry["command"] = python_path
    entry["args"] = ["-E", "-P", "-m", MODULE, "mcp", "--home", state_home_path, *options]
    if server.variables:
        entry["env_vars"] = list(server.variables)
    return entry


def is_ours(entry: object) -> bool:
    """Say whether an entry runs our command line's ``mcp``."""
    arguments = entry.get("args") if isinstance(entry, dict) else None
    return isinstance(arguments, list) and MODULE in arguments and "mcp" in arguments


def registered(text: str, server: ToolServer) -> object | None:
    """Give the entry of our name; None where there is none.

    Raises:
        JsonTextFault: the text is not the JSON that the client reads.
        TomlFault: likewise, TOML.
    """
    if server.form == "json":
        return member(text, _JSON_PATH, comments=server.allows_comments)
    servers = _toml(text).get(_TABLE)
    return servers.get(NAME) if isinstance(servers, dict) else None


def with_server(text: str, server: ToolServer, entry: dict[str, object]) -> str:
    """Put our entry (see :func:`entry_of`) in; one of the same name that is not ours stays.

    Raises:
        JsonTextFault: the text cannot be read, or something on the way is no object.
        TomlFault: the text cannot be read or changed.
    """
    found = registered(text, server)
    if found == entry or (found is not None and not is_ours(found)):
        return text
    if server.form == "json":
        return with_settings_member(text, _JSON_PATH, entry, comments=server.allows_comments)
    return _with_table(without_server(text, server), entry)


def without_server(text: str, server: ToolServer) -> str:
    """Take our entry out, and nothing else.

    Raises:
        JsonTextFault: the text cannot be read.
        TomlFault: the text cannot be read, or our entry is written in a way that cannot be taken out alone.
    """
    if not is_ours(registered(text, server)):
        return text
    if server.form == "json":
        return without_member(text, _JSON_PATH, comments=server.allows_comments)
    wanted = _toml(text)
    del wanted[_TABLE][NAME]
    if not wanted[_TABLE]:
        del wanted[_TABLE]
    header = re.escape(f"[{_TABLE}.{NAME}]")
    table = rf"(?:^\r?\n)?^{header}[ \t]*(?:\r?\n|\Z)(?:[A-Za-z_]+[ \t]*=.*(?:\r?\n|\Z))*"
    changed = re.sub(table, "", text, flags=re.MULTILINE)
    if _toml(changed) != wanted:
        raise TomlFault(f"[{_TABLE}.{NAME}] has more in it than we wrote; take it out by hand")
    return changed


def _with_table(text: str, entry: dict[str, object]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{_TABLE}.{NAME}]", *(f"{key} = {_toml_value(value)}" for key, value in entry.items())]
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    changed = text + gap + newline.join(lines) + newline
    wanted = _toml(text)
    servers = wanted.setdefault(_TABLE, {})
    if not isinstance(servers, dict):
        raise TomlFault(f"{_TABLE} is not a table")
    servers[NAME] = entry
    if _toml(changed) != wanted:
        raise TomlFault(f"{_TABLE} is written in a way that no table can be added to")
    return changed


def _toml_value(value: object) -> str:
    """A text or a list of texts, as TOML writes them: JSON's escapes are TOML's for what can stand in a path."""
    return json.dumps(value, ensure_ascii=False)


def _toml(text: str) -> dict[str, dict[str, object]]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlFault(str(error)) from None
