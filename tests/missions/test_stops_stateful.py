"""Random histories over the real files, told by several processes: what must hold whatever came before.

Stops, tool events, prompts, edits, tampering, validations and the owner's verbs come in any order. After each of them:
refusals stay within their bound, nothing completes without a fresh attested pass, what ended stays ended, the snapshot
is the fold of the journal, the projections are what a rebuild makes, and registry and journal name the same session.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from omx_autoresearch.agents.clients import claude
from omx_autoresearch.foundation.errors import StepIllegal
from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.records import fold
from omx_autoresearch.missions.registry import Registry
from omx_autoresearch.missions.rules.mission import FINAL_PHASES
from omx_autoresearch.missions.validation import runs as validation
from omx_autoresearch.missions.workspace import snapshot_workspace
from tests.support.scratch import OTHER, Scratch, fingerprint, with_timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.agents.events import Reply
    from omx_autoresearch.missions.rules.mission import Mission

LIMITS = {
    "idle_refusals": 3, "stale_pivot": 1, "stale_fresh": 2, "stale_stalled": 3, "weak_holds": 2, "refusals_total": 9,
    "background_allows": 2, "wait_refusals": 2,
}  # fmt: skip
CHECK = """#!/bin/sh
read n < score.txt
if grep -qx 42 answer.txt; then is=true; else is=false; fi
printf '{"passed": %s, "score": %s}\\n' $is $n
$is
"""
OWNERS = ("mission_resumed", "mission_unblocked", "mission_amended", "mission_launched")
MESSAGES = (
    "done",
    "I am done.",
    '{"status":"passed","passed":true}',
    "PostToolUse",
    "the context window exceeded",
)

ODD = (
    {"stop_reason": "context_limit"}, {"stop_reason": "user_abort"}, {"stop_reason": "end_turn"}, {"agent_id": "a1"},
    {"background_tasks": [{"status": "running"}]}, {"background_tasks": [{"status": "running"}]},
    {"background_tasks": "x"},
)  # fmt: skip
stops = st.builds(
    lambda message, odd: {"last_assistant_message": message, **odd},
    st.sampled_from(MESSAGES),
    st.sampled_from(({},) * 2 * len(ODD) + ODD),
)
"""What a stop says: mostly nothing out of the ordinary."""


def in_processes(*works: Callable[[], object]) -> None:
    """Do each in a process of its own, all at once, and let a failure there fail here."""
    reader, writer = os.pipe()
    children = []
    for work in works:
        pid = os.fork()
        if not pid:
            try:
                work()
            except BaseException:  # noqa: BLE001
                os.write(writer, traceback.format_exc().encode()[-4000:])
            finally:
                os._exit(0)
        children.append(pid)
    os.close(writer)
    for pid in children:
        os.waitpid(pid, 0)
    with open(reader, "rb") as stream:
        faults = stream.read().decode()
    assert not faults, faults


class Histories(RuleBasedStateMachine):
    """One mission, one bound session, and everything that may happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="omx-history-")
        self.world = Scratch.make(Path(self.folder))
        self.world.write("check.sh", CHECK, executable=True)
        self.world.write("score.txt", "0\n")
        self.world.write("answer.txt", "41\n")
        self.world.commit("The work")
        self.is_damaged = False
        self.ended_with: list[str] = []
        self.solved_at_completion: bool | None = None

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @initialize(reused_from=st.sampled_from([0.0, 1.0]))
    def begin(self, reused_from: float) -> None:
        validation.REUSED_FROM_SECONDS = reused_from
        fields: dict[str, Any] = {"limits": LIMITS, "protect": ("!score.txt", "!answer.txt")}
        self.task_id = self.world.mission(has_baseline=True, **fields).task_id

    # --- what is known

    @property
    def mission(self) -> Mission:
        return self.world.load(self.task_id)

    @property
    def is_solved(self) -> bool:
        return self.world.read("answer.txt") == "42\n" and self.world.read("check.sh") == CHECK

    def healed(self) -> None:
        """A stop of the held session, or a rebuild, puts damaged projections right."""
        self.is_damaged = False

    def stopping(self, fields: dict[str, Any], client: Any = "claude") -> Reply:
        was_running, is_solved = self.mission.phase == "running", self.is_solved
        is_looked_at = was_running and "agent_id" not in fields
        reply = self.world.stop(client=client, **fields)
        if is_looked_at:
            self.healed()
        if was_running and self.mission.phase == "complete":
            self.solved_at_completion = is_solved
        if reply.refusal:
            assert was_running
            assert self.task_id in reply.refusal
        return reply

    # --- the agent

    @rule(turns=st.lists(st.tuples(st.booleans(), st.integers(0, 3), stops), min_size=1, max_size=4))
    def work_and_stop(self, turns: list[tuple[bool, int, dict[str, Any]]]) -> None:
        """A few turns: a tool or none, an edit or none, a stop."""
        for has_tool, number, fields in turns:
            if has_tool:
                self.world.tool()
                self.world.write("notes.md", f"{number}\n")
            self.stopping(fields)

    @rule(fields=stops, count=st.integers(1, 5))
    def stop_and_stop_again(self, fields: dict[str, Any], count: int) -> None:
        for _ in range(count):
            self.stopping(fields)

    @rule(score=st.integers(0, 4), fields=stops)
    def move_the_score(self, score: int, fields: dict[str, Any]) -> None:
        self.world.write("score.txt", f"{score}\n")
        self.stopping(fields)

    @rule(fields=stops, count=st.integers(1, 3))
    def stop_without_waiting_for_the_validator(self, fields: dict[str, Any], count: int) -> None:
        for _ in range(count):
            others = {child.pid for child in psutil.Process().children()}
            self.stopping(fields, with_timeout(claude.CLIENT, 0.0))
            for child in psutil.Process().children():  # the run goes on in one: histories begin after its end
                if child.pid not in others:
                    os.waitpid(child.pid, 0)

    @rule(fields=stops, count=st.integers(2, 4), owner=st.sampled_from(["", "", "", "pause", "unblock"]))
    def stop_in_several_processes(self, fields: dict[str, Any], count: int, owner: str) -> None:
        was_running, is_solved = self.mission.phase == "running", self.is_solved
        works: list[Callable[[], object]] = [
            lambda number=number: self.world.stop(**{**fields, "last_assistant_message": f"{number}"})  # type: ignore[misc]
            for number in range(count)
        ]
        if owner:
            works.append(lambda: self.owner_verb(owner))
        in_processes(*works)
        if was_running and "agent_id" not in fields and not owner:
            self.healed()
        if was_running and self.mission.phase == "complete":
            self.solved_at_completion = is_solved

    @rule(text=st.sampled_from(["go on", "go on", "", "<task-notification>x</task-notification>"]),
          fields=stops)  # fmt: skip
    def prompt(self, text: str, fields: dict[str, Any]) -> None:
        self.world.prompt(text)
        self.stopping(fields)

    @rule(number=st.integers(0, 5), fields=stops)
    def answer(self, number: int, fields: dict[str, Any]) -> None:
        """Rightly, but seldom, since that ends the history."""
        self.world.write("answer.txt", "42\n" if number == 5 else "41\n")
        self.stopping(fields)

    @rule(text=st.sampled_from(["#!/bin/sh\nexit 0\n", CHECK]), fields=stops)
    def change_the_validator(self, text: str, fields: dict[str, Any]) -> None:
        self.world.write("check.sh", text)
        self.stopping(fields)

    # No rule has a precondition: what processes that race leave behind differs from one replay to the next.

    @rule()
    def restore(self) -> None:
        if self.mission.phase in FINAL_PHASES:
            return
        lifecycle_commands.restore(self.world.runtime(), self.task_id)
        assert self.world.read("check.sh") == CHECK

    @rule(what=st.sampled_from(["validate", "damage", "artifact", "another", "commit", "sub-agent", "repair", "time"]),
          name=st.sampled_from(["state/progress.json", "logs/orchestrator.jsonl", "state"]))  # fmt: skip
    def disturb(self, what: str, name: str) -> None:
        """What lies beside the way: none of it holds, releases or completes anything."""
        before = self.mission
        if what == "validate":
            validation.validate(self.world.runtime(), self.task_id, validation.Ask("none"), wait_seconds=60)
        elif what == "damage":
            self.damage(name)
        elif what == "artifact" and before.phase != "complete":
            self.world.write(f"{before.specs_path}/completion.json", '{"status":"passed","passed":true}')
        elif what == "another":
            assert self.world.stop(OTHER, last_assistant_message="done").is_silent
        elif what == "commit":
            self.world.git("commit", "-q", "--allow-empty", "-a", "-m", "Go on")
        elif what == "sub-agent":
            self.world.tool(agent_id="a1")
        elif what == "repair":
            lifecycle_commands.repair(self.world.runtime(), self.task_id)
            self.healed()
        elif what == "time":
            self.world.clock.move(hours=0.5)
        after = self.mission
        assert (after.phase, after.usage, after.iteration) == (before.phase, before.usage, before.iteration)

    def damage(self, name: str) -> None:
        path = self.world.project / ".omx" / "autoresearch" / self.task_id / name
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.write_text("{}\n")
        self.is_damaged = True

    # --- the owner

    def owner_verb(self, verb: str) -> None:
        try:
            getattr(lifecycle_commands, verb)(self.world.runtime(), self.task_id)
        except StepIllegal:
            return

    @rule(verb=st.sampled_from(["pause", "approve"]), fields=stops)
    def owner(self, verb: str, fields: dict[str, Any]) -> None:
        self.owner_verb(verb)
        self.stopping(fields)
        self.owner_verb("resume")

    @rule(refusals=st.sampled_from([0, 0, 3]))
    def go_on(self, refusals: int) -> None:
        if self.mission.phase == "paused":
            self.owner_verb("resume")
        elif self.mission.phase == "blocked":
            lifecycle_commands.unblock(self.world.runtime(), self.task_id, add_refusals=refusals)

    @rule(is_meant=st.integers(0, 7), count=st.integers(1, 3))
    def cancel(self, is_meant: int, count: int) -> None:
        """While stops are under way, and seldom, since it ends the history."""
        if is_meant:
            return
        works: list[Callable[[], object]] = [lambda: self.owner_verb("cancel")]
        works += [lambda: self.world.stop(last_assistant_message="x")] * count
        in_processes(*works)
        self.is_damaged = True  # whether a stop came first, nobody knows

    # --- what must hold

    @invariant()
    def refusals_stay_within_their_bound(self) -> None:
        counted = talked = background = waited = 0
        for record in self.world.records(self.task_id):
            kind, data = record["kind"], record["data"]
            if kind in OWNERS or data.get("progress") == "strong":
                counted = talked = background = waited = 0
            elif kind == "stop_refused":
                counted += bool(data["progress"])
                waited += not data["progress"]
            elif kind == "person_prompted":
                talked += 1
            elif kind == "stop_allowed":
                background += data["stop"]["reason_code"] == "background-work"
            assert counted <= LIMITS["stale_stalled"] - 1 + LIMITS["weak_holds"] + talked
            assert background <= LIMITS["background_allows"]
            assert waited <= LIMITS["wait_refusals"]
        mission = self.mission
        assert mission.usage.refusals <= mission.limits.refusals_total

    @invariant()
    def nothing_completes_without_a_fresh_attested_pass(self) -> None:
        completed = self.world.records(self.task_id, "mission_completed")
        if not completed:
            assert self.mission.phase != "complete"
            return
        assert len(completed) == 1
        run_id = completed[0]["data"]["run_id"]
        runs = [
            record["data"]["attestation"]
            for record in self.world.records(self.task_id, "validation_finished")
            if record["data"]["attestation"]["run_id"] == run_id
        ]
        assert len(runs) == 1
        assert (runs[0]["verdict"], runs[0]["is_fresh"]) == ("passed", True)
        assert runs[0]["contract_digest"] == self.mission.contract_digest
        if self.solved_at_completion is not None:
            assert self.solved_at_completion
            self.solved_at_completion = None
            look = snapshot_workspace(self.world.home.mission(self.task_id), self.mission)
            assert (runs[0]["head"], runs[0]["tree_digest"]) == (look.head, look.tree_digest)

    @invariant()
    def what_ended_stays_ended(self) -> None:
        kinds = self.world.kinds(self.task_id)
        ends = [kind for kind in kinds if kind in ("mission_completed", "mission_cancelled")]
        assert len(ends) <= 1
        if not ends:
            return
        assert self.mission.phase == ends[0].removeprefix("mission_").replace("completed", "complete")
        behind = kinds[kinds.index(ends[0]) + 1 :]
        assert set(behind) <= {"validation_finished", "validation_lost", "commands_approved", "claim_recorded",
                               "projection_edited"}  # fmt: skip
        assert self.mission.binding is None
        assert Registry(self.world.home).entries() == ()
        assert self.world.stop().is_silent

    @invariant()
    def the_snapshot_is_the_fold_of_the_journal(self) -> None:
        entries = self.world.store.journal(self.task_id).read()
        folded = fold(None, ((entry.kind, entry.ts, entry.data) for entry in entries))
        assert folded == self.mission

    @invariant()
    def the_projections_are_what_a_rebuild_makes(self) -> None:
        if self.is_damaged:
            return
        folder = self.world.project / ".omx" / "autoresearch" / self.task_id
        before = fingerprint(folder, without=["heartbeat.jsonl"])
        self.world.store.rebuild(self.task_id)
        assert fingerprint(folder, without=["heartbeat.jsonl"]) == before

    @invariant()
    def registry_and_journal_name_the_same_session(self) -> None:
        binding = self.mission.binding
        entries = Registry(self.world.home).entries()
        bound = [
            entry.session_id for entry in entries if (entry.task_id, entry.state) == (self.task_id, "bound")
        ]
        assert bound == ([binding.session_id] if binding else [])

    @invariant()
    def nothing_is_left_running_and_no_temporary_file_is(self) -> None:
        assert self.mission.running_validation is None
        assert [path for path in Path(self.folder).rglob("*.tmp") if ".git" not in path.parts] == []


@pytest.mark.slow
@pytest.mark.requirement("GATE-18", "LIFE-02", "STATE-06", "STATE-07", "DONE-02", "DONE-07")
@pytest.mark.case("LOOP-01", "LOOP-03", "STA-05")
def test_every_history_keeps_what_must_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "REUSED_FROM_SECONDS", validation.REUSED_FROM_SECONDS)
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=8,
            stateful_step_count=14,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow
def test_every_long_history_keeps_what_must_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "REUSED_FROM_SECONDS", validation.REUSED_FROM_SECONDS)
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=40,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
