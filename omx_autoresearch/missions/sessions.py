"""Binding: the four acts that tie a mission to a session, and nothing else.

    prompt          the person types ``$autoresearch TASK`` in the session
    session-option  the owner runs ``start --session ID``
    environment     ``OMX_AUTORESEARCH_TASK=TASK:NONCE`` is consumed by the first session start that sees it
    agent-start     the agent ran ``start`` itself: pending until that session's next tool event shows that command,
                    or, where a shell knows no session id, until its output shows the single-use bind token

A fifth way re-binds without a new act: ``/clear`` in the same client process gives the session a new id.
"""

from __future__ import annotations

import os
from datetime import timedelta

from omx_autoresearch.foundation.clients import KNOWN
from omx_autoresearch.foundation.errors import AutoresearchError, OwnerOnly, StateUntrusted, StepIllegal
from omx_autoresearch.foundation.records import dataclass, replace, sha256
from omx_autoresearch.journal.layout import state_home
from omx_autoresearch.missions.records.lifecycle import OwnerVerbRefused
from omx_autoresearch.missions.records.sessions import SessionBound, SessionForked, SessionUnbound
from omx_autoresearch.missions.registry import (
    TOKEN_WORD,
    ActiveSession,
    Registry,
    bound_mission,
    is_expired,
    mission_of,
    seconds_unheard,
)
from omx_autoresearch.missions.rules.mission import FINAL_PHASES
from omx_autoresearch.missions.store import MissionStore, refuse_ended
from omx_autoresearch.system.clock import format_time, parse_time
from omx_autoresearch.system.processes import (
    SHELLS,
    ancestors,
    command_name,
    environment,
    is_alive,
    program_name,
)
from omx_autoresearch.system.processes import ProcessIdentity as _Process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.mission import Mission

TOKEN_MINUTES = 10
TASK_VARIABLE = "OMX_AUTORESEARCH_TASK"
_SHOWN_ID = 128
_PROGRAMS = tuple(client.program for client in KNOWN.values() if client.program)
"""Names of the programs that are agent CLIs."""


@dataclass(frozen=True, slots=True)
class Act:
    """The act of binding a session.

    Attributes:
        session_id: the client's session id, verbatim.
        client: the dialect's name; empty when only the id is known.
        how: which act.
        client_process: of the client, when it can be told.
        workspace_path: the worktree that the session works in; empty for the mission's own.
        nonce_digest: what the mission's unused nonce must have; empty where none is needed.
    """

    session_id: str
    client: str
    how: str
    client_process: _Process | None = None
    workspace_path: str = ""
    nonce_digest: str = ""


def bind(runtime: Runtime, task_id: str, act: Act) -> Mission:
    """Bind a session to a mission; the mission's older session is let go, the session's older mission too.

    Raises:
        StepIllegal: the session is empty, the mission has ended, or the nonce is used up; nothing has changed then.
    """
    if not act.session_id:
        raise StepIllegal("no session id was given", next_step=f"type `$autoresearch {task_id}` in the agent")
    registry, store = Registry(runtime.home), MissionStore(runtime.home)
    now = runtime.now()
    older = _replaceable(registry, act.session_id)
    with store.transaction(task_id, now) as transaction:
        mission = transaction.mission
        refuse_ended(mission, "it takes no session")
        if act.nonce_digest and act.nonce_digest != mission.nonce_digest:
            raise StepIllegal(
                f"the nonce for mission {task_id} is used up",
                next_step=f"type `$autoresearch {task_id}` in the agent",
            )
        previous = mission.binding
        process = act.client_process
        registry.put(
            ActiveSession(
                state="bound",
                session_id=act.session_id,
                task_id=task_id,
                workspace_path=act.workspace_path or mission.workspace_path,
                client=act.client,
                client_pid=process.pid if process else 0,
                client_started=process.started if process else "",
                at=now,
            )
        )
        idle_seconds = seconds_unheard(runtime, mission, now) if is_expired(runtime, mission, now) else 0.0
        bound = SessionBound(act.session_id, act.client, act.how, act.workspace_path, idle_seconds)
        mission = transaction.record(bound)
    leave_others(runtime, act.session_id, process)
    if previous is not None and previous.session_id != act.session_id:
        left = registry.find(previous.session_id)
        if left is not None and left.task_id == task_id:
            registry.remove(previous.session_id)
    if older is not None and older.task_id != task_id and store.exists(older.task_id):
        with store.transaction(older.task_id, now) as transaction:
            transaction.record(SessionUnbound(act.session_id, "the session works on another mission now"))
    return mission


def _replaceable(registry: Registry, session_id: str) -> ActiveSession | None:
    """The registry's entry of a session; None for a damaged one, which is about to be replaced."""
    try:
        return registry.find(session_id)
    except StateUntrusted:
        return None


def pend(runtime: Runtime, task_id: str, *, session_id: str, client: str, workspace_path: str) -> str:
    """An agent ran ``start`` itself: wait for its client's word.

    Returns:
        The bind token to print last, when the shell knows no session id; empty otherwise.
    """
    expires_at = format_time(runtime.clock.now() + timedelta(minutes=TOKEN_MINUTES))
    registry = Registry(runtime.home)
    held = held_by(runtime, session_id)
    if held is not None and held.task_id == task_id:
        return ""
    entry = ActiveSession(
        state="pending" if session_id else "token",
        session_id=session_id,
        task_id=task_id,
        workspace_path=workspace_path,
        client=client,
        at=runtime.now(),
        expires_at=expires_at,
    )
    if session_id:
        registry.put(entry)
        return ""
    token = TOKEN_WORD + os.urandom(16).hex()
    registry.put(entry, token=token)
    return token


def check_free(runtime: Runtime, task_id: str, session_id: str) -> None:
    """Let an agent bind only a free mission to its own free session.

    Neither a weaker mission nor a nested client is a way out of a held session.

    Raises:
        OwnerOnly: the session is held by another mission, or the mission holds another session; recorded there.
    """
    store = MissionStore(runtime.home)
    held = held_by(runtime, session_id)
    if held is not None and held.task_id != task_id:
        _refuse_start(runtime, held.task_id, f"session {session_id} is held by mission {held.task_id}")
    mission = store.load(task_id)
    holds_other = mission.binding is not None and mission.binding.session_id != session_id
    if holds_other and mission.phase not in FINAL_PHASES:
        _refuse_start(runtime, task_id, f"mission {task_id} holds another session")


def check_not_held(runtime: Runtime, task_id: str, held_task_id: str) -> None:
    """Refuse an agent's start from inside a session that another unfinished mission holds.

    Raises:
        OwnerOnly: another mission holds the session; the attempt is recorded there.
    """
    store = MissionStore(runtime.home)
    if held_task_id == task_id or not store.exists(held_task_id):
        return
    if store.load(held_task_id).phase not in FINAL_PHASES:
        _refuse_start(runtime, held_task_id, f"this session is held by mission {held_task_id}")


def _refuse_start(runtime: Runtime, task_id: str, why: str) -> NoReturn:
    with MissionStore(runtime.home).transaction(task_id, runtime.now()) as transaction:
        transaction.record(OwnerVerbRefused("start", (why,)))
    raise OwnerOnly(f"{why}; only its owner can change that", next_step=f"omx-autoresearch status {task_id}")


def held_by(runtime: Runtime, session_id: str) -> Mission | None:
    """The unfinished mission that holds a session, or None."""
    mission = bound_mission(runtime.home, session_id)
    return None if mission is None or mission.phase in FINAL_PHASES else mission


def confirm_start(runtime: Runtime, session_id: str, client: str, command: str) -> Mission | None:
    """The tool event after an agent's own ``start``: bind its session, once, when the command is that ``start``."""
    registry = Registry(runtime.home)
    entry = registry.find(session_id)
    if entry is None or entry.state != "pending":
        return None
    if is_late(runtime, entry):
        registry.remove(session_id)
        return None
    if not is_start_command(command):
        return None
    registry.remove(session_id)
    check_free(runtime, entry.task_id, session_id)
    return bind(runtime, entry.task_id, Act(session_id, client, "agent-start", client_process()))


def confirm_token(runtime: Runtime, session_id: str, client: str, output: str) -> Mission | None:
    """A tool's output shows a bind token: bind the session that ran it, once."""
    registry = Registry(runtime.home)
    for word in output.split():
        if not word.startswith(TOKEN_WORD):
            continue
        token = word.strip("`'\".,;")
        entry = registry.find_token(token)
        if entry is None:
            continue
        if not registry.remove_token(token) or is_late(runtime, entry):
            return None  # another process took it out first, or it is too old
        check_free(runtime, entry.task_id, session_id)
        return bind(runtime, entry.task_id, Act(session_id, client, "agent-start", client_process()))
    return None


def consume_environment(runtime: Runtime, session_id: str, client: str) -> Mission | None:
    """``OMX_AUTORESEARCH_TASK=TASK:NONCE``: bind the first session that carries the unused nonce."""
    task_id, _, nonce = runtime.environ.get(TASK_VARIABLE, "").partition(":")
    store = MissionStore(runtime.home)
    if not nonce or not store.exists(task_id):
        return None
    mission = store.load(task_id)
    digest = nonce_digest(nonce)
    if digest != mission.nonce_digest or mission.phase != "running":
        return None
    act = Act(session_id, client, "environment", client_process(), nonce_digest=digest)
    try:
        return bind(runtime, task_id, act)
    except StepIllegal:
        return None  # another session start was faster


def rebind_cleared(runtime: Runtime, session_id: str, client: str) -> Mission | None:
    """After ``/clear``: the same client process goes on under a new session id."""
    process = client_process()
    if process is None:
        return None
    found = [
        entry
        for entry in sessions_of_process(Registry(runtime.home), process)
        if entry.client == client and entry.session_id != session_id
    ]
    if len(found) != 1 or found[0].left_at:
        return None  # a process that serves several sessions does not tell which one was cleared
    mission = mission_of(runtime.home, found[0])
    if mission is None or is_expired(runtime, mission, runtime.now()):
        return None
    return bind(runtime, mission.task_id, Act(session_id, client, "clear", process))


def sessions_of_process(registry: Registry, process: _Process) -> list[ActiveSession]:
    """The bound sessions of a client's process, those too that it left for another one."""
    return [
        entry
        for entry in registry.entries()
        if entry.state == "bound"
        and (entry.client_pid, entry.client_started) == (process.pid, process.started)
    ]


def leave_others(runtime: Runtime, session_id: str, process: _Process | None) -> None:
    """A session is the newest one of a client's process: the older ones there are marked as left."""
    registry = Registry(runtime.home)
    for entry in sessions_of_process(registry, process) if process else ():
        if entry.session_id != session_id and not entry.left_at:
            registry.put(replace(entry, left_at=runtime.now()))


def note_fork(runtime: Runtime, session_id: str, client: str, cwd: str) -> None:
    """A fork began where a held session works: shown to the owner, who may bind it (no payload names its parent)."""
    here, store = os.path.join(os.path.realpath(cwd), ""), MissionStore(runtime.home)
    for entry in Registry(runtime.home).entries():
        is_near = here.startswith(os.path.join(os.path.realpath(entry.workspace_path), ""))
        if entry.state != "bound" or entry.client != client or not is_near:
            continue
        try:
            _record_fork(runtime, store, entry, SessionForked(session_id[:_SHOWN_ID], client))
        except AutoresearchError:
            continue  # a session that no mission holds is told nothing of another session's mission


def _record_fork(runtime: Runtime, store: MissionStore, entry: ActiveSession, fork: SessionForked) -> None:
    mission = mission_of(runtime.home, entry)
    if mission is None or mission.phase != "running" or is_expired(runtime, mission, runtime.now()):
        return
    with store.transaction(entry.task_id, runtime.now()) as transaction:
        if not any(known.endswith(f" {fork.session_id}") for known in transaction.mission.forked_sessions):
            transaction.record(fork)


def nonce_digest(nonce: str) -> str:
    """The digest of a nonce, which the journal keeps."""
    return sha256(nonce.encode("utf-8", "surrogatepass")).hexdigest()


def is_late(runtime: Runtime, entry: ActiveSession) -> bool:
    """True when a pending bind is older than it may be."""
    return bool(entry.expires_at) and runtime.clock.now() > parse_time(entry.expires_at)


def is_start_command(command: str) -> bool:
    """True when a shell command is a plain ``omx-autoresearch start ...`` (a folder or variables before it allowed)."""
    import shlex

    try:
        words = shlex.split(command)
    except ValueError:
        return False
    for index, word in enumerate(words[:-1]):
        if os.path.basename(word) == "omx-autoresearch" and words[index + 1] == "start":
            return True
    return False


def client_process() -> _Process | None:
    """The client that runs this hook: the nearest ancestor that is no shell of the hook line."""
    for process in ancestors(os.getpid()):
        if process.pid > 1 and command_name(process.pid) not in (
            *SHELLS,
            "hook",
            "timeout",
        ):
            return process
    return None


def live_clients(runtime: Runtime) -> tuple[_Process, ...]:
    """The client processes of all bound sessions that still run."""
    found = []
    for entry in Registry(runtime.home).entries():
        process = _Process(entry.client_pid, entry.client_started)
        if entry.client_pid and is_alive(process):
            found.append(process)
    return tuple(found)


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
        and (_Process(entry.client_pid, entry.client_started) in above or entry.session_id in named)
    ]
    return tuple(dict.fromkeys(found))


def outer_client(runtime: Runtime) -> _Process | None:
    """The bound client inside which the client of this hook was started; None for one that a person started.

    Whatever session it names: an agent may resume its own session in a client within.
    """
    me, bound = client_process(), live_clients(runtime)
    return next((process for process in ancestors(os.getpid()) if process != me and process in bound), None)


def not_from_client(client: str) -> str:
    """Why a hook was not started by its client; empty when it was.

    The hook's shell line ends in ``exec``, so a client's hook has the client for its parent. One that an agent starts
    from its tool shell has that shell, whatever it did to its environment; where the shell became the hook, the event
    came another way than the client's (``HookEvent.origin``), or the parent is a client of another name.
    """
    parent = command_name(os.getppid())
    if parent not in SHELLS:
        parent = program_name(os.getppid())
        if parent not in _PROGRAMS or parent == KNOWN[client].program:
            return ""
    return f"{parent} started this hook, not {client}"


def started_within(runtime: Runtime) -> str:
    """Why the client of this hook was not started by a person but by an agent; empty when it was not."""
    if outer := outer_client(runtime):
        return f"process {outer.pid}, a client bound to a mission, started this one"
    me = client_process()
    name = program_name(me.pid) if me else ""
    for process in ancestors(me.pid) if me else ():
        agent = program_name(process.pid)
        if agent in _PROGRAMS and agent != name and _uses(runtime, process):
            return f"{agent} (process {process.pid}), an agent CLI, started {name}, which sent this"
    return ""


def _uses(runtime: Runtime, process: _Process) -> bool:
    """Whether the hooks of an agent CLI are ours: an agent may run the tests of another state home's."""
    try:
        return os.path.realpath(state_home(environment(process.pid))) == os.path.realpath(
            runtime.home.root_path
        )
    except AutoresearchError:
        return False
