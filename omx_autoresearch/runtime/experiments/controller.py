"""The controller of an experiment: a baseline, trials one after the other, one verified number, one patch.

    with AutoresearchController(root, config) as experiment:
        experiment.subscribe(print)
        experiment.establish_baseline()
        while experiment.state.phase == "ready":
            experiment.run_iteration(hypothesis, callback)
        experiment.verify_claim()
        print(experiment.final_patch().changed_paths)

It forms no hypothesis, drives no agent and schedules nothing; only `accept_final_patch` changes the user's checkout.
One thread works at a time; `cancel`, `interrupt` and `state` may be used from any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omx_autoresearch.core.experiment_budget import spent_budget
from omx_autoresearch.core.experiment_events import LimitsExtended
from omx_autoresearch.core.experiments import ExperimentConfig, TrialRow, checked_hypothesis
from omx_autoresearch.core.trial_events import TrialAdmitted
from omx_autoresearch.core.values import replace
from omx_autoresearch.errors import CommandFault, StepIllegal, UsageError, WorkspaceFault
from omx_autoresearch.runtime.context import Runtime
from omx_autoresearch.runtime.experiments.beginning import begin_experiment
from omx_autoresearch.runtime.experiments.calibrating import measure_baseline
from omx_autoresearch.runtime.experiments.claims import measure_claim
from omx_autoresearch.runtime.experiments.desk import Desk
from omx_autoresearch.runtime.experiments.ending import TrialEnded
from omx_autoresearch.runtime.experiments.patching import apply_final_patch, write_final_patch
from omx_autoresearch.runtime.experiments.resuming import reopen_experiment
from omx_autoresearch.runtime.experiments.steps import SAID
from omx_autoresearch.runtime.experiments.trials import Trial
from omx_autoresearch.runtime.experiments.workspaces import ExperimentWorkspace
from omx_autoresearch.runtime.trials import link_experiment, require_linkable
from omx_autoresearch.storage.layout import StateHome, state_home
from omx_autoresearch.system.processes import identify
from omx_autoresearch.system.user_repository import ignored_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import Any, Self

    from omx_autoresearch.core.acceptance import Claim
    from omx_autoresearch.core.experiments import (
        CompletedReason,
        ExperimentHypothesis,
        ExperimentLimits,
        ExperimentState,
        Isolation,
    )
    from omx_autoresearch.runtime.experiments.callbacks import Callback
    from omx_autoresearch.runtime.experiments.cancellation import AutoresearchCancellation
    from omx_autoresearch.runtime.experiments.patching import FinalPatch, PatchAcceptance
    from omx_autoresearch.runtime.experiments.recording import Subscriber
    from omx_autoresearch.runtime.experiments.steps import Steps

AutoresearchControllerConfig = ExperimentConfig
"""The configuration, under the name that hosts of a controller look for."""


class AutoresearchController:
    """An experiment that this process works on.

    Args:
        root_path: the root of a clean checkout.
        config: what is optimized.
        runtime: the world; made from the next two where none is given.
        home_path: the state home; the user's own by default.
        environ: the owner's environment, which the commands get; the process's by default.
        task_id: of the mission that the experiment belongs to.

    Raises:
        MissionInvalid: the configuration cannot be run; every fault is named.
        WorkspaceFault: the checkout is no clean root of a repository.
        StepIllegal: another controller holds the repository (the message says who), or the mission is a draft or over.
    """

    _desk: Desk

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
        self._desk = Desk(begin_experiment(world, str(root_path), config, task_id))
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
            experiment_id: which one.
            runtime: the world.
            home_path: as for a new one.
            environ: likewise; the commands keep the environment of the start.
            limits: new ones; what was used stays used, and an experiment that a budget had ended goes on.
            target: a new one.
            adopt_seconds: how long an agent that still lives may take to end by itself.

        Raises:
            UsageError: there is no such experiment.
            JournalBroken: its log cannot be believed; file and line are named.
            StepIllegal: another controller holds the repository; the message says who.
        """
        world = runtime or runtime_of(home_path, environ)
        opened = reopen_experiment(
            world, experiment_id, limits=limits, target=target, adopt_seconds=adopt_seconds
        )
        controller = cls.__new__(cls)
        controller._desk = Desk(opened)  # noqa: SLF001  # of our own class
        return controller

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- looking

    @property
    def experiment_id(self) -> str:
        """Its name on disk."""
        return self._desk.log.folder.experiment_id

    @property
    def state(self) -> ExperimentState:
        """Where it stands, as of the newest event."""
        return self._desk.log.state

    @property
    def cancellation(self) -> AutoresearchCancellation:
        """The signal that ends it; see `AutoresearchCancellation.cancel`."""
        return self._desk.cancellation

    def session_dir(self) -> str:
        """The folder with ``events.jsonl`` and everything else of the experiment."""
        return self._desk.log.folder.root_path

    def subscribe(self, tell: Subscriber) -> Callable[[], None]:
        """Tell ``tell`` every event from now on, as a dictionary with its ``type``; returns what takes it back.

        It runs in the thread that recorded the event. One that fails disturbs nothing.
        """
        return self._desk.log.subscribe(tell)

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event so far, as subscribers heard it: for a host that comes later, after a resume for instance."""
        return self._desk.log.events()

    # --- working

    def set_command_sandbox(self, sandbox: Isolation) -> None:
        """What isolates the commands: ``none``, ``auto`` or ``bubblewrap``; before the baseline, which depends on it.

        Raises:
            StepIllegal: the baseline was measured already.
            UsageError: there is no such sandbox.
        """
        if sandbox not in ("none", "auto", "bubblewrap"):
            raise UsageError(f"there is no sandbox {sandbox!r}", next_step="none, auto or bubblewrap")
        site = self._desk.site
        if self.state.baseline is not None:
            raise StepIllegal(
                f"the baseline was measured under {self.state.config.sandbox!r}",
                next_step="start a new experiment with another sandbox",
            )
        site.log.record(LimitsExtended(replace(site.config, sandbox=sandbox), "sandbox"))
        site.bench = replace(site.bench, config=site.config)

    def establish_baseline(self) -> ExperimentState:
        """Check the unchanged repository and measure it against itself.

        Raises:
            StepIllegal: it was done already, or the experiment is over.
            CommandFault: the repository does not pass its own check, or gives no metric; the experiment is completed
                with the reason ``failure``.
        """
        with self._desk.stretch() as steps:
            if self.state.phase != "started":
                raise StepIllegal(
                    f"the baseline of {self.experiment_id} cannot be measured: the experiment is {self.state.phase}",
                    next_step=f"omx-autoresearch experiment status {self.experiment_id}",
                )
            try:
                self._desk.site.restore()
                self._desk.log.record(measure_baseline(self._desk.site, steps))
                self._desk.site.restore()
            except TrialEnded as end:
                self._desk.complete_for(end.code, end.reason)
                if end.code == "cancelled" or end.code in SAID:
                    return self.state
                raise CommandFault(
                    f"the unchanged repository cannot be measured: {end.reason}",
                    next_step=f"mend the commands, then start a new experiment{self._unseen()}",
                ) from None
        return self.state

    def _unseen(self) -> str:
        """What of the checkout the commands may have missed: an ignored path is in no worktree unless asked for."""
        config = self.state.config
        asked = {path.rstrip("/") for path in (*config.keep, *config.link)}
        try:
            unseen = [path for path in ignored_folders(self.state.project_path) if path not in asked]
        except WorkspaceFault:
            return ""
        shown = ", ".join(unseen[:5])
        return f"; ignored by git, so in no worktree: {shown} (--link PATH, or --setup)" if unseen else ""

    def run_iteration(self, hypothesis: ExperimentHypothesis, callback: Callback) -> TrialRow:
        """Try one hypothesis.

        Args:
            hypothesis: what is to be tried.
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
        with self._desk.stretch() as steps:
            self._desk.require_ready()
            self._require_budget()
            row = self._admitted(hypothesis)
            trial = Trial(self._desk.site, steps, row)
            workspace = ExperimentWorkspace(
                path=self._desk.site.workspaces.candidate_path,
                iteration=row.iteration,
                hypothesis=hypothesis,
                cancellation=self._desk.handle_of(steps),
                note_process=self._note_process,
            )
            row = self._desk.conclude(trial, lambda: trial.play(callback, workspace))
            if row.status == "accepted":
                self._look_at_target(row, steps)
        return row

    def verify_claim(self) -> Claim:
        """Measure base against final freshly: the one number that may be quoted. Kept until something is accepted.

        Raises:
            StepIllegal: there is no baseline.
            CommandFault: it could not be measured; says why.
        """
        state = self.state
        if state.claim is not None and state.claim_commit == state.incumbent_commit:
            return state.claim
        is_over = state.phase == "completed"
        with self._desk.stretch(is_limited=not is_over) as steps:
            if state.baseline is None:
                raise StepIllegal(
                    "there is no baseline yet",
                    next_step=f"omx-autoresearch experiment resume {self.experiment_id}",
                )
            try:
                return self._measured_claim(steps)
            except TrialEnded as end:
                raise CommandFault(
                    f"base and final could not be measured against each other: {end.reason}",
                    next_step=f"omx-autoresearch experiment report {self.experiment_id}",
                ) from None

    def _measured_claim(self, steps: Steps) -> Claim:
        site = self._desk.site
        try:
            site.set_to(site.workspaces.incumbent_path, self.state.base_commit)
            site.set_to(site.workspaces.candidate_path, self.state.incumbent_commit)
            verified = measure_claim(site, steps)
            site.log.record(verified)
        finally:
            site.restore()
        return verified.claim

    # --- ending

    def final_patch(self) -> FinalPatch:
        """What was reached so far, whole; nothing is changed by looking."""
        return write_final_patch(self._desk.site)

    def accept_final_patch(self) -> PatchAcceptance:
        """Take the final state into the user's checkout: index and files, nothing committed.

        Refused, as a value, where HEAD, index or work tree are not what they were at the start.

        Raises:
            StepIllegal: it was taken over already, or nothing was accepted.
            WorkspaceFault: git cannot read the checkout.
        """
        with self._desk.stretch(is_limited=False):
            done = apply_final_patch(self._desk.site)
            if done.is_applied:
                self._desk.complete("final_patch", done.warning)
        return done

    def complete(self, reason: CompletedReason = "explicit", detail: str = "") -> ExperimentState:
        """End the experiment; the first reason stands."""
        with self._desk.stretch(is_limited=False):
            self._desk.complete(reason, detail)
        return self.state

    @property
    def was_interrupted(self) -> bool:
        """`interrupt` was called: whoever drives this controller begins no further trial."""
        return self._desk.was_interrupted

    def interrupt(self) -> None:
        """End the step under way, as a person's Ctrl-C does; the experiment itself may go on. From any thread."""
        self._desk.interrupt()

    def close(self) -> None:
        """Let go of the repository. What is not completed can be resumed; its worktrees stay until then."""
        self._desk.close()

    # --- steps

    def _require_budget(self) -> None:
        if self.state.config.limits.disk_bytes:
            self._desk.log.measure_disk()
        spent = spent_budget(self.state.config.limits, self._desk.log.usage())
        if spent is not None:
            self._desk.complete(spent, SAID[spent])
            raise StepIllegal(
                f"{SAID[spent]}; the experiment is completed",
                next_step=f"omx-autoresearch experiment resume {self.experiment_id} with more budget",
            )

    def _admitted(self, hypothesis: ExperimentHypothesis) -> TrialRow:
        state = self.state
        row = TrialRow(
            iteration=state.rows[-1].iteration + 1 if state.rows else 1,
            hypothesis_id=hypothesis.id,
            description=hypothesis.description,
            direction=hypothesis.direction,
            checkpoint=state.incumbent_commit,
            started_at=self._desk.log.runtime.now(),
            metadata=dict(hypothesis.metadata),
        )
        self._desk.log.record(TrialAdmitted(row, self._desk.log.usage(trials=1)))
        return row

    def _note_process(self, pid: int) -> None:
        identity = identify(pid)
        if identity is not None:
            self._desk.note_agent(identity)

    def _look_at_target(self, row: TrialRow, steps: Steps) -> None:
        """Once a candidate reaches the target, the fresh check decides whether it is reached."""
        config = self.state.config
        if config.target is None or row.metric is None or not _reaches(row.metric, config.target, config):
            return
        try:
            claim = self._measured_claim(steps)
        except TrialEnded:
            return  # a budget or a cancellation; it is told at the end of the stretch
        if _reaches(claim.final, config.target, config) and self.state.claim_held_out != "failed":
            self._desk.complete("target_reached", f"{config.metric.name} {claim.final:g}")


def _reaches(value: float, target: float, config: ExperimentConfig) -> bool:
    return value <= target if config.metric.direction == "lower" else value >= target


def runtime_of(home_path: str = "", environ: Mapping[str, str] | None = None) -> Runtime:
    """The world as another program sees it."""
    runtime = Runtime.of_process(home_path=home_path)
    if environ is None:
        return runtime
    return replace(runtime, environ=dict(environ), home=StateHome(home_path or state_home(environ)))
