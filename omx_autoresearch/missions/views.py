"""How a mission stands: one view that the command line, the status line and every other surface show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from omx_autoresearch.foundation.errors import AutoresearchError
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.journal.layout import ProjectFolder, Runtime
from omx_autoresearch.missions import heartbeat
from omx_autoresearch.missions.claims import take_in_quietly
from omx_autoresearch.missions.expiry import is_expired
from omx_autoresearch.missions.registry import Registry
from omx_autoresearch.missions.rules.lifecycle import FINAL_PHASES
from omx_autoresearch.missions.rules.mission import Contract, Mission, Notice
from omx_autoresearch.missions.rules.readiness import (
    CriterionView,
    checked_at,
    completion_items,
    criteria_of,
    recorded_codes,
)
from omx_autoresearch.missions.stop import seconds_running
from omx_autoresearch.missions.store import MissionStore

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.findings import Look

_TOLD = ("pivot_required", "heartbeat_failed", "readiness_blocked", "projection_edited")
"""Events that the owner should read of; the others show in phase and blocker."""
Status = Literal["running", "blocked", "complete", "stopped", "invalid", "missing"]


@dataclass(frozen=True, slots=True)
class StatusView:
    """The state of one mission, for people and machines.

    Attributes:
        task_id: of the mission.
        goal: what was asked.
        status: the wire word; ``invalid`` when the state cannot be trusted, ``missing`` when its folder is gone.
        phase: of the lifecycle; empty when invalid or missing.
        iteration: passes between two stops.
        current_direction: the declared direction.
        stale_count: iterations without progress since the last strong one.
        pivot_count: structural pivots so far.
        pivot_required: the stale count demands one.
        refusals: counted refusals.
        max_refusals: how many there may be.
        idle_refusals: refusals in a row without a tool.
        hours_used: wall clock charged.
        max_hours: how much there may be.
        finding_count: claims and findings.
        open_criteria: what the contract still lacks, at ``checked_at``; the workspace may have moved since.
        criteria: every condition of the contract as it stood at ``checked_at``.
        checked_at: this moment where the workspace was looked at, else the time of the newest run or check under the
            contract; empty for never.
        blocker: why a person must act; empty otherwise.
        next_command: what the owner types next; ``$autoresearch TASK`` is typed in the agent.
        last_verdict: of the newest run; empty when there was none.
        last_run_id: of that run.
        last_heartbeat_at: when the client was last heard of; empty for never.
        task_path: the projections' folder.
        validation_mode: of the contract; empty while draft.
        judged_by: the validator's command, or which file is reviewed; empty while draft.
        session_id: bound session; empty when unbound.
        client: its agent CLI.
        hold: ``proven (last event ...)``, ``unproven``, ``stale (...)``, ``unbound``.
        notices: what the owner should read, a line each.
        lifecycle: the newest events of the mission's life, oldest first, for hosts that show them.
    """

    task_id: str
    goal: str
    status: Status
    phase: str = ""
    iteration: int = 0
    current_direction: str = ""
    stale_count: int = 0
    pivot_count: int = 0
    pivot_required: bool = False
    refusals: int = 0
    max_refusals: int = 0
    idle_refusals: int = 0
    hours_used: float = 0.0
    max_hours: float = 0.0
    finding_count: int = 0
    open_criteria: tuple[str, ...] = ()
    criteria: tuple[CriterionView, ...] = ()
    checked_at: str = ""
    blocker: str = ""
    next_command: str = ""
    last_verdict: str = ""
    last_run_id: str = ""
    last_heartbeat_at: str = ""
    task_path: str = ""
    validation_mode: str = ""
    judged_by: str = ""
    session_id: str = ""
    client: str = ""
    hold: str = "unbound"
    notices: tuple[str, ...] = ()
    lifecycle: tuple[Notice, ...] = ()


def view(runtime: Runtime, task_id: str, *, looks: bool = False) -> StatusView:
    """The view of one mission; a corrupt or lost one is a view too, never an exception.

    Args:
        runtime: whose missions.
        task_id: of the mission.
        looks: look at the workspace, so that what is open is what a stop would be refused for now. Else it is as of
            the newest record, in a time that depends on neither mission nor workspace.

    Raises:
        UsageError: there never was a mission of this id.
    """
    store = MissionStore(runtime.home)
    try:
        mission = store.load(task_id)
        take_in_quietly(runtime, task_id, mission)
        mission = store.load(task_id)
    except AutoresearchError as error:
        if not store.exists(task_id):
            if task_id not in known_ids(runtime):
                raise
            return _missing(runtime, task_id)
        cure = error.next_step or f"omx-autoresearch repair {task_id}"
        return StatusView(task_id, "", "invalid", blocker=error.message, next_command=cure)
    return _view_of(runtime, mission, looks=looks)


def list_views(runtime: Runtime) -> tuple[StatusView, ...]:
    """Every mission of the state home, newest first; one corrupt mission hides no other."""
    return tuple(view(runtime, task_id) for task_id in known_ids(runtime))


def known_ids(runtime: Runtime) -> tuple[str, ...]:
    """Every mission that left a trace, newest first: a folder, or a session that is bound to it."""
    bound = {entry.task_id for entry in Registry(runtime.home).entries()}
    return tuple(sorted({*MissionStore(runtime.home).task_ids(), *bound}, reverse=True))


def _missing(runtime: Runtime, task_id: str) -> StatusView:
    path = runtime.home.mission(task_id).journal_path
    return StatusView(
        task_id,
        "",
        "missing",
        blocker=f"{path} is gone; it holds nobody",
        next_command=f"put {path} back from a copy, then: omx-autoresearch repair {task_id}",
    )


def _view_of(runtime: Runtime, mission: Mission, *, looks: bool) -> StatusView:
    contract, usage, limits = mission.contract, mission.usage, mission.limits
    last = heartbeat.last_beat(runtime.home.mission(mission.task_id).heartbeat_path)
    blocker = mission.blocker
    look, lacking, seen_at = _open(runtime, mission, looks=looks)
    status: Status = mission.status  # type: ignore[assignment]
    return StatusView(
        task_id=mission.task_id,
        goal=mission.goal,
        status=status,
        phase=mission.phase,
        iteration=mission.iteration,
        current_direction=mission.current_direction,
        stale_count=usage.stale,
        pivot_count=mission.pivot_count,
        pivot_required=mission.is_pivot_required,
        refusals=usage.refusals,
        max_refusals=limits.refusals_total,
        idle_refusals=usage.idle_refusals,
        hours_used=round(seconds_running(mission, runtime.now()) / 3600, 4),
        max_hours=limits.wall_clock_hours,
        finding_count=mission.finding_count + mission.claim_count,
        open_criteria=lacking,
        criteria=criteria_of(mission, look),
        checked_at=seen_at,
        blocker=f"{blocker.reason_code}: {blocker.what} (needed: {blocker.needs})" if blocker else "",
        next_command=_next_command(mission),
        last_verdict=mission.attestation.verdict if mission.attestation else "",
        last_run_id=mission.attestation.run_id if mission.attestation else "",
        last_heartbeat_at=last.at if last else "",
        task_path=ProjectFolder(mission.project_path).task_path(mission.task_id),
        validation_mode=contract.validation_mode if contract else "",
        judged_by=_judged_by(contract) if contract else "",
        session_id=mission.binding.session_id if mission.binding else "",
        client=mission.binding.client if mission.binding else "",
        hold=hold_of(runtime, mission, last),
        notices=_notices(mission),
        lifecycle=mission.notices,
    )


def _next_command(mission: Mission) -> str:
    """What the owner types next; a running mission that no session works on waits for the line in the agent."""
    from omx_autoresearch.missions.rules.lifecycle import COMMAND_FOR

    if mission.blocker:
        return mission.blocker.command
    if mission.phase == "running" and mission.binding is None:
        return f"$autoresearch {mission.task_id}"
    return COMMAND_FOR[mission.phase].format(task=mission.task_id)


def hold_of(runtime: Runtime, mission: Mission, last: heartbeat.Beat | None) -> str:
    """Whether the client's hooks are known to reach us: ``proven`` only by an event since the binding."""
    binding = mission.binding
    if binding is None:
        return "unbound"
    if not _is_registered(runtime, mission):
        return f"unproven (the registry does not know the session: omx-autoresearch repair {mission.task_id})"
    if is_expired(runtime, mission, runtime.now()):
        return f"stale (last event {last.at if last else binding.at}; type $autoresearch {mission.task_id} to go on)"
    is_bound_by_hook = binding.how in ("prompt", "environment", "agent-start", "clear", "resume")
    if last is not None and last.session_id == binding.session_id and last.at >= binding.at:
        return f"proven (last event {last.at})"
    return f"proven (last event {binding.at})" if is_bound_by_hook else "unproven"


def _is_registered(runtime: Runtime, mission: Mission) -> bool:
    """True when the hook, which asks the registry, finds the mission by its session."""
    session_id = mission.binding.session_id if mission.binding else ""
    try:
        entry = Registry(runtime.home).find(session_id)
    except AutoresearchError:
        return False
    return entry is not None and entry.state == "bound" and entry.task_id == mission.task_id


def _judged_by(contract: Contract) -> str:
    return contract.validator_command or f"a review of {contract.output_artifact_path}"


def _open(runtime: Runtime, mission: Mission, *, looks: bool) -> tuple[Look | None, tuple[str, ...], str]:
    """A look of now where one is wanted and can be had, what the contract lacks, and when that was seen."""
    if mission.phase in FINAL_PHASES or mission.contract is None:
        return None, (), ""
    if looks:
        from omx_autoresearch.missions.readiness import whole_look

        try:
            look = whole_look(runtime, mission)
        except AutoresearchError:
            pass  # a workspace that is gone is said by the next stop; here stands what was seen last
        else:
            return look, tuple(item.code for item in completion_items(mission, look)), runtime.now()
    return None, recorded_codes(mission), checked_at(mission)


def _notices(mission: Mission) -> tuple[str, ...]:
    from omx_autoresearch.missions.contracts import intake_drift

    found = [f"an agent tried an owner verb: {item}" for item in mission.refused_verbs[-5:]]
    if mission.binding is not None and mission.binding.how == "clear":
        found.append(
            f"the session was cleared at {mission.binding.at} and goes on under a new id, bound again"
        )
    found += [
        f"a fork of a session began in this workspace, and nobody holds it: {item}. To move the mission there, type "
        f"$autoresearch {mission.task_id} in it"
        for item in mission.forked_sessions
    ]
    found += [
        f"{name} was edited or removed since the contract was compiled, which changes nothing until: omx-autoresearch "
        f"amend {mission.task_id}"
        for name in intake_drift(mission)
    ]
    if mission.contract is not None and mission.contract.unfrozen_reason:
        found.append(f"no file is pinned: {mission.contract.unfrozen_reason}")
    found += [f"{item.at} {item.text}" for item in mission.notices if item.kind in _TOLD]
    return tuple(found)
