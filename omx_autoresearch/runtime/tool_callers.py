"""Which session a call of a tool (MCP) comes from, asked anew at every call: a client's process outlives its sessions.

    the call names it     Codex does, in the call's ``_meta``; what a client writes there no model can
    the client's process  Claude Code and Gemini CLI name nothing that a hook would know before the call has ended (and
                          the environment of Claude's server is that of another session after ``/clear`` and
                          ``--continue``): the session that the client above this process began last

A hook marks the older session of a process as left when another one begins there. Where two remain, nobody is taken.
"""

from __future__ import annotations

import os

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import AutoresearchError, StepIllegal, UsageError
from omx_autoresearch.runtime.sessions import client_process, sessions_of_process
from omx_autoresearch.storage.missions import MissionStore
from omx_autoresearch.storage.registry import Registry
from omx_autoresearch.system.processes import ProcessIdentity, ancestors, is_alive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from omx_autoresearch.runtime.context import Runtime

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
    """True for a session whose client runs, and not above this server: whoever started it speaks for another one."""
    try:
        entry = Registry(runtime.home).find(session_id)
    except AutoresearchError:
        return False  # told by whoever needs the entry
    if entry is None or not entry.client_pid:
        return False
    process = ProcessIdentity(entry.client_pid, entry.client_started)
    above = {os.getpid(), *(found.pid for found in ancestors(os.getpid()))}
    return process.pid not in above and is_alive(process)


def _of_session(runtime: Runtime, session_id: str) -> ToolCaller:
    try:
        entry = Registry(runtime.home).find(session_id)
        mission = None
        if entry is not None and entry.state == "bound" and entry.session_id == session_id:
            mission = MissionStore(runtime.home).load_bound(entry)
    except AutoresearchError as error:
        return ToolCaller(session_id, "", str(error))
    if mission is None:
        return ToolCaller(session_id, "", "no mission holds this session")
    return ToolCaller(session_id, mission.task_id)


def own_task(caller: ToolCaller, named: str = "") -> str:
    """The mission that the caller may write to: the one that holds its session, and no other.

    Raises:
        StepIllegal: there is none, or another one is named.
    """
    if not caller.task_id:
        raise StepIllegal(f"{caller.why_not}, so nothing is written", next_step=_TYPE_IT)
    if named not in ("", caller.task_id, caller.task_id.split("-", 2)[-1]):
        raise StepIllegal(
            f"this session works on mission {caller.task_id}, not on {named!r}",
            next_step="leave the task out",
        )
    return caller.task_id


def seen_task(runtime: Runtime, caller: ToolCaller, named: str, cwd: str) -> str:
    """The mission that the caller wants to look at: its own, the named one, or the only one of the project.

    Raises:
        UsageError: nothing fits, or several do.
    """
    from omx_autoresearch.runtime.missions import resolve_task
    from omx_autoresearch.runtime.sessions import TASK_VARIABLE

    if not named and caller.task_id:
        return caller.task_id
    promised = runtime.environ.get(TASK_VARIABLE, "").partition(":")[0]
    try:
        return resolve_task(runtime, named or promised, cwd=cwd)
    except UsageError as error:
        if named:
            raise
        raise UsageError(f"{caller.why_not}; {error.message}", next_step=_TYPE_IT) from None
