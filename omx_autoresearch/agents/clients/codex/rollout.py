"""The rollout, Codex's own record of a session, which no sandboxed tool can write, as a witness of a hook's event.

Codex sends an event through a pipe that it closes at once, but its rollout shows whether a tool can have started the
hook. This needs facts about processes that only Linux gives; elsewhere we accept events.
"""

from __future__ import annotations

import os
import stat

from omx_autoresearch.agents.events import BY_SIGNS, PROVEN, Origin
from omx_autoresearch.agents.machine import STDIN, TAIL_BYTES, newest_lines
from omx_autoresearch.agents.payloads import handed_texts, prompt_key
from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.times import seconds_between
from omx_autoresearch.system.processes import ON_LINUX, open_files

TYPE_CHECKING = False

_WRITTEN_LATER_SECONDS = 0.2
"""A record has the time of its writing. Codex puts no tool into the background before 0.25 s."""
_SENDING = (b'"name":"send_', b'"name":"followup_')
"""How a call begins whose text becomes a prompt of a session."""
LIMIT_BYTES = 64 * 1024 * 1024
"""How far back we look for what the newest turn did; even one of several hours is smaller."""
_POLICY_LIMIT_BYTES = 1024 * 1024 * 1024
"""The same for the policy: a held session is one turn, and its policy stands at its beginning."""


def recorded_policy(path: str) -> str:
    """The sandbox policy of the newest turn of a rollout; empty where the rollout does not tell it."""
    try:
        for line in newest_lines(path, b'"turn_context"', _POLICY_LIMIT_BYTES):
            record = json_codec.decoder(dict)(line.decode("utf-8", "replace"))
            if record.get("type") == "turn_context":
                return str(record["payload"]["sandbox_policy"]["type"])
    except OSError:
        return ""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "unknown"
    return ""


def active_goal(path: str) -> str:
    """The goal that Codex pursues in the session of a rollout; empty for none."""
    try:
        for line in newest_lines(path, b'"thread_goal_', TAIL_BYTES):
            record = json_codec.decoder(dict)(line.decode("utf-8", "replace"))
            payload = record.get("payload")
            kind = payload.get("type") if isinstance(payload, dict) else None
            if isinstance(kind, str) and kind.startswith("thread_goal_"):
                goal = payload.get("goal")
                is_active = isinstance(goal, dict) and goal.get("status") == "active"
                return str(goal.get("objective") or "a goal") if is_active else ""
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""
    return ""


def rollout_origin(transcript_path: str, prompt: str, began_at: str, *, is_of_tool: bool = False) -> Origin:
    """Whether Codex sent the event on stdin.

    Args:
        transcript_path: the rollout that the event names. Codex keeps the rollouts of its sessions open.
        prompt: the prompt of the event; empty at the start of a session.
        began_at: when this process began, ISO 8601 UTC; empty if unknown.
        is_of_tool: the event tells of a tool, which may be written down as at work all the same.
    """
    if not ON_LINUX:
        return BY_SIGNS
    if not stat.S_ISFIFO(os.fstat(STDIN).st_mode):
        return Origin("forged", "this hook did not get its event through a pipe, which Codex always uses")
    rollouts = {path for path in open_files(os.getppid()) if os.path.basename(path).startswith("rollout-")}
    if not rollouts:
        return Origin("unproven", "Codex keeps no record of this session")
    meant = os.path.realpath(transcript_path)
    if meant not in rollouts:
        return Origin("forged", "the event names a session that its agent CLI does not have open")
    if is_of_tool:
        return PROVEN
    try:
        if _is_tool_at_work(meant, began_at):
            return Origin("forged", "a tool of its session started this hook")
        if prompt and any(_is_sent(path, prompt) for path in rollouts):
            return Origin("no_person", "a model sent this text to a session")
        if any(_is_tool_at_work(path, began_at) for path in rollouts - {meant}):
            return Origin("unproven", "a tool of another session in the same Codex is at work")
    except (OSError, ValueError, KeyError, RecursionError):
        return Origin("forged", "the record of its session cannot be read")
    return PROVEN


def _is_sent(path: str, prompt: str) -> bool:
    """True where a call in a rollout sends this text to a session.

    A call that interrupts its own turn has no event of its tool, and the text comes back as a prompt all the same.
    """
    key = prompt_key(prompt)
    for line in newest_lines(path, b'"function_call"', LIMIT_BYTES):
        if not any(word in line for word in _SENDING):
            continue
        call = json_codec.decoder(dict)(line.decode("utf-8", "replace")).get("payload", {})
        if isinstance(call.get("name"), str) and isinstance(call.get("arguments"), str):
            arguments = json_codec.decoder(dict)(call["arguments"])
            texts = handed_texts({"tool_name": call["name"], "tool_input": arguments})
            if key in map(prompt_key, texts):
                return True
    return False


def _is_tool_at_work(transcript_path: str, began_at: str) -> bool:
    """True if a tool of the newest turn has not ended, or ended after this process began.

    Codex submits a prompt after all called tools have returned their output. A tool may then go on in the background,
    but it began before.
    """
    ended: set[str] = set()
    has_call = False
    for line in newest_lines(transcript_path, b'"type"', LIMIT_BYTES):
        record = json_codec.decoder(dict)(line.decode("utf-8", "replace"))
        payload = record.get("payload")
        kind = payload.get("type") if isinstance(payload, dict) else None
        if kind == "task_started":
            return _is_older(began_at, record["timestamp"])
        if not isinstance(kind, str) or not isinstance(payload.get("call_id"), str):
            continue
        if kind.endswith("_output"):
            if has_call:
                return False  # the calls before this output were over when the later ones were made
            if _is_older(began_at, record["timestamp"]):
                return True
            ended.add(payload["call_id"])
        elif kind.endswith("_call"):
            if payload["call_id"] not in ended:
                return True
            has_call = True
    return False


def _is_older(began_at: str, at: str) -> bool:
    """Whether a process began before a record of the rollout was due, as a tool in the background did."""
    return bool(began_at) and seconds_between(began_at, at) > _WRITTEN_LATER_SECONDS
