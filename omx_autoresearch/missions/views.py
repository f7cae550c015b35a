"""The questions of every surface, answered once: which mission is meant, its state, its open criteria, its next step.

Begin with :class:`StatusView`, the state of a mission, and :func:`resolve_task`, which finds the mission that a command
means. The command line, the tools, the status line and other programs render what these functions return.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Literal

from omx_autoresearch.foundation.errors import (
    AutoresearchError,
    JournalBroken,
    StepIllegal,
    StorageFailed,
    UsageError,
    WorkspaceFault,
)
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.times import seconds_between
from omx_autoresearch.journal.layout import ProjectFolder, is_safe_task_id
from omx_autoresearch.journal.safe_files import read_bounded, replace_file
from omx_autoresearch.missions.checkouts import project_of
from omx_autoresearch.missions.claims import take_in_quietly
from omx_autoresearch.missions.holds import hold_of, record_loss
from omx_autoresearch.missions.registry import Registry, last_beat
from omx_autoresearch.missions.rules.difference import SHOWN_CHANGES, Difference, bounded
from omx_autoresearch.missions.rules.evidence import (
    CriterionView,
    completion_items,
    criteria_of,
    judging_command,
)
from omx_autoresearch.missions.rules.mission import FINAL_PHASES, Notice, next_command, seconds_running
from omx_autoresearch.missions.rules.prompts import paths_named
from omx_autoresearch.missions.rules.readiness import readiness_report
from omx_autoresearch.missions.speakers import proof_text
from omx_autoresearch.missions.store import MissionStore, standing_of
from omx_autoresearch.missions.validation.runs import is_under_way
from omx_autoresearch.missions.verification import unresolved_ids, whole_look
from omx_autoresearch.missions.workspace import snapshot_workspace

if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.criteria import WorkspaceSnapshot
    from omx_autoresearch.missions.rules.evidence import Missing
    from omx_autoresearch.missions.rules.mission import Contract, Mission
    from omx_autoresearch.missions.rules.prompts import NamedFolder
    from omx_autoresearch.missions.rules.readiness import ReadinessReport

_LEAST_OF_A_NAME = 4
"""The shortest beginning of an id that names a mission, in characters."""
_TOLD = (
    "hold_lost",
    "unproven_prompt",
    "pivot_required",
    "heartbeat_failed",
    "readiness_blocked",
    "projection_edited",
    "torn_tail_set_aside",
)
"""Events that the owner should read of once; the others show in phase and blocker."""
_TOLD_NAME = "told"
"""File of the mission in the state home: the time of the newest event that its owner has read of."""
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
        reviews: calls of the reviewer command and verdicts of other sessions; 0 where no review decides.
        max_reviews: how many there may be; 0 likewise.
        idle_refusals: refusals in a row without a tool.
        hours_used: wall clock charged.
        max_hours: how much there may be.
        finding_count: claims and findings.
        open_criteria: what the contract still lacks, at ``checked_at``; the workspace may have moved since.
        criteria: every condition of the contract as it stood at ``checked_at``.
        checked_at: this moment where the workspace was looked at, else the time of the newest run or check under the
            contract; empty for never.
        checked_age_seconds: how long ago that was; null for never.
        blocker: why a person must act; empty otherwise.
        next_command: what the owner types next; ``$autoresearch TASK`` is typed in the agent.
        last_verdict: of the newest run; empty when there was none.
        last_run_id: of that run.
        running_since: when the run under way began, ISO 8601 UTC; empty when none is.
        lost_run_id: the newest run, if it ended without a verdict (its process was killed); empty otherwise.
        last_heartbeat_at: when the client was last heard of; empty for never.
        task_path: the projections' folder.
        validation_mode: of the contract; empty while draft.
        difference: what changed since the launch, the weightiest changes first; null where it was not looked at, except
            at the completion.
        judged_by: the validator's command and its confirmation, or which file is reviewed; empty while draft.
        session_id: bound session; empty when unbound.
        client: its agent CLI.
        hold: ``proven (stop answered ...)``, ``unproven``, ``unbound``, ``stale (...)``, ``let go (...)``,
            ``session ended (...)``, ``lost (...)``; see :mod:`omx_autoresearch.missions.holds`.
        has_unproven_prompt: a command came that is not proven to be a person's, and nothing of the owner's followed.
        prompts: how sure it is that a prompt in its agent CLI is a person's; empty when unbound.
        notices: what the owner should read, a line each; an event stands here until ``status`` told a person.
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
    reviews: int = 0
    max_reviews: int = 0
    idle_refusals: int = 0
    hours_used: float = 0.0
    max_hours: float = 0.0
    finding_count: int = 0
    open_criteria: tuple[str, ...] = ()
    criteria: tuple[CriterionView, ...] = ()
    checked_at: str = ""
    checked_age_seconds: float | None = None
    blocker: str = ""
    next_command: str = ""
    last_verdict: str = ""
    last_run_id: str = ""
    running_since: str = ""
    lost_run_id: str = ""
    last_heartbeat_at: str = ""
    task_path: str = ""
    validation_mode: str = ""
    judged_by: str = ""
    difference: Difference | None = None
    session_id: str = ""
    client: str = ""
    hold: str = "unbound"
    has_unproven_prompt: bool = False
    prompts: str = ""
    notices: tuple[str, ...] = ()
    lifecycle: tuple[Notice, ...] = ()


# --- which mission is meant


def resolve_task(
    runtime: Runtime,
    named: str,
    *,
    session_id: str = "",
    cwd: str = "",
    command: str = "omx-autoresearch status",
) -> str:
    """The task id that a command means.

    A name is a task id, a slug that only one mission has, the beginning of one task id alone (4 characters or more),
    or the path of a task's folder. Without a name: the mission bound to the session, else the only one under way of
    this project. A mission of another project must be named.

    A linked work tree counts as the project that it is of, and so does an experiment's worktree. ``command`` is what
    the error repeats with an id.

    Raises:
        UsageError: nothing fits, or several do; the error lists them.
        JournalBroken: the mission's own folder is gone, or its journal.
    """
    store = MissionStore(runtime.home)
    if named:
        return _named(runtime, store, named, cwd)
    held = held_task(runtime, session_id)
    if held and store.exists(held):
        return held
    open_missions = _open_missions(store)
    root = project_of(runtime, cwd) if cwd else ""
    here = [mission for mission in open_missions if mission.project_path == root]
    if len(here) == 1:
        return here[0].task_id
    if here:
        names = ", ".join(mission.task_id for mission in here[:8])
        raise UsageError(
            f"which mission? {len(here)} are under way: {names}", next_step=f"{command} {here[0].task_id}"
        )
    for mission in open_missions:
        if gone_project(mission) and os.path.isdir(os.path.join(root, mission.specs_path)):
            what, cure = gone_project(mission, root)
            raise WorkspaceFault(what, next_step=cure)
    if not open_missions:
        raise UsageError(
            "no mission is under way", next_step="omx-autoresearch init --goal ... --validator ..."
        )
    others = ", ".join(f"{mission.task_id} ({mission.project_path})" for mission in open_missions[:8])
    raise UsageError(
        f"no mission of this project is under way, and none is bound to this session; other projects have {others}",
        next_step=f"{command} {open_missions[0].task_id}, or cd into its project",
    )


def gone_project(mission: Mission, found_path: str = "PATH") -> tuple[str, ...]:
    """What to say of a mission whose project is not where it began, and the next command; empty where it is there."""
    if os.path.isdir(mission.project_path):
        return ()
    told = f"{mission.project_path}, the project of mission {mission.task_id}, is gone"
    if mission.phase == "draft":
        return (
            told,
            f"omx-autoresearch remove {mission.task_id}, then write it anew with init where the project is now",
        )
    import shlex  # loaded by no hook

    where = shlex.quote(found_path)
    return (
        f"{told}; if it was moved, the mission can follow it",
        f"omx-autoresearch amend {mission.task_id} --workspace {where}",
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
    if path := _adoptable_path(runtime, named, folders, cwd):
        import shlex  # loaded by no hook

        next_step = f"omx-autoresearch adopt {shlex.quote(path)}"
        raise UsageError(f"{path} is not a mission yet", next_step=next_step)
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
        f"{named!r} fits {len(found)} missions: {', '.join(found[:8])}" if found else f"no mission {named!r}"
    )
    raise UsageError(what, next_step="omx-autoresearch list")


def _is_missing(runtime: Runtime, task_id: str) -> bool:
    """The mission was there: its folder stands without a journal, or a session is bound to it."""
    if os.path.isdir(runtime.home.mission(task_id).root_path):
        return True
    return any(entry.task_id == task_id for entry in Registry(runtime.home).entries())


def _adoptable_path(runtime: Runtime, named: str, folders: tuple[NamedFolder, ...], cwd: str) -> str:
    """The task folder on this disk that a word names, by its path or by its id; empty if no folder is there."""
    root = project_of(runtime, cwd) if cwd else ""
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


def held_task(runtime: Runtime, session_id: str) -> str:
    """The mission that holds a session; empty for none."""
    entry = Registry(runtime.home).bound(session_id)
    return entry.task_id if entry is not None else ""


def current_tasks(runtime: Runtime, cwd: str) -> tuple[str, ...]:
    """The launched missions of this project that have not ended; where just one of them has a session, that one."""
    root = project_of(runtime, cwd) if cwd else ""
    here = [
        mission
        for mission in _open_missions(MissionStore(runtime.home))
        if mission.project_path == root and mission.phase != "draft"
    ]
    held = [mission for mission in here if mission.binding is not None]
    return tuple(mission.task_id for mission in (held if len(held) == 1 else here))


def draft_tasks(runtime: Runtime, cwd: str) -> tuple[str, ...]:
    """The drafts of this project."""
    root = project_of(runtime, cwd) if cwd else ""
    return tuple(
        mission.task_id
        for mission in _open_missions(MissionStore(runtime.home))
        if mission.phase == "draft" and mission.project_path == root
    )


def shown_view(  # noqa: PLR0913 - who asks, from where, and how
    runtime: Runtime,
    named: str,
    *,
    session_id: str = "",
    cwd: str = "",
    command: str = "omx-autoresearch status",
    looks: bool = False,
) -> StatusView:
    """The mission to look at: as :func:`resolve_task`, but where no mission of the project is under way, also another.

    That is the last one that ended in this project, else the only one that cannot be read, where none is under way at
    all: which project that is of cannot be told.

    Raises:
        UsageError: none or several can be meant.
    """
    if named in known_ids(runtime):
        return view(runtime, named, looks=looks)  # the trace of a lost one, too
    try:
        meant = resolve_task(runtime, named, session_id=session_id, cwd=cwd, command=command)
        return view(runtime, meant, looks=looks)
    except UsageError:
        if named:
            raise
        views = list_views(runtime)
        under_way = [item for item in views if item.phase not in ("", *FINAL_PHASES)]
        below = os.path.join(project_of(runtime, cwd), ".omx", "") if cwd else ""
        here = [item for item in views if item.phase and below and item.task_path.startswith(below)]
        broken = [item for item in views if not item.phase]
        if here and not any(item in under_way for item in here):
            found = here[:1] if under_way or len(broken) != 1 else broken
        else:
            found = broken if len(broken) == 1 and not under_way else []
        if not found:
            raise
        return found[0]


# --- how it stands


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
        blocker=f"{path} is gone; the mission holds no session",
        next_command=f"put {path} back from a copy, then: omx-autoresearch repair {task_id}",
    )


def _view_of(runtime: Runtime, mission: Mission, *, looks: bool) -> StatusView:
    contract, usage, limits = mission.contract, mission.usage, mission.limits
    last = last_beat(runtime.home.mission(mission.task_id).heartbeat_path)
    blocker, run = mission.blocker, mission.running_validation
    is_running = run is not None and is_under_way(run)
    hold = hold_of(runtime, mission)
    if hold.is_lost and mission.lost_hold is None:
        record_loss(runtime, mission.task_id, hold.text)
        mission = MissionStore(runtime.home).load(mission.task_id)
    standing, look, difference = standing_of(mission), None, mission.difference
    if looks and contract is not None and mission.phase not in FINAL_PHASES:
        # of a workspace that is gone the next stop tells; here stands what was seen last
        with contextlib.suppress(AutoresearchError):
            look, items = open_items(runtime, mission)
            standing |= {"open_criteria": tuple(item.code for item in items), "checked_at": runtime.now()}
        from omx_autoresearch.missions.difference import difference_since_launch  # no hook looks

        difference = difference_since_launch(runtime, mission)
    seen_at, changed = standing["checked_at"], _changed_frozen(mission, look)
    status: Status = mission.status  # type: ignore[assignment]
    return StatusView(
        task_id=mission.task_id,
        goal=mission.goal,
        status=status,
        current_direction=mission.current_direction,
        pivot_count=mission.pivot_count,
        refusals=usage.refusals,
        max_refusals=limits.refusals_total,
        reviews=mission.review_count,
        max_reviews=limits.reviews if contract is not None and contract.is_review else 0,
        idle_refusals=usage.idle_refusals,
        hours_used=round(seconds_running(mission, runtime.now()) / 3600, 4),
        max_hours=limits.wall_clock_hours,
        finding_count=mission.finding_count + mission.claim_count,
        criteria=criteria_of(mission, look),
        checked_age_seconds=round(max(0.0, seconds_between(seen_at, runtime.now())), 1) if seen_at else None,
        blocker=f"{blocker.reason_code}: {blocker.what} (needed: {blocker.needs})" if blocker else "",
        next_command=hold.next_command or _next_of(mission, is_changed=bool(changed)),
        last_verdict=mission.attestation.verdict if mission.attestation else "",
        last_run_id=mission.attestation.run_id if mission.attestation else "",
        running_since=run.started_at if run and is_running else "",
        lost_run_id=run.run_id if run and not is_running else mission.lost_run_id,
        last_heartbeat_at=last.at if last else "",
        task_path=ProjectFolder(mission.project_path).task_path(mission.task_id),
        validation_mode=contract.validation_mode if contract else "",
        judged_by=_judged_by(contract) if contract else "",
        difference=bounded(difference, SHOWN_CHANGES) if difference else None,
        client=mission.binding.client if mission.binding else "",
        hold=hold.text,
        prompts=proof_text(runtime.home, mission.binding.client) if mission.binding else "",
        notices=(*changed, *_notices(runtime, mission)),
        lifecycle=mission.notices,
        **standing,
    )


def _changed_frozen(mission: Mission, look: WorkspaceSnapshot | None) -> tuple[str, ...]:
    """A notice of the frozen files that changed: at this look, else at the newest run unless they were put back."""
    run, what = mission.attestation, ""
    if look is not None:
        what = ", ".join(look.changed_pins)
    elif run is not None and (run.cause, run.contract_digest) == ("pins-changed", mission.contract_digest):
        restored_at = [item.at for item in mission.notices if item.kind == "pins_restored"]
        is_restored = bool(restored_at) and restored_at[-1] > run.finished_at
        what = "" if is_restored or mission.phase in FINAL_PHASES else f"{run.summary} (at run {run.run_id})"
    return (
        f"frozen files changed, so no run can pass: {what}; to put them back: {_restore(mission)}",
    ) * bool(what)


def _restore(mission: Mission) -> str:
    return f"omx-autoresearch restore {mission.task_id}"


def _next_of(mission: Mission, *, is_changed: bool) -> str:
    """The command after ``status``, which is not ``status`` again while there is another one."""
    if mission.phase == "running" and is_changed:
        return _restore(mission)
    if mission.phase == "running" and mission.binding is not None:
        return judging_command(mission)
    return next_command(mission)


def _judged_by(contract: Contract) -> str:
    if contract.is_review:
        return f"a review of {contract.output_artifact_path}"
    again = ", then again in a clean copy of what git tracks" if contract.confirm else ""
    return f"{contract.validator_command}{again}"


def open_items(runtime: Runtime, mission: Mission) -> tuple[WorkspaceSnapshot, tuple[Missing, ...]]:
    """A look at the workspace and the state files as they are now, and what a completion still lacks there.

    Raises:
        WorkspaceFault: the workspace cannot be looked at.
        StateUntrusted: the mission was never launched.
    """
    look = whole_look(runtime, mission)
    return look, completion_items(mission, look)


def readiness(runtime: Runtime, task_id: str) -> ReadinessReport:
    """Every line of the completion gate as it is now; nothing is run or written.

    Raises:
        StepIllegal: the mission was never launched.
        StateUntrusted: the journal cannot be trusted.
        WorkspaceFault: the workspace cannot be looked at.
    """
    mission = MissionStore(runtime.home).load(task_id)
    if mission.contract is None:
        raise StepIllegal(
            f"mission {task_id} is a draft; nothing is required of it yet", next_step=next_command(mission)
        )
    look = whole_look(runtime, mission)
    return readiness_report(mission, look, unresolved=unresolved_ids(runtime, mission))


def criteria(runtime: Runtime, task_id: str) -> tuple[CriterionView, ...]:
    """Every criterion as it stands now; of a draft what sandbox.md says. Nothing is run.

    Raises:
        WorkspaceFault: the workspace cannot be looked at.
        StateUntrusted: the journal cannot be trusted.
        MissionInvalid: sandbox.md of a draft cannot be read.
    """
    mission = MissionStore(runtime.home).load(task_id)
    if mission.contract is not None:
        return criteria_of(mission, snapshot_workspace(runtime.home.mission(task_id), mission))
    from omx_autoresearch.missions.intake import read_intake

    draft = read_intake(os.path.join(mission.project_path, mission.specs_path))
    return criteria_of(mission, drafted=draft.criteria)


def _notices(runtime: Runtime, mission: Mission) -> tuple[str, ...]:
    from omx_autoresearch.missions.contracts import intake_drift

    found = [f"an agent tried an owner verb: {item}" for item in mission.refused_verbs[-5:]]
    if gone := gone_project(mission):
        found.append(": ".join(gone))
    if mission.binding is not None and mission.binding.how == "clear":
        found.append(
            f"the session was cleared at {mission.binding.at} and goes on under a new id, bound again"
        )
    found += [
        f"a fork of a session began here, and no mission holds it: {item}. To move the mission there, type "
        f"$autoresearch {mission.task_id} in it"
        for item in mission.forked_sessions
    ]
    found += [
        f"{name} was edited or removed since the contract was compiled, which changes nothing until: omx-autoresearch "
        f"amend {mission.task_id}"
        for name in intake_drift(mission)
    ]
    if mission.last_stop is not None and mission.last_stop.goal and mission.phase not in FINAL_PHASES:
        found.append(f"at the newest stop: {mission.last_stop.goal}")
    if mission.contract is not None and mission.contract.unfrozen_reason:
        found.append(f"no file is pinned: {mission.contract.unfrozen_reason}")
    return (
        *found,
        *(f"{item.at} {item.text}" for item in _untold(runtime, mission.task_id, mission.notices)),
    )


def _untold(runtime: Runtime, task_id: str, notices: tuple[Notice, ...]) -> list[Notice]:
    events = [item for item in notices if item.kind in _TOLD]
    if not events:
        return []
    try:
        told = read_bounded(_told_path(runtime, task_id), 64).decode("ascii", "replace")
    except (OSError, AutoresearchError):
        told = ""
    return [item for item in events if item.at > told]


def mark_told(runtime: Runtime, shown: StatusView) -> None:
    """Remember that a person has read the notices of a view, so that no event is told twice."""
    untold = _untold(runtime, shown.task_id, shown.lifecycle)
    if untold:
        with contextlib.suppress(StorageFailed):  # then it is told again
            replace_file(_told_path(runtime, shown.task_id), untold[-1].at.encode(), is_durable=False)


def _told_path(runtime: Runtime, task_id: str) -> str:
    return os.path.join(runtime.home.mission(task_id).root_path, _TOLD_NAME)
