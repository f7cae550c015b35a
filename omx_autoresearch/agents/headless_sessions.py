"""A headless session of any client: its environment, and the report in its output.

The output may contain other text before, between and after the client's JSON: warnings, progress, an incomplete line.
Plain text is taken unchanged.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from omx_autoresearch.agents.headless import AgentReport
from omx_autoresearch.agents.registry import adapter
from omx_autoresearch.foundation.clients import CLIENT_NAMES, KNOWN, SESSION_IDS, SHELL_MARKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OBJECTS_LIMIT = 100_000


def read_report(output: str) -> AgentReport:
    """The report of one headless run, from its output; any text has one."""
    report = AgentReport(text=output)
    clients = [adapter(name) for name in CLIENT_NAMES]
    for found in _objects(output):
        told = (client.report(report, found) for client in clients)
        report = next((one for one in told if one is not None), report)
    return report


def _objects(output: str) -> Iterator[dict[str, Any]]:
    """Every JSON object at the beginning of a line, in order; other text is skipped."""
    decoder = json.JSONDecoder()
    position, seen = 0, 0
    while seen < _OBJECTS_LIMIT:
        start = 0 if position == 0 and output.startswith("{") else output.find("\n{", position)
        if start < 0:
            return
        start += output[start] == "\n"
        position = start + 1
        try:
            found, position = decoder.raw_decode(output, start)
        except (ValueError, RecursionError):
            # an incomplete line, or text in braces: the next line may be an object
            position = max(output.find("\n", start), position)
            continue
        seen += 1
        yield found


SESSION_NAMES = frozenset(
    (
        *SHELL_MARKS,
        *SESSION_IDS,
        *(name for client in KNOWN.values() for name in client.session_variables),
        *("AI_AGENT", "PLUGIN_DATA", "PLUGIN_ROOT", "OMX_AUTORESEARCH_TASK"),
    )
)
"""Variables of one session, the client's or ours, which a fresh session does not inherit."""


def fresh_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a new session: the owner's keys and settings, but nothing of another session."""
    return {name: value for name, value in environ.items() if name not in SESSION_NAMES}
