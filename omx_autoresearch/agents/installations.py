"""Where and how our hooks stand in a client's settings: as values and texts, touching no file.

The line that a client runs is short and does not change between versions, because clients show it to the model and
hash it for trust. It ends with 0 and prints nothing where the script is missing, and with nothing active for this user
no further process starts. It is good for sh, bash, zsh and fish, since Codex runs it by the user's own shell; hence
there is no glob in it: the registry's ``active`` folder exists exactly while something is bound or pending.

The script beside it names the interpreter and the entry module. It is rewritten by an upgrade; the line is not.
"""

from __future__ import annotations

import re
from typing import Literal

from omx_autoresearch.agents.events import Client, HookEntry
from omx_autoresearch.agents.tool_servers import ToolServer
from omx_autoresearch.foundation.records import dataclass

Scope = Literal["user", "project"]
"""Whose settings: all of the user's sessions, or those in one project."""


@dataclass(frozen=True, slots=True)
class HookProgram:
    """What a hook runs; all paths absolute.

    Attributes:
        state_home_path: the folder that holds ``active/`` and the script ``hook``.
        python_path: the interpreter.
        entry_path: the module file that the interpreter is given.
        tool_options: further words for the server of the tools (MCP).
    """

    state_home_path: str
    python_path: str
    entry_path: str
    tool_options: tuple[str, ...] = ()

    @property
    def script_path(self) -> str:
        """The script that the client's line starts."""
        return f"{self.state_home_path}/hook"


@dataclass(frozen=True, slots=True)
class Installation:
    """Where one client's hooks are set, and in which form.

    Attributes:
        client: the facts about the client; its ``entries`` are what is registered.
        scope: whose settings file.
        settings_path: the JSON file that is changed.
        other_settings_paths: further files that the client reads hooks from, to find a second registration.
        plugins_path: the folder of the client's plugins or extensions, looked through for the same reason.
        timeouts_per_second: the client's unit of a hook's time-out, 1 for seconds and 1000 for milliseconds.
        handler_name: a name to write beside the command; empty where the client knows none.
        environment: variables for the client's ``env`` setting; a value of the user's is kept.
        allows_comments: the client reads JSON with comments; else it ignores a file that has one.
        off_switches: paths of settings that turn hooks off when true.
        on_switches: paths of settings that turn hooks off when false.
        trust_path: the file that keeps the hashes of trusted hooks; empty where the client keeps none.
        hook_shell: how the client runs a hook's line.
        has_status_line: ``statusLine`` of the settings names a command whose first line the client shows.
        server: where the client registers MCP servers; None where it knows none.
        skill_path: the file that tells the client's agent how to work on a mission; empty where it must have none.
        hiding_paths: files that take the typed prompt command away from our hook, as far as they stand there.
    """

    client: Client
    scope: Scope
    settings_path: str
    other_settings_paths: tuple[str, ...] = ()
    plugins_path: str = ""
    timeouts_per_second: int = 1
    handler_name: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    allows_comments: bool = False
    off_switches: tuple[tuple[str, ...], ...] = ()
    on_switches: tuple[tuple[str, ...], ...] = ()
    trust_path: str = ""
    hook_shell: tuple[str, ...] = ("sh", "-c")
    has_status_line: bool = False
    server: ToolServer | None = None
    skill_path: str = ""
    hiding_paths: tuple[str, ...] = ()


def path_fault(path: str) -> str:
    """Say why a path cannot stand in a hook's line; empty when it can.

    Shells and clients agree on everything but these characters (Gemini replaces ``$NAME``, fish reads a backslash in
    single quotes).
    """
    if not path.startswith("/"):
        return "it is not absolute"
    bad = sorted({char for char in path if ord(char) < 32 or char in '$`\\"\x7f'})
    return f"it holds {bad[0]!r}" if bad else ""


def quoted(path: str) -> str:
    """Quote a path for a shell, only where it needs that."""
    return path if re.fullmatch(r"[\w@%+:,./-]+", path, re.ASCII) else "'" + path.replace("'", "'\\''") + "'"


def hook_line(entry: HookEntry, client_name: str, state_home_path: str) -> str:
    """Compose the command that a client runs for one event.

    Example:
        ``[ -d S/active ] && [ -x S/hook ] && exec S/hook claude; exit 0``
    """
    active, script = quoted(f"{state_home_path}/active"), quoted(f"{state_home_path}/hook")
    guard = {
        "active": f"[ -d {active} ] && ",
        "start": f'[ -d {active} ] || [ -n "$OMX_AUTORESEARCH_TASK" ] && ',
        "always": "",
    }[entry.guard]
    return f"{guard}[ -x {script} ] && exec {script} {client_name}; exit 0"


def status_line(state_home_path: str) -> str:
    """Compose the command that a client runs for its status line; nothing starts for who never had a mission.

    Not the registry's folder is looked for: a mission that has just ended has left it, and is still shown.

    Example:
        ``[ -d S/missions ] && [ -x S/hook ] && exec S/hook statusline; exit 0``
    """
    missions, script = quoted(f"{state_home_path}/missions"), quoted(f"{state_home_path}/hook")
    return f"[ -d {missions} ] && [ -x {script} ] && exec {script} statusline; exit 0"


_STATUS_LINE = re.compile(
    r"\[ -d (?P<missions>.+) \] && \[ -x (?P<script>.+) \] && exec (?P=script) statusline; exit 0"
)


def is_status_line(command: object) -> bool:
    """Say whether a status line's command is ours, for whatever state home."""
    return isinstance(command, str) and bool(_STATUS_LINE.fullmatch(command))


_LINE = re.compile(
    r"(?:\[ -d (?P<active>.+)/active'? \] (?:\|\| \[ -n \"\$OMX_AUTORESEARCH_TASK\" \] )?&& )?"
    r"\[ -x (?P<script>.+) \] && exec (?P=script) (?P<client>[a-z]+); exit 0"
)


def state_home_of_line(line: str) -> str:
    """Give the state home that is baked into a line of ours; empty when the line is not ours.

    This is how our entries are recognised, wherever an earlier installation kept its state.
    """
    match = _LINE.fullmatch(line)
    if not match:
        return ""
    script = match["script"]
    if script.startswith("'") and script.endswith("'"):
        script = script[1:-1].replace("'\\''", "'")
    return script.removesuffix("/hook") if script.endswith("/hook") and script.startswith("/") else ""


_SCRIPT = """\
#!/bin/sh
# Started by the hooks of agent CLIs; written by `omx-autoresearch install`.
# Whatever is missing lets the agent go: an interpreter that cannot open its script ends with 2, which means "refuse".
state_home={state_home}
python={python}
entry={entry}
[ -x "$python" ] && [ -r "$entry" ] && exec "$python" -I -S "$entry" "$state_home" "$1"
exit 0
"""


def hook_script(program: HookProgram) -> str:
    """Compose the script that a client's line starts."""
    return _SCRIPT.format(
        state_home=_always_quoted(program.state_home_path),
        python=_always_quoted(program.python_path),
        entry=_always_quoted(program.entry_path),
    )


def program_of_script(text: str) -> HookProgram | None:
    """Read a script of ours back; None when it is not exactly one."""
    found: list[str] = []
    for name in ("state_home", "python", "entry"):
        match = re.search(rf"^{name}='(.*)'$", text, re.MULTILINE)
        if not match:
            return None
        found.append(match[1].replace("'\\''", "'"))
    state_home_path, python_path, entry_path = found
    program = HookProgram(state_home_path, python_path, entry_path)
    return program if hook_script(program) == text else None


def _always_quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"


def handler_of(installation: Installation, entry: HookEntry, state_home_path: str) -> dict[str, object]:
    """Compose one handler as the client's settings hold it."""
    handler: dict[str, object] = {"type": "command"}
    if installation.handler_name:
        handler["name"] = installation.handler_name
    handler["command"] = hook_line(entry, installation.client.name, state_home_path)
    handler["timeout"] = entry.timeout_seconds * installation.timeouts_per_second
    return handler


def group_of(installation: Installation, entry: HookEntry, state_home_path: str) -> dict[str, object]:
    """Compose one element of an event's list: a matcher, where the event takes one, and our handler."""
    group: dict[str, object] = {"matcher": entry.matcher} if entry.matcher else {}
    group["hooks"] = [handler_of(installation, entry, state_home_path)]
    return group
