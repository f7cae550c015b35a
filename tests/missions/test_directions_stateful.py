"""Random histories of directions, pivots, findings and evidence over the real files: none holds a mission for ever."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from omx_autoresearch.foundation.errors import StepIllegal
from omx_autoresearch.journal.layout import ProjectFolder
from omx_autoresearch.missions import claims, lifecycle_commands
from omx_autoresearch.missions.directions import declare, inject
from omx_autoresearch.missions.records import fold
from omx_autoresearch.missions.records.work import FindingRecorded
from omx_autoresearch.missions.rules.criteria import Evidence, Finding
from omx_autoresearch.missions.rules.directions import AXES, claim_text, direction_of
from tests.support.scratch import Scratch, fingerprint

LIMITS = {
    "idle_refusals": 20, "stale_pivot": 1, "stale_fresh": 2, "stale_stalled": 3, "weak_holds": 3, "refusals_total": 40
}  # fmt: skip
OWNERS = ("mission_unblocked", "mission_launched")
TEXTS = st.sampled_from(
    ["profile it", "Profile it!", "it profiles", "cache it", "\u4f18\u5316\u6e32\u67d3", "..."]
)


class Histories(RuleBasedStateMachine):
    """One mission whose agent declares, finds and edits as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="omx-directions-")
        self.world = Scratch.make(Path(self.folder))
        self.world.write("check.sh", "#!/bin/sh\nexit 1\n", executable=True)
        self.world.commit("Never right")
        self.task_id = self.world.mission(limits=LIMITS).task_id
        self.number = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule(count=st.integers(1, 3), is_edited=st.booleans())
    def work_and_stop(self, count: int, is_edited: bool) -> None:
        for _ in range(count):
            self.number += 1
            self.world.tool()
            if is_edited:
                self.world.write("notes.md", f"{self.number}\n")
            self.world.stop()

    @rule(text=TEXTS, axis=st.sampled_from(AXES[:2]), is_pivot=st.booleans(), is_new=st.booleans())
    def declare(self, text: str, axis: str, is_pivot: bool, is_new: bool) -> None:
        self.number += 1
        said = f"{text} {self.number}" if is_new else text
        direction = direction_of(said, {axis: said}, is_pivot=is_pivot)
        before = self.world.load(self.task_id)
        try:
            declared = declare(self.world.runtime(), self.task_id, direction)
        except StepIllegal:
            assert before.phase != "running"
            return
        after = self.world.load(self.task_id)
        assert (after.usage, after.iteration) == (before.usage, before.iteration), (
            "declaring moves no counter"
        )
        assert declared.is_recorded == (after.directions != before.directions)
        if before.is_after_stall and declared.is_recorded and declared.repeats is not None:
            assert (
                declared.repeats.first_seen_iteration >= before.iteration
                or before.open_directions != after.open_directions
            )

    @rule(text=TEXTS)
    def claim(self, text: str) -> None:
        path = ProjectFolder(str(self.world.project)).inbox_path(self.task_id)
        direction = direction_of(text, {AXES[0]: "x"}, is_pivot=True)
        claims.drop_claim(
            path, claim_text(direction), verb=claims.DIRECTION_VERB, at=self.world.runtime().now()
        )

    @rule(criterion=st.sampled_from(["", "", "one", "two"]), is_new=st.booleans())
    def find(self, criterion: str, is_new: bool) -> None:
        self.number += 1
        evidence = Evidence(criterion, f"digest {self.number}", is_new=is_new) if criterion else None
        record = FindingRecorded(Finding(f"f{self.number}", "manual", "seen", evidence=evidence))
        with self.world.store.transaction(self.task_id, self.world.runtime().now()) as transaction:
            transaction.record(record)

    @rule(text=TEXTS)
    def inject(self, text: str) -> None:
        inject(self.world.runtime(), self.task_id, direction_of(text, {}))

    @rule()
    def unblock(self) -> None:
        if self.world.load(self.task_id).phase == "blocked":
            lifecycle_commands.unblock(self.world.runtime(), self.task_id)

    @invariant()
    def refusals_stay_within_their_bound(self) -> None:
        counted = 0
        for record in self.world.records(self.task_id):
            if record["kind"] in OWNERS or record["data"].get("progress") == "strong":
                counted = 0
            elif record["kind"] == "stop_refused":
                counted += 1
            assert counted <= LIMITS["stale_stalled"] - 1 + LIMITS["weak_holds"]

    @invariant()
    def evidence_is_strong_once_for_each_criterion(self) -> None:
        strong = [
            record
            for record in self.world.records(self.task_id, "stop_refused", "stop_released")
            if record["data"]["progress"] == "strong"
        ]
        assert len(strong) <= 2

    @invariant()
    def every_declaration_is_counted_and_the_state_is_the_fold(self) -> None:
        mission = self.world.load(self.task_id)
        entries = self.world.store.journal(self.task_id).read()
        assert fold(None, ((entry.kind, entry.ts, entry.data) for entry in entries)) == mission
        said = Counter(
            record["data"]["direction"]["fingerprint"]
            for record in self.world.records(self.task_id, "direction_declared")
            if record["data"]["direction"]["by"] != "claim"
        )
        counts = {item.fingerprint: item.count for item in mission.directions}
        assert all(counts[name] >= count for name, count in said.items())
        assert len(counts) == len(mission.directions)

    @invariant()
    def the_projections_are_what_a_rebuild_makes(self) -> None:
        folder = self.world.project / ".omx" / "autoresearch" / self.task_id / "state"
        before = fingerprint(folder)
        self.world.store.rebuild(self.task_id)
        assert fingerprint(folder) == before


def _run(max_examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow
@pytest.mark.requirement("GATE-18", "DIR-03", "DIR-07", "STALL-02")
def test_every_history_of_directions_keeps_the_bound() -> None:
    _run(8, 16)


@pytest.mark.slow
def test_every_long_history_of_directions_keeps_the_bound() -> None:
    _run(80, 40)
