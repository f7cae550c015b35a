"""The adapter of Claude Code, checked with 2.1.332: JSON on stdin, JSON on stdout, exit 0.

- ``{"decision":"block","reason":R}`` on ``Stop`` refuses; the model sees R and the hook's whole command line.
- Claude Code honours eight refusals in a row and overrides the ninth without telling the hook. A tool call between two
  stops resets the count; ``CLAUDE_CODE_STOP_HOOK_BLOCK_CAP`` (also in ``env`` of settings.json) raises the limit.
- A failed tool fires ``PostToolUseFailure`` instead of ``PostToolUse``.
- Claude Code silently ignores a settings file that contains a comment.
- It lists a skill in ``skills/NAME/SKILL.md`` of the user's or the project's folder to the model; the hook sees
  ``/NAME ARGUMENTS`` as typed, and the model sees the skill's text.
- A prompt is proven by the socket on the hook's stdin: the process that made its other end is the hook's parent, or one
  above. A program of an agent could forge that, but has the agent CLI above it unless it left its ancestors.
- Its own ``/goal`` is a stop hook beside ours, judged by a model; ``"continue": false`` in our answer pauses it.
- ``sandbox.enabled`` in any of its settings files puts its shell into a sandbox; the hooks run outside.
"""

from __future__ import annotations

import os

from omx_autoresearch.agents import payloads
from omx_autoresearch.agents.events import Client, HookEntry, HookEvent, StopCap
from omx_autoresearch.foundation.text import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from omx_autoresearch.agents.headless import AgentReport

CLIENT = Client(
    name="claude",
    title="Claude Code",
    stop_cap=StopCap(limit=8, reset_by_tools=True, setting="CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"),
    goal_ways=("/goal clear",),
    can_end_turn=True,
    entries=(
        HookEntry("Stop", "stop", 120, "active"),
        HookEntry("SubagentStop", "subagent_stop", 30, "active"),
        HookEntry("StopFailure", "stop_failure", 10, "active"),
        HookEntry("SessionStart", "session_start", 30, "start"),
        HookEntry("UserPromptSubmit", "prompt", 120, "always"),
        HookEntry("PostToolUse", "tool", 30, "active"),
        HookEntry("PostToolUseFailure", "tool", 30, "active"),
        HookEntry("PreCompact", "pre_compact", 30, "active"),
        HookEntry("SessionEnd", "session_end", 10, "active"),
    ),
)

_MANAGED_PATHS = ("/etc/claude-code", "/Library/Application Support/ClaudeCode")
"""Each may have ``managed-settings.json`` and a folder ``managed-settings.d``, whose ``*.json`` files count alike."""
_MAX_SETTINGS_BYTES = 4 * 1024 * 1024
_DENIAL_HEADS = ("Claude requested permissions to ", "Permission ", "<tool_use_error>")
_DENIALS = (
    "Claude requested permissions to ",
    "has been denied",
    "denied by your permission settings",
    "is disabled for this session",
)
"""How the result of a tool begins, and what it says, that was not run for want of a permission."""
_DENIAL_CHARS = 300
_PLUGIN_PREFIX = r"(\s*/)omx(?:-autoresearch)?:(?=autoresearch(?:\s|\Z))"


def parse(payload: dict[str, Any]) -> HookEvent:
    """Translate one event; see :mod:`omx_autoresearch.agents.registry` for what every adapter owes.

    Raises:
        PayloadFault: the session id is not a text.
    """
    has_failed = payload.get("hook_event_name") == "PostToolUseFailure"
    crons = payload.get("session_crons")
    return payloads.event_of(
        CLIENT,
        payload,
        shell_tools=("Bash",),
        last_message="last_assistant_message",
        prefix=_PLUGIN_PREFIX,
        # session_crons are timers, not work: they never delay an answer, but their prompts are no person's
        handed_texts=tuple(payloads.text_of(cron, "prompt") for cron in crons if isinstance(cron, dict))
        if isinstance(crons, list)
        else (),
        background_tasks=payloads.running_tasks(payload.get("background_tasks")),
        # the client keeps the first 30,000 characters; a failed tool's output is in `error`
        tool_response=payload.get("error" if has_failed else "tool_response"),
    )


def is_sandboxed(event: HookEvent, environ: Mapping[str, str], meta: Mapping[str, Any] | None = None) -> bool:
    """True if any settings of the session switch the sandbox on, whichever of them takes precedence."""
    del meta  # it does not show the sandbox
    from omx_autoresearch.system.processes import command_line

    started_as = command_line(os.getppid())
    named = (option[1:].split(" ", 1)[0] for option in started_as.split("--settings")[1:])
    paths = [
        *managed_settings(),
        *settings_paths(environ, environ.get("CLAUDE_PROJECT_DIR") or event.cwd).values(),
        *(os.path.join(event.cwd, name) for name in named),
    ]
    return '"sandbox"' in started_as or any(map(_has_sandbox, paths))


def goal(event: HookEvent) -> str:
    """The goal that Claude Code pursues in this session: the last ``goal_status`` of its transcript; empty for none."""
    from omx_autoresearch.agents.machine import TAIL_BYTES, newest_lines
    from omx_autoresearch.foundation import json_codec

    try:
        for line in newest_lines(event.transcript_path, b'"goal_status"', TAIL_BYTES):
            found = json_codec.decoder(dict)(line.decode("utf-8", "replace")).get("attachment")
            if isinstance(found, dict) and found.get("type") == "goal_status":
                is_active = found.get("met") is False and not found.get("failed")
                return str(found.get("condition") or "a goal") if is_active else ""
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""
    return ""


def denial(event: HookEvent) -> str:
    """Why Claude Code denied the newest tool of this session; empty where that tool ran, or none was called."""
    from omx_autoresearch.agents.machine import TAIL_BYTES, newest_lines
    from omx_autoresearch.foundation import json_codec

    try:
        for line in newest_lines(event.transcript_path, b'"tool_result"', TAIL_BYTES):
            message = json_codec.decoder(dict)(line.decode("utf-8", "replace")).get("message")
            parts = message.get("content") if isinstance(message, dict) else None
            results = [
                part for part in parts or () if isinstance(part, dict) and part.get("type") == "tool_result"
            ]
            if results:
                said = payloads.output_text(results[-1]) if results[-1].get("is_error") is True else ""
                is_denial = said.startswith(_DENIAL_HEADS) and any(words in said for words in _DENIALS)
                told = (
                    said.partition("\n\n<")[0]
                    .replace("<tool_use_error>", "")
                    .replace("</tool_use_error>", "")
                )
                return one_line(told, _DENIAL_CHARS) if is_denial else ""
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return ""
    return ""


def settings_paths(environ: Mapping[str, str], project_path: str) -> dict[str, str]:
    """The settings files of the user and of one project, by their scope."""
    from omx_autoresearch.agents.machine import home_path

    user_path = environ.get("CLAUDE_CONFIG_DIR") or os.path.join(home_path(environ), ".claude")
    return {
        "user": os.path.join(user_path, "settings.json"),
        "project": os.path.join(project_path, ".claude", "settings.json"),
        "local": os.path.join(project_path, ".claude", "settings.local.json"),
    }


def managed_settings() -> tuple[str, ...]:
    """The existing settings files of the machine's administrator, in the order in which Claude Code reads them."""
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
    """True for a settings file that switches the sandbox on; false if Claude Code cannot read the file."""
    from omx_autoresearch.agents.machine import without_waiting
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


origin = payloads.socket_origin
render = payloads.render_reply


def report(so_far: AgentReport, found: dict[str, Any]) -> AgentReport | None:
    """Read ``-p --output-format json`` (one object) or the last line of ``stream-json``; both report the run's cost."""
    from omx_autoresearch.agents import headless

    if found.get("type") != "result" or "is_error" not in found:
        return None
    del so_far  # the object has the whole report
    cost, fault = headless.cost_of(found.get("total_cost_usd"))
    models = found.get("modelUsage")
    return headless.AgentReport(
        client="claude",
        text=payloads.text_of(found, "result"),
        cost_usd=cost,
        tokens=headless.numbers_of(found.get("usage")),
        model=one_line(", ".join(sorted(models))) if isinstance(models, dict) else "",
        session_id=one_line(payloads.text_of(found, "session_id")),
        is_error=found.get("is_error") is True,
        cost_fault=fault,
    )
