"""The controller for hosts that run an event loop: the same methods as coroutines, callbacks may be coroutines.

The work is done in threads; the loop stays free. A cancelled ``await`` interrupts the step and waits for its rollback
before the cancellation goes on.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from omx_autoresearch.experiments.context import AutoresearchCancellation, Subscriber
from omx_autoresearch.experiments.controller import AutoresearchController
from omx_autoresearch.experiments.final_patch import FinalPatch, PatchAcceptance
from omx_autoresearch.experiments.judge.state import (
    Claim,
    CompletedReason,
    ExperimentConfig,
    ExperimentHypothesis,
    ExperimentState,
    HypothesisOutcome,
    Isolation,
    TrialRow,
)
from omx_autoresearch.experiments.trial import ExperimentWorkspace
from omx_autoresearch.journal.layout import Runtime

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
AsyncCallback = Callable[[ExperimentWorkspace], HypothesisOutcome | Awaitable[HypothesisOutcome]]


class AsyncAutoresearchController:
    """An `AutoresearchController` to await; made by `start` or `resume`.

    Args:
        controller: the controller that does the work.
    """

    def __init__(self, controller: AutoresearchController) -> None:
        self._controller = controller

    @classmethod
    async def start(  # noqa: PLR0913  # as the controller's own
        cls,
        root_path: str,
        config: ExperimentConfig,
        *,
        runtime: Runtime | None = None,
        home_path: str = "",
        environ: Mapping[str, str] | None = None,
        task_id: str = "",
    ) -> Self:
        """Begin an experiment; arguments and errors as `AutoresearchController`."""
        make = functools.partial(
            AutoresearchController,
            root_path,
            config,
            runtime=runtime,
            home_path=home_path,
            environ=environ,
            task_id=task_id,
        )
        return cls(await asyncio.to_thread(make))

    @classmethod
    async def resume(cls, experiment_id: str, **options: Any) -> Self:
        """Take an experiment up; arguments and errors as `AutoresearchController.resume`."""
        return cls(await asyncio.to_thread(AutoresearchController.resume, experiment_id, **options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def experiment_id(self) -> str:
        """Its name on disk."""
        return self._controller.experiment_id

    @property
    def state(self) -> ExperimentState:
        """Where it stands."""
        return self._controller.state

    @property
    def cancellation(self) -> AutoresearchCancellation:
        """The signal that ends it; its ``cancel`` blocks, `cancel` here does not."""
        return self._controller.cancellation

    def session_dir(self) -> str:
        """The folder with ``events.jsonl``."""
        return self._controller.session_dir()

    def subscribe(self, tell: Subscriber) -> Callable[[], None]:
        """Tell ``tell`` every event, in the thread of the work; returns what takes it back."""
        return self._controller.subscribe(tell)

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event so far, as subscribers heard it."""
        return self._controller.events()

    async def set_command_sandbox(self, sandbox: Isolation) -> None:
        """As `AutoresearchController.set_command_sandbox`."""
        await self._run(self._controller.set_command_sandbox, sandbox)

    async def establish_baseline(self) -> ExperimentState:
        """As `AutoresearchController.establish_baseline`."""
        return await self._run(self._controller.establish_baseline)

    async def run_iteration(self, hypothesis: ExperimentHypothesis, callback: AsyncCallback) -> TrialRow:
        """As `AutoresearchController.run_iteration`; a coroutine runs in this loop and is cancelled with its trial."""
        loop = asyncio.get_running_loop()

        def play(workspace: ExperimentWorkspace) -> HypothesisOutcome:
            return _played(loop, callback, workspace)

        return await self._run(self._controller.run_iteration, hypothesis, play)

    async def verify_claim(self) -> Claim:
        """As `AutoresearchController.verify_claim`."""
        return await self._run(self._controller.verify_claim)

    async def final_patch(self) -> FinalPatch:
        """As `AutoresearchController.final_patch`."""
        return await self._run(self._controller.final_patch)

    async def accept_final_patch(self) -> PatchAcceptance:
        """As `AutoresearchController.accept_final_patch`."""
        return await self._run(self._controller.accept_final_patch)

    async def complete(self, reason: CompletedReason = "explicit", detail: str = "") -> ExperimentState:
        """As `AutoresearchController.complete`."""
        return await self._run(self._controller.complete, reason, detail)

    async def cancel(self) -> None:
        """Cancel the experiment and wait for the rollback and `completed`."""
        await asyncio.to_thread(self._controller.cancellation.cancel)

    async def close(self) -> None:
        """Let go of the repository."""
        await asyncio.to_thread(self._controller.close)

    async def _run(self, work: Callable[Given, Answer], *args: Given.args, **options: Given.kwargs) -> Answer:
        task = asyncio.ensure_future(asyncio.to_thread(work, *args, **options))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._controller.interrupt()
            await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()  # seen: what the step raised while it was ended is nobody's any more
            raise


def _played(
    loop: asyncio.AbstractEventLoop, callback: AsyncCallback, workspace: ExperimentWorkspace
) -> HypothesisOutcome:
    """Run a callback of either kind, from the controller's thread."""
    outcome = callback(workspace)
    if isinstance(outcome, HypothesisOutcome) or not inspect.isawaitable(outcome):
        return outcome

    waited = _Waited(loop, outcome)
    unwatch = workspace.cancellation.watch(waited.cancel)
    try:
        return waited.result()
    finally:
        unwatch()


class _Waited:
    """An awaitable that a thread waits for, to its very end: a cancelled coroutine may still clean up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, awaited: Awaitable[HypothesisOutcome]) -> None:
        self._loop = loop
        self._awaited = awaited
        self._ended = threading.Event()
        self._task: asyncio.Task[HypothesisOutcome] | None = None
        loop.call_soon_threadsafe(self._start)

    def cancel(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel)

    def result(self) -> HypothesisOutcome:
        self._ended.wait()
        if self._task is None:
            raise RuntimeError("the coroutine was never started")
        return self._task.result()

    async def _wait(self) -> HypothesisOutcome:
        return await self._awaited

    def _start(self) -> None:
        self._task = self._loop.create_task(self._wait())
        self._task.add_done_callback(lambda _: self._ended.set())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
