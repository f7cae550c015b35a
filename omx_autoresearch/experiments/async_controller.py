"""The controller for hosts that run an event loop: the same methods as coroutines, callbacks may be coroutines.

The work is done in threads; the loop stays free. A cancelled ``await`` interrupts the step and waits for its rollback
before the cancellation goes on.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from omx_autoresearch.experiments.controller import AutoresearchController
from omx_autoresearch.experiments.judge.state import (
    ExperimentConfig,
    ExperimentHypothesis,
    ExperimentState,
    HypothesisOutcome,
    TrialRow,
)
from omx_autoresearch.experiments.trial import ExperimentWorkspace

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
AsyncCallback = Callable[[ExperimentWorkspace], HypothesisOutcome | Awaitable[HypothesisOutcome]]


def _in_thread(
    work: Callable[Concatenate[AutoresearchController, Given], Answer],
) -> Callable[Concatenate[AsyncAutoresearchController, Given], Coroutine[Any, Any, Answer]]:
    """A method of the controller as a coroutine: the work is done in a thread, and a cancelled await rolls it back."""

    @functools.wraps(work)
    async def awaited(
        self: AsyncAutoresearchController, /, *args: Given.args, **options: Given.kwargs
    ) -> Answer:
        controller = self._controller  # the class below
        task = asyncio.ensure_future(asyncio.to_thread(work, controller, *args, **options))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            controller.interrupt()
            await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()  # retrieved, since no caller is left to receive the exception of the interrupted step
            raise

    return awaited


class AsyncAutoresearchController:
    """An `AutoresearchController` to await; made by `start` or `resume`.

    Args:
        controller: the controller that does the work.
    """

    def __init__(self, controller: AutoresearchController) -> None:
        self._controller = controller
        self.experiment_id = controller.experiment_id
        self.cancellation = controller.cancellation  # its ``cancel`` blocks, `cancel` here does not
        self.session_dir = controller.session_dir
        self.subscribe = controller.subscribe
        self.events = controller.events

    @classmethod
    async def start(cls, root_path: str, config: ExperimentConfig, **options: Any) -> Self:
        """Begin an experiment; arguments and errors as `AutoresearchController`."""
        return cls(await asyncio.to_thread(AutoresearchController, root_path, config, **options))

    @classmethod
    async def resume(cls, experiment_id: str, **options: Any) -> Self:
        """Take an experiment up; arguments and errors as `AutoresearchController.resume`."""
        return cls(await asyncio.to_thread(AutoresearchController.resume, experiment_id, **options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *fault: object) -> None:
        await self.close()

    @property
    def state(self) -> ExperimentState:
        """The state as of the newest event."""
        return self._controller.state

    set_command_sandbox = _in_thread(AutoresearchController.set_command_sandbox)
    establish_baseline = _in_thread(AutoresearchController.establish_baseline)
    verify_claim = _in_thread(AutoresearchController.verify_claim)
    final_patch = _in_thread(AutoresearchController.final_patch)
    accept_final_patch = _in_thread(AutoresearchController.accept_final_patch)
    complete = _in_thread(AutoresearchController.complete)
    _run_iteration = _in_thread(AutoresearchController.run_iteration)

    async def run_iteration(self, hypothesis: ExperimentHypothesis, callback: AsyncCallback) -> TrialRow:
        """As `AutoresearchController.run_iteration`; a coroutine runs in this loop and is cancelled with its trial."""
        loop = asyncio.get_running_loop()
        return await self._run_iteration(hypothesis, lambda workspace: _played(loop, callback, workspace))

    async def cancel(self) -> None:
        """Cancel the experiment and wait for the rollback and `completed`."""
        await asyncio.to_thread(self.cancellation.cancel)

    async def close(self) -> None:
        """Let go of the repository."""
        await asyncio.to_thread(self._controller.close)


def _played(
    loop: asyncio.AbstractEventLoop, callback: AsyncCallback, workspace: ExperimentWorkspace
) -> HypothesisOutcome:
    """Run a callback of either kind from the controller's thread, to its very end: a coroutine may still clean up."""
    outcome = callback(workspace)
    if not inspect.isawaitable(outcome):
        return outcome

    async def play() -> HypothesisOutcome:
        task = asyncio.ensure_future(outcome)
        unwatch = workspace.cancellation.watch(lambda: loop.call_soon_threadsafe(task.cancel))
        await asyncio.wait((task,))
        unwatch()
        return task.result()

    return asyncio.run_coroutine_threadsafe(play(), loop).result()
