"""What of ours stands in each of a client's settings files: hooks, a status line, the tools for agents.

One file may hold several of them. :func:`with_ours` and :func:`without_ours` change a whole text; neither touches
anything that is not ours.
"""

from __future__ import annotations

from omx_autoresearch.agents import hook_settings, json_text, tool_servers
from omx_autoresearch.agents.installations import HookProgram, Installation, is_status_line, status_line
from omx_autoresearch.agents.json_text import JsonTextFault
from omx_autoresearch.agents.settings_files import BOM
from omx_autoresearch.agents.tool_servers import TomlFault

STATUS_PATH = ("statusLine",)
STATUS_SECONDS = 10
"""How often Claude Code asks for the line besides at its own events: a stop is answered after the last of them, and the
ages in the line grow while nothing happens. Versions that do not know the setting leave it out."""
TextFault = (JsonTextFault, TomlFault)
"""Why a settings text cannot be changed; each knows its line."""


def settings_paths(installation: Installation) -> tuple[str, ...]:
    """Give the files that hold something of ours: the settings, then where MCP servers stand, if that is another."""
    server = installation.server
    paths = [installation.settings_path, *((server.path,) if server else ())]
    return tuple(dict.fromkeys(paths))


def with_ours(
    text: str, path: str, installation: Installation, program: HookProgram, *, has_server: bool
) -> str:
    """Put in what belongs into one file; the tools only where ``has_server``, else an older entry goes.

    Raises:
        JsonTextFault: the text cannot be read, or something that we must add to has another shape.
        TomlFault: likewise, TOML.
    """
    mark, text = _split(text)
    server = installation.server
    if path == installation.settings_path:
        text = hook_settings.merged(text, installation, program.state_home_path)
        if may_set_status_line(text, installation):
            value = {
                "type": "command",
                "command": status_line(program.state_home_path),
                "refreshInterval": STATUS_SECONDS,
            }
            text = json_text.with_settings_member(text, STATUS_PATH, value, comments=_comments(installation))
    if server and path == server.path:
        if has_server:
            entry = tool_servers.entry_of(
                server, program.python_path, program.state_home_path, program.tool_options
            )
            text = tool_servers.with_server(text, server, entry)
        else:
            text = tool_servers.without_server(text, server)
    return mark + text


def without_ours(text: str, path: str, installation: Installation, *, environment: tuple[str, ...]) -> str:
    """Take out of one file what is ours; ``environment`` are the variables that we added.

    Raises:
        JsonTextFault: the text cannot be read.
        TomlFault: likewise, TOML.
    """
    mark, text = _split(text)
    server = installation.server
    if path == installation.settings_path:
        text = hook_settings.without_ours(text, installation, environment=environment)
        if installation.has_status_line and is_status_line(_status_command(text, installation)):
            text = json_text.without_member(text, STATUS_PATH, comments=_comments(installation))
    if server and path == server.path and text:
        text = tool_servers.without_server(text, server)
    return mark + text


def may_set_status_line(text: str, installation: Installation) -> bool:
    """Say whether a settings text has room for our status line: none stands there, or ours; nor in its other files."""
    if not installation.has_status_line or foreign_status_line(text, installation):
        return False
    return not any(foreign_status_line(_read(path), installation) for path in _outer_paths(installation))


def foreign_status_line(text: str, installation: Installation) -> bool:
    """Say whether a status line of somebody else's stands in a settings text; none does in one that cannot be read."""
    try:
        found = json_text.member(_split(text)[1], STATUS_PATH, comments=True)
    except JsonTextFault:
        return False
    return found is not None and installation.has_status_line and not is_status_line(_command(found))


def part_notes(installation: Installation, text: str, program: HookProgram) -> tuple[str, ...]:
    """Say what was left as it is, because it is somebody's own: a status line, an MCP server of our name."""
    notes = []
    if installation.has_status_line and not may_set_status_line(text, installation):
        notes.append(
            f"your own status line stays. To show the mission in it, let it run: {program.script_path} statusline "
            "(with the JSON that it got on its input)"
        )
    server = installation.server
    if server:
        try:
            found = tool_servers.registered(_split(_read(server.path))[1], server)
        except TextFault:
            found = None
        if found is not None and not tool_servers.is_ours(found):
            notes.append(f"an MCP server of your own is named {tool_servers.NAME} in {server.path}; it stays")
    return tuple(notes)


def _outer_paths(installation: Installation) -> tuple[str, ...]:
    """Settings whose status line one in ours would hide: a project's hides the user's."""
    return installation.other_settings_paths if installation.scope == "project" else ()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            return source.read()
    except OSError:
        return ""


def _status_command(text: str, installation: Installation) -> object:
    return _command(json_text.member(text, STATUS_PATH, comments=_comments(installation)))


def _command(value: object) -> object:
    return value.get("command") if isinstance(value, dict) else None


def _comments(installation: Installation) -> bool:
    return installation.allows_comments


def _split(text: str) -> tuple[str, str]:
    """A byte-order mark, which stays, and the rest."""
    return (BOM, text[1:]) if text.startswith(BOM) else ("", text)
