"""Shared answers about experiments: the one that a caller means, its view, its controller, the next command.

Nothing here holds an experiment or changes one; it may be asked while another process works.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import TYPE_CHECKING

from omx_autoresearch.experiments.judge.calibration import Calibration
from omx_autoresearch.experiments.judge.state import (
    Claim,
    ExperimentLimits,
    ExperimentState,
    ExperimentUsage,
    TrialRow,
)
from omx_autoresearch.experiments.judge.summary import count_kinds, quoted_claim
from omx_autoresearch.experiments.store import ExperimentStore
from omx_autoresearch.foundation.clients import EXAMPLE_AGENT
from omx_autoresearch.foundation.errors import AutoresearchError, UsageError
from omx_autoresearch.foundation.records import as_fields, dataclass, replace
from omx_autoresearch.foundation.types import MetricDirection
from omx_autoresearch.missions.checkouts import experiment_around, project_root, workspace_root
from omx_autoresearch.system.processes import ProcessIdentity, is_alive

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from omx_autoresearch.journal.layout import Runtime

NEXT_START = "omx-autoresearch experiment start --metric NAME --measure ./measure.sh --check ./check.sh"


def find_experiment(
    runtime: Runtime, named: str, *, cwd: str, task_id: str = "", option: str = ""
) -> ExperimentState:
    """The experiment that a caller means: the one answer to that question, whatever the door.

    Without a name: the experiment whose worktrees the caller stands in, else the newest of the caller's mission, else
    the only one of the checkout that has not ended, else the newest one there.

    Args:
        runtime: clock, environment and state home.
        named: an id, its unique beginning, its slug, or a mission, which means its newest experiment; empty for none.
        cwd: where the caller stands; empty when that folder is gone.
        task_id: the mission that holds the caller's session; empty for none.
        option: what stands before a name where the caller types one, for the error's next step.

    Raises:
        UsageError: no experiment fits, or several do; they are named.
        JournalBroken: the log of the experiment cannot be trusted.
    """
    store = ExperimentStore(runtime.home)
    if named:
        return store.load(_of_mission(runtime, named) or store.find(named))
    roots = (workspace_root(cwd), project_root(cwd)) if cwd else ()
    if around := experiment_around(runtime, cwd):
        found = [store.load(around)]
    else:
        found = _of_task(store, runtime, task_id) or experiments_of(store, roots)
    under_way = [state for state in found if state.phase != "completed"]
    if len(under_way) > 1:
        names = ", ".join(state.experiment_id for state in under_way[:8])
        raise UsageError(
            f"{len(under_way)} experiments are under way: {names}",
            next_step=f"run the same command with one of them, such as {option}{under_way[0].experiment_id}",
        )
    if found:
        return (under_way or found)[0]
    for experiment_id in _ids_of(store, roots):
        store.load(
            experiment_id
        )  # name a log that cannot be trusted, instead of saying that there is no experiment
    raise UsageError("this project has no experiment", next_step=NEXT_START)


def experiments_of(store: ExperimentStore, roots: Collection[str]) -> list[ExperimentState]:
    """The experiments of these checkouts, newest first; one that cannot be read hides no other."""
    found = []
    for experiment_id in _ids_of(store, roots):
        with contextlib.suppress(AutoresearchError):  # `list` shows it
            found.append(store.load(experiment_id))
    return found


def _ids_of(store: ExperimentStore, roots: Collection[str]) -> Iterator[str]:
    for experiment_id in store.list_ids():
        first = None
        with contextlib.suppress(AutoresearchError):
            first = next(store.read(experiment_id), None)
        if first is not None and first.data.get("project_path") in roots:
            yield experiment_id


def _of_mission(runtime: Runtime, named: str) -> str:
    """The newest experiment of a mission of this name; empty where no mission has it."""
    from omx_autoresearch.missions.store import MissionStore

    store = MissionStore(runtime.home)
    if not store.exists(named):
        return ""
    mission = store.load(named)
    if not mission.experiments:
        raise UsageError(f"mission {named} has no experiment yet", next_step=f"{NEXT_START} --task {named}")
    return mission.experiments[-1]


def _of_task(store: ExperimentStore, runtime: Runtime, task_id: str) -> list[ExperimentState]:
    """The newest experiment of the caller's mission that still exists, alone."""
    linked: tuple[str, ...] = ()
    with contextlib.suppress(AutoresearchError):  # a mission that cannot be read hides no experiment
        from omx_autoresearch.missions.store import MissionStore

        linked = MissionStore(runtime.home).load(task_id).experiments if task_id else ()
    return [store.load(name) for name in linked if store.exists(name)][-1:]


# --- how it stands


@dataclass(frozen=True, slots=True)
class ExperimentView:
    """How an experiment stands.

    Attributes:
        experiment_id: its name on disk.
        name: for people.
        task_id: of the mission that it counts for; empty for none.
        phase: ``started`` (no baseline yet), ``ready``, ``running`` or ``completed``.
        completed_reason: why it ended; empty before.
        is_at_work: a controller works on it now.
        controller_pid: of that controller; 0 for none.
        project_path: the user's checkout.
        session_path: its folder: ``events.jsonl``, outputs, prompts.
        workspace_path: the candidate's worktree, where a change is made by hand; empty where it is gone.
        metric: what is measured.
        unit: of it.
        direction: which way is better.
        baseline: the median of the base; null before it was measured.
        calibration: what measuring the base against itself showed; null before.
        base_commit: where the checkout stood.
        incumbent_commit: the last accepted checkpoint.
        counts: trials by how they ended.
        rows: every trial.
        usage: what was spent.
        limits: what may be spent; 0 is no limit.
        claim: the fresh check of base against final; null before there was one.
        result: the one sentence that may be quoted.
        warnings: what the reader must know before the final is accepted.
        isolation: what really isolated the newest run.
        next: the command that follows.
    """

    experiment_id: str
    name: str
    task_id: str
    phase: str
    completed_reason: str
    is_at_work: bool
    controller_pid: int
    project_path: str
    session_path: str
    workspace_path: str
    metric: str
    unit: str
    direction: MetricDirection
    baseline: float | None
    calibration: Calibration | None
    base_commit: str
    incumbent_commit: str
    counts: dict[str, int]
    rows: tuple[TrialRow, ...]
    usage: ExperimentUsage
    limits: ExperimentLimits
    claim: Claim | None
    result: str
    warnings: tuple[str, ...]
    isolation: str
    next: str


@dataclass(frozen=True, slots=True)
class ExperimentLine:
    """How an experiment stands, in a line of a list.

    Attributes:
        experiment_id: its name on disk.
        name: for people.
        phase: as in the whole view; ``invalid`` where its log cannot be trusted.
        completed_reason: why it ended; empty before.
        is_at_work: a controller works on it now.
        project_path: the user's checkout.
        metric: what is measured.
        trials: so far.
        accepted: of them.
        result: the one sentence that may be quoted.
        fault: why its log cannot be trusted; empty otherwise.
    """

    experiment_id: str
    name: str
    phase: str
    completed_reason: str
    is_at_work: bool
    project_path: str
    metric: str
    trials: int
    accepted: int
    result: str
    fault: str


def view(runtime: Runtime, state: ExperimentState) -> ExperimentView:
    """How an experiment of the state home stands."""
    folder = ExperimentStore(runtime.home).folder(state.experiment_id)
    has_controller = is_at_work(state)
    shown = view_of(
        state,
        session_path=folder.root_path,
        workspace_path=candidate_path(runtime, state.experiment_id),
        has_controller=has_controller,
    )
    killed = None if has_controller else state.running_row
    if killed is None or not (kept := folder.kept_change(killed.iteration)):
        return shown
    warning = f"Trial {killed.iteration} was killed before it was judged{kept}."
    return replace(shown, warnings=(*shown.warnings, warning))


def view_of(
    state: ExperimentState, *, session_path: str = "", workspace_path: str = "", has_controller: bool = False
) -> ExperimentView:
    """The view of an experiment that may be outside the state home, such as one read from a foreign log."""
    quoted = quoted_claim(state)
    config = state.config
    known = as_fields(state)
    shared = {name: known[name] for name in ExperimentView.__match_args__ if name in known}
    shared["controller_pid"] = state.controller_pid if has_controller else 0
    return ExperimentView(
        **shared,
        name=config.name,
        is_at_work=has_controller,
        session_path=session_path,
        workspace_path=workspace_path,
        metric=config.metric.name,
        unit=config.metric.unit,
        direction=config.metric.direction,
        counts={str(kind): count for kind, count in count_kinds(state.rows).items()},
        limits=config.limits,
        result=quoted.sentence,
        warnings=quoted.warnings,
        next=next_command(state, has_controller=has_controller),
    )


def list_views(runtime: Runtime) -> tuple[ExperimentLine, ...]:
    """Every experiment of the state home, newest first; one that cannot be read hides no other."""
    store = ExperimentStore(runtime.home)
    return tuple(_line(store, experiment_id) for experiment_id in store.list_ids())


def _line(store: ExperimentStore, experiment_id: str) -> ExperimentLine:
    try:
        state = store.load(experiment_id)
    except AutoresearchError as error:
        return ExperimentLine(experiment_id, "", "invalid", "", False, "", "", 0, 0, "", error.message)
    return ExperimentLine(
        experiment_id,
        state.config.name,
        state.phase,
        state.completed_reason,
        is_at_work(state),
        state.project_path,
        state.config.metric.name,
        len(state.rows),
        sum(row.status == "accepted" for row in state.rows),
        quoted_claim(state).sentence,
        "",
    )


# --- what to type next


def next_command(state: ExperimentState, *, has_controller: bool = False, is_patch_seen: bool = False) -> str:
    """The owner's next command, legal in the experiment's phase.

    Args:
        state: that its log folds to.
        has_controller: a controller works on it now, see :func:`is_at_work`.
        is_patch_seen: the owner has just looked at the final patch.
    """
    program, name = "omx-autoresearch experiment", state.experiment_id
    if has_controller:
        return f"{program} status {name}"
    if state.applied_commit and is_patch_seen:
        return f"git -C {shlex.quote(state.project_path)} status"
    has_patch = state.incumbent_commit != state.base_commit and not state.applied_commit
    if is_patch_seen:
        return f"{program} {'accept' if has_patch else 'status'} {name}"
    if state.phase != "completed" and state.controller_pid:
        return f"{program} resume {name}"  # its controller was killed
    quoted = quoted_claim(state)
    if quoted.has_gain and quoted.is_current and not state.applied_commit:
        return f"{program} accept {name}"
    if state.phase in ("started", "ready"):
        return f'{program} run {name} --agent "{EXAMPLE_AGENT}"'
    return f"{program} {'patch' if has_patch else 'report'} {name}"


def reopening_command(state: ExperimentState) -> str:
    """The command that continues an experiment after a spent budget; empty where no command does."""
    more = {
        "budget_trials": "--add-trials 20",
        "budget_wall": "--add-hours 4",
        "budget_cost": "--add-cost 5",
        "budget_runs": "--add-runs 500",
        "budget_disk": "--add-disk 2GiB",
    }.get(state.completed_reason, "")
    return f"omx-autoresearch experiment resume {state.experiment_id} {more}" if more else ""


# --- what else is asked


def is_at_work(state: ExperimentState) -> bool:
    """True while exactly the controller that the log names lives."""
    return bool(state.controller_pid) and is_alive(
        ProcessIdentity(state.controller_pid, state.controller_started)
    )


def frozen_paths(runtime: Runtime, state: ExperimentState) -> tuple[str, ...]:
    """Files that no candidate may touch, then the owner's globs; empty if unknown."""
    folder = ExperimentStore(runtime.home).folder(state.experiment_id)
    try:
        from omx_autoresearch.freezing import pins

        manifest = pins.load_manifest(folder.frozen_path, state.pin_digest)
    except (AutoresearchError, OSError):
        return state.config.protect
    files = tuple(pin.path for pin in manifest.pins if pin.kind != "absent-guard")
    return (*files, *(glob for glob in state.config.protect if glob not in files))


def candidate_path(runtime: Runtime, experiment_id: str) -> str:
    """The candidate's worktree; empty where it is gone."""
    path = os.path.join(ExperimentStore(runtime.home).folder(experiment_id).work_path, "candidate")
    return path if os.path.isdir(path) else ""
