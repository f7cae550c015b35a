"""A stop: the shortest use case, and the one that everything else is for.

    load     the session's mission, by the registry, whatever the cwd is
    look     the workspace, the tools used, our own runs; the validator is run where the world may have moved
    decide   missions/rules/gate.py, pure, once, on the newest state
    record   one batch, before the answer goes out
    answer   silence, a refusal, or a release that says so loudly

Any fault of the runtime lets the agent go and says where; it never completes a mission.
"""

from __future__ import annotations

from omx_autoresearch.agents.events import SILENCE, Reply
from omx_autoresearch.foundation.errors import (
    AutoresearchError,
    StateUntrusted,
    StorageFailed,
    WorkspaceFault,
)
from omx_autoresearch.foundation.records import replace, sha256
from omx_autoresearch.foundation.text import one_line, redacted
from omx_autoresearch.foundation.times import seconds_between
from omx_autoresearch.missions.claims import take_in_quietly
from omx_autoresearch.missions.projections import write_completion
from omx_autoresearch.missions.records.work import (
    ReadinessBlocked,
    StopAllowed,
    StopFacts,
    StopRefused,
    StopReleased,
    pivot_demanded,
)
from omx_autoresearch.missions.registry import (
    Registry,
    bound_mission,
    fault_reply,
    is_expired,
    is_told_already,
    leave_heartbeat,
    size_of,
    tools_after,
)
from omx_autoresearch.missions.rules import briefing
from omx_autoresearch.missions.rules.allowances import Limits, Usage
from omx_autoresearch.missions.rules.evidence import (
    completion_items,
    is_known_to_miss,
    is_passing,
    missing_items,
    needs_run,
)
from omx_autoresearch.missions.rules.gate import (
    Seen,
    Situation,
    decide,
    failed_review,
    observe,
    owner_blocker,
    plan_blocker,
    review_blocker,
    run_blocker,
    time_blocker,
    unseen,
)
from omx_autoresearch.missions.rules.mission import seconds_running
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.validation import runs
from omx_autoresearch.missions.workspace import is_within, snapshot_workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.agents.events import Client, HookEvent, StopCap
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.gate import Decision
    from omx_autoresearch.missions.rules.mission import Mission
    from omx_autoresearch.missions.store import Transaction

WAIT_SECONDS = 60.0
"""The longest that a stop waits for a validation."""
DUPLICATE_SECONDS = 120.0
"""How far two hooks for one stop may be apart: no known client lets one run longer."""
DEADLINE_MARGIN_SECONDS = 15.0
"""The part of the client's time-out that is kept for looking, recording and answering."""


def answer_stop(runtime: Runtime, client: Client, event: HookEvent, *, entered_at: str = "") -> Reply:
    """The answer to one stop of a session; ``entered_at`` is when its process began, where that was before now."""
    entered_at = entered_at or runtime.now()
    if event.handed_texts:
        from contextlib import suppress

        from omx_autoresearch.missions.speakers import note_handed

        with suppress(AutoresearchError):  # the hold matters more
            note_handed(runtime, event)
    try:
        if event.agent_id or event.kind == "subagent_stop":
            return _let_go(runtime, event, Situation(scope="subagent"))
        mission = bound_mission(runtime.home, event.session_id)
        if mission is None:
            return _let_go(runtime, event, Situation(scope="unbound"))
        if is_expired(runtime, mission, entered_at):
            return _let_go(runtime, event, Situation(scope="expired"))
        return _Stop(runtime, client, event, entered_at).answer(mission)
    except AutoresearchError as error:
        return _let_go(runtime, event, Situation(fault=str(error)), error)


def _let_go(
    runtime: Runtime, event: HookEvent, situation: Situation, error: AutoresearchError | None = None
) -> Reply:
    """Steps 1 and 2 of the gate, of which no mission's journal hears: silence, or a release that tells the fault."""
    decision = decide(situation, Usage(), Limits())
    return SILENCE if decision.answer != "release" or error is None else fault_reply(runtime, event, error)


class _Stop:
    """One stop of a bound session, from the look to the answer."""

    def __init__(self, runtime: Runtime, client: Client, event: HookEvent, entered_at: str) -> None:
        self._runtime = runtime
        self._client = client
        self._event = event
        self._entered_at = entered_at
        self._store = MissionStore(runtime.home)
        goal = briefing.beside_goal(client.title, event.goal, client.goal_ways)
        self._goal = redacted(goal) if goal else ""  # loading what redacts costs more than most stops need
        self._denial = redacted(event.denial) if event.denial else ""

    def answer(self, mission: Mission) -> Reply:
        """Look, decide, record, answer."""
        repeated = self._duplicate(mission)
        if repeated is not None:
            return repeated
        leave_heartbeat(self._runtime, mission, "turn_done", self._event.session_id, at=self._entered_at)
        take_in_quietly(self._runtime, mission.task_id, mission)
        reply = self._settled(mission, self._see(mission))
        if reply is None:
            # The last word before a mission is blocked is a run of now, not a remembered one.
            mission = self._store.load(mission.task_id)
            reply = self._settled(mission, self._see(mission, is_last_word=True))
        return reply or SILENCE

    # --- look

    def _see(self, mission: Mission, *, is_last_word: bool = False) -> Seen:
        if mission.phase != "running" or self._event.host_end:
            return Seen(mission)
        folder = self._runtime.home.mission(mission.task_id)
        try:
            look = snapshot_workspace(folder, mission)
        except (WorkspaceFault, StateUntrusted) as error:
            return Seen(mission, unseen=unseen(error, mission.task_id))
        seen = Seen(mission, look)
        if not look.changed_pins and (failed := failed_review(mission)):
            seen = replace(seen, run=failed)  # no further one: the owner must act
        elif not look.changed_pins and needs_run(mission, look):
            permit = runs.permission(self._runtime, mission, is_sandboxed=self._event.is_sandboxed)
            is_reused = not is_last_word and is_known_to_miss(mission, look)
            seen = replace(seen, may_not_run=permit.why, approve_command=permit.command, is_reused=is_reused)
            if permit.may_run and not is_reused:
                ask = runs.Ask(permit.isolation, look, since="" if is_last_word else self._entered_at)
                seen, mission = self._validated(seen, mission, ask)
        if seen.look and not seen.look.changed_pins and not completion_items(mission, seen.look):
            from omx_autoresearch.missions.difference import difference_since_launch
            from omx_autoresearch.missions.rules.difference import bounded
            from omx_autoresearch.missions.verification import state_fault

            # What completes is read: times and sizes vouch for a file only while nothing depends on it.
            look = snapshot_workspace(folder, mission, reads_files=True)
            difference = difference_since_launch(self._runtime, mission, read_digest=look.tree_digest)
            look = replace(look, state_fault=state_fault(self._runtime, mission))
            seen = replace(seen, look=look, difference=bounded(difference))
        return seen

    def _validated(self, seen: Seen, mission: Mission, ask: runs.Ask) -> tuple[Seen, Mission]:
        """Run the contract's command unless it passed already, and after a pass look at the criteria that are open.

        A pass counts only for the workspace of now, so that is looked at again.
        """
        if mission.contract is not None and mission.contract.criteria:
            from omx_autoresearch.missions.validation.checks import checking

            ask = replace(ask, then=checking(self._runtime, ask.isolation))
        if ask.look is not None:
            ask = replace(ask, runs_command=bool(missing_items(mission, ask.look)))
        seconds = wait_seconds(self._runtime, self._entered_at, self._client.hook_timeout_seconds)
        has_ended = runs.validate(self._runtime, mission.task_id, ask, wait_seconds=seconds)
        mission = self._store.load(mission.task_id)
        if not has_ended:
            return replace(seen, is_validation_running=True), mission
        run = mission.attestation
        if run is None or run.verdict in ("passed", "tampered"):
            look = snapshot_workspace(self._runtime.home.mission(mission.task_id), mission)
            return replace(seen, look=look, run=run), mission
        return replace(seen, run=run), mission

    # --- decide

    def _settled(self, mission: Mission, seen: Seen) -> Reply | None:
        """Decide on the newest state, record, and answer; None where a mission would be blocked by a remembered run."""
        with self._store.transaction(mission.task_id, self._runtime.now()) as transaction:
            transaction.ts = self._runtime.now()  # the lock may have been waited for
            return self._settle(transaction, seen)

    def _settle(self, transaction: Transaction, seen: Seen) -> Reply | None:
        mission = transaction.mission
        repeated = self._duplicate(mission)
        if repeated is not None:
            return repeated
        situation = self._situation(mission, seen)
        decision = decide(situation, mission.usage, mission.limits)
        if not decision.is_recorded:
            return self._not_held(mission)
        if decision.would_block and seen.is_reused:
            return None
        if decision.completes:
            # The journal has the last word, read from its first line: a snapshot may have been edited.
            if transaction.refold() != mission:
                return self._settle(transaction, seen)
            return self._complete(transaction, decision, seen)
        if decision.answer == "allow":
            return self._allow(transaction, decision, seen, situation)
        if decision.answer == "release":
            return self._release(transaction, decision, seen, situation)
        return self._refuse(transaction, decision, seen, situation)

    def _situation(self, mission: Mission, seen: Seen) -> Situation:
        """The gate's input: the look, and the newest state, which another process may have changed meanwhile."""
        binding, look = mission.binding, seen.look
        is_ours = binding is not None and binding.session_id == self._event.session_id
        # A session that was not held when it came to its stop is not held by a resume since.
        phase = mission.phase if seen.mission.phase == "running" else seen.mission.phase
        situation = Situation(
            scope="ours" if is_ours else "other-session" if binding else "unbound",
            phase=phase,
            host_end=self._event.host_end,
            has_background_work=any(
                task.id not in mission.background_ids for task in self._event.background_tasks
            ),
            client_blocker=plan_blocker(self._event.permission_mode, mission.task_id),
            denial=self._denial,
            lets_go_on_repeat=self._client.lets_go_on_repeat,
            was_let_go_on_repeat=bool(
                mission.last_stop and mission.last_stop.reason_code == "answer-repeated"
            ),
            cap=self._cap(),
            task_id=mission.task_id,
            blocker=seen.unseen,
        )
        if look is None:
            return situation
        last = mission.last_stop
        has_tree_change = last is not None and bool(last.tree_digest) and last.tree_digest != look.tree_digest
        path = self._runtime.home.mission(mission.task_id).heartbeat_path
        used_tools = tools_after(path, mission.turn_heartbeat_bytes) > 0
        used_tools = used_tools or (not self._client.has_tool_events and has_tree_change)
        said = _digest_of(self._event.last_message)
        missing = completion_items(mission, look)
        spent = seconds_running(mission, self._entered_at)
        return replace(
            situation,
            missing=missing,
            blocker=time_blocker(mission, spent)
            or run_blocker(mission, seen)
            or review_blocker(mission, look)
            or owner_blocker(mission, missing),
            tampered=look.changed_pins,
            is_validation_running=seen.is_validation_running,
            observation=observe(mission, has_tree_change=has_tree_change, used_tools=used_tools),
            used_tools=used_tools,
            repeats_answer=bool(last and not used_tools and said and last.last_message_digest == said),
        )

    def _cap(self) -> StopCap:
        cap = self._client.stop_cap
        raised = self._runtime.environ.get(cap.setting, "") if cap.setting else ""
        return replace(cap, limit=int(raised) or None) if raised.isdigit() else cap

    def _duplicate(self, mission: Mission) -> Reply | None:
        """The same hook registered twice sends the same bytes at once: the second gets the answer of the first."""
        last = mission.last_stop
        if last is None or last.payload_digest != self._event.payload_digest:
            return None
        if not 0 < seconds_between(self._entered_at, last.at) <= DUPLICATE_SECONDS:
            return None  # an earlier stop; or the clock was set back, which must make no refusal free
        if mission.phase != "running" and last.answer == "refuse":
            return None  # paused or cancelled since: the session is not held
        if last.answer == "refuse":
            return Reply(refusal=last.text, person_message=self._held(mission))
        return SILENCE

    def _not_held(self, mission: Mission) -> Reply:
        """The answer where the mission holds nothing now.

        Once after each change of phase the person is told of a block that no stop has told, and of the client's own
        goal, which would drive the agent on: its turn is ended where the client allows that.
        """
        blocker = mission.blocker if mission.blocker and mission.blocker.by == "agent" else None
        is_let_go = mission.phase in ("paused", "blocked") and mission.binding is not None
        if not is_let_go or (blocker is None and not self._goal):
            return SILENCE
        said = briefing.blocked_for_person(mission, blocker) if blocker else ""
        said = said or briefing.marked(f"mission {mission.task_id} is {mission.phase}.")
        said = self._with_goal(said)
        if is_told_already(
            self._runtime.home, self._event.session_id, f"{mission.usage.seconds_running} {said}"
        ):
            return SILENCE
        return self._ending(said)

    def _with_goal(self, said: str) -> str:
        """A message to the person with what is told of the client's own goal."""
        return f"{said} {self._goal}" if self._goal else said

    def _ending(self, said: str) -> Reply:
        """The answer that lets an unfinished mission's agent go; the client's own goal must not drive it on."""
        ends_turn = said if self._goal and self._client.can_end_turn else ""
        return Reply(person_message=said, ends_turn=ends_turn)

    # --- record, answer

    def _complete(self, transaction: Transaction, decision: Decision, seen: Seen) -> Reply:
        from omx_autoresearch.missions.records.lifecycle import MissionCompleted

        if transaction.mission.checks:
            from omx_autoresearch.missions.verification import refuse_unresolved

            refuse_unresolved(self._runtime, transaction.mission)
        run = transaction.mission.attestation
        is_attested = run is not None and seen.look is not None and is_passing(transaction.mission, seen.look)
        mission = transaction.record(
            StopAllowed(self._facts(transaction.mission, decision, seen)),
            MissionCompleted.taken(
                transaction.mission, run.run_id if run and is_attested else "", seen.difference
            ),
        )
        said = self._with_goal(briefing.completion_for_person(mission))
        try:
            Registry(self._runtime.home).remove_task(mission.task_id)
        except StorageFailed as error:  # the journal knows better than the registry
            said += f" {error.message} The owner's next command removes it."
        try:
            write_completion(mission)
        except (OSError, WorkspaceFault) as error:  # the journal has the completion: nothing is lost
            why = error.message if isinstance(error, WorkspaceFault) else error.strerror
            said += (
                f" The completion artifact could not be written ({why}); `omx-autoresearch repair {mission.task_id}` "
                "writes it."
            )
        if mission.difference is not None:
            from omx_autoresearch.missions.rules.difference import message_lines

            said = "\n".join((said, *message_lines(mission.difference, mission.task_id)))
        return Reply(person_message=said)

    def _allow(self, transaction: Transaction, decision: Decision, seen: Seen, situation: Situation) -> Reply:
        mission, waits_for = transaction.mission, situation.for_person
        facts = self._facts(mission, decision, seen)
        if decision.reason_code == "background-work":
            tasks = self._event.background_tasks
            names = "; ".join(one_line(task.what, 80) for task in tasks)
            facts = replace(facts, text=names, background_ids=tuple(task.id for task in tasks))
        transaction.record(StopAllowed(facts))
        if waits_for is None or decision.reason_code != waits_for.reason_code:
            return SILENCE
        return Reply(person_message=briefing.let_go_for_person(mission, waits_for))

    def _release(
        self, transaction: Transaction, decision: Decision, seen: Seen, situation: Situation
    ) -> Reply:
        mission = transaction.mission
        text = self._with_goal(briefing.release_for_person(mission, decision))
        released = StopReleased(self._facts(mission, decision, seen, text), decision.progress)
        if decision.blocker is None:
            transaction.record(released)
        else:
            from omx_autoresearch.missions.records.lifecycle import MissionBlocked

            blocked = MissionBlocked.taken(mission, decision.blocker)
            transaction.record(*_readiness_blocked(mission, decision, seen, situation), released, blocked)
        return self._ending(text)

    def _refuse(
        self, transaction: Transaction, decision: Decision, seen: Seen, situation: Situation
    ) -> Reply:
        mission = transaction.mission
        text = briefing.refusal(
            mission,
            decision,
            situation.missing,
            tampered=situation.tampered,
            output_tail=runs.output_tail(self._runtime, mission),
        )
        text = "\n".join((text, *self._notes(mission)))
        refused = StopRefused(
            self._facts(mission, decision, seen, text),
            missing=tuple(item.code for item in situation.missing),
            progress=decision.progress,
            override_expected=decision.override_expected,
        )
        blocked = _readiness_blocked(mission, decision, seen, situation)
        transaction.record(*blocked, refused, *pivot_demanded(mission, decision.usage))
        said = self._held(mission)
        if self._event.denial:
            said = f"{said} {briefing.denied_for_person(self._event.denial)}"
        return Reply(refusal=text, person_message=said)

    def _held(self, mission: Mission) -> str:
        return briefing.refusal_for_person(mission, queues_prompts=self._client.queues_prompts)

    def _notes(self, mission: Mission) -> tuple[str, ...]:
        """What this agent should know of its own session: where it is judged, and which work keeps it from nothing."""
        notes = [briefing.still_running(task.what, task.id) for task in self._event.background_tasks]
        if not is_within(self._event.cwd, mission.workspace_path):
            notes.append(briefing.judged_elsewhere(mission, self._event.cwd))
        return tuple(notes)

    def _facts(self, mission: Mission, decision: Decision, seen: Seen, text: str = "") -> StopFacts:
        path = self._runtime.home.mission(mission.task_id).heartbeat_path
        facts = StopFacts(
            session_id=self._event.session_id,
            reason_code=decision.reason_code,
            usage=decision.usage,
            is_iteration=decision.is_iteration,
            payload_digest=self._event.payload_digest,
            text=text,
            tree_digest=seen.look.tree_digest if seen.look else "",
            heartbeat_bytes=size_of(path),
            last_message_digest=_digest_of(self._event.last_message),
            goal=self._goal,
        )
        if not decision.is_iteration:
            return facts
        run, last = mission.attestation, mission.last_stop
        is_current = run is not None and run.contract_digest == mission.contract_digest
        return replace(
            facts,
            iteration=mission.iteration + 1,
            began_at=last.at if last is not None else mission.running_since,
            tool_count=tools_after(path, mission.turn_heartbeat_bytes),
            direction=mission.current_direction,
            evidence_ids=mission.turn_evidence_ids,
            verdict=run.verdict if run is not None and is_current else "",
            run_id=run.run_id if run is not None and is_current else "",
        )


def _readiness_blocked(
    mission: Mission, decision: Decision, seen: Seen, situation: Situation
) -> tuple[ReadinessBlocked, ...]:
    """The notice that the contract's verdict is there and more is needed; told once as long as the reason stays."""
    last, missing = mission.last_stop, situation.missing
    if seen.look is None or not missing or missing_items(mission, seen.look):
        return ()
    if last is not None and last.reason_code == decision.reason_code:
        return ()
    return (ReadinessBlocked(tuple(item.code for item in missing)),)


def wait_seconds(runtime: Runtime, entered_at: str, hook_timeout_seconds: float) -> float:
    """How long this stop may still wait: a hook that its client gives up on holds no session."""
    spent = max(0.0, seconds_between(entered_at, runtime.now()))
    return min(WAIT_SECONDS, max(0.0, hook_timeout_seconds - DEADLINE_MARGIN_SECONDS - spent))


def _digest_of(text: str) -> str:
    """A short digest for comparing, empty for empty text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] if text else ""
