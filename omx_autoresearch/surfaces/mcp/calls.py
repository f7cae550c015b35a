"""One call of a tool: who makes it, with what sandbox, and how what went wrong is told."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from mcp.server.mcpserver.exceptions import ToolError

from omx_autoresearch.agents.marks import SESSION_VARIABLES
from omx_autoresearch.agents.registry import CLIENT_NAMES, all_shell_marks, dialect
from omx_autoresearch.core.events import HookEvent
from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import AutoresearchError
from omx_autoresearch.runtime.claims import take_in_quietly, write_changed
from omx_autoresearch.runtime.context import Runtime
from omx_autoresearch.runtime.tool_callers import own_task, seen_task, tool_caller
from omx_autoresearch.storage.layout import StateHome, state_home
from omx_autoresearch.surfaces.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from mcp.server.mcpserver import Context

    from omx_autoresearch.runtime.tool_callers import ToolCaller

_ONE_AT_A_TIME = threading.Lock()
"""A run of the validator forks; two calls at once could meet each other's locks in the child."""
_CODEX_TURN = "x-codex-turn-metadata"
_WITHOUT_SANDBOX = ("danger-full-access", "none")


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as the tools see it.

    Attributes:
        runtime: the world.
        caller: the session that calls, and the mission that holds it.
        client: the dialect's name; empty for a client without one.
        meta: the call's ``_meta``.
    """

    runtime: Runtime
    caller: ToolCaller
    client: str
    meta: Mapping[str, Any]

    def own_task(self, named: str = "") -> str:
        """The mission that may be written to, with what waits in its inbox taken in."""
        task_id = own_task(self.caller, named)
        take_in_quietly(self.runtime, task_id)
        return task_id

    def seen_task(self, named: str) -> str:
        """The mission that is looked at."""
        return seen_task(self.runtime, self.caller, named, os.getcwd())

    def is_sandboxed(self) -> bool:
        """Whether the caller's client runs tools in a sandbox, so that a run gets no wider rights; true in doubt."""
        if self.client == "codex":
            return _codex_sandbox(self.meta) not in _WITHOUT_SANDBOX
        if not self.client:
            return True
        event = HookEvent(client=self.client, kind="tool", session_id=self.caller.session_id, cwd=os.getcwd())
        return dialect(self.client).is_sandboxed(event, self.runtime.environ)


def _codex_sandbox(meta: Mapping[str, Any]) -> str:
    """The policy of the turn as Codex tells it with the call; empty where it does not."""
    turn = meta.get(_CODEX_TURN)
    if isinstance(turn, str):
        import json

        try:
            turn = json.loads(turn)
        except ValueError:
            return ""
    found = turn.get("sandbox_mode") or turn.get("sandbox") if isinstance(turn, dict) else None
    return found if isinstance(found, str) else ""


def server_runtime(home_path: str = "") -> Runtime:
    """The runtime of a server: without the session that its environment names, which is that of another one by now."""
    stale = {name for names in SESSION_VARIABLES.values() for name in names}
    environ = {name: value for name, value in os.environ.items() if name not in stale}
    return Runtime(
        home=StateHome(home_path or state_home(os.environ)),
        environ=environ,
        shell_marks=all_shell_marks(),
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
                yield Call(runtime, tool_caller(runtime, meta), _client_of(request), meta)
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
    """The dialect of the client that said hello (``claude-code``, ``codex-mcp-client``, ``gemini-cli-mcp-client``)."""
    parameters = request.session.client_params
    name = parameters.client_info.name.lower() if parameters else ""
    return next((client for client in CLIENT_NAMES if name.startswith(client)), "")
