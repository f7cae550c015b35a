"""Who holds a repository: one controller at a time, whichever experiment it works on.

A hold is a lock on a small file that names its holder. The system lets the lock go when the holder dies, however it
dies. Where a child of the holder still keeps it (a callback may fork), the name in the file tells: a holder whose pid
is gone or belongs to a process that began at another time holds nothing, and its file is replaced.
"""

from __future__ import annotations

import fcntl
import os

from omx_autoresearch.core.digests import sha256
from omx_autoresearch.core.shape import ShapeError, from_plain, to_plain
from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import StateUntrusted, StepIllegal
from omx_autoresearch.storage.atomic import ensure_folder, load_json, lock, storage_failed, write_all
from omx_autoresearch.storage.strictjson import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from omx_autoresearch.storage.layout import StateHome


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a repository.

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            StepIllegal: somebody else does; the message says who, since when, for which experiment.
            StorageFailed: the system refused.
        """
        ensure_folder(self._folder_path)
        path = self._path(holder.common_dir)
        with lock(os.path.join(self._folder_path, "lock")):
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
                write_all(descriptor, encode(to_plain(holder)))
            except OSError as error:
                os.close(descriptor)
                raise storage_failed("write", path, error) from error
        return Hold(path, holder, descriptor)

    def holder_of(self, common_dir: str) -> Holder | None:
        """Who holds a repository now, None where nobody does."""
        path = self._path(common_dir)
        if not os.path.exists(path):
            return None
        with lock(os.path.join(self._folder_path, "lock")):
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
            raise storage_failed("open", path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return -1
        except OSError as error:
            os.close(descriptor)
            raise storage_failed("lock", path, error) from error
        return descriptor

    def _named(self, path: str) -> Holder | None:
        try:
            holder: Holder = from_plain(Holder, load_json(path))
        except (FileNotFoundError, StateUntrusted, ShapeError):
            return None
        return holder

    def _remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except OSError as error:
            raise storage_failed("remove", path, error) from error


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
