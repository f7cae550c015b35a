"""The stop gate: the one place that can build a refusal.

An agent wants to stop. :func:`decide` takes everything that was seen and says ``allow`` (done, or not ours),
``refuse`` (keep working) or ``release`` (not done, but let go; a person or the watchdog must look).
``missions/stop.py`` hands over what it saw of every stop but those that the hook proves foreign by their bytes alone.

**Theory.** Two faults must be impossible: an agent that is let go as done although it is not, and an agent that is
held for ever. So a stop completes a mission only where a look found nothing missing (``NOT_LOOKED`` is never empty),
and every refusal is paid for from a finite allowance. An iteration with strong progress (new evidence, a better
score) refills the allowances; weak progress (a changed tree, new output) holds the stale count a finite number of
times; anything else adds one to it. Prose moves nothing. What only the owner can fix is no reason to hold an agent,
so it blocks the mission at once. Doubt about our own state lets go and changes nothing. Between these the first line
that applies decides:

1. not the bound session, a sub-agent, an expired binding      allow, silent
2. payload, journal or ourselves cannot be trusted             release, nothing changes
3. the mission is not running                                  allow
4. the host ended the turn                                     allow, not counted
5. the completion contract is met                              allow, mission complete
6. only the owner can fix it; pinned files changed            release and block (tampered: one refusal first)
7. background work, a person's turn, our own validation        allow / refuse, on allowances of their own
8. stalled                                                     release and block
9. otherwise                                                   refuse

**Termination.** Between strong progress and without owner verbs, counted refusals are at most ``min(refusals_total,
stale_stalled - 1 + weak_holds + h)``, h being the turns that a person began and that used no tool: each counted
refusal either adds one to the stale count, or spends a weak hold, or ended such a turn. Wait refusals are at most
``wait_refusals``. tests/missions/rules/test_gate_terminates.py walks all of it.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from omx_autoresearch.agents.events import StopCap
from omx_autoresearch.foundation.errors import AutoresearchError, JournalBroken, StorageFailed, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass, field, replace
from omx_autoresearch.missions.rules.allowances import Usage, after_tool
from omx_autoresearch.missions.rules.evidence import Missing, is_better, missing_items, run_score
from omx_autoresearch.missions.rules.mission import Blocker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from omx_autoresearch.foundation.types import Answer, HostEnd, Phase, Progress, StopScope
    from omx_autoresearch.missions.rules.allowances import Limits, Usage
    from omx_autoresearch.missions.rules.criteria import WorkspaceSnapshot
    from omx_autoresearch.missions.rules.difference import Difference
    from omx_autoresearch.missions.rules.mission import Attestation, Mission


# --- Progress and its absence: what resets the stale count, what only holds it, what adds to it.
#
# Strong progress (accepted evidence, a better score, an accepted trial) resets. Weak progress (the tree
# changed, the validator said something new, a pivot that was never tried, reading that found something) holds, a finite
# number of times between two strong ones. Everything else adds one, and so does a repeated direction or a drop of the
# metric. Nothing else moves the count: not a release, not a repeated stop, not the same evidence again.


@dataclass(frozen=True, slots=True)
class Observation:
    """The facts of one iteration, the pass between two stops.

    Attributes:
        has_new_evidence: a criterion accepted evidence that it had not before.
        has_better_score: the validator's score beat the best of the mission.
        has_accepted_trial: a measured trial was accepted.
        has_tree_change: the tree digest differs from the one at the last stop.
        has_new_output: the validator's output, normalized_output, was never seen in this mission.
        has_pivot: a pivot with an untried fingerprint was declared.
        has_reading: tools ran, the tree stayed, and under a declared direction something was found.
        has_metric_drop: the score is below the last one.
        repeats_direction: the declared direction was tried before.
        is_person_turn_without_tools: a person began the turn and no tool ran; such a turn is no iteration.
    """

    has_new_evidence: bool = False
    has_better_score: bool = False
    has_accepted_trial: bool = False
    has_tree_change: bool = False
    has_new_output: bool = False
    has_pivot: bool = False
    has_reading: bool = False
    has_metric_drop: bool = False
    repeats_direction: bool = False
    is_person_turn_without_tools: bool = False


def observe(mission: Mission, *, has_tree_change: bool, used_tools: bool) -> Observation:
    """The facts of the iteration that ends now, from attested runs, the tree, and the records since the last stop.

    A reading turn used tools, left the tree as it was, and found something under a declared direction.

    Args:
        mission: the newest state.
        has_tree_change: the workspace's content is not that of the last judged stop.
        used_tools: a tool ran since the last answer.
    """
    run = mission.attestation
    if run is not None and run.contract_digest != mission.contract_digest:
        run = None
    score = run_score(run, mission.contract) if run is not None else None
    direction = mission.contract.score_direction if mission.contract else "higher"
    return Observation(
        has_new_evidence=mission.turn_evidence > 0,
        has_better_score=is_better(mission.best_score, score, direction),
        has_accepted_trial=mission.turn_trials > 0,
        has_tree_change=has_tree_change,
        has_new_output=bool(run and run.output_mark and run.output_mark not in mission.output_marks),
        has_pivot=mission.turn_has_pivot,
        has_reading=used_tools
        and not has_tree_change
        and mission.turn_findings > 0
        and mission.has_declared_direction,
        has_metric_drop=is_better(score, mission.last_score, direction),
        repeats_direction=mission.turn_repeats_direction,
        is_person_turn_without_tools=mission.is_person_turn and not used_tools,
    )


def progress_of(seen: Observation) -> Progress:
    """The kind of progress that an iteration made."""
    if seen.has_new_evidence or seen.has_better_score or seen.has_accepted_trial:
        return "strong"
    if seen.has_tree_change or seen.has_new_output or seen.has_pivot or seen.has_reading:
        return "weak"
    return "none"


def after_iteration(usage: Usage, seen: Observation, limits: Limits) -> Usage:
    """The counters after one iteration; pure, and the only place that moves the stale count."""
    progress = progress_of(seen)
    if progress == "strong":
        return replace(usage, stale=0, weak_holds=0, background_allows=0, wait_refusals=0)
    if seen.is_person_turn_without_tools:
        return usage
    is_held = progress == "weak" and usage.weak_holds < limits.weak_holds
    if is_held:
        usage = replace(usage, weak_holds=usage.weak_holds + 1)
    if seen.has_metric_drop or seen.repeats_direction or not is_held:
        usage = replace(usage, stale=usage.stale + 1)
    return usage


def is_stalled(usage: Usage, limits: Limits) -> bool:
    """True when the mission must stop asking the agent and ask a person."""
    return usage.stale >= limits.stale_stalled or usage.idle_refusals >= limits.idle_refusals


NOT_LOOKED = (Missing("look", "a look at the workspace", "no look yet", "omx-autoresearch status"),)
"""The missing item before the first look: only a look that finds nothing missing completes a mission."""

_BLOCKED_FOR_WANT_OF = (
    "stalled",
    "answer-repeated",
    "plan-mode",
    "tools-denied",
    "refusals-spent",
    "wall-clock-spent",
)


@dataclass(frozen=True, slots=True)
class Seen:
    """The view of the world at one stop, to be compared with the newest state of the mission.

    Attributes:
        mission: when the session came to its stop; a look was needed only where it ran.
        look: the workspace; None where it was not needed, or could not be seen.
        unseen: why the workspace could not be seen.
        may_not_run: why the contract's command may not run; empty where it may, or is not needed.
        approve_command: what the owner types then.
        run: the run of this very stop.
        is_validation_running: that run did not end in time.
        is_reused: the newest failure was reused instead of a new run.
        difference: what changed since the launch, where the contract was met.
    """

    mission: Mission
    look: WorkspaceSnapshot | None = None
    unseen: Blocker | None = None
    may_not_run: str = ""
    approve_command: str = ""
    run: Attestation | None = None
    is_validation_running: bool = False
    is_reused: bool = False
    difference: Difference | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything seen of one stop.

    Attributes:
        scope: whose stop it is.
        fault: file, line and cure, when nothing can be trusted.
        phase: of the mission.
        host_end: why the host ended the turn.
        missing: what the contract lacks; empty means that it is met, so the default is not empty.
        blocker: what only the owner can fix.
        tampered: pinned paths that changed.
        is_validation_running: a validation or review did not end within the hook's deadline.
        has_background_work: work of the client goes on for which no stop was let go yet.
        client_blocker: what a person must change in the client before its agent can do anything: its plan mode.
        observation: of the iteration that this stop ends.
        used_tools: a tool ran since the last answer, or the tree changed where tool events are not installed.
        repeats_answer: the agent's text is the same as at the last stop and no tool ran.
        denial: the client's words where it denied the newest tool.
        lets_go_on_repeat: the client spins on repeated answers; let it go.
        was_let_go_on_repeat: the last stop was let go for a repeated answer already.
        cap: of the client.
        task_id: for commands in texts.
    """

    scope: StopScope = "ours"
    fault: str = ""
    phase: Phase = "running"
    host_end: HostEnd = ""
    missing: tuple[Missing, ...] = NOT_LOOKED
    blocker: Blocker | None = None
    tampered: tuple[str, ...] = ()
    is_validation_running: bool = False
    has_background_work: bool = False
    client_blocker: Blocker | None = None
    denial: str = ""
    observation: Observation = field(default_factory=Observation)
    used_tools: bool = False
    repeats_answer: bool = False
    lets_go_on_repeat: bool = False
    was_let_go_on_repeat: bool = False
    cap: StopCap | None = None
    task_id: str = "TASK"

    @property
    def for_person(self) -> Blocker | None:
        """What only a person can change in the client; the stop is let go for it, and in the end blocks the mission.

        An aborted answer looks like a repeated one where the client does not tell of the abort.
        """
        is_repeat = self.lets_go_on_repeat and self.repeats_answer
        return self.client_blocker or (_repeat_blocker(self.task_id) if is_repeat else None)


@dataclass(frozen=True, slots=True)
class Decision:
    """The gate's answer to one stop.

    Attributes:
        answer: ``allow``, ``refuse`` or ``release``.
        reason_code: stable word, for machines and records.
        usage: the counters after this stop.
        is_recorded: False for silence about what is not ours.
        is_iteration: this stop ended an iteration.
        progress: of that iteration; empty when it was none.
        completes: the mission is complete.
        blocker: the mission becomes blocked, for this.
        override_expected: the client's cap is near (its limit less one); it may let the next stop through whatever we
            answer, so that a person or the watchdog must look.
    """

    answer: Answer
    reason_code: str
    usage: Usage
    is_recorded: bool = True
    is_iteration: bool = False
    progress: Progress | Literal[""] = ""
    completes: bool = False
    blocker: Blocker | None = None
    override_expected: bool = False

    @property
    def would_block(self) -> bool:
        """True when the mission is about to be blocked for want of progress or time.

        The caller validates anew before such a decision holds: the world may have moved since the last run.
        """
        return self.blocker is not None and self.blocker.reason_code in _BLOCKED_FOR_WANT_OF


def decide(seen: Situation, usage: Usage, limits: Limits) -> Decision:
    """The answer to one stop; see the module's text for the order."""
    if seen.scope != "ours":
        return Decision("allow", seen.scope, usage, is_recorded=False)
    if seen.fault:
        return Decision("release", "fault", usage, is_recorded=False)
    if seen.phase != "running":
        return Decision("allow", f"phase-{seen.phase}", usage, is_recorded=False)
    if seen.host_end:
        return Decision("allow", f"host-{seen.host_end.replace('_', '-')}", replace(usage, refusals_in_row=0))
    if not seen.missing and not seen.tampered:
        return Decision("allow", "complete", _moved(seen, usage, limits), is_iteration=True, completes=True)
    if seen.blocker is not None:
        return _blocked(seen, usage, limits, seen.blocker)
    waiting = None if seen.tampered else _waiting(seen, usage, limits)
    return waiting or _ordinary(seen, usage, limits)


def _after_tools(seen: Situation, usage: Usage) -> Usage:
    """The counters after the tools of this turn, before the answer."""
    if not seen.used_tools:
        return usage
    return after_tool(usage, resets_row=seen.cap is not None and seen.cap.reset_by_tools)


def _judged(seen: Situation) -> Observation:
    """The observation as far as it counts: what was measured beside changed pins is no strong progress."""
    if not seen.tampered:
        return seen.observation
    return replace(
        seen.observation,
        has_new_evidence=False,
        has_better_score=False,
        has_accepted_trial=False,
    )


def _moved(seen: Situation, usage: Usage, limits: Limits) -> Usage:
    """The counters after the iteration that this stop ends, before the answer."""
    usage = _after_tools(seen, usage)
    usage = replace(usage, repeats=usage.repeats + 1 if seen.repeats_answer else 0)
    return after_iteration(usage, _judged(seen), limits)


def _ordinary(seen: Situation, usage: Usage, limits: Limits) -> Decision:
    """Steps 6 (tampered), 8 and 9: a counted refusal, or the release that ends the allowance."""
    moved = _moved(seen, usage, limits)
    if seen.tampered and usage.tamper_refusals > 0:
        return _blocked(seen, usage, limits, _tamper_blocker(seen))
    if seen.for_person is not None:
        return _blocked(seen, usage, limits, seen.for_person)
    if is_stalled(moved, limits):
        return _blocked(seen, usage, limits, _denied_blocker(seen) if seen.denial else _stall_blocker(seen))
    if moved.refusals >= limits.refusals_total:
        return _blocked(seen, usage, limits, _spent_blocker(seen, limits))
    reason = "tampered" if seen.tampered else seen.missing[0].code
    return _refused(seen, reason, moved, is_counted=True)


def _waiting(seen: Situation, usage: Usage, limits: Limits) -> Decision | None:
    """Step 7: what may be waited for, on finite allowances of its own; None when they are spent."""
    usage = _after_tools(seen, usage)
    if usage.background_allows < limits.background_allows:
        spent = replace(usage, background_allows=usage.background_allows + 1, refusals_in_row=0)
        if seen.for_person is not None and not seen.was_let_go_on_repeat:
            return Decision("allow", seen.for_person.reason_code, spent)
        if seen.has_background_work:
            return Decision("allow", "background-work", spent)
    if seen.for_person is not None:
        return None
    if seen.is_validation_running and usage.wait_refusals < limits.wait_refusals:
        spent = replace(usage, wait_refusals=usage.wait_refusals + 1)
        return _refused(seen, "validation-running", spent, is_counted=False)
    return None


def _refused(seen: Situation, reason_code: str, usage: Usage, *, is_counted: bool) -> Decision:
    usage = replace(usage, refusals_in_row=usage.refusals_in_row + 1)
    if is_counted:
        usage = replace(
            usage,
            refusals=usage.refusals + 1,
            idle_refusals=usage.idle_refusals + 1,
            tamper_refusals=usage.tamper_refusals + (1 if seen.tampered else 0),
        )
    limit = seen.cap.limit if seen.cap else None
    return Decision(
        "refuse",
        reason_code,
        usage,
        is_iteration=is_counted and not seen.observation.is_person_turn_without_tools,
        progress=progress_of(_judged(seen)) if is_counted else "",
        override_expected=limit is not None and usage.refusals_in_row >= limit - 1,
    )


def _blocked(seen: Situation, usage: Usage, limits: Limits, blocker: Blocker) -> Decision:
    return Decision(
        "release",
        blocker.reason_code,
        _moved(seen, usage, limits),
        is_iteration=not seen.observation.is_person_turn_without_tools,
        progress=progress_of(_judged(seen)),
        blocker=blocker,
    )


def _tamper_blocker(seen: Situation) -> Blocker:
    return Blocker(
        "tampered",
        f"pinned files changed and were not restored: {', '.join(seen.tampered[:5])}",
        "restore the pinned files, or accept the change with amend",
        f"omx-autoresearch restore {seen.task_id} && omx-autoresearch unblock {seen.task_id}",
    )


def _stall_blocker(seen: Situation) -> Blocker:
    return Blocker(
        "stalled",
        f"no progress; still missing: {'; '.join(item.what for item in seen.missing) or 'the pinned files'}",
        "the smallest external input that lets the agent go on: a direction "
        f'(`omx-autoresearch direct {seen.task_id} "..."`), a decision, an amended contract',
        f"omx-autoresearch unblock {seen.task_id}",
    )


def _repeat_blocker(task_id: str) -> Blocker:
    return Blocker(
        "answer-repeated",
        "the agent gave the same answer again and used no tool, so its client would repeat itself for ever",
        "a person's word to the agent in a prompt, which begins a new turn",
        f"omx-autoresearch unblock {task_id}",
    )


def plan_blocker(permission_mode: str, task_id: str) -> Blocker | None:
    """The session is in the client's plan mode, in which its agent may not write; None for any other mode."""
    if permission_mode != "plan":
        return None
    return Blocker(
        "plan-mode",
        "the session is in plan mode, so the agent may change nothing",
        "a person who leaves plan mode in the agent (Shift+Tab), or approves its plan",
        f"omx-autoresearch unblock {task_id}",
    )


def _denied_blocker(seen: Situation) -> Blocker:
    return Blocker(
        "tools-denied",
        f"the agent CLI denied its agent the tool that it needs: {seen.denial}",
        "a person who allows the tool in the agent CLI (its question, its permission mode, or its settings)",
        f"omx-autoresearch unblock {seen.task_id}",
    )


def _spent_blocker(seen: Situation, limits: Limits) -> Blocker:
    return Blocker(
        "refusals-spent",
        f"all refusals of this mission ({limits.refusals_total}) are spent",
        "more refusals, or a decision to cancel the mission",
        f"omx-autoresearch unblock {seen.task_id} --add-refusals 100",
    )


# --- What only the owner can fix: a workspace or contract that cannot be seen, a command that may not or cannot run.


def unseen(error: AutoresearchError, task_id: str) -> Blocker:
    """The workspace cannot be looked at, or the contract's own files are damaged.

    Raises:
        JournalBroken, StorageFailed: the error itself; it is no state of the mission but a fault of the runtime.
    """
    if isinstance(error, (JournalBroken, StorageFailed)):
        raise error
    is_workspace = isinstance(error, WorkspaceFault)
    code = "workspace-fault" if is_workspace else "contract-broken"
    needs = "a workspace that can be read" if is_workspace else "a contract whose files are whole"
    cure, unblock = error.next_step.replace("TASK", task_id), f"omx-autoresearch unblock {task_id}"
    if cure.startswith("omx-autoresearch ") and cure != unblock:
        return Blocker(code, error.message, needs, f"{cure} && {unblock}")
    return Blocker(code, error.message, f"{needs} ({cure})" if cure else needs, unblock)


def time_blocker(mission: Mission, spent_seconds: float) -> Blocker | None:
    """The mission has run for longer than it may."""
    if spent_seconds <= mission.limits.wall_clock_hours * 3600:
        return None
    return Blocker(
        "wall-clock-spent",
        f"the mission has run for {spent_seconds / 3600:.1f} h of {mission.limits.wall_clock_hours:g} h",
        "more hours, or a decision to cancel the mission",
        f"omx-autoresearch unblock {mission.task_id} --add-hours 8",
    )


def run_blocker(mission: Mission, seen: Seen) -> Blocker | None:
    """The contract's command may not run, or a run of this very stop could not be started."""
    run = seen.run
    if seen.may_not_run:
        return Blocker("approval-missing", seen.may_not_run, "the owner's approval", seen.approve_command)
    is_review = mission.contract is not None and mission.contract.is_review
    if seen.is_validation_running and is_review:
        return _slow_reviewer_blocker(mission)
    if run is None or run.contract_digest != mission.contract_digest:
        return None
    if is_review:
        return _reviewer_blocker(mission, run)
    if run.cause != "not-started":
        return None
    return Blocker(
        "validator-gone",
        f"the validator cannot be started: {run.summary}",
        "a validator that starts",
        f"omx-autoresearch amend {mission.task_id} --validator '...'",
    )


def _reviewer_blocker(mission: Mission, run: Attestation) -> Blocker | None:
    """A review of this very stop gave no verdict: its command or its service failed, which the agent cannot mend."""
    if run.verdict != "error":
        return None
    needs = "a reviewer that gives a verdict: log it in, wait until its limit ends, or amend --reviewer"
    command = f"omx-autoresearch unblock {mission.task_id}"
    forbidden = mission.contract.forbidden if mission.contract else ()
    if run.cause == "not-started":
        needs = "a reviewer that starts"
        command = f"omx-autoresearch amend {mission.task_id} --reviewer '...' && {command}"
    elif run.isolation != "none" and "network" not in forbidden:
        needs = "the owner's word that the reviewer may run outside the sandbox, which has no network"
        command = f"omx-autoresearch approve {mission.task_id} --unsandboxed && {command}"
    return Blocker(
        "reviewer-failed", f"the reviewer gave no verdict ({run.cause}): {run.summary}", needs, command
    )


def _slow_reviewer_blocker(mission: Mission) -> Blocker | None:
    """A review still runs and was waited for as often as it may be: the agent can do nothing for it."""
    if mission.usage.wait_refusals < mission.limits.wait_refusals:
        return None
    return Blocker(
        "reviewer-failed",
        f"the reviewer has given no verdict yet, after {mission.usage.wait_refusals} stops that waited for it",
        f"the end of the review (omx-autoresearch wait {mission.task_id}), or a quicker reviewer",
        f"omx-autoresearch unblock {mission.task_id}",
    )


def failed_review(mission: Mission) -> Attestation | None:
    """The review that was under way at the last stop and has ended without a verdict since; None for none."""
    run, last, contract = mission.attestation, mission.last_stop, mission.contract
    if run is None or last is None or contract is None or not contract.is_review:
        return None
    was_under_way = last.answer == "refuse" and run.started_at <= last.at < run.finished_at
    return run if was_under_way and run.verdict == "error" else None


def review_blocker(mission: Mission, look: WorkspaceSnapshot) -> Blocker | None:
    """An artifact waits for a verdict that no reviewer command can give: the agent can do nothing more."""
    contract = mission.contract
    if contract is None or not contract.is_review or not look.output_artifact_digest:
        return None
    from omx_autoresearch.missions.rules.reviews import (
        are_reviews_spent,
        more_reviews_command,
        rejection_of,
        spent_text,
    )

    if not missing_items(mission, look) or rejection_of(mission, look) is not None:
        return None  # what was rejected as it is, is the agent's work again
    unblock, path = f"omx-autoresearch unblock {mission.task_id}", contract.output_artifact_path
    digest = f"(sha256 {look.output_artifact_digest})"
    if are_reviews_spent(mission):
        by_person = f", or your own verdict (omx-autoresearch review {mission.task_id} --approve)"
        return Blocker(
            "reviews-spent",
            f"{spent_text(mission)}, and {path} has no verdict yet {digest}",
            f"more reviews{by_person if 'person' in contract.reviewed_by else ''}",
            f"{more_reviews_command(mission)} && {unblock}",
        )
    if contract.reviewer_command:
        return None
    others = [who for who in contract.reviewed_by if who != "command"]  # there is no command: see above
    needs, command = "a verdict on the artifact", f"omx-autoresearch review {mission.task_id}"
    if others == ["session"]:
        verdict = f"{command} --approve --digest {look.output_artifact_digest}"
        needs = f"an agent in another session that reads it and runs: {verdict} (or --reject)"
        command = f"omx-autoresearch status {mission.task_id}"
    return Blocker(
        "review-needed",
        f"{path} waits for a review by a {' or a '.join(others)} {digest}",
        needs,
        command,
    )


def owner_blocker(mission: Mission, missing: tuple[Missing, ...]) -> Blocker | None:
    """Everything that is still missing is the owner's to bring: the agent can do nothing more."""
    if not missing or not all(item.is_owners for item in missing):
        return None
    commands = " && ".join(item.next_command for item in missing)
    return Blocker(
        missing[0].code,
        "; ".join(f"{item.what} (received: {item.received})" for item in missing),
        "the owner's word",
        f"{commands} && omx-autoresearch unblock {mission.task_id}",
    )
