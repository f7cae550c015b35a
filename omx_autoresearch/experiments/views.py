"""What every door asks of experiments without holding one: which is meant, who works on it, what it reached."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from omx_autoresearch.experiments.final_patch import patch_warning
from omx_autoresearch.experiments.store import ExperimentStore
from omx_autoresearch.foundation.errors import AutoresearchError, UsageError
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.freezing.pins import load_manifest
from omx_autoresearch.missions.checkouts import experiment_around, project_root, workspace_root
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.system.processes import ProcessIdentity, is_alive

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from omx_autoresearch.experiments.judge.state import ExperimentState
    from omx_autoresearch.experiments.worktrees.object_store import FileChange
    from omx_autoresearch.journal.layout import Runtime

NEXT_START = "omx-autoresearch experiment start --metric NAME --measure ./measure.sh --check ./check.sh"


def find_experiment(
    runtime: Runtime, named: str, *, cwd: str, task_id: str = "", option: str = ""
) -> ExperimentState:
    """The experiment that a caller means: the one answer to that question, whatever the door.

    Without a name: the experiment whose worktrees the caller stands in, else the newest of the caller's mission, else
    the only one of the checkout that has not ended, else the newest one there.

    Args:
        runtime: the world.
        named: an id, its unique beginning, its slug, or a mission, which means its newest experiment; empty for none.
        cwd: where the caller stands; empty when that folder is gone.
        task_id: the mission that holds the caller's session; empty for none.
        option: what stands before a name where the caller types one, for the error's next step.

    Raises:
        UsageError: no experiment fits, or several do; they are named.
        JournalBroken: the log of the experiment cannot be believed.
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
            f"which experiment? {len(under_way)} are under way: {names}",
            next_step=f"the same with one of them, such as {option}{under_way[0].experiment_id}",
        )
    if found:
        return (under_way or found)[0]
    for experiment_id in _ids_of(store, roots):
        store.load(experiment_id)  # a log that cannot be believed is told of, rather than no experiment
    raise UsageError("there is no experiment of this project", next_step=NEXT_START)


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
        linked = MissionStore(runtime.home).load(task_id).experiments if task_id else ()
    return [store.load(name) for name in linked if store.exists(name)][-1:]


def more_of(reason: str) -> str:
    """The option of `resume` that adds to the budget which ended an experiment; empty where none did."""
    return {
        "budget_trials": "--add-trials 20",
        "budget_wall": "--add-hours 4",
        "budget_cost": "--add-cost 5",
        "budget_runs": "--add-runs 500",
        "budget_disk": "--add-disk 2GiB",
    }.get(reason, "")


def is_at_work(state: ExperimentState) -> bool:
    """True while exactly the controller that the log names lives."""
    return bool(state.controller_pid) and is_alive(
        ProcessIdentity(state.controller_pid, state.controller_started)
    )


@dataclass(frozen=True, slots=True)
class PatchLook:
    """What all accepted trials changed together.

    Attributes:
        changed: the changed files, renames found.
        size_bytes: of the whole patch.
        beginning: the first bytes of it.
        warning: why it should not be accepted yet; empty where nothing speaks against it.
    """

    changed: tuple[FileChange, ...]
    size_bytes: int
    beginning: bytes
    warning: str


def frozen_paths(runtime: Runtime, state: ExperimentState) -> tuple[str, ...]:
    """Files that no candidate may touch, then the owner's globs; empty where nobody knows."""
    folder = ExperimentStore(runtime.home).folder(state.experiment_id)
    try:
        manifest = load_manifest(folder.frozen_path, state.pin_digest)
    except (AutoresearchError, OSError):
        return state.config.protect
    files = tuple(pin.path for pin in manifest.pins if pin.kind != "absent-guard")
    return (*files, *(glob for glob in state.config.protect if glob not in files))


def candidate_path(runtime: Runtime, experiment_id: str) -> str:
    """The candidate's worktree; empty where it is gone."""
    path = os.path.join(ExperimentStore(runtime.home).folder(experiment_id).work_path, "candidate")
    return path if os.path.isdir(path) else ""


def look_at_patch(runtime: Runtime, state: ExperimentState, limit_bytes: int) -> PatchLook:
    """What was reached so far; nothing is held or changed by looking.

    Raises:
        StateUntrusted: the experiment has no checkpoints.
        WorkspaceFault: the repository is gone, or git cannot read a checkpoint.
    """
    import tempfile

    from omx_autoresearch.experiments.worktrees.pair import Workspaces

    folder = ExperimentStore(runtime.home).folder(state.experiment_id)
    workspaces = Workspaces.open(folder.work_path)
    base, final = state.base_commit, state.incumbent_commit
    with tempfile.TemporaryDirectory(dir=folder.root_path, prefix=".patch-") as place:
        path = os.path.join(place, "patch")
        size_bytes = workspaces.write_patch(base, final, path)
        with open(path, "rb") as stream:
            beginning = stream.read(limit_bytes)
    return PatchLook(workspaces.changes(base, final), size_bytes, beginning, patch_warning(state))
