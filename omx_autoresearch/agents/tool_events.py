"""The event after a tool, read without a dialect: it comes at every tool call and has to cost next to nothing.

Neither this module nor what it imports uses dataclasses or typing; the dialects read their tool events through it too,
so that both ways see the same.
"""

from __future__ import annotations

from omx_autoresearch.agents import payloads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

TOOL_EVENTS: dict[str, tuple[str, ...]] = {
    "claude": ("PostToolUse", "PostToolUseFailure"),
    "codex": ("PostToolUse",),
    "gemini": ("AfterTool",),
}
"""By client, its names of the events after a tool ran."""


def is_tool_event(client: str, payload: Mapping[str, Any]) -> bool:
    """Say whether a payload is the event after a tool of that client."""
    return payload.get("hook_event_name") in TOOL_EVENTS.get(client, ())


def tool_output_of(client: str, payload: Mapping[str, Any]) -> str:
    """Give what a tool printed, as far as the client sends it; at most :data:`payloads.MAX_TEXT_CHARS`, the end.

    Claude cuts it to the first 30,000 characters, Codex to about 10,000 bytes without the middle; a failed tool of
    Claude's has its output in ``error``.
    """
    response = payload.get("tool_response")
    if client == "claude" and payload.get("hook_event_name") == "PostToolUseFailure":
        response = payload.get("error")
    elif client == "gemini" and isinstance(response, dict):
        # what the person sees, else what the model sees (there inside <untrusted_context>)
        shown = response.get("returnDisplay")
        response = shown if isinstance(shown, str) and shown else response.get("llmContent")
    return payloads.end_of(payloads.output_text(response))


def has_failed(client: str, payload: Mapping[str, Any]) -> bool:
    """Say whether the client marks the tool as failed. Codex never does, Gemini not for an exit status."""
    if client == "gemini":
        response = payload.get("tool_response")
        return isinstance(response, dict) and bool(response.get("error"))
    return payload.get("hook_event_name") == "PostToolUseFailure"
