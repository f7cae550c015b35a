"""Reading the kept output of a run: the report at its end, and the lines in which a test runner tells of its tests."""

from __future__ import annotations

import os

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.system.supervisor import CUT_MARK, TAIL_BYTES, Lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.system.commands import CommandResult

_PART_BYTES = 256 * 1024
_BLOCK_BYTES = 1024 * 1024
_COLOUR = rb"\x1b\[[0-9;?]*[A-Za-z]"
_SEARCHED_BYTES = 1024 * 1024
_OBJECTS_TRIED = 100


def last_object(result: CommandResult) -> tuple[dict[str, object] | None, str]:
    """The JSON object at the end of a run's output, and why that end is not known or cannot be read.

    It is the last object on the last line that is not blank, or the one that ends there and began on an earlier line
    in the first column. Colours do not count.

    Raises:
        OSError: the output cannot be read.
    """
    if result.is_truncated and result.error:
        return None, result.error
    with open(result.output_path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(0, size - TAIL_BYTES))
        end = stream.read()
    if b"\x1b[" in end:
        import re  # few outputs are coloured

        end = re.sub(_COLOUR, b"", end)
    end = end.rstrip()
    begin = max(end.rfind(b"\n"), end.rfind(b"\r")) + 1
    line = end[begin:].strip()
    if (not begin and size > TAIL_BYTES) or (result.is_truncated and line.startswith(CUT_MARK.strip())):
        return None, "it is not known, since more than the end that was kept is one line"
    if line == b"}":
        return _decoded(_over_lines(end))
    found = _last_of(line) if line.endswith(b"}") else None
    if found is not None:
        return found, ""
    return _decoded(line if line.startswith(b"{") else b"")


def _last_of(line: bytes) -> dict[str, object] | None:
    """The object with which a line ends, behind any other text; None where there is none."""
    at = line.find(b"{") if len(line) <= _SEARCHED_BYTES else 0
    for _ in range(_OBJECTS_TRIED):
        if at < 0:
            break
        found = _decoded(line[at:])[0]
        if found is not None:
            return found
        at = line.find(b"{", at + 1)
    return None


def _over_lines(end: bytes) -> bytes:
    """The lines from the last one on that begins with a brace; empty where they do not look like JSON."""
    begin = end.rfind(b"\n{") + 1
    text = end[begin:]
    return text if text.startswith(b"{") and text[1:].lstrip()[:1] in (b'"', b"}") else b""


def _decoded(text: bytes) -> tuple[dict[str, object] | None, str]:
    if not text:
        return None, ""
    try:
        value = json_codec.decode(text)
    except ValueError as error:
        return None, str(error)
    return (value, "") if isinstance(value, dict) else (None, "it is not an object")


def read_output(result: CommandResult) -> bytes:
    """The beginning and the end of a kept output; the end decides, the beginning explains."""
    with open(result.output_path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size <= 2 * _PART_BYTES:
            return stream.read()
        head = stream.read(_PART_BYTES)
        stream.seek(size - _PART_BYTES)
        return head + b"\n[...]\n" + stream.read()


def line_words_of(runner: str) -> tuple[bytes, ...]:
    """Words of the lines that are kept of an output of any length, since the contract's runner tells of tests there."""
    if not runner:
        return ()
    from omx_autoresearch.freezing.runners import (
        words_of,
    )  # it loads patterns, which a run without a runner does not need

    return words_of(runner)


def runner_output(result: CommandResult, runner: str) -> str:
    """The output as far as a test runner tells of its tests in it; a short one whole."""
    with open(result.output_path, "rb") as stream:
        if os.fstat(stream.fileno()).st_size <= 2 * _PART_BYTES:
            return stream.read().decode("utf-8", "replace")
        lines = Lines(line_words_of(runner))
        found = [lines.of(block) for block in iter(lambda: stream.read(_BLOCK_BYTES), b"")]
        return b"".join((*found, lines.rest() or b"")).decode("utf-8", "replace")
