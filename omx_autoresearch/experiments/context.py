"""What an experiment's controller works on: the log that is its truth, and the two worktrees with what judges in them.

The incumbent's worktree stands at the best commit so far, the candidate's is where the next change is made. Before and
after a trial both are made exactly what the incumbent is. A worktree that was set up and warmed stays *ready* until it
is set to another commit: then an incumbent need not be set up anew for each trial.

One call of the controller is an *operation*. It has a cancellation of its own, which follows the experiment's: the wall
clock and an interruption end the operation alone, a cancel ends the experiment. Between two steps the operation looks
at the budgets; within a step, its cancellation ends the command under way.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from omx_autoresearch.experiments.cancellation import AutoresearchCancellation, failed
from omx_autoresearch.experiments.judge.budget import budget_left, charge, spent_budget
from omx_autoresearch.experiments.judge.events import TrialFailed, step_taken, wire_event
from omx_autoresearch.foundation.errors import StateUntrusted, StepIllegal
from omx_autoresearch.foundation.records import replace
from omx_autoresearch.system.contents import entries_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from omx_autoresearch.experiments.evaluators import FrozenEvaluators
    from omx_autoresearch.experiments.judge.events import ExperimentEvent
    from omx_autoresearch.experiments.judge.state import ExperimentConfig, ExperimentState, ExperimentUsage
    from omx_autoresearch.experiments.store import ExperimentFolder, ExperimentStore
    from omx_autoresearch.experiments.worktrees.pair import Workspaces
    from omx_autoresearch.journal.layout import Runtime

    Subscriber = Callable[[dict[str, Any]], object]

SPENT = {
    "budget_trials": "the budget of trials is spent",
    "budget_wall": "the wall-clock budget is spent",
    "budget_cost": "the cost budget is spent",
    "budget_disk": "the disk budget is spent",
    "budget_runs": "the budget of runs is spent",
}
"""Each spent budget in a sentence."""
_NAME_PARTS = 2  # dashes at least in the name of an output: trial, number, stage, arm


class ExperimentLog:
    """One experiment's log, kept by the controller that holds the repository. Any thread may record.

    Args:
        runtime: the world.
        store: that writes.
        folder: of the experiment.
        state: that the log folds to so far; None before its first event.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: ExperimentStore,
        folder: ExperimentFolder,
        state: ExperimentState | None = None,
    ) -> None:
        self.runtime = runtime
        self.folder = folder
        self._store = store
        self._state = state
        self._lock = threading.RLock()
        self._subscribers: list[Subscriber] = []
        self._began = runtime.clock.monotonic()
        self._wall_before = state.usage.wall_seconds if state is not None else 0.0
        self._disk_bytes = state.usage.disk_bytes if state is not None else 0
        self._run_number = 0
        self.subscriber_fault: Exception | None = None

    @property
    def state(self) -> ExperimentState:
        """The state as of the newest event."""
        if self._state is None:
            raise StateUntrusted(f"the experiment {self.folder.experiment_id} has no event yet")
        return self._state

    def record(self, event: ExperimentEvent, *, is_durable: bool = True) -> None:
        """Append an event, fold it, tell every subscriber. A subscriber that fails disturbs nobody.

        Raises:
            StorageFailed: it could not be written; nothing changed.
        """
        with self._lock:
            ts = self.runtime.now()
            entries = self._store.append(self.folder.experiment_id, event, ts=ts, is_durable=is_durable)
            self._state = event.apply(self._state, ts)
            told = wire_event(event, seq=entries[-1].seq, ts=ts) if self._subscribers else {}
            subscribers = tuple(self._subscribers)
        for tell in subscribers:
            try:
                tell(dict(told))
            except Exception as fault:  # noqa: BLE001  # whatever a host's code does, the experiment goes on
                self.subscriber_fault = fault

    def subscribe(self, tell: Subscriber) -> Callable[[], None]:
        """Tell ``tell`` every event from now on, in its wire form; returns what takes it back."""
        with self._lock:
            self._subscribers.append(tell)

        def leave() -> None:
            with self._lock:
                if tell in self._subscribers:
                    self._subscribers.remove(tell)

        return leave

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event so far, in its wire form, read from the log.

        Raises:
            JournalBroken: a line cannot be believed; named by file and line.
        """
        for entry, event in self._store.events(self.folder.experiment_id):
            yield wire_event(event, seq=entry.seq, ts=entry.ts)

    def usage(self, *, cost_usd: object = 0.0, runs: int = 0, trials: int = 0) -> ExperimentUsage:
        """What is spent by now, with what is added here; not recorded yet.

        Raises:
            UsageError: the cost is no cost.
        """
        with self._lock:
            known = charge(self.state.usage, cost_usd=cost_usd, runs=runs, trials=trials)
            return replace(known, wall_seconds=self.wall_seconds(), disk_bytes=self._disk_bytes)

    def measure_disk(self) -> None:
        """Look how much the experiment's folder takes; its worktrees are counted where there is a limit."""
        skipped = "" if self.state.config.limits.disk_bytes else os.path.basename(self.folder.work_path)
        size_bytes = folder_size(self.folder.root_path, skip=skipped)
        with self._lock:
            self._disk_bytes = size_bytes

    def next_run(self) -> int:
        """A number for the output of the next run; never given twice, also after a resume."""
        with self._lock:
            if not self._run_number:
                self._run_number = _last_number(self.folder.outputs_path)
            self._run_number += 1
            return self._run_number

    def wall_seconds(self) -> float:
        """Time that controllers were at work, this one included; the machine's sleep is not counted."""
        return self._wall_before + max(0.0, self.runtime.clock.monotonic() - self._began)


def folder_size(path: str, *, skip: str = "") -> int:
    """The bytes of all files below a folder, links not followed; what vanishes meanwhile counts nothing.

    Args:
        path: the folder.
        skip: the name of one entry at the top that is left out.
    """
    total = 0
    for _, entry in entries_below(os.fsencode(path), is_left_out=lambda name: name == os.fsencode(skip)):
        try:
            if not entry.is_dir(follow_symlinks=False):
                total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return total


def _last_number(outputs_path: str) -> int:
    """The largest run number among the outputs; 0 where there is none."""
    try:
        names = os.listdir(outputs_path)
    except FileNotFoundError:
        return 0
    numbers = (name.split("-")[1] for name in names if name.count("-") >= _NAME_PARTS)
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


class Operation:
    """The limits of one call of the controller.

    Args:
        log: of the experiment.
        parent: the experiment's cancellation.
        is_limited: False for what an owner asks for after a budget ended the experiment.
    """

    def __init__(
        self, log: ExperimentLog, parent: AutoresearchCancellation, *, is_limited: bool = True
    ) -> None:
        self._log = log
        self._timer: threading.Timer | None = None
        self.is_limited = is_limited
        self.cancellation = AutoresearchCancellation(parent)
        left = budget_left(log.state.config.limits, log.usage()).wall_seconds
        if left is not None and is_limited:
            seconds = min(left, threading.TIMEOUT_MAX)
            self._timer = threading.Timer(seconds, self.cancellation.trigger, ["budget_wall"])
            self._timer.daemon = True
            self._timer.start()

    def check(self) -> None:
        """Let the next step begin.

        Raises:
            TrialAborted: the work was cancelled, or a budget is spent.
        """
        if self.cancellation.is_cancelled:
            code = self.cancellation.reason or "cancelled"
            raise failed(code, SPENT.get(code, "the experiment was cancelled"))
        if not self.is_limited:
            return
        reason = spent_budget(self._log.state.config.limits, self._log.usage(), is_in_trial=True)
        if reason is not None:
            raise failed(reason, SPENT[reason])

    def end(self) -> None:
        """The call is over: its clock stops, and a later cancel of the experiment no longer concerns it."""
        if self._timer is not None:
            self._timer.cancel()
        self.cancellation.detach()


class ExperimentContext:
    """An experiment that this process holds: its log, what judges, and both worktrees.

    Args:
        log: of the experiment.
        evaluators: what judges.
        workspaces: the two worktrees.
    """

    def __init__(self, log: ExperimentLog, evaluators: FrozenEvaluators, workspaces: Workspaces) -> None:
        self.log = log
        self.evaluators = evaluators
        self.workspaces = workspaces
        self.under_way: Operation | None = None
        self._own_changes: frozenset[str] = frozenset()  # what the incumbent's own runs leave changed
        self._bare: set[str] = set()  # worktrees whose kept paths were removed
        self._ready: dict[str, str] = {}  # worktrees that are set up and warm, and at which commit

    @property
    def config(self) -> ExperimentConfig:
        """As it is now: limits may have been extended."""
        return self.log.state.config

    @property
    def operation(self) -> Operation:
        """The call of the controller that is under way.

        Raises:
            StepIllegal: there is none.
        """
        if self.under_way is None:
            raise StepIllegal("the controller is not at work", next_step="call a method of the controller")
        return self.under_way

    # --- both worktrees

    def set_to(self, path: str, commit: str) -> None:
        """Make a worktree exactly what a commit is; it must be set up and warmed again then.

        Raises:
            WorkspaceFault: it cannot be done.
        """
        self._ready.pop(path, None)
        if self.workspaces.set_to(path, commit).dropped:
            self._bare.add(path)

    def restore(self) -> None:
        """Make both worktrees what the incumbent is; its own stays as it is where it was measured as just that.

        Raises:
            WorkspaceFault: it cannot be done.
        """
        commit = self.log.state.incumbent_commit
        self.set_to(self.workspaces.candidate_path, commit)
        if self._ready.get(self.workspaces.incumbent_path) != commit:
            self.set_to(self.workspaces.incumbent_path, commit)

    def fail_interrupted(self) -> None:
        """Restore both worktrees; the trial that has no end, if there is one, ends as interrupted."""
        if self.log.state.phase == "completed":
            return
        self.restore()
        row = self.log.state.running_row
        if row is None:
            return
        ended = replace(
            row,
            status="failed",
            reason_code="interrupted",
            reason="its controller was killed; the checkpoint was restored",
            ended_at=self.log.runtime.now(),
        )
        self.log.record(step_taken(self.log.state, TrialFailed, ended, self.log.usage()))

    # --- whether a worktree is ready to be measured

    def is_ready(self, path: str) -> bool:
        """True where the worktree is set up and warm, and still at that commit."""
        return self._ready.get(path) == self.workspaces.commit_at(path)

    def note_ready(self, path: str) -> None:
        """The worktree was set up and warmed."""
        self._ready[path] = self.workspaces.commit_at(path)
        if path == self.workspaces.incumbent_path:
            self._own_changes = frozenset(self.workspaces.drift(path))

    def is_bare(self, path: str) -> bool:
        """True where the worktree's kept paths are gone until its next set-up."""
        return path in self._bare

    def note_set_up(self, path: str) -> None:
        """The set-up was run in a worktree.

        What it made in kept paths may stay only where it was made from the incumbent: a candidate's own set-up may
        have put anything there, and goes with its candidate.
        """
        self._bare.discard(path)
        if self.config.keep and self.workspaces.commit_at(path) == self.log.state.incumbent_commit:
            self.workspaces.seal(path)

    # --- the incumbent's worktree, to which an agent or a candidate may have reached over

    def foreign_changes(self) -> tuple[str, ...]:
        """Paths of the incumbent's worktree that changed otherwise than by its own set-up and first runs."""
        return tuple(sorted(set(self.workspaces.drift(self.workspaces.incumbent_path)) - self._own_changes))

    def begin_refresh(self) -> Callable[[], None]:
        """Look at the incumbent's worktree while something else is done; returns what makes it right again."""
        path = self.workspaces.incumbent_path
        looking = ThreadPoolExecutor(1)
        looked = looking.submit(lambda: path not in self._ready or bool(self.foreign_changes()))

        def finish() -> None:
            with looking:
                if looked.result():
                    self.set_to(path, self.log.state.incumbent_commit)

        return finish
