"""The rollout, Codex's own record of a session, which no sandboxed tool can write, as a witness of a hook's event.

Codex sends an event through a pipe that it closes at once, but its rollout shows whether a tool can have started the
hook. This needs facts about processes that only Linux gives; elsewhere we accept events.
"""

from __future__ import annotations

import os
import stat

from omx_autoresearch.agents.events import BY_SIGNS, PROVEN, Origin
from omx_autoresearch.agents.machine import STDIN, without_waiting
from omx_autoresearch.agents.payloads import handed_texts, prompt_key
from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.times import seconds_between
from omx_autoresearch.system.processes import ON_LINUX, open_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_SANDBOX = "danger-full-access"
_WRITTEN_LATER_SECONDS = 0.2
"""A record has the time of its writing. Codex puts no tool into the background before 0.25 s."""
_SENDING = (b'"name":"send_', b'"name":"followup_')
"""How a call begins whose text becomes a prompt of a session."""
LIMIT_BYTES = 64 * 1024 * 1024
"""How far back we look; even a turn of several hours is smaller."""
_BLOCK_BYTES = 1024 * 1024


def newest_lines(path: str, mark: bytes) -> Iterator[bytes]:
    """The lines that contain ``mark``, newest first.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb", buffering=0, opener=without_waiting) as stream:
        size = end = os.fstat(stream.fileno()).st_size
        rest = b""
        while end > 0 and size - end < LIMIT_BYTES:
            start = max(0, end - _BLOCK_BYTES)
            block = os.pread(stream.fileno(), end - start, start) + rest
            first, *lines = block.split(b"\n") if start else [b"", *block.split(b"\n")]
            for line in reversed(lines):
                if mark in line:
                    yield line
            rest, end = first, start


def is_sandboxed(path: str) -> bool:
    """False only if the newest turn of a rollout names the policy without a sandbox."""
    try:
        for line in newest_lines(path, b'"turn_context"'):
            record = json_codec.decoder(dict)(line.decode("utf-8", "replace"))
            if record.get("type") == "turn_context":
                return bool(record["payload"]["sandbox_policy"]["type"] != _NO_SANDBOX)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return True
    return True


def rollout_origin(transcript_path: str, prompt: str, began_at: str) -> Origin:
    """Whether Codex sent the event on stdin.

    Args:
        transcript_path: the rollout that the event names. Codex keeps the rollouts of its sessions open.
        prompt: the prompt of the event; empty at the start of a session.
        began_at: when this process began, ISO 8601 UTC; empty if unknown.
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
    for line in newest_lines(path, b'"function_call"'):
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
    for line in newest_lines(transcript_path, b'"type"'):
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
