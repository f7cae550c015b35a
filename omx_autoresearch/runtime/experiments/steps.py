"""Whether a next step may begin: budgets and the cancellation, asked before each; the wall clock cuts within one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from omx_autoresearch.core.experiment_budget import budget_left, spent_budget
from omx_autoresearch.runtime.experiments.ending import failed

if TYPE_CHECKING:
    from omx_autoresearch.runtime.experiments.cancellation import AutoresearchCancellation
    from omx_autoresearch.runtime.experiments.recording import ExperimentLog

SAID = {
    "budget_trials": "the budget of trials is spent",
    "budget_wall": "the wall-clock budget is spent",
    "budget_cost": "the cost budget is spent",
    "budget_disk": "the disk budget is spent",
    "budget_runs": "the budget of runs is spent",
}
"""Each spent budget in a sentence."""


class Steps:
    """The limits of one stretch of work.

    Args:
        log: of the experiment.
        cancellation: of this stretch.
        is_limited: False for what an owner asks for after a budget ended the experiment.
    """

    def __init__(
        self, log: ExperimentLog, cancellation: AutoresearchCancellation, *, is_limited: bool = True
    ) -> None:
        self._log = log
        self._is_limited = is_limited
        self._timer: threading.Timer | None = None
        self.cancellation = cancellation

    def check(self) -> None:
        """Nothing where the next step may begin.

        Raises:
            TrialEnded: cancelled, or a budget is spent.
        """
        if self.cancellation.is_cancelled:
            code = self.cancellation.reason or "cancelled"
            raise failed(code, SAID.get(code, "the experiment was cancelled"))
        if not self._is_limited:
            return
        usage = self._log.usage()
        reason = spent_budget(self._log.state.config.limits, usage, is_in_trial=True)
        if reason is not None:
            raise failed(reason, SAID[reason])

    def begin(self) -> None:
        """Let the end of the wall-clock budget cut what is under way; `end` takes that back."""
        left = budget_left(self._log.state.config.limits, self._log.usage()).wall_seconds
        if left is not None and self._is_limited:
            seconds = min(left, threading.TIMEOUT_MAX)
            self._timer = threading.Timer(seconds, self.cancellation.trigger, ["budget_wall"])
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        """The stretch is over."""
        if self._timer is not None:
            self._timer.cancel()
        self.cancellation.detach()
