"""The verdict of a reviewer, read from its last message; specs/reviewers.md has the protocol. Pure.

The verdict is the last JSON object of the message, wherever it stands: on a line of its own, printed over several
lines, in a code fence, in bold, before a closing sentence. It counts only with the nonce of its own review, and two
verdicts that differ are none.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, field
from omx_autoresearch.foundation.text import one_line
from omx_autoresearch.missions.rules.run_reports import RunReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERDICTS = ("approved", "rejected")
_KEYS = {"nonce", "verdict", "summary", "reason", "approved"}
_READ_CHARACTERS = 64 * 1024
_TRIES_LIMIT = 4000


class _Unreadable(ValueError):
    """An object has a key twice, or there are too many braces to read."""


def report_of_review(exit_status: int | None, message: str, nonce: str) -> RunReport:
    """The verdict on a reviewer command that has ended; a doubt is an error, never an approval.

    Args:
        exit_status: of the command; None or negative when a signal ended it.
        message: the reviewer's last message, or the whole output of a command that is no known client.
        nonce: of this review.
    """
    if exit_status != 0:
        said = _last_line(message)
        why = f"the reviewer ended with exit status {exit_status}{f': {said}' if said else ''}"
        return RunReport("error", "reviewer-failed", why)
    try:
        found = _objects(message[-_READ_CHARACTERS:])
    except _Unreadable as error:
        return RunReport("error", "bad-report", str(error))
    if not found:
        said = _last_line(message)
        why = "the reviewer's message has no JSON object"
        return RunReport("error", "bad-report", f"{why}; it ends with: {said}" if said else why)
    last = found[-1]
    if wrong := _fault(last, nonce):
        return RunReport("error", "bad-report", wrong)
    if any(item.get("nonce") == nonce and item.get("verdict") != last["verdict"] for item in found):
        return RunReport("error", "bad-report", "the reviewer gave two different verdicts")
    texts = (last.get(name) for name in ("summary", "reason"))
    summary = next((text for text in texts if isinstance(text, str) and text), str(last["verdict"]))
    if last["verdict"] == "approved":
        return RunReport("passed", "approved", summary)
    return RunReport("failed", "rejected", summary)


def _objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a text, in order; other text between them is skipped.

    Raises:
        _Unreadable: one of them has a key twice, or there are too many braces to read.
    """
    import json

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise _Unreadable(f"the key {twice[:40]!r} stands twice in one object")
        return found

    decoder = json.JSONDecoder(object_pairs_hook=once)
    found: list[dict[str, Any]] = []
    position = text.find("{")
    for _ in range(_TRIES_LIMIT):
        if position < 0:
            return found
        try:
            value, end = decoder.raw_decode(text, position)
        except _Unreadable:
            raise
        except (ValueError, RecursionError):
            position = text.find("{", position + 1)
            continue
        found.append(value)
        position = text.find("{", end)
    raise _Unreadable("the reviewer's message has too many braces to find its verdict")


def _last_line(text: str) -> str:
    """The last line of a message with a word in it; of an error in JSON the message that stands in it."""
    import json
    import re

    said = re.findall(r'"message"\s*:\s*("(?:[^"\\\n]|\\.)*")', text)
    if said and text.rstrip().endswith("}"):
        try:
            inner = str(json.loads(said[-1]))
        except ValueError:
            inner = said[-1]
        return _last_line(inner)
    lines = (line for line in reversed(text.splitlines()) if any(char.isalnum() for char in line))
    return one_line(next(lines, ""), 200)


def _fault(last: dict[str, Any], nonce: str) -> str:
    if last.get("nonce") != nonce:
        return "the last JSON object does not carry the nonce of this review"
    if last.get("verdict") not in VERDICTS:
        return f"verdict must be exactly approved or rejected, received {last.get('verdict')!r}"
    if "approved" in last and last["approved"] is not (last["verdict"] == "approved"):
        return "approved and verdict contradict each other"
    unknown = set(last) - _KEYS
    return f"unknown fields: {', '.join(sorted(unknown))}" if unknown else ""


@dataclass(frozen=True, slots=True)
class ReviewerTrial:
    """What one call of a reviewer brought.

    Attributes:
        report: the verdict that the runtime would take from it.
        output: of the reviewer, trimmed and made harmless.
        duration_seconds: wall time.
        cost_usd: the client's figure; None where it gave none.
        tokens: counts by the client's own names; empty likewise.
        model: that answered; empty likewise.
    """

    report: RunReport
    output: str
    duration_seconds: float
    cost_usd: float | None = None
    tokens: dict[str, int] = field(default_factory=dict)
    model: str = ""

    @property
    def told_cost(self) -> str:
        """What the call cost, for people."""
        parts = [f"{self.duration_seconds:.1f} s"]
        parts += [f"{count} {name.replace('_', ' ')}" for name, count in self.tokens.items() if count]
        parts += [f"${self.cost_usd:.4f}"] if self.cost_usd is not None else []
        return ", ".join(parts)


# --- A limit of the reviewer's own service, and when it ends, in the words of the clients and of the services.


@dataclass(frozen=True, slots=True)
class Reset:
    """When a limit ends: after so many seconds, or at a time in seconds since 1970; 0 for the one that was not said."""

    in_seconds: float = 0.0
    at_epoch: float = 0.0


_EPOCH = r'(?:limit reached\||resets?_?at"?\s*[:=]\s*"?)(\d{10})\b'
_RELATIVE = (
    r"(?:retry|try again|resets?|available again)(?:[- _]?(?:after|delay))?\W{0,4}(?:in|after)?\W{0,3}"
    r"((?:\d+(?:\.\d+)?\s*(?:milliseconds?|ms|hours?|h|minutes?|mins?|m|seconds?|secs?|s)\b[\s,]*(?:and\s+)?)+)"
)
_PART = r"(\d+(?:\.\d+)?)\s*(ms|milli|h|m|s)"
_UNIT_SECONDS = {"ms": 0.001, "milli": 0.001, "h": 3600.0, "m": 60.0, "s": 1.0}


def said_reset(output: str) -> Reset | None:
    """When the limit that an output speaks of ends; None where it names no time that we can read."""
    import re

    end = output[-_READ_CHARACTERS:]
    if epoch := re.findall(_EPOCH, end, re.IGNORECASE):
        return Reset(at_epoch=float(epoch[-1]))
    if relative := re.findall(_RELATIVE, end, re.IGNORECASE):
        parts = re.findall(_PART, relative[-1], re.IGNORECASE)
        return Reset(in_seconds=sum(float(count) * _UNIT_SECONDS[unit.lower()] for count, unit in parts))
    return None
