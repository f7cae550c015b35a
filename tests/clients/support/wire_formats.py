"""One scripted turn, rendered as each model API streams it: Anthropic Messages, OpenAI Responses, Gemini."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Json = dict[str, Any]
OK = 200
"""The HTTP status of an answer."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool that the model calls, under the name that the client declared.

    Attributes:
        name: of the tool.
        arguments: of the call.
        namespace: Codex declares the tools of an MCP server in one; empty for its own.
    """

    name: str
    arguments: Json
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model answers to one request.

    Attributes:
        text: what it says.
        tools: what it calls; empty ends the client's turn, which is when the stop hook runs.
        needs: text that the request must hold; where it does not, the script no longer fits and the run fails.
        status: the HTTP status; anything but 200 is an error of the API.
    """

    text: str
    tools: tuple[ToolCall, ...] = field(default=())
    needs: str = ""
    status: int = OK


def new_id(prefix: str) -> str:
    """An id in the style of the APIs."""
    return prefix + uuid.uuid4().hex[:20]


def event_stream(events: Iterable[tuple[str, Json]]) -> bytes:
    """Server-sent events: (event name or empty, data) one after another."""
    lines: list[str] = []
    for name, data in events:
        lines += [f"event: {name}\n"] if name else []
        lines.append("data: " + json.dumps(data, separators=(",", ":")) + "\n\n")
    return "".join(lines).encode()


def render_anthropic(turn: Turn, model: str) -> bytes:
    """``POST /v1/messages`` (Claude Code)."""
    blocks: list[Json] = [{"type": "text", "text": turn.text}] if turn.text else []
    blocks += [
        {"type": "tool_use", "id": new_id("toolu_"), "name": tool.name, "input": tool.arguments}
        for tool in turn.tools
    ]
    usage = {
        "input_tokens": 100,
        "output_tokens": 20,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    message = {"id": new_id("msg_"), "type": "message", "role": "assistant", "model": model, "content": []}
    start = {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}
    events: list[tuple[str, Json]] = [("message_start", {"message": start})]
    for index, block in enumerate(blocks):
        is_text = block["type"] == "text"
        opening = {"type": "text", "text": ""} if is_text else {**block, "input": {}}
        delta = (
            {"type": "text_delta", "text": block["text"]}
            if is_text
            else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        )
        events.append(("content_block_start", {"index": index, "content_block": opening}))
        events.append(("content_block_delta", {"index": index, "delta": delta}))
        events.append(("content_block_stop", {"index": index}))
    end = {"stop_reason": "tool_use" if turn.tools else "end_turn", "stop_sequence": None}
    events += [("message_delta", {"delta": end, "usage": {"output_tokens": 20}}), ("message_stop", {})]
    return event_stream((name, {"type": name, **data}) for name, data in events)


def render_responses(turn: Turn, model: str) -> bytes:
    """``POST /v1/responses`` (Codex CLI)."""
    items: list[Json] = []
    if turn.text:
        content = [{"type": "output_text", "text": turn.text, "annotations": []}]
        items.append({"type": "message", "id": new_id("msg_"), "role": "assistant", "content": content})
    for tool in turn.tools:
        call = {"type": "function_call", "id": new_id("fc_"), "call_id": new_id("call_")}
        space = {"namespace": tool.namespace} if tool.namespace else {}
        items.append({**call, **space, "name": tool.name, "arguments": json.dumps(tool.arguments)})
    response = {"id": new_id("resp_"), "object": "response", "model": model, "output": []}
    usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    events: list[tuple[str, Json]] = [
        ("response.created", {"response": {**response, "status": "in_progress"}})
    ]
    for index, item in enumerate(items):
        done = {**item, "status": "completed"}
        events.append(("response.output_item.added", {"output_index": index, "item": done}))
        if item["type"] == "message":
            where = {"item_id": item["id"], "output_index": index, "content_index": 0}
            events.append(("response.output_text.delta", {**where, "delta": turn.text}))
        events.append(("response.output_item.done", {"output_index": index, "item": done}))
    final = {**response, "status": "completed", "output": items, "usage": usage}
    events.append(("response.completed", {"response": final}))
    return event_stream((name, {"type": name, **data}) for name, data in events)


def gemini_reply(turn: Turn, model: str) -> Json:
    """One ``GenerateContentResponse``."""
    parts: list[Json] = [{"text": turn.text}] if turn.text else []
    for tool in turn.tools:
        call = {"id": new_id("fc"), "name": tool.name, "args": tool.arguments}
        parts.append({"functionCall": call, "thoughtSignature": "c2NyaXB0ZWQ="})
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120}
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": model,
        "responseId": new_id("r"),
    }


def render_gemini(turn: Turn, model: str) -> bytes:
    """``POST /v1beta/models/M:streamGenerateContent?alt=sse`` (Gemini CLI)."""
    return event_stream([("", gemini_reply(turn, model))])


def render_gemini_whole(turn: Turn, model: str) -> bytes:
    """``POST /v1beta/models/M:generateContent``, which Gemini CLI uses for its auxiliary calls."""
    return json.dumps(gemini_reply(turn, model)).encode()


RENDERERS: dict[str, tuple[str, Callable[[Turn, str], bytes]]] = {
    "/messages": ("text/event-stream", render_anthropic),
    "/responses": ("text/event-stream", render_responses),
    ":streamGenerateContent": ("text/event-stream", render_gemini),
    ":generateContent": ("application/json", render_gemini_whole),
}
"""How the path of a model request ends: the content type of its answer, and who renders it."""


def render(path: str, turn: Turn, model: str) -> tuple[str, bytes]:
    """The content type and the bytes that answer a model request on a path of :data:`RENDERERS`."""
    content_type, renderer = next(found for ending, found in RENDERERS.items() if path.endswith(ending))
    return content_type, renderer(turn, model)
