"""One call of a tool: its caller, the caller's sandbox, and the report of an error."""

from __future__ import annotations

import inspect
import json
import os
import sys
import threading
import time
import traceback
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import anyio.from_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from omx_autoresearch.agents.events import HookEvent
from omx_autoresearch.agents.registry import adapter
from omx_autoresearch.foundation.clients import CLIENT_NAMES, SESSION_IDS, SHELL_MARKS
from omx_autoresearch.foundation.errors import AutoresearchError, StepIllegal, UsageError
from omx_autoresearch.foundation.input_validation import schema_of
from omx_autoresearch.foundation.records import to_plain
from omx_autoresearch.journal.layout import Runtime, StateHome, state_home
from omx_autoresearch.journal.safe_files import disk_refused
from omx_autoresearch.missions.claims import take_in_quietly, write_changed
from omx_autoresearch.missions.registry import Registry, bound_mission
from omx_autoresearch.missions.sessions import TASK_VARIABLE, client_process, sessions_of_process
from omx_autoresearch.missions.views import resolve_task
from omx_autoresearch.surfaces.sources import SOURCES
from omx_autoresearch.system.processes import ProcessIdentity, ancestors, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


# --- The session of a tool call, determined at every call, because a client's process outlives its sessions.
#
# from the call         Codex names the session in the call's ``_meta``, which no model can write.
# from the process      Claude Code and Gemini CLI name nothing that a hook would know before the call has ended, and
#                       Claude's server has the environment of an older session after ``/clear`` and ``--continue``.
#                       So we take the newest session of the client above this process.
#
# When a session begins in a process, a hook marks the older one as left. If two remain, we take neither.

SESSION_KEYS = ("sessionId", "threadId")
"""The keys of a call's ``_meta`` in which a client names the session, best first."""
_TYPE_IT = "ask a person to type in this session: $autoresearch TASK; or call the tool `start`"


@dataclass(frozen=True, slots=True)
class ToolCaller:
    """The caller of a tool.

    Attributes:
        session_id: the client's session id; empty if neither the call nor the registry tells it.
        task_id: the mission that holds the session; empty for none.
        why_not: why the caller has no mission of its own; empty if it has one.
    """

    session_id: str
    task_id: str
    why_not: str = ""


def tool_caller(runtime: Runtime, meta: Mapping[str, object]) -> ToolCaller:
    """The caller of one tool call, by the call's ``_meta`` or by the client above this process."""
    for key in SESSION_KEYS:
        named = meta.get(key)
        if isinstance(named, str) and named:
            if _is_anothers(runtime, named):
                return ToolCaller("", "", "the call names a session of another client's process")
            return _of_session(runtime, named)
    process = client_process()
    bound = sessions_of_process(Registry(runtime.home), process) if process else []
    found = [entry for entry in bound if not entry.left_at]
    if len(found) == 1:
        return _of_session(runtime, found[0].session_id)
    if found:
        names = ", ".join(entry.task_id for entry in found)
        return ToolCaller("", "", f"the client above this server has several sessions, of {names}")
    return ToolCaller("", "", "no mission holds this session")


def _is_anothers(runtime: Runtime, session_id: str) -> bool:
    """True if the session's client runs, but not above this server: then the call comes from another client."""
    try:
        entry = Registry(runtime.home).find(session_id)
    except AutoresearchError:
        return False  # code that needs the entry reports the error
    if entry is None or not entry.client_pid:
        return False
    process = ProcessIdentity(entry.client_pid, entry.client_started)
    above = {os.getpid(), *(found.pid for found in ancestors(os.getpid()))}
    return process.pid not in above and is_alive(process)


def _of_session(runtime: Runtime, session_id: str) -> ToolCaller:
    try:
        mission = bound_mission(runtime.home, session_id)
    except AutoresearchError as error:
        return ToolCaller(session_id, "", str(error))
    if mission is None:
        return ToolCaller(session_id, "", "no mission holds this session")
    return ToolCaller(session_id, mission.task_id)


# --- a tool: a function of a call and of the client's arguments, which returns a document


TEXT_CHARACTERS = 2000
"""The length of one text in an answer; longer ones are cut."""
OUTPUT_CHARACTERS = 4000
"""The same for the output of a command."""
LIST_LIMIT = 50
WAIT_SECONDS = 45.0
"""Below every known client's limit for a call (Codex: 60 s)."""
_LOOK_SECONDS = 0.25
"""How often a call that waits looks whether its client is still there."""
Limit = Annotated[int, Field(ge=1, le=LIST_LIMIT, description="At most this many")]
Seconds = Annotated[
    float, Field(ge=0, le=50, description="Wait at most this long; the run goes on by itself")
]

newest_call: list[str] = [""]
"""When the newest tool call of this server ended, ISO 8601 UTC."""
_ONE_AT_A_TIME = threading.Lock()
"""A run of the validator forks: with two calls at once, a child could inherit the other call's locks."""


def make_tool(  # noqa: PLR0913 - each is a hint to the client, or a limit
    runtime: Runtime,
    function: Callable[..., Any],
    *,
    is_looking: bool = False,
    is_idempotent: bool = True,
    is_alone: bool = True,
    text_characters: int = TEXT_CHARACTERS,
) -> Tool:
    """Make a tool from the name, docstring, parameters and return type of ``function(call, ...)``.

    Args:
        runtime: the world.
        function: returns a document, or a tuple of documents whose fields are merged in the answer.
        is_looking: it writes nothing.
        is_idempotent: repeating a call has no further effect.
        is_alone: no other call runs at the same time; False for a tool that only looks, however long.
        text_characters: the length of a text in the answer.
    """
    types = get_type_hints(function, include_extras=True)
    answer = types.pop("return")
    parameters = [
        parameter.replace(annotation=types[name])
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "call"
    ]

    def run(context: Context[Any, Any], **arguments: Any) -> CallToolResult:
        with begun(runtime, context, is_alone=is_alone) as call:
            found = function(call, **arguments)
            documents = found if isinstance(found, tuple) else (found,)
            told = {name: item for document in documents for name, item in to_plain(document).items()}
            plain = cut(told, text_characters)
        text = json.dumps(plain, ensure_ascii=False, indent=2)
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=plain)

    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_ONLY, annotation=Context[Any, Any])
    run.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    tool = Tool.from_function(
        run,
        name=function.__name__,
        description=" ".join((function.__doc__ or "").split()),
        context_kwarg="context",
        annotations=ToolAnnotations(
            read_only_hint=is_looking,
            destructive_hint=False,
            idempotent_hint=is_idempotent,
            open_world_hint=False,
        ),
        structured_output=False,  # the schema is ours: pydantic cannot resolve what is imported for types alone
    )
    tool.fn_metadata.output_schema = _schema_beside(get_args(answer) or (answer,))
    return tool


def _schema_beside(kinds: tuple[Any, ...]) -> dict[str, Any]:
    """The schema of an answer that has the fields of all documents."""
    first, *others = (schema_of(kind, mode="serialization") for kind in kinds)
    for other in others:
        first["properties"] |= other["properties"]
        first["required"] = [*first.get("required", []), *other.get("required", [])]
        first["$defs"] = {**first.get("$defs", {}), **other.get("$defs", {})}
    return first


def cut(value: Any, text_characters: int = TEXT_CHARACTERS) -> Any:
    """A document with its long texts and long lists of texts cut and marked."""
    if isinstance(value, str) and len(value) > text_characters:
        return f"{value[:text_characters]}... (cut)"
    if isinstance(value, dict):
        return {name: cut(item, text_characters) for name, item in value.items()}
    if isinstance(value, list):
        shown = [cut(item, text_characters) for item in value]
        if len(shown) > LIST_LIMIT and all(isinstance(item, str) for item in shown):
            return [*shown[:LIST_LIMIT], f"... and {len(shown) - LIST_LIMIT} more (cut)"]
        return shown
    return value


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool.

    Attributes:
        runtime: the world.
        caller: the calling session, and the mission that holds it.
        client: the client's name; empty if unknown.
        meta: the call's ``_meta``.
        context: the context of the request, for notifications.
    """

    runtime: Runtime
    caller: ToolCaller
    client: str
    meta: Mapping[str, Any]
    context: Context[Any, Any]

    def own_task(self, named: str = "") -> str:
        """The mission that holds the caller's session, the only one it may write to; takes in the mission's inbox.

        Raises:
            StepIllegal: there is none, or the call names another one.
        """
        task_id = self.caller.task_id
        if not task_id:
            raise StepIllegal(f"{self.caller.why_not}, so nothing is written", next_step=_TYPE_IT)
        if named not in ("", task_id, task_id.split("-", 2)[-1]):
            raise StepIllegal(
                f"this session works on mission {task_id}, not on {named!r}", next_step="omit the task id"
            )
        take_in_quietly(self.runtime, task_id)
        return task_id

    def seen_task(self, named: str) -> str:
        """The mission to read: the caller's, the named one, or the project's only one; takes in its inbox.

        Raises:
            UsageError: there is none, or there are several.
        """
        task_id = "" if named else self.caller.task_id
        promised = self.runtime.environ.get(TASK_VARIABLE, "").partition(":")[0]
        try:
            task_id = task_id or resolve_task(self.runtime, named or promised, cwd=os.getcwd())
        except UsageError as error:
            if named:
                raise
            raise UsageError(f"{self.caller.why_not}; {error.message}", next_step=_TYPE_IT) from None
        take_in_quietly(self.runtime, task_id)
        return task_id

    @contextmanager
    def others_allowed(self) -> Iterator[None]:
        """Let other calls go on while this one waits; it reads and writes nothing meanwhile."""
        _ONE_AT_A_TIME.release()
        try:
            yield
        finally:
            _ONE_AT_A_TIME.acquire()

    def wait(self, wait: Callable[[float], bool], seconds: float) -> bool:
        """Wait by ``wait``, which tells whether the end has come, for so many seconds, while other calls go on.

        It ends at once where the client cancels the call or goes away.
        """
        deadline = time.monotonic() + seconds
        with self.others_allowed():
            while not wait(max(0.0, min(_LOOK_SECONDS, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    return False
                anyio.from_thread.check_cancelled()
            return True

    def is_sandboxed(self) -> bool:
        """Whether the caller's client runs tools in a sandbox, so that our runs need one too; true in doubt."""
        if not self.client:
            return True
        event = HookEvent(client=self.client, kind="tool", session_id=self.caller.session_id, cwd=os.getcwd())
        return adapter(self.client).is_sandboxed(event, self.runtime.environ, self.meta)


def server_runtime(home_path: str = "") -> Runtime:
    """The runtime of a server. It drops the session in its environment, which may be over."""
    environ = {name: value for name, value in os.environ.items() if name not in SESSION_IDS}
    return Runtime(
        home=StateHome(home_path or state_home(os.environ)),
        environ=environ,
        shell_marks=SHELL_MARKS,
        sources=SOURCES,
    )


@contextmanager
def begun(runtime: Runtime, context: Context[Any, Any], *, is_alone: bool = True) -> Iterator[Call]:
    """One call from its request; an error in it is reported with its slug and the next step.

    Args:
        runtime: the world.
        context: of the request.
        is_alone: as for `make_tool`.

    Raises:
        ToolError: any error; the SDK turns it into an error result.
    """
    try:
        with _ONE_AT_A_TIME if is_alone else nullcontext():
            request = context.request_context
            meta: dict[str, Any] = dict(request.meta or {})
            try:
                yield Call(runtime, tool_caller(runtime, meta), _client_of(request), meta, context)
            finally:
                for warning in write_changed(runtime):
                    sys.stderr.write(f"warning: {warning}\n")
                newest_call[0] = runtime.now()
    except AutoresearchError as error:
        raise _told(error) from None
    except Exception as error:  # noqa: BLE001 - for any error, the agent needs the next step
        if refused := disk_refused(error):
            raise _told(refused) from None
        traceback.print_exc(file=sys.stderr)
        raise ToolError(
            f"unexpected: {type(error).__name__}: {' '.join(str(error).split())[:200]}\nnext: ask a person to run "
            "omx-autoresearch doctor"
        ) from None


def _told(error: AutoresearchError) -> ToolError:
    return ToolError(f"{error.slug}: {error.message}\nnext: {error.next_step or 'call the tool `status`'}")


def _client_of(request: Any) -> str:
    """The client's name, from its own (``claude-code``, ``codex-mcp-client``, ``gemini-cli-mcp-client``)."""
    parameters = request.session.client_params
    name = parameters.client_info.name.lower() if parameters else ""
    return next((client for client in CLIENT_NAMES if name.startswith(client)), "")
