"""What one headless run of an agent CLI says of itself: its last words, what it cost, which tokens it used. Pure.

A report is a claim. The cost is what a client says; nothing is estimated from tokens, since no price list is kept here.
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
    return one_line(next((item for item in reversed(said) if item), ""))


def last_words(text: str) -> str:
    """The last line of a text that holds a word, for an agent that stated no hypothesis; empty for none."""
    lines = (one_line(line) for line in reversed(text.splitlines()))
    return next((line for line in lines if any(char.isalnum() for char in line)), "")


def numbers_of(value: Any) -> dict[str, int]:
    """The whole numbers of an object, by name; what else stands there is left out."""
    if not isinstance(value, dict):
        return {}
    return {
        one_line(name): count
        for name, count in list(value.items())[:_TOKEN_KINDS_LIMIT]
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 2**53
    }
