"""A trial in a process of its own: it outlives its caller, who waits for it in bounded steps.

The process writes its identity and its result into a note in the experiment's folder; only the log says how the trial
ended. One such trial runs at a time. If its process is killed, the next controller records the trial as interrupted.

The candidate exists before the trial: as a patch, or as a change in the candidate's worktree. A controller restores
that worktree before a trial begins, so the change is first taken as a patch, while the repository is held, and the
trial's callback applies it again. The patch is kept until the trial is judged; a message of a failed or killed trial
names it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import replace

from omx_autoresearch.experiments.judge.state import (
    ExperimentHypothesis,
    ExperimentState,
    HypothesisOutcome,
    TrialRow,
    checked_hypothesis,
)
from omx_autoresearch.experiments.startup import hold_repository, this_process
from omx_autoresearch.experiments.store import ExperimentFolder, ExperimentStore
from omx_autoresearch.experiments.trial import ExperimentWorkspace
from omx_autoresearch.experiments.views import is_at_work
from omx_autoresearch.experiments.worktrees.pair import WorktreePair
from omx_autoresearch.experiments.worktrees.worktree import TreeFault
from omx_autoresearch.foundation.errors import (
    AutoresearchError,
    CommandFault,
    StepIllegal,
    UsageError,
    WorkspaceFault,
)
from omx_autoresearch.foundation.json_codec import encode
from omx_autoresearch.foundation.records import ShapeError, dataclass, from_plain, to_plain
from omx_autoresearch.journal.layout import Runtime
from omx_autoresearch.journal.safe_files import Lock, load_json, replace_file
from omx_autoresearch.system.commands import fork_detached
from omx_autoresearch.system.processes import ProcessIdentity, is_alive, wait_for

Tell = Callable[["TrialView"], object]

SLICE_SECONDS = 1.0
"""A waiting caller hears about progress this often."""
_BEGIN_SECONDS = 0.05
_NOTE, _LOCK = "background.json", "background.lock"


@dataclass(frozen=True, slots=True)
class TrialAsk:
    """A trial that is asked for.

    Attributes:
        hypothesis: the idea that is tried.
        patch: the candidate against the incumbent; empty for what stands in the candidate's worktree.
        request_id: by which its starter knows it again.
        cost_usd: what making the change cost, as its host says.
    """

    hypothesis: ExperimentHypothesis
    patch: bytes
    request_id: str
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class BackgroundTrial:
    """The note of a trial's process.

    Attributes:
        request_id: of the ask.
        pid: of the process.
        pid_started: its start time.
        started_at: when it began.
        iteration: the trial's number, once it has ended; 0 where there was none.
        has_ended: it is over.
        fault: why there was no trial; empty where there was one.
        next_step: what fixes that.
    """

    request_id: str
    pid: int
    pid_started: str
    started_at: str
    iteration: int = 0
    has_ended: bool = False
    fault: str = ""
    next_step: str = ""

    @property
    def process(self) -> ProcessIdentity:
        """The process that conducts the trial."""
        return ProcessIdentity(self.pid, self.pid_started)


@dataclass(frozen=True, slots=True)
class TrialView:
    """How a trial stands.

    Attributes:
        state: of the experiment.
        row: the trial; None before it was admitted, and where there was none.
        is_running: it goes on.
        fault: why there was no trial, or why it was not ended.
        next_step: what fixes that.
    """

    state: ExperimentState
    row: TrialRow | None
    is_running: bool
    fault: str = ""
    next_step: str = ""


def start_trial(
    runtime: Runtime, experiment_id: str, ask: TrialAsk, *, wait_seconds: float, tell: Tell | None = None
) -> TrialView:
    """Try one change; the trial goes on by itself after ``wait_seconds``.

    Args:
        runtime: clock, environment and state home.
        experiment_id: of the experiment.
        ask: what is tried.
        wait_seconds: how long to wait for its end.
        tell: told now and then how far it is.

    Raises:
        UsageError: nothing was changed, the hypothesis cannot be recorded, or the patch does not fit.
        StepIllegal: another trial is under way, another controller is at work, or the experiment is over.
        WorkspaceFault: what stands in the candidate's worktree cannot be tried.
        CommandFault: no process could be started.
    """
    checked_hypothesis(ask.hypothesis)
    store = ExperimentStore(runtime.home)
    folder = store.folder(experiment_id)
    state = store.load(experiment_id)
    if state.phase == "completed":
        raise StepIllegal(
            f"the experiment is completed: {state.completed_reason}",
            next_step=f"omx-autoresearch experiment report {experiment_id}",
        )
    _require_free(folder)
    patch_path = os.path.join(folder.root_path, f"candidate-{ask.request_id}.patch")
    replace_file(patch_path, take_candidate(runtime, experiment_id, ask.patch))
    child = fork_detached(lambda: conduct_trial(runtime, experiment_id, ask, patch_path))
    give_up_at = time.monotonic() + wait_seconds
    while not child.wait(min(SLICE_SECONDS, max(0.0, give_up_at - time.monotonic()))):
        note = _load_note(folder)
        has_begun = note is not None and note.request_id == ask.request_id
        if has_begun and time.monotonic() >= give_up_at:
            break
        if has_begun and tell is not None:
            tell(_view(store, experiment_id, note))
        elif not has_begun and child.wait(_BEGIN_SECONDS):
            break
    child.leave()
    note = _load_note(folder)
    if note is None or note.request_id != ask.request_id:
        _require_free(folder)
        raise CommandFault(
            "the trial ended without a result", next_step=f"your change is kept in {patch_path}"
        )
    return _view(store, experiment_id, note)


def wait_for_trial(
    runtime: Runtime, experiment_id: str, *, wait_seconds: float, tell: Tell | None = None
) -> TrialView:
    """Wait for the trial under way, or if there is none, tell how the newest one ended.

    Raises:
        UsageError: there is no such experiment.
    """
    store = ExperimentStore(runtime.home)
    folder = store.folder(experiment_id)
    give_up_at = time.monotonic() + wait_seconds
    awaited = 0
    while True:
        note = _load_note(folder)
        view = _view(store, experiment_id, note)
        number = view.row.iteration if view.row else 0
        if awaited and number != awaited and (ended := _row_of(view.state, awaited)) is not None:
            return TrialView(view.state, ended, is_running=False)  # the next one began meanwhile
        left_seconds = give_up_at - time.monotonic()
        if not view.is_running or left_seconds <= 0:
            return view
        awaited = number
        if tell is not None:
            tell(view)
        wait_for(_process_of(view, note), min(SLICE_SECONDS, left_seconds))


def conduct_trial(runtime: Runtime, experiment_id: str, ask: TrialAsk, patch_path: str) -> None:
    """Conduct one trial from the claim of the note to its end, in a process of its own."""
    from omx_autoresearch.experiments.controller import AutoresearchController

    store = ExperimentStore(runtime.home)
    folder = store.folder(experiment_id)
    note = _claim(runtime, folder, ask.request_id)
    if note is None:
        return  # another one was faster
    row: TrialRow | None = None
    fault, next_step = "", ""
    try:
        with AutoresearchController.resume(experiment_id, runtime=runtime) as controller:
            if controller.state.phase == "started":
                controller.establish_baseline()
            put_in = patched(folder, controller.state.next_iteration, patch_path, ask.cost_usd)
            row = controller.run_iteration(ask.hypothesis, put_in)
    except AutoresearchError as error:
        fault, next_step = error.message, error.next_step
    except Exception as error:  # noqa: BLE001 - no other process sees what happens in this one
        fault = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        next_step = "omx-autoresearch doctor"
    if fault and os.path.exists(patch_path):
        next_step = f"{next_step or 'look at the experiment'} (your change is kept in {patch_path})"
    ended = replace(note, has_ended=True, iteration=row.iteration if row else 0)
    _save_note(folder, replace(ended, fault=fault if row is None else "", next_step=next_step))


def _view(store: ExperimentStore, experiment_id: str, note: BackgroundTrial | None) -> TrialView:
    """The view of the newest trial, from its note and the log."""
    state = store.load(experiment_id)
    newest = state.rows[-1] if state.rows else None
    running = state.running_row
    if _is_under_way(note) or (running is not None and is_at_work(state)):
        return TrialView(state, running, is_running=True)
    if running is not None:
        kept = store.folder(experiment_id).kept_change(running.iteration)
        fault = f"trial {running.iteration} was interrupted: its process was killed{kept}"
        next_step = "try the change again; the interrupted trial is then recorded as failed"
        return TrialView(state, None, is_running=False, fault=fault, next_step=next_step)
    if note is not None and note.has_ended:
        row = _row_of(state, note.iteration)
        if newest is None or newest.started_at <= note.started_at or row is newest:
            return TrialView(state, row, is_running=False, fault=note.fault, next_step=note.next_step)
    elif note is not None and (newest is None or newest.started_at < note.started_at):
        fault = "the trial's process was killed before the trial began"
        return TrialView(state, None, is_running=False, fault=fault, next_step="try the change again")
    return TrialView(state, newest, is_running=False)


def _row_of(state: ExperimentState, iteration: int) -> TrialRow | None:
    return next((row for row in reversed(state.rows) if row.iteration == iteration), None)


def _process_of(view: TrialView, note: BackgroundTrial | None) -> ProcessIdentity:
    """Whose end ends the wait at the latest."""
    if note is not None and _is_under_way(note):
        return note.process
    return ProcessIdentity(view.state.controller_pid, view.state.controller_started)


# --- the note


def _is_under_way(note: BackgroundTrial | None) -> bool:
    return note is not None and not note.has_ended and is_alive(note.process)


def _require_free(folder: ExperimentFolder) -> None:
    note = _load_note(folder)
    if note is not None and _is_under_way(note):
        raise StepIllegal(
            f"a trial has been under way since {note.started_at}",
            next_step="wait for it (experiment_wait), then try the next change",
        )


def _claim(runtime: Runtime, folder: ExperimentFolder, request_id: str) -> BackgroundTrial | None:
    """Note that this process conducts a trial now; None where another one does."""
    myself = this_process()
    with Lock(os.path.join(folder.root_path, _LOCK)):
        if _is_under_way(_load_note(folder)):
            return None
        claimed = BackgroundTrial(request_id, myself.pid, myself.started, runtime.now())
        _save_note(folder, claimed)
    return claimed


def _load_note(folder: ExperimentFolder) -> BackgroundTrial | None:
    try:
        note: BackgroundTrial = from_plain(BackgroundTrial, load_json(os.path.join(folder.root_path, _NOTE)))
    except (FileNotFoundError, ShapeError):
        return None
    return note


def _save_note(folder: ExperimentFolder, note: BackgroundTrial) -> None:
    replace_file(os.path.join(folder.root_path, _NOTE), encode(to_plain(note)), is_durable=False)


PATCH_LIMIT_BYTES = 64 * 1024 * 1024
_REASON_LENGTH = 1000
_APPLY = ("apply", "--whitespace=nowarn")


def take_candidate(runtime: Runtime, experiment_id: str, patch: bytes = b"") -> bytes:
    """The candidate of the next trial as a patch against the incumbent: the given one, or what stands in the worktree.

    Raises:
        UsageError: there is no such experiment, nothing was changed, or the patch is too large.
        StepIllegal: a controller is at work, or there is a patch and a changed worktree.
        WorkspaceFault: what stands there cannot be taken (a nested repository, a file of a special kind).
    """
    if len(patch) > PATCH_LIMIT_BYTES:
        raise UsageError(
            f"the patch has {len(patch)} bytes; at most {PATCH_LIMIT_BYTES} are allowed",
            next_step="change the files in the candidate's worktree instead",
        )
    store = ExperimentStore(runtime.home)
    state = store.load(experiment_id)
    with hold_repository(runtime, state.project_path, experiment_id):
        state = store.load(experiment_id)  # its last holder may have written since
        folder, killed = store.folder(experiment_id), state.running_row
        worktrees = WorktreePair.open(folder.work_path)
        standing = b"" if killed is not None else _standing(worktrees)
    if patch.strip() and standing:
        raise StepIllegal(
            f"a patch was sent, but {worktrees.candidate.root_path} already holds changes",
            next_step="undo those changes, or leave the patch out",
        )
    if not patch.strip() and not standing:
        kept = folder.kept_change(killed.iteration) if killed else ""
        was_lost = f" (the last trial was killed{kept})" if killed else ""
        next_step = f"change files in {worktrees.candidate.root_path}, or send a patch (git diff)"
        if killed and kept:
            program = f"omx-autoresearch experiment trial --experiment {experiment_id}"
            next_step = f"{program} --patch {shlex.quote(folder.change_path(killed.iteration))}"
        raise UsageError(f"nothing was changed, so there is nothing to try{was_lost}", next_step=next_step)
    return patch if patch.strip() else standing


def _standing(worktrees: WorktreePair) -> bytes:
    """The change in the candidate's worktree against its commit, as a patch; empty for none."""
    tree = worktrees.candidate
    if not tree.commit or tree.is_lost():
        return b""  # killed in the middle of a restoration; what stands there is no candidate
    taken = tree.snapshot()
    if isinstance(taken, TreeFault):
        raise WorkspaceFault(
            f"the candidate's worktree cannot be tried: {taken.detail}",
            next_step=f"fix it in {tree.root_path}, then try again",
        )
    return worktrees.patch(tree.commit, taken.tree) if taken.changed else b""


def patched(
    folder: ExperimentFolder, iteration: int, patch_path: str, cost_usd: float
) -> Callable[[ExperimentWorkspace], HypothesisOutcome]:
    """The callback of the next trial, whose candidate is a patch; a copy stands under the trial's number from now on.

    So a process that is killed after the trial began leaves the change where everybody looks for it.

    Args:
        folder: of the experiment.
        iteration: the number of that trial.
        patch_path: the file with the patch.
        cost_usd: what the host reports for it.

    Raises:
        UsageError: the patch does not fit the candidate's worktree, in git's own words; no trial is spent on it.
    """
    tree = WorktreePair.open(folder.work_path).candidate
    tried = tree.git.run(*_APPLY, "--check", from_path=patch_path)
    if tried.exit_status != 0:
        raise UsageError(
            f"the patch does not fit the incumbent {tree.commit[:12]}: {tried.stderr[:_REASON_LENGTH]}",
            next_step=f"make it against the files in {tree.root_path}, or change the files there",
        )

    kept_path = folder.change_path(iteration)
    shutil.copyfile(patch_path, kept_path)

    def put_in(_: ExperimentWorkspace) -> HypothesisOutcome:
        os.unlink(patch_path)
        result = tree.git.run(*_APPLY, from_path=kept_path)
        if result.exit_status == 0:
            return HypothesisOutcome(cost_usd=cost_usd)
        reason = f"the patch could not be applied: {result.stderr[:_REASON_LENGTH]}"
        return HypothesisOutcome(cost_usd=cost_usd, fault="patch_failed", fault_reason=reason)

    return put_in
