"""A stop: the shortest use case, and the one that everything else is for.

    load     the session's mission, by the registry, whatever the cwd is
    look     the workspace, the tools used, our own runs; the validator is run where the world may have moved
    decide   missions/rules/gate.py, pure
    record   one batch, before anything is said
    answer   silence, a refusal, or a release that says so loudly

Any fault of ours lets go and says where; it never completes a mission.
"""

from __future__ import annotations

from omx_autoresearch.agents.events import SILENCE, Reply
from omx_autoresearch.foundation.errors import (
    AutoresearchError,
    JournalBroken,
    StateUntrusted,
    StorageFailed,
    WorkspaceFault,
)
from omx_autoresearch.foundation.records import dataclass, replace
from omx_autoresearch.foundation.times import seconds_between
from omx_autoresearch.journal.outputs import masked
from omx_autoresearch.missions.claims import take_in_quietly
from omx_autoresearch.missions.looks import take_look
from omx_autoresearch.missions.records.work import StopAllowed, StopFacts, StopRefused, StopReleased
from omx_autoresearch.missions.registry import (
    Registry,
    bound_mission,
    fault_reply,
    has_tool_after,
    is_expired,
    leave_heartbeat,
    size_of,
    tools_after,
)
from omx_autoresearch.missions.rules import briefing
from omx_autoresearch.missions.rules.evidence import (
    completion_items,
    is_better,
    is_passing,
    is_rejected_by_person,
    is_reusable_failure,
    is_reusable_miss,
    missing_items,
    run_score,
    unsettled_criteria,
)
from omx_autoresearch.missions.rules.gate import Decision, Observation, OwnerNeed, Situation, decide
from omx_autoresearch.missions.rules.mission import Limits, Usage
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.validation import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.agents.events import Client, HookEvent, StopCap
    from omx_autoresearch.foundation.types import StopScope
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.records.work import PivotRequired, ReadinessBlocked
    from omx_autoresearch.missions.rules.criteria import Look
    from omx_autoresearch.missions.rules.evidence import Missing
    from omx_autoresearch.missions.rules.mission import Attestation, Mission
    from omx_autoresearch.missions.store import Transaction
    from omx_autoresearch.missions.validation.runs import Permission


# --- What a stop records of the iteration that it ends, for the iteration log; and what it says of readiness.


def iteration_facts(mission: Mission, heartbeat_path: str, *, is_iteration: bool) -> dict[str, Any]:
    """The fields of :class:`~omx_autoresearch.missions.records.work.StopFacts` that tell of the iteration."""
    if not is_iteration:
        return {}
    run, last = mission.attestation, mission.last_stop
    is_current = run is not None and run.contract_digest == mission.contract_digest
    return {
        "iteration": mission.iteration + 1,
        "began_at": last.at if last is not None else mission.running_since,
        "tool_count": tools_after(heartbeat_path, mission.turn_heartbeat_bytes),
        "direction": mission.current_direction,
        "evidence_ids": mission.turn_evidence_ids,
        "verdict": run.verdict if run is not None and is_current else "",
        "run_id": run.run_id if run is not None and is_current else "",
    }


def readiness_blocked(
    mission: Mission, look: Look | None, missing: tuple[Missing, ...], reason_code: str
) -> tuple[ReadinessBlocked, ...]:
    """The notice that the contract's verdict is there and more is needed; told once as long as the reason stays."""
    last = mission.last_stop
    if look is None or not missing or missing_items(mission, look):
        return ()
    if last is not None and last.reason_code == reason_code:
        return ()
    from omx_autoresearch.missions.records.work import ReadinessBlocked

    return (ReadinessBlocked(tuple(item.code for item in missing)),)


# --- What only the owner can mend: a workspace or contract that cannot be seen, a command that may not or cannot run.


def unseen(error: AutoresearchError, task_id: str) -> OwnerNeed:
    """The workspace cannot be looked at, or the contract's own files are damaged."""
    if isinstance(error, (JournalBroken, StorageFailed)):
        raise error  # no state of the mission but a fault of ours, or of the machine
    if isinstance(error, WorkspaceFault):
        code, needs = "workspace-fault", "a workspace that can be read"
    else:
        code, needs = "contract-broken", "a contract whose files are whole"
    return OwnerNeed(
        code,
        error.message,
        f"{needs} ({error.next_step.replace('TASK', task_id)})" if error.next_step else needs,
        f"omx-autoresearch unblock {task_id}",
    )


def unrunnable(mission: Mission, permit: Permission | None, run: Attestation | None) -> OwnerNeed | None:
    """Why the contract's command cannot run: not allowed, or a run of this very stop could not be started."""
    task_id = mission.task_id
    if permit is not None and not permit.may_run:
        return OwnerNeed("approval-missing", permit.why, "the owner's approval", permit.command)
    if run is not None and run.cause == "not-started" and run.contract_digest == mission.contract_digest:
        return OwnerNeed(
            "validator-gone",
            f"the validator cannot be started: {run.summary}",
            "a validator that runs",
            f"omx-autoresearch amend {task_id} --validator '...'",
        )
    return None


def unreviewed(mission: Mission, look: Look) -> OwnerNeed | None:
    """An artifact waits for a person's review, and no command can give one: the agent can do nothing more."""
    contract = mission.contract
    if contract is None or contract.reviewer_command or not look.output_artifact_digest:
        return None
    if contract.validation_mode != "prompt-architect-artifact" or not missing_items(mission, look):
        return None
    run = mission.attestation
    if (
        run is not None
        and run.verdict == "failed"
        and run.output_artifact_digest == look.output_artifact_digest
    ):
        return None  # rejected as it is: the agent has work to do
    task_id = mission.task_id
    others = [who for who in contract.reviewed_by if who != "command"]  # there is no command: see above
    return OwnerNeed(
        "review-needed",
        f"{contract.output_artifact_path} waits for a review by a {' or a '.join(others)}",
        "a verdict on the artifact",
        f"omx-autoresearch review {task_id} --approve && omx-autoresearch unblock {task_id}",
    )


def left_to_owner(mission: Mission, missing: tuple[Missing, ...]) -> OwnerNeed | None:
    """Everything that is still missing is the owner's to bring: the agent can do nothing more."""
    if not missing or not all(item.is_owners for item in missing):
        return None
    commands = " && ".join(item.next_command for item in missing)
    return OwnerNeed(
        missing[0].code,
        "; ".join(f"{item.what} (received: {item.received})" for item in missing),
        "the owner's word",
        f"{commands} && omx-autoresearch unblock {mission.task_id}",
    )


# --- What an iteration achieved, from attested runs, the tree and the records since the last stop; never from prose.


def observe(mission: Mission, *, has_tree_change: bool, used_tools: bool) -> Observation:
    """What the iteration that ends now achieved.

    Args:
        mission: the newest state that was seen.
        has_tree_change: the workspace's content is not that of the last judged stop.
        used_tools: a tool ran since the last answer.
    """
    run = mission.attestation
    is_current = run is not None and run.contract_digest == mission.contract_digest
    score = run_score(run, mission.contract) if run is not None and is_current else None
    direction = mission.contract.score_direction if mission.contract else "higher"
    seen = Observation(
        has_better_score=is_better(mission.best_score, score, direction),
        has_tree_change=has_tree_change,
        has_new_output=bool(
            run and is_current and run.output_mark and run.output_mark not in mission.output_marks
        ),
        has_metric_drop=is_better(score, mission.last_score, direction),
        is_person_turn_without_tools=mission.is_person_turn and not used_tools,
    )
    return with_records(seen, mission, used_tools=used_tools)


def with_records(seen: Observation, mission: Mission, *, used_tools: bool) -> Observation:
    """An observation with what the records since the last stop say of it, on the newest state.

    A reading turn used tools, left the tree as it was, and found something under a declared direction.
    """
    return replace(
        seen,
        has_new_evidence=mission.turn_evidence > 0,
        has_accepted_trial=mission.turn_trials > 0,
        has_pivot=mission.turn_has_pivot,
        has_reading=used_tools
        and not seen.has_tree_change
        and mission.turn_findings > 0
        and mission.has_declared_direction,
        repeats_direction=mission.turn_repeats_direction,
    )


def pivot_demanded(mission: Mission, usage: Usage) -> tuple[PivotRequired, ...]:
    """The record of a stale count that reaches the pivot with ``usage``; none where it had reached it, or does not."""
    if not mission.usage.stale < mission.limits.stale_pivot <= usage.stale:
        return ()
    from omx_autoresearch.missions.records.work import PivotRequired
    from omx_autoresearch.missions.rules.directions import perturbation

    return (PivotRequired(usage.stale, perturbation(mission.directions, mission.recent_directions)),)


WAIT_SECONDS = 60.0
"""The longest that a stop waits for a validation of ours."""
DUPLICATE_SECONDS = 120.0
"""How far two hooks for one stop may be apart: no known client lets one run longer."""
DEADLINE_MARGIN_SECONDS = 15.0
"""What is left of the client's time-out for looking, recording and answering."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one stop found out, before the gate decides.

    Attributes:
        situation: for the gate.
        look: the workspace; None where it was not needed.
        is_reused: the newest failure was reused instead of a new run.
    """

    situation: Situation
    look: Look | None = None
    is_reused: bool = False


def answer_stop(runtime: Runtime, client: Client, event: HookEvent, *, entered_at: str = "") -> Reply:
    """The answer to one stop of a session; ``entered_at`` is when its process began, where that was before now."""
    entered_at = entered_at or runtime.now()
    try:
        scope, mission = _scope_of(runtime, event, entered_at)
        if mission is not None and scope == "ours":
            return _Stop(runtime, client, event, entered_at).answer(mission)
        return _let_go(runtime, event, Situation(scope=scope))
    except AutoresearchError as error:
        return _let_go(runtime, event, Situation(fault=str(error)), error)


def _let_go(
    runtime: Runtime, event: HookEvent, situation: Situation, error: AutoresearchError | None = None
) -> Reply:
    """Steps 1 and 2 of the gate, of which no mission's journal hears: silence, or a release that tells the fault."""
    decision = decide(situation, Usage(), Limits())
    if decision.answer != "release" or error is None:
        return SILENCE
    return fault_reply(runtime, event, error)


def _scope_of(runtime: Runtime, event: HookEvent, now: str) -> tuple[StopScope, Mission | None]:
    """Whose stop it is, and the mission that holds its session where one does."""
    if event.agent_id or event.kind == "subagent_stop":
        return "subagent", None
    mission = bound_mission(runtime.home, event.session_id)
    if mission is None:
        return "unbound", None
    return ("expired" if is_expired(runtime, mission, now) else "ours"), mission


class _Stop:
    """One stop of a bound session, from the look to the answer."""

    def __init__(self, runtime: Runtime, client: Client, event: HookEvent, entered_at: str) -> None:
        self._runtime = runtime
        self._client = client
        self._event = event
        self._entered_at = entered_at
        self._store = MissionStore(runtime.home)

    def answer(self, mission: Mission) -> Reply:
        """Look, decide, record, answer."""
        repeated = self._duplicate(mission)
        if repeated is not None:
            return repeated
        leave_heartbeat(self._runtime, mission, "turn_done", self._event.session_id, at=self._entered_at)
        take_in_quietly(self._runtime, mission.task_id, mission)
        seen = self._see(mission)
        decision = decide(seen.situation, mission.usage, mission.limits)
        if decision.would_block and seen.is_reused:
            # The last word before a mission is blocked is a run of now, not a remembered one.
            seen = self._see(self._store.load(mission.task_id), is_fresh_run_needed=True)
        with self._store.transaction(mission.task_id, self._runtime.now()) as transaction:
            transaction.ts = self._runtime.now()  # the lock may have been waited for
            return self._settle(transaction, seen)

    # --- look

    def _see(self, mission: Mission, *, is_fresh_run_needed: bool = False) -> Seen:
        situation = Situation(
            phase=mission.phase,
            host_end=self._event.host_end,
            has_background_work=self._event.has_background_work,
            lets_go_on_repeat=self._client.lets_go_on_repeat,
            cap=self._cap(),
            task_id=mission.task_id,
        )
        if mission.phase != "running" or self._event.host_end:
            return Seen(situation)
        folder = self._runtime.home.mission(mission.task_id)
        try:
            look = take_look(folder, mission)
        except (WorkspaceFault, StateUntrusted) as error:
            return Seen(replace(situation, owner_need=unseen(error, mission.task_id)))
        permit = runs.permission(self._runtime, mission, is_sandboxed=self._event.is_sandboxed)
        is_wanted = not look.changed_pins and self._needs_run(mission, look)
        is_reused = is_wanted and not is_fresh_run_needed and _is_known_to_miss(mission, look)
        run = None
        is_running = False
        if is_wanted and permit.may_run and not is_reused:
            ask = self._ask(
                mission, look, permit.isolation, since="" if is_fresh_run_needed else self._entered_at
            )
            seconds = wait_seconds(self._runtime, self._entered_at, self._client.hook_timeout_seconds)
            is_running = not runs.validate(self._runtime, mission.task_id, ask, wait_seconds=seconds)
            mission = self._store.load(mission.task_id)
            run = None if is_running else mission.attestation
            if not is_running and (run is None or run.verdict in ("passed", "tampered")):
                look = take_look(folder, mission)  # a pass counts only for the workspace of now
        if not look.changed_pins and not completion_items(mission, look):
            from omx_autoresearch.missions.readiness import state_fault

            look = replace(look, state_fault=state_fault(self._runtime, mission))
        situation = self._situated(situation, mission, look, is_running=is_running)
        need = (
            self._spent_time(mission)
            or unrunnable(mission, permit if is_wanted else None, run)
            or unreviewed(mission, look)
            or left_to_owner(mission, situation.missing)
        )
        return Seen(replace(situation, owner_need=need), look, is_reused)

    def _ask(self, mission: Mission, look: Look, isolation: str, *, since: str) -> runs.Ask:
        """The contract's own command, unless it passed already; after a pass, the criteria that are open."""
        then = None
        if mission.contract is not None and mission.contract.criteria:
            from omx_autoresearch.missions.validation.checks import checking

            then = checking(self._runtime, isolation)
        runs_command = bool(missing_items(mission, look))
        return runs.Ask(isolation=isolation, look=look, since=since, runs_command=runs_command, then=then)

    def _needs_run(self, mission: Mission, look: Look) -> bool:
        contract = mission.contract
        if contract is None:
            return False
        if not missing_items(mission, look):
            return bool(unsettled_criteria(mission, look))
        if contract.validation_mode == "prompt-architect-artifact":
            is_ready = bool(contract.reviewer_command) and bool(look.output_artifact_digest)
            return is_ready and not is_rejected_by_person(mission, look)
        return True

    def _situated(self, situation: Situation, mission: Mission, look: Look, *, is_running: bool) -> Situation:
        path = self._runtime.home.mission(mission.task_id).heartbeat_path
        has_tool = has_tool_after(path, mission.turn_heartbeat_bytes)
        last = mission.last_stop
        has_tree_change = last is not None and bool(last.tree_digest) and last.tree_digest != look.tree_digest
        used_tools = has_tool or (not self._client.has_tool_events and has_tree_change)
        message_digest = digest_of_text(self._event.last_message)
        return replace(
            situation,
            missing=completion_items(mission, look),
            tampered=look.changed_pins,
            is_validation_running=is_running,
            observation=observe(mission, has_tree_change=has_tree_change, used_tools=used_tools),
            used_tools=used_tools,
            repeats_answer=bool(
                last and not used_tools and message_digest and last.last_message_digest == message_digest
            ),
        )

    def _spent_time(self, mission: Mission) -> OwnerNeed | None:
        spent = seconds_running(mission, self._entered_at)
        if spent <= mission.limits.wall_clock_hours * 3600:
            return None
        return OwnerNeed(
            "wall-clock-spent",
            f"the mission has run for {spent / 3600:.1f} h of {mission.limits.wall_clock_hours:g} h",
            "more hours, or an end",
            f"omx-autoresearch unblock {mission.task_id} --add-hours 8",
        )

    def _cap(self) -> StopCap:
        cap = self._client.stop_cap
        raised = self._runtime.environ.get(cap.setting, "") if cap.setting else ""
        if raised.isdigit():
            return replace(cap, limit=int(raised) or None)
        return cap

    # --- decide, record, answer

    def _settle(self, transaction: Transaction, seen: Seen) -> Reply:
        mission = transaction.mission
        repeated = self._duplicate(mission)
        if repeated is not None:
            return repeated
        # Everything is decided on the newest state: another process may have paused, cancelled or counted meanwhile.
        situation = replace(seen.situation, scope=self._scope_now(mission))
        if situation.phase == "running":  # otherwise the session was not held when it came to its stop
            situation = replace(situation, phase=mission.phase)
        if situation.phase == "running" and not situation.host_end and seen.look is not None:
            situation = replace(
                situation,
                missing=completion_items(mission, seen.look),
                observation=with_records(situation.observation, mission, used_tools=situation.used_tools),
            )
        decision = decide(situation, mission.usage, mission.limits)
        if not decision.is_recorded:
            return SILENCE
        if decision.completes:
            # The journal has the last word, read from its first line: a snapshot may have been edited.
            if transaction.refold() != mission:
                return self._settle(transaction, seen)
            return self._complete(transaction, decision, seen)
        if decision.answer == "allow":
            transaction.record(StopAllowed(self._facts(mission, decision, seen)))
            return SILENCE
        if decision.answer == "release":
            return self._release(transaction, decision, replace(seen, situation=situation))
        return self._refuse(transaction, decision, replace(seen, situation=situation))

    def _scope_now(self, mission: Mission) -> StopScope:
        """Whose stop it still is: the session may have been let go meanwhile, for another one or for none."""
        if mission.binding is None:
            return "unbound"
        return "ours" if mission.binding.session_id == self._event.session_id else "other-session"

    def _duplicate(self, mission: Mission) -> Reply | None:
        """The same hook registered twice sends the same bytes at once: the second gets the answer of the first."""
        last = mission.last_stop
        if last is None or last.payload_digest != self._event.payload_digest:
            return None
        if not 0 < seconds_between(self._entered_at, last.at) <= DUPLICATE_SECONDS:
            return None  # an earlier stop; or the clock was set back, which must make no refusal free
        if mission.phase != "running" and last.answer == "refuse":
            return None  # paused or cancelled since: nobody is held
        if last.answer == "refuse":
            return Reply(refusal=last.text, person_message=briefing.refusal_for_person(mission))
        return SILENCE

    def _complete(self, transaction: Transaction, decision: Decision, seen: Seen) -> Reply:
        from omx_autoresearch.missions.completion import write_completion
        from omx_autoresearch.missions.records.lifecycle import MissionCompleted, step_taken

        if transaction.mission.checks:
            from omx_autoresearch.missions.readiness import refuse_unresolved

            refuse_unresolved(self._runtime, transaction.mission)
        run = transaction.mission.attestation
        is_attested = run is not None and seen.look is not None and is_passing(transaction.mission, seen.look)
        mission = transaction.record(
            StopAllowed(self._facts(transaction.mission, decision, seen)),
            step_taken(transaction.mission, MissionCompleted, run.run_id if run and is_attested else ""),
        )
        problem = write_completion(mission, transaction.ts)
        Registry(self._runtime.home).remove_task(mission.task_id)
        return Reply(
            person_message=" ".join(filter(None, (briefing.completion_for_person(mission), problem)))
        )

    def _release(self, transaction: Transaction, decision: Decision, seen: Seen) -> Reply:
        text = masked(briefing.release_for_person(transaction.mission, decision))
        released = StopReleased(self._facts(transaction.mission, decision, seen, text), decision.progress)
        if decision.blocker is None:
            transaction.record(released)
        else:
            from omx_autoresearch.missions.records.lifecycle import MissionBlocked, step_taken

            records = readiness_blocked(
                transaction.mission, seen.look, seen.situation.missing, decision.reason_code
            )
            blocked = step_taken(transaction.mission, MissionBlocked, decision.blocker)
            transaction.record(*records, released, blocked)
        return Reply(person_message=text)

    def _refuse(self, transaction: Transaction, decision: Decision, seen: Seen) -> Reply:
        mission = transaction.mission
        text = masked(
            briefing.refusal(
                mission,
                decision,
                seen.situation.missing,
                tampered=seen.situation.tampered,
                output_tail=runs.output_tail(self._runtime, mission),
            )
        )
        refused = StopRefused(
            self._facts(mission, decision, seen, text),
            missing=tuple(item.code for item in seen.situation.missing),
            progress=decision.progress,
            override_expected=decision.override_expected,
        )
        blocked = readiness_blocked(mission, seen.look, seen.situation.missing, decision.reason_code)
        transaction.record(*blocked, refused, *pivot_demanded(mission, decision.usage))
        return Reply(refusal=text, person_message=briefing.refusal_for_person(mission))

    def _facts(self, mission: Mission, decision: Decision, seen: Seen, text: str = "") -> StopFacts:
        path = self._runtime.home.mission(seen.situation.task_id).heartbeat_path
        return StopFacts(
            session_id=self._event.session_id,
            reason_code=decision.reason_code,
            usage=decision.usage,
            is_iteration=decision.is_iteration,
            payload_digest=self._event.payload_digest,
            text=text,
            tree_digest=seen.look.tree_digest if seen.look else "",
            heartbeat_bytes=size_of(path),
            last_message_digest=digest_of_text(self._event.last_message),
            **iteration_facts(mission, path, is_iteration=decision.is_iteration),
        )


def _is_known_to_miss(mission: Mission, look: Look) -> bool:
    """What would be run missed on exactly this workspace, and took long enough to be remembered."""
    if missing_items(mission, look):
        return is_reusable_failure(mission, look)
    return all(is_reusable_miss(mission, item, look) for item in unsettled_criteria(mission, look))


def wait_seconds(runtime: Runtime, entered_at: str, hook_timeout_seconds: float) -> float:
    """How long this stop may still wait: a hook that its client gives up holds nobody."""
    spent = max(0.0, seconds_between(entered_at, runtime.now()))
    return min(WAIT_SECONDS, max(0.0, hook_timeout_seconds - DEADLINE_MARGIN_SECONDS - spent))


def seconds_running(mission: Mission, now: str) -> float:
    """Wall time charged to the mission so far, in seconds."""
    stretch = seconds_between(mission.running_since, now) if mission.running_since else 0.0
    return mission.usage.seconds_running + stretch


def digest_of_text(text: str) -> str:
    """A short digest for comparing, empty for empty text."""
    if not text:
        return ""
    from omx_autoresearch.foundation.digests import sha256

    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
