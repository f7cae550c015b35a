"""Ending an experiment from another process: by its controller where one is at work, directly where none is."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from omx_autoresearch.experiments.cancellation import put_request
from omx_autoresearch.experiments.controller import AutoresearchController
from omx_autoresearch.experiments.startup import holds_of
from omx_autoresearch.experiments.store import ExperimentStore, Holder
from omx_autoresearch.foundation.errors import StepIllegal
from omx_autoresearch.system.git import common_dir

if TYPE_CHECKING:
    from omx_autoresearch.experiments.judge.state import CompletedReason, ExperimentState
    from omx_autoresearch.journal.layout import Runtime

CANCEL_WAIT_SECONDS = 60.0
"""How long a cancel waits for the controller's rollback."""

_POLL_SECONDS = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Requested:
    """What became of a request.

    Attributes:
        state: of the experiment now.
        holder: the controller that was asked; None where none was at work and it was done directly.
    """

    state: ExperimentState
    holder: Holder | None

    @property
    def is_done(self) -> bool:
        """The experiment is completed."""
        return self.state.phase == "completed"


def controller_at_work(runtime: Runtime, experiment_id: str) -> Holder | None:
    """Who works on an experiment now; None where nobody does.

    Raises:
        UsageError: there is no such experiment.
    """
    state = ExperimentStore(runtime.home).load(experiment_id)
    shared = common_dir(state.project_path)
    holder = holds_of(runtime).holder_of(shared) if shared is not None else None
    return holder if holder is not None and holder.experiment_id == experiment_id else None


def request_stop(runtime: Runtime, experiment_id: str) -> Requested:
    """Let the trial under way end, then complete; returns at once.

    Raises:
        UsageError: there is no such experiment.
        StepIllegal: nobody works on it, and the repository is held for another experiment.
    """
    return _request(runtime, experiment_id, "stop", "explicit")


def request_cancel(
    runtime: Runtime, experiment_id: str, *, wait_seconds: float = CANCEL_WAIT_SECONDS
) -> Requested:
    """End what is under way now, roll it back, and complete; waits for that.

    Raises: as `request_stop`.
    """
    asked = _request(runtime, experiment_id, "cancel", "cancelled")
    if asked.holder is None:
        return asked
    store = ExperimentStore(runtime.home)
    give_up_at = time.monotonic() + wait_seconds
    while time.monotonic() < give_up_at:
        state = store.load(experiment_id)
        if state.phase == "completed":
            return Requested(state, asked.holder)
        if controller_at_work(runtime, experiment_id) is None:
            return _directly(runtime, experiment_id, "cancelled")  # it was killed before it could follow
        time.sleep(_POLL_SECONDS)
    return Requested(store.load(experiment_id), asked.holder)


def _request(runtime: Runtime, experiment_id: str, request: str, reason: CompletedReason) -> Requested:
    store = ExperimentStore(runtime.home)
    state = store.load(experiment_id)
    if state.phase == "completed":
        return Requested(state, None)
    holder = controller_at_work(runtime, experiment_id)
    if holder is None:
        try:
            return _directly(runtime, experiment_id, reason)
        except StepIllegal:
            holder = controller_at_work(runtime, experiment_id)
            if holder is None:
                raise
    put_request(store.folder(experiment_id), request)
    return Requested(state, holder)


def _directly(runtime: Runtime, experiment_id: str, reason: CompletedReason) -> Requested:
    """Nobody is at work: take it up, which restores what was interrupted, and complete it."""
    with AutoresearchController.resume(experiment_id, runtime=runtime) as controller:
        return Requested(controller.complete(reason), None)
