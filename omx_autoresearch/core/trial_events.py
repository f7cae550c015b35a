"""The events of a trial, from its admission to its end; the others stand in :mod:`.experiment_events`."""

from __future__ import annotations

from omx_autoresearch.core.experiments import ExperimentState, ExperimentUsage, TrialRow, phase_after
from omx_autoresearch.core.shape import nested
from omx_autoresearch.core.values import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar, Literal

    from omx_autoresearch.core.experiments import ExperimentPhase, ExperimentStep


@dataclass(frozen=True, slots=True)
class TrialAdmitted:
    """One hypothesis was admitted to the candidate worktree."""

    kind: ClassVar[str] = "iteration"
    step: ClassVar[ExperimentStep] = "admit"
    row: TrialRow = nested(TrialRow)
    usage: ExperimentUsage = nested(ExperimentUsage, default_factory=ExperimentUsage)
    phase: ExperimentPhase | Literal[""] = ""

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """A running row; it counts as a trial from here on, however it ends."""
        phase = phase_after(state, self.step, self.phase)
        if not phase:
            return replace(state, updated_at=ts)
        return replace(state, phase=phase, rows=(*state.rows, self.row), usage=self.usage, updated_at=ts)


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """An agent process was started for the trial under way."""

    kind: ClassVar[str] = "agent_started"
    pid: int
    process_started: str = ""

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """Remembered until the trial ends, so that nobody is left behind."""
        return replace(state, agent_pid=self.pid, agent_started=self.process_started, updated_at=ts)


@dataclass(frozen=True, slots=True)
class CandidateMade:
    """The callback of the trial under way returned: what it cost is spent, whatever comes of it."""

    kind: ClassVar[str] = "made"
    row: TrialRow = nested(TrialRow)
    usage: ExperimentUsage = nested(ExperimentUsage, default_factory=ExperimentUsage)

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """The running row with what the host said of it; its agent has ended."""
        running = state.running_row
        if running is None or running.iteration != self.row.iteration:
            return replace(state, updated_at=ts)
        rows = (*state.rows[:-1], self.row)
        return replace(state, rows=rows, usage=self.usage, agent_pid=0, agent_started="", updated_at=ts)


def _after_trial(
    state: ExperimentState, event: TrialAccepted | TrialRejected | TrialFailed, ts: str
) -> ExperimentState:
    """The running row replaced by its terminal form; one that is not running any more stays as it was."""
    running = state.running_row
    if running is None or running.iteration != event.row.iteration:
        return replace(state, updated_at=ts)
    return replace(
        state,
        phase=phase_after(state, event.step, event.phase) or state.phase,
        rows=(*state.rows[:-1], event.row),
        usage=event.usage,
        agent_pid=0,
        agent_started="",
        updated_at=ts,
    )


@dataclass(frozen=True, slots=True)
class TrialAccepted:
    """Checks passed, the judge accepted, the step was verified anew, and a private commit was made."""

    kind: ClassVar[str] = "accepted"
    step: ClassVar[ExperimentStep] = "conclude"
    row: TrialRow = nested(TrialRow)
    usage: ExperimentUsage = nested(ExperimentUsage, default_factory=ExperimentUsage)
    phase: ExperimentPhase | Literal[""] = ""

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """The candidate is the incumbent now."""
        after = _after_trial(state, self, ts)
        if after.rows == state.rows:
            return after
        commit = self.row.candidate_commit
        return replace(after, incumbent_commit=commit, checkpoints=(*after.checkpoints, commit))


@dataclass(frozen=True, slots=True)
class TrialRejected:
    """Checks or the judge said no; the checkpoint was restored."""

    kind: ClassVar[str] = "rejected"
    step: ClassVar[ExperimentStep] = "conclude"
    row: TrialRow = nested(TrialRow)
    usage: ExperimentUsage = nested(ExperimentUsage, default_factory=ExperimentUsage)
    phase: ExperimentPhase | Literal[""] = ""

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """The incumbent stays."""
        return _after_trial(state, self, ts)


@dataclass(frozen=True, slots=True)
class TrialFailed:
    """Making, measuring, git, a cancellation or a budget ended the trial; the checkpoint was restored."""

    kind: ClassVar[str] = "failed"
    step: ClassVar[ExperimentStep] = "conclude"
    row: TrialRow = nested(TrialRow)
    usage: ExperimentUsage = nested(ExperimentUsage, default_factory=ExperimentUsage)
    phase: ExperimentPhase | Literal[""] = ""

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """The incumbent stays."""
        return _after_trial(state, self, ts)
