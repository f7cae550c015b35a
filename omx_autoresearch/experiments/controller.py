"""The controller of an experiment: a baseline, trials one after the other, one verified number, one patch.

    with AutoresearchController(root, config) as experiment:
        experiment.subscribe(print)
        experiment.establish_baseline()
        while experiment.state.phase == "ready":
            experiment.run_iteration(hypothesis, callback)
        experiment.verify_claim()
        print(experiment.final_patch().changed_paths)

It forms no hypothesis, drives no agent and schedules nothing; only `accept_final_patch` changes the user's checkout.
One thread works at a time; `cancel`, `interrupt` and `state` may be used from any thread.

Theory of operation. A controller holds the repository, so no other controller works there at the same time. Its results
are in the experiment's log (`context.ExperimentLog`); everything else can be made again from the log, so a kill at any
moment costs at most the trial under way. Each working call is one *operation* (`context.Operation`). It takes the lock,
works in the two worktrees (`context.ExperimentContext`), and at its end checks whether the experiment ends with it:
cancelled, asked to stop, or a budget spent. A trial (`trial.Trial`) records its own end and restores the worktrees;
it measures through `measurement.Measurement`, which starts every command with `runs.run_once`.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from omx_autoresearch.experiments.context import (
    SPENT,
    AutoresearchCancellation,
    ExperimentContext,
    Operation,
    RequestWatch,
    Subscriber,
    TrialAborted,
    clear_request,
    put_request,
)
from omx_autoresearch.experiments.final_patch import FinalPatch, apply_final_patch, final_patch_of
from omx_autoresearch.experiments.judge import events
from omx_autoresearch.experiments.judge.metrics import json_source
from omx_autoresearch.experiments.judge.state import (
    Claim,
    CompletedReason,
    ExperimentConfig,
    ExperimentHypothesis,
    ExperimentLimits,
    ExperimentState,
    Isolation,
    TrialRow,
    checked_hypothesis,
    next_experiment_phase,
    spent_budget,
)
from omx_autoresearch.experiments.measurement import measure_baseline, measure_claim
from omx_autoresearch.experiments.mission_link import link_experiment, require_linkable, teller
from omx_autoresearch.experiments.startup import begin_experiment, holds_of, reopen_experiment
from omx_autoresearch.experiments.store import ExperimentStore, Hold, Holder
from omx_autoresearch.experiments.trial import Callback, Trial
from omx_autoresearch.experiments.views import reopening_command
from omx_autoresearch.experiments.worktrees.acceptance import PatchAcceptance
from omx_autoresearch.experiments.worktrees.checkout import ignored_folders
from omx_autoresearch.foundation.errors import CommandFault, StepIllegal, UsageError, WorkspaceFault
from omx_autoresearch.journal.layout import Runtime, StateHome, state_home
from omx_autoresearch.system.git import common_dir

STRAGGLER_SECONDS = 5.0
"""The next trial waits this long for a callback that ignored its cancellation."""

AutoresearchControllerConfig = ExperimentConfig
"""The configuration, under the name that hosts of a controller look for."""


class AutoresearchController:
    """An experiment that this process works on.

    Args:
        root_path: the root of a clean checkout.
        config: of the experiment.
        runtime: clock, environment and state home; made from the next two arguments if it is missing.
        home_path: the state home; the user's own by default.
        environ: the owner's environment, which the commands get; that of this process by default.
        task_id: of the mission that the experiment belongs to.

    Attributes:
        cancellation: the signal that ends it; see `AutoresearchCancellation.cancel`.
        was_interrupted: `interrupt` was called, or an exception ended a trial: the driver of this controller
            begins no further trial.

    Raises:
        MissionInvalid: the configuration cannot be run; every fault is named.
        WorkspaceFault: the checkout is no clean root of a repository.
        StepIllegal: another controller holds the repository (the message says who), or the mission is a draft or over.
    """

    def __init__(  # noqa: PLR0913  # two are needed, the others say where the world stands
        self,
        root_path: str,
        config: ExperimentConfig,
        *,
        runtime: Runtime | None = None,
        home_path: str = "",
        environ: Mapping[str, str] | None = None,
        task_id: str = "",
    ) -> None:
        world = runtime or runtime_of(home_path, environ)
        if task_id:
            require_linkable(world, task_id)
        self._attach(*begin_experiment(world, str(root_path), config, task_id))
        if task_id:
            link_experiment(world, task_id, self.experiment_id, config.metric.name)

    @classmethod
    def resume(  # noqa: PLR0913  # one is needed
        cls,
        experiment_id: str,
        *,
        runtime: Runtime | None = None,
        home_path: str = "",
        environ: Mapping[str, str] | None = None,
        limits: ExperimentLimits | None = None,
        target: float | None = None,
        adopt_seconds: float = 0.0,
    ) -> Self:
        """Take an experiment up where its log ends, after whatever happened.

        Args:
            experiment_id: of the experiment.
            runtime: clock, environment and state home.
            home_path: as for a new one.
            environ: likewise; the commands keep the environment of the start.
            limits: new ones; what was used stays used, and an experiment that a budget had ended goes on.
            target: a new one.
            adopt_seconds: how long an agent that still lives may take to end by itself.

        Raises:
            UsageError: there is no such experiment.
            JournalBroken: its log cannot be trusted; file and line are named.
            StepIllegal: another controller holds the repository; the message says who.
        """
        world = runtime or runtime_of(home_path, environ)
        controller = cls.__new__(cls)
        controller._attach(  # noqa: SLF001  # of our own class
            *reopen_experiment(
                world, experiment_id, limits=limits, target=target, adopt_seconds=adopt_seconds
            )
        )
        return controller

    def _attach(self, context: ExperimentContext, hold: Hold) -> None:
        """Begin to listen for cancellations and requests."""
        self._context = context
        self._log = context.log
        self._hold = hold
        self._lock = threading.RLock()
        self._worker: threading.Thread | None = None
        self._trial: Trial | None = None
        self._is_stopping = self._is_closed = False
        self.was_interrupted = False
        self.cancellation = AutoresearchCancellation()
        self.cancellation.finish_with(self._finish_cancelled)
        if task_id := self.state.task_id:
            self._log.subscribe(teller(self._log.runtime, task_id))
        self._watch = RequestWatch(self._log.folder, self._follow)
        self._watch.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- looking

    @property
    def experiment_id(self) -> str:
        """Its name on disk."""
        return self._log.folder.experiment_id

    @property
    def state(self) -> ExperimentState:
        """The state as of the newest event."""
        return self._log.state

    def session_dir(self) -> str:
        """The folder with ``events.jsonl`` and everything else of the experiment."""
        return self._log.folder.root_path

    def subscribe(self, tell: Subscriber) -> Callable[[], None]:
        """Tell ``tell`` every event from now on, as a dictionary with its ``type``; returns what takes it back.

        It runs in the thread that recorded the event. One that fails disturbs nothing.
        """
        return self._log.subscribe(tell)

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event so far, as subscribers heard it: for a host that comes later, after a resume for instance."""
        return self._log.events()

    # --- working

    def set_command_sandbox(self, sandbox: Isolation) -> None:
        """Choose the sandbox of the commands: ``none``, ``auto`` or ``bubblewrap``; the baseline depends on it.

        Raises:
            StepIllegal: the baseline was measured already.
            UsageError: there is no such sandbox.
        """
        if sandbox not in ("none", "auto", "bubblewrap"):
            raise UsageError(f"there is no sandbox {sandbox!r}", next_step="choose none, auto or bubblewrap")
        if self.state.baseline is not None:
            raise StepIllegal(
                f"the baseline was already measured with the sandbox {self.state.config.sandbox!r}",
                next_step="start a new experiment with another sandbox",
            )
        context = self._context
        config = replace(context.config, sandbox=sandbox)
        self._log.record(events.LimitsExtended.of(self.state, config, "sandbox"))
        context.evaluators = replace(context.evaluators, config=context.config)

    def establish_baseline(self) -> ExperimentState:
        """Check the unchanged repository and measure it against itself.

        Raises:
            StepIllegal: it was done already, or the experiment is over.
            CommandFault: the repository does not pass its own check, or gives no metric; the experiment is completed
                with the reason ``failure``.
        """
        with self._operation():
            next_experiment_phase(self.state, "measure")  # before minutes are spent on it
            try:
                self._context.restore()
                self._log.record(measure_baseline(self._context))
                self._context.restore()
            except TrialAborted as end:
                if end.code == "cancelled":  # an interruption may be tried again; a cancel completes it below
                    return self.state
                self._complete(end.code if end.code in SPENT else "failure", end.reason)  # type: ignore[arg-type]
                if end.code in SPENT:
                    return self.state
                raise CommandFault(
                    f"the unchanged repository cannot be measured: {end.reason}",
                    next_step=self._start_again(end.reason),
                ) from None
        return self.state

    def _start_again(self, reason: str) -> str:
        """The command that starts anew after the base could not be measured."""
        config = self.state.config
        words = ["--metric", config.metric.name, "--measure", config.measure]
        words += ["--check", config.check] if config.check else []
        words += ["--direction", "higher"] if config.metric.direction == "higher" else []
        words += ["--unit", config.metric.unit] if config.metric.unit else []
        start = f"omx-autoresearch experiment start {shlex.join(words)}"
        source = json_source(config.metric.name)
        return f"{start} {source}" if source in reason else f"fix the commands, then: {start}{self._unseen()}"

    def _unseen(self) -> str:
        """Ignored folders of the checkout, which a worktree lacks unless the owner asks for them."""
        config = self.state.config
        asked = {path.rstrip("/") for path in (*config.keep, *config.link)}
        try:
            unseen = [path for path in ignored_folders(self.state.project_path) if path not in asked]
        except WorkspaceFault:
            return ""
        shown = ", ".join(unseen[:5])
        return f"; git ignores {shown}, so the worktrees lack it (--link PATH, or --setup)" if unseen else ""

    def run_iteration(self, hypothesis: ExperimentHypothesis, callback: Callback) -> TrialRow:
        """Try one hypothesis.

        Args:
            hypothesis: the idea to try.
            callback: makes the candidate in the workspace that it is given, and nowhere else; it runs in a thread of
                its own and must end soon after its cancellation was set. Whatever it raises fails the trial.

        Returns:
            The row of the table as it ended; a rejection and a failure are values.

        Raises:
            UsageError: the hypothesis cannot be recorded.
            StepIllegal: there is no baseline, the experiment is over, or an earlier callback still goes on.
            StorageFailed: the log cannot be written.
        """
        checked_hypothesis(hypothesis)
        with self._operation():
            self._require_ready()
            self._require_budget()
            self._trial = Trial(self._context, self._admitted(hypothesis), hypothesis)
            try:
                row = self._trial.run(callback)
            except BaseException:
                self.was_interrupted = True
                raise
            if row.status == "accepted":
                self._look_at_target(row)
        return row

    def verify_claim(self) -> Claim:
        """Measure base against final freshly: the one number that may be quoted. Kept until something is accepted.

        Raises:
            StepIllegal: there is no baseline, or nothing was accepted.
            CommandFault: it could not be measured; says why.
        """
        state = self.state
        if state.claim is not None and state.claim_commit == state.incumbent_commit:
            return state.claim
        is_over = state.phase == "completed"
        if state.baseline is not None and state.incumbent_commit == state.base_commit:
            verb = "report" if is_over else "status"
            raise StepIllegal(
                "nothing was accepted yet, so the final state is the base, and there is no gain to measure",
                next_step=f"omx-autoresearch experiment {verb} {self.experiment_id}",
            )
        with self._operation(is_limited=not is_over):
            if state.baseline is None:
                what = (
                    "the experiment ended before its base was measured"
                    if is_over
                    else "there is no baseline yet"
                )
                verb = "report" if is_over else "resume"
                raise StepIllegal(what, next_step=f"omx-autoresearch experiment {verb} {self.experiment_id}")
            try:
                return self._measured_claim()
            except TrialAborted as end:
                raise CommandFault(
                    f"base and final could not be measured against each other: {end.reason}",
                    next_step=f"omx-autoresearch experiment report {self.experiment_id}",
                ) from None

    def _measured_claim(self) -> Claim:
        context = self._context
        try:
            context.set_to(context.worktrees.incumbent, self.state.base_commit)
            context.set_to(context.worktrees.candidate, self.state.incumbent_commit)
            verified = measure_claim(context)
            self._log.record(verified)
        finally:
            context.restore()
        return verified.claim

    # --- ending

    def final_patch(self) -> FinalPatch:
        """The patch of all accepted steps so far; this changes nothing."""
        return final_patch_of(self.state, self._context.worktrees, self.session_dir())

    def accept_final_patch(self) -> PatchAcceptance:
        """Take the final state into the user's checkout: index and files, nothing committed.

        Refused, as a value, where HEAD, index or work tree are not what they were at the start.

        Raises:
            StepIllegal: it was already accepted into the checkout, or nothing was accepted.
            WorkspaceFault: git cannot read the checkout.
        """
        with self._operation(is_limited=False):
            done = apply_final_patch(self._context)
            if done.is_applied:
                self._complete("final_patch", done.warning)
        return done

    def complete(self, reason: CompletedReason = "explicit", detail: str = "") -> ExperimentState:
        """End the experiment; the first reason stands."""
        with self._operation(is_limited=False):
            self._complete(reason, detail)
        return self.state

    def interrupt(self) -> None:
        """End the step under way, as a person's Ctrl-C does; the experiment itself may go on. From any thread."""
        self.was_interrupted = True
        operation = self._context.under_way
        if operation is not None:
            operation.cancellation.trigger("cancelled")

    def close(self) -> None:
        """Let go of the repository. What is not completed can be resumed; its worktrees stay until then.

        A second call does nothing.

        Raises:
            StepIllegal: called by a subscriber or a callback while the controller is at work.
        """
        if self._context.under_way is not None and self._is_own_thread():
            raise StepIllegal("the controller is busy", next_step="close it when that call has ended")
        self._watch.end()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._log.measure_disk()
                self._log.record(events.ControllerDetached(self._log.usage()))
                if self.state.phase == "completed":
                    self._context.worktrees.close()
            finally:
                self._hold.release()

    # --- one operation at a time, and what ends the experiment with it

    @contextlib.contextmanager
    def _operation(self, *, is_limited: bool = True) -> Iterator[None]:
        """One call's work.

        Raises:
            StepIllegal: this thread is within another operation, or the controller is closed.
        """
        with self._lock:
            if self._context.under_way is not None:
                raise StepIllegal(
                    "the controller is busy", next_step="call it again when that call has ended"
                )
            if self._is_closed:
                raise StepIllegal(
                    "the controller is closed",
                    next_step=f"omx-autoresearch experiment resume {self.experiment_id}",
                )
            operation = Operation(self._log, self.cancellation, is_limited=is_limited)
            self._context.under_way, self._worker = operation, threading.current_thread()
            try:
                yield
            finally:
                operation.end()
                self._context.under_way = self._worker = None
            self._end_if_due(is_limited=is_limited)

    def _end_if_due(self, *, is_limited: bool) -> None:
        if self.cancellation.is_cancelled:
            self._complete("cancelled")
        elif self._is_stopping:
            self._complete("explicit", "asked to stop")
        elif is_limited and self.state.phase == "ready":
            spent = spent_budget(self.state.config.limits, self._log.usage())
            if spent is not None:
                self._complete(spent, SPENT[spent])

    def _complete(self, reason: CompletedReason, detail: str = "") -> None:
        """Record the end; the first reason stands."""
        if self.state.phase != "completed":
            self._log.measure_disk()
            usage = self._log.usage()
            self._log.record(events.step_taken(self.state, events.ExperimentCompleted, reason, detail, usage))
            clear_request(self._log.folder)

    def _is_own_thread(self) -> bool:
        """Called from within the operation: its thread, or its callback."""
        current = threading.current_thread()
        call = self._trial.call if self._trial is not None else None
        return current is self._worker or (call is not None and current is call.thread)

    def _finish_cancelled(self) -> None:
        """Wait for the rollback of the operation under way and for `completed`."""
        if self._is_own_thread():
            return
        with self._lock:
            if not self._is_closed:
                self._complete("cancelled")

    def _follow(self, request: str) -> None:
        """Do what another process asks for."""
        if request == "cancel":
            self.cancellation.cancel()
            return
        self._is_stopping = True
        if self._lock.acquire(blocking=False):
            try:
                if self._context.under_way is None and not self._is_closed:
                    self._complete("explicit", "asked to stop")
            finally:
                self._lock.release()

    # --- steps

    def _require_ready(self) -> None:
        """Let the next trial begin.

        Raises:
            StepIllegal: there is no baseline, the experiment is over, or a callback still goes on.
        """
        if self.state.running_row is not None:
            self._context.fail_interrupted()  # its end could not be recorded
        next_experiment_phase(self.state, "admit")
        call = self._trial.call if self._trial is not None else None
        if call is None or not call.straggles():
            return
        call.thread.join(STRAGGLER_SECONDS)
        if call.straggles():
            raise StepIllegal(
                "the callback of the previous trial is still running, although it was cancelled",
                next_step="end it, or close the controller and resume the experiment in another process",
            )
        self._context.restore()

    def _require_budget(self) -> None:
        if self.state.config.limits.disk_bytes:
            self._log.measure_disk()
        spent = spent_budget(self.state.config.limits, self._log.usage())
        if spent is not None:
            self._complete(spent, SPENT[spent])
            raise StepIllegal(
                f"{SPENT[spent]}; the experiment is completed", next_step=reopening_command(self.state)
            )

    def _admitted(self, hypothesis: ExperimentHypothesis) -> TrialRow:
        state = self.state
        row = TrialRow(
            iteration=state.next_iteration,
            hypothesis_id=hypothesis.id,
            description=hypothesis.description,
            direction=hypothesis.direction,
            checkpoint=state.incumbent_commit,
            started_at=self._log.runtime.now(),
            metadata=dict(hypothesis.metadata),
        )
        self._log.record(events.step_taken(state, events.TrialAdmitted, row, self._log.usage(trials=1)))
        return row

    def _look_at_target(self, row: TrialRow) -> None:
        """Once a candidate reaches the target, the fresh check decides whether it is reached."""
        config = self.state.config
        if config.target is None or row.metric is None or not _reaches(row.metric, config.target, config):
            return
        try:
            claim = self._measured_claim()
        except TrialAborted:
            return  # a budget or a cancellation; the end of the operation records it
        if _reaches(claim.final, config.target, config) and self.state.claim_held_out != "failed":
            self._complete("target_reached", f"{config.metric.name} {claim.final:g}")


def _reaches(value: float, target: float, config: ExperimentConfig) -> bool:
    return value <= target if config.metric.direction == "lower" else value >= target


def runtime_of(home_path: str = "", environ: Mapping[str, str] | None = None) -> Runtime:
    """The world as another program sees it."""
    runtime = Runtime.of_process(home_path=home_path)
    if environ is None:
        return runtime
    return replace(runtime, environ=dict(environ), home=StateHome(home_path or state_home(environ)))


class ControllerHandle:
    """A shared controller; ``with handle as controller`` gives one holder at a time the use of it.

    Args:
        controller: that is shared.
    """

    def __init__(self, controller: AutoresearchController) -> None:
        self._controller = controller
        self._lock = threading.RLock()

    def __enter__(self) -> AutoresearchController:
        self._lock.acquire()
        return self._controller

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @property
    def state(self) -> ExperimentState:
        """The state of the experiment; does not wait."""
        return self._controller.state

    @property
    def cancellation(self) -> AutoresearchCancellation:
        """The signal that ends it; available without waiting."""
        return self._controller.cancellation


def new_controller_handle(controller: AutoresearchController) -> ControllerHandle:
    """A handle that can be attached to an agent; the experiment does not begin by it."""
    return ControllerHandle(controller)


CANCEL_WAIT_SECONDS = 60.0
"""A cancel waits this long for the controller's rollback."""

_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Requested:
    """The result of a request to stop or cancel.

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
    """The controller that works on an experiment now, or None.

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
        StepIllegal: no controller works on it, and the repository is held for another experiment.
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
    """No controller is at work: resume it, which restores what was interrupted, and complete it."""
    with AutoresearchController.resume(experiment_id, runtime=runtime) as controller:
        return Requested(controller.complete(reason), None)
