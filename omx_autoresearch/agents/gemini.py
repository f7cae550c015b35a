"""The dialect of Gemini CLI, seen with 0.61.0: event names of its own, JSON on stdin and stdout, exit 0.

- A stop is ``AfterAgent``; ``SessionEnd`` runs and its answer is ignored, so it never gates.
- ``{"decision":"block","reason":R}`` refuses; R comes back as the next prompt. No cap was found, but a loop detector
  stops the model when answers repeat while the hook goes on being asked: such a session has to be let go.
- ``prompt_response`` grows over the turn; it is compared, never taken for the last message alone.
- The first prompt after a session start with context is prefixed with that context.
- At a terminal, a custom command or a skill of a name becomes ``/NAME``: the hook then sees the text that it stands
  for, or the arguments alone. So there is no skill of ours for it, and one elsewhere that it reads is a fault.
- ``$NAME`` in settings.json is replaced when the file is read, so no hook line may hold one.
- ``PreCompress`` fires before every model call (``trigger`` auto), so it is no sign of compaction and not registered.
- A sub-agent's tool event looks like the session's own.
- ``--sandbox`` starts the whole client anew inside the sandbox, its hooks too: they have the rights of its tools.
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
    name="gemini",
    title="Gemini CLI",
    binary="gemini",
    stop_cap=StopCap(limit=None),
    session_variables=marks.SESSION_VARIABLES["gemini"],
    shell_marks=marks.SHELL_MARKS["gemini"],
    hook_timeout_seconds=120,
    shows_person_message=True,
    lets_go_on_repeat=True,
    has_tool_events=True,
    entries=(
        HookEntry("AfterAgent", "", 120, "active"),
        # `always`: the guard `start` names an environment variable, which Gemini would replace in the line
        HookEntry("SessionStart", "", 30, "always"),
        HookEntry("BeforeAgent", "", 120, "always"),
        HookEntry("AfterTool", "", 30, "active"),
        HookEntry("SessionEnd", "", 10, "active"),
    ),
)

_SHELL_TOOLS = ("run_shell_command",)

_KINDS: dict[str, EventKind] = {
    "AfterAgent": "stop",
    "SessionStart": "session_start",
    "BeforeAgent": "prompt",
    "AfterTool": "tool",
    "PreCompress": "pre_compact",
    "SessionEnd": "session_end",
}
_CONTEXT_PREFIX = r"(?s)\A\s*<hook_context>.*?</hook_context>\s*"


def parse(payload: dict[str, Any], digest: str, environ: Mapping[str, str]) -> HookEvent:
    """Translate one event; see :mod:`omx_autoresearch.agents.registry` for what every dialect owes.

    Raises:
        PayloadFault: the session id is not a text.
    """
    kind = _KINDS.get(payloads.text_of(payload, "hook_event_name"), "other")
    if kind == "pre_compact" and payload.get("trigger") != "manual":
        kind = "other"
    prompt = _without_prefix(payloads.text_of(payload, "prompt")) if kind == "prompt" else ""
    is_tool = kind == "tool"
    return HookEvent(
        client="gemini",
        kind=kind,
        session_id=payloads.session_id_of(payload),
        cwd=payloads.text_of(payload, "cwd"),
        prompt=prompt,
        is_person=payloads.may_be_person(prompt, "") and not marks.tool_shell_mark(environ),
        source=payloads.text_of(payload, "source") if kind == "session_start" else "",
        host_end=payloads.host_end_of(payload) if kind == "stop" else "",
        last_message=payloads.end_of(payloads.text_of(payload, "prompt_response")),
        tool_name=payloads.text_of(payload, "tool_name") if is_tool else "",
        tool_command=payloads.tool_command_of(payload, _SHELL_TOOLS) if is_tool else "",
        tool_output=tool_events.tool_output_of("gemini", payload) if is_tool else "",
        tool_failed=is_tool and tool_events.has_failed("gemini", payload),
        transcript_path=payloads.text_of(payload, "transcript_path"),
        payload_digest=digest,
    )


def is_sandboxed(event: HookEvent, environ: Mapping[str, str]) -> bool:
    """Never: a hook runs where the tools run, so a command that it starts has no wider rights."""
    del event, environ
    return False


def _without_prefix(prompt: str) -> str:
    import re

    return re.sub(_CONTEXT_PREFIX, "", prompt)


def forgery(event: HookEvent, began_at: str) -> str:
    """Why the event did not come from Gemini CLI itself; empty where it did, or nobody can tell."""
    from omx_autoresearch.agents.origins import socket_fault

    del event, began_at  # the kernel knows
    return socket_fault()


def render(event: HookEvent, reply: Reply) -> bytes:
    """Render a reply to an event; ``b""`` for silence."""
    return render_reply(
        event,
        reply,
        context_events={"session_start": "SessionStart", "prompt": "BeforeAgent", "tool": "AfterTool"},
        message_kinds=("stop", "session_start", "prompt", "pre_compact", "tool"),
    )


def installation(scope: Scope, environ: Mapping[str, str], project_path: str) -> Installation:
    """Say where Gemini's hooks are set: ``settings.json`` of the user or of the project. Time-outs are in ms."""
    import os

    from omx_autoresearch.agents.folders import home_path
    from omx_autoresearch.agents.installations import Installation
    from omx_autoresearch.agents.tool_servers import ToolServer

    user_path = os.path.join(environ.get("GEMINI_CLI_HOME") or home_path(environ), ".gemini")
    files = {
        "user": os.path.join(user_path, "settings.json"),
        "project": os.path.join(project_path, ".gemini", "settings.json"),
    }
    return Installation(
        client=CLIENT,
        scope=scope,
        settings_path=files[scope],
        other_settings_paths=tuple(path for name, path in files.items() if name != scope),
        plugins_path=os.path.join(user_path, "extensions"),
        timeouts_per_second=1000,
        handler_name="omx-autoresearch",
        allows_comments=True,
        on_switches=(("hooksConfig", "enabled"),),
        hook_shell=("bash", "-c"),
        server=ToolServer(files[scope], allows_comments=True),
        hiding_paths=_hiding_paths(user_path, project_path, home_path(environ)),
    )


def _hiding_paths(user_path: str, project_path: str, home: str) -> tuple[str, ...]:
    """Where Gemini CLI finds a command or a skill that answers to ``/autoresearch``."""
    project_folder = f"{project_path}/.gemini" if project_path else ""
    folders = [folder for folder in (user_path, project_folder) if folder]
    skills = [*folders, f"{home}/.agents", *([f"{project_path}/.agents"] if project_path else ())]
    return (
        *(f"{folder}/commands/autoresearch.toml" for folder in folders),
        *(f"{folder}/skills/autoresearch/SKILL.md" for folder in skills),
    )
