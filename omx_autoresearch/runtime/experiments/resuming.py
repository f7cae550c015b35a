"""Going on after anything: whoever still works there is gone, the unfinished trial is failed, both worktrees restored.

The log alone says what was reached. A commit that was made without its `accepted` event is not taken; a trial without
a terminal event is `interrupted`; its number stays used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omx_autoresearch.core.experiment_budget import limit_faults
from omx_autoresearch.core.experiment_events import LimitsExtended
from omx_autoresearch.core.trial_events import TrialFailed
from omx_autoresearch.core.values import replace
from omx_autoresearch.errors import StorageFailed, UsageError
from omx_autoresearch.runtime.experiments.beginning import Opened, attach, hold_repository
from omx_autoresearch.runtime.experiments.evaluators import open_bench
from omx_autoresearch.runtime.experiments.recording import ExperimentLog
from omx_autoresearch.runtime.experiments.requests import clear_request
from omx_autoresearch.runtime.experiments.site import Site
from omx_autoresearch.storage.experiments import ExperimentStore
from omx_autoresearch.system.processes import ProcessIdentity, wait_for
from omx_autoresearch.system.strays import end_strays, end_tree
from omx_autoresearch.system.worktrees import Workspaces

if TYPE_CHECKING:
    from omx_autoresearch.core.experiments import ExperimentLimits, ExperimentState
    from omx_autoresearch.runtime.context import Runtime


def reopen_experiment(
    runtime: Runtime,
    experiment_id: str,
    *,
    limits: ExperimentLimits | None = None,
    target: float | None = None,
    adopt_seconds: float = 0.0,
) -> Opened:
    """Take an experiment up where its log ends.

    Args:
        runtime: the world.
        experiment_id: which one.
        limits: new ones; what was used stays used.
        target: a new one.
        adopt_seconds: how long an agent that still lives may go on by itself before it is killed; what it makes is of
            the interrupted trial, so it is not judged.

    Raises:
        UsageError: there is no such experiment, or a limit is no number.
        JournalBroken: its log cannot be believed.
        StepIllegal: another controller holds the repository.
        WorkspaceFault: the repository is gone.
    """
    store = ExperimentStore(runtime.home)
    known = store.load(experiment_id)
    if faults := limit_faults(limits or known.config.limits):
        raise UsageError("; ".join(faults), next_step="mend the limits and resume again")
    hold = hold_repository(runtime, known.project_path, experiment_id)
    try:
        state = store.load(experiment_id)  # whoever held it may have written since
        folder = store.folder(experiment_id)
        log = ExperimentLog(runtime, store, folder, state)
        _end_leftovers(state, folder.scratch_path, adopt_seconds)
        workspaces = Workspaces.open(folder.work_path)
        bench = open_bench(
            folder,
            state.config,
            project_path=state.project_path,
            worktree_paths=(workspaces.incumbent_path, workspaces.candidate_path),
            pin_digest=state.pin_digest,
        )
        site = Site(log, bench, workspaces)
        clear_request(folder)
        _attach(site)
        _extend(log, limits, target)
        fail_interrupted(site)
    except BaseException:
        hold.release()
        raise
    return Opened(site, hold)


def _attach(site: Site) -> None:
    """Record who works on it now. What fills the disk may be what the last candidate left: it goes before the rest."""
    try:
        attach(site.log)
    except StorageFailed:
        site.workspaces.shed(site.workspaces.candidate_path)
        attach(site.log)


def _end_leftovers(state: ExperimentState, scratch_path: str, adopt_seconds: float) -> None:
    """Wait for the agent that still lives, or end it; then whatever the commands left running."""
    if state.agent_pid:
        agent = ProcessIdentity(state.agent_pid, state.agent_started)
        if adopt_seconds:
            wait_for(agent, adopt_seconds)
        end_tree(agent)
    if state.controller_pid:  # one that let go leaves nobody: who works there now makes the next candidate
        end_strays(scratch_path)


def fail_interrupted(site: Site) -> None:
    """Restore both worktrees; the trial that has no end, if there is one, ends as interrupted."""
    if site.log.state.phase == "completed":
        return
    site.restore()
    row = site.log.state.running_row
    if row is None:
        return
    ended = replace(
        row,
        status="failed",
        reason_code="interrupted",
        reason="its controller was killed; the checkpoint was restored",
        ended_at=site.log.runtime.now(),
    )
    site.log.record(TrialFailed(ended, site.log.usage()))


def _extend(log: ExperimentLog, limits: ExperimentLimits | None, target: float | None) -> None:
    """Record other limits or another target."""
    config = log.state.config
    if limits is not None or target is not None:
        changed = replace(
            config,
            limits=limits or config.limits,
            target=config.target if target is None else target,
        )
        log.record(LimitsExtended(changed, "resumed"))
