"""The events of an experiment: past-tense lines of its log, one class a kind, each with its effect on the state.

Hosts subscribe to the kinds ``baseline iteration accepted rejected failed completed``; the others are needed to resume.
A subscriber may ignore kinds that it does not know.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Protocol, TypeVar

from omx_autoresearch.experiments.judge.calibration import Calibration
from omx_autoresearch.experiments.judge.state import (
    Claim,
    CompletedReason,
    ExperimentConfig,
    ExperimentPhase,
    ExperimentState,
    ExperimentStep,
    ExperimentUsage,
    TrialRow,
    next_experiment_phase,
    phase_after,
)
from omx_autoresearch.foundation.records import (
    as_fields,
    dataclass,
    field,
    nested,
    replace,
    to_plain,
)

# --- events: the trial, from its admission to its end


@dataclass(frozen=True, slots=True)
class _OfTrial:
    row: TrialRow = nested(TrialRow)
    usage: ExperimentUsage = nested(ExperimentUsage, default_factory=ExperimentUsage)

    def with_row(self, state: ExperimentState) -> ExperimentState:
        """The running row replaced by this one, its agent gone; a row that no longer runs stays as it was."""
        running = state.running_row
        if running is None or running.iteration != self.row.iteration:
            return state
        rows = (*state.rows[:-1], self.row)
        return replace(state, rows=rows, usage=self.usage, agent_pid=0, agent_started="")


@dataclass(frozen=True, slots=True)
class _TrialStep(_OfTrial):
    phase: ExperimentPhase | Literal[""] = ""


@dataclass(frozen=True, slots=True)
class TrialAdmitted(_TrialStep):
    """One hypothesis was admitted to the candidate's worktree."""

    kind: ClassVar[str] = "iteration"
    step: ClassVar[ExperimentStep] = "admit"

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """A running row; it counts as a trial from here on, however it ends."""
        return _stepped(self, state, rows=(*state.rows, self.row), usage=self.usage)


def _stepped(event: StepEvent, state: ExperimentState, **changes: Any) -> ExperimentState:
    """The state after the step of an event, with its changes; the same state where the phase has no such step."""
    phase = phase_after(state, event.step, event.phase)
    return replace(state, phase=phase, **changes) if phase else state


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """An agent process was started for the trial under way."""

    kind: ClassVar[str] = "agent_started"
    pid: int
    process_started: str = ""

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """Remembered until the trial ends, so that a resume can end the process."""
        return replace(state, agent_pid=self.pid, agent_started=self.process_started)


@dataclass(frozen=True, slots=True)
class CandidateMade(_OfTrial):
    """The callback of the trial under way returned: its cost counts even if the trial fails."""

    kind: ClassVar[str] = "made"

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """The running row with what the host said of it; its agent has ended."""
        return self.with_row(state)


@dataclass(frozen=True, slots=True)
class TrialEnded(_TrialStep):
    """A trial came to its end, in one of three ways."""

    kind: ClassVar[str]
    step: ClassVar[ExperimentStep] = "conclude"

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """The row at its end; the commit of an accepted one is the incumbent from here on."""
        after = self.with_row(state)
        if after.rows == state.rows:
            return after
        after = replace(after, phase=phase_after(state, self.step, self.phase) or state.phase)
        if self.kind != "accepted":
            return after
        commit = self.row.candidate_commit
        return replace(after, incumbent_commit=commit, checkpoints=(*after.checkpoints, commit))


@dataclass(frozen=True, slots=True)
class TrialAccepted(TrialEnded):
    """Checks passed, the judge accepted, the step was verified anew, and a private commit was made."""

    kind: ClassVar[str] = "accepted"


@dataclass(frozen=True, slots=True)
class TrialRejected(TrialEnded):
    """Checks or the judge said no; the checkpoint was restored."""

    kind: ClassVar[str] = "rejected"


@dataclass(frozen=True, slots=True)
class TrialFailed(TrialEnded):
    """Making, measuring, git, a cancellation or a budget ended the trial; the checkpoint was restored."""

    kind: ClassVar[str] = "failed"


# --- events: the experiment

StepEvent = TypeVar(
    "StepEvent", bound="BaselineEstablished | TrialAdmitted | TrialEnded | ExperimentCompleted"
)


class ExperimentEvent(Protocol):
    """The members of every event class."""

    kind: ClassVar[str]

    def apply(self, state: Any, ts: str) -> ExperimentState:
        """The state after this event, written at ``ts``; pure."""
        ...


def step_taken(state: ExperimentState, kind: type[StepEvent], *facts: Any) -> StepEvent:
    """The event of a step that the experiment takes now, with the phase that the machine reached.

    Raises:
        StepIllegal: the phase has no such step.
        AutoresearchError: the machine cannot be run.
    """
    return kind(*facts, phase=next_experiment_phase(state, kind.step))  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class ExperimentStarted:
    """The experiment exists: its configuration, what it stands on, what is frozen.

    Attributes:
        experiment_id: its name on disk.
        project_path: the user's checkout.
        config: as asked for.
        base_commit: where the checkout stood.
        pin_digest: of the manifest of frozen files.
        user_stamp: of the checkout, compared when a patch is to be applied.
        task_id: of the mission that it belongs to; empty for none.
        is_agents: an agent chose the commands that judge, not the owner.
    """

    kind: ClassVar[str] = "started"
    experiment_id: str
    project_path: str
    config: ExperimentConfig = nested(ExperimentConfig)
    base_commit: str = ""
    pin_digest: str = ""
    user_stamp: dict[str, Any] = field(default_factory=dict)
    task_id: str = ""
    is_agents: bool = False

    def apply(self, state: ExperimentState | None, ts: str) -> ExperimentState:
        """A fresh state; a second start in one log changes nothing."""
        if state is not None:
            return state
        return ExperimentState(**as_fields(self), incumbent_commit=self.base_commit, started_at=ts)


@dataclass(frozen=True, slots=True)
class ControllerAttached:
    """A controller took the experiment up, at the start or after an interruption (the kind on disk is ``resumed``)."""

    kind: ClassVar[str] = "resumed"
    pid: int
    process_started: str = ""

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """The controller at work."""
        return replace(state, controller_pid=self.pid, controller_started=self.process_started)


@dataclass(frozen=True, slots=True)
class ControllerDetached:
    """The controller let go of the experiment in an orderly way; what it spent of the wall clock is final."""

    kind: ClassVar[str] = "detached"
    usage: ExperimentUsage = nested(ExperimentUsage, default_factory=ExperimentUsage)

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """No controller is at work."""
        return replace(state, controller_pid=0, controller_started="", usage=self.usage)


@dataclass(frozen=True, slots=True)
class RunMeasured:
    """One command of the experiment ran: a measured run, a warm-up, a check, a set-up.

    Attributes:
        run_id: names its output.
        iteration: the trial; 0 at the baseline, -1 for the claim.
        stage: ``calibration trial reverification claim`` for measured runs; ``warmup check setup reset held_out``.
        arm: ``incumbent`` or ``candidate``.
        pair: number within the stage, from 1; 0 where there is none.
        is_candidate_first: the order within the pair.
        value: of the primary metric; None where the run failed or measures nothing.
        others: secondary metrics.
        exit_status: of the command; None where it timed out or did not start.
        fault: empty, or a code such as ``metric_missing``.
        isolation: what really isolated it.
        wall_seconds, output_path, usage: how long it took, its whole output, what was spent after it.
    """

    kind: ClassVar[str] = "measured"
    run_id: str
    iteration: int
    stage: str
    arm: str
    pair: int = 0
    is_candidate_first: bool = False
    value: float | None = None
    others: dict[str, float] = field(default_factory=dict)
    exit_status: int | None = None
    fault: str = ""
    isolation: str = "none"
    wall_seconds: float = 0.0
    output_path: str = ""
    usage: ExperimentUsage = nested(ExperimentUsage, default_factory=ExperimentUsage)

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """The usage, and the isolation of the run."""
        return replace(state, usage=self.usage, isolation=self.isolation)


@dataclass(frozen=True, slots=True)
class BaselineEstablished:
    """The base passed its check and was measured against itself."""

    kind: ClassVar[str] = "baseline"
    step: ClassVar[ExperimentStep] = "measure"
    metric: float
    calibration: Calibration = nested(Calibration)
    samples: tuple[float, ...] = ()
    checkpoint: str = ""
    usage: ExperimentUsage = nested(ExperimentUsage, default_factory=ExperimentUsage)
    phase: ExperimentPhase | Literal[""] = ""

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """Ready for the first trial."""
        return _stepped(
            self,
            state,
            baseline=self.metric,
            baseline_samples=self.samples,
            calibration=self.calibration,
            usage=self.usage,
        )


@dataclass(frozen=True, slots=True)
class ClaimVerified:
    """Base and final were measured freshly against each other."""

    kind: ClassVar[str] = "verified"
    claim: Claim = nested(Claim)
    commit: str = ""
    held_out: str = ""
    usage: ExperimentUsage = nested(ExperimentUsage, default_factory=ExperimentUsage)

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """The one number that may be quoted."""
        return replace(
            state,
            claim=self.claim,
            claim_commit=self.commit,
            claim_held_out=self.held_out,
            usage=self.usage,
        )


@dataclass(frozen=True, slots=True)
class PatchApplied:
    """The owner took the final state into the checkout."""

    kind: ClassVar[str] = "applied"
    commit: str
    warning: str = ""

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """Remembered, so that it is not taken twice."""
        return replace(state, applied_commit=self.commit)


@dataclass(frozen=True, slots=True)
class LimitsExtended:
    """The owner changed what may be spent, the target, or (before the baseline) the sandbox."""

    kind: ClassVar[str] = "amended"
    config: ExperimentConfig = nested(ExperimentConfig)
    reason: str = ""
    phase: ExperimentPhase | Literal[""] = ""

    @classmethod
    def of(cls, state: ExperimentState, config: ExperimentConfig, reason: str) -> LimitsExtended:
        """The event with the phase that the machine reached, where it reopens the experiment.

        Raises:
            AutoresearchError: the machine cannot be run.
        """
        step = _reopening(state)
        return cls(config, reason, next_experiment_phase(state, step) if step else "")

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """New limits; an experiment that a budget had ended is ready again, used budget stays used."""
        reopened = phase_after(state, _reopening(state), self.phase)
        return replace(
            state,
            config=replace(
                state.config,
                limits=self.config.limits,
                target=self.config.target,
                sandbox=self.config.sandbox,
            ),
            phase=reopened or state.phase,
            completed_reason="" if reopened else state.completed_reason,
        )


def _reopening(state: ExperimentState) -> ExperimentStep | Literal[""]:
    """The step that new limits take: an experiment that a budget or its target ended goes on, no other."""
    if not (state.completed_reason.startswith("budget_") or state.completed_reason == "target_reached"):
        return ""
    return "restart" if state.baseline is None else "reopen"


@dataclass(frozen=True, slots=True)
class ExperimentCompleted:
    """The experiment reached its end; the reason says which."""

    kind: ClassVar[str] = "completed"
    step: ClassVar[ExperimentStep] = "complete"
    reason: CompletedReason
    detail: str = ""
    usage: ExperimentUsage = nested(ExperimentUsage, default_factory=ExperimentUsage)
    phase: ExperimentPhase | Literal[""] = ""

    def apply(self, state: ExperimentState, ts: str) -> ExperimentState:
        """Final; the first reason stands."""
        return _stepped(self, state, completed_reason=self.reason, usage=self.usage)


def follow(state: ExperimentState | None, event: ExperimentEvent, ts: str) -> ExperimentState:
    """The state after the log's next event, written at ``ts``."""
    return replace(event.apply(state, ts), updated_at=ts)


KINDS: dict[str, type] = {
    kind.kind: kind
    for kind in (
        ExperimentStarted,
        ControllerAttached,
        ControllerDetached,
        RunMeasured,
        BaselineEstablished,
        TrialAdmitted,
        AgentStarted,
        CandidateMade,
        TrialAccepted,
        TrialRejected,
        TrialFailed,
        ClaimVerified,
        PatchApplied,
        LimitsExtended,
        ExperimentCompleted,
    )
}
"""Every kind that a log may hold."""


def wire_event(event: ExperimentEvent, *, seq: int, ts: str) -> dict[str, Any]:
    """An event as subscribers and exports see it: flat, ``type`` first; the fields of a row stand beside it."""
    plain = to_plain(event)
    row = plain.pop("row", None) or {}
    return {"type": event.kind, "seq": seq, "ts": ts, **row, **plain}
