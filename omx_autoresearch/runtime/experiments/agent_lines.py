"""The command line of an agent: its placeholders filled in so that a shell reads each as exactly one word. Pure.

``{prompt}`` is the whole prompt, ``{prompt_file}`` and ``{workspace}`` are absolute paths; they may stand bare or in
either kind of quotes. Every other brace stays as it is. The prompt is on stdin, too.
"""

from __future__ import annotations

import re
import shlex

from omx_autoresearch.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PLACEHOLDERS = ("prompt", "prompt_file", "workspace")
LINE_LIMIT_BYTES = 128 * 1024 - 1
"""What Linux takes as one argument, with its NUL (MAX_ARG_STRLEN, execve(2)); the shell gets the line as one."""

_PLACEHOLDER = re.compile(r"\{(" + "|".join(sorted(PLACEHOLDERS, key=len, reverse=True)) + r")\}")


def filled(line: str, values: Mapping[str, str]) -> str:
    """The line with every placeholder replaced by its value, quoted for where it stands.

    Args:
        line: as the owner gave it, for ``/bin/sh``.
        values: by the names of `PLACEHOLDERS`.
    """
    parts: list[str] = []
    quotes = [""]  # of the level we are in; `$(` begins a level of its own, also within double quotes
    position = 0
    while position < len(line):
        found = _PLACEHOLDER.match(line, position)
        if found is not None:
            parts.append(f"{quotes[-1]}{shlex.quote(values[found[1]])}{quotes[-1]}")
            position = found.end()
            continue
        # a character behind a backslash is no quote; within single quotes the backslash is nothing special
        width = 2 if line[position] == "\\" and quotes[-1] != "'" else 1
        _follow(quotes, line[position : position + 2])
        parts.append(line[position : position + width])
        position += width
    return "".join(parts)


def _follow(quotes: list[str], ahead: str) -> None:
    """The quote that stands open behind the first character of ``ahead``, level by level."""
    char = ahead[0]
    if char in "'\"" and quotes[-1] in ("", char):
        quotes[-1] = "" if quotes[-1] else char
    elif ahead == "$(" and quotes[-1] != "'":
        quotes.append("")
    elif char == ")" and not quotes[-1] and len(quotes) > 1:
        quotes.pop()


def agent_script(line: str, *, prompt: str, prompt_path: str, workspace_path: str) -> str:
    """What ``/bin/sh -c`` is given: the agent's line, with the prompt on stdin.

    Raises:
        UsageError: the prompt is too long for a command line.
    """
    values = {"prompt": prompt, "prompt_file": prompt_path, "workspace": workspace_path}
    script = f"exec < {shlex.quote(prompt_path)}\n{filled(line, values)}"
    size_bytes = len(script.encode("utf-8", "surrogateescape"))
    if size_bytes > LINE_LIMIT_BYTES:
        raise UsageError(
            f"the prompt makes the agent's command line {size_bytes} bytes long; the system takes"
            f" {LINE_LIMIT_BYTES}",
            next_step="let the agent read stdin, or put {prompt_file} in the place of {prompt}",
        )
    return script


def checked_line(line: str) -> str:
    """The line, when a shell can read it.

    Raises:
        UsageError: it is empty, holds NUL, or has an open quote.
    """
    next_step = '--agent "claude -p --permission-mode acceptEdits"'
    if not line.strip():
        raise UsageError("the agent's command is empty", next_step=next_step)
    if "\0" in line:
        raise UsageError("the agent's command holds a NUL character", next_step=next_step)
    try:
        shlex.split(filled(line, dict.fromkeys(PLACEHOLDERS, "x")))
    except ValueError as error:
        raise UsageError(f"the agent's command cannot be read: {error}", next_step=next_step) from None
    return line
