"""The verbs of a mission's life: pause, resume, block, unblock, cancel, unbind, restore, approve, repair.

Each is load, check the phase, record, answer. ``start`` and ``amend`` compile a contract and stand in
``missions/launch.py``.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.errors import (
    AutoresearchError,
    CommandFault,
    OwnerOnly,
    StateUntrusted,
    StepIllegal,
    UsageError,
)
from omx_autoresearch.freezing import pins, restoration
from omx_autoresearch.journal.safe_files import sweep_temporary
from omx_autoresearch.missions.claims import take_in
from omx_autoresearch.missions.records.lifecycle import (
    MissionBlocked,
    MissionCancelled,
    MissionPaused,
    MissionResumed,
    MissionUnblocked,
    OwnerVerbRefused,
)
from omx_autoresearch.missions.records.sessions import SessionUnbound
from omx_autoresearch.missions.records.work import CommandsApproved, PinsRestored
from omx_autoresearch.missions.registry import ActiveSession, Registry, forget_faults
from omx_autoresearch.missions.rules.mission import (
    FINAL_PHASES,
    Blocker,
    next_command,
)
from omx_autoresearch.missions.sessions import live_clients, missions_around
from omx_autoresearch.missions.store import MissionStore, live_contract, refuse_ended
from omx_autoresearch.missions.upkeep import sweep
from omx_autoresearch.missions.validation.approvals import approve as write_approval
from omx_autoresearch.missions.validation.approvals import mission_key
from omx_autoresearch.system.processes import (
    RUN_MARK,
    ProcessIdentity,
    agent_marks,
    ancestors,
    command_name,
    is_alive,
    runs_above,
    signals,
    wait_for,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.records.lifecycle import PhaseStep
    from omx_autoresearch.missions.rules.mission import Mission, RunningValidation

_END_SECONDS = 2.0
"""How long ``cancel`` waits for the end of the run under way."""


def pause(runtime: Runtime, task_id: str, *, reason: str = "") -> Mission:
    """The owner pauses a running mission; it holds no session until ``resume``."""
    return _step(runtime, task_id, MissionPaused, reason)


def resume(
    runtime: Runtime, task_id: str, *, reason: str = "", add_hours: float = 0.0, add_refusals: int = 0
) -> Mission:
    """The owner lets a paused mission run again, with fresh stall allowances and more of the finite ones."""
    return _step(runtime, task_id, MissionResumed, reason, *_checked(add_hours, add_refusals))


def unblock(
    runtime: Runtime, task_id: str, *, reason: str = "", add_hours: float = 0.0, add_refusals: int = 0
) -> Mission:
    """The owner lets a blocked mission run again, with fresh stall allowances and more of the finite ones."""
    return _step(runtime, task_id, MissionUnblocked, reason, *_checked(add_hours, add_refusals))


def block(runtime: Runtime, task_id: str, *, reason: str, needs: str, by: str = "agent") -> Mission:
    """Block the mission until a person acts; a loud release, never a completion. An agent may always use it."""
    if not reason.strip() or not needs.strip():
        raise UsageError(
            "block needs a reason, and the smallest input that would unblock the mission",
            next_step=f'omx-autoresearch block {task_id} --reason "..." --needs "..."',
        )
    code = "agent-blocked" if by == "agent" else "owner-blocked"
    blocker = Blocker(code, reason, needs, f"omx-autoresearch unblock {task_id}", by)
    return _step(runtime, task_id, MissionBlocked, blocker)


def cancel(runtime: Runtime, task_id: str, *, reason: str = "") -> Mission:
    """The owner gives a mission up; nothing re-opens it. Its run under way is ended, with all its processes."""
    mission = _step(runtime, task_id, MissionCancelled, reason)
    Registry(runtime.home).remove_task(task_id)
    if mission.running_validation is not None:
        _end_run(mission.running_validation)
    return mission


def _end_run(run: RunningValidation) -> None:
    """End a run under way: its supervisor ends the command's processes when the one that conducts it goes."""
    conductor = ProcessIdentity(run.pid, run.pid_started)
    if is_alive(conductor):
        os.kill(conductor.pid, signals.SIGTERM)
        wait_for(conductor, _END_SECONDS)


def _step(runtime: Runtime, task_id: str, kind: type[PhaseStep], *facts: object) -> Mission:
    with MissionStore(runtime.home).transaction(task_id, runtime.now()) as transaction:
        return transaction.record(kind.taken(transaction.mission, *facts))


def _checked(hours: float, refusals: int) -> tuple[float, int]:
    if not 0 <= hours < 24 * 366 or not 0 <= refusals < 1_000_000:
        raise UsageError(
            "--add-hours and --add-refusals take numbers of at least 0", next_step="--add-hours 8"
        )
    return hours, refusals


def restore(runtime: Runtime, task_id: str, *, reason: str = "") -> restoration.Restored:
    """Copy the pinned files back from ``frozen/``.

    Raises:
        StepIllegal: the mission is a draft, or has ended: its files judge nothing any more.
    """
    store = MissionStore(runtime.home)
    mission = store.load(task_id)
    refuse_ended(mission, "it no longer pins anything")
    folder = runtime.home.mission(task_id)
    if mission.contract is None:
        raise StepIllegal(f"mission {task_id} is a draft", next_step=f"omx-autoresearch start {task_id}")
    manifest = pins.load_manifest(folder.frozen_path, mission.contract.pin_digest)
    restored = restoration.restore(manifest, mission.workspace_path, frozen_path=folder.frozen_path)
    with store.transaction(task_id, runtime.now()) as transaction:
        transaction.record(PinsRestored(restored.paths, reason))
    return restored


def approve(runtime: Runtime, task_id: str, *, is_unsandboxed: bool = False) -> str:
    """The owner allows the contract's commands, under exactly these pins, to run outside an agent's sandbox."""
    store = MissionStore(runtime.home)
    now = runtime.now()
    with store.transaction(task_id, now) as transaction:
        mission = transaction.mission
        if mission.contract is None:
            raise StepIllegal(f"mission {task_id} is a draft", next_step=f"omx-autoresearch start {task_id}")
        key = mission_key(mission)
        write_approval(runtime.home, key, is_unsandboxed=is_unsandboxed, ts=now)
        transaction.record(CommandsApproved(key, is_unsandboxed))
    return key


def repair(runtime: Runtime, task_id: str, *, accept_loss: bool = False) -> Mission:
    """Rebuild everything derived from the journal: snapshot, projections, completion artifact, intake files, registry.

    Lines that were added to a projection are taken in as claims; temporary files of killed writers are removed.

    ``accept_loss``: the owner goes on with the records that are there although more were acknowledged.
    """
    from omx_autoresearch.missions.accepted import restore_intake

    store = MissionStore(runtime.home)
    store.rebuild(task_id, accept_loss=accept_loss)
    take_in(runtime, task_id, is_thorough=True)
    mission = store.load(task_id)
    if os.path.isdir(mission.project_path):
        try:
            restore_intake(runtime, mission)
        except StateUntrusted:
            pass  # the pinned files are damaged, which `restore` names; sandbox.md would lose what it protects
    folder = runtime.home.mission(task_id)
    for path in (folder.root_path, folder.frozen_path, folder.outputs_path):
        sweep_temporary(path)
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
                at=runtime.now(),
            )
        )
    return mission


def _is_unknown(registry: Registry, session_id: str) -> bool:
    """True when the registry has no entry of the session, or one that cannot be read."""
    try:
        return registry.find(session_id) is None
    except StateUntrusted:
        return True


def unbind(runtime: Runtime, task_id: str, *, reason: str = "") -> Mission:
    """The owner lets a mission's session go; the mission goes on existing and can be bound again."""
    with MissionStore(runtime.home).transaction(task_id, runtime.now()) as transaction:
        mission = transaction.mission
        if mission.binding is not None:
            mission = transaction.record(SessionUnbound(mission.binding.session_id, reason))
    Registry(runtime.home).remove_task(task_id)
    return mission


# --- Owner or agent: verbs of the owner are refused inside an agent, recorded, and shown to the owner.
#
# A fence against the usual, not a wall: an unsandboxed agent has the user's rights (specs/threat-model.md).

_CURE = "run it in a terminal that no agent CLI and no command of the runtime started"
_CURE_OF_LEAK = (
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


def require_runnable(runtime: Runtime, task_id: str, *, is_review: bool) -> Mission:
    """The mission, whose contract has a validator to run, or with ``is_review`` a reviewer command.

    Raises:
        StepIllegal: it is a draft, it has ended, or it is judged in the other way.
        CommandFault: its reviews are given by people or sessions alone.
    """
    mission = MissionStore(runtime.home).load(task_id)
    contract = live_contract(mission, "there is nothing to run", next_step=next_command(mission))
    if is_review == bool(contract.validator_command):
        judge, verb = ("its validator", "validate") if is_review else ("a review", "review")
        raise StepIllegal(
            f"mission {task_id} is judged by {judge}", next_step=f"omx-autoresearch {verb} {task_id}"
        )
    if is_review and not contract.reviewer_command:
        raise CommandFault(
            f"mission {task_id} has no reviewer command, so none can be run",
            next_step=f"a person types at a terminal: omx-autoresearch review {task_id}",
        )
    return mission


def require_owner(runtime: Runtime, verb: str, task_id: str = "") -> None:
    """Let the owner pass.

    Raises:
        OwnerOnly: the process is inside an agent, which the mission records where it can, or runs what a workspace put
            in its way.
    """
    marks = marks_of_agent(runtime)
    if not marks:
        require_own_program(runtime, verb, task_id)
        sweep(runtime)
        return
    for held in (task_id,) if task_id else missions_around(runtime):
        refuse_verb(runtime, verb, held, marks)
    leaked = [name for name in (*runtime.shell_marks, RUN_MARK) if name in runtime.environ]
    raise OwnerOnly(
        f"only the owner may run `{verb}`, and this runs inside an agent: {'; '.join(marks)}",
        next_step=_CURE_OF_LEAK if len(leaked) == len(marks) else _CURE,
    )


def require_own_program(runtime: Runtime, verb: str, task_id: str = "") -> None:
    """Let a process pass that runs no module which the mission's workspace, or the project around it, put in its way.

    Raises:
        OwnerOnly: it runs one; the message names the module and what led to it.
    """
    from omx_autoresearch.system.interpreter import VARIABLES, planted_module

    planted = planted_module(_workspaces(runtime, task_id), runtime.environ)
    if planted is None:
        return
    cure = "run the installed omx-autoresearch from a folder outside the workspace"
    if planted.cause in VARIABLES:
        cure = f"env -u {planted.cause} omx-autoresearch {verb} {task_id}".rstrip()
    raise OwnerOnly(
        f"`{verb}` was not run: this process has loaded {planted.name} from {planted.path}, where an agent can write;"
        f" {planted.cause} led to it",
        next_step=cure,
    )


def _workspaces(runtime: Runtime, task_id: str) -> list[str]:
    """The folders in which the agents of this mission, and of the project around this process, may write."""
    from omx_autoresearch.missions.checkouts import project_of

    found = []
    try:
        project_path = project_of(runtime, os.getcwd())
        if os.path.isdir(os.path.join(project_path, ".omx")):
            found.append(project_path)
        if task_id:
            mission = MissionStore(runtime.home).load(task_id)
            found += [mission.project_path, mission.workspace_path]
    except (OSError, AutoresearchError):
        return found  # what cannot be read is told by the verb itself
    return found


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
