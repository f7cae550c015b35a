"""One trial: a candidate is made, taken as a tree, measured against the incumbent, and kept only where it is better.

    make      the callback works in the candidate's worktree, within its time
    take      frozen files untouched, something changed, a tree that a patch can carry; then exactly that tree
    measure   set-up, check, warm-ups, pairs until the judge knows
    confirm   guards, held-out check, and a second judgement on fresh pairs with the worktrees swapped
    end       the event of an acceptance makes the candidate the incumbent; otherwise both worktrees are restored

The first step that finds a reason ends it. A callback runs in a thread of its own, so that a deadline and a cancel
reach it. A thread cannot be ended from outside: one that ignores its cancellation is left behind as a *straggler*. Its
trial has failed, and no further trial begins in the same worktree before it has ended.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from omx_autoresearch.experiments.context import (
    AutoresearchCancellation,
    ExperimentContext,
    TrialAborted,
    failed,
    rejected,
)
from omx_autoresearch.experiments.judge import events
from omx_autoresearch.experiments.judge.calibration import Calibration, verify_rule
from omx_autoresearch.experiments.judge.decision import guard_failures
from omx_autoresearch.experiments.judge.state import (
    METADATA_LIMIT,
    ExperimentHypothesis,
    HypothesisOutcome,
    TrialRow,
    checked_cost,
)
from omx_autoresearch.experiments.judge.summary import effect_text
from omx_autoresearch.experiments.measurement import ARMS, Judgement, Measurement, is_reverified, seed_of
from omx_autoresearch.experiments.worktrees.checkout import named, shown_path
from omx_autoresearch.experiments.worktrees.pair import WorktreePair
from omx_autoresearch.experiments.worktrees.worktree import TreeFault
from omx_autoresearch.foundation.errors import AutoresearchError, StateUntrusted, UsageError, WorkspaceFault
from omx_autoresearch.foundation.json_codec import encode
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.system.files import remove
from omx_autoresearch.system.processes import identify

Callback = Callable[["ExperimentWorkspace"], HypothesisOutcome]

CHANGED_LIMIT = 300
"""A row names at most so many paths."""
TRIALS_WITHOUT_LIMIT = 100
"""The number of trials that re-verification assumes where no limit is set."""
CALLBACK_GRACE_SECONDS = 5.0
"""A callback may take this long to end after its cancellation was set."""
METADATA_BYTES = 64 * 1024
_REASON_LENGTH = 2000
_FAULT_LENGTH = 500


@dataclass(frozen=True, slots=True)
class ExperimentWorkspace:
    """The one place where a callback may work.

    Attributes:
        path: the candidate's worktree; it stands at the incumbent.
        iteration: number of the trial.
        hypothesis: the idea to try.
        cancellation: set when the callback must end: on a cancel, at its own deadline, or when a budget is spent.
        note_process: tell the controller of a process that works here (its pid), so that none is left behind if
            this process is killed.
    """

    path: str
    iteration: int
    hypothesis: ExperimentHypothesis
    cancellation: AutoresearchCancellation
    note_process: Callable[[int], None]


class Trial:
    """One admitted hypothesis.

    Args:
        context: of the experiment; its operation bounds the trial.
        row: as admitted.
        hypothesis: the idea that is tried.

    Attributes:
        row: what is known by now.
        call: of the callback; it may straggle after the trial's end.
    """

    def __init__(self, context: ExperimentContext, row: TrialRow, hypothesis: ExperimentHypothesis) -> None:
        self._context = context
        self._hypothesis = hypothesis
        self._began = context.log.runtime.clock.monotonic()
        self._measurement = Measurement(context, row.iteration, "trial")
        self.row = row
        self.call: CallbackRun | None = None

    def run(self, callback: Callback) -> TrialRow:
        """Try it and record its end, whatever happens: accepted and kept, or restored.

        Raises:
            BaseException: what interrupted the thread; the trial is failed and restored then.
        """
        try:
            row = self._play(callback)
        except BaseException as interruption:
            self._context.operation.cancellation.trigger("cancelled")
            code = "controller_failed" if isinstance(interruption, Exception) else "cancelled"
            self._roll_back(self._ended("failed", code, f"{type(interruption).__name__}: {interruption}"))
            raise
        row = self._accept(row) if row.status == "accepted" else self._roll_back(row)
        if row.status == "accepted":
            remove(self._context.log.folder.change_path(row.iteration))
        return row

    def _play(self, callback: Callback) -> TrialRow:
        """The terminal row, not recorded yet."""
        try:
            self._make(callback)
            finish_refresh = self._context.begin_refresh()
            try:
                self._take(self._context.worktrees)
            finally:
                finish_refresh()
            calibration = self._context.log.state.calibration
            if calibration is None:
                raise failed("no_baseline", "the baseline is not established")
            judgement = self._measure(calibration)
            self._confirm(judgement, calibration)
            gain = effect_text(judgement.verdict.estimate, judgement.verdict.scale)
            return self._ended("accepted", "improved", f"better by {gain}")
        except TrialAborted as end:
            return self._ended(end.status, end.code, end.reason)
        except WorkspaceFault as fault:
            return self._ended("failed", self._workspace_code(), fault.message)
        except StateUntrusted as fault:
            return self._ended("failed", fault.slug.replace("-", "_"), fault.message)
        except AutoresearchError as fault:
            return self._ended("failed", f"{fault.slug.replace('-', '_')}_failed", fault.message)

    # --- end

    def _ended(self, status: str, code: str, reason: str) -> TrialRow:
        """The row at its end; an accepted one alone names its commit."""
        runtime = self._context.log.runtime
        sentence, _, detail = reason.partition("\n")
        if status == "failed":
            sentence += self._context.log.folder.kept_change(self.row.iteration)
        self.row = replace(
            self.row,
            status=status,  # type: ignore[arg-type]
            reason_code=code,
            reason=sentence[:_REASON_LENGTH],
            detail=detail[:_REASON_LENGTH],
            candidate_commit=self.row.candidate_commit if status == "accepted" else "",
            duration_seconds=round(max(0.0, runtime.clock.monotonic() - self._began), 6),
            ended_at=runtime.now(),
        )
        return self.row

    def _accept(self, row: TrialRow) -> TrialRow:
        """The commit is made; with this event it is the incumbent."""
        log = self._context.log
        try:
            log.record(events.step_taken(log.state, events.TrialAccepted, row, log.usage()))
        except AutoresearchError as fault:
            return self._roll_back(self._ended("failed", "storage_failed", fault.message))
        self._context.restore()
        return row

    def _roll_back(self, row: TrialRow) -> TrialRow:
        """Restore first: the event says that it was done."""
        log = self._context.log
        try:
            self._context.restore()
        finally:
            kind = events.TrialRejected if row.status == "rejected" else events.TrialFailed
            log.record(events.step_taken(log.state, kind, row, log.usage()))
        return row

    def _workspace_code(self) -> str:
        is_lost = any(tree.is_lost() for tree in self._context.worktrees.arms)
        return "workspace_lost" if is_lost else "workspace_failed"

    # --- make

    def _make(self, callback: Callback) -> None:
        context, operation = self._context, self._context.operation
        operation.check()
        tree = context.worktrees.candidate
        if context.is_bare(tree):  # what the owner keeps between trials is there for the callback
            self._measurement.set_up("candidate")
        workspace = ExperimentWorkspace(
            path=tree.root_path,
            iteration=self.row.iteration,
            hypothesis=self._hypothesis,
            cancellation=AutoresearchCancellation(operation.cancellation),
            note_process=self._note_process,
        )
        self.call = CallbackRun(callback, workspace)
        outcome = self.call.wait(context.config.hypothesis_timeout_seconds or None, "timed_out")
        self._note(outcome)
        if context.config.limits.disk_bytes:
            context.log.measure_disk()
        if outcome.fault:
            raise failed(outcome.fault, outcome.fault_reason or "the host produced no candidate")
        operation.check()

    def _note_process(self, pid: int) -> None:
        """A process works on the candidate; a resume must be able to end it."""
        process, log = identify(pid), self._context.log
        if process is not None and log.state.running_row is not None:
            log.record(events.AgentStarted(process.pid, process.started))

    def _note(self, outcome: HypothesisOutcome) -> None:
        """Record what the turn cost before anything else can happen."""
        try:
            usage = self._context.log.usage(cost_usd=outcome.cost_usd)
        except UsageError as fault:
            raise failed("callback_failed", fault.message) from None
        self.row = replace(
            self.row,
            cost_usd=float(outcome.cost_usd),
            description=outcome.description or self.row.description,
            direction=outcome.direction or self.row.direction,
            metadata={**self.row.metadata, **outcome.metadata},
        )
        self._context.log.record(events.CandidateMade(self.row, usage))

    # --- take

    def _take(self, worktrees: WorktreePair) -> None:
        """The candidate's tree as a commit, and the worktree made exactly that."""
        path = worktrees.candidate.root_path
        if worktrees.candidate.is_lost():
            raise failed("workspace_lost", f"the worktree {path} is gone")
        if touched := self._context.evaluators.restore(path):
            raise rejected("tampered", f"frozen files were touched: {named(touched)}")
        taken = worktrees.checkpoint(self._message())
        if isinstance(taken, TreeFault):
            ends = failed if taken.reason_code == "workspace_lost" else rejected
            raise ends(taken.reason_code, taken.detail)
        if not taken.changed:
            raise rejected("no_change", "nothing was changed, so nothing was measured")
        self._require_frozen_as_written(taken.changed)
        changed = tuple(shown_path(name) for name in taken.changed[:CHANGED_LIMIT])
        self.row = replace(self.row, candidate_commit=taken.commit, changed_paths=changed)

    def _require_frozen_as_written(self, changed: tuple[str, ...]) -> None:
        """Git would write the frozen files as before: other line ends in them would make every later tree tampered."""
        attributes = tuple(name for name in changed if os.path.basename(name) == ".gitattributes")
        frozen = [pin.path for pin in self._context.evaluators.manifest.pins if pin.kind != "absent-guard"]
        if attributes and frozen and not self._context.worktrees.has_same_attributes(frozen):
            raise rejected("tampered", f"new attributes would change frozen files: {named(attributes)}")

    def _message(self) -> str:
        row = self.row
        return f"Trial {row.iteration}: {row.hypothesis_id}\n\n{row.description}\n"

    # --- measure

    def _measure(self, calibration: Calibration) -> Judgement:
        config, measurement = self._context.config, self._measurement
        measurement.make_ready("incumbent")  # before anything of the candidate's runs
        measurement.set_up("candidate")
        measurement.check("candidate")
        measurement.warm_up("candidate")
        judgement = measurement.judge(config.rule, calibration, seed_of(config.seed, self.row.iteration))
        self._keep(judgement)
        verdict = judgement.verdict
        if verdict.outcome != "accepted":
            code = "inconclusive" if verdict.outcome == "inconclusive" else verdict.reason_code
            raise rejected(code, _verdict_text(judgement))
        return judgement

    def _keep(self, judgement: Judgement) -> None:
        verdict = judgement.verdict
        self.row = replace(
            self.row,
            metric=median(judgement.candidates),
            samples=judgement.candidates,
            incumbent_samples=judgement.incumbents,
            improvement=verdict.estimate,
            interval=tuple(verdict.interval),
            scale=verdict.scale,
            pairs=verdict.pairs,
            others=judgement.other_medians,
        )

    # --- confirm

    def _confirm(self, judgement: Judgement, calibration: Calibration) -> None:
        config = self._context.config
        incumbent, candidate = judgement.other_samples
        if reasons := guard_failures(config.guards, incumbent, candidate):
            raise rejected("guard_failed", "; ".join(reasons))
        if touched := self._touched_incumbent():
            raise rejected("tampered", f"the incumbent's worktree changed: {named(touched)}")
        self._measurement.require_as_committed(judgement)
        self._measurement.check_held_out("candidate")
        if is_reverified(config):
            self._verify_again(calibration)

    def _touched_incumbent(self) -> tuple[str, ...]:
        """Files of the incumbent's worktree that its own runs do not write: the candidate reached over to them.

        New files cannot be told from the commands' own. A sandbox keeps one arm from seeing the other.
        """
        root_path = self._context.worktrees.candidate.root_path
        return tuple(
            path
            for path in self._context.foreign_changes()
            if path in self.row.changed_paths or os.path.lexists(os.path.join(root_path, path))
        )

    def _verify_again(self, calibration: Calibration) -> None:
        """Judge anew on fresh pairs, each arm in the other's worktree: a lucky streak or a lucky place is found out."""
        context, config = self._context, self._context.config
        trials = config.limits.trials or max(TRIALS_WITHOUT_LIMIT, self.row.iteration)
        context.operation.check()
        context.set_to(context.worktrees.incumbent, self.row.candidate_commit)
        context.set_to(context.worktrees.candidate, self.row.checkpoint)
        measurement = Measurement(context, self.row.iteration, "reverification", is_swapped=True)
        for arm in ARMS:
            measurement.make_ready(arm)
        seed = seed_of(config.seed, self.row.iteration, 1)
        again = measurement.judge(verify_rule(config.rule, trials), calibration, seed)
        if again.verdict.outcome != "accepted":
            raise rejected(
                "not_reverified",
                f"a second judgement on fresh pairs did not confirm it: {_verdict_text(again)}",
            )
        measurement.require_as_committed(again)


def _verdict_text(judgement: Judgement) -> str:
    """A verdict that was no acceptance, for people."""
    verdict = judgement.verdict
    gain = effect_text(verdict.estimate, verdict.scale)
    pairs = count_of(verdict.pairs, "pair")
    least = effect_text(verdict.minimum_detectable_effect, verdict.scale)
    words = {
        "not_better": f"not better (estimate {gain}, {pairs})",
        "too_small": f"no visible gain (estimate {gain}, {pairs}; {least} would be seen)",
        "not_positive": "values that are not positive have no ratio; use the scale `difference`",
    }
    undecided = f"cannot be told from noise in {pairs} (estimate {gain}; a gain of {least} would be seen)"
    return words.get(verdict.reason_code, undecided)


class CallbackRun:
    """One call of a host's callback.

    Args:
        callback: the host's.
        workspace: what it is given; its cancellation is this call's own.
    """

    def __init__(self, callback: Callback, workspace: ExperimentWorkspace) -> None:
        self._workspace = workspace
        self._settled = threading.Event()
        self._ended = threading.Event()
        self._outcome: object = None
        self._fault: BaseException | None = None
        context = contextvars.copy_context()
        self.thread = threading.Thread(
            target=context.run, args=(self._call, callback), name="experiment-callback", daemon=True
        )

    def straggles(self) -> bool:
        """True while the call goes on."""
        return self.thread.is_alive()

    def wait(self, timeout_seconds: float | None, code: str) -> HypothesisOutcome:
        """Start the call and wait for its outcome.

        Args:
            timeout_seconds: after which it is cancelled; None for no limit.
            code: the reason code of a trial whose time was over.

        Raises:
            TrialAborted: it failed, was cancelled or ran out of time, or gave no outcome that can be recorded.
        """
        handle = self._workspace.cancellation
        unwatch = handle.watch(self._settled.set)
        self.thread.start()
        try:
            self._settled.wait(timeout_seconds)
        except BaseException:
            self._give_up(handle, "cancelled")
            raise
        finally:
            unwatch()
        if not self._ended.is_set():
            self._give_up(handle, code)
        handle.detach()
        if handle.is_cancelled:
            raise failed(handle.reason or code, self._cut_short(handle))
        if self._fault is not None:
            raise failed("callback_failed", _told(self._fault))
        return checked_outcome(self._outcome)

    def _give_up(self, handle: AutoresearchCancellation, code: str) -> None:
        handle.trigger(code)
        self._ended.wait(CALLBACK_GRACE_SECONDS)

    def _cut_short(self, handle: AutoresearchCancellation) -> str:
        told = {
            "cancelled": "the experiment was cancelled while the candidate was made",
            "timed_out": "the candidate was not ready in time",
        }.get(handle.reason, "the wall-clock budget was spent while the candidate was made")
        return f"{told}; its callback keeps running despite the signal" if self.straggles() else told

    def _call(self, callback: Callback) -> None:
        try:
            self._outcome = callback(self._workspace)
        except BaseException as fault:  # noqa: BLE001  # the row tells it; nothing else runs in this thread
            self._fault = fault
        finally:
            self._ended.set()
            self._settled.set()


def checked_outcome(outcome: object) -> HypothesisOutcome:
    """The callback's outcome, if it can be recorded.

    Raises:
        TrialAborted: it is not a `HypothesisOutcome`, its cost is not valid, or its metadata is not JSON.
    """
    if not isinstance(outcome, HypothesisOutcome):
        raise failed(
            "callback_failed", f"the callback returned {type(outcome).__name__}, not a HypothesisOutcome"
        )
    try:
        checked_cost(outcome.cost_usd)
        size_bytes = len(encode(outcome.metadata))
    except (UsageError, TypeError, ValueError, RecursionError) as fault:
        text = fault.message if isinstance(fault, UsageError) else f"metadata: {fault}"
        raise failed("callback_failed", text) from None
    if len(outcome.metadata) > METADATA_LIMIT or size_bytes > METADATA_BYTES:
        raise failed(
            "callback_failed",
            f"metadata: {len(outcome.metadata)} entries of {size_bytes} bytes; "
            f"at most {METADATA_LIMIT} of {METADATA_BYTES} are kept",
        )
    return outcome


def _told(fault: BaseException) -> str:
    text = " ".join(str(fault).split())
    return f"{type(fault).__name__}: {text}"[:_FAULT_LENGTH] if text else type(fault).__name__
