"""The runs of an experiment in their order: set-ups, warm-ups, checks, pairs; each recorded, each within the budgets.

A run that did not do what it should ends the trial, with a reason that tells whose fault it was: what fails in the
incumbent's worktree is none of the candidate's.
"""

from __future__ import annotations

import ctypes
import marshal
import resource
from typing import TYPE_CHECKING, Literal, NamedTuple

from omx_autoresearch.core.experiment_events import RunMeasured
from omx_autoresearch.core.values import replace
from omx_autoresearch.runtime.experiments.ending import failed, rejected
from omx_autoresearch.runtime.experiments.runs import check_once, held_out_once, measure_once, setup_once
from omx_autoresearch.system.user_repository import named

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from omx_autoresearch.runtime.experiments.evaluators import Bench
    from omx_autoresearch.runtime.experiments.recording import ExperimentLog
    from omx_autoresearch.runtime.experiments.runs import Run
    from omx_autoresearch.runtime.experiments.steps import Steps
    from omx_autoresearch.runtime.experiments.watching import Watch

    RunOnce = Callable[[Bench, str, str, Any], Run]

LOADED = (ctypes, marshal, resource)
"""Loaded once here, or the process that watches a run would load them anew for each: 1.3 ms of 1.9."""

Arm = Literal["incumbent", "candidate"]
ARMS: tuple[Arm, Arm] = ("incumbent", "candidate")
CANDIDATE_FAULTS = {"check": "check_failed", "held_out": "held_out_failed"}
"""Faults of a check that say something about the candidate: it is rejected, not failed."""


class Place(NamedTuple):
    """Where in the experiment a run stands.

    Attributes:
        iteration: the trial; 0 at the baseline, -1 for the claim.
        stage: ``calibration trial reverification claim``.
    """

    iteration: int
    stage: str


class PairRuns(NamedTuple):
    """One measured pair."""

    incumbent: Run
    candidate: Run
    is_candidate_first: bool


class Measuring:
    """Runs commands for one stretch of work.

    Args:
        bench: what judges.
        log: that every run is recorded in.
        steps: the budgets and the cancellation.
        place: where the runs stand.
        paths: the worktree of each arm.
        watch: sees that the candidate's runs leave the other worktree alone and keep no answers; or None.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # what every run needs, and one that some do without
        self,
        bench: Bench,
        log: ExperimentLog,
        steps: Steps,
        place: Place,
        paths: dict[Arm, str],
        watch: Watch | None = None,
    ) -> None:
        seconds = bench.config.check_timeout_seconds or bench.config.measure_timeout_seconds
        self._bench = bench
        self._check_bench = replace(bench, config=replace(bench.config, measure_timeout_seconds=seconds))
        self._log = log
        self._steps = steps
        self._place = place
        self._watch = watch
        self.paths = paths

    def set_up(self, arm: Arm) -> None:
        """Run the set-up command in the arm's worktree; nothing where there is none."""
        if self._bench.config.setup:
            self._run(setup_once, "setup", arm)
        if self._watch:
            self._watch.settle(self.paths[arm])

    def warm_up(self, arm: Arm) -> None:
        """Measure the arm as often as the rule says and discard it."""
        for _ in range(self._bench.config.rule.warmups):
            self._run(measure_once, "warmup", arm)

    def check(self, arm: Arm) -> None:
        """Run the check of correctness."""
        if self._bench.config.check:
            self._run(check_once, "check", arm)

    def check_held_out(self, arm: Arm) -> None:
        """Run the held-out check; nothing where there is none."""
        if self._bench.held_out_digest:
            self._run(held_out_once, "held_out", arm)

    def pair(self, number: int, *, is_candidate_first: bool) -> PairRuns:
        """Measure both arms, one right after the other."""
        order: tuple[Arm, Arm] = (
            ("candidate", "incumbent") if is_candidate_first else ("incumbent", "candidate")
        )
        runs = {
            arm: self._run(
                measure_once, self._place.stage, arm, pair=number, is_candidate_first=is_candidate_first
            )
            for arm in order
        }
        return PairRuns(runs["incumbent"], runs["candidate"], is_candidate_first)

    def _run(
        self, run_once: RunOnce, stage: str, arm: Arm, *, pair: int = 0, is_candidate_first: bool = False
    ) -> Run:
        """One run: within the budgets, recorded whatever it gave, a fault ends the trial."""
        self._steps.check()
        bench = self._bench if run_once is measure_once else self._check_bench
        other_path = self.paths["incumbent"]
        if self._watch and run_once is measure_once:
            self._watch.clear(self.paths[arm], self.paths["candidate"] if arm == "incumbent" else other_path)
        before = self._watch.marks(other_path) if self._watch and arm == "candidate" else None
        run = run_once(bench, self.paths[arm], self._run_id(stage, arm), self._steps.cancellation)
        self._log.record(
            RunMeasured(
                run_id=run.run_id,
                iteration=self._place.iteration,
                stage=stage,
                arm=arm,
                pair=pair,
                is_candidate_first=is_candidate_first,
                value=run.metric,
                others=dict(run.others),
                exit_status=run.exit_status,
                fault=run.fault,
                isolation=run.isolation,
                wall_seconds=run.wall_seconds,
                output_path=run.output_path,
                usage=self._log.usage(runs=1 if run_once is measure_once else 0),
            ),
            is_durable=False,  # no kill takes it, and a power cut only until the trial's own event
        )
        if run.fault:
            self._steps.check()  # a cancellation or the end of the wall clock ended it
            raise self._ending(run, stage, arm)
        if self._watch and before is not None and (touched := self._watch.touched(other_path, before)):
            raise rejected("tampered", f"while it ran, the other worktree was changed: {named(touched)}")
        return run

    def _run_id(self, stage: str, arm: Arm) -> str:
        iteration = self._place.iteration
        place = "claim" if iteration < 0 else f"{iteration:04}"
        return f"{place}-{self._log.next_run():05}-{stage.replace('_', '-')}-{arm}"

    def _ending(self, run: Run, stage: str, arm: Arm) -> Exception:
        if run.is_tampered:
            return rejected("tampered", run.detail)
        if arm == "incumbent":
            return failed(
                "incumbent_failed", f"not the candidate's fault: the incumbent's {stage}: {run.detail}"
            )
        if run.fault in CANDIDATE_FAULTS.values():
            return rejected(run.fault, run.detail)
        code = f"{stage}_{run.fault}" if stage in ("check", "held_out", "setup") else run.fault
        return failed(code, run.detail)
