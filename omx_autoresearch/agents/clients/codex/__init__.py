"""The adapter of Codex CLI, checked with 0.171.0: Claude Code's event names, JSON on stdin and stdout, exit 0.

- ``{"decision":"block","reason":R}`` on ``Stop`` refuses; any unknown key voids the answer. We found no cap.
- A hook runs as ``$SHELL -lc LINE``, so the line must work in zsh and fish too.
- Codex silently skips a hook that it does not trust; any edit of the hook's definition voids the trust.
- The environment of a hook has no mark of the client; that of a tool shell has.
- Codex lists a skill in ``skills/NAME/SKILL.md`` of its own folders (``CODEX_HOME``, a project's ``.codex``) to the
  model, and ``$NAME`` adds the skill's text. It reads ``.agents/skills`` too, but so does Gemini, where a skill of our
  name becomes a command that keeps the typed line from the hook.
- Its tools run in a sandbox unless the turn's policy is ``danger-full-access``; the hooks run outside. The payload's
  ``permission_mode`` says who is asked, not where tools run. The rollout, which no sandboxed tool can write, records
  the policy of each turn.
- A prompt is proven by the rollout, too: the hook's parent has it open, and no tool of its turn can have started the
  hook. An agent without a sandbox can write there, and so forge that. In a terminal the screen is a process of its own,
  the parent of the one with the hooks.
"""

from __future__ import annotations

from omx_autoresearch.agents import payloads
from omx_autoresearch.agents.events import Client, HookEntry, HookEvent, Origin, StopCap
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
    goal_ways=("/goal clear", "/goal pause"),
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
_NO_SANDBOX = "danger-full-access"
_WITHOUT_SANDBOX = (_NO_SANDBOX, "none")


def parse(payload: dict[str, Any]) -> HookEvent:
    """Translate one event; see :mod:`omx_autoresearch.agents.registry` for what every adapter owes.

    Raises:
        PayloadFault: the session id is not a text.
    """
    # Codex cuts the middle out of a tool's output beyond about 10,000 bytes, and marks no tool as failed
    return payloads.event_of(
        CLIENT,
        payload,
        shell_tools=("Bash", "shell", "exec_command"),
        last_message="last_assistant_message",
    )


def is_sandboxed(event: HookEvent, environ: Mapping[str, str], meta: Mapping[str, Any] | None = None) -> bool:
    """False only if the newest turn, the call, or where no turn is recorded the start names that there is none."""
    if meta is not None:
        return _policy_of_call(meta) not in _WITHOUT_SANDBOX
    from omx_autoresearch.agents.clients.codex.rollout import recorded_policy

    policy = recorded_policy(event.transcript_path)
    if not policy:
        from omx_autoresearch.agents.clients.codex.policy import client_words, started_policy

        policy = started_policy(client_words(), environ)
    return policy != _NO_SANDBOX


def goal(event: HookEvent) -> str:
    """The goal that Codex pursues in this session; empty for none."""
    from omx_autoresearch.agents.clients.codex.rollout import active_goal

    return active_goal(event.transcript_path)


def _policy_of_call(meta: Mapping[str, Any]) -> str:
    """The policy of the turn that Codex sends with a tool call; empty if it sends none."""
    import json

    turn = meta.get(_META_TURN)
    if isinstance(turn, str):
        try:
            turn = json.loads(turn)
        except ValueError:
            return ""
    found = turn.get("sandbox_mode") or turn.get("sandbox") if isinstance(turn, dict) else None
    return found if isinstance(found, str) else ""


def origin(event: HookEvent, began_at: str) -> Origin:
    """Whether Codex itself sent the event: by the record of its session, which no sandboxed tool can write."""
    from omx_autoresearch.agents.clients.codex.rollout import rollout_origin

    return rollout_origin(event.transcript_path, event.prompt, began_at, is_of_tool=event.kind == "tool")


render = payloads.render_reply


def report(so_far: AgentReport, found: dict[str, Any]) -> AgentReport | None:
    """Read one line of ``exec --json``: the message, the run's tokens, or a failure. Codex reports no cost."""
    from omx_autoresearch.agents import headless

    kind, item = found.get("type"), found.get("item")
    if kind not in ("item.completed", "turn.completed", "turn.failed", "thread.started"):
        return None
    if so_far.client != "codex":
        so_far = headless.AgentReport(client="codex")
    if kind == "thread.started":
        name = one_line(payloads.text_of(found, "thread_id"))
        return replace(so_far, session_id=name)
    if kind == "turn.failed":
        return replace(so_far, is_error=True)
    if kind == "turn.completed":
        added = headless.numbers_of(found.get("usage"))
        tokens = {name: so_far.tokens.get(name, 0) + count for name, count in added.items()}
        return replace(so_far, tokens={**so_far.tokens, **tokens}, is_error=False)
    if isinstance(item, dict) and item.get("type") == "agent_message":
        return replace(so_far, text=payloads.text_of(item, "text"))
    return so_far
