"""What a callback is given: the candidate's worktree, and the signal to end."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.core.experiments import ExperimentHypothesis
    from omx_autoresearch.runtime.experiments.cancellation import AutoresearchCancellation


@dataclasses.dataclass(frozen=True, slots=True)
class ExperimentWorkspace:
    """The one place where a callback may work.

    Attributes:
        path: the candidate's worktree; it stands at the incumbent.
        iteration: number of the trial.
        hypothesis: what is to be tried.
        cancellation: set when the callback must end: on a cancel, at its own deadline, or when a budget is spent.
        note_process: tell the controller of a process that works here (its pid), so that nobody is left behind if
            this process is killed.
    """

    path: str
    iteration: int
    hypothesis: ExperimentHypothesis
    cancellation: AutoresearchCancellation
    note_process: Callable[[int], None]
