"""Looking at an experiment without holding it: which one is meant, what is frozen, what was reached so far."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import AutoresearchError, UsageError
from omx_autoresearch.runtime.experiments.patching import patch_warning
from omx_autoresearch.storage.experiments import ExperimentStore
from omx_autoresearch.storage.pins import load_manifest
from omx_autoresearch.system.worktrees import Workspaces

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from omx_autoresearch.core.experiments import ExperimentState
    from omx_autoresearch.runtime.context import Runtime
    from omx_autoresearch.system.patches import FileChange

NEXT_START = "a person starts one: omx-autoresearch experiment start --metric NAME --measure ./measure.sh"


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


def find_experiment(
    runtime: Runtime, named: str, *, linked: Collection[str], roots: Collection[str], cwd: str
) -> ExperimentState:
    """The experiment that somebody means.

    Args:
        runtime: the world.
        named: an id, its unique beginning or its slug; empty for none.
        linked: experiments of the mission that the caller works on, newest last.
        roots: paths of the checkouts that the caller stands in.
        cwd: where the caller stands; within an experiment's worktree it is that experiment.

    Raises:
        UsageError: none or several can be meant; they are named.
    """
    store = ExperimentStore(runtime.home)
    if named:
        return store.load(store.find(named))
    if around := _around(runtime, cwd):
        return store.load(around)
    if linked:
        return store.load(tuple(linked)[-1])
    here = list(_states_of(store, roots))
    under_way = [state for state in here if state.phase != "completed"]
    if len(under_way) > 1:
        names = ", ".join(state.experiment_id for state in under_way[:8])
        raise UsageError(f"which experiment? {len(under_way)} are under way: {names}", next_step="name one")
    if not here:
        raise UsageError("there is no experiment of this project", next_step=NEXT_START)
    return under_way[0] if under_way else here[0]


def _around(runtime: Runtime, cwd: str) -> str:
    """The experiment whose folder holds ``cwd``; empty for none."""
    inside = os.path.join(os.path.realpath(runtime.home.experiments_path), "")
    path = os.path.realpath(cwd)
    name = path[len(inside) :].split(os.sep, 1)[0] if path.startswith(inside) else ""
    return name if name and ExperimentStore(runtime.home).exists(name) else ""


def _states_of(store: ExperimentStore, roots: Collection[str]) -> Iterator[ExperimentState]:
    """The experiments of these checkouts, newest first; one that cannot be read hides no other."""
    for experiment_id in store.list_ids():
        try:
            first = next(store.read(experiment_id), None)
            if first is not None and first.data.get("project_path") in roots:
                yield store.load(experiment_id)
        except AutoresearchError:
            continue


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
    folder = ExperimentStore(runtime.home).folder(state.experiment_id)
    workspaces = Workspaces.open(folder.work_path)
    base, final = state.base_commit, state.incumbent_commit
    with tempfile.TemporaryDirectory(dir=folder.root_path, prefix=".patch-") as place:
        path = os.path.join(place, "patch")
        size_bytes = workspaces.write_patch(base, final, path)
        with open(path, "rb") as stream:
            beginning = stream.read(limit_bytes)
    return PatchLook(workspaces.changes(base, final), size_bytes, beginning, patch_warning(state))
