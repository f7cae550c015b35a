"""Cancelling: one explicit signal that commands, callbacks and hosts honour; thread-safe."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


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
                weakref.finalize(self, _close, *self._pipe)
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


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
