"""A short JSON-RPC dialogue with a program, one JSON object per line on stdin and stdout."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def last_answer(
    command: Sequence[str],
    messages: Sequence[dict[str, Any]],
    *,
    environ: Mapping[str, str],
    wait_seconds: float,
    cwd: str | None = None,
) -> dict[str, Any]:
    """Start a program, send it messages, and end it; each message waits for the answer to the one before.

    Args:
        command: the program's path, and its arguments.
        messages: requests, which have an ``id``, and notifications.
        environ: its environment.
        wait_seconds: the time limit for the whole dialogue.
        cwd: its working directory.

    Returns:
        The answer to the last request.

    Raises:
        OSError: it does not start, ends early, or does not answer in time.
        ValueError: an answer is not JSON.
    """
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=dict(environ),
            cwd=cwd,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        deadline = threading.Timer(wait_seconds, _end, (process.pid,))
        deadline.start()
        answer: dict[str, Any] = {}
        try:
            for message in messages:
                process.stdin.write(json.dumps(message).encode() + b"\n")
                process.stdin.flush()
                while "id" in message and answer.get("id") != message["id"]:
                    line = process.stdout.readline()
                    if not line:
                        raise OSError(
                            _last_words(errors)
                            if deadline.is_alive()
                            else f"no answer within {wait_seconds:g} s"
                        )
                    found = json.loads(line)
                    answer = found if isinstance(found, dict) else {}
        finally:
            deadline.cancel()
            _end(process.pid)
    return answer


def _end(pid: int) -> None:
    """End the program with its children: a wrapper's child would keep the pipe open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _last_words(errors: Any) -> str:
    errors.seek(0)
    return errors.read().decode("utf-8", "replace").strip()[-300:] or "it ended without an answer"
