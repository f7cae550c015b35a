"""The line that a client runs as our hook, and the script that the line starts, as texts.

The line is short and does not change between versions, because clients show it to the model and hash it for trust. If
the script is missing, the line exits with 0 and prints nothing; if nothing is active for this user, it starts no other
process. It works in sh, bash, zsh and fish, since Codex runs it in the user's shell. So it has no glob: the registry's
``active`` folder exists exactly while something is bound or pending.

The script names the interpreter and the entry module. An upgrade rewrites the script, but not the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omx_autoresearch.agents.events import HookEntry


@dataclass(frozen=True, slots=True)
class HookProgram:
    """The program of the hooks; all paths are absolute.

    Attributes:
        state_home_path: the folder with ``active/`` and the script ``hook``.
        python_path: the interpreter.
        entry_path: the module file that the interpreter runs.
        tool_options: further arguments for the server of tools (MCP).
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
    """Why a path cannot be part of a hook's line; empty if it can.

    Shells and clients disagree about these characters: Gemini replaces ``$NAME``, and fish interprets a backslash in
    single quotes.
    """
    if not path.startswith("/"):
        return "it is not absolute"
    bad = sorted({char for char in path if ord(char) < 32 or char in '$`\\"\x7f'})
    return f"it contains {bad[0]!r}" if bad else ""


def quoted(path: str) -> str:
    """Quote a path for a shell, if it needs quotes."""
    return path if re.fullmatch(r"[\w@%+:,./-]+", path, re.ASCII) else "'" + path.replace("'", "'\\''") + "'"


def hook_line(entry: HookEntry, client_name: str, state_home_path: str) -> str:
    """The command that a client runs for one event.

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
    """The state home in one of our lines; empty for any other line.

    We recognize our entries by it, wherever an earlier installation kept its state.
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
    """The script that a client's line starts."""
    return _SCRIPT.format(
        state_home=_always_quoted(program.state_home_path),
        python=_always_quoted(program.python_path),
        entry=_always_quoted(program.entry_path),
    )


def program_of_script(text: str) -> HookProgram | None:
    """The program in our script; None for any other text."""
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
