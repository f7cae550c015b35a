"""The line that a client runs as our hook, and the script that it starts: as texts, touching no file.

The line that a client runs is short and does not change between versions, because clients show it to the model and
hash it for trust. It ends with 0 and prints nothing where the script is missing, and with nothing active for this user
no further process starts. It is good for sh, bash, zsh and fish, since Codex runs it by the user's own shell; hence
there is no glob in it: the registry's ``active`` folder exists exactly while something is bound or pending.

The script beside it names the interpreter and the entry module. It is rewritten by an upgrade; the line is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omx_autoresearch.agents.events import HookEntry


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


_LINE = re.compile(
    r"(?:\[ -d (?P<active>.+)/active'? \] (?:\|\| \[ -n \"\$OMX_AUTORESEARCH_TASK\" \] )?&& )?"
    r"\[ -x (?P<script>.+) \] && exec (?P=script) (?P<client>[a-z]+); exit 0"
)


def state_home_of_line(line: str) -> str:
    """Give the state home that is baked into one of our lines; empty for any other line.

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
    """Read our script back; None for any other text."""
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
