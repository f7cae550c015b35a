"""The experiment store: the one module that writes the log of an experiment and folds it.

    experiments/{experiment_id}/   events.jsonl (the truth)  events.lock  work/  frozen/  held-out/  outputs/  prompts/

The log has the line shape, the chain and the durability of a mission's journal. Only the controller that holds the
repository appends (`Holds`); readers take no lock.
"""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Callable, Iterator
from datetime import datetime

from omx_autoresearch.experiments.judge.events import KINDS, ExperimentEvent, follow
from omx_autoresearch.experiments.judge.state import ExperimentState
from omx_autoresearch.foundation.errors import StateUntrusted, StepIllegal, UsageError
from omx_autoresearch.foundation.json_codec import encode
from omx_autoresearch.foundation.records import ShapeError, dataclass, from_plain, sha256, to_plain
from omx_autoresearch.journal import safe_files
from omx_autoresearch.journal.layout import StateHome, is_safe_task_id, slugify, task_id
from omx_autoresearch.journal.log import Journal
from omx_autoresearch.journal.reader import EVENTS_NAME, Entry, broken

_NEXT = "omx-autoresearch experiment list"


class ExperimentFolder:
    """One experiment's folder in the state home: ``experiments/{experiment_id}``.

    Attributes:
        experiment_id: the folder's name.
        journal_path: ``events.jsonl``, the truth.
        lock_path: only ever locked.
        torn_path: torn last lines that were set aside.
        index_path: disposable.
        work_path: the two worktrees.
        frozen_path: copies of the pinned evaluator files.
        held_out_path: the private copy of the held-out check.
        outputs_path: the whole output of each run.
        prompts_path: what the agent was told, a file a trial.
        scratch_path: private temporary folders of the runs.
        request_path: what another process asks of the controller at work, ``stop`` or ``cancel``.
        private_paths: what a run in a box must not see: this folder, and all other state of missions and experiments.
    """

    def __init__(self, root_path: str) -> None:
        self.root_path = root_path
        self.experiment_id = os.path.basename(root_path)
        self.journal_path = os.path.join(root_path, EVENTS_NAME)
        self.lock_path = os.path.join(root_path, "events.lock")
        self.torn_path = os.path.join(root_path, "torn")
        self.index_path = os.path.join(root_path, "index.sqlite")
        self.work_path = os.path.join(root_path, "work")
        self.frozen_path = os.path.join(root_path, "frozen")
        self.held_out_path = os.path.join(root_path, "held-out")
        self.outputs_path = os.path.join(root_path, "outputs")
        self.prompts_path = os.path.join(root_path, "prompts")
        self.scratch_path = os.path.join(root_path, "scratch")
        self.request_path = os.path.join(root_path, "request")
        home = StateHome(os.path.dirname(os.path.dirname(root_path)))
        self.private_paths = (root_path, *home.record_paths)

    def change_path(self, iteration: int) -> str:
        """The path that keeps a trial's patch from before the trial, and for good where it is not accepted."""
        return os.path.join(self.root_path, f"candidate-{iteration:04}.patch")

    def kept_path(self, iteration: int) -> str:
        """The patch of a trial; empty where it was accepted or the change did not come as a patch."""
        path = self.change_path(iteration)
        return path if os.path.exists(path) else ""

    def kept_change(self, iteration: int) -> str:
        """Words that name the patch of a trial; empty where there is none."""
        path = self.kept_path(iteration)
        return f"; its change is kept in {path}" if path else ""


class ExperimentStore:
    """The experiments of one state home.

    Args:
        home: the state home.
    """

    def __init__(self, home: StateHome) -> None:
        self.home = home

    def folder(self, experiment_id: str) -> ExperimentFolder:
        """The folder of an experiment, whether it exists or not.

        Raises:
            UsageError: the id is not a safe name, so it names no experiment.
        """
        if not is_safe_task_id(experiment_id):
            raise UsageError(f"{experiment_id[:80]!r} is not the name of an experiment", next_step=_NEXT)
        return ExperimentFolder(os.path.join(self.home.experiments_path, experiment_id))

    def exists(self, experiment_id: str) -> bool:
        """True when there is a log of this id.

        Raises:
            StorageFailed: the state home cannot be read; absence is not proven.
        """
        if not is_safe_task_id(experiment_id):
            return False
        return safe_files.is_there(self.folder(experiment_id).journal_path)

    def list_ids(self) -> tuple[str, ...]:
        """Ids of all experiments whose log has begun, newest first.

        Raises:
            StorageFailed: the state home cannot be read.
        """
        names = [name for name in safe_files.names_in(self.home.experiments_path) if self._has_begun(name)]
        return tuple(sorted(names, key=self._begun_at, reverse=True))

    def _begun_at(self, experiment_id: str) -> tuple[str, int]:
        """The second in the id; within one second, when the lock was made: nothing ever writes it again."""
        try:
            made_ns = os.stat(self.folder(experiment_id).lock_path).st_mtime_ns
        except OSError:
            made_ns = 0
        return experiment_id[:15], made_ns

    def find(self, words: str) -> str:
        """The id that a person means by an id, or by the unique beginning or slug of one.

        Raises:
            UsageError: no experiment matches, or several do; they are named.
        """
        if self.exists(words):
            return words
        found = [name for name in self.list_ids() if name.startswith(words) or name[16:] == words]
        if len(found) != 1:
            problem = (
                f"matches {len(found)} experiments ({', '.join(found[:5])})"
                if found
                else "matches no experiment"
            )
            raise UsageError(f"{words[:80]!r} {problem}", next_step=_NEXT)
        return found[0]

    def is_unbegun(self, experiment_id: str) -> bool:
        """True for an experiment's folder whose log never got an event."""
        if not is_safe_task_id(experiment_id):
            return False
        return os.path.isdir(self.folder(experiment_id).root_path) and not self._has_begun(experiment_id)

    def _has_begun(self, name: str) -> bool:
        """Not one that was killed before its first event."""
        return self.exists(name) and os.path.getsize(self.folder(name).journal_path) > 0

    def create(self, name: str, now: datetime) -> ExperimentFolder:
        """Make the folder of a new experiment (exclusively) with an empty log.

        Raises:
            StorageFailed: the state home cannot be written.
        """
        safe_files.ensure_folder(self.home.experiments_path)
        stem = task_id(now, slugify(name))
        names = itertools.chain((stem,), (f"{stem}-{number}" for number in itertools.count(2)))
        folder = next(folder for folder in map(self.folder, names) if _is_made(folder.root_path))
        try:
            safe_files.sync_folder(self.home.experiments_path)
        except OSError as error:
            raise safe_files.storage_failed("sync", self.home.experiments_path, error) from error
        Journal(folder).create()
        return folder

    def append(
        self, experiment_id: str, *events: ExperimentEvent, ts: str, is_durable: bool = True
    ) -> tuple[Entry, ...]:
        """Record events: one lock, one write, one fsync.

        Args:
            experiment_id: whose log.
            events: in order.
            ts: the time of all of them.
            is_durable: False where a power cut may take them, though no kill, until the next durable one.

        Raises:
            StorageFailed: the system refused; nothing of the batch remains.
            JournalBroken: the log is missing, or its last line is no record.
        """
        drafts = [(event.kind, to_plain(event)) for event in events]
        with Journal(self.folder(experiment_id)).locked() as tail:
            return tail.append(drafts, ts=ts, is_durable=is_durable)

    def read(self, experiment_id: str) -> Iterator[Entry]:
        """Every line of the log, verified on the way.

        Raises:
            UsageError: there is no such experiment.
            JournalBroken: a line is no record or does not continue the one before; named by file and line.
        """
        return self._journal(experiment_id).read()

    def events(self, experiment_id: str) -> Iterator[tuple[Entry, ExperimentEvent]]:
        """Every line with the event that it is.

        Raises:
            JournalBroken: a line is no event; named by file and line.
        """
        journal = self._journal(experiment_id)
        for entry in journal.read():
            yield entry, _event_of(entry, journal.path)

    def load(self, experiment_id: str) -> ExperimentState:
        """The state that the log folds to.

        Raises:
            UsageError: there is no such experiment, or it never began.
            JournalBroken: a line cannot be trusted; named by file and line.
        """
        state: ExperimentState | None = None
        for entry, event in self.events(experiment_id):
            if state is None and entry.kind != "started":
                raise broken(
                    self.folder(experiment_id).journal_path, entry.seq, f"{entry.kind} comes before started"
                )
            state = follow(state, event, entry.ts)
        if state is None:
            raise UsageError(f"experiment {experiment_id} never began: its log is empty", next_step=_NEXT)
        return state

    def _journal(self, experiment_id: str) -> Journal:
        if not self.exists(experiment_id):
            raise UsageError(f"there is no experiment {experiment_id[:80]!r}", next_step=_NEXT)
        return Journal(self.folder(experiment_id))


def _is_made(path: str) -> bool:
    """Make a new folder; False if the name is taken."""
    try:
        os.mkdir(path, mode=0o700)
    except FileExistsError:
        return False
    except OSError as error:
        raise safe_files.storage_failed("make the folder", path, error) from error
    return True


def _event_of(entry: Entry, path: str) -> ExperimentEvent:
    if entry.kind not in KINDS:
        raise broken(path, entry.seq, f"event kind {entry.kind!r} is unknown: a newer version wrote it")
    try:
        event: ExperimentEvent = from_plain(KINDS[entry.kind], entry.data)
    except ShapeError as error:
        raise broken(path, entry.seq, str(error)) from None
    return event


# --- Who holds a repository: one controller at a time, whichever experiment it works on.
#
# A hold is a lock on a small file that names its holder. The system releases the lock when the holder dies, whatever
# the cause. A child of the holder may still keep the lock (a callback may fork); then the name in the file decides: if
# its pid is gone, or belongs to a process with another start time, the hold is void and its file is replaced.


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a repository.

    Attributes:
        pid: of the controller's process.
        process_started: its start time, so that a later process with that pid is not taken for it.
        experiment_id: what it works on.
        since: when it took the hold, ISO 8601 UTC.
        common_dir: the git directory that all worktrees of the repository share.
    """

    pid: int
    process_started: str
    experiment_id: str
    since: str
    common_dir: str


class Hold:
    """The hold of one repository, until `release` or the end of the ``with``."""

    __slots__ = ("_descriptor", "holder", "path")

    def __init__(self, path: str, holder: Holder, descriptor: int) -> None:
        self.path = path
        self.holder = holder
        self._descriptor = descriptor

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let the repository go; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)


class Holds:
    """All holds of a state home.

    Args:
        home: the state home.
        is_alive: whether exactly the process of this pid and start time still runs.
    """

    def __init__(self, home: StateHome, is_alive: Callable[[int, str], bool]) -> None:
        self._folder_path = os.path.join(home.experiments_path, "holds")
        self._is_alive = is_alive

    def take(self, holder: Holder) -> Hold:
        """Hold the repository of ``holder.common_dir``.

        Raises:
            StepIllegal: another process does; the message says who, since when, for which experiment.
            StorageFailed: the system refused.
        """
        safe_files.ensure_folder(self._folder_path)
        path = self._path(holder.common_dir)
        with safe_files.Lock(os.path.join(self._folder_path, "lock")):
            descriptor = self._locked(path)
            if descriptor < 0:
                other = self._named(path)
                if other is None or self._is_alive(other.pid, other.process_started):
                    raise _held(path, other)
                self._remove(path)  # its holder is gone; a child that it forked keeps only the removed file
                descriptor = self._locked(path)
                if descriptor < 0:
                    raise _held(path, None)
            try:
                os.ftruncate(descriptor, 0)
                safe_files.write_all(descriptor, encode(to_plain(holder)))
            except OSError as error:
                os.close(descriptor)
                raise safe_files.storage_failed("write", path, error) from error
        return Hold(path, holder, descriptor)

    def holder_of(self, common_dir: str) -> Holder | None:
        """The current holder of a repository, or None."""
        path = self._path(common_dir)
        if not os.path.exists(path):
            return None
        with safe_files.Lock(os.path.join(self._folder_path, "lock")):
            descriptor = self._locked(path)
            if descriptor >= 0:
                os.close(descriptor)
                return None
            other = self._named(path)
        return other if other is not None and self._is_alive(other.pid, other.process_started) else None

    def _path(self, common_dir: str) -> str:
        digest = sha256(os.fsencode(os.path.realpath(common_dir))).hexdigest()
        return os.path.join(self._folder_path, digest)

    def _locked(self, path: str) -> int:
        """A descriptor that has the lock; -1 where another has it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise safe_files.storage_failed("open", path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return -1
        except OSError as error:
            os.close(descriptor)
            raise safe_files.storage_failed("lock", path, error) from error
        return descriptor

    def _named(self, path: str) -> Holder | None:
        try:
            holder: Holder = from_plain(Holder, safe_files.load_json(path))
        except (FileNotFoundError, StateUntrusted, ShapeError):
            return None
        return holder

    def _remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except OSError as error:
            raise safe_files.storage_failed("remove", path, error) from error


def _held(path: str, other: Holder | None) -> StepIllegal:
    if other is None:
        return StepIllegal(
            f"another process holds this repository for an experiment ({path})",
            next_step="omx-autoresearch experiment status",
        )
    return StepIllegal(
        f"process {other.pid} has held this repository since {other.since} for the experiment {other.experiment_id}",
        next_step=f"wait for it, or: omx-autoresearch experiment stop {other.experiment_id}",
    )
