"""Beginning an experiment, and resuming one after any interruption.

Both hold the repository first: one controller works in a repository at a time, whichever of its worktrees is named.
Beginning makes two worktrees at the commit of the checkout and freezes what judges.

Going on believes the log alone. What still works there is ended, both worktrees are restored, and a trial without a
terminal event ends as `interrupted`; its number stays used. A commit that was made without its `accepted` event is not
taken.
"""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import replace

from omx_autoresearch.experiments.configuration import checked_config, limit_faults
from omx_autoresearch.experiments.context import ExperimentContext, ExperimentLog, clear_request
from omx_autoresearch.experiments.evaluators import freeze_evaluators, open_evaluators
from omx_autoresearch.experiments.judge import events
from omx_autoresearch.experiments.judge.state import ExperimentConfig, ExperimentLimits, ExperimentState
from omx_autoresearch.experiments.store import ExperimentStore, Hold, Holder, Holds
from omx_autoresearch.experiments.worktrees.pair import (
    WorktreePair,
    held_experiments,
    let_base_go,
)
from omx_autoresearch.foundation.errors import StorageFailed, UsageError, WorkspaceFault
from omx_autoresearch.foundation.records import to_plain
from omx_autoresearch.journal.layout import Runtime
from omx_autoresearch.missions.checkouts import new_workspace
from omx_autoresearch.missions.contracts import captured_environment
from omx_autoresearch.missions.lifecycle_commands import marks_of_agent
from omx_autoresearch.missions.secrets import WITHHELD, is_secret
from omx_autoresearch.system import processes
from omx_autoresearch.system.git import common_dir


def holds_of(runtime: Runtime) -> Holds:
    """The holds of this state home."""
    return Holds(
        runtime.home, lambda pid, started: processes.is_alive(processes.ProcessIdentity(pid, started))
    )


def hold_repository(runtime: Runtime, project_path: str, experiment_id: str) -> Hold:
    """Hold the repository for one experiment, whichever of its worktrees is named.

    Raises:
        StepIllegal: another controller holds it; the message says who.
        WorkspaceFault: there is no repository.
    """
    shared = common_dir(project_path)
    if shared is None:
        raise WorkspaceFault(
            f"{project_path} is not in a git repository; an experiment needs one to restore what it rejects",
            next_step=f"git -C {shlex.quote(project_path)} init",
        )
    myself = this_process()
    return holds_of(runtime).take(Holder(myself.pid, myself.started, experiment_id, runtime.now(), shared))


def this_process() -> processes.ProcessIdentity:
    """The identity of this process."""
    return processes.identify(os.getpid()) or processes.ProcessIdentity(os.getpid(), "")


def begin_experiment(
    runtime: Runtime, root_path: str, config: ExperimentConfig, task_id: str = ""
) -> tuple[ExperimentContext, Hold]:
    """Begin an experiment on a clean checkout.

    Raises:
        MissionInvalid: the configuration cannot be run; every fault is named.
        WorkspaceFault: the checkout is no clean root, or cannot be isolated.
        UsageError: it is within the state home.
        StepIllegal: another controller holds the repository.
    """
    config = checked_config(config)
    secrets = {name: value for name, value in config.env.items() if is_secret(name, value)}
    config = replace(
        config, env=config.env | dict.fromkeys(secrets, WITHHELD)
    )  # as every log and report has it
    new_workspace(runtime, root_path)
    root_path = os.path.realpath(root_path)
    store = ExperimentStore(runtime.home)
    folder = store.create(config.name, runtime.clock.now())
    try:
        hold = hold_repository(runtime, root_path, folder.experiment_id)
    except BaseException:
        shutil.rmtree(folder.root_path, ignore_errors=True)
        raise
    worktrees: WorktreePair | None = None
    try:
        _sweep_unbegun(store, root_path, folder.experiment_id)
        worktrees = WorktreePair.create(
            root_path, folder.work_path, folder.experiment_id, keep=config.keep, link=config.link
        )
        evaluators = freeze_evaluators(
            folder,
            config,
            project_path=root_path,
            worktree_paths=tuple(tree.root_path for tree in worktrees.arms),
            environment=captured_environment(runtime, tuple(config.env)) | secrets,
        )
        log = ExperimentLog(runtime, store, folder)
        log.record(
            events.ExperimentStarted(
                experiment_id=folder.experiment_id,
                project_path=root_path,
                config=config,
                base_commit=worktrees.base_commit,
                pin_digest=evaluators.manifest.digest,
                user_stamp=to_plain(worktrees.stamp),
                task_id=task_id,
                is_agents=bool(task_id and marks_of_agent(runtime)),
            )
        )
        attach(log)
    except BaseException:
        if worktrees is not None:
            worktrees.close(forget=True)
        shutil.rmtree(folder.root_path, ignore_errors=True)
        hold.release()
        raise
    return ExperimentContext(log, evaluators, worktrees), hold


def _sweep_unbegun(store: ExperimentStore, root_path: str, own_id: str) -> None:
    """Remove what beginnings left behind that were killed before their first event, in this repository that we hold."""
    for experiment_id in held_experiments(root_path):
        if experiment_id != own_id and store.is_unbegun(experiment_id):
            let_base_go(root_path, experiment_id)
            shutil.rmtree(store.folder(experiment_id).root_path, ignore_errors=True)


def attach(log: ExperimentLog) -> None:
    """Record that this process works on the experiment now."""
    myself = this_process()
    log.record(events.ControllerAttached(myself.pid, myself.started))


# --- going on


def reopen_experiment(
    runtime: Runtime,
    experiment_id: str,
    *,
    limits: ExperimentLimits | None = None,
    target: float | None = None,
    adopt_seconds: float = 0.0,
) -> tuple[ExperimentContext, Hold]:
    """Take an experiment up where its log ends.

    Args:
        runtime: clock, environment and state home.
        experiment_id: of the experiment.
        limits: new ones; what was used stays used.
        target: a new one.
        adopt_seconds: how long an agent that still lives may go on by itself before it is killed; what it makes is of
            the interrupted trial, so it is not judged.

    Raises:
        UsageError: there is no such experiment, or a limit is not a number.
        JournalBroken: its log cannot be trusted.
        StepIllegal: another controller holds the repository.
        WorkspaceFault: the repository is gone.
    """
    store = ExperimentStore(runtime.home)
    known = store.load(experiment_id)
    if faults := limit_faults(limits or known.config.limits):
        raise UsageError("; ".join(map(str, faults)), next_step="fix the limits and resume again")
    hold = hold_repository(runtime, known.project_path, experiment_id)
    try:
        state = store.load(experiment_id)  # its last holder may have written since
        folder = store.folder(experiment_id)
        log = ExperimentLog(runtime, store, folder, state)
        _end_leftovers(state, folder.scratch_path, adopt_seconds)
        worktrees = WorktreePair.open(folder.work_path)
        evaluators = open_evaluators(
            folder,
            state.config,
            project_path=state.project_path,
            worktree_paths=tuple(tree.root_path for tree in worktrees.arms),
            pin_digest=state.pin_digest,
        )
        context = ExperimentContext(log, evaluators, worktrees)
        clear_request(folder)
        _attach(context)
        _extend(log, limits, target)
        context.fail_interrupted()
    except BaseException:
        hold.release()
        raise
    return context, hold


def _attach(context: ExperimentContext) -> None:
    """Record who works on it now. What fills the disk may be what the last candidate left: it goes before the rest."""
    try:
        attach(context.log)
    except StorageFailed:
        context.worktrees.candidate.shed()
        attach(context.log)


def _end_leftovers(state: ExperimentState, scratch_path: str, adopt_seconds: float) -> None:
    """Wait for the agent that still lives, or end it; then whatever the commands left running."""
    if state.agent_pid:
        agent = processes.ProcessIdentity(state.agent_pid, state.agent_started)
        if adopt_seconds:
            processes.wait_for(agent, adopt_seconds)
        processes.end_tree(agent)
    if state.controller_pid:  # a controller that let go left none: a process there makes the next candidate
        processes.end_strays(scratch_path)


def _extend(log: ExperimentLog, limits: ExperimentLimits | None, target: float | None) -> None:
    """Record other limits or another target."""
    config = log.state.config
    if limits is not None or target is not None:
        changed = replace(
            config,
            limits=limits or config.limits,
            target=config.target if target is None else target,
        )
        log.record(events.LimitsExtended.of(log.state, changed, "resumed"))
