"""Records of the work on a mission: its sessions and stops, validations, findings, directions."""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, nested, replace
from omx_autoresearch.missions.rules.allowances import Usage
from omx_autoresearch.missions.rules.criteria import CRITERIA_LIMIT, CriterionCheck, Finding
from omx_autoresearch.missions.rules.directions import (
    DIRECTIONS_LIMIT,
    OPEN_LIMIT,
    Direction,
    Tried,
    direction_faults,
    kept,
    near_key,
    perturbation,
)
from omx_autoresearch.missions.rules.evidence import better_of, run_score
from omx_autoresearch.missions.rules.mission import (
    FINAL_PHASES,
    Attestation,
    LastStop,
    Mission,
    RunningValidation,
    noticed,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from omx_autoresearch.foundation.types import Progress
    from omx_autoresearch.missions.rules.mission import Mission


# --- Stops: one record before every answer that is not silence.

_KEPT_TASKS = 100
KEPT_OUTPUT_MARKS = 200
"""Masked output digests that are remembered; an older one may count as new again, within ``weak_holds``."""


@dataclass(frozen=True, slots=True)
class StopFacts:
    """The facts that every answer to a stop records.

    Attributes:
        tree_digest: of the workspace; empty where it was not looked at. Only a judged iteration moves the mission's.
        background_ids: the client's background tasks for which the stop was let go.
        goal: what is told of the client's own goal; empty where it pursues none.
        heartbeat_bytes: size of the heartbeat file; tools of the next turn lie beyond.
        iteration: number of the iteration that it ended, from 1; 0 when it ended none. The fields behind it tell of it.
        verdict: of the newest run under the contract; empty when there was none.
    """

    session_id: str
    reason_code: str
    usage: Usage = nested(Usage)
    is_iteration: bool = False
    payload_digest: str = ""
    text: str = ""
    tree_digest: str = ""
    heartbeat_bytes: int = 0
    last_message_digest: str = ""
    background_ids: tuple[str, ...] = ()
    goal: str = ""
    iteration: int = 0
    began_at: str = ""
    tool_count: int = 0
    direction: str = ""
    evidence_ids: tuple[str, ...] = ()
    verdict: str = ""
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class StopRefused:
    """The agent was told to keep working.

    Attributes:
        stop: the facts.
        missing: codes of the missing items.
        progress: of the iteration that this stop ended; empty when nothing was judged (a refusal to wait).
        override_expected: the client's cap is near; it may let the next stop through despite a refusal.
    """

    kind: ClassVar[str] = "stop_refused"
    stop: StopFacts = nested(StopFacts)
    missing: tuple[str, ...] = ()
    progress: Progress | str = ""
    override_expected: bool = False

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Counters move, and a new turn begins."""
        answered = _answered(mission, ts, self.stop, "refuse", progress=self.progress)
        stop = answered.last_stop
        if stop is None or not self.override_expected:
            return answered
        return replace(answered, last_stop=replace(stop, override_expected=True))


@dataclass(frozen=True, slots=True)
class StopAllowed:
    """The stop was let through (complete, background work, a host's own end)."""

    kind: ClassVar[str] = "stop_allowed"
    stop: StopFacts = nested(StopFacts)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Counters as given; a host's end is counted by itself."""
        is_host_end = self.stop.reason_code.startswith("host-")
        count = mission.host_end_count + (1 if is_host_end else 0)
        progress = "strong" if self.stop.is_iteration else ""  # only completion ends an allowed one
        answered = _answered(mission, ts, self.stop, "allow", progress=progress)
        return replace(answered, host_end_count=count)


@dataclass(frozen=True, slots=True)
class StopReleased:
    """The agent was let go although the mission is not done; a person or the watchdog must look."""

    kind: ClassVar[str] = "stop_released"
    stop: StopFacts = nested(StopFacts)
    progress: Progress | str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Counters as given; the phase changes by its own record."""
        return _answered(mission, ts, self.stop, "release", progress=self.progress or "none")


def _answered(mission: Mission, ts: str, stop: StopFacts, answer: str, *, progress: str) -> Mission:
    """The mission after an answer; without ``progress`` this stop judged nothing, and what was achieved stays."""
    last = mission.last_stop
    known_tree_digest = last.tree_digest if last else ""
    if progress:
        mission = _absorbed(mission)
        mission = replace(
            mission,
            has_stalled=mission.has_stalled and progress != "strong",
            turn_findings=0,
            turn_evidence=0,
            turn_evidence_ids=(),
            turn_has_direction=False,
            turn_has_pivot=False,
            turn_repeats_direction=False,
            turn_trials=0,
        )
        known_tree_digest = stop.tree_digest or known_tree_digest
    return replace(
        mission,
        usage=stop.usage,
        iteration=mission.iteration + (1 if stop.is_iteration else 0),
        is_person_turn=False,
        turn_heartbeat_failed=False,
        lost_hold=None,
        background_ids=(*mission.background_ids, *stop.background_ids)[-_KEPT_TASKS:],
        turn_heartbeat_bytes=stop.heartbeat_bytes,
        last_stop=LastStop(
            at=ts,
            answer=answer,
            reason_code=stop.reason_code,
            session_id=stop.session_id,
            payload_digest=stop.payload_digest,
            text=stop.text,
            tree_digest=known_tree_digest,
            last_message_digest=stop.last_message_digest,
            goal=stop.goal,
        ),
    )


def _absorbed(mission: Mission) -> Mission:
    """The newest attestation becomes what later ones are compared with."""
    run = mission.attestation
    if run is None or run.contract_digest != mission.contract_digest:
        return mission
    direction = mission.contract.score_direction if mission.contract else "higher"
    score = run_score(run, mission.contract)
    marks = tuple(mark for mark in mission.output_marks if mark != run.output_mark)
    return replace(
        mission,
        best_score=better_of(mission.best_score, score, direction),
        last_score=mission.last_score if score is None else score,
        output_marks=(*marks, run.output_mark)[-KEPT_OUTPUT_MARKS:] if run.output_mark else marks,
    )


# --- Records of validations and reviews, of what may be run, and of pinned files put back.


@dataclass(frozen=True, slots=True)
class ValidationStarted:
    """The runtime began to run the validator or reviewer; ``is_review``: it calls the reviewer, which may cost."""

    kind: ClassVar[str] = "validation_started"
    run: RunningValidation = nested(RunningValidation)
    is_review: bool = False

    def apply(self, mission: Mission, ts: str) -> Mission:
        """One run is under way; a call of the reviewer counts, however it ends."""
        count = mission.review_count + (1 if self.is_review else 0)
        return replace(mission, running_validation=self.run, lost_run_id="", review_count=count)


@dataclass(frozen=True, slots=True)
class ValidationFinished:
    """A run reported; ``attestation`` is what the runtime itself saw."""

    kind: ClassVar[str] = "validation_finished"
    attestation: Attestation = nested(Attestation)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The newest attestation; scores and marks of output are judged at the next stop.

        A mission that ended keeps the attestation that ended it. A run that began before a person's newest prompt
        says nothing about the world after it, so it is due again.
        """
        mission = _without_run(mission, self.attestation.run_id)
        if mission.phase in FINAL_PHASES:
            return mission
        is_older = self.attestation.started_at < mission.prompted_at
        if mission.contract is not None and mission.contract.is_review:
            from omx_autoresearch.missions.rules.reviews import after_verdict, is_overruled

            if is_overruled(mission, self.attestation):
                return replace(mission, lost_run_id="")
            mission = after_verdict(mission, self.attestation)
        return replace(
            mission,
            attestation=self.attestation,
            lost_run_id="",
            is_recheck_due=mission.is_recheck_due and is_older,
        )


def _without_run(mission: Mission, run_id: str) -> Mission:
    """The mission after the end of a run; if another run is under way, nothing changes."""
    running = mission.running_validation
    is_current = running is not None and running.run_id == run_id
    return replace(mission, running_validation=None) if is_current else mission


@dataclass(frozen=True, slots=True)
class ValidationLost:
    """The process that ran a validation is gone without a report (killed, power loss)."""

    kind: ClassVar[str] = "validation_lost"
    run_id: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """This run is no longer under way; if another one is, nothing changes."""
        after = _without_run(mission, self.run_id)
        return mission if after is mission else replace(after, lost_run_id=self.run_id)


@dataclass(frozen=True, slots=True)
class CommandsApproved:
    """The owner allowed the contract's commands to run outside an agent's sandbox."""

    kind: ClassVar[str] = "commands_approved"
    key: str
    is_unsandboxed: bool = False

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The approval itself stands in ``approved/``; a notice, unless it came with a start or an ``amend``."""
        last = mission.notices[-1] if mission.notices else None
        if last is not None and last.at == ts and last.kind in ("mission_launched", "mission_amended"):
            return mission
        how = ", even without a sandbox" if self.is_unsandboxed else ""
        return noticed(mission, ts, self.kind, f"the owner allowed the contract's commands to run{how}")


@dataclass(frozen=True, slots=True)
class PinsRestored:
    """Pinned files were copied back from ``frozen/``."""

    kind: ClassVar[str] = "pins_restored"
    paths: tuple[str, ...] = ()
    reason: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """One refusal that names ``restore`` is available again."""
        said = f"pinned files were put back ({', '.join(self.paths[:5]) or 'none had changed'})"
        mission = noticed(mission, ts, self.kind, said, self.reason)
        return replace(mission, usage=replace(mission.usage, tamper_refusals=0))


# --- Records of findings: evidence and claims, and what the runtime saw of each criterion.

KEPT_EVIDENCE_IDS = 16
"""Evidence ids that the state keeps for a criterion, newest last; all of them stand in the journal."""


@dataclass(frozen=True, slots=True)
class FindingRecorded:
    """Something was observed; ``finding.evidence`` says whether a criterion's rule accepted it."""

    kind: ClassVar[str] = "finding_recorded"
    finding: Finding = nested(Finding)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Counted; the first evidence of a criterion is the iteration's progress.

        More evidence for a criterion that has some changes no stale count: else editing a file at every turn
        would have strong progress for ever. So criteria reset the count at most once each.
        """
        mission = replace(
            mission,
            finding_count=mission.finding_count + 1,
            turn_findings=mission.turn_findings + 1,
        )
        evidence = self.finding.evidence
        if evidence is None:
            return mission
        known = mission.evidence_ids.get(evidence.criterion_id, ())
        is_progress = evidence.is_new and not known
        return replace(
            mission,
            accepted_count=mission.accepted_count + 1,
            turn_evidence=mission.turn_evidence + (1 if is_progress else 0),
            turn_evidence_ids=(*mission.turn_evidence_ids, self.finding.id)[-KEPT_EVIDENCE_IDS:],
            evidence_ids={
                **mission.evidence_ids,
                evidence.criterion_id: (*known, self.finding.id)[-KEPT_EVIDENCE_IDS:],
            },
        )


@dataclass(frozen=True, slots=True)
class CriteriaChecked:
    """The runtime looked at criteria; ``run_id`` is of the run that did it, empty where none was needed."""

    kind: ClassVar[str] = "criteria_checked"
    checks: tuple[CriterionCheck, ...] = nested(CriterionCheck, default=())
    run_id: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The newest check of each criterion; a run of this id is no longer under way."""
        new = {check.criterion_id: check for check in self.checks}
        kept = tuple(new.pop(check.criterion_id, check) for check in mission.checks)
        mission = _without_run(mission, self.run_id)
        return replace(mission, checks=(*kept, *new.values())[-CRITERIA_LIMIT:])


@dataclass(frozen=True, slots=True)
class VerificationExcused:
    """The owner accepted a reason why verification of changed code could not run."""

    kind: ClassVar[str] = "verification_excused"
    reason: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Readiness asks no more for verification."""
        mission = noticed(mission, ts, self.kind, "the changed code needs no verification", self.reason)
        return replace(mission, verification_excuse=self.reason)


@dataclass(frozen=True, slots=True)
class ReadinessBlocked:
    """The validator passes, and yet something is missing: ``missing`` are its codes."""

    kind: ClassVar[str] = "readiness_blocked"
    missing: tuple[str, ...] = ()

    def apply(self, mission: Mission, ts: str) -> Mission:
        """A notice; the refusal beside it counts."""
        text = f"completion waits for {', '.join(self.missing)}"
        return noticed(mission, ts, self.kind, text)


# --- Records of claims and of edited projections. A claim is kept and shown; nothing here is proof.

_KEPT_EDITS = 8


@dataclass(frozen=True, slots=True)
class ClaimRecorded:
    """A note or an inbox line, taken in as a claim.

    Attributes:
        text: the claim, bounded.
        origin: ``cli``, ``inbox``, ``tool-event``, or ``unknown`` (a file put into the inbox by hand, a line
            or entry added to a projection; ``hand-edit`` in older journals).
        claim_id: digest of the line; the same line is taken in once.
    """

    kind: ClassVar[str] = "claim_recorded"
    text: str
    origin: str
    claim_id: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Counted and shown."""
        return replace(mission, claim_count=mission.claim_count + 1)


@dataclass(frozen=True, slots=True)
class ProjectionEdited:
    """Somebody edited a projection otherwise than by adding to it; the file was set aside and written anew.

    Attributes:
        path: of the projection, relative to the mission's folder under ``.omx/autoresearch``.
        moved_to: where the edited file stands now, relative to the same.
    """

    kind: ClassVar[str] = "projection_edited"
    path: str
    moved_to: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Told by the next summary, and by a notice."""
        text = f"{self.path} was edited and has been rewritten; the edited file is {self.moved_to}"
        mission = noticed(mission, ts, self.kind, text)
        kept = (*(path for path in mission.edited_projections if path != self.path), self.path)
        return replace(mission, edited_projections=kept[-_KEPT_EDITS:])


@dataclass(frozen=True, slots=True)
class TornTailSetAside:
    """The last line of the journal was torn by a crash; its bytes were moved to a file."""

    kind: ClassVar[str] = "torn_tail_set_aside"
    path: str
    size_bytes: int

    def apply(self, mission: Mission, ts: str) -> Mission:
        """A notice; nothing acknowledged was lost."""
        kept = f"its {self.size_bytes} bytes are kept in {self.path}"
        told = f"a crash tore the last line of the journal; {kept}; nothing that was acknowledged is missing"
        return noticed(mission, ts, self.kind, told)


# --- Records of an experiment that belongs to a mission: what it is, and what it brought the mission.
# They move the stall count alone; a criterion reads the experiment's own log, each time.

KEPT_EXPERIMENTS = 32
"""Experiments that the state of a mission names, newest last; an older one meets no criterion any more."""


@dataclass(frozen=True, slots=True)
class ExperimentLinked:
    """An experiment was started for this mission."""

    kind: ClassVar[str] = "experiment_linked"
    experiment_id: str
    metric: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Its trials count from now on."""
        others = tuple(name for name in mission.experiments if name != self.experiment_id)
        return replace(mission, experiments=(*others, self.experiment_id)[-KEPT_EXPERIMENTS:])


@dataclass(frozen=True, slots=True)
class TrialsAccepted:
    """Trials of an experiment of this mission were accepted and verified anew.

    Attributes:
        experiment_id: whose.
        iterations: their numbers, ascending.
        commit: the last one's checkpoint.
    """

    kind: ClassVar[str] = "trials_accepted"
    experiment_id: str
    iterations: tuple[int, ...]
    commit: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The iteration's progress; a known trial, or one of a foreign experiment, does not count."""
        if self.experiment_id not in mission.experiments:
            return mission
        known = mission.credited_trials.get(self.experiment_id, 0)
        new = [number for number in self.iterations if number > known]
        if not new:
            return mission
        kept = {
            name: number for name, number in mission.credited_trials.items() if name in mission.experiments
        }
        return replace(
            mission,
            credited_trials={**kept, self.experiment_id: max(new)},
            turn_trials=mission.turn_trials + len(new),
        )


@dataclass(frozen=True, slots=True)
class GainVerified:
    """Base and final of an experiment of this mission were measured freshly against each other.

    Attributes:
        experiment_id: whose.
        metric: that was measured.
        digest: of the claim.
        estimate: of the gain.
        interval: around it.
    """

    kind: ClassVar[str] = "gain_verified"
    experiment_id: str
    metric: str
    digest: str
    estimate: float
    interval: tuple[float, ...] = ()

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Criteria that rest on an earlier claim of this metric are looked at anew."""
        if self.experiment_id not in mission.experiments:
            return mission
        others = {name: digest for name, digest in mission.claim_digests.items() if name != self.metric}
        kept = dict(list(others.items())[1 - KEPT_EXPERIMENTS :])
        return replace(mission, claim_digests={**kept, self.metric: self.digest})


# --- Records of directions: what was declared, what the owner injected, what the runtime demanded.

KEPT_RECENT = 8


@dataclass(frozen=True, slots=True)
class DirectionDeclared:
    """A direction was declared: by the agent, by the owner, or as a claim that came through the inbox."""

    kind: ClassVar[str] = "direction_declared"
    direction: Direction = nested(Direction)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The current direction; what it means for the iteration is remembered for the stop that ends it.

        A claim is remembered as tried and moves nothing else. One that the owner injected is no repetition, and
        neither is the same direction twice in one iteration.
        """
        new = self.direction
        known = next((item for item in mission.directions if item.fingerprint == new.fingerprint), None)
        is_invited = any(item.fingerprint == new.fingerprint for item in mission.open_directions)
        is_same_iteration = known is not None and known.first_seen_iteration >= mission.iteration
        if new.by == "claim" and known is not None and known.last_seen_iteration >= mission.iteration:
            return mission  # the claim of a direction that was declared meanwhile
        before = mission.recent_directions
        mission = replace(
            mission,
            directions=_tried(mission, new, known),
            recent_directions=(*before, kept(new))[-KEPT_RECENT:],
        )
        if new.by == "claim":
            return mission
        is_pivot = new.is_pivot and (known is None or is_same_iteration or is_invited)
        is_counted = any(item.is_pivot and item.fingerprint == new.fingerprint for item in before)
        is_repeated = known is not None and not is_same_iteration and not is_invited and new.by == "agent"
        return replace(
            mission,
            open_directions=tuple(
                item for item in mission.open_directions if item.fingerprint != new.fingerprint
            ),
            pivot_count=mission.pivot_count + (1 if is_pivot and not is_counted else 0),
            turn_has_direction=True,
            turn_has_pivot=mission.turn_has_pivot or is_pivot,
            turn_repeats_direction=mission.turn_repeats_direction or is_repeated,
        )


def claimed(mission: Mission, direction: Direction) -> DirectionDeclared | None:
    """The record of a direction that came as a claim; None for one that cannot stand."""
    if direction_faults(direction.summary, direction.axes) or mission.phase in FINAL_PHASES:
        return None
    if len(mission.directions) >= DIRECTIONS_LIMIT:
        return None
    return DirectionDeclared(replace(direction, by="claim", is_pivot=False))


def _tried(mission: Mission, new: Direction, known: Tried | None) -> tuple[Tried, ...]:
    """Every direction tried, with this one."""
    iteration = mission.iteration
    if known is None:
        summary, key = kept(new).summary, near_key(new.summary)
        return (*mission.directions, Tried(new.fingerprint, summary, iteration, iteration, 1, key))
    more = replace(known, last_seen_iteration=iteration, count=known.count + 1)
    return tuple(more if item is known else item for item in mission.directions)


@dataclass(frozen=True, slots=True)
class DirectionInjected:
    """The owner gave a direction: it is open until the agent takes it up."""

    kind: ClassVar[str] = "direction_injected"
    direction: Direction = nested(Direction)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Shown to the agent by the next summary and refusal."""
        mission = noticed(mission, ts, self.kind, f"the owner directs: {self.direction.summary}")
        older = (item for item in mission.open_directions if item.fingerprint != self.direction.fingerprint)
        return replace(mission, open_directions=(*older, self.direction)[-OPEN_LIMIT:])


@dataclass(frozen=True, slots=True)
class PivotRequired:
    """The stale count reached the point at which a change of structure is demanded; ``axis`` is offered."""

    kind: ClassVar[str] = "pivot_required"
    stale: int
    axis: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """A notice; the count itself stands in the usage."""
        text = f"{self.stale} iterations without progress: a structural pivot is required; offered axis {self.axis}"
        return noticed(mission, ts, self.kind, text)


def pivot_demanded(mission: Mission, usage: Usage) -> tuple[PivotRequired, ...]:
    """The record of a stale count that reaches the pivot with ``usage``; none where it had reached it, or does not."""
    if not mission.usage.stale < mission.limits.stale_pivot <= usage.stale:
        return ()
    return (PivotRequired(usage.stale, perturbation(mission.directions, mission.recent_directions)),)
