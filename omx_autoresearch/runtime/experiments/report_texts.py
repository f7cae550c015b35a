"""Texts of a report that nothing in them can turn into markup: for Markdown, and plain for HTML, which escapes itself.

What a hypothesis, a reason or a file name says was written by a model. In Markdown it stands in code spans, where
nothing is a link, a mention, an image or an element; control and direction characters are taken out in both.
"""

from __future__ import annotations

import re

from omx_autoresearch.core.agent_reports import harmless_line

CELL_CHARACTERS = 240
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~&@$^!]|:(?=//)|(?<=www)\.)")
_TICKS = re.compile(r"`+")
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})", re.MULTILINE)


def plain(text: str, limit: int = CELL_CHARACTERS) -> str:
    """One line, bounded, of printable characters only."""
    line = harmless_line(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def plain_block(text: str) -> str:
    """Several lines of printable characters."""
    lines = (
        "".join(char if char.isprintable() or char == "\t" else " " for char in line)
        for line in text.splitlines()
    )
    return "\n".join(lines).strip("\n")


def markdown_text(text: str) -> str:
    """A sentence of ours with names in it, as Markdown that reads the same."""
    return _MARKS.sub(r"\\\1", plain(text, 10_000))


def markdown_code(text: str, limit: int = CELL_CHARACTERS) -> str:
    """A foreign text as one code span; ``-`` for an empty one."""
    return _span(plain(text, limit))


def markdown_cell(text: str, limit: int = CELL_CHARACTERS) -> str:
    """A foreign text as one code span in one cell of a table; ``-`` for an empty one."""
    # A backslash before a bar would take away the bar's own escape where tables are split into cells.
    return _span(plain(text, limit).replace("\\|", "\\ |").replace("|", "\\|"))


def _span(line: str) -> str:
    if not line:
        return "-"
    fence = "`" * (max((len(found) for found in _TICKS.findall(line)), default=0) + 1)
    pad = " " if line.startswith(("`", " ")) or line.endswith(("`", " ", "\\")) else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def markdown_block(text: str) -> str:
    """A command as a fenced block that nothing in it can end."""
    block = plain_block(text)
    longest = max((len(found) for found in _FENCE.findall(block)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{block}\n{fence}"
