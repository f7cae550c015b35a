"""The rollout, Codex's own record of a session, which no sandboxed tool can write, as a witness of a hook's event.

Codex sends an event through a pipe that it closes at once, but its rollout shows whether a tool can have started the
hook. This needs facts about processes that only Linux gives; elsewhere we accept events.
"""

from __future__ import annotations

import os
import stat

from omx_autoresearch.agents.machine import STDIN, without_waiting
from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.times import seconds_between
from omx_autoresearch.system.processes import ON_LINUX, open_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_SANDBOX = "danger-full-access"
_WRITTEN_LATER_SECONDS = 0.2
"""A record has the time of its writing. Codex puts no tool into the background before 0.25 s."""
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


def rollout_fault(transcript_path: str, began_at: str) -> str:
    """Why Codex cannot have sent the event on stdin; empty if it can.

    Args:
        transcript_path: the rollout that the event names. Codex keeps the rollouts of its sessions open.
        began_at: when this process began, ISO 8601 UTC; empty if unknown.
    """
    if not ON_LINUX:
        return ""
    if not stat.S_ISFIFO(os.fstat(STDIN).st_mode):
        return "this hook did not get its event through a pipe, which Codex always uses"
    rollouts = {path for path in open_files(os.getppid()) if os.path.basename(path).startswith("rollout-")}
    if not rollouts:
        return ""  # a session that is not recorded
    if os.path.realpath(transcript_path) not in rollouts:
        return "the event names a session that its agent CLI does not have open"
    try:
        at_work = _is_tool_at_work(transcript_path, began_at)
    except (OSError, ValueError, KeyError, RecursionError):
        return "the record of its session cannot be read"
    return "a tool of its session started this hook" if at_work else ""


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
            return False
        if not isinstance(kind, str) or not isinstance(payload.get("call_id"), str):
            continue
        if kind.endswith("_output"):
            if has_call:
                return False  # the calls before this output were over when the later ones were made
            if began_at and seconds_between(began_at, record["timestamp"]) > _WRITTEN_LATER_SECONDS:
                return True
            ended.add(payload["call_id"])
        elif kind.endswith("_call"):
            if payload["call_id"] not in ended:
                return True
            has_call = True
    return False
