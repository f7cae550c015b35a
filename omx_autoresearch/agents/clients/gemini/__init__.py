"""The adapter of Gemini CLI, checked with 0.61.0: its own event names, JSON on stdin and stdout, exit 0.

- A stop is ``AfterAgent``. Gemini ignores the answer to ``SessionEnd``, so that event never gates.
- ``{"decision":"block","reason":R}`` refuses; R comes back as the next prompt. We found no cap, but a loop detector
  stops the model when answers repeat, while Gemini still asks the hook: such a session has to be let go.
- ``prompt_response`` grows over the turn; we compare it and never take it for the last message alone.
- Gemini puts a session start's context before the first prompt.
- At a terminal, a custom command or a skill called NAME becomes ``/NAME``: the hook then sees the text of the command,
  or the arguments alone. So Gemini gets no skill from us, and a skill of our name that it reads elsewhere is a fault.
- Gemini replaces ``$NAME`` when it reads settings.json, so no hook line may contain one.
- ``PreCompress`` fires before every model call (``trigger`` auto), so it does not show a compaction, and we do not
  register it.
- It keeps a prompt that is typed while the agent works in a queue until the turn ends, so a held session reads none.
- On Esc while the model answers, ``AfterAgent`` fires with an unchanged ``prompt_response``: it looks like a repeat.
- It counts equal commands too: five in a row end the run.
- A sub-agent's tool event looks like the session's own.
- ``--sandbox`` restarts the whole client inside the sandbox, with its hooks: they have the rights of its tools.
- A prompt is proven by the socket on the hook's stdin, as in Claude Code, and could be forged in the same way.
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
    queues_prompts=True,
    entries=(
        HookEntry("AfterAgent", "stop", 120, "active"),
        # `always`: the guard `start` contains an environment variable, which Gemini would replace in the line
        HookEntry("SessionStart", "session_start", 30, "always"),
        HookEntry("BeforeAgent", "prompt", 120, "always"),
        HookEntry("AfterTool", "tool", 30, "active"),
        HookEntry("SessionEnd", "session_end", 10, "active"),
    ),
)

_CONTEXT_PREFIX = r"()\s*<hook_context>(?s:.*?)</hook_context>\s*"


def parse(payload: dict[str, Any]) -> HookEvent:
    """Translate one event; see :mod:`omx_autoresearch.agents.registry` for what every adapter owes.

    Raises:
        PayloadFault: the session id is not a text.
    """
    response = payload.get("tool_response")
    if isinstance(response, dict):
        # the text for the person, else the text for the model (which is inside <untrusted_context>)
        shown = response.get("returnDisplay")
        response = shown if isinstance(shown, str) and shown else response.get("llmContent")
    return payloads.event_of(
        CLIENT,
        payload,
        shell_tools=("run_shell_command",),
        last_message="prompt_response",
        prefix=_CONTEXT_PREFIX,
        tool_response=response,
    )


def is_sandboxed(event: HookEvent, environ: Mapping[str, str], meta: Mapping[str, Any] | None = None) -> bool:
    """Never true: a hook runs where the tools run, so its commands have no wider rights."""
    del event, environ, meta
    return False


origin = payloads.socket_origin
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
        text=payloads.text_of(found, "response"),
        tokens=tokens,
        model=one_line(", ".join(sorted(names))),
        session_id=one_line(payloads.text_of(found, "session_id")),
        is_error=bool(found.get("error")),
    )
