from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from omx_autoresearch.agents.hook_lines import HookProgram
from omx_autoresearch.agents.parts import Change, ToolServer
from omx_autoresearch.agents.parts.tools import Tools, entry_of, is_ours, registered
from omx_autoresearch.agents.registry import installation_of
from omx_autoresearch.agents.settings_files import SettingsFile
from omx_autoresearch.agents.settings_text import TextFault
from omx_autoresearch.foundation.clients import CLIENT_NAMES

PROGRAM = HookProgram("/s/omx-autoresearch", "/usr/bin/python3", "/entry.py")
TEXTS = {
    "json": ["{}", '{"mcpServers": {"mine": {"command": "x"}}}', '{\n  "n": 1.50\n}\n'],
    "toml": [
        "",
        "model = 'x'\n",
        'a = 1\r\n\r\n[mcp_servers.mine]\r\ncommand = "x" # kept\r\n',
        '[mcp_servers.mine]\ncommand = "x"\n\n[mcp_servers.mine.env]\nA = "1"\n\n[z]\nb = 2',
    ],
}


def server_of(name: str) -> ToolServer:
    server = installation_of(name, "user", {"HOME": "/h"}, "/p").server
    assert server is not None
    return server


def changed(text: str, name: str, program: HookProgram | None) -> str:
    """The text with the tools of a program put in, or with ours taken out."""
    installation = installation_of(name, "user", {"HOME": "/h"}, "/p")
    file = SettingsFile("/settings", text.encode())
    change = Change(installation, {}, program)
    Tools().add(file, change) if program else Tools().remove(file, change)
    return file.text


def values(text: str, server: ToolServer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text) if server.form == "json" else tomllib.loads(text)
    return found


@pytest.mark.requirement("MCP-07")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_a_client_finds_the_tools_by_absolute_paths_and_nothing_of_the_project_is_imported(name: str) -> None:
    entry = entry_of(server_of(name), PROGRAM)
    assert entry["command"] == "/usr/bin/python3"
    assert entry["args"] == [
        "-E",
        "-P",
        "-m",
        "omx_autoresearch.surfaces.cli",
        "mcp",
        "--home",
        "/s/omx-autoresearch",
    ]
    assert entry.get("env_vars") == (["OMX_AUTORESEARCH_TASK"] if name == "codex" else None)


@pytest.mark.requirement("MCP-07")
@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name in CLIENT_NAMES for text in TEXTS[server_of(name).form]]
)
def test_the_entry_goes_in_beside_the_rest_and_out_again(name: str, text: str) -> None:
    server = server_of(name)
    there = changed(text, name, PROGRAM)
    assert is_ours(registered(there, server))
    assert changed(there, name, PROGRAM) == there
    rest = changed(there, name, None)
    assert values(rest, server) == values(text, server)
    assert rest.rstrip("\r\n") == text.rstrip("\r\n")


@pytest.mark.requirement("MCP-07")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_an_older_entry_of_ours_is_replaced_and_one_of_the_users_stays(name: str) -> None:
    server = server_of(name)
    older = changed("", name, HookProgram("/elsewhere", "/old/python", "/entry.py"))
    newer = changed(older, name, PROGRAM)
    assert registered(newer, server) == entry_of(server, PROGRAM)
    theirs = (
        '{"mcpServers": {"omx-autoresearch": {"command": "mine"}}}'
        if server.form == "json"
        else '[mcp_servers.omx-autoresearch]\ncommand = "mine"\n'
    )
    assert changed(theirs, name, PROGRAM) == changed(theirs, name, None) == theirs


@pytest.mark.requirement("MCP-07")
@pytest.mark.parametrize("text", ["mcp_servers = 5\n", "mcp_servers = {}\n", "a = \n"])
def test_a_toml_file_that_takes_no_table_is_named_and_left(text: str) -> None:
    with pytest.raises(TextFault):
        changed(text, "codex", PROGRAM)


@pytest.mark.requirement("MCP-07")
def test_a_table_that_somebody_extended_is_not_cut_in_half() -> None:
    text = changed("", "codex", PROGRAM) + 'enabled = true\n[mcp_servers.omx-autoresearch.env]\nA = "1"\n'
    with pytest.raises(TextFault, match="by hand"):
        changed(text, "codex", None)
