"""A measured experiment: its configuration, its trials, what was and may be spent, and the state of all that.

The truth of an experiment is the append-only log of its events (`judge.events`); the state is what they fold to.

Times are ISO 8601 UTC, durations seconds, costs US dollars, sizes bytes.
"""

from __future__ import annotations

from typing import Any, Literal

from omx_autoresearch.experiments.judge.calibration import AcceptanceRule, Calibration
from omx_autoresearch.experiments.judge.metrics import Guard, MetricSpec
from omx_autoresearch.foundation.errors import StepIllegal, UsageError
from omx_autoresearch.foundation.records import dataclass, field, nested, replace
from omx_autoresearch.missions.rules.mission import reached, target

TYPE_CHECKING = False

ExperimentPhase = Literal["started", "ready", "running", "completed"]
"""``started``: no baseline yet; ``ready``: the next trial may begin; ``running``: a trial is under way."""

ExperimentStep = Literal["measure", "admit", "conclude", "complete", "reopen", "restart"]

EXPERIMENT_TRANSITIONS: tuple[tuple[ExperimentStep, tuple[ExperimentPhase, ...], ExperimentPhase], ...] = (
    ("measure", ("started",), "ready"),
    ("admit", ("ready",), "running"),
    ("conclude", ("running",), "ready"),
    ("complete", ("started", "ready", "running"), "completed"),
    ("reopen", ("completed",), "ready"),
    ("restart", ("completed",), "started"),
)
"""(step, from phases, to phase). More budget reopens what a budget had ended; without a baseline it starts again."""

TrialStatus = Literal["running", "accepted", "rejected", "failed"]

Isolation = Literal["none", "auto", "bubblewrap"]

Reverification = Literal["auto", "on", "off"]

CompletedReason = Literal[
    "explicit",
    "cancelled",
    "budget_trials",
    "budget_wall",
    "budget_cost",
    "budget_disk",
    "budget_runs",
    "target_reached",
    "failure",
    "final_patch",
]

ID_LIMIT = 200
DESCRIPTION_LIMIT = 20_000
METADATA_LIMIT = 100


@dataclass(frozen=True, slots=True)
class ExperimentLimits:
    """The limits of an experiment; 0 is no limit.

    Attributes:
        trials: hypotheses that may be tried.
        wall_seconds: time that controllers were at work, over all resumes; sleep of the machine is not charged.
        cost_usd: what the host reported for its agents.
        disk_bytes: the size of the experiment's own folder. Where there is a limit it is looked at before each trial
            and after each candidate, the worktrees included; else at the end, without them.
        runs: measured runs, warm-ups included.
    """

    trials: int = 40
    wall_seconds: float = 0.0
    cost_usd: float = 0.0
    disk_bytes: int = 0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class ExperimentUsage:
    """The amounts spent so far, in the units of `ExperimentLimits`."""

    trials: int = 0
    wall_seconds: float = 0.0
    cost_usd: float = 0.0
    disk_bytes: int = 0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class ExperimentConfig:
    """The configuration of an experiment: its metric, commands, rule and limits.

    Attributes:
        name: of the experiment, for people.
        metric: what is measured, where it is read, which direction is better.
        measure: the shell command that measures; frozen with every file that it names.
        check: the shell command that says whether the candidate is still correct; frozen likewise.
        setup: run in a worktree after its tree changed, before anything is measured there; not measured.
        reset_caches: run before each measured run; not measured.
        held_out: an executable, or a folder with an executable ``check``, outside the repository or ignored by it;
            copied at the start, never shown to the agent, run at acceptance and at the end.
        work: globs of what a candidate is to change, which is never frozen; what else the frozen files read is.
        protect: further globs of files that no candidate may touch.
        guards: secondary metrics that must not get worse.
        env: variables of every command, beside those of the owner's environment at the start.
        keep: ignored paths that a restoration leaves alone, made by ``setup``.
        link: ignored paths of the user's checkout that each worktree sees.
        rule: how a candidate is judged.
        limits: what may be spent.
        target: a value of the metric that ends the experiment once a verified claim reaches it; None for none.
        calibration_pairs: A/A pairs at the baseline.
        claim_pairs: pairs of the fresh check of base against final.
        measure_timeout_seconds: of one measured run.
        check_timeout_seconds: of one check, one set-up or one held-out check; 0 for that of a measured run.
        hypothesis_timeout_seconds: of the callback or agent that makes one candidate; 0 for none.
        reverification: whether an accepted candidate is judged again on fresh pairs with the worktrees swapped:
            ``on``, ``off``, or ``auto``, which is on for every rule but ``median``.
        sandbox: ``bubblewrap`` insists on it, ``auto`` takes it where it works, ``none`` runs plainly.
        seed: of the order within pairs.
    """

    name: str
    metric: MetricSpec = nested(MetricSpec)
    measure: str = ""
    check: str = ""
    setup: str = ""
    reset_caches: str = ""
    held_out: str = ""
    work: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = nested(Guard, default=())
    env: dict[str, str] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    rule: AcceptanceRule = nested(AcceptanceRule, default_factory=AcceptanceRule)
    limits: ExperimentLimits = nested(ExperimentLimits, default_factory=ExperimentLimits)
    target: float | None = None
    calibration_pairs: int = 15
    claim_pairs: int = 30
    measure_timeout_seconds: float = 600.0
    check_timeout_seconds: float = 0.0
    hypothesis_timeout_seconds: float = 3600.0
    reverification: Reverification = "auto"
    sandbox: Isolation = "none"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ExperimentHypothesis:
    """One idea to be tried.

    Attributes:
        id: short, of the host's choosing; may repeat.
        description: what is changed and why it should help.
        direction: the direction of the mission that it belongs to, where one was declared.
        metadata: host-owned words (model, provider), kept in the table as they are.
    """

    id: str
    description: str = ""
    direction: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HypothesisOutcome:
    """The host's report of the turn that made a candidate.

    Attributes:
        cost_usd: of this turn alone; counted however the trial ends.
        metadata: the host's own words (model, tokens), kept in the table beside those of the hypothesis.
        description: the hypothesis, where only the turn itself found it; replaces that of the row.
        direction: likewise.
        fault: why there is no candidate to judge, as a reason code (``agent_failed``, ``timed_out``); the trial is
            failed and restored. Empty where there is one.
        fault_reason: one sentence for people.
    """

    cost_usd: float = 0.0
    metadata: dict[str, Any] = field(default_factory=dict)
    description: str = ""
    direction: str = ""
    fault: str = ""
    fault_reason: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """The verified gain of the final state over the base.

    Attributes:
        estimate: positive is better; a fraction on the ratio scale (0.032 is 3.2 %), else in the metric's unit.
        interval: 95 % around it; both ends equal the estimate where the metric is deterministic.
        pairs: how many were measured.
        has_gain: the whole interval is better than the base.
        scale: ``ratio`` or ``difference``.
        is_exact: both states repeated their value in every pair.
        base: median of the base's values.
        final: median of the final state's values.
    """

    estimate: float
    interval: tuple[float, float]
    pairs: int
    has_gain: bool
    scale: str = "ratio"
    is_exact: bool = False
    base: float = 0.0
    final: float = 0.0


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One line of the table of trials; the fields of the wire events.

    Attributes:
        iteration: 1, 2, 3 and so on; never given twice, also after a resume.
        hypothesis_id: of the hypothesis.
        description: of the hypothesis.
        status: ``running`` until its terminal event.
        metric: the candidate's median; None where nothing was measured.
        samples: the candidate's measured values, warm-ups excluded, in order.
        incumbent_samples: the incumbent's, pair by pair.
        improvement: the judge's estimate, positive is better; a fraction of the incumbent's value on the ratio scale
            (0.03 is 3 %), in the metric's unit on the difference scale. Never quoted as a result: that is the claim.
        interval: of the improvement, 95 %, in its unit; empty where none is known.
        scale: ``ratio`` or ``difference``, of improvement and interval; empty where nothing was judged.
        pairs: that were judged.
        others: medians of the candidate's secondary metrics.
        cost_usd: that the host reported.
        duration_seconds: of the whole trial.
        checkpoint: the incumbent it was judged against (a commit).
        candidate_commit: the private commit of an accepted change; empty otherwise.
        reason_code: why it ended so: ``improved`` where accepted; ``not_better too_small inconclusive tampered
            no_change check_failed guard_failed held_out_failed left_running not_reverified nested_repository`` and so
            on where rejected; ``metric_missing timed_out callback_failed agent_failed incumbent_failed workspace_lost
            cancelled budget_wall interrupted`` and so on where failed.
        reason: one sentence for people.
        detail: the last lines of what a failed command said; empty otherwise.
        changed_paths: what the candidate changed against the incumbent, at most a few hundred.
        direction: of the hypothesis.
        started_at: when it was admitted.
        ended_at: when its terminal event was written; empty while it runs.
        metadata: the host's words, of hypothesis and outcome.
    """

    iteration: int
    hypothesis_id: str
    description: str = ""
    status: TrialStatus = "running"
    metric: float | None = None
    samples: tuple[float, ...] = ()
    incumbent_samples: tuple[float, ...] = ()
    improvement: float | None = None
    interval: tuple[float, ...] = ()
    scale: str = ""
    pairs: int = 0
    others: dict[str, float] = field(default_factory=dict)
    cost_usd: float = 0.0
    duration_seconds: float = 0.0
    checkpoint: str = ""
    candidate_commit: str = ""
    reason_code: str = ""
    reason: str = ""
    detail: str = ""
    changed_paths: tuple[str, ...] = ()
    direction: str = ""
    started_at: str = ""
    ended_at: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExperimentState:
    """The state of an experiment, folded from its events.

    Attributes:
        experiment_id: its name on disk, ``YYYYMMDD-HHMMSS-slug``.
        project_path: the user's checkout.
        config: as started.
        base_commit: the commit that the user's checkout stood on.
        incumbent_commit: the last accepted checkpoint; the base commit at first.
        pin_digest: of the manifest of frozen files.
        phase: see `ExperimentPhase`.
        baseline: the median of the base, measured at calibration; None before.
        baseline_samples: the values behind it.
        calibration: what the A/A pairs said; None before.
        rows: every trial, in order; only the last one may be running.
        checkpoints: the commits of accepted trials, in order.
        usage: what was spent.
        claim: the newest fresh check of base against final; None before. The only number that may be quoted.
        claim_commit: which final the claim is about.
        claim_held_out: of the held-out check on that final, ``passed`` or ``failed``; empty where there is none.
        applied_commit: what the owner took into the checkout; empty before.
        completed_reason: why it ended; empty before.
        isolation: what really isolated the newest run.
        controller_pid: of the controller at work; 0 for none.
        controller_started: its start time, so that a later process with that pid is not taken for it.
        agent_pid: of the agent process under way; 0 for none.
        agent_started: its start time.
        started_at: when the experiment began.
        updated_at: of the newest event.
        user_stamp: of the user's checkout at the start.
        task_id: of the mission that it belongs to; empty for none.
        is_agents: an agent chose the commands that judge, so that no contract is met by what they say.
    """

    experiment_id: str
    project_path: str
    config: ExperimentConfig = nested(ExperimentConfig)
    base_commit: str = ""
    incumbent_commit: str = ""
    pin_digest: str = ""
    phase: ExperimentPhase = "started"
    baseline: float | None = None
    baseline_samples: tuple[float, ...] = ()
    calibration: Calibration | None = nested(Calibration, default=None)
    rows: tuple[TrialRow, ...] = nested(TrialRow, default=())
    checkpoints: tuple[str, ...] = ()
    usage: ExperimentUsage = nested(ExperimentUsage, default_factory=ExperimentUsage)
    claim: Claim | None = nested(Claim, default=None)
    claim_commit: str = ""
    claim_held_out: str = ""
    applied_commit: str = ""
    completed_reason: str = ""
    isolation: str = "none"
    controller_pid: int = 0
    controller_started: str = ""
    agent_pid: int = 0
    agent_started: str = ""
    started_at: str = ""
    updated_at: str = ""
    user_stamp: dict[str, Any] = field(default_factory=dict)
    task_id: str = ""
    is_agents: bool = False

    @property
    def running_row(self) -> TrialRow | None:
        """The trial under way, or None."""
        return self.rows[-1] if self.rows and self.rows[-1].status == "running" else None

    @property
    def next_iteration(self) -> int:
        """The number of the next trial."""
        return self.rows[-1].iteration + 1 if self.rows else 1

    @property
    def tampered(self) -> int:
        """The number of candidates that touched frozen files."""
        return sum(row.reason_code == "tampered" for row in self.rows)


# --- what may still be spent
#
# Every limit and every usage is a finite number that never falls. A number that could poison a total (NaN, infinity, a
# negative one) is refused where it comes in, so a budget always ends a loop.

_ENDLESS = float("inf")
_BUDGETS: tuple[tuple[str, CompletedReason], ...] = (
    ("wall_seconds", "budget_wall"),
    ("cost_usd", "budget_cost"),
    ("disk_bytes", "budget_disk"),
    ("runs", "budget_runs"),
    ("trials", "budget_trials"),
)
_BEFORE_TRIALS = ("trials", "cost_usd")


@dataclass(frozen=True, slots=True)
class BudgetLeft:
    """The remaining budgets, in the units of `ExperimentLimits`; None for no limit; never below 0."""

    trials: int | None
    wall_seconds: float | None
    cost_usd: float | None
    disk_bytes: int | None
    runs: int | None


def budget_left(limits: ExperimentLimits, usage: ExperimentUsage) -> BudgetLeft:
    """The remaining budgets."""
    left = {}
    for name, _ in _BUDGETS:
        limit = getattr(limits, name)
        left[name] = max(0, limit - getattr(usage, name)) if limit else None
    return BudgetLeft(**left)


def spent_budget(
    limits: ExperimentLimits, usage: ExperimentUsage, *, is_in_trial: bool = False
) -> CompletedReason | None:
    """The budget that is spent, None where none is.

    Within a trial neither the number of trials nor the cost counts: the one under way was admitted, its agent is paid,
    and what is left of it costs nothing.
    """
    for name, reason in _BUDGETS:
        limit = getattr(limits, name)
        if limit and getattr(usage, name) >= limit and not (is_in_trial and name in _BEFORE_TRIALS):
            return reason
    return None


def checked_cost(cost: Any) -> float:
    """The cost that a host reported, when it is one: a finite number of dollars, not negative.

    Raises:
        UsageError: it is something else; a total is never poisoned.
    """
    is_number = isinstance(cost, (int, float)) and not isinstance(cost, bool)
    if not is_number or not 0 <= cost < _ENDLESS:  # false for NaN, too
        raise UsageError(
            f"cost_usd: must be a finite, non-negative number of dollars, received {repr(cost)[:80]}",
            next_step=_COST_NEXT,
        )
    return float(cost)


_COST_NEXT = "report the turn's cost in dollars, or 0.0 if it is unknown"


def charge(
    usage: ExperimentUsage, *, cost_usd: object = 0.0, runs: int = 0, trials: int = 0
) -> ExperimentUsage:
    """The usage after some more was spent.

    Raises:
        UsageError: the cost is not valid, or the total would not be finite any more.
    """
    total = usage.cost_usd + checked_cost(cost_usd)
    if not total < _ENDLESS:
        raise UsageError(
            f"cost_usd: the total {usage.cost_usd!r} and {cost_usd!r} do not add up to a finite number",
            next_step=_COST_NEXT,
        )
    return replace(usage, cost_usd=total, runs=usage.runs + runs, trials=usage.trials + trials)


def next_experiment_phase(state: ExperimentState, step: ExperimentStep) -> ExperimentPhase:
    """The phase of an experiment after ``step``, as the machine decides it.

    Raises:
        StepIllegal: the phase has no such step.
        AutoresearchError: the machine cannot be run.
    """
    if after := reached(EXPERIMENT_TRANSITIONS, state.phase, step):
        return after
    if state.phase == "completed":
        reason, verb = f"the experiment is completed: {state.completed_reason}", "report"
    elif step in ("reopen", "restart"):
        reason, verb = "the experiment has not ended, so there is nothing to reopen", "status"
    elif state.phase == "started":
        reason, verb = "there is no baseline yet", "resume"
    elif state.phase == "running":
        reason, verb = "a trial is under way", "status"
    else:
        measured = "the baseline was already measured"
        reason, verb = measured if step == "measure" else "no trial is under way", "status"
    raise StepIllegal(reason, next_step=f"omx-autoresearch experiment {verb} {state.experiment_id}")


def phase_after(
    state: ExperimentState, step: ExperimentStep | Literal[""], recorded: ExperimentPhase | Literal[""]
) -> ExperimentPhase | Literal[""]:
    """The phase behind an event by the table as data, for a replay; empty where the event changes none.

    Args:
        state: before the event.
        step: that the event takes; empty for none.
        recorded: the phase that the event carries; empty in a log from before events carried one.
    """
    after = target(EXPERIMENT_TRANSITIONS, state.phase, step) if step else ""
    return after if recorded in ("", after) else ""


def checked_hypothesis(hypothesis: ExperimentHypothesis) -> ExperimentHypothesis:
    """The hypothesis, when it can be recorded as it is.

    Raises:
        UsageError: an empty or oversized id, an oversized description, or a NUL byte; says which.
    """
    faults = [] if hypothesis.id.strip() else ["a hypothesis needs an id, e.g. h-1"]
    limits = {"id": ID_LIMIT, "description": DESCRIPTION_LIMIT, "direction": DESCRIPTION_LIMIT}
    for name, limit in limits.items():
        text = getattr(hypothesis, name)
        if len(text) > limit:
            faults.append(f"the {name} of a hypothesis has {len(text)} characters; at most {limit} are kept")
        if "\0" in text:
            faults.append(f"the {name} of a hypothesis holds a NUL character")
    count = len(hypothesis.metadata)
    if count > METADATA_LIMIT:
        faults.append(f"the metadata of a hypothesis has {count} entries; at most {METADATA_LIMIT}")
    if faults:
        raise UsageError("; ".join(faults), next_step="shorten or clean the hypothesis and send it again")
    return hypothesis
