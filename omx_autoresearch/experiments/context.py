"""The context of a controller: log, frozen evaluators and both worktrees of an experiment, and its cancellation.

The incumbent's worktree stands at the best commit so far; the next change is made in the candidate's. Before and after
a trial both are made exactly what the incumbent is. A worktree that was set up and warmed stays *ready* until it is set
to another commit, so an incumbent need not be set up anew for each trial.

One call of the controller is an *operation*. It has a cancellation of its own, which follows the experiment's: the wall
clock and an interruption end the operation alone, a cancel ends the experiment. Between two steps the operation checks
the budgets; within a step, its cancellation ends the command under way. Whatever ends a trial early is raised as a
`TrialAborted` by the step that found it, and caught in one place.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from omx_autoresearch.experiments.evaluators import FrozenEvaluators
from omx_autoresearch.experiments.judge import events
from omx_autoresearch.experiments.judge.state import (
    ExperimentConfig,
    ExperimentState,
    ExperimentUsage,
    TrialStatus,
    budget_left,
    charge,
    spent_budget,
)
from omx_autoresearch.experiments.store import ExperimentFolder, ExperimentStore
from omx_autoresearch.experiments.worktrees.arm import Arm
from omx_autoresearch.experiments.worktrees.pair import WorktreePair
from omx_autoresearch.foundation.errors import StateUntrusted, StepIllegal
from omx_autoresearch.journal.layout import Runtime
from omx_autoresearch.journal.safe_files import read_bounded, replace_file
from omx_autoresearch.system.files import remove, walk

REQUESTS = ("stop", "cancel")
POLL_SECONDS = 0.2
"""A controller looks for requests this often."""
_REQUEST_LIMIT_BYTES = 100


class AutoresearchCancellation:
    """The signal that the work is to end now.

    A callback gets one of its own: set when the experiment is cancelled, when its own time is over, or when a budget
    is spent. Calling `cancel` on it cancels the experiment.

    Args:
        parent: the experiment's; None for the experiment's own.
    """

    def __init__(self, parent: AutoresearchCancellation | None = None) -> None:
        self._parent = parent
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._watchers: dict[int, Callable[[], object]] = {}
        self._next = 0
        self._finish: Callable[[], None] | None = None
        self._pipe: tuple[int, int] | None = None
        self.reason = ""
        if parent is not None:
            self._unwatch = parent.watch(lambda: self.trigger(parent.reason))

    @property
    def is_cancelled(self) -> bool:
        """True once the work is to end."""
        return self._event.is_set()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the work is to end; False where the time was over first."""
        return self._event.wait(timeout_seconds)

    def cancel(self) -> None:
        """Cancel the experiment: kill the command under way, wait for the rollback and for `completed`.

        Returns at once where it is called from the controller's own thread or from the callback, which would wait for
        itself; the step under way ends with it then.
        """
        if self._parent is not None:
            self._parent.cancel()
            return
        self.trigger("cancelled")
        if self._finish is not None:
            self._finish()

    def trigger(self, reason: str) -> None:
        """Set the signal without waiting for anything; the first reason stands."""
        with self._lock:
            if self._event.is_set():
                return
            self.reason = reason
            self._event.set()
            if self._pipe is not None:
                os.write(self._pipe[1], b"c")
            watchers = list(self._watchers.values())
            self._watchers.clear()
        for tell in watchers:
            tell()

    def fileno(self) -> int:
        """A descriptor that becomes readable, and stays so, when the work is to end; for `select` and the like."""
        with self._lock:
            if self._pipe is None:
                self._pipe = os.pipe()
                weakref.finalize(self, _close, os.getpid(), *self._pipe)
                if self._event.is_set():
                    os.write(self._pipe[1], b"c")
            return self._pipe[0]

    def watch(self, tell: Callable[[], object]) -> Callable[[], None]:
        """Call ``tell`` once when the work is to end, at once where it is already; returns what takes it back.

        ``tell`` runs in the cancelling thread and must neither wait nor raise.
        """
        with self._lock:
            number = self._next
            self._next += 1
            if not self._event.is_set():
                self._watchers[number] = tell
                return lambda: self._forget(number)
        tell()
        return lambda: None

    def finish_with(self, finish: Callable[[], None]) -> None:
        """Set the controller's part of `cancel`: wait for the step under way, then complete."""
        self._finish = finish

    def detach(self) -> None:
        """Stop following the parent; a later cancellation of the experiment no longer concerns it."""
        if self._parent is not None:
            self._unwatch()

    def _forget(self, number: int) -> None:
        with self._lock:
            self._watchers.pop(number, None)


def _close(pid: int, *descriptors: int) -> None:
    """Close the pipe, in the process that made it: in a forked one the same numbers may be anything."""
    if os.getpid() == pid:
        for descriptor in descriptors:
            os.close(descriptor)


class TrialAborted(Exception):
    """The trial is over: rejected or failed, with its reason. Never leaves the controller.

    Args:
        status: ``rejected`` where the candidate was found wanting, ``failed`` where it could not be judged.
        code: the reason code of the row.
        reason: one sentence for people.
    """

    def __init__(self, status: TrialStatus, code: str, reason: str) -> None:
        super().__init__(reason)
        self.status: TrialStatus = status
        self.code = code
        self.reason = reason


def rejected(code: str, reason: str) -> TrialAborted:
    """End the trial as rejected: the candidate failed a check or the judge."""
    return TrialAborted("rejected", code, reason)


def failed(code: str, reason: str) -> TrialAborted:
    """End the trial as failed: the candidate could not be judged."""
    return TrialAborted("failed", code, reason)


# --- requests of other processes: a small file in the experiment's folder, watched by the controller at work


def put_request(folder: ExperimentFolder, request: str) -> None:
    """Ask the controller at work to ``stop`` after its trial, or to ``cancel`` now; a cancel is never weakened."""
    if request == "stop" and pending_request(folder) == "cancel":
        return
    replace_file(folder.request_path, request.encode())


def pending_request(folder: ExperimentFolder) -> str:
    """The pending request; empty if there is none or it is unknown."""
    try:
        text = read_bounded(folder.request_path, _REQUEST_LIMIT_BYTES).decode("ascii", "replace").strip()
    except (FileNotFoundError, StateUntrusted):
        return ""
    return text if text in REQUESTS else ""


def clear_request(folder: ExperimentFolder) -> None:
    """Take a request back that was followed, or that a resume overtook."""
    remove(folder.request_path)


class RequestWatch:
    """A thread that tells requests to a controller, for as long as it is at work.

    Args:
        folder: of the experiment.
        follow: what a request does; called at most once for each new content.
    """

    def __init__(self, folder: ExperimentFolder, follow: Callable[[str], None]) -> None:
        self._folder = folder
        self._follow = follow
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="experiment-requests", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def end(self) -> None:
        """Look no more; waits for a look under way unless it is this thread's own."""
        self._ended.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _watch(self) -> None:
        told = ""
        while not self._ended.wait(POLL_SECONDS):
            request = pending_request(self._folder)
            if request and request != told:
                told = request
                self._follow(request)


Subscriber = Callable[[dict[str, Any]], object]

SPENT = {
    "budget_trials": "the budget of trials is spent",
    "budget_wall": "the wall-clock budget is spent",
    "budget_cost": "the cost budget is spent",
    "budget_disk": "the disk budget is spent",
    "budget_runs": "the budget of runs is spent",
}
"""Each spent budget in a sentence."""


class ExperimentLog:
    """One experiment's log, kept by the controller that holds the repository. Any thread may record.

    Args:
        runtime: clock, environment and state home.
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

    @property
    def state(self) -> ExperimentState:
        """The state as of the newest event."""
        if self._state is None:
            raise StateUntrusted(f"experiment {self.folder.experiment_id} has no event yet")
        return self._state

    def record(self, event: events.ExperimentEvent, *, is_durable: bool = True) -> None:
        """Append an event, fold it, tell every subscriber. A failing subscriber disturbs nothing.

        Raises:
            StorageFailed: it could not be written; nothing changed.
        """
        with self._lock:
            ts = self.runtime.now()
            entries = self._store.append(self.folder.experiment_id, event, ts=ts, is_durable=is_durable)
            self._state = events.follow(self._state, event, ts)
            told = events.wire_event(event, seq=entries[-1].seq, ts=ts) if self._subscribers else {}
            subscribers = tuple(self._subscribers)
        for tell in subscribers:
            with contextlib.suppress(Exception):  # whatever a host's code does, the experiment goes on
                tell(dict(told))

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
            JournalBroken: a line cannot be trusted; named by file and line.
        """
        for entry, event in self._store.events(self.folder.experiment_id):
            yield events.wire_event(event, seq=entry.seq, ts=entry.ts)

    def usage(self, *, cost_usd: object = 0.0, runs: int = 0, trials: int = 0) -> ExperimentUsage:
        """The usage by now plus the given amounts; not recorded yet.

        Raises:
            UsageError: the cost is not valid.
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
    for _, entry in walk(path, is_left_out=lambda name, _: name == skip):
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
    numbers = (name.split("-")[1] for name in names if name.count("-") >= 2)  # trial, number, stage
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
        evaluators: the frozen evaluators.
        worktrees: the two worktrees.
    """

    def __init__(self, log: ExperimentLog, evaluators: FrozenEvaluators, worktrees: WorktreePair) -> None:
        self.log = log
        self.evaluators = evaluators
        self.worktrees = worktrees
        self.under_way: Operation | None = None
        self._own_changes: frozenset[str] = frozenset()  # what the incumbent's own runs leave changed
        self._bare: set[Arm] = set()  # worktrees whose kept paths were removed
        self._ready: dict[Arm, str] = {}  # worktrees that are set up and warm, and at which commit

    @property
    def config(self) -> ExperimentConfig:
        """The current configuration: limits may have been extended."""
        return self.log.state.config

    @property
    def operation(self) -> Operation:
        """The call of the controller that is under way.

        Raises:
            StepIllegal: no call is under way.
        """
        if self.under_way is None:
            raise StepIllegal("the controller is not at work", next_step="call a method of the controller")
        return self.under_way

    # --- both worktrees

    def set_to(self, tree: Arm, commit: str) -> None:
        """Make a worktree equal to a commit; it must then be set up and warmed again.

        Raises:
            WorkspaceFault: it cannot be done.
        """
        self._ready.pop(tree, None)
        if tree.set_to(commit):
            self._bare.add(tree)

    def restore(self) -> None:
        """Make both worktrees equal to the incumbent; its own stays untouched where it is ready at that commit.

        Raises:
            WorkspaceFault: it cannot be done.
        """
        commit = self.log.state.incumbent_commit
        self.set_to(self.worktrees.candidate, commit)
        if self._ready.get(self.worktrees.incumbent) != commit:
            self.set_to(self.worktrees.incumbent, commit)

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
            reason=f"its controller was killed{self.log.folder.kept_change(row.iteration)}",
            ended_at=self.log.runtime.now(),
        )
        self.log.record(events.step_taken(self.log.state, events.TrialFailed, ended, self.log.usage()))

    # --- whether a worktree is ready to be measured

    def is_ready(self, tree: Arm) -> bool:
        """True where the worktree is set up and warm, and still at that commit."""
        return self._ready.get(tree) == tree.commit

    def note_ready(self, tree: Arm) -> None:
        """The worktree was set up and warmed."""
        self._ready[tree] = tree.commit
        if tree is self.worktrees.incumbent:
            self._own_changes = frozenset(tree.drift())

    def is_bare(self, tree: Arm) -> bool:
        """True where the worktree's kept paths are gone until its next set-up."""
        return tree in self._bare

    def note_set_up(self, tree: Arm) -> None:
        """The set-up was run in a worktree.

        What it made in kept paths may stay only where it was made from the incumbent: a candidate's own set-up may
        have put anything there, and goes with its candidate.
        """
        self._bare.discard(tree)
        if self.config.keep and tree.commit == self.log.state.incumbent_commit:
            tree.seal()

    # --- the incumbent's worktree, to which an agent or a candidate may have reached over

    def foreign_changes(self) -> tuple[str, ...]:
        """Paths of the incumbent's worktree that changed otherwise than by its own set-up and first runs."""
        return tuple(sorted(set(self.worktrees.incumbent.drift()) - self._own_changes))

    def begin_refresh(self) -> Callable[[], None]:
        """Look at the incumbent's worktree while something else is done; returns what makes it right again."""
        tree = self.worktrees.incumbent
        looking = ThreadPoolExecutor(1)
        looked = looking.submit(lambda: tree not in self._ready or bool(self.foreign_changes()))

        def finish() -> None:
            with looking:
                if looked.result():
                    self.set_to(tree, self.log.state.incumbent_commit)

        return finish
