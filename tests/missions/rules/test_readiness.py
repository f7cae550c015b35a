"""Each line of the completion gate: when it holds, when it does not, and what is said then."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.missions.records.lifecycle import MissionCreated
from omx_autoresearch.missions.rules.criteria import (
    Criterion,
    CriterionCheck,
    WorkspaceSnapshot,
    criterion_of,
    rule_of,
)
from omx_autoresearch.missions.rules.evidence import (
    completion_items,
    is_code,
    is_criterion_met,
    is_reusable_miss,
    unsettled_criteria,
)
from omx_autoresearch.missions.rules.mission import Attestation, Blocker, Contract, Mission
from omx_autoresearch.missions.rules.readiness import readiness_report

if TYPE_CHECKING:
    from omx_autoresearch.foundation.types import Phase

AT = "2026-01-02T03:04:05.000000Z"
LOOK = WorkspaceSnapshot(head="h1", tree_digest="t1", pin_digest="p1", file_digests={"r.md": "d1"})
COMMAND = criterion_of("tests: it verifies :: command: pytest -q")
FILE = criterion_of("report: written :: file: r.md")
VALIDATOR = criterion_of("done: it agrees :: validator")
PERSON = criterion_of("look: seen :: person")
PASS = Attestation("r1", "passed", "exit-0", "", "c1", "p1", "h1", "t1", True, AT, AT)


def mission(*criteria: Criterion, **fields: Any) -> Mission:
    created = MissionCreated("20260102-030405-x", "x", "goal", "standard", "/p", "/p", ".omx/specs/x")
    fields.setdefault("contract", Contract("mission-validator-script", "true", criteria=criteria))
    fields.setdefault("attestation", PASS)
    state: Mission = replace(created.apply(None, AT), phase="running", contract_digest="c1", **fields)
    return state


def check(criterion: Criterion, **fields: Any) -> CriterionCheck:
    bound = {"contract_digest": "c1", "pin_digest": "p1", "head": "h1", "tree_digest": "t1", "at": AT}
    content = {"content_digest": "d1"} if criterion.rule.kind == "file" else {}
    return CriterionCheck(criterion.id, **{"is_met": True, "finding_id": "f1", **bound, **content, **fields})


def codes(state: Mission, look: WorkspaceSnapshot = LOOK) -> list[str]:
    return [item.code for item in completion_items(state, look)]


@pytest.mark.requirement("READY-01")
def test_a_passing_validator_alone_completes_nothing_that_has_criteria() -> None:
    assert codes(mission()) == []
    assert codes(mission(COMMAND, FILE, VALIDATOR, PERSON)) == [
        "criterion:tests",
        "criterion:report",
        "criterion:done",
        "criterion:look",
    ]


@pytest.mark.requirement("READY-01")
@pytest.mark.parametrize("criterion", [COMMAND, FILE, VALIDATOR, PERSON])
def test_a_criterion_that_holds_is_asked_for_no_more(criterion: Criterion) -> None:
    assert codes(mission(criterion, checks=(check(criterion),))) == []


def test_an_optional_criterion_may_stay_open() -> None:
    state = mission(replace(COMMAND, is_required=False))
    assert codes(state) == []
    assert unsettled_criteria(state, LOOK) == ()


@pytest.mark.requirement("READY-02")
@pytest.mark.parametrize(
    "look",
    [
        replace(LOOK, head="h2"),
        replace(LOOK, tree_digest="t2"),
        replace(LOOK, tree_digest=""),
        replace(LOOK, pin_digest="p2"),
        replace(LOOK, changed_pins=("check.sh",)),
    ],
)
def test_the_evidence_of_a_command_counts_only_for_the_workspace_that_it_ran_on(
    look: WorkspaceSnapshot,
) -> None:
    state = mission(COMMAND, checks=(check(COMMAND),))
    assert not is_criterion_met(state, COMMAND, look)
    assert unsettled_criteria(state, look) == (COMMAND,), "the runtime looks again"


@pytest.mark.requirement("READY-02")
@pytest.mark.parametrize("digests", [{}, {"r.md": "d2"}, {"r.md": ""}])
def test_the_evidence_of_a_file_counts_only_for_its_content(digests: dict[str, str]) -> None:
    state = mission(FILE, checks=(check(FILE),))
    assert is_criterion_met(state, FILE, replace(LOOK, tree_digest="t2"))
    assert not is_criterion_met(state, FILE, replace(LOOK, file_digests=digests))


@pytest.mark.requirement("READY-02", "READY-10")
@pytest.mark.parametrize("criterion", [COMMAND, FILE, VALIDATOR, PERSON])
@pytest.mark.parametrize("fields", [{"contract_digest": "c0"}, {"is_met": False}, {"finding_id": ""}])
def test_nothing_counts_of_another_contract_or_without_evidence(
    criterion: Criterion, fields: dict[str, Any]
) -> None:
    assert not is_criterion_met(mission(criterion, checks=(check(criterion, **fields),)), criterion, LOOK)


@pytest.mark.requirement("EVID-06")
@pytest.mark.parametrize(
    "run",
    [None, replace(PASS, verdict="failed"), replace(PASS, is_fresh=False), replace(PASS, tree_digest="t0")],
)
def test_a_validator_rule_needs_an_attested_pass_on_the_workspace_as_it_is(run: Attestation | None) -> None:
    state = mission(VALIDATOR, attestation=run, checks=(check(VALIDATOR),))
    assert not is_criterion_met(state, VALIDATOR, LOOK)
    assert unsettled_criteria(state, LOOK) == (), "no look can settle it before the pass"


def test_a_persons_word_is_never_settled_by_a_look() -> None:
    assert unsettled_criteria(mission(PERSON), LOOK) == ()
    assert [item.is_owners for item in completion_items(mission(PERSON), LOOK)] == [True]


@pytest.mark.parametrize(
    ("fields", "is_reusable"),
    [
        ({"is_reusable": True}, True),
        ({"is_reusable": False}, False),
        ({"is_reusable": True, "tree_digest": "t0"}, False),
        ({"is_reusable": True, "at": "2026-01-01T00:00:00.000000Z"}, False),
        ({"is_reusable": True, "is_met": True}, False),
    ],
)
def test_a_long_miss_is_reused_while_nothing_moved_and_nobody_spoke(
    fields: dict[str, Any], is_reusable: bool
) -> None:
    missed = check(COMMAND, **{"is_met": False, "finding_id": "", **fields})
    state = mission(COMMAND, checks=(missed,), prompted_at=AT)
    assert is_reusable_miss(state, COMMAND, LOOK) is is_reusable


# --- verification of changed code


def review(*criteria: Criterion, **fields: Any) -> Mission:
    contract = Contract(
        "prompt-architect-artifact", validator_prompt="?", output_artifact_path="r.md", criteria=criteria
    )
    run = replace(PASS, output_artifact_digest="a1")
    return mission(contract=contract, **{"attestation": run, **fields})


SEEN = replace(LOOK, output_artifact_digest="a1")
CHANGED = replace(SEEN, changed_code=("src/a.py",))


@pytest.mark.requirement("READY-04")
def test_code_that_changed_beside_a_reviewed_artifact_must_be_verified_or_excused() -> None:
    assert codes(review(), SEEN) == []
    (item,) = completion_items(review(), CHANGED)
    assert (item.code, item.is_owners) == ("verification", True)
    assert "src/a.py" in item.received
    assert codes(review(verification_excuse="no toolchain here"), CHANGED) == []
    assert codes(review(COMMAND, checks=(check(COMMAND),)), CHANGED) == []
    optional = replace(COMMAND, is_required=False)
    assert codes(review(optional, checks=(check(COMMAND),)), CHANGED) == []
    (item,) = completion_items(review(optional), CHANGED)
    assert not item.is_owners, "the agent can have it run"
    assert item.next_command.endswith(" tests")


@pytest.mark.requirement("READY-04")
def test_the_validators_own_pass_verifies_the_code_and_so_does_what_the_owner_lets_count() -> None:
    look = replace(LOOK, changed_code=("src/a.py",))
    assert codes(mission(), look) == []
    contract = Contract("mission-validator-script", "true", accept_unattested=True)
    state = mission(contract=contract, attestation=None)
    assert codes(state, replace(look, artifact_claim="passed")) == []


@pytest.mark.parametrize(
    ("path", "expected"), [("a.py", True), ("Makefile", True), ("R.MD", False), ("x.PNG", False)]
)
def test_prose_and_pictures_are_no_code(path: str, expected: bool) -> None:
    assert is_code(path) is expected


# --- the other lines


@pytest.mark.requirement("READY-06")
def test_a_stale_mission_ends_only_with_evidence_of_its_last_iteration() -> None:
    optional = replace(FILE, is_required=False)
    contract = Contract("mission-validator-script", "true", accept_unattested=True, criteria=(optional,))
    look = replace(LOOK, artifact_claim="passed")
    stale = mission(contract=contract, attestation=None)
    stale = replace(stale, usage=replace(stale.usage, stale=1))
    assert codes(stale, look) == ["final-iteration"]
    assert codes(replace(stale, turn_evidence_ids=("f1",)), look) == []
    assert codes(replace(stale, usage=replace(stale.usage, stale=0)), look) == []
    attested = replace(stale, attestation=PASS)
    assert codes(attested, look) == [], "a passing attested verdict is the last iteration's evidence"
    assert codes(replace(attested, attestation=None), LOOK) == ["validation"], "the verdict alone is required"


@pytest.mark.requirement("READY-06")
def test_a_stale_mission_without_criteria_asks_for_no_evidence_that_nothing_could_bring() -> None:
    contract = Contract("mission-validator-script", "true", accept_unattested=True)
    stale = mission(contract=contract, attestation=None)
    stale = replace(stale, usage=replace(stale.usage, stale=1))
    assert codes(stale, replace(LOOK, artifact_claim="passed")) == []


@pytest.mark.requirement("READY-07")
def test_state_files_that_cannot_be_believed_are_missing() -> None:
    (item,) = completion_items(mission(), replace(LOOK, state_fault="progress.json is missing"))
    assert (item.code, item.received) == ("state-files", "progress.json is missing")
    assert item.next_command == "omx-autoresearch repair 20260102-030405-x"


@pytest.mark.requirement("READY-09")
def test_the_report_has_every_line_and_the_next_command_of_each_that_does_not_hold() -> None:
    state = mission(COMMAND, replace(FILE, is_required=False), attestation=None)
    report = readiness_report(state, LOOK)
    assert not report.is_ready
    assert [line.code for line in report.lines] == [
        "state-files",
        "validation",
        "criterion:tests",
        "criterion:report",
        "evidence-ids",
        "verification",
        "blocked",
        "final-iteration",
    ]
    assert [item.code for item in report.missing] == ["validation", "criterion:tests"]
    assert all(line.next_command for line in report.lines if not line.is_met)
    ready = readiness_report(replace(mission(COMMAND), checks=(check(COMMAND),)), LOOK)
    assert ready.is_ready
    assert ready.missing == ()


@pytest.mark.requirement("READY-03")
def test_evidence_that_the_journal_does_not_hold_is_told() -> None:
    report = readiness_report(mission(), LOOK, unresolved=("f9",))
    assert not report.is_ready
    assert "f9" in report.missing[0].received


@pytest.mark.requirement("READY-08")
@pytest.mark.parametrize("phase", ["blocked", "paused", "cancelled"])
def test_a_mission_that_does_not_run_is_not_ready(phase: Phase) -> None:
    state = replace(mission(), phase=phase, blocker=Blocker("stalled", "no idea left", "a hint", "", "gate"))
    report = readiness_report(state, LOOK)
    assert [item.code for item in report.missing] == ["blocked"]
    assert "no idea left" in report.missing[0].received


def test_what_was_received_says_that_evidence_went_stale() -> None:
    state = mission(COMMAND, checks=(check(COMMAND),))
    (item,) = (
        item for item in completion_items(state, replace(LOOK, head="h2")) if item.code != "validation"
    )
    assert item.received == "evidence f1, but its inputs have changed since"
    missed = check(COMMAND, is_met=False, finding_id="", received="exit status 1")
    (item,) = completion_items(mission(COMMAND, checks=(missed,)), LOOK)
    assert item.received == "exit status 1"
    (item,) = completion_items(mission(FILE), replace(LOOK, file_faults={"r.md": "r.md is a symbolic link"}))
    assert item.received == "r.md is a symbolic link"


def test_a_rule_that_is_written_is_shown_to_the_agent() -> None:
    (item,) = completion_items(mission(Criterion("a", "b", rule_of("file: x.md ~ ^#"))), LOOK)
    assert "file: x.md ~ ^#" in item.what
