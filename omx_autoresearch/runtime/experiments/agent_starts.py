"""Whether an agent's command can be started at all, known before a trial is spent on it."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from typing import TYPE_CHECKING

from omx_autoresearch.errors import UsageError
from omx_autoresearch.system.commands import explain_shell_status
from omx_autoresearch.system.starting import explain_start

if TYPE_CHECKING:
    from collections.abc import Mapping

CANNOT_START = (126, 127)
"""Exit statuses of a shell that found no such program, or may not run it (POSIX, Shell Command Language, 2.8.2)."""
_SHELL_SYNTAX = frozenset(";&|<>()`$\n#*?[~\\!")
"""With one of these the first word need not be what is run, or not everything; such a line is simply run."""
_PLAIN = re.compile(r"\s*(?P<program>[A-Za-z0-9_./+@%:,-]+)(?:\s|$)")
_LOOK_SECONDS = 10.0


def require_startable(line: str, environ: Mapping[str, str], cwd: str) -> None:
    """Let a command line pass, unless its program cannot be started for certain.

    Args:
        line: for the shell, with or without placeholders.
        environ: that it would be run in.
        cwd: likewise; empty where that folder is not there yet: then a relative path is not looked at.

    Raises:
        UsageError: there is no such program, or it may not be run; nothing was spent.
    """
    if fault := start_fault(line, environ, cwd):
        raise UsageError(
            f"the command cannot be started, so no trial was begun: {fault}",
            next_step='mend the command, then the same again, such as --agent "claude -p"',
        )


def start_fault(line: str, environ: Mapping[str, str], cwd: str) -> str:
    """Why the program of a plain command line cannot be started; empty where it can, and where nobody can tell."""
    found = _PLAIN.match(line)
    if found is None or _SHELL_SYNTAX & set(line):
        return ""
    program = found["program"]
    if "/" not in program:
        is_there = _is_known(program, environ, cwd)
        return "" if is_there else explain_start(errno.ENOENT, program, cwd)
    if not os.path.isabs(program) and not os.path.isdir(cwd):
        return ""
    path = os.path.join(cwd, program)
    status = 127 if not os.path.exists(path) else 126
    is_fit = os.path.isfile(path) and os.access(path, os.X_OK)
    return "" if is_fit else explain_shell_status(program, status, cwd)


def _is_known(name: str, environ: Mapping[str, str], cwd: str) -> bool:
    """The shell itself says: a program on PATH, a word of its own; True where it cannot be asked."""
    try:
        asked = subprocess.run(
            ["/bin/sh", "-c", 'command -v "$1"', "sh", name],
            cwd=cwd if os.path.isdir(cwd) else "/",
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LOOK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return asked.returncode == 0
