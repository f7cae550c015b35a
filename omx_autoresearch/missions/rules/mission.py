"""A mission as its journal tells it: what was asked, the completion contract, what was spent, what was found out.

:class:`Mission` is the fold of the journal (``core/records``); nothing else changes it. :class:`Contract` is compiled
once, at launch or by ``amend``, from ``mission.md`` and ``sandbox.md``; a later edit of those files changes nothing.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, field, nested, replace
from omx_autoresearch.missions.rules.budget import Limits, Usage
from omx_autoresearch.missions.rules.criteria import Criterion
from omx_autoresearch.missions.rules.directions import Direction, Tried
from omx_autoresearch.missions.rules.findings import Check
from omx_autoresearch.missions.rules.lifecycle import COMMAND_FOR, WIRE_STATUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.foundation.types import (
        Operation,
        Phase,
        Reviewer,
        ScoreDirection,
        TaskType,
        ValidationMode,
        Verdict,
    )


# --- Lifecycle notices: what a host shows of a mission's life, kept newest last beside the state. The journal has all.

KEPT_NOTICES = 16


@dataclass(frozen=True, slots=True)
class Notice:
    """Something in a mission's life that its owner, or a host, should see.

    Attributes:
        at: when, ISO 8601 UTC; empty for what is true now and was no event.
        kind: of the record that says it, or a word for what is true now.
        text: one line.
    """

    at: str
    kind: str
    text: str


SCHEMA_VERSION = 3
"""Of records and state; ``missions/snapshots.py`` has a step for each version before."""
VALIDATION_MODES: tuple[ValidationMode, ...] = ("mission-validator-script", "prompt-architect-artifact")
OPERATIONS: tuple[Operation, ...] = ("network", "write", "publish")
"""What a mission may be forbidden; the first two bind the runtime's own runs, the third is a word to the agent."""


@dataclass(frozen=True, slots=True)
class Contract:
    """What completes a mission, compiled by the owner; a verdict counts only under the digest of its own contract.

    Attributes:
        validation_mode: exactly one of the two modes.
        validator_command: shell command that decides (first mode); run in the workspace by the runtime.
        validator_prompt: what a reviewer is asked (second mode).
        output_artifact_path: the artifact under review, relative to the workspace (second mode).
        reviewer_command: shell command of the reviewer, fed the prompt on stdin (second mode).
        reviewed_by: who may review: ``command``, ``person``, ``session``.
        timeout_seconds: limit of one validation or review.
        output_limit_bytes: what is kept of one output; the rest is drained and said.
        score_direction: ``higher`` or ``lower`` is better for the validator's score.
        environment: the owner's environment at launch, the only one that validators get.
        isolate_home: run with a private HOME too.
        accept_unattested: a hand-written completion artifact counts.
        allow_unsandboxed: the owner allows runs outside a sandbox for a sandboxed client as well.
        pin_digest: sha256 of the manifest of pinned files.
        pinned_count: how many files are pinned.
        unfrozen_reason: why the owner accepted an empty pin set.
        runner: the known test runner that the validator calls, or empty.
        baseline_tests: tests that it ran at intake, passed or failed; as many must pass in the end.
        baseline_score: its score at intake.
        criteria: further conditions, each with its own rule.
        forbidden: operations that the mission does without; they narrow what the runtime's own runs may do.
        limits: the owner's allowances.
        intake_digests: digests of mission.md and sandbox.md as compiled, to report a later edit.
    """

    validation_mode: ValidationMode
    validator_command: str = ""
    validator_prompt: str = ""
    output_artifact_path: str = ""
    reviewer_command: str = ""
    reviewed_by: tuple[Reviewer, ...] = ("command", "person")
    timeout_seconds: float = 900.0
    output_limit_bytes: int = 64 * 1024 * 1024
    score_direction: ScoreDirection = "higher"
    environment: dict[str, str] = field(default_factory=dict)
    isolate_home: bool = False
    accept_unattested: bool = False
    allow_unsandboxed: bool = False
    pin_digest: str = ""
    pinned_count: int = 0
    unfrozen_reason: str = ""
    runner: str = ""
    baseline_tests: int | None = None
    baseline_score: float | None = None
    criteria: tuple[Criterion, ...] = nested(Criterion, default=())
    forbidden: tuple[Operation, ...] = ()
    limits: Limits = nested(Limits, default_factory=Limits)
    intake_digests: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attestation:
    """What the runtime itself saw of one validation or review, bound to everything it depended on.

    Attributes:
        run_id: of this run; the output stands under it.
        verdict: ``passed``, ``failed``, ``error`` (could not tell) or ``tampered``.
        cause: one word for the verdict: ``exit-0``, ``exit-nonzero``, ``timed-out``, ``not-started``, ...
        summary: one line for people, from the runtime's own words or the validator's, made harmless.
        contract_digest: of the contract it ran under.
        pin_digest: of the pinned files, at start and end.
        head: the commit at start and end; empty outside git.
        tree_digest: of the workspace's content at start and end.
        is_fresh: HEAD, tree and pins were the same at its start and its end.
        started_at: ISO 8601 UTC.
        finished_at: ISO 8601 UTC.
        exit_status: of the command; None where it was ended or never started.
        score: the validator's score, if it printed one.
        tests: tests that a known runner ran, if it said so; skipped ones did not run.
        tests_passed: of these.
        output_digest: sha256 of the kept output.
        output_mark: digest of the output after masking, for "new output".
        output_artifact_digest: sha256 of the artifact under review (second mode).
        isolation: what really isolated the run: ``none`` or ``bubblewrap``.
        duration_seconds: wall time.
        leaked: command lines of processes that outlived the run and were ended.
    """

    run_id: str
    verdict: Verdict
    cause: str
    summary: str
    contract_digest: str
    pin_digest: str
    head: str
    tree_digest: str
    is_fresh: bool
    started_at: str
    finished_at: str
    exit_status: int | None = None
    score: float | None = None
    tests: int | None = None
    tests_passed: int | None = None
    output_digest: str = ""
    output_mark: str = ""
    output_artifact_digest: str = ""
    isolation: str = "none"
    duration_seconds: float = 0.0
    leaked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunningValidation:
    """A validation or review that was started and has not reported yet.

    Attributes:
        run_id: of the run.
        pid: of its supervisor.
        pid_started: start mark of that process, so that a reused pid is not taken for it.
        started_at: ISO 8601 UTC.
        tree_digest: of the workspace when it began.
    """

    run_id: str
    pid: int
    pid_started: str
    started_at: str
    tree_digest: str


@dataclass(frozen=True, slots=True)
class LastStop:
    """The gate's newest answer to a stop, for duplicates, progress and display.

    Attributes:
        at: when it was answered, ISO 8601 UTC.
        answer: ``allow``, ``refuse`` or ``release``.
        reason_code: the gate's reason.
        session_id: whose stop it was.
        payload_digest: of the raw event; the same hook registered twice sends the same bytes.
        text: what was said to the agent.
        tree_digest: of the workspace at that stop.
        last_message_digest: of the agent's last text.
    """

    at: str
    answer: str
    reason_code: str
    session_id: str
    payload_digest: str = ""
    text: str = ""
    tree_digest: str = ""
    last_message_digest: str = ""


@dataclass(frozen=True, slots=True)
class Blocker:
    """Why a mission cannot go on without a person.

    Attributes:
        reason_code: ``stalled``, ``approval-missing``, ``wall-clock-spent``, ``agent-blocked``, ...
        what: what is in the way, one sentence.
        needs: the smallest input that would let it go on.
        command: what the owner types.
        by: ``gate``, ``agent`` or ``owner``.
    """

    reason_code: str
    what: str
    needs: str
    command: str
    by: str


@dataclass(frozen=True, slots=True)
class Binding:
    """The session that a mission holds.

    Attributes:
        session_id: the client's session id, verbatim.
        client: the dialect's name.
        how: the act that bound it: ``prompt``, ``session-option``, ``environment``, ``agent-start``, ``clear``.
        at: ISO 8601 UTC.
    """

    session_id: str
    client: str
    how: str
    at: str


@dataclass(frozen=True, slots=True)
class Mission:
    """The state of one mission.

    Attributes:
        task_id: ``YYYYMMDD-HHMMSS-slug``.
        slug: names its folder under ``.omx/specs``.
        goal: what was asked, verbatim.
        task_type: the kind of mission.
        project_path: the project's root, whose ``.omx`` shows this mission.
        workspace_path: where the agent works and validation runs (a worktree of the project, or the project itself).
        specs_path: folder of mission.md and sandbox.md, relative to the project.
        created_at: ISO 8601 UTC.
        scope: what belongs to the mission.
        non_goals: what does not.
        milestones: what is reached on the way, in order.
        phase: see ``core/lifecycle``.
        contract: None while draft.
        contract_digest: sha256 of the contract's canonical JSON.
        usage: what was spent.
        running_since: start of the running stretch that is not yet charged; empty when not running.
        iteration: passes between two stops so far.
        best_score: best validator score so far.
        last_score: the newest one.
        output_marks: masked output digests seen, newest last, bounded.
        attestation: the newest finished validation or review.
        running_validation: the one under way.
        is_recheck_due: a person spoke since the newest attestation; its failure is not reused.
        prompted_at: when a person last spoke in the bound session or let the mission go on, ISO 8601 UTC; empty before.
        is_person_turn: the turn under way was begun by a person, not by a refusal.
        turn_heartbeat_bytes: size of the heartbeat file when this turn began; tools of the turn lie beyond.
        blocker: set while blocked.
        binding: the newest binding; None when unbound.
        last_stop: the newest answer of the gate.
        nonce_digest: of the nonce that ``OMX_AUTORESEARCH_TASK=TASK:NONCE`` must carry, until used.
        completed_run_id: the attested run that completed the mission.
        completed_at: when it was completed, ISO 8601 UTC; empty before.
        claim_count: claims taken in (notes, hand edits), none of them proof.
        finding_count: findings recorded, evidence and claims.
        accepted_count: of them, evidence.
        evidence_ids: newest ids of accepted findings by criterion id.
        checks: what the runtime saw of each criterion when it last looked.
        verification_excuse: why verification could not run, accepted by the owner.
        launch_head: the commit at launch; empty outside git.
        launch_tree_digest: of the workspace's content at launch; empty when it was not seen.
        directions: every direction tried.
        recent_directions: the newest declarations, newest last, bounded.
        open_directions: what the owner injected and the agent has not taken up, oldest first, bounded.
        pivot_count: untried pivots declared.
        has_stalled: the mission was blocked as stalled, and nothing was strong progress since.
        turn_findings: findings since the last stop.
        turn_evidence: criteria that had their first evidence since the last stop.
        turn_evidence_ids: ids of the evidence since the last stop, newest last, bounded.
        turn_has_direction: a direction was declared since the last stop, by the agent or the owner.
        turn_has_pivot: an untried pivot was.
        turn_repeats_direction: a direction was that had been tried before.
        experiments: ids of the experiments that belong to the mission, newest last, bounded.
        credited_trials: the number of the newest accepted trial that was told, by experiment.
        turn_trials: accepted trials since the last stop.
        claim_digests: of the newest verified claim that was told, by metric.
        edited_projections: projections that somebody edited and that were restored, newest last, bounded.
        refused_verbs: owner verbs that were tried from inside an agent.
        forked_sessions: when a fork of a session in this workspace began, and its id; newest last, bounded.
        host_end_count: stops that the host ended; outside every counter.
        notices: of the lifecycle, newest last, bounded.
        told_digest: of the summary that was last given at a prompt.
        turn_heartbeat_failed: a heartbeat of this turn could not be written.
        adopted_from: the folder of another runtime that it began as; empty for none.
        schema_version: of the journal's newest records.
        updated_at: time of the newest record.
    """

    task_id: str
    slug: str
    goal: str
    task_type: TaskType
    project_path: str
    workspace_path: str
    specs_path: str
    created_at: str
    scope: tuple[str, ...] = ()
    non_goals: tuple[str, ...] = ()
    milestones: tuple[str, ...] = ()
    phase: Phase = "draft"
    contract: Contract | None = nested(Contract, default=None)
    contract_digest: str = ""
    usage: Usage = nested(Usage, default_factory=Usage)
    running_since: str = ""
    iteration: int = 0
    best_score: float | None = None
    last_score: float | None = None
    output_marks: tuple[str, ...] = ()
    attestation: Attestation | None = nested(Attestation, default=None)
    running_validation: RunningValidation | None = nested(RunningValidation, default=None)
    is_recheck_due: bool = False
    prompted_at: str = ""
    is_person_turn: bool = False
    turn_heartbeat_bytes: int = 0
    blocker: Blocker | None = nested(Blocker, default=None)
    binding: Binding | None = nested(Binding, default=None)
    last_stop: LastStop | None = nested(LastStop, default=None)
    nonce_digest: str = ""
    completed_run_id: str = ""
    completed_at: str = ""
    claim_count: int = 0
    finding_count: int = 0
    accepted_count: int = 0
    evidence_ids: dict[str, tuple[str, ...]] = field(default_factory=dict)
    checks: tuple[Check, ...] = nested(Check, default=())
    verification_excuse: str = ""
    launch_head: str = ""
    launch_tree_digest: str = ""
    directions: tuple[Tried, ...] = nested(Tried, default=())
    recent_directions: tuple[Direction, ...] = nested(Direction, default=())
    open_directions: tuple[Direction, ...] = nested(Direction, default=())
    pivot_count: int = 0
    has_stalled: bool = False
    turn_findings: int = 0
    turn_evidence: int = 0
    turn_evidence_ids: tuple[str, ...] = ()
    turn_has_direction: bool = False
    turn_has_pivot: bool = False
    turn_repeats_direction: bool = False
    experiments: tuple[str, ...] = ()
    credited_trials: dict[str, int] = field(default_factory=dict)
    turn_trials: int = 0
    claim_digests: dict[str, str] = field(default_factory=dict)
    edited_projections: tuple[str, ...] = ()
    refused_verbs: tuple[str, ...] = ()
    forked_sessions: tuple[str, ...] = ()
    host_end_count: int = 0
    notices: tuple[Notice, ...] = nested(Notice, default=())
    told_digest: str = ""
    turn_heartbeat_failed: bool = False
    adopted_from: str = ""
    schema_version: int = SCHEMA_VERSION
    updated_at: str = ""

    @property
    def limits(self) -> Limits:
        """The owner's allowances; the defaults while draft."""
        return self.contract.limits if self.contract else Limits()

    @property
    def status(self) -> str:
        """The wire word of the phase."""
        return WIRE_STATUS[self.phase]

    @property
    def current_direction(self) -> str:
        """The declared direction; empty as long as none was declared."""
        return self.recent_directions[-1].summary if self.recent_directions else ""

    @property
    def has_declared_direction(self) -> bool:
        """A direction stands that is more than a claim."""
        return any(item.by != "claim" for item in self.recent_directions)

    @property
    def is_after_stall(self) -> bool:
        """What was tried is worn out: only an untried direction may be declared."""
        return self.has_stalled or self.is_pivot_required

    @property
    def is_pivot_required(self) -> bool:
        """The stale count demands a change of structure."""
        return self.usage.stale >= self.limits.stale_pivot


# --- What records of the lifecycle add to the notices of a mission; no record of its own.


def noticed(mission: Mission, ts: str, kind: str, text: str) -> Mission:
    """The mission with one more notice; the oldest ones make room."""
    return replace(mission, notices=(*mission.notices, Notice(ts, kind, text))[-KEPT_NOTICES:])


def next_command(mission: Mission, *, is_validating: bool = False, is_after_run: bool = False) -> str:
    """What a person types next: the one answer to that question, for every surface.

    A running mission that no session works on waits for ``$autoresearch TASK``, which is typed in the agent.

    Args:
        mission: as it stands.
        is_validating: a run of its validator or reviewer goes on.
        is_after_run: somebody has just looked at the newest run, whose verdict may ask for something.
    """
    task, run = mission.task_id, mission.attestation
    if is_validating:
        return f"omx-autoresearch wait {task}"
    if mission.blocker:
        return mission.blocker.command
    if mission.phase == "running" and is_after_run and run is not None and run.verdict == "tampered":
        return f"omx-autoresearch restore {task}"
    if mission.phase == "running" and mission.binding is None:
        return f"$autoresearch {task}"
    return COMMAND_FOR[mission.phase].format(task=task)
