"""Do status line, tools and skill work as they are installed? None holds an agent; each is tried, not believed."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

from omx_autoresearch.core import settings_members, tool_servers
from omx_autoresearch.core.installations import is_status_line, status_line
from omx_autoresearch.core.json_text import JsonTextFault
from omx_autoresearch.errors import StorageFailed
from omx_autoresearch.runtime import skill_files
from omx_autoresearch.runtime.hold_proof import Check
from omx_autoresearch.runtime.installed_files import load_record, record_path
from omx_autoresearch.runtime.settings_files import read_bytes
from omx_autoresearch.runtime.settings_parts import STATUS_PATH, TextFault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omx_autoresearch.core.installations import Installation

STATUS_SECONDS = 20.0
START_SECONDS = 60.0
_NAMES = ("status line", "tools", "skill", "prompt")


def part_checks(
    installation: Installation, state_home_path: str, environ: Mapping[str, str], install: str
) -> list[Check]:
    """Check what an installation has beside its hooks.

    Args:
        installation: where and how.
        state_home_path: the state home that the hooks use.
        environ: the environment, as a client would have it.
        install: what mends a registration.
    """
    checks = []
    if installation.has_status_line:
        checks.append(_status_line(installation, state_home_path, environ, install))
    if installation.server is not None:
        checks.append(_tools(installation, state_home_path, environ, install))
    if installation.skill_path:
        checks.append(_skill(installation, state_home_path, install))
    if installation.hiding_paths:
        checks.append(_prompt(installation))
    return checks


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as source:
            return source.read()
    except OSError:
        return ""


def _checked(name: str, ok: bool, what: str, cure: str = "") -> Check:
    return Check(name, ok, what, cure, is_about_hold=False)


# --- the status line


def _status_line(
    installation: Installation, state_home_path: str, environ: Mapping[str, str], install: str
) -> Check:
    name = _NAMES[0]
    try:
        text = _read(installation.settings_path)
        found = settings_members.member(text, STATUS_PATH, comments=installation.allows_comments)
    except JsonTextFault as fault:
        return _checked(name, False, f"{installation.settings_path}: {fault}", "mend the file")
    command = found.get("command") if isinstance(found, dict) else None
    if found is None:
        return _checked(name, True, f"none is set in {installation.settings_path}; `install` sets ours")
    if not is_status_line(command):
        return _checked(name, True, "your own is set; it stays")
    if command != status_line(state_home_path):
        return _checked(
            name, False, f"ours is of an earlier version or another state home: {command}", install
        )
    return _tried_status_line(installation, str(command), environ, install)


def _tried_status_line(
    installation: Installation, command: str, environ: Mapping[str, str], install: str
) -> Check:
    """Run it for a session that no mission holds: nothing may come."""
    name = _NAMES[0]
    payload = {"hook_event_name": "Status", "session_id": "00000000-0000-4000-8000-00000000d0c0"}
    try:
        done = subprocess.run(
            [*installation.hook_shell, command],
            input=json.dumps(payload).encode(),
            capture_output=True,
            env=dict(environ),
            timeout=STATUS_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _checked(name, False, f"it did not answer: {error}", install)
    if done.returncode or done.stdout or done.stderr:
        shown = (done.stdout + done.stderr)[:200].decode("utf-8", "replace")
        return _checked(
            name, False, f"without a mission it said: status {done.returncode}, {shown!r}", install
        )
    return _checked(name, True, "it shows the mission of a held session, and nothing for any other")


# --- the skill, and what hides the prompt command


def _skill(installation: Installation, state_home_path: str, install: str) -> Check:
    name, path = _NAMES[2], installation.skill_path
    try:
        current = read_bytes(path)
    except StorageFailed as error:
        return _checked(name, False, str(error), install)
    if current is None:
        return _checked(name, True, f"none stands in {path}; `install` puts ours there")
    if current == skill_files.skill_bytes():
        return _checked(name, True, f"it stands in {path}")
    known = load_record(record_path(state_home_path, installation)).file(path)
    if skill_files.is_ours(current, known):
        return _checked(name, False, f"the skill in {path} is of an earlier version", install)
    return _checked(name, True, f"your own stands in {path}; it stays")


def _prompt(installation: Installation) -> Check:
    name = _NAMES[3]
    for path in installation.hiding_paths:
        if os.path.lexists(path):
            what = f"{path} takes /autoresearch away from the hook, so that it would bind no mission"
            return _checked(name, False, what, f"remove {path}, or type $autoresearch instead")
    return _checked(name, True, "no command or skill hides /autoresearch from the hook")


# --- the tools


def _tools(
    installation: Installation, state_home_path: str, environ: Mapping[str, str], install: str
) -> Check:
    name, server = _NAMES[1], installation.server
    assert server is not None, "asked only where there is one"
    try:
        entry = tool_servers.registered(_read(server.path), server)
    except TextFault as fault:
        return _checked(name, False, f"{server.path}: {fault}", "mend the file")
    if entry is None:
        return _checked(name, True, f"no MCP server of ours stands in {server.path}; `install` registers it")
    if not tool_servers.is_ours(entry) or not isinstance(entry, dict):
        return _checked(
            name, True, f"the MCP server {tool_servers.NAME} in {server.path} is your own; it stays"
        )
    arguments = entry["args"]
    if arguments[-1:] != [state_home_path]:
        return _checked(
            name, False, f"the tools look in {arguments[-1]}, the hooks in {state_home_path}", install
        )
    command = [str(entry.get("command")), *(str(item) for item in arguments)]
    if not os.access(command[0], os.X_OK):
        return _checked(name, False, f"the interpreter {command[0]} is gone", install)
    if why := start_fault(command, environ):
        return _checked(name, False, f"the MCP server does not start: {why}", install)
    return _checked(name, True, f"the MCP server in {server.path} starts and answers")


def start_fault(command: list[str], environ: Mapping[str, str]) -> str:
    """Start an MCP server as a client does and say hello; what went wrong, empty for nothing."""
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "doctor", "version": "1"},
        },
    }
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            start_new_session=True,
        ) as process:
            return _greeted(process, json.dumps(hello).encode() + b"\n")
    except OSError as error:
        return str(error)


def _greeted(process: subprocess.Popen[bytes], hello: bytes) -> str:
    import select

    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        process.stdin.write(hello)
        process.stdin.flush()
        if not select.select([process.stdout], [], [], START_SECONDS)[0]:
            return f"no answer within {START_SECONDS:g} s"
        line = process.stdout.readline()
        if not line:
            return (
                process.stderr.read().decode("utf-8", "replace").strip()[-300:] or "it ended without a word"
            )
        answer = json.loads(line)
        named = answer.get("result", {}).get("serverInfo", {}).get("name")
        return "" if named == tool_servers.NAME else f"it answered {line[:200]!r}"
    except (OSError, ValueError, AttributeError) as error:
        return str(error)
    finally:
        process.kill()
