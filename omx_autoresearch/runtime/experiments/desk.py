"""What a controller keeps in order while it works: one stretch at a time, who may end it, how a trial is concluded.

A *stretch* is what one call of the controller does. It has a cancellation of its own, which follows the experiment's;
the wall clock and an interruption end the stretch, a cancel ends the experiment. At the end of a stretch the desk looks
whether the experiment ends with it: cancelled, asked to stop, or a budget spent.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from omx_autoresearch.core.experiment_budget import spent_budget
from omx_autoresearch.core.experiment_events import ControllerDetached, ExperimentCompleted
from omx_autoresearch.core.trial_events import AgentStarted, TrialAccepted, TrialFailed, TrialRejected
from omx_autoresearch.errors import AutoresearchError, StepIllegal
from omx_autoresearch.runtime.experiments.cancellation import AutoresearchCancellation
from omx_autoresearch.runtime.experiments.requests import RequestWatch, clear_request
from omx_autoresearch.runtime.experiments.resuming import fail_interrupted
from omx_autoresearch.runtime.experiments.steps import SAID, Steps
from omx_autoresearch.runtime.trials import teller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omx_autoresearch.core.experiments import CompletedReason, TrialRow
    from omx_autoresearch.runtime.experiments.beginning import Opened
    from omx_autoresearch.runtime.experiments.trials import Trial
    from omx_autoresearch.system.processes import ProcessIdentity

STRAGGLER_SECONDS = 5.0
"""How long a next trial waits for a callback that did not heed its cancellation."""


class Desk:
    """The work of one controller on one experiment."""

    def __init__(self, opened: Opened) -> None:
        self.site = opened.site
        self.log = opened.site.log
        self.cancellation = AutoresearchCancellation()
        self.cancellation.finish_with(self._finish_cancelled)
        self._hold = opened.hold
        self._lock = threading.RLock()
        self._worker: threading.Thread | None = None
        self._steps: Steps | None = None
        self._trial: Trial | None = None
        self._is_stopping = False
        self.was_interrupted = False
        self._is_closed = False
        if task_id := self.log.state.task_id:
            self.log.subscribe(teller(self.log.runtime, task_id))
        self._watch = RequestWatch(self.log.folder, self._follow)
        self._watch.start()

    # --- stretches

    @contextlib.contextmanager
    def stretch(self, *, is_limited: bool = True) -> Iterator[Steps]:
        """The limits of one call's work.

        Raises:
            StepIllegal: this thread is within another stretch, or the controller is closed.
        """
        with self._lock:
            if self._steps is not None:
                raise StepIllegal(
                    "the controller is at work on something else", next_step="call it after that"
                )
            if self._is_closed:
                raise StepIllegal(
                    "the controller is closed",
                    next_step=f"omx-autoresearch experiment resume {self.log.folder.experiment_id}",
                )
            steps = Steps(self.log, AutoresearchCancellation(self.cancellation), is_limited=is_limited)
            self._steps, self._worker = steps, threading.current_thread()
            steps.begin()
            try:
                yield steps
            finally:
                steps.end()
                self._steps = self._worker = None
            self._end_if_due(is_limited=is_limited)

    def _end_if_due(self, *, is_limited: bool) -> None:
        if self.cancellation.is_cancelled:
            self.complete("cancelled")
        elif self._is_stopping:
            self.complete("explicit", "asked to stop")
        elif is_limited and self.log.state.phase == "ready":
            spent = spent_budget(self.log.state.config.limits, self.log.usage())
            if spent is not None:
                self.complete(spent, SAID[spent])

    def interrupt(self) -> None:
        """End the stretch under way."""
        self.was_interrupted = True
        steps = self._steps
        if steps is not None:
            steps.cancellation.trigger("cancelled")

    def handle_of(self, steps: Steps) -> AutoresearchCancellation:
        """A callback's own cancellation, which follows the stretch's."""
        return AutoresearchCancellation(steps.cancellation)

    # --- trials

    def require_ready(self) -> None:
        """Nothing where the next trial may begin.

        Raises:
            StepIllegal: there is no baseline, the experiment is over, or a callback still goes on.
        """
        if self.log.state.running_row is not None:
            fail_interrupted(self.site)  # its end could not be recorded
        state = self.log.state
        if state.phase == "started":
            raise StepIllegal(
                "there is no baseline yet",
                next_step=f"omx-autoresearch experiment resume {state.experiment_id}",
            )
        if state.phase == "completed":
            raise StepIllegal(
                f"the experiment is completed: {state.completed_reason}",
                next_step=f"omx-autoresearch experiment report {state.experiment_id}",
            )
        call = self._trial.call if self._trial is not None else None
        if call is None or not call.straggles():
            return
        call.thread.join(STRAGGLER_SECONDS)
        if call.straggles():
            raise StepIllegal(
                "the callback of the trial before still works in the workspace, in spite of its cancellation",
                next_step="end it, or close the controller and resume the experiment in another process",
            )
        self.site.restore()

    def conclude(self, trial: Trial, play: Callable[[], TrialRow]) -> TrialRow:
        """Play a trial and record its end, whatever happens: accepted and kept, or restored.

        Raises:
            BaseException: what interrupted the thread; the trial is failed and restored then.
        """
        self._trial = trial
        try:
            row = play()
        except BaseException as interruption:
            self.interrupt()
            is_fault = isinstance(interruption, Exception)
            code = "controller_failed" if is_fault else "cancelled"
            self._end(trial.ended("failed", code, f"{type(interruption).__name__}: {interruption}"))
            raise
        if row.status == "accepted":
            return self._accept(trial, row)
        return self._end(row)

    def _accept(self, trial: Trial, row: TrialRow) -> TrialRow:
        """The commit is made; with this event it is the incumbent."""
        try:
            self.log.record(TrialAccepted(row, self.log.usage()))
        except AutoresearchError as fault:
            return self._end(trial.ended("failed", "storage_failed", fault.message))
        self.site.restore()
        return row

    def _end(self, row: TrialRow) -> TrialRow:
        """Restore first: the event says that it was done."""
        try:
            self.site.restore()
        finally:
            usage = self.log.usage()
            event = TrialRejected(row, usage) if row.status == "rejected" else TrialFailed(row, usage)
            self.log.record(event)
        return row

    def note_agent(self, process: ProcessIdentity) -> None:
        """A process works on the trial under way."""
        if self.log.state.running_row is not None:
            self.log.record(AgentStarted(process.pid, process.started))

    # --- ends

    def complete(self, reason: CompletedReason, detail: str = "") -> None:
        """Record the end; the first reason stands."""
        if self.log.state.phase != "completed":
            self.log.measure_disk()
            self.log.record(ExperimentCompleted(reason, detail, self.log.usage()))
            clear_request(self.log.folder)

    def complete_for(self, code: str, detail: str) -> None:
        """The end of an experiment whose baseline could not be measured."""
        if code == "cancelled":
            return  # an interruption may be tried again; a cancel is seen at the end of the stretch
        reason: CompletedReason = code if code in SAID else "failure"  # type: ignore[assignment]
        self.complete(reason, detail)

    def close(self) -> None:
        """Let go; a second call does nothing.

        Raises:
            StepIllegal: called from within a stretch, by a subscriber or a callback.
        """
        if self._steps is not None and self._is_own_thread():
            raise StepIllegal("the controller is at work", next_step="close it after that")
        self._watch.end()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self.log.measure_disk()
                self.log.record(ControllerDetached(self.log.usage()))
                if self.log.state.phase == "completed":
                    self.site.workspaces.close()
            finally:
                self._hold.release()

    def _is_own_thread(self) -> bool:
        """Called from within the stretch: its thread, its callback, or the one that tells of requests while closing."""
        current = threading.current_thread()
        call = self._trial.call if self._trial is not None else None
        return current is self._worker or (call is not None and current is call.thread)

    def _finish_cancelled(self) -> None:
        """Wait for the rollback of the stretch under way and for `completed`."""
        if self._is_own_thread():
            return
        with self._lock:
            if not self._is_closed:
                self.complete("cancelled")

    def _follow(self, request: str) -> None:
        """Do what another process asks for."""
        if request == "cancel":
            self.cancellation.cancel()
            return
        self._is_stopping = True
        if self._lock.acquire(blocking=False):
            try:
                if self._steps is None and not self._is_closed:
                    self.complete("explicit", "asked to stop")
            finally:
                self._lock.release()
