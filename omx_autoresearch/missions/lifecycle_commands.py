"""The verbs of a mission's life: pause, resume, block, unblock, cancel, unbind, restore, approve, repair.

Each is load, check the phase, record, answer. ``start`` and ``amend`` compile a contract and stand in
``missions/launch.py``.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.errors import (
    AutoresearchError,
    JournalBroken,
    OwnerOnly,
    StateUntrusted,
    StepIllegal,
    UsageError,
)
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.freezing.pins import load_manifest, restore_pins
from omx_autoresearch.journal.layout import Runtime, is_safe_task_id
from omx_autoresearch.journal.safe_files import sweep_temporary
from omx_autoresearch.missions import sessions
from omx_autoresearch.missions.approvals import approval_key
from omx_autoresearch.missions.approvals import approve as write_approval
from omx_autoresearch.missions.checkouts import project_root
from omx_autoresearch.missions.claims import take_in
from omx_autoresearch.missions.completion import write_completion
from omx_autoresearch.missions.faults import forget_faults
from omx_autoresearch.missions.records.lifecycle import (
    MissionBlocked,
    MissionCancelled,
    MissionPaused,
    MissionResumed,
    MissionUnblocked,
    OwnerVerbRefused,
    step_taken,
)
from omx_autoresearch.missions.records.validations import CommandsApproved, PinsRestored
from omx_autoresearch.missions.registry import ActiveSession, Registry
from omx_autoresearch.missions.rules.lifecycle import FINAL_PHASES
from omx_autoresearch.missions.rules.mission import Blocker, Mission
from omx_autoresearch.missions.rules.prompts import NamedFolder, paths_named
from omx_autoresearch.missions.sessions import live_clients
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.system.processes import (
    ProcessIdentity,
    agent_marks,
    ancestors,
    command_name,
    runs_above,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.missions.records.lifecycle import StepRecord

_LEAST_OF_A_NAME = 4
"""Characters of the beginning of an id; with fewer nobody means one mission."""


@dataclass(frozen=True, slots=True)
class Extension:
    """What ``resume`` and ``unblock`` add to the limits.

    Attributes:
        hours: to the wall clock.
        refusals: to the mission's refusals.
    """

    hours: float = 0.0
    refusals: int = 0


def pause(runtime: Runtime, task_id: str, *, reason: str = "") -> Mission:
    """The owner pauses a running mission; nobody is held until ``resume``."""
    return _step(runtime, task_id, MissionPaused, reason)


def resume(
    runtime: Runtime, task_id: str, *, reason: str = "", extension: Extension | None = None
) -> Mission:
    """The owner lets a paused mission run again, with fresh stall allowances."""
    more = _checked(extension or Extension())
    return _step(runtime, task_id, MissionResumed, reason, more.hours, more.refusals)


def unblock(
    runtime: Runtime, task_id: str, *, reason: str = "", extension: Extension | None = None
) -> Mission:
    """The owner lets a blocked mission run again, with fresh stall allowances."""
    more = _checked(extension or Extension())
    return _step(runtime, task_id, MissionUnblocked, reason, more.hours, more.refusals)


def block(runtime: Runtime, task_id: str, *, reason: str, needs: str, by: str = "agent") -> Mission:
    """Say that a person must act first; a loud release, never a completion. An agent may always use it."""
    if not reason.strip() or not needs.strip():
        raise UsageError(
            "block says what is in the way and the smallest input that helps",
            next_step=f'omx-autoresearch block {task_id} --reason "..." --needs "..."',
        )
    code = "agent-blocked" if by == "agent" else "owner-blocked"
    blocker = Blocker(code, reason, needs, f"omx-autoresearch unblock {task_id}", by)
    return _step(runtime, task_id, MissionBlocked, blocker)


def cancel(runtime: Runtime, task_id: str, *, reason: str = "") -> Mission:
    """The owner gives a mission up; nothing re-opens it."""
    mission = _step(runtime, task_id, MissionCancelled, reason)
    Registry(runtime.home).remove_task(task_id)
    return mission


def _step(runtime: Runtime, task_id: str, kind: type[StepRecord], *facts: object) -> Mission:
    with MissionStore(runtime.home).transaction(task_id, runtime.now()) as transaction:
        return transaction.record(step_taken(transaction.mission, kind, *facts))


def _checked(extension: Extension) -> Extension:
    if not 0 <= extension.hours < 24 * 366 or not 0 <= extension.refusals < 1_000_000:
        raise UsageError("--add-hours and --add-refusals take numbers from 0 on", next_step="--add-hours 8")
    return extension


def restore(runtime: Runtime, task_id: str, *, reason: str = "") -> tuple[str, ...]:
    """Copy the pinned files back from ``frozen/``; returns the paths that were put back.

    Raises:
        StepIllegal: the mission is a draft, or has ended: its files are nobody's evaluator any more.
    """
    store = MissionStore(runtime.home)
    mission = store.load(task_id)
    if mission.phase in FINAL_PHASES:
        raise StepIllegal(
            f"mission {task_id} is {mission.phase}; it pins nothing any more",
            next_step="omx-autoresearch list",
        )
    folder = runtime.home.mission(task_id)
    if mission.contract is None:
        raise StepIllegal(f"mission {task_id} is a draft", next_step=f"omx-autoresearch start {task_id}")
    manifest = load_manifest(folder.frozen_path, mission.contract.pin_digest)
    paths = restore_pins(manifest, mission.workspace_path, frozen_path=folder.frozen_path)
    with store.transaction(task_id, runtime.now()) as transaction:
        transaction.record(PinsRestored(paths, reason))
    return paths


def approve(runtime: Runtime, task_id: str, *, is_unsandboxed: bool = False) -> str:
    """The owner allows the contract's commands, under exactly these pins, to run outside an agent's sandbox."""
    store = MissionStore(runtime.home)
    now = runtime.now()
    with store.transaction(task_id, now) as transaction:
        mission = transaction.mission
        if mission.contract is None:
            raise StepIllegal(f"mission {task_id} is a draft", next_step=f"omx-autoresearch start {task_id}")
        key = approval_key(
            mission.project_path, task_id, mission.contract_digest, mission.contract.pin_digest
        )
        write_approval(runtime.home, key, is_unsandboxed=is_unsandboxed, ts=now)
        transaction.record(CommandsApproved(key, is_unsandboxed))
    return key


def repair(runtime: Runtime, task_id: str, *, accept_loss: bool = False) -> Mission:
    """Rebuild everything derived from the journal: snapshot, projections, completion artifact, registry.

    What somebody wrote into a projection is taken in as claims; what killed writers left behind is removed.

    ``accept_loss``: the owner goes on with the records that are there although more were acknowledged.
    """
    store = MissionStore(runtime.home)
    store.rebuild(task_id, accept_loss=accept_loss)
    take_in(runtime, task_id, is_thorough=True)
    mission = store.load(task_id)
    folder = runtime.home.mission(task_id)
    for path in (folder.root_path, folder.frozen_path, folder.outputs_path):
        sweep_temporary(path)
    if mission.phase == "complete":
        write_completion(mission, mission.completed_at)
    registry = Registry(runtime.home)
    binding = mission.binding
    if binding is not None:
        forget_faults(runtime.home, binding.session_id)
    if mission.phase in FINAL_PHASES:
        registry.remove_task(task_id)
    elif binding is not None and _is_unknown(registry, binding.session_id):
        registry.put(
            ActiveSession(
                "bound",
                binding.session_id,
                task_id,
                mission.workspace_path,
                client=binding.client,
                at=binding.at,
            )
        )
    return mission


def _is_unknown(registry: Registry, session_id: str) -> bool:
    """True when the registry has no entry of the session, or one that nobody can read."""
    try:
        return registry.find(session_id) is None
    except StateUntrusted:
        return True


def unbind(runtime: Runtime, task_id: str, *, reason: str = "") -> Mission:
    """The owner lets a mission's session go; the mission goes on existing and can be bound again."""
    return sessions.unbind(runtime, task_id, reason=reason)


# --- which mission is meant


def resolve_task(
    runtime: Runtime, named: str, *, session_id: str = "", cwd: str = "", is_here: bool = False
) -> str:
    """The task id that a command means.

    A name is a task id, a slug that only one mission has, the beginning of one task id alone (4 characters or more),
    or the path of a task's folder. Without a name: the mission bound to the session, else the only one under way of
    this project, else (not with ``is_here``) the only one under way at all.

    Raises:
        UsageError: nothing fits, or several do; the error lists them.
        JournalBroken: the mission's own folder is gone, or its journal.
    """
    store = MissionStore(runtime.home)
    if named:
        return _named(runtime, store, named, cwd)
    if session_id:
        entry = Registry(runtime.home).find(session_id)
        if entry is not None and store.exists(entry.task_id):
            return entry.task_id
    open_missions = _open_missions(store)
    root = project_root(cwd) if cwd else ""
    here = [mission for mission in open_missions if mission.project_path == root]
    found = here if is_here else here or open_missions
    if len(found) == 1:
        return found[0].task_id
    if not found and open_missions:
        raise UsageError(
            "no mission of this project is under way, and none is bound to this session",
            next_step=f"name the mission, such as {open_missions[0].task_id}",
        )
    if not found:
        raise UsageError(
            "no mission is under way", next_step="omx-autoresearch init --goal ... --validator ..."
        )
    names = ", ".join(mission.task_id for mission in found[:8])
    raise UsageError(
        f"which mission? {len(found)} are under way: {names}",
        next_step=f"the same with one of them behind the verb, such as {found[0].task_id}",
    )


def _named(runtime: Runtime, store: MissionStore, named: str, cwd: str) -> str:
    folders = paths_named(named)
    for task_id in (named, *(folder.task_id for folder in folders)):
        if store.exists(task_id):
            return task_id
        if is_safe_task_id(task_id) and _is_missing(runtime, task_id):
            path = runtime.home.mission(task_id).journal_path
            raise JournalBroken(
                f"mission {task_id} is missing: {path} is gone",
                next_step=f"put it back from a copy, then: omx-autoresearch repair {task_id}",
            )
    if path := _adoptable_path(named, folders, cwd):
        raise UsageError(f"{path} is no mission yet", next_step=f"omx-autoresearch adopt {path}")
    if folders:
        raise UsageError(
            f"no mission {folders[0].task_id!r}, and there is no folder {folders[0].path}",
            next_step="omx-autoresearch list",
        )
    known = store.task_ids()
    found = [task_id for task_id in known if task_id.split("-", 2)[-1] == named]
    if not found and len(named) >= _LEAST_OF_A_NAME:
        found = [task_id for task_id in known if task_id.startswith(named)]
    if len(found) == 1:
        return found[0]
    what = (
        f"{len(found)} missions are called {named!r}, or begin so: {', '.join(found[:8])}"
        if found
        else f"no mission {named!r}"
    )
    raise UsageError(what, next_step="omx-autoresearch list")


def _is_missing(runtime: Runtime, task_id: str) -> bool:
    """The mission was there: its folder stands without a journal, or a session is bound to it."""
    if os.path.isdir(runtime.home.mission(task_id).root_path):
        return True
    return any(entry.task_id == task_id for entry in Registry(runtime.home).entries())


def _adoptable_path(named: str, folders: tuple[NamedFolder, ...], cwd: str) -> str:
    """The task folder on this disk that a word names, by its path or by its id; empty where there is none."""
    root = project_root(cwd) if cwd else ""
    found = [os.path.join(cwd, folder.path) for folder in folders]
    found += [os.path.join(root, f".{folder.root}", "autoresearch", folder.task_id) for folder in folders]
    if root and is_safe_task_id(named):
        found += [os.path.join(root, name, "autoresearch", named) for name in (".reasonix", ".omx")]
    return next((path for path in found if os.path.isdir(path)), "")


def _open_missions(store: MissionStore) -> list[Mission]:
    found = []
    for task_id in store.task_ids():
        try:
            mission = store.load(task_id)
        except AutoresearchError:
            continue  # a corrupt mission hides no other; list and status show it
        if mission.phase not in FINAL_PHASES:
            found.append(mission)
    return found


# --- Owner or agent: verbs of the owner are refused inside an agent, recorded, and shown to the owner.
#
# A fence against the usual, not a wall: an unsandboxed agent has the user's rights (specs/threat-model.md).

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
