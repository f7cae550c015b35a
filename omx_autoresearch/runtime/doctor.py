"""Is an agent held at all? Looking at what stands in the client's settings, and trying it.

Every check is a value. The last two run the very line that is installed, in the shell that the client uses, with a
synthetic stop: once for a session that holds an unfinished mission in a scratch state home, once for another one. The
mission must be refused, the other session must be let go without a byte.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from omx_autoresearch.core import hook_settings
from omx_autoresearch.core.installations import hook_line, program_of_script
from omx_autoresearch.core.json_text import JsonTextFault
from omx_autoresearch.runtime import hook_trust
from omx_autoresearch.runtime.hold_proof import Check, prove_hold
from omx_autoresearch.runtime.part_checks import part_checks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from omx_autoresearch.core.hook_settings import Registered
    from omx_autoresearch.core.installations import HookProgram, Installation

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
