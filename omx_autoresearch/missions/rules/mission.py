"""The state of a mission: its goal, completion contract, allowances, runs, findings and directions.

:class:`Mission` is the fold of the journal (``missions/records``); nothing else changes it. :class:`Contract` is
compiled once, at launch or by ``amend``, from ``mission.md`` and ``sandbox.md``; a later edit of those files changes
nothing.
"""

from __future__ import annotations

from omx_autoresearch.foundation.errors import AutoresearchError, StepIllegal
from omx_autoresearch.foundation.records import dataclass, field, nested, replace
from omx_autoresearch.foundation.times import seconds_between
from omx_autoresearch.missions.rules.allowances import Limits, Usage
from omx_autoresearch.missions.rules.criteria import Criterion, CriterionCheck
from omx_autoresearch.missions.rules.difference import Difference
from omx_autoresearch.missions.rules.directions import Direction, Tried

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, TypeVar

    from omx_autoresearch.foundation.types import (
        Confirmation,
        MetricDirection,
        Operation,
        Phase,
        Reviewer,
        RunVerdict,
        Step,
        TaskType,
        ValidationMode,
    )

    AnyPhase = TypeVar("AnyPhase", bound=str)
    AnyStep = TypeVar("AnyStep", bound=str)
    Table = tuple[tuple[AnyStep, tuple[AnyPhase, ...], AnyPhase], ...]


# --- Phases as tables, and the one place that runs them: ``transitions`` decides every change of phase.
#
# draft --launch--> running --complete--> complete
# running --block--> blocked --unblock--> running
# running --pause--> paused --resume--> running
# draft | running | blocked | paused --cancel--> cancelled
#
# A use case that changes a phase asks :func:`next_phase`, which runs the machine, and records the phase after it. A
# replay runs no machine: :func:`target` reads the table as data, and a record of a step that the phase does not have
# changes nothing. So a refused stop, a fold and a look never load the package.

FINAL_PHASES: tuple[Phase, ...] = ("complete", "cancelled")

TRANSITIONS: tuple[tuple[Step, tuple[Phase, ...], Phase], ...] = (
    ("launch", ("draft",), "running"),
    ("complete", ("running",), "complete"),
    ("block", ("running",), "blocked"),
    ("unblock", ("blocked",), "running"),
    ("pause", ("running",), "paused"),
    ("resume", ("paused",), "running"),
    ("cancel", ("draft", "running", "blocked", "paused"), "cancelled"),
)
"""(step, from phases, to phase). ``amend`` is legal in every phase but the final ones and changes none."""


def target(table: Table[AnyStep, AnyPhase], phase: AnyPhase, step: AnyStep) -> AnyPhase | Literal[""]:
    """The phase behind a step by the table alone; empty where ``phase`` has no such step."""
    return next((to for name, sources, to in table if name == step and phase in sources), "")


def is_legal(phase: Phase, step: Step) -> bool:
    """True when a mission in ``phase`` may take ``step``; the table alone, for the fold and for messages."""
    if step == "amend":
        return phase not in FINAL_PHASES
    return bool(target(TRANSITIONS, phase, step))


def legal_steps(phase: Phase) -> tuple[Step, ...]:
    """Every step that ``phase`` allows, in the table's order."""
    steps: tuple[Step, ...] = (*(name for name, _, _ in TRANSITIONS), "amend")
    return tuple(step for step in steps if is_legal(phase, step))


WIRE_STATUS: dict[Phase, str] = {
    "draft": "running",
    "running": "running",
    "blocked": "blocked",
    "paused": "stopped",
    "complete": "complete",
    "cancelled": "stopped",
}
"""The ``status`` word that hosts of the typed mission read; ``invalid`` and ``missing`` are shown, never stored."""

COMMAND_FOR: dict[Phase, str] = {
    "draft": "omx-autoresearch start {task}",
    "running": "omx-autoresearch status {task}",
    "blocked": "omx-autoresearch unblock {task}",
    "paused": "omx-autoresearch resume {task}",
    "complete": "omx-autoresearch status {task}",
    "cancelled": "omx-autoresearch init --goal ...",
}
"""The owner's next command in each phase."""


def machine_options(table: Table[Any, Any], initial: str) -> dict[str, Any]:
    """The arguments of a ``transitions`` machine over a table (also of the one that draws the diagram)."""
    steps = [{"trigger": step, "source": list(sources), "dest": dest} for step, sources, dest in table]
    states = dict.fromkeys(phase for _, sources, dest in table for phase in (*sources, dest))
    return {"states": [*states], "transitions": steps, "initial": initial, "auto_transitions": False}


def reached(table: Table[AnyStep, AnyPhase], phase: AnyPhase, step: AnyStep) -> AnyPhase | Literal[""]:
    """The phase that the machine reaches by a step; empty where it has no such step.

    Raises:
        AutoresearchError: the package ``transitions`` cannot be loaded.
    """
    try:
        from types import SimpleNamespace

        from transitions import Machine, MachineError  # here, since only a change of phase needs it
    except ImportError as error:
        folder = __file__.rpartition("/omx_autoresearch/")[0]
        raise AutoresearchError(
            f"the step {step} was not taken: the package transitions, which decides it, cannot be loaded ({error})",
            next_step=f"pip install transitions (into the environment of {folder}), then the same again",
        ) from None
    holder: Any = SimpleNamespace()  # it gets the state and a method for each step
    Machine(model=holder, **machine_options(table, phase))
    try:
        getattr(holder, step)()
    except MachineError:
        return ""
    after: AnyPhase = holder.state
    return after


def next_phase(phase: Phase, step: Step, *, task_id: str = "TASK") -> Phase:
    """The phase of a mission after ``step``, as the machine decides it; ``amend`` changes none.

    Raises:
        StepIllegal: the phase has no such step; the error names the legal ones and what to type instead.
        AutoresearchError: the machine cannot be run.
    """
    if step == "amend" and is_legal(phase, step):
        return phase
    if step != "amend" and (after := reached(TRANSITIONS, phase, step)):
        return after
    mission = "draft" if phase == "draft" else f"{phase} mission"
    legal = [done(name) for name in legal_steps(phase) if name != "complete"]
    ways = f"it can be {', '.join(legal[:-1])} or {legal[-1]}" if legal else "it cannot be reopened"
    raise StepIllegal(
        f"a {mission} cannot be {done(step)}; {ways}",
        next_step=COMMAND_FOR[phase].format(task=task_id),
    )


def done(step: Step) -> str:
    """The participle of a step, as in "a mission can be paused"."""
    return {"launch": "started", "cancel": "cancelled"}.get(step, f"{step.removesuffix('e')}ed")


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


SCHEMA_VERSION = 4
"""Of records and state; ``missions/snapshots.py`` has a step for each version before."""
VALIDATION_MODES: tuple[ValidationMode, ...] = ("mission-validator-script", "prompt-architect-artifact")
OPERATIONS: tuple[Operation, ...] = ("network", "write", "publish")
"""Operations that an owner can forbid; the runtime enforces the first two in its own runs, the agent is told all."""


@dataclass(frozen=True, slots=True)
class JudgingTerms:
    """How a mission is judged: the fields that a draft, its sandbox.md and its contract share.

    Attributes:
        validation_mode: exactly one of the two modes.
        validator_command: shell command that decides (first mode); the runtime runs it in the workspace.
        validator_prompt: the question to a reviewer (second mode).
        output_artifact_path: the artifact under review, relative to the workspace (second mode).
        reviewer_command: shell command of the reviewer, fed the prompt on stdin; a known agent CLI's name alone is
            enough (second mode).
        reviews: globs of what the reviewer gets beside the artifact; without any, the files that changed since the
            launch (second mode).
        reviewed_by: who may review: ``command``, ``person``, ``session`` (second mode).
        timeout_seconds: limit of one validation or review.
        score_direction: whether ``higher`` or ``lower`` scores of the validator are better.
        isolate_home: run with an empty home folder.
        accept_unattested: a hand-written completion artifact counts.
        unfrozen_reason: why no file needs to be frozen.
        confirm: ``clean``: a pass counts only where the check also passes in a clean copy of what git tracks.
        keep: paths that such a copy has although git does not track them.
        link: paths to which such a copy links.
        mounts: runs may see the frozen files mounted in their places; without, those are hashed.
        work: globs of what the agent is to change, which is never frozen; ``!glob`` takes paths out.
        without_tests: names of tests of the baseline that need not pass.
        accept_foreign_install: the check may import the project from another checkout.
    """

    validation_mode: ValidationMode
    validator_command: str = ""
    validator_prompt: str = ""
    output_artifact_path: str = ""
    reviewer_command: str = ""
    reviewed_by: tuple[Reviewer, ...] = ("command", "person")
    timeout_seconds: float = 900.0
    score_direction: MetricDirection = "higher"
    isolate_home: bool = False
    accept_unattested: bool = False
    unfrozen_reason: str = ""
    confirm: Confirmation = ""
    keep: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    mounts: bool = True
    work: tuple[str, ...] = ()
    reviews: tuple[str, ...] = ()
    without_tests: tuple[str, ...] = ()
    accept_foreign_install: bool = False


@dataclass(frozen=True, slots=True)
class Contract(JudgingTerms):
    """The terms of completion, compiled by the owner; a verdict counts only under the digest of its own contract.

    Attributes:
        output_limit_bytes: what is kept of one output, its beginning and its end; the rest is drained and said.
        environment: the owner's environment at launch, the only one that validators get.
        allow_unsandboxed: the owner allows runs outside a sandbox for a sandboxed client as well.
        pin_digest: sha256 of the manifest of pinned files.
        mounts_pins: runs see the frozen copies in the places of the pinned files, where the machine can mount them.
        written_by_check: paths that would be pinned, but that the check itself writes.
        runner: the known test runner that the validator calls, or empty.
        baseline_tests: tests that it ran at intake, passed or failed; as many must pass in the end.
        import_folders: of the workspace, that Python is to search first, since the project is installed from elsewhere.
        foreign_install: the other checkout from which the check imports the project, where its owner accepts that.
        baseline_skipped: tests that its runner skipped at intake.
        named_tests: of the tests at intake, those that must pass by their names.
        named_tests_digest: sha256 of the list of these names; empty where there is none.
        has_pytest_report: pytest writes a report of its tests for the runtime (``--junitxml``).
        baseline_reports: its last line was a report (``passed`` or ``status``) at intake; each later one must be.
        forbidden: operations that the mission does without; they narrow what the runtime's own runs may do.
        intake_digests: digests of mission.md and sandbox.md as compiled, to report a later edit.
    """

    output_limit_bytes: int = 64 * 1024 * 1024
    environment: dict[str, str] = field(default_factory=dict)
    allow_unsandboxed: bool = False
    pin_digest: str = ""
    pinned_count: int = 0
    mounts_pins: bool = False
    written_by_check: tuple[str, ...] = ()
    runner: str = ""
    baseline_tests: int | None = None
    import_folders: tuple[str, ...] = ()
    foreign_install: str = ""
    baseline_skipped: int = 0
    named_tests: int = 0
    named_tests_digest: str = ""
    has_pytest_report: bool = False
    baseline_score: float | None = None
    baseline_reports: bool = False
    criteria: tuple[Criterion, ...] = nested(Criterion, default=())
    forbidden: tuple[Operation, ...] = ()
    limits: Limits = nested(Limits, default_factory=Limits)
    intake_digests: dict[str, str] = field(default_factory=dict)

    @property
    def is_review(self) -> bool:
        """A reviewer judges an artifact; otherwise the validator's command decides."""
        return self.validation_mode == "prompt-architect-artifact"


@dataclass(frozen=True, slots=True)
class Attestation:
    """The runtime's own record of one validation or review, bound to everything that it depended on.

    Attributes:
        verdict: ``passed``, ``failed``, ``error`` (could not tell) or ``tampered``.
        cause: one word for the verdict: ``exit-0``, ``exit-nonzero``, ``timed-out``, ``not-started``, ...
        summary: one line for people, from the runtime's own words or the validator's, made harmless.
        contract_digest: of the contract it ran under.
        pin_digest: of the pinned files, at start and end.
        head: the commit at start and end; empty outside git.
        tree_digest: of the workspace's content at start and end.
        is_fresh: HEAD, tree and pins were the same at its start and its end.
        started_at, finished_at: ISO 8601 UTC.
        exit_status: of the command; None where it was ended or never started.
        tests: tests that a known runner ran, if it said so; skipped ones did not run.
        tests_skipped: tests that it skipped.
        output_digest: sha256 of the kept output.
        output_artifact_digest: sha256 of the artifact under review (second mode).
        output_artifact_mark: of its text without white space: what a rejection is remembered by.
        isolation: what really isolated the run: ``none``, ``bubblewrap``, ``landlock`` or ``fenced``.
        leaked: command lines of processes that outlived the run and were ended.
        is_mounted: the run saw the frozen copies in the place of the pinned files.
        imports_from: the tree that the project was imported from, where an installation leads to another one.
    """

    run_id: str
    verdict: RunVerdict
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
    tests_skipped: int = 0
    output_digest: str = ""
    output_mark: str = ""
    output_artifact_digest: str = ""
    output_artifact_mark: str = ""
    isolation: str = "none"
    duration_seconds: float = 0.0
    leaked: tuple[str, ...] = ()
    is_mounted: bool = False
    imports_from: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A content of the artifact that a review rejected under the contract in force.

    Attributes:
        run_id: of the review.
        cause: as its attestation has it, which says who reviewed.
        summary: what the reviewer said, one line.
        digest: sha256 of the content.
        mark: of its text without white space; see :func:`~omx_autoresearch.missions.rules.reviews.content_mark`.
    """

    run_id: str
    cause: str
    summary: str
    digest: str
    mark: str


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
        text: what was said to the agent, or which background work let it go.
        tree_digest: of the workspace at that stop.
        last_message_digest: of the agent's last text.
        goal: what is told of the client's own goal, active at that stop; empty for none.
        override_expected: the client may have let the agent go despite this refusal.
    """

    at: str
    answer: str
    reason_code: str
    session_id: str
    payload_digest: str = ""
    text: str = ""
    tree_digest: str = ""
    last_message_digest: str = ""
    goal: str = ""
    override_expected: bool = False


@dataclass(frozen=True, slots=True)
class Blocker:
    """The reason why a mission cannot go on without a person.

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
    by: str = "gate"


@dataclass(frozen=True, slots=True)
class Binding:
    """The session that a mission holds, by the client's own id and name.

    ``how`` is the act that bound it: ``prompt``, ``session-option``, ``environment``, ``agent-start``, ``clear``.
    """

    session_id: str
    client: str
    how: str
    at: str


@dataclass(frozen=True, slots=True)
class MissionIdentity:
    """The facts of a mission that its creation sets.

    Attributes:
        task_id: ``YYYYMMDD-HHMMSS-slug``.
        slug: names its folder under ``.omx/specs``.
        goal: what was asked, verbatim.
        task_type: the kind of mission.
        project_path: the project's root, whose ``.omx`` shows this mission.
        workspace_path: where the agent works and validation runs (a worktree of the project, or the project itself).
        specs_path: folder of mission.md and sandbox.md, relative to the project.
        milestones: in the order in which they are reached.
        schema_version: of the journal's newest records.
    """

    task_id: str
    slug: str
    goal: str
    task_type: TaskType
    project_path: str
    workspace_path: str
    specs_path: str
    scope: tuple[str, ...] = ()
    non_goals: tuple[str, ...] = ()
    milestones: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Mission(MissionIdentity):
    """The state of one mission.

    Attributes:
        created_at: ISO 8601 UTC.
        phase: of the lifecycle.
        contract: None while draft.
        contract_digest: sha256 of the contract's canonical JSON.
        usage: what was spent.
        running_since: start of the running stretch that is not yet charged; empty when not running.
        iteration: passes between two stops so far.
        best_score, last_score: the best validator score so far, and the newest one.
        output_marks: normalized output digests seen, newest last, bounded.
        attestation: the newest finished validation or review.
        rejections: contents of the artifact that were rejected under this contract, newest last, bounded.
        rejection_count: rejections of the whole mission.
        review_count: calls of the reviewer command that were begun, and verdicts of other sessions.
        running_validation: the one under way.
        lost_run_id: the newest run, where it ended without a verdict; empty otherwise.
        is_recheck_due: a person spoke since the newest attestation; its failure is not reused.
        prompted_at: when a person last spoke in the bound session or let the mission go on, ISO 8601 UTC; empty before.
        is_person_turn: the turn under way was begun by a person, not by a refusal.
        turn_heartbeat_bytes: size of the heartbeat file when this turn began; tools of the turn lie beyond.
        blocker: set while blocked.
        binding: the newest binding; None when unbound.
        last_stop: the newest answer of the gate.
        nonce_digest: of the nonce that ``OMX_AUTORESEARCH_TASK=TASK:NONCE`` must carry, until used.
        completed_run_id, completed_at: the attested run that completed the mission, and when; empty before.
        difference: what had changed since the launch at the completion; None before.
        claim_count: claims taken in (notes, hand edits), none of them proof.
        finding_count, accepted_count: findings recorded, and how many of them are evidence.
        evidence_ids: newest ids of accepted findings by criterion id.
        checks: what the runtime saw of each criterion when it last looked.
        verification_excuse: why verification could not run, accepted by the owner.
        launch_head, launch_tree_digest: commit and content of the workspace at launch; empty when not seen.
        directions: every direction tried.
        recent_directions: the newest declarations, newest last, bounded.
        open_directions: what the owner injected and the agent has not taken up, oldest first, bounded.
        pivot_count: untried pivots declared.
        has_stalled: the mission was blocked as stalled, and nothing was strong progress since.
        turn_findings: findings since the last stop.
        turn_evidence: criteria that had their first evidence since the last stop.
        turn_evidence_ids: ids of the evidence since the last stop, newest last, bounded.
        turn_has_direction: a direction was declared since the last stop, by the agent or the owner.
        turn_has_pivot, turn_repeats_direction: so was an untried pivot, or a direction that had been tried before.
        experiments: ids of the experiments that belong to the mission, newest last, bounded.
        credited_trials: the number of the newest accepted trial that was told, by experiment.
        turn_trials: accepted trials since the last stop.
        claim_digests: of the newest verified claim that was told, by metric.
        edited_projections: projections that were edited by hand and restored, newest last, bounded.
        refused_verbs: owner verbs that were tried from inside an agent.
        forked_sessions: when a fork of a session in this workspace began, and its id; newest last, bounded.
        background_ids: the client's background tasks for which a stop was let go, newest last, bounded.
        lost_hold: that the bound session was lost in mid-mission; a later event of it proves that it came back.
        host_end_count: stops that the host ended; outside every counter.
        notices: of the lifecycle, newest last, bounded.
        told_digest: of the summary that was last given at a prompt.
        turn_heartbeat_failed: a heartbeat of this turn could not be written.
        adopted_from: the folder of another runtime that it began as; empty for none.
        updated_at: time of the newest record.
    """

    created_at: str = ""
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
    rejections: tuple[Rejection, ...] = nested(Rejection, default=())
    rejection_count: int = 0
    review_count: int = 0
    running_validation: RunningValidation | None = nested(RunningValidation, default=None)
    lost_run_id: str = ""
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
    difference: Difference | None = nested(Difference, default=None)
    claim_count: int = 0
    finding_count: int = 0
    accepted_count: int = 0
    evidence_ids: dict[str, tuple[str, ...]] = field(default_factory=dict)
    checks: tuple[CriterionCheck, ...] = nested(CriterionCheck, default=())
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
    background_ids: tuple[str, ...] = ()
    lost_hold: Notice | None = nested(Notice, default=None)
    host_end_count: int = 0
    notices: tuple[Notice, ...] = nested(Notice, default=())
    told_digest: str = ""
    turn_heartbeat_failed: bool = False
    adopted_from: str = ""
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
        """The agent or the owner declared a direction; a claim is not enough."""
        return any(item.by != "claim" for item in self.recent_directions)

    @property
    def is_after_stall(self) -> bool:
        """The tried directions are worn out: only an untried one may be declared."""
        return self.has_stalled or self.is_pivot_required

    @property
    def is_pivot_required(self) -> bool:
        """The stale count demands a change of structure."""
        return self.usage.stale >= self.limits.stale_pivot


def noticed(mission: Mission, ts: str, kind: str, text: str, reason: str = "") -> Mission:
    """The mission with one more notice, and the reason behind it where one was given; the oldest ones make room."""
    text = f"{text}: {reason}" if reason else text
    return replace(mission, notices=(*mission.notices, Notice(ts, kind, text))[-KEPT_NOTICES:])


def seconds_running(mission: Mission, now: str) -> float:
    """Wall time charged to the mission so far, in seconds."""
    stretch = seconds_between(mission.running_since, now) if mission.running_since else 0.0
    return mission.usage.seconds_running + stretch + _seconds_behind(mission, now)


def charged(mission: Mission, now: str) -> Mission:
    """The mission with the time charged that passed while the clock stood behind the start of the running stretch.

    A clock that ran ahead at the launch would give the mission as many hours for nothing. What is charged here is
    charged from record to record; the stretch itself counts once the clock has passed its start.
    """
    seconds = _seconds_behind(mission, now)
    if not seconds:
        return mission
    usage = replace(mission.usage, seconds_running=mission.usage.seconds_running + seconds)
    return replace(mission, usage=usage)


def _seconds_behind(mission: Mission, now: str) -> float:
    is_behind = max(mission.updated_at, now) < mission.running_since
    return seconds_between(mission.updated_at, now) if is_behind and mission.updated_at else 0.0


def next_command(mission: Mission, *, is_validating: bool = False, is_after_run: bool = False) -> str:
    """The next command for a person; every surface asks here.

    A running mission that no session works on waits for ``$autoresearch TASK``, which is typed in the agent.

    Args:
        mission: as it stands.
        is_validating: a run of its validator or reviewer goes on.
        is_after_run: the caller shows the newest run, whose verdict may need a command of its own.
    """
    task, run = mission.task_id, mission.attestation
    if is_validating:
        return f"omx-autoresearch wait {task}"
    if mission.blocker:
        return mission.blocker.command
    if mission.phase == "running" and is_after_run and run is not None and run.verdict == "tampered":
        verb = "validate" if run.cause == "pins-moved" else "restore"  # all is as it was again
        return f"omx-autoresearch {verb} {task}"
    if mission.phase == "running" and mission.binding is None:
        return f"$autoresearch {task}"
    return COMMAND_FOR[mission.phase].format(task=task)
