"""What one headless run of an agent CLI says of itself: its last words, what it cost, which tokens it used. Pure.

A report is a claim. The cost is what a client says; nothing is estimated from tokens, since no price list is kept here.
"""

from __future__ import annotations

import json

from omx_autoresearch.agents import marks
from omx_autoresearch.foundation.records import dataclass, field, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

STATED_LIMIT = 600
"""Characters that are kept of a stated hypothesis or direction."""
_STATEMENT = r"^[\s>*_#`\-]*{name}[\s*_`]*:[\s*_`]*(?P<said>.*?)[\s*_`]*$"


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What a client reported of one run.

    Attributes:
        client: whose form of JSON it was; empty for plain text.
        text: the agent's last message; all of the output where it was plain text.
        cost_usd: as the client said, for this run alone; None where it said none.
        tokens: by the client's own names.
        model: the model, or models, that answered; empty where it was not said.
        session_id: the client's session.
        is_error: the client itself called the run an error.
        cost_fault: what was wrong with a reported cost, so that it does not count; empty for nothing.
    """

    client: str = ""
    text: str = ""
    cost_usd: float | None = None
    tokens: dict[str, int] = field(default_factory=dict)
    model: str = ""
    session_id: str = ""
    is_error: bool = False
    cost_fault: str = ""


def cost_of(value: Any) -> tuple[float | None, str]:
    """A reported cost and what is wrong with it: only a finite number from 0 on counts."""
    if value is None:
        return None, ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None, f"the reported cost is no number: {str(value)[:40]!r}"
    try:
        cost = float(value)
    except OverflowError:
        return None, "the reported cost is no finite number"
    if cost - cost != 0.0:
        return None, "the reported cost is no finite number"
    if cost < 0:
        return None, f"the reported cost is negative: {cost:g}"
    return cost, ""


def stated(text: str, name: str) -> str:
    """The last ``NAME: ...`` line of a text, without Markdown around it; empty where there is none.

    Args:
        text: what the agent said.
        name: ``HYPOTHESIS`` or ``DIRECTION``, in any case.
    """
    import re

    said = [
        found["said"].strip()
        for found in re.finditer(_STATEMENT.format(name=re.escape(name)), text, re.IGNORECASE | re.MULTILINE)
    ]
    return harmless_line(next((item for item in reversed(said) if item), ""))


def last_words(text: str) -> str:
    """The last line of a text that holds a word, for an agent that stated no hypothesis; empty for none."""
    lines = (harmless_line(line) for line in reversed(text.splitlines()))
    return next((line for line in lines if any(char.isalnum() for char in line)), "")


def harmless_line(text: str) -> str:
    """One bounded line without control characters: what an agent wrote, as it stands in tables and prompts."""
    plain = "".join(char if char.isprintable() else " " for char in text[: STATED_LIMIT * 2])
    plain = " ".join(plain.split())
    return plain if len(plain) <= STATED_LIMIT else f"{plain[: STATED_LIMIT - 1]}…"


# --- What the agent CLIs print in their headless JSON modes, read into one report; plain text is taken as it is.
#
# - Claude Code 2.1.332, ``-p --output-format json`` (one object) or ``stream-json`` (its last line): ``type``
# ``result``
# with ``result``, ``is_error``, ``total_cost_usd``, ``usage``, ``modelUsage``, ``session_id``. The one client that
# says what a run cost.
# - Codex CLI 0.171.0, ``exec --json``: a line an event; the message stands in ``item.completed`` of an
# ``agent_message``, the tokens of the run in ``turn.completed`` (``usage``), a failure in ``turn.failed``. No cost.
# - Gemini CLI 0.61.0, ``--output-format json``: one object with ``response`` and ``stats.models.NAME.tokens``, or with
# ``error``. No cost.
#
# The output of a run may hold anything else before, between and behind the JSON: warnings, progress, half a line.

_OBJECTS_LIMIT = 100_000
_TOKEN_KINDS_LIMIT = 50


def read_report(output: str) -> AgentReport:
    """The report of one headless run, from everything that it printed; total: any text has one."""
    report = AgentReport(text=output)
    for found in _objects(output):
        report = _with(report, found)
    return report


def _objects(output: str) -> Iterator[dict[str, Any]]:
    """Every JSON object that begins a line, in order; what is none is passed over."""
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
            # half a line, or text in braces: the next line may be whole
            position = max(output.find("\n", start), position)
            continue
        seen += 1
        yield found


def _with(report: AgentReport, found: dict[str, Any]) -> AgentReport:
    """The report after one more object of the output."""
    kind = found.get("type")
    if kind == "result" and "is_error" in found:
        return _claude(found)
    if kind in ("item.completed", "turn.completed", "turn.failed", "thread.started"):
        return _codex(report, found)
    if "response" in found and isinstance(found.get("stats"), dict):
        return _gemini(found)
    if isinstance(found.get("error"), dict) and kind is None and report.client in ("", "gemini"):
        return replace(report, client="gemini", is_error=True)
    return report


def _claude(found: dict[str, Any]) -> AgentReport:
    cost, fault = cost_of(found.get("total_cost_usd"))
    models = found.get("modelUsage")
    return AgentReport(
        client="claude",
        text=_text(found.get("result")),
        cost_usd=cost,
        tokens=_numbers(found.get("usage")),
        model=harmless_line(", ".join(sorted(models))) if isinstance(models, dict) else "",
        session_id=harmless_line(_text(found.get("session_id"))),
        is_error=found.get("is_error") is True,
        cost_fault=fault,
    )


def _codex(report: AgentReport, found: dict[str, Any]) -> AgentReport:
    if report.client != "codex":
        report = AgentReport(client="codex")
    if found["type"] == "thread.started":
        return replace(report, session_id=harmless_line(_text(found.get("thread_id"))))
    if found["type"] == "turn.failed":
        return replace(report, is_error=True)
    if found["type"] == "turn.completed":
        added = _numbers(found.get("usage"))
        tokens = {name: report.tokens.get(name, 0) + count for name, count in added.items()}
        return replace(report, tokens={**report.tokens, **tokens}, is_error=False)
    item = found.get("item")
    if isinstance(item, dict) and item.get("type") == "agent_message":
        return replace(report, text=_text(item.get("text")))
    return report


def _gemini(found: dict[str, Any]) -> AgentReport:
    models = found["stats"].get("models")
    tokens: dict[str, int] = {}
    names = []
    for name, model in models.items() if isinstance(models, dict) else ():
        names.append(str(name))
        for kind, count in _numbers(model.get("tokens") if isinstance(model, dict) else None).items():
            tokens[kind] = tokens.get(kind, 0) + count
    return AgentReport(
        client="gemini",
        text=_text(found.get("response")),
        tokens=tokens,
        model=harmless_line(", ".join(sorted(names))),
        session_id=harmless_line(_text(found.get("session_id"))),
        is_error=bool(found.get("error")),
    )


def _numbers(value: Any) -> dict[str, int]:
    """The whole numbers of an object, by name; what else stands there is left out."""
    if not isinstance(value, dict):
        return {}
    return {
        harmless_line(name): count
        for name, count in list(value.items())[:_TOKEN_KINDS_LIMIT]
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 2**53
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# --- the environment of a headless session

SESSION_NAMES = frozenset(
    (
        *(name for names in marks.SHELL_MARKS.values() for name in names),
        *(name for names in marks.SESSION_VARIABLES.values() for name in names),
        *(
            "AI_AGENT",
            "CLAUDE_CODE_ENTRYPOINT",
            "CLAUDE_CODE_SESSION_ATTENDED",
            "CLAUDE_ENV_FILE",
            "CLAUDE_PID",
        ),
        *("CLAUDE_PLUGIN_DATA", "CLAUDE_PLUGIN_ROOT", "CLAUDE_PROJECT_DIR", "PLUGIN_DATA", "PLUGIN_ROOT"),
        *("GEMINI_CWD", "GEMINI_PLANS_DIR", "GEMINI_PROJECT_DIR", "GEMINI_SESSION_ID", "QWEN_PROJECT_DIR"),
        "OMX_AUTORESEARCH_TASK",
    )
)
"""Variables that speak of one session, of a client or of ours: a fresh session inherits none of them."""


def fresh_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a session of its own: the owner's keys and settings, nothing of another session."""
    return {name: value for name, value in environ.items() if name not in SESSION_NAMES}
