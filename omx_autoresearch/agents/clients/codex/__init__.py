"""The adapter of Codex CLI, seen with 0.171.0: Claude Code's event names, JSON on stdin and stdout, exit 0.

- ``{"decision":"block","reason":R}`` on ``Stop`` refuses; any unknown key voids the answer. No cap was found.
- A hook runs as ``$SHELL -lc LINE``, so the line must be good for zsh and fish too.
- A hook that is not trusted is skipped without a word; any edit of its definition voids the trust.
- The hooks' environment carries no mark of the client at all; a tool shell's does.
- A skill in ``skills/NAME/SKILL.md`` of its own folders (``CODEX_HOME``, a project's ``.codex``) is listed to the
  model, and ``$NAME`` brings its text along. It reads ``.agents/skills`` too, but so does Gemini, for whom a skill of
  our name is a command that takes the typed line away.
- Its tools run in a sandbox unless the turn's policy is ``danger-full-access``; the hooks stand outside. The payload's
  ``permission_mode`` tells who is asked, not where tools run. The rollout, which no sandboxed tool can write, has the
  policy of each turn.
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
    name="codex",
    title="Codex CLI",
    stop_cap=StopCap(limit=None),
    entries=(
        HookEntry("Stop", "stop", 120, "active"),
        HookEntry("SubagentStop", "subagent_stop", 30, "active"),
        HookEntry("SessionStart", "session_start", 30, "start"),
        HookEntry("UserPromptSubmit", "prompt", 120, "always"),
        HookEntry("PostToolUse", "tool", 30, "active"),
        HookEntry("PreCompact", "pre_compact", 30, "active"),
        HookEntry("SessionEnd", "session_end", 3, "active"),
    ),
)

_META_TURN = "x-codex-turn-metadata"
_WITHOUT_SANDBOX = ("danger-full-access", "none")


def parse(payload: dict[str, Any]) -> HookEvent:
    """Translate one event; see :mod:`omx_autoresearch.agents.registry` for what every adapter owes.

    Raises:
        PayloadFault: the session id is not a text.
    """
    # a tool's output is cut by the client to about 10,000 bytes without the middle; no tool is marked as failed
    return payloads.event_of(
        CLIENT,
        payload,
        shell_tools=("Bash", "shell", "exec_command"),
        last_message="last_assistant_message",
    )


def is_sandboxed(event: HookEvent, environ: Mapping[str, str], meta: Mapping[str, Any] | None = None) -> bool:
    """False only where the newest turn of the session, or the call, names the policy without a sandbox."""
    del environ  # a hook's tells nothing
    if meta is not None:
        return _policy_of_call(meta) not in _WITHOUT_SANDBOX
    from omx_autoresearch.agents.clients.codex import rollout

    return rollout.is_sandboxed(event.transcript_path)


def _policy_of_call(meta: Mapping[str, Any]) -> str:
    """The policy of the turn, as Codex tells it with a call of a tool; empty where it does not."""
    import json

    turn = meta.get(_META_TURN)
    if isinstance(turn, str):
        try:
            turn = json.loads(turn)
        except ValueError:
            return ""
    found = turn.get("sandbox_mode") or turn.get("sandbox") if isinstance(turn, dict) else None
    return found if isinstance(found, str) else ""


def forgery(event: HookEvent, began_at: str) -> str:
    """Why the event did not come from Codex itself; empty where it did, or nothing can be told."""
    from omx_autoresearch.agents.clients.codex.rollout import rollout_fault

    return rollout_fault(event.transcript_path, began_at)


render = payloads.render_reply


def report(so_far: AgentReport, found: dict[str, Any]) -> AgentReport | None:
    """Read ``exec --json``: a line an event; the message, the tokens of the run, a failure. No cost."""
    from omx_autoresearch.agents import headless

    kind, item = found.get("type"), found.get("item")
    if kind not in ("item.completed", "turn.completed", "turn.failed", "thread.started"):
        return None
    if so_far.client != "codex":
        so_far = headless.AgentReport(client="codex")
    if kind == "thread.started":
        name = one_line(headless.text_of(found.get("thread_id")))
        return replace(so_far, session_id=name)
    if kind == "turn.failed":
        return replace(so_far, is_error=True)
    if kind == "turn.completed":
        added = headless.numbers_of(found.get("usage"))
        tokens = {name: so_far.tokens.get(name, 0) + count for name, count in added.items()}
        return replace(so_far, tokens={**so_far.tokens, **tokens}, is_error=False)
    if isinstance(item, dict) and item.get("type") == "agent_message":
        return replace(so_far, text=headless.text_of(item.get("text")))
    return so_far
