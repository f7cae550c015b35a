"""The proof that an agent is held: it runs the installed hook line with a scratch state home.

The line runs in the client's shell with a synthetic stop, once for a session with an unfinished mission and once for
another session. It must refuse the first, and must print nothing for the second.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from omx_autoresearch.agents.hook_lines import HookProgram, hook_script, quoted
from omx_autoresearch.agents.parts import Check
from omx_autoresearch.foundation.errors import AutoresearchError
from omx_autoresearch.system.sandbox import box, can_isolate, no_box

if TYPE_CHECKING:
    from omx_autoresearch.agents.parts import Examination

PROOF_SECONDS = 60.0


def prove_hold(examination: Examination, line: str, program: HookProgram) -> list[Check]:
    """Try a stop line; two checks, ``hold`` and ``others``.

    Args:
        examination: the client's settings and environment.
        line: the line in the client's settings.
        program: the program that the line's script starts.
    """
    if not line:
        return [
            Check("hold", False, "no stop hook is registered, so no session is held", _again(examination))
        ]
    scratch_path = os.path.realpath(tempfile.mkdtemp(prefix="omx-autoresearch-"))
    try:
        _write_script(HookProgram(scratch_path, program.python_path, program.entry_path))
        session_id = examination.make_held_session(scratch_path)
        for name in ("active", "hook"):
            line = line.replace(quoted(f"{program.state_home_path}/{name}"), quoted(f"{scratch_path}/{name}"))
        environ = {
            name: value
            for name, value in examination.environ.items()
            if not name.startswith("OMX_AUTORESEARCH_")
        }
        client = replace(examination, environ=environ)
        event = {"hook_event_name": client.installation.client.entries[0].native_event, "cwd": scratch_path}
        stops = [
            {**event, "session_id": name, "stop_hook_active": False}
            for name in (session_id, f"not-{session_id}")
        ]
        with ThreadPoolExecutor() as both:
            held, other = both.map(lambda stop: run_line(client, line, stop, scratch_path), stops)
        return [_held(held, _again(examination)), _let_go(other)]
    except AutoresearchError as error:
        what = f"a test mission could not be made: {error.message}"
        return [Check("hold", False, what, error.next_step)]
    finally:
        shutil.rmtree(scratch_path, ignore_errors=True)


def _write_script(program: HookProgram) -> None:
    """Write the script by another process.

    Linux does not run a file that any process has open for writing (ETXTBSY). If we had it open here, a program that
    another thread starts at that moment would inherit it until its own exec.
    """
    write = ["sh", "-c", 'cat >"$1" && chmod 700 "$1"', "sh", program.script_path]
    subprocess.run(write, input=hook_script(program).encode(), check=True)


@dataclass(frozen=True)
class Answer:
    """The result of a client's line.

    Attributes:
        status: the exit status; None if it did not end by itself.
        output: its standard output.
        errors: the end of its standard error, or why it did not run.
    """

    status: int | None
    output: bytes
    errors: str


def run_line(
    examination: Examination, line: str, payload: dict[str, object], cwd: str | None = None
) -> Answer:
    """Run a line as the client does, in its shell and with an event on stdin."""
    try:
        done = subprocess.run(
            [*examination.installation.hook_shell, line],
            input=json.dumps(payload).encode(),
            capture_output=True,
            env=dict(examination.environ),
            cwd=cwd,
            timeout=PROOF_SECONDS,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return Answer(None, b"", f"no answer within {PROOF_SECONDS:g} s")
    except OSError as error:
        return Answer(None, b"", str(error))
    return Answer(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace").strip()[-500:])


def _again(examination: Examination) -> str:
    return f"{examination.install} again; if this stays, report it with this line"


def _held(answer: Answer, again: str) -> Check:
    if answer.status != 0:
        what = f"the hook of a held session ended with {answer.status}: {answer.errors}"
        return Check("hold", False, what, again)
    if not answer.output:
        what = f"a session with an unfinished mission was let go: {answer.errors or 'no message'}"
        return Check("hold", False, what, again)
    try:
        value = json.loads(answer.output)
    except ValueError:
        shown = answer.output[:200].decode("utf-8", "replace")
        what = f"the hook printed more than its answer: {shown!r}"
        return Check("hold", False, what, "change the shell's start-up files so that they print nothing")
    if not isinstance(value, dict) or value.get("decision") != "block" or not value.get("reason"):
        if not can_isolate() and no_box() in str(value):
            what = f"a session with an unfinished mission was let go, since {no_box()}"
            return Check("hold", False, what, box().cure)
        return Check("hold", False, "the answer to a held session is not a refusal", again)
    return Check("hold", True, "a stop of a session with an unfinished mission is refused")


def _let_go(answer: Answer) -> Check:
    if answer.status == 0 and not answer.output:
        return Check("others", True, "a stop of any other session is let go, and the hook prints nothing")
    shown = answer.output[:200].decode("utf-8", "replace") or answer.errors
    what = f"the hook did not ignore another session: status {answer.status}, {shown!r}"
    return Check("others", False, what, "uninstall the hooks, and report this line")
