"""One call of a tool: who makes it, with what sandbox, and how what went wrong is told."""

from __future__ import annotations

import inspect
import json
import os
import sys
import threading
import traceback
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

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
from omx_autoresearch.missions.claims import take_in_quietly, write_changed
from omx_autoresearch.missions.registry import Registry, bound_mission
from omx_autoresearch.missions.sessions import TASK_VARIABLE, client_process, sessions_of_process
from omx_autoresearch.missions.views import resolve_task
from omx_autoresearch.surfaces.sources import SOURCES
from omx_autoresearch.system.processes import ProcessIdentity, ancestors, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


# --- Which session a call of a tool (MCP) comes from, asked anew at every call: a client's process outlives its
# sessions.
#
# the call names it     Codex does, in the call's ``_meta``; what a client writes there no model can
# the client's process  Claude Code and Gemini CLI name nothing that a hook would know before the call has ended (and
# the environment of Claude's server is that of another session after ``/clear`` and
# ``--continue``): the session that the client above this process began last
#
# A hook marks the older session of a process as left when another one begins there. Where two remain, neither is taken.

SESSION_KEYS = ("sessionId", "threadId")
"""Where a client names the session in a call's ``_meta``, best first."""
_TYPE_IT = "a person types in this session: $autoresearch TASK; or call the tool `start`"


@dataclass(frozen=True, slots=True)
class ToolCaller:
    """Who calls a tool.

    Attributes:
        session_id: the client's session id; empty where neither the call nor the registry tells it.
        task_id: the mission that holds the session; empty for none.
        why_not: why no mission is taken for the caller's own; empty when one is.
    """

    session_id: str
    task_id: str
    why_not: str = ""


def tool_caller(runtime: Runtime, meta: Mapping[str, object]) -> ToolCaller:
    """Tell the caller of one tool call by its ``_meta`` or by the client above this process."""
    for key in SESSION_KEYS:
        named = meta.get(key)
        if isinstance(named, str) and named:
            if _is_anothers(runtime, named):
                return ToolCaller(
                    "", "", "the session that the call names is held in another client's process"
                )
            return _of_session(runtime, named)
    process = client_process()
    bound = sessions_of_process(Registry(runtime.home), process) if process else []
    found = [entry for entry in bound if not entry.left_at]
    if len(found) == 1:
        return _of_session(runtime, found[0].session_id)
    if found:
        names = ", ".join(entry.task_id for entry in found)
        return ToolCaller("", "", f"the client above this server holds several sessions, of {names}")
    return ToolCaller("", "", "no mission holds this session")


def _is_anothers(runtime: Runtime, session_id: str) -> bool:
    """True for a session whose client runs, and not above this server: its starter speaks for another one."""
    try:
        entry = Registry(runtime.home).find(session_id)
    except AutoresearchError:
        return False  # the caller that needs the entry tells it
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


# --- a tool: a function of a call and of what the client sends, whose answer is a document


TEXT_CHARACTERS = 2000
"""Of one text in an answer; of a longer one the beginning is told."""
LIST_LIMIT = 50
WAIT_SECONDS = 45.0
"""Below the limit that every known client puts on a call (Codex: 60 s)."""
Seconds = Annotated[
    float, Field(ge=0, le=50, description="Wait at most this long; the run goes on by itself")
]

_ONE_AT_A_TIME = threading.Lock()
"""A run of the validator forks; two calls at once could meet each other's locks in the child."""


def make_tool(  # noqa: PLR0913 - each is a hint to the client, or a limit
    runtime: Runtime,
    function: Callable[..., Any],
    *,
    is_looking: bool = False,
    is_idempotent: bool = True,
    is_alone: bool = True,
    text_characters: int = TEXT_CHARACTERS,
) -> Tool:
    """Make a tool of ``function(call, ...)``: its name, docstring, parameters and the schema of what it returns.

    Args:
        runtime: the world.
        function: returns a document, or a tuple of documents whose fields are told beside each other.
        is_looking: it writes nothing.
        is_idempotent: the same call twice does no more than once.
        is_alone: no other call goes on meanwhile; False for one that only looks, however long.
        text_characters: of a text in the answer.
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
    """The schema of an answer that has the fields of every kind."""
    first, *others = (schema_of(kind, mode="serialization") for kind in kinds)
    for other in others:
        first["properties"] |= other["properties"]
        first["required"] = [*first.get("required", []), *other.get("required", [])]
        first["$defs"] = {**first.get("$defs", {}), **other.get("$defs", {})}
    return first


def cut(value: Any, text_characters: int = TEXT_CHARACTERS) -> Any:
    """A document with its long texts and lists of texts cut, and said to be."""
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
    """One call, as the tools see it.

    Attributes:
        runtime: the world.
        caller: the session that calls, and the mission that holds it.
        client: the client's name; empty for an unknown one.
        meta: the call's ``_meta``.
        context: of the request, for notifications.
    """

    runtime: Runtime
    caller: ToolCaller
    client: str
    meta: Mapping[str, Any]
    context: Context[Any, Any]

    def own_task(self, named: str = "") -> str:
        """The mission that holds the caller's session, which alone it may write to; its inbox is taken in.

        Raises:
            StepIllegal: there is none, or another one is named.
        """
        task_id = self.caller.task_id
        if not task_id:
            raise StepIllegal(f"{self.caller.why_not}, so nothing is written", next_step=_TYPE_IT)
        if named not in ("", task_id, task_id.split("-", 2)[-1]):
            raise StepIllegal(
                f"this session works on mission {task_id}, not on {named!r}", next_step="leave the task out"
            )
        take_in_quietly(self.runtime, task_id)
        return task_id

    def seen_task(self, named: str) -> str:
        """The mission that the caller looks at: its own, the named one, or the only one of the project; in step.

        Raises:
            UsageError: nothing fits, or several do.
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

    def is_sandboxed(self) -> bool:
        """Whether the caller's client runs tools in a sandbox, so that a run gets no wider rights; true in doubt."""
        if not self.client:
            return True
        event = HookEvent(client=self.client, kind="tool", session_id=self.caller.session_id, cwd=os.getcwd())
        return adapter(self.client).is_sandboxed(event, self.runtime.environ, self.meta)


def server_runtime(home_path: str = "") -> Runtime:
    """The runtime of a server: without the session that its environment names, which is that of another one by now."""
    environ = {name: value for name, value in os.environ.items() if name not in SESSION_IDS}
    return Runtime(
        home=StateHome(home_path or state_home(os.environ)),
        environ=environ,
        shell_marks=SHELL_MARKS,
        sources=SOURCES,
    )


@contextmanager
def begun(runtime: Runtime, context: Context[Any, Any], *, is_alone: bool = True) -> Iterator[Call]:
    """One call from its request; what goes wrong in it is told with its slug and the next step.

    Args:
        runtime: the world.
        context: of the request.
        is_alone: no other call goes on meanwhile; False for one that only looks, however long.

    Raises:
        ToolError: whatever it was; the SDK makes an error result of it.
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
    except AutoresearchError as error:
        raise ToolError(
            f"{error.slug}: {error.message}\nnext: {error.next_step or 'call the tool `status`'}"
        ) from None
    except Exception as error:  # noqa: BLE001 - an agent is told what to do, whatever it was
        traceback.print_exc(file=sys.stderr)
        raise ToolError(
            f"unexpected: {type(error).__name__}: {' '.join(str(error).split())[:200]}\nnext: tell your person to run "
            "omx-autoresearch doctor"
        ) from None


def _client_of(request: Any) -> str:
    """The name of the client that said hello (``claude-code``, ``codex-mcp-client``, ``gemini-cli-mcp-client``)."""
    parameters = request.session.client_params
    name = parameters.client_info.name.lower() if parameters else ""
    return next((client for client in CLIENT_NAMES if name.startswith(client)), "")
