"""Searching a text for somebody else's regular expression, with a limit of time.

Python's ``re`` has none, and a pattern such as ``(a+)+$`` takes longer than anybody lives. So the search runs in a
process of its own that can be ended, and that imports nothing else.
"""

from __future__ import annotations

import sys

SEARCH_SECONDS = 5.0
_PROGRAM = (
    "import re, sys; data = sys.stdin.buffer.read(); "
    "found = re.search(sys.argv[1], data.decode('utf-8', 'replace'), re.MULTILINE); sys.exit(0 if found else 3)"
)
_NOT_FOUND = 3


def is_found(pattern: str, data: bytes, *, timeout_seconds: float = SEARCH_SECONDS) -> bool | None:
    """True when ``pattern`` matches somewhere in the text (UTF-8, ``^`` and ``$`` at every line); None for no answer.

    None means that the search took longer than ``timeout_seconds``, or could not be made at all.
    """
    import subprocess

    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, pattern],
            input=data,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=timeout_seconds,
            check=False,
            env={},
        )
    except (subprocess.TimeoutExpired, OSError, ValueError):
        return None
    return done.returncode == 0 if done.returncode in (0, _NOT_FOUND) else None
