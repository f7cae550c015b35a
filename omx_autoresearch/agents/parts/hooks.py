"""Our hooks in a client's settings, and the variables that they need there.

All clients share one shape: ``{"hooks": {EVENT: [{"matcher": M, "hooks": [HANDLER, ...]}, ...]}}``. A handler is ours
if its command is a line that :mod:`omx_autoresearch.agents.hook_lines` composes, for any state home.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from omx_autoresearch.agents.hook_lines import hook_line, program_of_script, state_home_of_line
from omx_autoresearch.agents.parts import Check, Part
from omx_autoresearch.agents.parts.hold_proof import prove_hold
from omx_autoresearch.agents.parts.switches import is_raised, lowered_caps, turned_off
from omx_autoresearch.agents.settings_files import readable_text
from omx_autoresearch.agents.settings_text import (
    TextFault,
    value_at,
    with_value,
    without_value,
)
from omx_autoresearch.system.files import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omx_autoresearch.agents.events import HookEntry
    from omx_autoresearch.agents.hook_lines import HookProgram
    from omx_autoresearch.agents.parts import Change, Examination, Installation
    from omx_autoresearch.agents.settings_files import SettingsFile
    from omx_autoresearch.agents.settings_text import Keys

_AT_THE_END = 1_000_000
_MAX_PLUGIN_FILES = 20_000
_IMPORT_SECONDS = 60.0
_IMPORT_ALL = """\
import sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    try:
        __import__(name)
    except Exception as error:
        print(name, " ".join(str(error).split()))
"""


@dataclass(frozen=True)
class Registered:
    """One of our handlers in a settings text.

    Attributes:
        event: the client's event name.
        group: the index in the event's list.
        handler: the index in the group.
        line: the command.
        timeout: in the client's unit; None if it is missing or not a number.
        has_matcher: its group names a matcher; the installer writes none.
        is_alone: the group holds nothing else.
    """

    event: str
    group: int
    handler: int
    line: str
    timeout: float | None
    has_matcher: bool
    is_alone: bool

    @property
    def state_home_path(self) -> str:
        """The state home in the line."""
        return state_home_of_line(self.line)

    @property
    def group_keys(self) -> Keys:
        """The key path of its group."""
        return ("hooks", self.event, self.group)

    @property
    def keys(self) -> Keys:
        """The key path of the handler in the settings."""
        return (*self.group_keys, "hooks", self.handler)


def registered(text: str, *, comments: bool) -> list[Registered]:
    """Find our handlers, in the order of the text.

    Raises:
        TextFault: the text cannot be read, or ``hooks`` has another shape.
    """
    return [
        one
        for event, groups in _events(text, comments=comments).items()
        for number, group in enumerate(groups)
        for one in _in_group(event, number, group)
    ]


def _events(text: str, *, comments: bool) -> dict[str, list[Any]]:
    settings = value_at(text, (), comments=comments) if text.strip() else {}
    if not isinstance(settings, dict):
        raise TextFault("the settings are not an object")
    events = settings.get("hooks", {})
    if not isinstance(events, dict):
        raise TextFault('"hooks" is not an object', text, max(0, text.find('"hooks"')))
    return {event: groups for event, groups in events.items() if isinstance(groups, list)}


def _in_group(event: str, number: int, group: object) -> Iterator[Registered]:
    handlers = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(group, dict) or not isinstance(handlers, list):
        return
    for place, handler in enumerate(handlers):
        line = handler.get("command") if isinstance(handler, dict) else None
        if isinstance(line, str) and state_home_of_line(line):
            timeout = handler.get("timeout")
            number_of = timeout if isinstance(timeout, (int, float)) and timeout is not True else None
            has_matcher, is_alone = bool(group.get("matcher")), len(handlers) == 1
            yield Registered(event, number, place, line, number_of, has_matcher, is_alone)


def _handler(installation: Installation, entry: HookEntry, state_home_path: str) -> dict[str, object]:
    name: dict[str, object] = {"name": installation.handler_name} if installation.handler_name else {}
    return {
        "type": "command",
        **name,
        "command": hook_line(entry, installation.client.name, state_home_path),
        "timeout": entry.timeout_seconds * installation.timeouts_per_second,
    }


class Hooks(Part):
    """The part for the hooks."""

    name = "hooks"

    def path(self, installation: Installation) -> str:
        """The client's settings file."""
        return installation.settings_path

    def add(self, file: SettingsFile, change: Change) -> None:
        """Register each event once; a variable that a person set keeps its value."""
        assert change.program, "an installation has a program"
        text, installation, home_path = file.text, change.installation, change.program.state_home_path
        comments = installation.allows_comments
        there = value_at(text, ("env",), comments=comments)
        names = there if isinstance(there, dict) else {}
        known = change.memory.get("environment", ())
        added = tuple(
            name
            for name, _ in installation.environment
            if name not in names or (name in known and names[name] in installation.former_values)
        )
        change.memory["environment"] = added or known
        entries = {entry.native_event: entry for entry in installation.client.entries}
        text = _without_handlers(text, keep_first_of=set(entries), comments=comments)
        for event, entry in entries.items():
            handler = _handler(installation, entry, home_path)
            older = next((one for one in registered(text, comments=comments) if one.event == event), None)
            if older and not (older.is_alone and older.has_matcher):
                text = with_value(text, older.keys, handler, comments=comments)
            else:
                keys = older.group_keys if older else ("hooks", event, _AT_THE_END)
                text = with_value(text, keys, {"hooks": [handler]}, comments=comments)
        for name, value in installation.environment:
            if name in added:
                text = with_value(text, ("env", name), value, comments=comments)
        if added and installation.environment_note:
            change.notes.append(installation.environment_note)
        file.text = text

    def remove(self, file: SettingsFile, change: Change) -> None:
        """Remove our handlers, and the variables that we added if they still have our value."""
        installation = change.installation
        comments = installation.allows_comments
        text = _without_handlers(file.text, keep_first_of=set(), comments=comments)
        added = change.memory.get("environment", dict(installation.environment))
        for name, value in installation.environment:
            ours = (value, *installation.former_values)
            if name in added and value_at(text, ("env", name), comments=comments) in ours:
                text = without_value(text, ("env", name), comments=comments)
        file.text = text

    def check(self, examination: Examination) -> list[Check]:
        """Check the settings and the script, and prove that the installed line holds a session."""
        installation, install = examination.installation, examination.install
        text = readable_text(installation.settings_path)
        found = registered(text, comments=installation.allows_comments)
        program, script = _script(examination)
        checks = [
            _registered(examination, found),
            _doubled(installation, found, install),
            _timeouts(installation, found, install),
            _shared(examination, found),
            _switched_on(examination),
            *_caps(examination, text),
            script,
        ]
        if program:
            checks.append(_packages(examination, program))
            event = installation.client.entries[0].native_event
            line = next((one.line for one in found if one.event == event), "")
            checks += prove_hold(examination, line, program)
        return checks


PART = Hooks()


def hooks_home(installation: Installation, install: str) -> Check | str:
    """The state home that the installed hooks use, or the check that found no hooks."""
    path = installation.settings_path
    try:
        with open(path, "rb") as source:
            text = source.read().decode("utf-8-sig")
        found = registered(text, comments=installation.allows_comments)
    except FileNotFoundError:
        found = []
    except TextFault as fault:
        what = f"{path}, line {fault.line}: {fault}; the client ignores the file"
        return Check("settings", False, what, "fix that line")
    except (OSError, UnicodeDecodeError) as error:
        return Check("settings", False, f"{path} cannot be read: {error}", "fix the file")
    if not found:
        return Check("settings", False, f"{path} has none of our hooks", install)
    return found[0].state_home_path


def others_behind(text: str) -> bool:
    """Whether another handler follows one of ours in the same list, so that its index changes."""
    events = _events(text, comments=True)
    ours = {(one.event, one.group) for one in registered(text, comments=True)}
    return any((event, number + 1) not in ours and number + 1 < len(events[event]) for event, number in ours)


def _without_handlers(text: str, *, keep_first_of: set[str], comments: bool) -> str:
    """Remove our handlers but the first of some events, from the end: a removal shifts the handlers behind it."""
    found = registered(text, comments=comments)
    events = [one.event for one in found]
    for place, one in reversed(list(enumerate(found))):
        if one.event in events[:place] or one.event not in keep_first_of:
            rest = next(
                now for now in registered(text, comments=comments) if now.keys == one.keys
            )  # it may be alone by now
            text = without_value(text, rest.group_keys if rest.is_alone else rest.keys, comments=comments)
    return text


def _registered(examination: Examination, found: list[Registered]) -> Check:
    installation = examination.installation
    lines = {one.event: one for one in found}
    entries = {entry.native_event: entry for entry in installation.client.entries}
    if missing := [event for event in entries if event not in lines]:
        return Check("settings", False, f"our hook is missing for: {', '.join(missing)}", examination.install)
    old = [
        event
        for event, entry in entries.items()
        if lines[event].line != hook_line(entry, installation.client.name, lines[event].state_home_path)
    ]
    if old := old + sorted(set(lines) - set(entries)):
        what = f"the hook of an earlier version is registered for: {', '.join(old)}"
        return Check("settings", False, what, examination.install)
    return Check("settings", True, f"{len(lines)} events are registered in {installation.settings_path}")


def _doubled(installation: Installation, found: list[Registered], install: str) -> Check:
    path = installation.settings_path
    events = [one.event for one in found]
    if twice := sorted({event for event in events if events.count(event) > 1}):
        what = f"registered more than once in {path}: {', '.join(twice)}"
        return Check("once", False, what, f"{install} again")
    for other in (*installation.other_settings_paths, *_plugin_files(installation.plugins_path)):
        if os.path.realpath(other) == os.path.realpath(path) or not _has_ours(other):
            continue
        cure = f"remove it from {other}"
        if os.path.basename(other) == os.path.basename(path):  # `uninstall` can, since `install` wrote it
            scope = "project" if installation.scope == "user" else "user"
            cure = f"omx-autoresearch uninstall {installation.client.name} --scope {scope}; or {cure}"
        return Check("once", False, f"also registered in {other}: each stop is judged twice", cure)
    return Check("once", True, "each event is registered once")


def _has_ours(path: str) -> bool:
    try:
        return bool(registered(readable_text(path), comments=True))
    except TextFault:
        return False  # a file that cannot be read registers nothing


def _plugin_files(plugins_path: str) -> Iterator[str]:
    for _, entry in islice(walk(plugins_path), _MAX_PLUGIN_FILES) if plugins_path else ():
        if entry.name == "hooks.json":
            yield entry.path


def _timeouts(installation: Installation, found: list[Registered], install: str) -> Check:
    factor = installation.timeouts_per_second
    unit = "ms" if factor == 1000 else "s"
    wanted = {entry.native_event: entry.timeout_seconds * factor for entry in installation.client.entries}
    for one in found:
        least = wanted.get(one.event, 0)
        if one.timeout is None or one.timeout < least:
            shown = "no time-out" if one.timeout is None else f"a time-out of {one.timeout:g} {unit}"
            what = f"{one.event} has {shown}; it needs at least {least} {unit}"
            return Check("time-outs", False, what, install)
    return Check("time-outs", True, "every hook has a long enough time-out")


def _shared(examination: Examination, found: list[Registered]) -> Check:
    home_path = examination.state_home_path
    for one in found:
        if os.path.realpath(one.state_home_path) != os.path.realpath(home_path):
            what = (
                f"the {one.event} hook uses the state in {one.state_home_path}, this command uses {home_path}"
            )
            cure = f"set OMX_AUTORESEARCH_HOME to the same folder for both, or {examination.install}"
            return Check("registry", False, what, cure)
    return Check("registry", True, f"the hooks and this command share {home_path}")


def _switched_on(examination: Examination) -> Check:
    if faults := turned_off(examination.installation, examination.environ):
        what = f"hooks are turned off: {'; '.join(faults)}"
        return Check("switched on", False, what, "remove that setting")
    return Check("switched on", True, "no setting turns hooks off")


def _caps(examination: Examination, text: str) -> list[Check]:
    installation = examination.installation
    lowered = lowered_caps(installation)
    checks = []
    for name, wanted in installation.environment:
        value = value_at(text, ("env", name), comments=installation.allows_comments)
        value = str(value or examination.environ.get(name, ""))
        found = [one for one in lowered if one.startswith(f"{name} ")]
        what = found[0] if found else f"{name} is {value or 'not set'}"
        ok = not found and is_raised(value, wanted)
        if ok and installation.environment_note:
            what += f"; {installation.environment_note}" if value == wanted else ""
        where = f"`env` of {installation.settings_path}"
        cure = (
            f"set {name} to {wanted} in {where}, and nowhere lower; otherwise the client overrides refusals"
        )
        checks.append(Check("cap", ok, what, "" if ok else cure))
    return checks


def _script(examination: Examination) -> tuple[HookProgram | None, Check]:
    home_path = examination.hooks_home_path
    path = f"{home_path}/hook"
    program = program_of_script(readable_text(path))
    if not os.access(path, os.X_OK):
        fault = f"{path} is missing or not executable, so no session is held"
    elif program is None:
        fault = f"{path} is not the script that the installer writes"
    elif program.state_home_path != home_path:
        fault = f"{path} uses another state home: {program.state_home_path}"
    elif not os.access(program.python_path, os.X_OK):
        fault = f"the interpreter {program.python_path} no longer exists"
    elif not os.access(program.entry_path, os.R_OK):
        fault = f"the hook program {program.entry_path} no longer exists"
    else:
        return program, Check("script", True, f"{path} starts {program.python_path}")
    return None, Check("script", False, fault, examination.install)


def _folder_of(program: HookProgram) -> str:
    """Where the package stands, which the hook puts first; beside it stand the packages of a ``pip install --user``."""
    return os.path.dirname(os.path.dirname(os.path.dirname(program.entry_path)))


def _packages(examination: Examination, program: HookProgram) -> Check:
    """Whether the hook's interpreter can load every package that some events need, such as a change of phase."""
    try:
        done = subprocess.run(
            [program.python_path, "-I", "-c", _IMPORT_ALL, _folder_of(program), *examination.packages],
            capture_output=True,
            env=dict(examination.environ),
            timeout=_IMPORT_SECONDS,
            check=False,
        )
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        fault = done.stderr.decode("utf-8", "replace").strip()[-200:] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        lines, fault = [], str(error)
    faults = dict(line.partition(" ")[::2] for line in lines)
    if not faults and not fault:
        return Check("packages", True, "the hook's interpreter has every package that it needs")
    what = (
        f"the hook's interpreter cannot load {', '.join(faults) or 'its packages'}, so some events would fail"
    )
    names = " ".join(examination.packages[name] for name in faults or examination.packages)
    cure = f"run `{program.python_path} -m pip install {names}`, then `omx-autoresearch doctor` again"
    return Check("packages", False, f"{what}: {'; '.join(faults.values()) or fault}", cure)
