"""The hook process: bytes in, bytes out, exit 0: ``hook.py STATE_HOME CLIENT < event``.

Three steps, and the first is not here: the shell line in the client's settings finds an empty registry and ends.

    1  nothing is active             the shell line, no interpreter
    2  a session of no mission       this file down to :func:`concerns_us`, a byte scan that proves absence
    3  a session of ours             a tool event is a heartbeat; everything else goes to the use cases

Once the answer is out, the files under ``.omx`` follow the journal; only the end of this process waits for them.
Step 2 may prove absence and nothing else. Nothing here may be imported that is not needed: every stop and, where
installed, every tool call of every session passes through. A fault of ours ends 0 with a line in the hook log.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

PAYLOAD_LIMIT_BYTES = 64 * 1024 * 1024
READ_SECONDS = 5.0
"""For the whole event; a client that has not sent it by then has sent nothing that we can judge."""
QUIET_SECONDS = 0.1
"""How long the input must stay quiet after a whole object, for a client that does not close its end."""
FOLLOW_SECONDS = 2
"""How long the files under ``.omx`` may take once the answer is out: a client drops what a late hook answered."""
FRESH_SECONDS = 60
"""A tool event later than this after the last one goes the long way, which knows when a binding has expired."""
_TOOL_EVENTS = (b"PostToolUse", b"AfterTool", b"PostToolUseFailure")
_PROMPTS = (b"UserPromptSubmit", b"BeforeAgent")
_STARTS = (b"SessionStart",)
_NEITHER = (
    *_TOOL_EVENTS,
    b"AfterAgent",
    b"PreCompact",
    b"SessionEnd",
    b"Stop",
    b"StopFailure",
    b"SubagentStop",
)
"""The clients' names of events that are neither a prompt nor a start. An event of another name may be either."""
_HARMLESS = (*_TOOL_EVENTS, *_PROMPTS, *_STARTS, b"PreCompact", b"SessionEnd")
"""Events of which none lets a session go."""
_PROMPTING_TOOLS = (
    b"wakeup",
    b"cron",
    b"schedul",
    b"send",
    b"followup",
    b"goal",
    b"loop",
    b"remind",
    b"skill",
)
"""As in ``agents.payloads``: words in the names of tools whose texts may come back as a prompt."""
_BEGINNINGS = (b"$", b":", b'"/', b" /", b"n/", b"r/", b"t/")
"""What stands in JSON before the first word of a command: a plug-in's name ends in a colon, white space is escaped."""
_OURS = (b"omx-bind-", b"omx-autoresearch")
_COMMAND = b"autoresearch"
_SESSION_KEY = b'"session_id"'
_TOOL_KEY = b'"tool_name"'
_EVENT_KEY = b'"hook_event_name"'
_ESCAPED_LETTERS = (b"\\u005", b"\\u006", b"\\u007")
"""A letter may be written as an escape, in a key too; then bytes prove nothing."""
PACKAGES = {
    "jinja2": "jinja2",
    "psutil": "psutil",
    "pydantic": "pydantic",
    "transitions": "transitions",
    "yaml": "pyyaml",
}
"""The third-party packages that a hook may load: the name to install, by the name to import."""
_LOG_LIMIT_BYTES = 1024 * 1024


def read_event(descriptor: int) -> bytes:
    """The event on stdin, bounded in size and in time: a client that never closes its end must not hang us."""
    import select
    import time

    deadline = time.monotonic() + READ_SECONDS
    chunks: list[bytes] = []
    size, wait_seconds = 0, READ_SECONDS
    while size <= PAYLOAD_LIMIT_BYTES and wait_seconds > 0:
        if not select.select([descriptor], [], [], wait_seconds)[0]:
            wait_seconds = deadline - time.monotonic()
            if wait_seconds <= 0 or is_whole(b"".join(chunks)):
                break
            continue  # it only looks like an end: a message may hold as many braces as it likes
        chunk = os.read(descriptor, 1 << 20)
        if not chunk:
            break
        chunks.append(chunk)
        size += len(chunk)
        wait_seconds = deadline - time.monotonic()
        if chunk.rstrip().endswith(b"}"):  # perhaps all; a client that closes its end is not waited for
            wait_seconds = min(wait_seconds, QUIET_SECONDS)
    return b"".join(chunks)


def is_whole(raw: bytes) -> bool:
    """True for the text of a whole JSON value."""
    import json

    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def value_in(raw: bytes, key: bytes) -> bytes | None:
    """The text under a quoted key by a byte scan; None when the scan cannot be sure (several, escapes, none)."""
    at = raw.find(key)
    if at < 0 or any(escape in raw for escape in _ESCAPED_LETTERS):
        return None
    rest = raw[at + len(key) :].lstrip()
    if rest[:1] != b":":
        return None
    rest = rest[1:].lstrip()
    end = rest.find(b'"', 1)
    if rest[:1] != b'"' or end < 0:
        return None
    value = rest[1:end]
    return None if b"\\" in value or raw.find(key, at + 1) >= 0 else value


def session_in(raw: bytes) -> bytes | None:
    """The session id, where bytes alone are sure of it."""
    return value_in(raw, _SESSION_KEY)


def concerns_us(raw: bytes, active: list[str] | None) -> bool:
    """False only when it is proven that the event concerns no entry of the registry and no command of ours.

    ``active`` are the registry's names; None when they could not be read, which proves nothing.
    """
    if active is None or any(escape in raw for escape in _ESCAPED_LETTERS):
        return True
    event = value_in(raw, _EVENT_KEY)
    if event not in _NEITHER + _STARTS and _COMMAND in raw:
        return True
    if event not in _NEITHER + _PROMPTS and (
        os.environ.get("OMX_AUTORESEARCH_TASK")
        or b'"clear"' in raw
        or (active and (b'"fork"' in raw or b'"resume"' in raw))
    ):
        return True
    if any(name.startswith("h-token-") for name in active) and _OURS[0] in raw:
        return True
    if not active:
        return False
    if event in _TOOL_EVENTS and hands_on(raw):
        return True
    session = session_in(raw)
    if session is None or not is_plain(session):
        return True  # absence is not proven
    return session.decode() in active


def hands_on(raw: bytes) -> bool:
    """False only if no text of a tool event can come back as a prompt that matters."""
    tool = value_in(raw, _TOOL_KEY)
    if any(word in (tool or b"").lower() for word in _PROMPTING_TOOLS) or (tool is None and _TOOL_KEY in raw):
        return True
    return _COMMAND in raw and any(before + _COMMAND in raw for before in _BEGINNINGS)


def is_plain(session: bytes) -> bool:
    """True for an id that surely is its own file name (``journal.layout.session_file_name`` has the whole rule)."""
    if not 8 <= len(session) <= 128 or session[:1] == b"-" or session[:2] == b"h-":
        return False
    return not session.strip(b"abcdefghijklmnopqrstuvwxyz0123456789-")


def beat_tool(raw: bytes, home_path: str, session: str) -> bool:
    """The short path of a tool event of a bound session: one heartbeat line. False: the use case must look."""
    is_ours = any(word in raw for word in _OURS)
    if value_in(raw, _EVENT_KEY) not in _TOOL_EVENTS or is_ours or b'"agent_id"' in raw or hands_on(raw):
        return False
    try:
        entry = _read_now(os.path.join(home_path, "active", session))
    except OSError:
        return False
    if b'"state":"bound"' not in entry:
        return False
    at = entry.find(b'"task_id":"') + 11
    task = entry[at : entry.find(b'"', at)].decode("ascii", "replace")
    path = os.path.join(home_path, "missions", task, "heartbeat.jsonl")
    import time

    now = time.time_ns()
    try:
        flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags)
    except OSError:
        return False
    try:
        if _last_beat(descriptor) < _stamp(now - FRESH_SECONDS * 10**9):
            return False
        os.write(descriptor, f'{{"ts":"{_stamp(now)}","status":"tool","session":"{session}"}}\n'.encode())
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _read_now(path: str) -> bytes:
    """The beginning of a small file; empty for a pipe in its place, which is not waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)


def _last_beat(descriptor: int) -> str:
    """The time of the newest heartbeat; empty when it cannot be told."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    line = os.pread(descriptor, 512, max(0, size - 512)).rstrip(b"\n").rpartition(b"\n")[2]
    return line[7:34].decode("ascii", "replace") if line.startswith(b'{"ts":"') else ""


def _stamp(moment_ns: int) -> str:
    """A moment as it stands in records."""
    import time

    second, rest = divmod(moment_ns, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(second))}.{rest // 1000:06d}Z"


def answer(raw: bytes, client_name: str, home_path: str) -> bytes:
    """Steps 2 and 3: what to print for one event; empty for silence."""
    active: list[str] | None = []
    try:
        active = os.listdir(os.path.join(home_path, "active"))
    except FileNotFoundError:
        pass
    except OSError:
        active = None
    if not concerns_us(raw, active):
        return b""
    session = session_in(raw)
    if session is not None and is_plain(session) and beat_tool(raw, home_path, session.decode()):
        return b""
    return evaluate(raw, client_name, home_path)


def evaluate(raw: bytes, client_name: str, home_path: str) -> bytes:
    """The use cases: translate, decide, render."""
    from omx_autoresearch.agents.registry import (
        adapter,
        denial_of,
        goal_of,
        origin_of,
        parse_bytes,
        running_client,
    )
    from omx_autoresearch.foundation.records import replace
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.surfaces.sources import SOURCES

    sys.meta_path.append(_Packages())
    spoken = adapter(client_name)
    event = parse_bytes(client_name, raw, os.environ)
    if event.fault:
        log(home_path, f"{client_name}: {event.fault}")
        return _unread(raw, home_path, event.fault)
    runtime = replace(Runtime.of_process(home_path=home_path), sources=SOURCES)
    is_tool_of_ours = _OURS[1].decode() in event.tool_command
    if is_tool_of_ours or event.kind in ("stop", "prompt"):  # what may run a command of the contract
        event = replace(event, is_sandboxed=spoken.is_sandboxed(event, os.environ))
    is_verdict = is_tool_of_ours and " review " in event.tool_command
    if is_verdict or event.kind in ("prompt", "session_start"):  # what may speak for a person or a reviewer
        event = replace(event, origin=origin_of(event, _began_at()))
    if event.kind == "stop" or (event.kind == "prompt" and _COMMAND in raw):  # what may end beside a goal
        event = replace(event, goal=goal_of(event), denial=denial_of(event) if event.kind == "stop" else "")
    client = running_client(spoken.CLIENT, os.environ)
    if event.kind in ("stop", "subagent_stop"):
        from omx_autoresearch.missions.stop import answer_stop

        reply = answer_stop(runtime, client, event, entered_at=_began_at())
    else:
        from omx_autoresearch.missions.hook_events import answer_event

        reply = answer_event(runtime, client, event)
    if reply.fault:
        log(home_path, f"{client_name}: session {event.session_id[:80]!r}: {reply.fault}")
    return spoken.render(event, reply)


def _unread(raw: bytes, home_path: str, fault: str) -> bytes:
    """What to say of an event that cannot be read (too large, too slow, cut); empty unless it let a held session go."""
    session = session_in(raw)
    if session is None or not is_plain(session) or value_in(raw, _EVENT_KEY) in _HARMLESS:
        return b""
    if not os.path.lexists(os.path.join(home_path, "active", session.decode())):
        return b""
    import json

    said = (
        f"[omx-autoresearch] an event of this session could not be read, so a stop would have been let go: {fault}. "
        "The mission is not complete; see: omx-autoresearch status"
    )
    return json.dumps({"systemMessage": said}).encode() + b"\n"


def _began_at() -> str:
    """When this process began, at the latest; empty where the system does not tell.

    The same hook registered twice is started twice at once, however late the second one gets to its decision. The
    kernel counts in ticks, rounded down (proc(5)): one is added, so that a process never seems older than it is.
    """
    import time

    try:
        with open("/proc/self/stat", "rb") as stream:
            ticks = int(stream.read().rpartition(b")")[2].split()[19]) + 1
        age_seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return ""
    return _stamp(time.time_ns() - int(max(0.0, age_seconds) * 1e9))


class _Packages:
    """Finds the third-party packages, which ``-S`` leaves out, once one of them is asked for: most events need none."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """The spec of a package of ours, with the interpreter's own site folders on the path from then on."""
        if name not in PACKAGES:
            return None
        import importlib.machinery
        import site

        sys.meta_path.remove(self)
        site.main()
        return importlib.machinery.PathFinder.find_spec(name)


def log(home_path: str, text: str) -> None:
    """One line in ``hook.log``; the log is for people and is never read by us."""
    import time

    path = os.path.join(home_path, "hook.log")
    try:
        if os.path.exists(path) and os.path.getsize(path) > _LOG_LIMIT_BYTES:
            os.replace(path, path + ".old")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o644)
        try:
            line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {' '.join(text.split())}\n"
            os.write(descriptor, line.encode("utf-8", "replace"))
        finally:
            os.close(descriptor)
    except OSError:
        return


def main(argv: list[str]) -> int:
    """Answer one event; never anything but exit 0 (1 when not even the fault could be printed)."""
    if len(argv) != 3:
        return 0
    home_path, client_name = argv[1], argv[2]
    try:
        reply = answer(read_event(0), client_name, home_path)
        if reply:
            os.write(1, reply)
    except BaseException as error:  # noqa: BLE001 - whatever it is, an agent must not be held by it
        return _let_go(home_path, client_name, error)
    finally:
        _follow(home_path)
    return 0


class _Late(BaseException):
    """The files under ``.omx`` take too long; the next look brings them up."""


def _follow(home_path: str) -> None:
    """Write what people read under ``.omx`` of the missions that changed here; nothing here is a fault of the event."""
    store = sys.modules.get("omx_autoresearch.missions.store")
    if store is None or not store.changed:
        return
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.claims import write_changed
    from omx_autoresearch.system.processes import signals

    def late(*_: object) -> None:
        raise _Late

    try:
        signals.signal(signals.SIGALRM, late)
        signals.alarm(FOLLOW_SECONDS)
        for warning in write_changed(Runtime.of_process(home_path=home_path)):
            log(home_path, warning)
        signals.alarm(0)
    except BaseException as error:  # noqa: BLE001 - the answer is out
        log(home_path, f"the files under .omx were not brought up: {type(error).__name__} {error}")


def _let_go(home_path: str, client_name: str, error: BaseException) -> int:
    """Tell the person of a fault of ours, and let the session go."""
    try:
        import traceback

        where = traceback.extract_tb(error.__traceback__)
        place = f"{os.path.basename(where[-1].filename)}:{where[-1].lineno}" if where else "?"
        log(home_path, "".join(traceback.format_exception(error)))
        import json

        said = (
            f"[omx-autoresearch] an internal fault let this session go: {type(error).__name__} at {place}. "
            f"Details: {home_path}/hook.log. Check with: omx-autoresearch doctor {client_name}"
        )
        os.write(1, json.dumps({"systemMessage": said}).encode() + b"\n")
    except Exception:  # noqa: BLE001
        return 1
    return 0
