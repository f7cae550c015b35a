"""What ends the work early: a cancellation, the request of another process, or a step of a trial that found a reason.

Whatever ends a trial early is raised as a `TrialAborted` by the step that found it, and caught in one place.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.errors import StateUntrusted, StorageFailed
from omx_autoresearch.journal.safe_files import read_bounded, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.experiments.judge.state import TrialStatus
    from omx_autoresearch.experiments.store import ExperimentFolder

REQUESTS = ("stop", "cancel")
POLL_SECONDS = 0.2
"""How often a controller looks for requests."""
_REQUEST_LIMIT_BYTES = 100


class AutoresearchCancellation:
    """Whether the work is to end now.

    A callback gets one of its own: set when the experiment is cancelled, when its own time is over, or when a budget
    is spent. Calling `cancel` on it cancels the experiment.

    Args:
        parent: the experiment's; None for the experiment's own.
    """

    def __init__(self, parent: AutoresearchCancellation | None = None) -> None:
        self._parent = parent
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._watchers: dict[int, Callable[[], None]] = {}
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

    def watch(self, tell: Callable[[], None]) -> Callable[[], None]:
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
        """What `cancel` does after the signal: wait for the step under way and complete (the controller's)."""
        self._finish = finish

    def detach(self) -> None:
        """Stop following the parent; a later cancellation of the experiment is none of this one's any more."""
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
    """The candidate was found wanting."""
    return TrialAborted("rejected", code, reason)


def failed(code: str, reason: str) -> TrialAborted:
    """The candidate could not be judged."""
    return TrialAborted("failed", code, reason)


# --- requests of other processes: a small file in the experiment's folder, watched by the controller at work


def put_request(folder: ExperimentFolder, request: str) -> None:
    """Ask the controller at work to ``stop`` after its trial, or to ``cancel`` now; a cancel is never weakened."""
    if request == "stop" and pending_request(folder) == "cancel":
        return
    replace_file(folder.request_path, request.encode())


def pending_request(folder: ExperimentFolder) -> str:
    """What is asked for; empty where nothing is, or nothing that anybody knows."""
    try:
        text = read_bounded(folder.request_path, _REQUEST_LIMIT_BYTES).decode("ascii", "replace").strip()
    except (FileNotFoundError, StateUntrusted):
        return ""
    return text if text in REQUESTS else ""


def clear_request(folder: ExperimentFolder) -> None:
    """Take a request back that was followed, or that a resume overtook."""
    try:
        os.unlink(folder.request_path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageFailed(f"{folder.request_path} cannot be removed: {error.strerror}") from error


class RequestWatch:
    """A thread that tells requests to a controller, for as long as it is at work.

    Args:
        folder: of the experiment.
        follow: what a request does; called at most once for each new content.
        poll_seconds: between two looks.
    """

    def __init__(
        self, folder: ExperimentFolder, follow: Callable[[str], None], *, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self._folder = folder
        self._follow = follow
        self._poll_seconds = poll_seconds
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
        while not self._ended.wait(self._poll_seconds):
            request = pending_request(self._folder)
            if request and request != told:
                told = request
                self._follow(request)
