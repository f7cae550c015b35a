"""Looking at an experiment without holding it: what is frozen, and what was reached so far."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import AutoresearchError
from omx_autoresearch.runtime.experiments.patching import patch_warning
from omx_autoresearch.storage.experiments import ExperimentStore
from omx_autoresearch.storage.pins import load_manifest
from omx_autoresearch.system.worktrees import Workspaces

if TYPE_CHECKING:
    from omx_autoresearch.core.experiments import ExperimentState
    from omx_autoresearch.runtime.context import Runtime
    from omx_autoresearch.system.patches import FileChange


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
    folder = ExperimentStore(runtime.home).folder(state.experiment_id)
    workspaces = Workspaces.open(folder.work_path)
    base, final = state.base_commit, state.incumbent_commit
    with tempfile.TemporaryDirectory(dir=folder.root_path, prefix=".patch-") as place:
        path = os.path.join(place, "patch")
        size_bytes = workspaces.write_patch(base, final, path)
        with open(path, "rb") as stream:
            beginning = stream.read(limit_bytes)
    return PatchLook(workspaces.changes(base, final), size_bytes, beginning, patch_warning(state))
