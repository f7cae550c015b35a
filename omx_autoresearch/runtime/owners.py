"""Owner or agent: verbs of the owner are refused inside an agent, recorded, and shown to the owner.

A fence against the usual, not a wall: an unsandboxed agent has the user's rights (specs/threat-model.md).
"""

from __future__ import annotations

import os

from omx_autoresearch.core.records.lifecycle import OwnerVerbRefused
from omx_autoresearch.errors import AutoresearchError, OwnerOnly
from omx_autoresearch.runtime.sessions import live_clients
from omx_autoresearch.storage.missions import MissionStore
from omx_autoresearch.storage.registry import Registry
from omx_autoresearch.system.processes import (
    ProcessIdentity,
    agent_marks,
    ancestors,
    command_name,
    runs_above,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.runtime.context import Runtime

CURE = (
    "run it in a terminal of your own. If this is one, the mark leaked into it (a tmux or shell started by the agent "
    "CLI does that): unset the variable or open a fresh terminal"
)


def marks_of_agent(runtime: Runtime) -> tuple[str, ...]:
    """Why this process is taken for one inside an agent, a phrase each; empty for the owner's own."""
    above = ancestors(os.getpid())
    marks = agent_marks(
        runtime.environ,
        marks=runtime.shell_marks,
        ancestors=above,
        bound=live_clients(runtime),
        pid1_name=command_name(1),
    )
    return marks + tuple(
        f"process {process.pid} above it is a validator, measurement or other command of the runtime"
        for process in runs_above(above)
    )


def require_owner(runtime: Runtime, verb: str, task_id: str = "") -> None:
    """Let the owner pass.

    Raises:
        OwnerOnly: the process is inside an agent; the attempt is recorded in the mission when it can be.
    """
    marks = marks_of_agent(runtime)
    if not marks:
        return
    for held in (task_id,) if task_id else missions_around(runtime):
        refuse_verb(runtime, verb, held, marks)
    raise OwnerOnly(
        f"`{verb}` is the owner's, and this runs inside an agent: {'; '.join(marks)}", next_step=CURE
    )


def missions_around(runtime: Runtime) -> tuple[str, ...]:
    """The missions whose session this process belongs to: by a bound client above it, or by its session id.

    For verbs that name no mission, and for a start that would be a way out of one.
    """
    above = set(ancestors(os.getpid()))
    named = set(runtime.environ.values())
    found = [
        entry.task_id
        for entry in Registry(runtime.home).entries()
        if entry.state == "bound"
        and (ProcessIdentity(entry.client_pid, entry.client_started) in above or entry.session_id in named)
    ]
    return tuple(dict.fromkeys(found))


def refuse_verb(runtime: Runtime, verb: str, task_id: str, marks: tuple[str, ...]) -> None:
    """Record that an owner verb was tried from inside an agent, where the journal can be written."""
    store = MissionStore(runtime.home)
    if not task_id or not store.exists(task_id):
        return
    try:
        with store.transaction(task_id, runtime.now()) as transaction:
            transaction.record(OwnerVerbRefused(verb, marks))
    except AutoresearchError:
        return  # the refusal stands whether it could be recorded or not
