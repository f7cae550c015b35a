"""The dialect of Claude Code, seen with 2.1.332: JSON on stdin, JSON on stdout, exit 0.

- ``{"decision":"block","reason":R}`` on ``Stop`` refuses; the model sees R and the hook's whole command line.
- Eight refusals in a row are honoured, the ninth is overridden without a word to the hook; a tool call between them
  starts the count anew, and ``CLAUDE_CODE_STOP_HOOK_BLOCK_CAP`` (also from ``env`` of settings.json) raises it.
- A failed tool fires ``PostToolUseFailure`` instead of ``PostToolUse``.
- A settings file with a comment in it is ignored as a whole, silently.
- A skill in ``skills/NAME/SKILL.md`` of the user's or the project's folder is listed to the model; the hook sees
  ``/NAME ARGUMENTS`` as it was typed, and the model the skill's text.
- ``sandbox.enabled`` in any of its settings puts its shell into a sandbox; the hooks stand outside.
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
    name="claude",
    title="Claude Code",
    binary="claude",
    stop_cap=StopCap(limit=8, reset_by_tools=True, setting="CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"),
    session_variables=marks.SESSION_VARIABLES["claude"],
    shell_marks=marks.SHELL_MARKS["claude"],
    hook_timeout_seconds=120,
    shows_person_message=True,
    lets_go_on_repeat=False,
    has_tool_events=True,
    entries=(
        HookEntry("Stop", "", 120, "active"),
        HookEntry("SubagentStop", "", 30, "active"),
        HookEntry("StopFailure", "", 10, "active"),
        HookEntry("SessionStart", "", 30, "start"),
        HookEntry("UserPromptSubmit", "", 120, "always"),
        HookEntry("PostToolUse", "", 30, "active"),
        HookEntry("PostToolUseFailure", "", 30, "active"),
        HookEntry("PreCompact", "", 30, "active"),
        HookEntry("SessionEnd", "", 10, "active"),
    ),
)

RAISED_CAP = 250
"""Written by the installer: finite, and above every allowance of a mission's default limits together (200 + 6 + 8)."""

_MANAGED_PATHS = ("/etc/claude-code", "/Library/Application Support/ClaudeCode")
"""Each holds ``managed-settings.json`` and the folder ``managed-settings.d``, whose ``*.json`` count like it."""
_NOTES = {
    "user": "Claude Code asks before the first call of a tool; to allow all of ours, permit mcp__omx-autoresearch",
    "project": "Claude Code asks each user of the project whether to trust the server in .mcp.json",
}
_MAX_SETTINGS_BYTES = 4 * 1024 * 1024
_SHELL_TOOLS = ("Bash",)

_KINDS: dict[str, EventKind] = {
    "Stop": "stop",
    "SubagentStop": "subagent_stop",
    "StopFailure": "stop_failure",
    "SessionStart": "session_start",
    "UserPromptSubmit": "prompt",
    "PostToolUse": "tool",
    "PostToolUseFailure": "tool",
    "PreCompact": "pre_compact",
    "SessionEnd": "session_end",
}
_PLUGIN_PREFIX = r"\A(\s*/)omx(?:-autoresearch)?:(?=autoresearch(?:\s|\Z))"


def parse(payload: dict[str, Any], digest: str, environ: Mapping[str, str]) -> HookEvent:
    """Translate one event; see :mod:`omx_autoresearch.agents.registry` for what every dialect owes.

    Raises:
        PayloadFault: the session id is not a text.
    """
    kind = _KINDS.get(payloads.text_of(payload, "hook_event_name"), "other")
    agent_id = payloads.text_of(payload, "agent_id")
    if kind == "stop" and agent_id:
        kind = "subagent_stop"
    prompt = _without_prefix(payloads.text_of(payload, "prompt")) if kind == "prompt" else ""
    is_end = kind in ("stop", "subagent_stop", "stop_failure")
    is_tool = kind == "tool"
    return HookEvent(
        client="claude",
        kind=kind,
        session_id=payloads.session_id_of(payload),
        cwd=payloads.text_of(payload, "cwd"),
        agent_id=agent_id,
        prompt=prompt,
        is_person=payloads.may_be_person(prompt, agent_id) and not marks.tool_shell_mark(environ),
        source=payloads.text_of(payload, "source") if kind == "session_start" else "",
        host_end=payloads.host_end_of(payload) if is_end else "",
        # session_crons are timers, not work: they never hold back an answer
        has_background_work=is_end and payloads.has_running_task(payload.get("background_tasks")),
        last_message=payloads.end_of(payloads.text_of(payload, "last_assistant_message")),
        tool_name=payloads.text_of(payload, "tool_name") if is_tool else "",
        tool_command=payloads.tool_command_of(payload, _SHELL_TOOLS) if is_tool else "",
        tool_output=tool_events.tool_output_of("claude", payload) if is_tool else "",
        tool_failed=is_tool and tool_events.has_failed("claude", payload),
        transcript_path=payloads.text_of(payload, "transcript_path"),
        payload_digest=digest,
    )


def is_sandboxed(event: HookEvent, environ: Mapping[str, str]) -> bool:
    """True where any settings of the session switch the sandbox on, whichever of them Claude Code lets win."""
    import os

    from omx_autoresearch.agents.folders import home_path
    from omx_autoresearch.system.processes import command_line

    started_as = command_line(os.getppid())
    project_path = environ.get("CLAUDE_PROJECT_DIR") or event.cwd
    user_path = environ.get("CLAUDE_CONFIG_DIR") or os.path.join(home_path(environ), ".claude")
    paths = [
        *_managed_settings(),
        os.path.join(user_path, "settings.json"),
        os.path.join(project_path, ".claude", "settings.json"),
        os.path.join(project_path, ".claude", "settings.local.json"),
        *(
            os.path.join(event.cwd, option[1:].split(" ", 1)[0])
            for option in started_as.split("--settings")[1:]
        ),
    ]
    return '"sandbox"' in started_as or any(map(_has_sandbox, paths))


def _managed_settings() -> tuple[str, ...]:
    """The settings files of the machine's administrator that stand there, in the order in which they are read."""
    import os

    found = []
    for folder_path in _MANAGED_PATHS:
        main_path = os.path.join(folder_path, "managed-settings.json")
        found += [main_path] if os.path.lexists(main_path) else []
        parts_path = os.path.join(folder_path, "managed-settings.d")
        try:
            names = os.listdir(parts_path)
        except OSError:
            continue
        found += [os.path.join(parts_path, name) for name in sorted(names) if name.endswith(".json")]
    return tuple(found)


def _has_sandbox(settings_path: str) -> bool:
    """True for a settings file that switches the sandbox on; one that Claude Code cannot read switches nothing."""
    from omx_autoresearch.agents.folders import without_waiting
    from omx_autoresearch.foundation import json_codec

    try:
        with open(settings_path, "rb", opener=without_waiting) as stream:
            text = stream.read(_MAX_SETTINGS_BYTES)
        if b"sandbox" not in text:
            return False
        settings = json_codec.decoder(dict)(text.decode("utf-8-sig"))
        return bool(settings["sandbox"]["enabled"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _without_prefix(prompt: str) -> str:
    import re

    return re.sub(_PLUGIN_PREFIX, r"\1", prompt)


def forgery(event: HookEvent, began_at: str) -> str:
    """Why the event did not come from Claude Code itself; empty where it did, or nobody can tell."""
    from omx_autoresearch.agents.origins import socket_fault

    del event, began_at  # the kernel knows
    return socket_fault()


def render(event: HookEvent, reply: Reply) -> bytes:
    """Render a reply to an event; ``b""`` for silence."""
    return render_reply(
        event,
        reply,
        context_events={
            "session_start": "SessionStart",
            "prompt": "UserPromptSubmit",
            "tool": "PostToolUseFailure" if event.tool_failed else "PostToolUse",
        },
        message_kinds=("stop", "session_start", "prompt", "pre_compact", "tool"),
    )


def installation(scope: Scope, environ: Mapping[str, str], project_path: str) -> Installation:
    """Say where Claude Code's hooks are set: ``settings.json`` of the user or of the project."""
    import os

    from omx_autoresearch.agents.folders import home_path
    from omx_autoresearch.agents.installations import Installation
    from omx_autoresearch.agents.tool_servers import ToolServer

    user_path = environ.get("CLAUDE_CONFIG_DIR") or os.path.join(home_path(environ), ".claude")
    files = {
        "user": os.path.join(user_path, "settings.json"),
        "project": os.path.join(project_path, ".claude", "settings.json"),
        "local": os.path.join(project_path, ".claude", "settings.local.json"),
    }
    return Installation(
        client=CLIENT,
        scope=scope,
        settings_path=files[scope],
        other_settings_paths=(
            *(path for name, path in files.items() if name != scope),
            *_managed_settings(),
        ),
        plugins_path=os.path.join(user_path, "plugins"),
        environment=((CLIENT.stop_cap.setting, str(RAISED_CAP)),),
        off_switches=(("disableAllHooks",), ("allowManagedHooksOnly",)),
        has_status_line=True,
        server=ToolServer(_servers_path(scope, environ, project_path), has_type=True, note=_NOTES[scope]),
        skill_path=os.path.join(
            user_path if scope == "user" else os.path.join(project_path, ".claude"),
            "skills",
            "autoresearch",
            "SKILL.md",
        ),
    )


def _servers_path(scope: Scope, environ: Mapping[str, str], project_path: str) -> str:
    """``.claude.json`` beside the user's folder (inside a CLAUDE_CONFIG_DIR), or the project's ``.mcp.json``."""
    import os

    from omx_autoresearch.agents.folders import home_path

    if scope == "project":
        return os.path.join(project_path, ".mcp.json")
    return os.path.join(environ.get("CLAUDE_CONFIG_DIR") or home_path(environ), ".claude.json")
