"""Is an agent held at all? Looking at what stands in the client's settings, and trying it.

Every check is a value. The last two run the very line that is installed, in the shell that the client uses, with a
synthetic stop: once for a session that holds an unfinished mission in a scratch state home, once for another one. The
mission must be refused, the other session must be let go without a byte.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from omx_autoresearch.agents import hook_settings, hook_trust, json_text, skill_files, tool_servers
from omx_autoresearch.agents.hold_proof import Check, prove_hold
from omx_autoresearch.agents.installations import (
    HookProgram,
    Installation,
    hook_line,
    is_status_line,
    program_of_script,
    status_line,
)
from omx_autoresearch.agents.json_text import JsonTextFault
from omx_autoresearch.agents.settings_files import load_record, read_bytes, record_path
from omx_autoresearch.agents.settings_parts import STATUS_PATH, TextFault
from omx_autoresearch.foundation.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from omx_autoresearch.agents.hook_settings import Registered


# --- Do status line, tools and skill work as they are installed? None holds an agent; each is tried, not believed.

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
        found = json_text.member(text, STATUS_PATH, comments=installation.allows_comments)
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


_MAX_PLUGIN_FILES = 20_000
_MAX_SETTINGS_BYTES = 16 * 1024 * 1024


def examine(
    installation: Installation,
    state_home_path: str,
    *,
    environ: Mapping[str, str],
    make_held_session: Callable[[str], str],
) -> list[Check]:
    """Check one installation and prove that it holds.

    Args:
        installation: where and how, from the client's dialect.
        state_home_path: the state home that the command line itself uses.
        environ: the environment, as a client's hook would have it.
        make_held_session: makes an unfinished mission in a scratch state home, binds a session to it and gives the
            session's id.

    Returns:
        The checks in the order of reading; when the hooks are not there at all, only the first.
    """
    install = f"run `omx-autoresearch install {installation.client.name} --scope {installation.scope}`"
    read = _read_settings(installation, install)
    if isinstance(read, Check):
        return [read]
    text, found = read
    program, script = _script(found[0].state_home_path, install)
    with ThreadPoolExecutor() as others:  # each waits for programs that it starts
        parts = others.submit(part_checks, installation, found[0].state_home_path, environ, install)
        trusted = others.submit(_trusted, installation, environ)
        held = []
        if program and script.ok:
            held = prove_hold(
                installation, _stop_line(installation, found), program, environ, make_held_session
            )
        return [
            _registered(installation, found, install),
            _doubled(installation, found),
            _timeouts(installation, found, install),
            _shared(found, state_home_path, install),
            _switched_on(installation, environ),
            *_cap(installation, text, environ),
            *trusted.result(),
            script,
            *held,
            *parts.result(),
        ]


def _read_settings(installation: Installation, install: str) -> tuple[str, list[Registered]] | Check:
    path = installation.settings_path
    try:
        text = _settings_text(path)
        found = hook_settings.registered(text, comments=installation.allows_comments)
    except JsonTextFault as fault:
        what = f"{path}, line {fault.line}: {fault}; the client ignores the file"
        return Check("settings", False, what, "mend that line")
    except (OSError, UnicodeDecodeError) as error:
        return Check("settings", False, f"{path} cannot be read: {error}", "mend the file")
    return (text, found) if found else Check("settings", False, f"no hook of ours stands in {path}", install)


def _settings_text(path: str) -> str:
    try:
        with open(path, "rb") as source:
            return source.read(_MAX_SETTINGS_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        return ""


def _registered(installation: Installation, found: list[Registered], install: str) -> Check:
    present = {one.event for one in found}
    missing = [e.native_event for e in installation.client.entries if e.native_event not in present]
    if missing:
        return Check("settings", False, f"no hook of ours for: {', '.join(missing)}", install)
    known = {entry.native_event for entry in installation.client.entries}
    lines = {one.event: one for one in found}
    old = [
        entry.native_event
        for entry in installation.client.entries
        if lines[entry.native_event].line
        != hook_line(entry, installation.client.name, lines[entry.native_event].state_home_path)
    ]
    old += sorted(present - known)
    if old:
        return Check("settings", False, f"the hook is of an earlier version for: {', '.join(old)}", install)
    return Check("settings", True, f"{len(present)} events are registered in {installation.settings_path}")


def _doubled(installation: Installation, found: list[Registered]) -> Check:
    events = [one.event for one in found]
    twice = sorted({event for event in events if events.count(event) > 1})
    if twice:
        what = f"registered more than once in {installation.settings_path}: {', '.join(twice)}"
        return Check("once", False, what, f"run `omx-autoresearch install {installation.client.name}` again")
    for path in (*installation.other_settings_paths, *_plugin_files(installation.plugins_path)):
        with contextlib.suppress(OSError, ValueError):  # a file that cannot be read registers nothing
            if os.path.realpath(path) != os.path.realpath(
                installation.settings_path
            ) and hook_settings.registered(_settings_text(path), comments=True):
                return Check(
                    "once",
                    False,
                    f"registered in {path} as well: each stop is asked twice",
                    _cure_of_double(installation, path),
                )
    return Check("once", True, "each event is registered once")


def _cure_of_double(installation: Installation, path: str) -> str:
    """How to take out what a second file registers; ``uninstall`` where it wrote that file."""
    other = "project" if installation.scope == "user" else "user"
    if os.path.basename(path) == os.path.basename(installation.settings_path):
        return (
            f"omx-autoresearch uninstall {installation.client.name} --scope {other}; or take it out of {path}"
        )
    return f"take it out of {path}"


def _plugin_files(plugins_path: str) -> Iterator[str]:
    seen = 0
    for folder_path, _, names in os.walk(plugins_path) if plugins_path else ():
        seen += len(names)
        if seen > _MAX_PLUGIN_FILES:
            return
        if "hooks.json" in names:
            yield os.path.join(folder_path, "hooks.json")


def _timeouts(installation: Installation, found: list[Registered], install: str) -> Check:
    wanted = {
        e.native_event: e.timeout_seconds * installation.timeouts_per_second
        for e in installation.client.entries
    }
    unit = "ms" if installation.timeouts_per_second == 1000 else "s"
    for one in found:
        least = wanted.get(one.event, 0)
        if one.timeout is None or one.timeout < least:
            shown = "no time-out" if one.timeout is None else f"a time-out of {one.timeout:g} {unit}"
            return Check(
                "time-outs", False, f"{one.event} has {shown}, at least {least} {unit} are needed", install
            )
    return Check("time-outs", True, f"every hook has its time-out in {unit}")


def _shared(found: list[Registered], state_home_path: str, install: str) -> Check:
    for one in found:
        if os.path.realpath(one.state_home_path) != os.path.realpath(state_home_path):
            what = (
                f"the hook of {one.event} looks in {one.state_home_path}, this command in {state_home_path}"
            )
            return Check("registry", False, what, f"set OMX_AUTORESEARCH_HOME alike for both, or {install}")
    return Check("registry", True, f"the hooks and this command share {state_home_path}")


def _switched_on(installation: Installation, environ: Mapping[str, str]) -> Check:
    faults = []
    for path in (installation.settings_path, *installation.other_settings_paths):
        with contextlib.suppress(OSError, ValueError):
            faults += [
                f"{fault} in {path}"
                for fault in hook_settings.switch_faults(_settings_text(path), installation)
            ]
    if installation.trust_path:
        faults += [
            f"{fault} in {installation.trust_path}"
            for fault in hook_trust.switch_faults(installation.trust_path)
        ]
    if environ.get("CLAUDE_CODE_SIMPLE") and installation.client.name == "claude":
        faults.append("CLAUDE_CODE_SIMPLE is set")
    if faults:
        return Check(
            "switched on", False, f"hooks are switched off: {'; '.join(faults)}", "take that setting out"
        )
    return Check("switched on", True, "no setting switches hooks off")


def _cap(installation: Installation, text: str, environ: Mapping[str, str]) -> list[Check]:
    checks = []
    for name, wanted in installation.environment:
        value = hook_settings.environment_value(text, installation, name) or environ.get(name, "")
        what = f"{name} is {value or 'not set'}"
        is_raised = value.isdigit() and (int(value) == 0 or int(value) >= int(wanted))
        cure = f"set {name} to {wanted} in `env` of {installation.settings_path}, else the client overrides refusals"
        checks.append(Check("cap", is_raised, what, "" if is_raised else cure))
    return checks


def _trusted(installation: Installation, environ: Mapping[str, str]) -> list[Check]:
    if not installation.trust_path:
        return []
    title = installation.client.title
    states = hook_trust.trust_states(installation, environ)
    if states is None:
        return [
            Check(
                "trust",
                False,
                f"{title} could not be asked which hooks it trusts",
                "run /hooks in it and look",
            )
        ]
    bad = [state.key for state in states if state.status != "trusted" or not state.is_enabled]
    if bad or not states:
        what = (
            f"{title} skips {len(bad)} of our hooks, untrusted or disabled"
            if states
            else f"{title} sees no hook of ours"
        )
        return [
            Check(
                "trust",
                False,
                what,
                f"run `omx-autoresearch install {installation.client.name}`, or trust them by /hooks",
            )
        ]
    return [Check("trust", True, f"{title} trusts all {len(states)} hooks")]


def _script(state_home_path: str, install: str) -> tuple[HookProgram | None, Check]:
    path = f"{state_home_path}/hook"
    if not os.access(path, os.X_OK):
        return None, Check(
            "script", False, f"{path} is not there or not executable: no session is held", install
        )
    try:
        with open(path, encoding="utf-8") as source:
            program = program_of_script(source.read())
    except (OSError, UnicodeDecodeError):
        program = None
    if program is None:
        return None, Check("script", False, f"{path} is not the script that the installer writes", install)
    if program.state_home_path != state_home_path:
        return program, Check("script", False, f"{path} looks in {program.state_home_path}", install)
    if not os.access(program.python_path, os.X_OK):
        return program, Check("script", False, f"the interpreter {program.python_path} is gone", install)
    if not os.access(program.entry_path, os.R_OK):
        return program, Check("script", False, f"the hook program {program.entry_path} is gone", install)
    return program, Check("script", True, f"{path} starts {program.python_path}")


def _stop_line(installation: Installation, found: list[Registered]) -> str:
    event = installation.client.entries[0].native_event
    return next((one.line for one in found if one.event == event), "")
