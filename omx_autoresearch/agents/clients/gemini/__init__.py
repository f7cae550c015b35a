"""The adapter of Gemini CLI, seen with 0.61.0: event names of its own, JSON on stdin and stdout, exit 0.

- A stop is ``AfterAgent``; ``SessionEnd`` runs and its answer is ignored, so it never gates.
- ``{"decision":"block","reason":R}`` refuses; R comes back as the next prompt. No cap was found, but a loop detector
  stops the model when answers repeat while the hook goes on being asked: such a session has to be let go.
- ``prompt_response`` grows over the turn; it is compared, never taken for the last message alone.
- The first prompt after a session start with context is prefixed with that context.
- At a terminal, a custom command or a skill of a name becomes ``/NAME``: the hook then sees the text that it stands
  for, or the arguments alone. So Gemini gets no skill from us, and one elsewhere that it reads is a fault.
- ``$NAME`` in settings.json is replaced when the file is read, so no hook line may hold one.
- ``PreCompress`` fires before every model call (``trigger`` auto), so it is no sign of compaction and not registered.
- A sub-agent's tool event looks like the session's own.
- ``--sandbox`` starts the whole client anew inside the sandbox, its hooks too: they have the rights of its tools.
"""

from __future__ import annotations

from omx_autoresearch.agents import payloads
from omx_autoresearch.agents.events import Client, HookEntry, HookEvent, StopCap
from omx_autoresearch.foundation.records import replace
from omx_autoresearch.foundation.text import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from omx_autoresearch.agents.headless import AgentReport

CLIENT = Client(
    name="gemini",
    title="Gemini CLI",
    stop_cap=StopCap(limit=None),
    lets_go_on_repeat=True,
    entries=(
        HookEntry("AfterAgent", "stop", 120, "active"),
        # `always`: the guard `start` names an environment variable, which Gemini would replace in the line
        HookEntry("SessionStart", "session_start", 30, "always"),
        HookEntry("BeforeAgent", "prompt", 120, "always"),
        HookEntry("AfterTool", "tool", 30, "active"),
        HookEntry("SessionEnd", "session_end", 10, "active"),
    ),
)

_CONTEXT_PREFIX = r"(?s)\A\s*<hook_context>.*?</hook_context>\s*"


def parse(payload: dict[str, Any]) -> HookEvent:
    """Translate one event; see :mod:`omx_autoresearch.agents.registry` for what every adapter owes.

    Raises:
        PayloadFault: the session id is not a text.
    """
    response = payload.get("tool_response")
    if isinstance(response, dict):
        # what the person sees, else what the model sees (there inside <untrusted_context>)
        shown = response.get("returnDisplay")
        response = shown if isinstance(shown, str) and shown else response.get("llmContent")
    return payloads.event_of(
        CLIENT,
        payload,
        shell_tools=("run_shell_command",),
        last_message="prompt_response",
        without_prefix=_without_prefix,
        tool_response=response,
    )


def is_sandboxed(event: HookEvent, environ: Mapping[str, str], meta: Mapping[str, Any] | None = None) -> bool:
    """Never: a hook runs where the tools run, so a command that it starts has no wider rights."""
    del event, environ, meta
    return False


def _without_prefix(prompt: str) -> str:
    import re

    return re.sub(_CONTEXT_PREFIX, "", prompt)


def forgery(event: HookEvent, began_at: str) -> str:
    """Why the event did not come from Gemini CLI itself; empty where it did, or nothing can be told."""
    from omx_autoresearch.agents.machine import socket_fault

    del event, began_at  # the kernel knows
    return socket_fault()


render = payloads.render_reply


def report(so_far: AgentReport, found: dict[str, Any]) -> AgentReport | None:
    """Read ``--output-format json``: one object with ``response`` and ``stats``, or with ``error``. No cost."""
    from omx_autoresearch.agents import headless

    if "response" not in found or not isinstance(found.get("stats"), dict):
        is_fault = isinstance(found.get("error"), dict) and found.get("type") is None
        if is_fault and so_far.client in ("", "gemini"):
            return replace(so_far, client="gemini", is_error=True)
        return None
    models = found["stats"].get("models")
    tokens: dict[str, int] = {}
    names = []
    for name, model in models.items() if isinstance(models, dict) else ():
        names.append(str(name))
        for kind, count in headless.numbers_of(
            model.get("tokens") if isinstance(model, dict) else None
        ).items():
            tokens[kind] = tokens.get(kind, 0) + count
    return headless.AgentReport(
        client="gemini",
        text=headless.text_of(found.get("response")),
        tokens=tokens,
        model=one_line(", ".join(sorted(names))),
        session_id=one_line(headless.text_of(found.get("session_id"))),
        is_error=bool(found.get("error")),
    )
