"""The checkout that a folder belongs to, and whether a mission or an experiment may begin in it."""

from __future__ import annotations

import contextlib
import os

from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.journal.layout import Runtime, is_safe_task_id
from omx_autoresearch.journal.reader import EVENTS_NAME, parse_line
from omx_autoresearch.journal.safe_files import is_there
from omx_autoresearch.system.git import common_dir, find_root, main_checkout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission


def workspace_root(cwd: str) -> str:
    """Where a mission that is begun in a folder works: the work tree that holds it, linked or not, else its project."""
    return find_root(os.path.realpath(cwd)) or project_root(cwd)


def new_workspace(runtime: Runtime, cwd: str) -> str:
    """The work tree in which a mission or an experiment that is begun in a folder works.

    Raises:
        UsageError: it is a worktree that an experiment made for its trials, or anything else within the state home.
    """
    root = workspace_root(cwd)
    shared = common_dir(root) or root
    home_path = os.path.join(os.path.realpath(runtime.home.root_path), "")
    inside = next((path for path in (root, shared) if os.path.join(path, "").startswith(home_path)), "")
    if around := experiment_around(runtime, inside):
        raise UsageError(
            f"{root} belongs to experiment {around}; nothing else can start in its worktrees",
            next_step=f"omx-autoresearch experiment status {around}, or cd into a checkout of your own",
        )
    if inside:
        raise UsageError(
            f"{root} is inside the state home {runtime.home.root_path}; nothing can start there",
            next_step="cd into a checkout of your own",
        )
    return root


def experiment_around(runtime: Runtime, path: str) -> str:
    """The experiment whose folder, with its worktrees, holds a path; empty for none."""
    inside = os.path.join(os.path.realpath(runtime.home.experiments_path), "")
    real = os.path.realpath(path) if path else ""
    name = real[len(inside) :].split(os.sep, 1)[0] if real.startswith(inside) else ""
    is_named = is_safe_task_id(name) and is_there(os.path.join(inside, name, EVENTS_NAME))
    return name if is_named else ""


def project_of(runtime: Runtime, cwd: str) -> str:
    """The project that a folder belongs to; a worktree of an experiment belongs to the project that it measures."""
    around = experiment_around(runtime, cwd)
    if around:
        with contextlib.suppress(
            OSError, ValueError, KeyError
        ):  # a log that cannot be read is told where it is needed
            log_path = os.path.join(runtime.home.experiments_path, around, EVENTS_NAME)
            with open(log_path, "rb") as log:
                begun = parse_line(log.readline().rstrip(b"\n"), 0)
            return project_root(begun.data["project_path"])
    return project_root(cwd)


def project_root(cwd: str) -> str:
    """The project that a folder belongs to: the nearest ``.omx`` or repository above it, a worktree's main checkout."""
    path = os.path.realpath(cwd)
    root = find_root(path)
    if root is not None:
        return main_checkout(root) or root
    folder = path
    while True:
        if os.path.isdir(os.path.join(folder, ".omx")):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return path
        folder = parent


def worktree_of(mission: Mission, cwd: str) -> str:
    """The worktree of the mission's own repository that ``cwd`` lies in; empty when it is another repository."""
    root = find_root(cwd) if cwd and os.path.isdir(cwd) else None
    if root is None or common_dir(root) is None or common_dir(root) != common_dir(mission.project_path):
        return ""
    return root
