"""Beginning an experiment: the repository is held, two worktrees stand at its commit, what judges is frozen."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import TYPE_CHECKING, NamedTuple

from omx_autoresearch.core.experiment_events import ControllerAttached, ExperimentStarted
from omx_autoresearch.core.experiment_faults import checked_config
from omx_autoresearch.core.shape import to_plain
from omx_autoresearch.errors import WorkspaceFault
from omx_autoresearch.runtime.checkouts import new_workspace
from omx_autoresearch.runtime.contracts import captured_environment
from omx_autoresearch.runtime.experiments.evaluators import set_up_bench
from omx_autoresearch.runtime.experiments.recording import ExperimentLog
from omx_autoresearch.runtime.experiments.site import Site
from omx_autoresearch.runtime.owners import marks_of_agent
from omx_autoresearch.storage.experiments import ExperimentStore
from omx_autoresearch.storage.holds import Holder, Holds
from omx_autoresearch.system.git import common_dir
from omx_autoresearch.system.object_store import REFERENCES
from omx_autoresearch.system.processes import ProcessIdentity, identify, is_alive
from omx_autoresearch.system.user_repository import open_repository
from omx_autoresearch.system.worktrees import WorkspaceOptions, Workspaces

if TYPE_CHECKING:
    from omx_autoresearch.core.experiments import ExperimentConfig
    from omx_autoresearch.runtime.context import Runtime
    from omx_autoresearch.storage.holds import Hold


class Opened(NamedTuple):
    """An experiment that a controller may work on."""

    site: Site
    hold: Hold


def holds_of(runtime: Runtime) -> Holds:
    """The holds of this state home."""
    return Holds(runtime.home, lambda pid, started: is_alive(ProcessIdentity(pid, started)))


def hold_repository(runtime: Runtime, project_path: str, experiment_id: str) -> Hold:
    """Hold the repository for one experiment, whichever of its worktrees is named.

    Raises:
        StepIllegal: another controller holds it; the message says who.
        WorkspaceFault: there is no repository.
    """
    shared = common_dir(project_path)
    if shared is None:
        raise WorkspaceFault(
            f"{project_path} is in no git repository; an experiment needs one to restore what it rejects",
            next_step=f"git -C {shlex.quote(project_path)} init",
        )
    myself = this_process()
    return holds_of(runtime).take(Holder(myself.pid, myself.started, experiment_id, runtime.now(), shared))


def this_process() -> ProcessIdentity:
    """Who we are."""
    return identify(os.getpid()) or ProcessIdentity(os.getpid(), "")


def begin_experiment(runtime: Runtime, root_path: str, config: ExperimentConfig, task_id: str = "") -> Opened:
    """Begin an experiment on a clean checkout.

    Raises:
        MissionInvalid: the configuration cannot be run; every fault is named.
        WorkspaceFault: the checkout is no clean root, or cannot be isolated.
        UsageError: it is within the state home.
        StepIllegal: another controller holds the repository.
    """
    config = checked_config(config)
    new_workspace(runtime, root_path)
    root_path = os.path.realpath(root_path)
    store = ExperimentStore(runtime.home)
    folder = store.create(config.name, runtime.clock.now())
    try:
        hold = hold_repository(runtime, root_path, folder.experiment_id)
    except BaseException:
        shutil.rmtree(folder.root_path, ignore_errors=True)
        raise
    workspaces: Workspaces | None = None
    try:
        _sweep_unbegun(store, root_path, folder.experiment_id)
        options = WorkspaceOptions(folder.experiment_id, keep=config.keep, link=config.link)
        workspaces = Workspaces.create(root_path, folder.work_path, options)
        bench = set_up_bench(
            folder,
            config,
            project_path=root_path,
            worktree_paths=(workspaces.incumbent_path, workspaces.candidate_path),
            environment=captured_environment(runtime, tuple(config.env)),
        )
        log = ExperimentLog(runtime, store, folder)
        log.record(
            ExperimentStarted(
                experiment_id=folder.experiment_id,
                project_path=root_path,
                config=config,
                base_commit=workspaces.base_commit,
                pin_digest=bench.manifest.digest,
                user_stamp=to_plain(workspaces.stamp),
                task_id=task_id,
                is_agents=bool(task_id and marks_of_agent(runtime)),
            )
        )
        attach(log)
    except BaseException:
        if workspaces is not None:
            workspaces.close(forget=True)
        shutil.rmtree(folder.root_path, ignore_errors=True)
        hold.release()
        raise
    return Opened(Site(log, bench, workspaces), hold)


def _sweep_unbegun(store: ExperimentStore, root_path: str, own_id: str) -> None:
    """Remove what beginnings left behind that were killed before their first event, in this repository that we hold."""
    git = open_repository(root_path).git
    listed = git.output("for-each-ref", "--format=%(refname)", REFERENCES).decode("ascii", "replace")
    for name in listed.split():
        experiment_id = name.removeprefix(f"{REFERENCES}/").removesuffix("/base")
        if experiment_id == own_id or not store.is_unbegun(experiment_id):
            continue
        args = ("update-ref", "-d", name)
        git.checked(git.when_unlocked(*args), args)
        shutil.rmtree(store.folder(experiment_id).root_path, ignore_errors=True)


def attach(log: ExperimentLog) -> None:
    """Record that this process works on the experiment now."""
    myself = this_process()
    log.record(ControllerAttached(myself.pid, myself.started))
