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
    from collections.abc import Callable, Iterator
    from typing import Any

    from omx_autoresearch.core.experiment_events import ExperimentEvent
    from omx_autoresearch.core.experiments import ExperimentState, ExperimentUsage
    from omx_autoresearch.runtime.context import Runtime
    from omx_autoresearch.storage.experiments import ExperimentFolder, ExperimentStore

    Subscriber = Callable[[dict[str, Any]], object]


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


def _last_number(outputs_path: str) -> int:
    """The largest run number among the outputs; 0 where there is none."""
    try:
        names = os.listdir(outputs_path)
    except FileNotFoundError:
        return 0
    numbers = (name.split("-")[1] for name in names if name.count("-") >= _NAME_PARTS)
    return max((int(number) for number in numbers if number.isdecimal()), default=0)
