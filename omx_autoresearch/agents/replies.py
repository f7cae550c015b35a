"""Writing the one JSON object that a client reads from a hook's stdout, or nothing at all.

Every client lets the agent go when a hook prints a stray line or an unknown key, so what may be printed is a closed
list: ``decision`` and ``reason`` on a stop, ``hookSpecificOutput.additionalContext`` where the client takes context,
``systemMessage`` where it takes one.
"""

from __future__ import annotations

from omx_autoresearch.agents.payloads import without_surrogates
from omx_autoresearch.core import light_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from omx_autoresearch.core.events import HookEvent, Reply
    from omx_autoresearch.core.words import EventKind

MAX_REPLY_CHARS = 9_500
"""A text of a reply. Claude Code shows 10,000 characters of a hook's text and puts a longer one into a file."""

_ESCAPE_SEQUENCE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))"
_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_encode = light_json.encoder(is_ascii=True, separators=(", ", ": "))


def harmless(text: str) -> str:
    """Make a text safe for a terminal and a strict JSON parser.

    Terminal escape sequences are dropped, other control characters and lone surrogates become U+FFFD, tabs and line
    ends stay, and a text over :data:`MAX_REPLY_CHARS` loses its middle, which is said.
    """
    text = without_surrogates(text).replace("\r\n", "\n")
    if not text.replace("\n", "").replace("\t", "").isprintable():
        import re

        text = re.sub(_CONTROL, "\ufffd", re.sub(_ESCAPE_SEQUENCE, "", text))
    text = text.strip()
    if len(text) <= MAX_REPLY_CHARS:
        return text
    half = (MAX_REPLY_CHARS - 100) // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def render_reply(
    event: HookEvent,
    reply: Reply,
    *,
    context_events: Mapping[EventKind, str],
    message_kinds: tuple[EventKind, ...],
) -> bytes:
    """Render a reply; ``b""`` is silence, which lets the agent do as it pleases.

    Args:
        event: what is answered.
        reply: what to say. A refusal counts on a stop only, a context only in ``context_events``.
        context_events: by kind, the client's own event name that must stand beside the context.
        message_kinds: the kinds on which the client takes a ``systemMessage``.
    """
    answer: dict[str, object] = {}
    if event.kind == "stop" and (refusal := harmless(reply.refusal)):
        answer["decision"] = "block"
        answer["reason"] = refusal
    if event.kind in message_kinds and (message := harmless(reply.person_message)):
        answer["systemMessage"] = message
    native_event = context_events.get(event.kind, "")
    if native_event and (context := harmless(reply.context)):
        answer["hookSpecificOutput"] = {"hookEventName": native_event, "additionalContext": context}
    return _encode(answer).encode("ascii") + b"\n" if answer else b""
