"""What a controller remembers while it works: the state, the log behind it, what is spent, who listens."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from omx_autoresearch.core.experiment_budget import charge
from omx_autoresearch.core.experiment_events import wire_event
from omx_autoresearch.core.values import replace
from omx_autoresearch.errors import StateUntrusted

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from omx_autoresearch.core.experiment_events import ExperimentEvent
    from omx_autoresearch.core.experiments import ExperimentState, ExperimentUsage
    from omx_autoresearch.runtime.context import Runtime
    from omx_autoresearch.storage.experiments import ExperimentFolder, ExperimentStore

    Subscriber = Callable[[dict[str, Any]], object]


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

    def usage(self, *, cost_usd: object = 0.0, runs: int = 0, trials: int = 0) -> ExperimentUsage:
        """What is spent by now, with what is added here; not recorded yet.

        Raises:
            UsageError: the cost is no cost.
        """
        with self._lock:
            known = charge(self.state.usage, cost_usd=cost_usd, runs=runs, trials=trials)
            return replace(known, wall_seconds=self.wall_seconds())

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
    waiting = [path]
    while waiting:
        folder_path = waiting.pop()
        try:
            with os.scandir(folder_path) as entries:
                for entry in entries:
                    if skip and folder_path == path and entry.name == skip:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return total
