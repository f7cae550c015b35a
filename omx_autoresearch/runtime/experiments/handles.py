"""A controller to be shared: an agent's host may attach it and use it later. Attaching starts nothing."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from omx_autoresearch.core.experiments import ExperimentState
    from omx_autoresearch.runtime.experiments.cancellation import AutoresearchCancellation
    from omx_autoresearch.runtime.experiments.controller import AutoresearchController


class ControllerHandle:
    """A shared controller; ``with handle as controller`` gives one holder at a time the use of it.

    Args:
        controller: that is shared.
    """

    def __init__(self, controller: AutoresearchController) -> None:
        self._controller = controller
        self._lock = threading.RLock()

    def __enter__(self) -> AutoresearchController:
        self._lock.acquire()
        return self._controller

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    @property
    def state(self) -> ExperimentState:
        """Where the experiment stands; waits for nobody."""
        return self._controller.state

    @property
    def cancellation(self) -> AutoresearchCancellation:
        """The signal that ends it; waits for nobody to be had."""
        return self._controller.cancellation


def new_controller_handle(controller: AutoresearchController) -> ControllerHandle:
    """A handle that can be attached to an agent; the experiment does not begin by it."""
    return ControllerHandle(controller)
