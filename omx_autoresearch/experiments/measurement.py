"""Measuring: runs in both worktrees, pairs until the judge knows, the baseline, and the claim that may be quoted.

Every run is recorded and within the budgets. A run that did not do what it should ends the trial, with a reason that
tells whose fault it was: a failure in the incumbent's worktree is not the candidate's.

Theory of operation. Noise of a machine drifts: a value measured now says little about one measured a minute ago. So
both arms are measured in *pairs*, one right after the other, and the two values of a pair are compared. Which arm comes
first is drawn in balanced blocks from a seed, so that being first favours neither. `decision.Judge`
looks at every pair as it comes and says *accepted*, *rejected* or *go on*; its rule is chosen at the baseline, where
the base is measured against itself (A/A pairs): what differs there is noise. A value that is chosen as the best of many
is flattered, so an accepted candidate is judged once more on fresh pairs with the worktrees swapped, and only base
against final, measured freshly at the end, may be quoted as a result (the *claim*).
"""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Literal, NamedTuple

from omx_autoresearch.experiments.context import ExperimentContext, TrialAborted, failed, rejected
from omx_autoresearch.experiments.judge import events
from omx_autoresearch.experiments.judge.calibration import AcceptanceRule, Calibration, calibrate
from omx_autoresearch.experiments.judge.decision import Judge, Verdict, claim, guard_failures
from omx_autoresearch.experiments.judge.metrics import samples_of
from omx_autoresearch.experiments.judge.plans import DETERMINISTIC_PAIRS
from omx_autoresearch.experiments.judge.state import ExperimentConfig, budget_left
from omx_autoresearch.experiments.judge.statistics import orders
from omx_autoresearch.experiments.runs import Run, RunKind, run_once
from omx_autoresearch.experiments.worktrees.arm import Arm
from omx_autoresearch.experiments.worktrees.checkout import named
from omx_autoresearch.system.files import remove, walk

Marks = dict[str, tuple[int, ...]]

LOADED = (ctypes, marshal, resource)
"""Loaded once here, or the process that watches a run would load them anew for each: 1.3 ms of 1.9."""

ArmName = Literal["incumbent", "candidate"]
ARMS: tuple[ArmName, ArmName] = ("incumbent", "candidate")
Stage = Literal["calibration", "trial", "reverification", "claim"]
LEAST_PAIRS = 2
CALIBRATION_SHARE = 4
"""A calibration takes at most a quarter of the budget of runs: what it measures is to be used, too."""
_STRIDE = 1_000_003
"""Between the seeds of two experiments that differ by one, so that their orders of pairs never overlap."""
_CLAIM_PART = 5


def is_reverified(config: ExperimentConfig) -> bool:
    """Whether an accepted candidate is judged again on fresh pairs."""
    return config.reverification == "on" or (config.reverification == "auto" and config.rule.name != "median")


class PairRuns(NamedTuple):
    """One measured pair."""

    incumbent: Run
    candidate: Run
    is_candidate_first: bool

    @property
    def values(self) -> tuple[float, float, bool]:
        """The metric of incumbent and candidate, and the order; a pair without a fault has both."""
        first, second = self.incumbent.metric, self.candidate.metric
        if first is None or second is None:
            raise AssertionError("a run without a fault has a metric")
        return first, second, self.is_candidate_first


class Judgement(NamedTuple):
    """A verdict with what it stands on.

    Attributes:
        verdict: of the judge.
        pairs: in the order in which they were measured.
    """

    verdict: Verdict
    pairs: tuple[PairRuns, ...]

    @property
    def candidates(self) -> tuple[float, ...]:
        """The candidate's values."""
        return tuple(pair.values[1] for pair in self.pairs)

    @property
    def incumbents(self) -> tuple[float, ...]:
        """The incumbent's values."""
        return tuple(pair.values[0] for pair in self.pairs)

    @property
    def is_cut_short(self) -> bool:
        """Most of the candidate's runs left processes working, which were ended, and none of the incumbent's did."""
        left = sum(pair.candidate.has_left_running for pair in self.pairs)
        is_usual = any(pair.incumbent.has_left_running for pair in self.pairs)
        return not is_usual and 2 * left > len(self.pairs)

    @property
    def other_samples(self) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """Secondary metrics of incumbent and candidate, for guards."""
        return (
            samples_of([pair.incumbent.others for pair in self.pairs]),
            samples_of([pair.candidate.others for pair in self.pairs]),
        )

    @property
    def other_medians(self) -> dict[str, float]:
        """Medians of the candidate's secondary metrics that every run had."""
        found = self.other_samples[1]
        return {name: median(values) for name, values in found.items() if all(v == v for v in values)}  # noqa: PLR0124


class Measurement:
    """Runs of one stage, in the worktrees of both arms.

    Runs that an acceptance or the claim rests on are watched: no other measurement would find out that one arm reached
    over to the other.

    Args:
        context: of the experiment; its operation bounds the runs.
        iteration: the trial; 0 at the baseline, -1 for the claim.
        stage: what the pairs are for.
        is_swapped: each arm runs in the other's worktree.
    """

    def __init__(
        self, context: ExperimentContext, iteration: int, stage: Stage, *, is_swapped: bool = False
    ) -> None:
        config = context.config
        is_last = stage in ("reverification", "claim") or (stage == "trial" and not is_reverified(config))
        self._context = context
        self._evaluators = context.evaluators
        self._iteration = iteration
        self._stage = stage
        self._monitor = WorktreeMonitor((*config.keep, *config.link)) if is_last else None
        trees = reversed(context.worktrees.arms) if is_swapped else context.worktrees.arms
        self._trees: dict[ArmName, Arm] = dict(zip(ARMS, trees, strict=True))

    def set_up(self, arm: ArmName) -> None:
        """Run the set-up command in the arm's worktree."""
        if self._evaluators.config.setup:
            self._run("setup", "setup", arm)
        if self._monitor:
            self._monitor.settle(self._trees[arm])
        self._context.note_set_up(self._trees[arm])

    def make_ready(self, arm: ArmName) -> None:
        """Set an arm up and warm it, unless its worktree is ready from before."""
        if not self._context.is_ready(self._trees[arm]):
            self.set_up(arm)
            self.warm_up(arm)
            self._context.note_ready(self._trees[arm])

    def warm_up(self, arm: ArmName) -> None:
        """Measure the arm as often as the rule says and discard it."""
        for _ in range(self._evaluators.config.rule.warmups):
            self._run("measure", "warmup", arm)

    def check(self, arm: ArmName) -> None:
        """Run the check of correctness."""
        if self._evaluators.config.check:
            self._run("check", "check", arm)

    def check_held_out(self, arm: ArmName) -> None:
        """Run the held-out check; nothing where there is none."""
        if self._evaluators.held_out_digest:
            self._run("held_out", "held_out", arm)

    def pair(self, number: int, *, is_candidate_first: bool) -> PairRuns:
        """Measure both arms, one right after the other."""
        order = reversed(ARMS) if is_candidate_first else ARMS
        runs = {arm: self._run("measure", self._stage, arm, (number, is_candidate_first)) for arm in order}
        return PairRuns(runs["incumbent"], runs["candidate"], is_candidate_first)

    def judge(self, rule: AcceptanceRule, calibration: Calibration, seed: int) -> Judgement:
        """Measure pairs until the judge knows.

        Raises:
            TrialAborted: a run did not do what it should, a budget is spent, or the experiment was cancelled.
        """
        judge = Judge(rule, calibration)
        pairs: list[PairRuns] = []
        for number, is_candidate_first in enumerate(orders(seed), start=1):
            pair = self.pair(number, is_candidate_first=is_candidate_first)
            pairs.append(pair)
            verdict = judge.add_pair(*pair.values)
            if verdict is not None:
                return Judgement(verdict, tuple(pairs))
        raise AssertionError("orders are endless")

    def require_as_committed(self, judgement: Judgement) -> None:
        """Require that the runs measured all of the commit that would be kept.

        The candidate's runs rewrote no tracked file, and no process of theirs worked on after the first one.
        What the incumbent's runs do as well (a file of results, a server that stays) is the command's own.

        Raises:
            TrialAborted: something was rewritten, or left running.
        """
        if judgement.is_cut_short:
            left = "its commands left processes running, and the incumbent's did not"
            raise rejected("left_running", f"{left}: part of the work was not measured")
        rewritten_by_candidate, _ = self._trees["candidate"].differences()
        if rewritten := tuple(sorted({*rewritten_by_candidate}.difference(self._trees["incumbent"].drift()))):
            raise rejected("tampered", f"the candidate's runs rewrote tracked files: {named(rewritten)}")

    def _run(self, kind: RunKind, stage: str, arm: ArmName, pair: tuple[int, bool] = (0, False)) -> Run:
        """One run: within the budgets, recorded whatever it gave; a fault ends the trial."""
        operation, log = self._context.operation, self._context.log
        operation.check()
        tree, incumbent, monitor = self._trees[arm], self._trees["incumbent"], self._monitor
        if monitor and kind == "measure":
            monitor.clear(tree, self._trees["candidate"] if arm == "incumbent" else incumbent)
        before = monitor.marks(incumbent) if monitor and arm == "candidate" else None
        run = run_once(
            kind, self._evaluators, tree.root_path, self._run_id(stage, arm), operation.cancellation
        )
        log.record(
            events.RunMeasured(
                run_id=run.run_id,
                iteration=self._iteration,
                stage=stage,
                arm=arm,
                pair=pair[0],
                is_candidate_first=pair[1],
                value=run.metric,
                others=dict(run.others),
                exit_status=run.exit_status,
                fault=run.fault,
                isolation=run.isolation,
                wall_seconds=run.wall_seconds,
                output_path=run.output_path,
                usage=log.usage(runs=1 if kind == "measure" else 0),
            ),
            is_durable=False,  # no kill takes it, and a power cut only until the trial's own event
        )
        if run.fault:
            operation.check()  # a cancellation or the end of the wall clock ended it
            raise _ending(run, stage, arm)
        if monitor and before is not None and (touched := monitor.touched(incumbent, before)):
            raise rejected("tampered", f"the other worktree changed during the run: {named(touched)}")
        return run

    def _run_id(self, stage: str, arm: ArmName) -> str:
        place = "claim" if self._iteration < 0 else f"{self._iteration:04}"
        return f"{place}-{self._context.log.next_run():05}-{stage.replace('_', '-')}-{arm}"


def _ending(run: Run, stage: str, arm: ArmName) -> TrialAborted:
    """Whose fault a failed run was."""
    if run.is_tampered:
        return rejected("tampered", run.detail)
    if arm == "incumbent":
        return failed("incumbent_failed", f"the incumbent failed, not the candidate ({stage}): {run.detail}")
    if run.fault in ("check_failed", "held_out_failed"):
        return rejected(run.fault, run.detail)
    code = f"{stage}_{run.fault}" if stage in ("check", "held_out", "setup") else run.fault
    return failed(code, run.detail)


def seed_of(seed: int, iteration: int, part: int = 0) -> int:
    """The seed of one sequence of pairs; the same again after a resume, another for every trial."""
    return seed * _STRIDE + iteration * 8 + part


def _affordable(context: ExperimentContext, wanted: int, share: int = 1) -> int:
    """The wanted number of pairs, or as many as a share of the remaining runs allows."""
    left = budget_left(context.config.limits, context.log.usage()).runs
    return wanted if left is None else max(LEAST_PAIRS, min(wanted, left // (2 * share)))


# --- the baseline: the base is checked, and measured against itself in both worktrees


def measure_baseline(context: ExperimentContext) -> events.BaselineEstablished:
    """Check the base, measure A/A pairs across both worktrees, and calibrate.

    Raises:
        TrialAborted: the base does not pass its own check or guards, gives no metric, or a budget is spent.
    """
    config = context.config
    measurement = Measurement(context, 0, "calibration")
    measurement.set_up("candidate")
    measurement.check("candidate")
    measurement.check_held_out("candidate")
    measurement.warm_up("candidate")
    measurement.make_ready("incumbent")
    count = _affordable(context, config.calibration_pairs, CALIBRATION_SHARE)
    order = orders(seed_of(config.seed, 0))
    pairs = [measurement.pair(number, is_candidate_first=next(order)) for number in range(1, count + 1)]
    _require_guards(config, pairs)
    samples = tuple(value for pair in pairs for value in pair.values[:2])
    calibration = calibrate([pair.values for pair in pairs], config.rule)
    state, usage = context.log.state, context.log.usage()
    return events.step_taken(
        state, events.BaselineEstablished, median(samples), calibration, samples, state.base_commit, usage
    )


def _require_guards(config: ExperimentConfig, pairs: list[PairRuns]) -> None:
    """The base must keep the bounds that every candidate is held to; how much worse it may get is not asked here."""
    bounds = [guard for guard in config.guards if guard.bound is not None]
    others = samples_of([run.others for pair in pairs for run in (pair.incumbent, pair.candidate)])
    for guard in config.guards:
        if guard.name not in others:
            raise failed(
                "guard_failed", f"the unchanged repository prints no metric {guard.name}, which a guard needs"
            )
    reasons = guard_failures(bounds, others, others)
    if reasons:
        raise failed("guard_failed", f"the unchanged repository breaks a guard: {'; '.join(reasons)}")


# --- the claim: base against final on fresh pairs


def measure_claim(context: ExperimentContext) -> events.ClaimVerified:
    """Measure base (arm ``incumbent``) against final (arm ``candidate``), and run the held-out check on the final.

    Raises:
        TrialAborted: a run did not do what it should, a budget is spent, or the experiment was cancelled.
    """
    state = context.log.state
    measurement = Measurement(context, -1, "claim")
    for arm in ARMS:
        measurement.set_up(arm)
    held_out = _held_out(measurement) if state.config.held_out else ""
    for arm in ARMS:
        measurement.warm_up(arm)
    calibration = state.calibration
    is_exact = calibration is not None and calibration.regime == "deterministic"
    order = orders(seed_of(state.config.seed, len(state.rows) + 1, _CLAIM_PART))
    values: list[tuple[float, float, bool]] = []
    wanted = _affordable(context, state.config.claim_pairs)
    while len(values) < wanted:
        values.append(measurement.pair(len(values) + 1, is_candidate_first=next(order)).values)
        repeats = len({base for base, _, _ in values}) == len({final for _, final, _ in values}) == 1
        if is_exact and repeats and len(values) >= DETERMINISTIC_PAIRS:
            break
    return events.ClaimVerified(
        claim=claim(values, state.config.rule, calibration),
        commit=state.incumbent_commit,
        held_out=held_out,
        usage=context.log.usage(),
    )


def _held_out(measurement: Measurement) -> str:
    try:
        measurement.check_held_out("candidate")
    except TrialAborted as end:
        if end.code != "held_out_failed":
            raise
        return "failed"
    return "passed"


# --- contamination
#
# While the candidate runs, nothing else works in the incumbent's worktree. A change there means that the candidate
# reached over, for example to slow the incumbent down. The comparison covers everything that could affect a run: files
# that differ from the checkpoint, files of git's own folder, and kept paths, by inode, mode, size and times.
#
# Files that only one arm's runs leave in its worktree are removed before its next run: an answer stored by the first
# run would be replayed by all others, and a fresh checkout would not have it. Files from the set-up stay, and so do
# files that both arms leave (a build folder, a log).
#
# A look costs as much as looking at every file, so it is taken only where an acceptance or a claim rests on the runs.


class WorktreeMonitor:
    """Looks at worktrees before and after a run.

    Args:
        kept: ignored paths of them that checkpoints do not restore (``config.keep`` and ``config.link``).
    """

    def __init__(self, kept: Sequence[str]) -> None:
        self._kept = (".git", *kept)
        self._made: dict[Arm, set[str]] = {}  # what stood in a worktree after its set-up

    def settle(self, tree: Arm) -> None:
        """A worktree was set up; what stands in it now is no run's.

        Raises:
            WorkspaceFault: the worktree is gone, or cannot be read.
        """
        self._made[tree] = set(tree.differences()[1])

    def clear(self, tree: Arm, other: Arm) -> None:
        """Remove what the runs in this worktree left there, and those in the other one did not.

        Nothing where one of them was not set up under this watch.

        Raises:
            WorkspaceFault: a worktree is gone, or something cannot be removed.
        """
        if tree not in self._made or other not in self._made:
            return
        left = set(tree.differences()[1]) - self._made[tree]
        for name in left.difference(other.differences()[1]) if left else ():
            remove(os.path.join(tree.root_path, name))

    def marks(self, tree: Arm) -> Marks:
        """The stamps of everything in a worktree that differs from its checkpoint.

        Raises:
            WorkspaceFault: the worktree is gone, or cannot be read.
        """
        found: Marks = {}
        for name in (*tree.drift(), *self._kept):
            for below in _paths_below(tree.root_path, name):
                found[below] = _mark(os.path.join(tree.root_path, below))
        return found

    def touched(self, tree: Arm, before: Marks) -> tuple[str, ...]:
        """Paths of a worktree that were changed, added or removed since; sorted.

        Raises:
            WorkspaceFault: as `marks`.
        """
        after = self.marks(tree)
        moved = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        return tuple(sorted(moved))


def _paths_below(root_path: str, name: str) -> Iterator[str]:
    """A path and everything below it, relative; links are not followed."""
    yield name
    top = os.path.join(root_path, name)
    if not os.path.islink(top):
        for below, _ in walk(top):
            yield os.path.join(name, below)


def _mark(path: str) -> tuple[int, ...]:
    try:
        known = os.lstat(path)
    except OSError:
        return ()
    return (known.st_ino, known.st_mode, known.st_size, known.st_mtime_ns, known.st_ctime_ns)
