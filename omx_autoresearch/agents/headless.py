"""The report of one headless run of an agent CLI: its last message, its cost, its tokens. Pure.

A report is a claim. The cost is the client's figure; we estimate nothing from tokens, since we keep no price list.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, field
from omx_autoresearch.foundation.text import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TOKEN_KINDS_LIMIT = 50
_STATEMENT = r"^[\s>*_#`\-]*{name}[\s*_`]*:[\s*_`]*(?P<said>.*?)[\s*_`]*$"


@dataclass(frozen=True, slots=True)
class AgentReport:
    """A client's report of one run.

    Attributes:
        client: the client whose JSON format it is; empty for plain text.
        text: the agent's last message; the whole output if it is plain text.
        cost_usd: the client's figure for this run alone; None if it gave none.
        tokens: counts by the client's own names.
        model: the model, or models, that answered; empty if unknown.
        session_id: the client's session.
        is_error: the client itself called the run an error.
        cost_fault: why the reported cost does not count; empty if it does.
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
    """A reported cost and its fault; only a finite number from 0 counts."""
    if value is None:
        return None, ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None, f"the reported cost is not a number: {str(value)[:40]!r}"
    try:
        cost = float(value)
    except OverflowError:
        return None, "the reported cost is not a finite number"
    if cost - cost != 0.0:
        return None, "the reported cost is not a finite number"
    if cost < 0:
        return None, f"the reported cost is negative: {cost:g}"
    return cost, ""


def stated(text: str, name: str) -> str:
    """The last ``NAME: ...`` line of a text, without Markdown around it; empty if there is none.

    Args:
        text: the agent's message.
        name: ``HYPOTHESIS`` or ``DIRECTION``, in any case.
    """
    import re

    said = [
        found["said"].strip()
        for found in re.finditer(_STATEMENT.format(name=re.escape(name)), text, re.IGNORECASE | re.MULTILINE)
    ]
    return one_line(next((item for item in reversed(said) if item), ""))


def last_words(text: str) -> str:
    """The last line of a text that has a word in it, for an agent that stated no hypothesis; empty if there is none."""
    lines = (one_line(line) for line in reversed(text.splitlines()))
    return next((line for line in lines if any(char.isalnum() for char in line)), "")


def numbers_of(value: Any) -> dict[str, int]:
    """The whole numbers of an object, by name; other values are left out."""
    if not isinstance(value, dict):
        return {}
    return {
        one_line(name): count
        for name, count in list(value.items())[:_TOKEN_KINDS_LIMIT]
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 2**53
    }
