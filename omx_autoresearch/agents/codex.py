"""The dialect of Codex CLI, seen with 0.171.0: Claude Code's event names, JSON on stdin and stdout, exit 0.

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

from omx_autoresearch.agents import marks, payloads, tool_events
from omx_autoresearch.agents.events import Client, HookEntry, HookEvent, Reply, StopCap
from omx_autoresearch.agents.payloads import render_reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from omx_autoresearch.agents.installations import Installation, Scope
    from omx_autoresearch.foundation.types import EventKind

CLIENT = Client(
    name="codex",
    title="Codex CLI",
    binary="codex",
    stop_cap=StopCap(limit=None),
    session_variables=marks.SESSION_VARIABLES["codex"],
    shell_marks=marks.SHELL_MARKS["codex"],
    hook_timeout_seconds=120,
    shows_person_message=True,
    lets_go_on_repeat=False,
    has_tool_events=True,
    entries=(
        HookEntry("Stop", "", 120, "active"),
        HookEntry("SubagentStop", "", 30, "active"),
        HookEntry("SessionStart", "", 30, "start"),
        HookEntry("UserPromptSubmit", "", 120, "always"),
        HookEntry("PostToolUse", "", 30, "active"),
        HookEntry("PreCompact", "", 30, "active"),
        HookEntry("SessionEnd", "", 3, "active"),
    ),
)

_NO_SANDBOX = "danger-full-access"
_SHELL_TOOLS = ("Bash", "shell", "exec_command")

_KINDS: dict[str, EventKind] = {
    "Stop": "stop",
    "SubagentStop": "subagent_stop",
    "SessionStart": "session_start",
    "UserPromptSubmit": "prompt",
    "PostToolUse": "tool",
    "PreCompact": "pre_compact",
    "SessionEnd": "session_end",
}


def parse(payload: dict[str, Any], digest: str, environ: Mapping[str, str]) -> HookEvent:
    """Translate one event; see :mod:`omx_autoresearch.agents.registry` for what every dialect owes.

    Raises:
        PayloadFault: the session id is not a text.
    """
    kind = _KINDS.get(payloads.text_of(payload, "hook_event_name"), "other")
    agent_id = payloads.text_of(payload, "agent_id")
    if kind == "stop" and agent_id:
        kind = "subagent_stop"
    prompt = payloads.text_of(payload, "prompt") if kind == "prompt" else ""
    is_tool = kind == "tool"
    return HookEvent(
        client="codex",
        kind=kind,
        session_id=payloads.session_id_of(payload),
        cwd=payloads.text_of(payload, "cwd"),
        agent_id=agent_id,
        prompt=prompt,
        is_person=payloads.may_be_person(prompt, agent_id) and not marks.tool_shell_mark(environ),
        source=payloads.text_of(payload, "source") if kind == "session_start" else "",
        host_end=payloads.host_end_of(payload) if kind in ("stop", "subagent_stop") else "",
        last_message=payloads.end_of(payloads.text_of(payload, "last_assistant_message")),
        tool_name=payloads.text_of(payload, "tool_name") if is_tool else "",
        tool_command=payloads.tool_command_of(payload, _SHELL_TOOLS) if is_tool else "",
        tool_output=tool_events.tool_output_of("codex", payload) if is_tool else "",
        transcript_path=payloads.text_of(payload, "transcript_path"),
        payload_digest=digest,
    )


def is_sandboxed(event: HookEvent, environ: Mapping[str, str]) -> bool:
    """False only where the newest turn in the session's own rollout names the policy without a sandbox."""
    from omx_autoresearch.agents.transcripts import newest_lines
    from omx_autoresearch.foundation import json_codec

    del environ  # a hook's tells nothing
    try:
        for line in newest_lines(event.transcript_path, b'"turn_context"'):
            record = json_codec.decoder(dict)(line.decode("utf-8", "replace"))
            if record.get("type") == "turn_context":
                return bool(record["payload"]["sandbox_policy"]["type"] != _NO_SANDBOX)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return True
    return True


def forgery(event: HookEvent, began_at: str) -> str:
    """Why the event did not come from Codex itself; empty where it did, or nobody can tell."""
    from omx_autoresearch.agents.origins import rollout_fault

    return rollout_fault(event.transcript_path, began_at)


def render(event: HookEvent, reply: Reply) -> bytes:
    """Render a reply to an event; ``b""`` for silence."""
    return render_reply(
        event,
        reply,
        context_events={"session_start": "SessionStart", "prompt": "UserPromptSubmit", "tool": "PostToolUse"},
        message_kinds=("stop", "session_start", "prompt", "pre_compact", "tool"),
    )


def installation(scope: Scope, environ: Mapping[str, str], project_path: str) -> Installation:
    """Say where Codex's hooks are set (``hooks.json``) and where their trust is kept (``config.toml``)."""
    import os

    from omx_autoresearch.agents.folders import home_path
    from omx_autoresearch.agents.installations import Installation
    from omx_autoresearch.agents.tool_servers import ToolServer

    user_path = environ.get("CODEX_HOME") or os.path.join(home_path(environ), ".codex")
    files = {
        "user": os.path.join(user_path, "hooks.json"),
        "project": os.path.join(project_path, ".codex", "hooks.json"),
    }
    return Installation(
        client=CLIENT,
        scope=scope,
        settings_path=files[scope],
        other_settings_paths=tuple(path for name, path in files.items() if name != scope),
        plugins_path=os.path.join(user_path, "plugins"),
        trust_path=os.path.join(user_path, "config.toml"),
        hook_shell=(environ.get("SHELL") or "/bin/sh", "-lc"),
        # Codex hands its environment on to an MCP server by name only
        server=ToolServer(
            os.path.join(os.path.dirname(files[scope]), "config.toml"),
            form="toml",
            variables=("OMX_AUTORESEARCH_TASK",),
        ),
        skill_path=os.path.join(os.path.dirname(files[scope]), "skills", "autoresearch", "SKILL.md"),
    )
