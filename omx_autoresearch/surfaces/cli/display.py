"""Printing: JSON for machines, plain lines for pipes, colour and columns on a terminal only."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.text import harmless

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TextIO

    from omx_autoresearch.foundation.errors import AutoresearchError

Row = tuple[str, str, str]
"""Label, text, style (a colour's name or empty)."""
_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}


def has_colour(stream: TextIO) -> bool:
    """True for a terminal whose user did not ask for none (NO_COLOR) and that can show any."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"


def paint(text: str, style: str, stream: TextIO) -> str:
    """``text`` in a style, where the stream shows colour."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and has_colour(stream) else text


def print_json(value: Any) -> None:
    """One JSON document on stdout; ASCII, so that any locale carries it."""
    import json

    from omx_autoresearch.foundation.records import to_plain

    sys.stdout.write(json.dumps(to_plain(value), indent=2, allow_nan=False) + "\n")


def say(text: str, style: str = "", *, label: str = "") -> None:
    """One or more lines on stdout, behind a dim label: whatever others wrote in them moves no terminal's cursor."""
    sys.stdout.write(f"{paint(label, 'dim', sys.stdout)}{paint(harmless(text), style, sys.stdout)}\n")


def tell(text: str, style: str = "", *, label: str = "") -> None:
    """A line on stderr, beside the answer; the style is that of the label where there is one."""
    words = (
        f"{paint(label, style, sys.stderr)} {harmless(text)}"
        if label
        else paint(harmless(text), style, sys.stderr)
    )
    sys.stderr.write(words + "\n")


def print_error(error: AutoresearchError) -> None:
    """What happened, and the next command, on stderr."""
    tell(error.message, "red", label="error:")
    if error.next_step:
        tell(f"  next: {error.next_step}")


def print_warning(text: str) -> None:
    """What went wrong beside what was asked for, on stderr."""
    tell(text, "yellow", label="warning:")


def count_of(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration_text(seconds: float) -> str:
    """A span of time in a person's words: ``12 s``, ``3 min``, ``4.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else "under a second"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def print_rows(rows: Sequence[Row]) -> None:
    """Labelled lines; rows without a text are left out."""
    rows = [row for row in rows if row[1]]
    width = max((len(label) for label, _, _ in rows), default=0)
    for label, text, style in rows:
        for number, line in enumerate(text.split("\n")):
            say(line, style, label=f"{'' if number else label:{width}}  ")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str]) -> None:
    """A table: columns on a terminal, tab-separated lines elsewhere.

    Args:
        header: the columns' titles.
        rows: texts, a sequence a row.
        styles: of each row.
    """
    if not sys.stdout.isatty():
        for row in (header, *rows):
            say("\t".join(cell.replace("\t", " ") for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    *firm, last = zip(header, *rows, strict=True)
    widths = [
        max(map(len, column)) for column in firm
    ]  # names are copied, so never cut: the last column gives way
    for title, width in zip(header, [*widths, len(last[0])], strict=True):
        table.add_column(title, overflow="ellipsis", no_wrap=True, min_width=width)
    for row, style in zip(rows, styles, strict=True):
        table.add_row(*(Text(harmless(cell), style=style) for cell in row))
    console = Console(color_system="auto" if has_colour(sys.stdout) else None)
    console.width = max(console.width, sum(widths) + 2 * len(widths) + len(last[0]))
    console.print(table)
