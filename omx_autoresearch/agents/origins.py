"""Where a hook's event came from: whether the client itself can have sent it.

The parent of a hook proves nothing: a tool shell that calls ``exec`` leaves the client as the parent of whatever it
becomes. How the event reaches the hook tells more, and every client has a way of its own, seen in the clients:

Claude Code, Gemini CLI   a socket, whose other end the kernel says was made by the client
Codex CLI                 a pipe, closed by then; but its rollout shows whether a tool can have started the hook

Both are facts of Linux. Elsewhere nobody can tell, and nothing is held against an event.
"""

from __future__ import annotations

import os
import stat

from omx_autoresearch.agents.transcripts import newest_lines
from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.times import seconds_between
from omx_autoresearch.system.processes import ON_LINUX, ancestors, open_files, socket_peer

_STDIN = 0
_WRITTEN_LATER_SECONDS = 0.2
"""A record's time is that of its writing. No tool of Codex's goes to the background sooner than after 0.25 s."""


def socket_fault() -> str:
    """Why the event on stdin was not sent by a process above this one through a socket; empty where it was."""
    if not ON_LINUX:
        return ""
    peer = socket_peer(_STDIN)
    if any(process.pid == peer for process in ancestors(os.getpid())):
        return ""
    what = f"process {peer}" if peer else "a file or a pipe"
    return f"{what} gave this hook its event, not the agent CLI"


def rollout_fault(transcript_path: str, began_at: str) -> str:
    """Why Codex cannot have sent the event on stdin; empty where it can.

    Args:
        transcript_path: the rollout that the event names. Codex holds those of its sessions open.
        began_at: when this process began, ISO 8601 UTC; empty where that is not known.
    """
    if not ON_LINUX:
        return ""
    if not stat.S_ISFIFO(os.fstat(_STDIN).st_mode):
        return "no pipe gave this hook its event, and Codex uses one"
    rollouts = {path for path in open_files(os.getppid()) if os.path.basename(path).startswith("rollout-")}
    if not rollouts:
        return ""  # a session that is not recorded
    if os.path.realpath(transcript_path) not in rollouts:
        return "the event names no session that its agent CLI has open"
    try:
        at_work = _is_tool_at_work(transcript_path, began_at)
    except (OSError, ValueError, KeyError, RecursionError):
        return "the record of its session cannot be read"
    return "a tool of its session started this hook" if at_work else ""


def _is_tool_at_work(transcript_path: str, began_at: str) -> bool:
    """True where a tool that the newest turn called has not ended, or ended after this process had begun.

    Codex submits a prompt when all tools that the model called have given their output. A tool may go on in the
    background after that, but then it began before.
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
