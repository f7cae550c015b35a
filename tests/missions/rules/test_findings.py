"""What may be recorded as a finding at all, and what makes two pieces of evidence one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omx_autoresearch.missions.records.lifecycle import MissionAmended, MissionCreated
from omx_autoresearch.missions.records.work import CriteriaChecked, FindingRecorded
from omx_autoresearch.missions.rules.criteria import (
    Criterion,
    CriterionCheck,
    Evidence,
    Finding,
    evidence_digest,
    finding_faults,
    rule_of,
)
from omx_autoresearch.missions.rules.mission import Contract, Mission

AT = "2026-01-02T03:04:05.000000Z"


def mission() -> Mission:
    created = MissionCreated("20260102-030405-x", "x", "goal", "standard", "/p", "/p", ".omx/specs/x")
    return replace(created.apply(None, AT), phase="running")


def evidence(criterion: str = "tests", digest: str = "d1", *, is_new: bool = True) -> Evidence:
    return Evidence(criterion, digest, is_new=is_new)


@pytest.mark.requirement("EVID-11")
@pytest.mark.parametrize("summary", ["結果 🧪 ok", "x" * 200 * 1024, "line\nline", "a\ttab"])
def test_any_language_and_200_kib_can_be_recorded(summary: str) -> None:
    assert finding_faults(Finding("f1", "manual", summary)) == []


@pytest.mark.requirement("EVID-11")
@pytest.mark.parametrize(
    ("finding", "said"),
    [
        (Finding("f1", "manual", "x" * (256 * 1024 + 1)), "put the whole text into a file"),
        (Finding("f1", "manual", "字" * 100_000), "300000 bytes"),
        (Finding("f1", "manual", " \n"), "summary is empty"),
        (Finding("f1", "manual", "a\0b"), "summary holds a NUL"),
        (Finding("f1", "manual", "a\ud800"), "summary holds half of a surrogate"),
        (Finding("f1", "manual", "a", command="\0"), "command holds a NUL"),
        (Finding("f1", "manual", "a", paths=("a\0",)), "paths holds a NUL"),
        (Finding("f1", "manual", "a", paths=("",)), "empty path"),
        (Finding("f1", "manual", "a", paths=("p",) * 1001), "at most 1000"),
        (Finding("../x", "manual", "a"), "id is"),
        (Finding("", "manual", "a"), "id is"),
        (Finding("f 1", "manual", "a"), "id is"),
        (Finding("f1", "proof", "a"), "kind must be one of"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_recorded_is_told_by_its_field(finding: Finding, said: str) -> None:
    assert any(said in fault for fault in finding_faults(finding)), finding_faults(finding)


def test_every_part_of_evidence_makes_it_another_one() -> None:
    assert evidence_digest("a", "b") == evidence_digest("a", "b")
    assert evidence_digest("a", "b") != evidence_digest("a", "c")
    assert evidence_digest("ab", "") != evidence_digest("a", "b")


@pytest.mark.requirement("EVID-09")
def test_a_criterion_is_progress_once_and_never_by_the_same_evidence_again() -> None:
    state = mission()
    for number, seen in enumerate((evidence(), evidence(is_new=False), evidence(digest="d2"))):
        state = FindingRecorded(Finding(f"f{number}", "command", "x", evidence=seen)).apply(state, AT)
    assert state.turn_evidence == 1, "more evidence for a criterion that has some is none"
    assert state.evidence_ids == {"tests": ("f0", "f1", "f2")}
    state = FindingRecorded(Finding("f3", "command", "x", evidence=evidence("other"))).apply(state, AT)
    assert state.turn_evidence == 2
    assert (state.finding_count, state.accepted_count) == (4, 4)


@pytest.mark.requirement("EVID-09", "EVID-13")
def test_a_claim_is_counted_and_is_no_progress_and_the_state_stays_small() -> None:
    state = mission()
    for number in range(1000):
        state = FindingRecorded(Finding(f"f{number}", "manual", "x" * 100)).apply(state, AT)
    for number in range(100):
        seen = evidence(digest=str(number))
        state = FindingRecorded(Finding(f"e{number}", "manual", "x" * 100, evidence=seen)).apply(state, AT)
    assert (state.finding_count, state.accepted_count, state.turn_evidence) == (1100, 100, 1)
    assert len(repr(state)) < 4000


def test_a_check_takes_the_place_of_the_one_before() -> None:
    state = CriteriaChecked((CriterionCheck("a", True, "f1"), CriterionCheck("b", False))).apply(
        mission(), AT
    )
    state = CriteriaChecked((CriterionCheck("a", False, received="no"),)).apply(state, AT)
    assert [(check.criterion_id, check.is_met) for check in state.checks] == [("a", False), ("b", False)]


@pytest.mark.requirement("READY-10")
def test_an_amended_rule_keeps_no_evidence_of_the_old_one() -> None:
    def contract(*rules: tuple[str, str]) -> Contract:
        criteria = tuple(Criterion(name, "x", rule_of(f"file: {path}")) for name, path in rules)
        return Contract("mission-validator-script", "true", criteria=criteria)

    state = replace(mission(), contract=contract(("a", "a.md"), ("b", "b.md"), ("c", "c.md")))
    for name in ("a", "b", "c"):
        seen = evidence(name, name)
        state = FindingRecorded(Finding(f"f-{name}", "file", "x", evidence=seen)).apply(state, AT)
    state = replace(state, verification_excuse="no network")
    state = MissionAmended(contract(("a", "a.md"), ("b", "other.md")), "new").apply(state, AT)
    assert state.evidence_ids == {"a": ("f-a",)}
    assert state.verification_excuse == ""
