"""When a contract is met: freshness, what a run proves, and that claims prove nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf, nan
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.foundation.types import RunVerdict
from omx_autoresearch.missions.rules.criteria import WorkspaceSnapshot
from omx_autoresearch.missions.rules.evidence import (
    better_of,
    has_moved,
    is_better,
    is_fresh,
    is_reusable_failure,
    missing_items,
    read_artifact,
    run_score,
)
from omx_autoresearch.missions.rules.run_reports import RunReport, report_of_run
from tests.missions.rules.samples import LOOK, REVIEW, SCRIPT, TASK, a_mission, a_run

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Contract

WRONG_PASSED: tuple[Any, ...] = ("false", "true", 1, 0, None, [True], {})
WRONG_STATUS: tuple[Any, ...] = ("PASSED", "passed ", "not passed", "ok", "", None, True, ["passed"], {})
WRONG_SCORES: tuple[Any, ...] = ("5", True, False, nan, inf, -inf, [1], 10**400)
WRONG_SUMMARIES: tuple[Any, ...] = (1, None, ["x"], {"a": 1})
VERDICTS: tuple[RunVerdict, ...] = get_args(RunVerdict)
DONE_PHRASES = ("DONE", "<promise>DONE</promise>", "[goal:complete]", '{"status":"passed","passed":true}')


def report(
    exit_status: int | None,
    last: dict[str, Any] | None = None,
    *,
    fault: str = "",
    output: str = "",
    **contract: Any,
) -> RunReport:
    """What a run proves under the sample contract."""
    return report_of_run(
        exit_status, output, last_object=last, fault=fault, contract=replace(SCRIPT, **contract)
    )


# --- freshness


@pytest.mark.requirement("DONE-02", "DONE-07")
@pytest.mark.parametrize("contract", [SCRIPT, REVIEW], ids=lambda contract: contract.validation_mode)
def test_only_a_fresh_pass_of_this_contract_leaves_nothing_missing(contract: Contract) -> None:
    is_script = contract is SCRIPT
    changes: dict[str, dict[str, Any]] = {
        "nothing": {},
        "head": {"head": "other"},
        "tree": {"tree_digest": "other"},
        "pins": {"pin_digest": "other"},
        "artifact": {"output_artifact_digest": "other"},
    }
    irrelevant = {"nothing"} | (set() if is_script else {"head", "tree"})
    for verdict, fresh, digest, change in product(VERDICTS, (False, True), ("contract", "other"), changes):
        mission = a_mission(contract, attestation=a_run(verdict, is_fresh=fresh, contract_digest=digest))
        missing = missing_items(mission, replace(LOOK, **changes[change]))
        is_met = verdict == "passed" and fresh and digest == "contract" and change in irrelevant
        assert (missing == ()) is is_met, (verdict, fresh, digest, change)


@pytest.mark.case("VAL-05")
def test_a_pass_on_another_state_is_said_to_be_one() -> None:
    mission = a_mission(attestation=a_run("passed"))
    (item,) = missing_items(mission, replace(LOOK, head="later"))
    assert (item.code, item.next_command) == ("validation", f"omx-autoresearch validate {TASK}")
    assert "run r-1 passed, but the workspace, HEAD or a pinned file changed since it began" in item.received
    assert "validator `./check.sh`" in item.what
    (item,) = missing_items(replace(mission, contract=REVIEW), replace(LOOK, output_artifact_digest="later"))
    assert (item.code, item.next_command) == ("review", f"omx-autoresearch review {TASK}")
    assert "run r-1 passed, but the artifact or a pinned file changed since it began" in item.received
    assert "review of report.md" in item.what
    (item,) = missing_items(a_mission(attestation=a_run("passed", is_fresh=False)), LOOK)
    assert "changed while it ran" in item.received


@pytest.mark.case("VAL-05")
def test_a_pass_of_another_contract_is_no_run_at_all() -> None:
    mission = a_mission(attestation=a_run("passed", contract_digest="the mission before"))
    (item,) = missing_items(mission, LOOK)
    assert item.received == "no run under this contract yet"


def test_what_was_not_seen_is_never_the_same() -> None:
    unseen = replace(LOOK, tree_digest="", output_artifact_digest="")
    blind = a_run("passed", tree_digest="", output_artifact_digest="")
    assert not is_fresh(blind, a_mission(), unseen)
    assert not is_fresh(blind, a_mission(REVIEW), unseen)
    assert not is_fresh(None, a_mission(), LOOK)


def test_a_run_outside_git_has_no_head_and_can_be_fresh() -> None:
    assert is_fresh(a_run(head=""), a_mission(), replace(LOOK, head=""))


@pytest.mark.parametrize(
    ("later", "script", "review"),
    [
        (replace(LOOK, head="other"), True, False),
        (replace(LOOK, tree_digest="other"), True, False),
        (replace(LOOK, pin_digest="other"), True, True),
        (replace(LOOK, output_artifact_digest="other"), False, True),
        (replace(LOOK, artifact_report="other", artifact_claim="passed"), False, False),
    ],
)
def test_what_a_run_depends_on_is_what_makes_it_stale_when_it_moves(
    later: WorkspaceSnapshot, script: bool, review: bool
) -> None:
    assert has_moved(LOOK, later, a_mission(SCRIPT)) is script
    assert has_moved(LOOK, later, a_mission(REVIEW)) is review


def test_a_draft_lacks_its_launch() -> None:
    (item,) = missing_items(a_mission(None, "draft"), LOOK)
    assert (item.code, item.next_command) == ("launch", f"omx-autoresearch start {TASK}")


@pytest.mark.requirement("DONE-11")
def test_without_an_artifact_nothing_can_be_reviewed_whatever_the_verdict() -> None:
    look = replace(LOOK, output_artifact_digest="", artifact_fault="'report.md': it is empty")
    mission = a_mission(REVIEW, attestation=a_run("passed", output_artifact_digest=""))
    (item,) = missing_items(mission, look)
    assert (item.code, item.received) == ("output-artifact", "'report.md': it is empty")


@pytest.mark.requirement("DONE-08")
def test_only_a_failure_on_exactly_this_state_is_reused_and_only_until_a_person_speaks() -> None:
    for verdict in VERDICTS:
        mission = a_mission(attestation=a_run(verdict))
        assert is_reusable_failure(mission, LOOK) is (verdict == "failed")
    failed = a_mission(attestation=a_run("failed"))
    assert not is_reusable_failure(replace(failed, is_recheck_due=True), LOOK)
    assert not is_reusable_failure(failed, replace(LOOK, tree_digest="other"))
    assert not is_reusable_failure(failed, replace(LOOK, head="other"))
    assert not is_reusable_failure(a_mission(attestation=a_run("failed", is_fresh=False)), LOOK)
    assert not is_reusable_failure(a_mission(), LOOK)


# --- claims


@pytest.mark.requirement("DONE-02")
@pytest.mark.case("LOOP-13")
@pytest.mark.parametrize("phrase", DONE_PHRASES)
def test_a_phrase_of_completion_proves_nothing_wherever_it_stands(phrase: str) -> None:
    mission = a_mission(goal=phrase, attestation=a_run("failed", summary=phrase, cause=phrase))
    look = replace(LOOK, artifact_report=phrase, artifact_fault=phrase)
    assert missing_items(mission, look) != ()
    assert missing_items(replace(mission, contract=REVIEW), look) != ()
    assert report(1, output=phrase).verdict == "failed"


@pytest.mark.requirement("DONE-10")
@pytest.mark.case("VAL-07")
@pytest.mark.parametrize("contract", [SCRIPT, REVIEW], ids=lambda contract: contract.validation_mode)
def test_a_hand_written_artifact_counts_only_where_the_owner_said_so(contract: Contract) -> None:
    look = replace(
        LOOK, artifact_claim="passed", artifact_report="a hand-written completion artifact says passed"
    )
    (item,) = missing_items(a_mission(contract), look)
    assert "a hand-written completion artifact says passed" in item.received
    generous = replace(contract, accept_unattested=True)
    assert missing_items(a_mission(generous), look) == ()
    assert missing_items(a_mission(generous), replace(look, artifact_claim="")) != ()


GOOD_SCRIPT = {"status": "passed", "passed": True, "summary": "metric improved beyond baseline"}
GOOD_REVIEW = {
    "validator_prompt": "Review the report.",
    "architect_review": {"verdict": "approved"},
    "output_artifact_path": "report.md",
}


@pytest.mark.requirement("DONE-10")
def test_the_protocols_own_examples_are_read_and_reported_as_unattested() -> None:
    for contract, document in ((SCRIPT, GOOD_SCRIPT), (REVIEW, GOOD_REVIEW)):
        is_passing, said = read_artifact(document, a_mission(contract))
        assert is_passing
        assert "unattested" in said


@pytest.mark.case("ART-02")
@pytest.mark.parametrize(
    "change",
    [
        *({"passed": value} for value in (*WRONG_PASSED, False, 1.0)),
        *({"status": value} for value in WRONG_STATUS),
        {"status": "failed", "passed": True},
        {"status": "passed", "passed": False},
    ],
    ids=str,
)
def test_only_the_exact_types_and_values_of_an_artifact_say_passed(change: dict[str, Any]) -> None:
    is_passing, said = read_artifact({**GOOD_SCRIPT, **change}, a_mission())
    assert not is_passing
    assert "status=" in said
    assert "passed=" in said


@pytest.mark.case("ART-02")
@pytest.mark.parametrize("document", [[GOOD_SCRIPT], "passed", True, 1, None, [], {}], ids=str)
@pytest.mark.parametrize("contract", [SCRIPT, REVIEW], ids=lambda contract: contract.validation_mode)
def test_another_shape_of_artifact_says_nothing(document: Any, contract: Contract) -> None:
    is_passing, said = read_artifact(document, a_mission(contract))
    assert not is_passing
    assert said.startswith("a hand-written completion artifact")


@pytest.mark.case("ART-02")
@pytest.mark.parametrize("key", ["Passed", "pased", "PASSED", " passed"])
def test_a_misspelt_key_is_not_the_key(key: str) -> None:
    assert not read_artifact({"status": "passed", key: True}, a_mission())[0]


@pytest.mark.requirement("DONE-11")
@pytest.mark.case("ART-03")
@pytest.mark.parametrize(
    "verdict",
    [
        "not approved", "DISAPPROVED", "approved with blockers", "Approved", " approved\n", "APPROVE", "", None, True,
        1, ["approved"],
    ],
    ids=repr,
)  # fmt: skip
def test_only_the_exact_word_approves(verdict: Any) -> None:
    document = {**GOOD_REVIEW, "architect_review": {"verdict": verdict}, "summary": "APPROVED"}
    assert not read_artifact(document, a_mission(REVIEW))[0]


@pytest.mark.requirement("DONE-11")
@pytest.mark.case("ART-03")
@pytest.mark.parametrize(
    "change",
    [
        {"architect_review": {}},
        {"architect_review": "approved"},
        {"architect_review": None, "verdict": "approved"},
        {"output_artifact_path": "other.md"},
        {"output_artifact_path": None},
        {"passed": False},
        {"status": "failed"},
        {"verdict": "rejected"},
        {"passed": 1},
    ],
    ids=str,
)
def test_a_review_with_contradictory_or_missing_fields_does_not_approve(change: dict[str, Any]) -> None:
    assert not read_artifact({**GOOD_REVIEW, **change}, a_mission(REVIEW))[0]


def test_a_huge_foreign_value_is_reported_in_short() -> None:
    for value in ("x" * 100_000, ["x"] * 100_000, 10**4000):
        said = read_artifact({"status": value, "passed": value}, a_mission())[1]
        assert len(said) < 400
    assert read_artifact(GOOD_SCRIPT, a_mission(None, "draft")) == (False, "")


# --- what a run proves


@pytest.mark.requirement("DONE-05")
def test_an_exit_status_of_zero_is_needed_and_enough() -> None:
    assert report(0) == RunReport("passed", "exit-0", "exit status 0")
    assert report(1) == RunReport("failed", "exit-nonzero", "exit status 1")
    assert report(137).verdict == "failed"


@pytest.mark.requirement("DONE-22")
@pytest.mark.case("VAL-01")
@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (126, "not-started"), (127, "not-started"), (None, "ended-by-signal"), (-9, "ended-by-signal"),
        (-15, "ended-by-signal"),
    ],
)  # fmt: skip
def test_a_run_that_could_not_be_told_is_an_error_and_never_passed(status: int | None, cause: str) -> None:
    for last in (None, {"passed": True}, {"passed": False}):
        found = report(status, last)
        assert (found.verdict, found.cause, found.score) == ("error", cause, None)


@pytest.mark.requirement("DONE-05")
@pytest.mark.parametrize(
    ("status", "last", "verdict", "cause"),
    [
        (0, {"passed": True}, "passed", "exit-0"),
        (0, {"status": "passed", "passed": True, "score": 3, "summary": "fine"}, "passed", "exit-0"),
        (0, {}, "passed", "exit-0"),
        (0, {"anything": {"of": "its own"}}, "passed", "exit-0"),
        (0, {"passed": False}, "failed", "contradiction"),
        (0, {"status": "failed"}, "failed", "contradiction"),
        (1, {"passed": True}, "failed", "contradiction"),
        (1, {"status": "passed"}, "failed", "contradiction"),
        (1, {"passed": False}, "failed", "exit-nonzero"),
        (0, {"status": "passed", "passed": False}, "error", "bad-report"),
        (0, {"status": "failed", "passed": True}, "error", "bad-report"),
        (1, {"status": "failed", "passed": True}, "failed", "exit-nonzero"),
    ],
    ids=str,
)
def test_exit_status_and_report_must_agree(
    status: int, last: dict[str, Any], verdict: str, cause: str
) -> None:
    found = report(status, last)
    assert (found.verdict, found.cause) == (verdict, cause)


@pytest.mark.requirement("DONE-05")
@pytest.mark.case("ART-02")
@pytest.mark.parametrize(
    ("last", "named"),
    [
        *(({"passed": value}, "passed") for value in WRONG_PASSED),
        *(({"status": value}, "status") for value in WRONG_STATUS),
        *(({"score": value}, "score") for value in WRONG_SCORES),
        *(({"summary": value}, "summary") for value in WRONG_SUMMARIES),
        ({"Passed": False}, "'Passed'"),
        ({"STATUS": "failed"}, "'STATUS'"),
        ({" score": 1}, "' score'"),
    ],
    ids=str,
)  # fmt: skip
def test_a_report_of_a_wrong_form_is_named_and_never_a_pass(last: dict[str, Any], named: str) -> None:
    found = report(0, last)
    assert (found.verdict, found.cause, found.score) == ("error", "bad-report", None)
    assert named in found.summary
    assert len(found.summary) < 250
    failed = report(1, last)
    assert (failed.verdict, failed.cause) == ("failed", "exit-nonzero")
    assert named in failed.summary


@pytest.mark.case("ART-01")
def test_a_last_line_that_cannot_be_read_is_an_error_unless_the_command_failed_anyway() -> None:
    found = report(0, fault="key 'passed' stands twice")
    assert (found.verdict, found.cause) == ("error", "bad-report")
    assert "key 'passed' stands twice" in found.summary
    assert report(1, fault="it is no JSON").verdict == "failed"


def test_a_score_and_a_summary_are_taken_from_failing_runs_too() -> None:
    found = report(1, {"score": 7, "summary": "7 of 9"})
    assert (found.score, found.summary) == (7.0, "7 of 9")
    assert isinstance(found.score, float)
    assert report(0, {"score": None}).score is None
    assert len(report(1, {"summary": "x" * 10_000}).summary) == 500


@pytest.mark.requirement("DONE-06")
@pytest.mark.parametrize(
    ("output", "verdict"),
    [
        ("= 13 passed in 0.10s =", "passed"),
        ("= 14 passed in 0.10s =", "passed"),
        ("= 12 passed in 0.10s =", "failed"),
        ("= 12 passed, 1 skipped in 0.10s =", "failed"),
        ("= 12 passed, 1 xfailed in 0.10s =", "failed"),
        ("= 12 passed, 1 deselected in 0.10s =", "failed"),
        ("= 12 passed, 1 failed in 0.10s =", "failed"),
        ("= no tests ran in 0.10s =", "failed"),
        ("999 passed\n= 1 passed in 0.10s =", "failed"),
        ("all fine", "failed"),
        ("", "failed"),
    ],
)
def test_as_many_tests_must_pass_as_ran_at_intake(output: str, verdict: str) -> None:
    found = report(0, output=output, runner="pytest", baseline_tests=13)
    assert found.verdict == verdict
    assert verdict == "passed" or found.cause == "fewer-tests"


@pytest.mark.requirement("DONE-06")
def test_tests_that_failed_at_intake_count_so_that_deleting_them_is_no_way() -> None:
    intake = report(1, output="= 3 failed, 10 passed in 0.10s =", runner="pytest")
    assert (intake.tests, intake.tests_passed) == (13, 10)
    gone = report(0, output="= 10 passed in 0.10s =", runner="pytest", baseline_tests=intake.tests)
    assert (gone.verdict, gone.cause) == ("failed", "fewer-tests")
    assert "10 tests passed; 13 ran at intake" in gone.summary


def test_without_a_baseline_or_a_known_runner_no_number_is_asked_for() -> None:
    assert report(0, output="= 1 passed in 0.1s =", runner="pytest").verdict == "passed"
    assert report(0, output="anything").verdict == "passed"
    assert report(0, output="anything").tests is None


# --- scores


@pytest.mark.requirement("GATE-15")
def test_a_score_is_better_only_strictly_and_only_in_its_direction() -> None:
    assert is_better(7.0, 8.0, "higher")
    assert not is_better(7.0, 7.0, "higher")
    assert not is_better(7.0, 6.0, "higher")
    assert is_better(7.0, 6.0, "lower")
    assert not is_better(7.0, 7.0, "lower")
    assert not is_better(None, 1.0, "higher")
    assert not is_better(1.0, None, "higher")


SCORES = st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)))


@given(SCORES, st.sampled_from(["higher", "lower"]))
def test_going_up_and_down_is_progress_only_where_it_beats_the_best(
    scores: list[float | None], direction: str
) -> None:
    best: float | None = None
    gains = []
    for score in scores:
        if is_better(best, score, direction):
            gains.append(score)
        best = better_of(best, score, direction)
    assert len(set(gains)) == len(gains)
    assert gains == sorted(gains, reverse=direction == "lower")  # type: ignore[type-var]
    known = [score for score in scores if score is not None]
    assert best == ((max if direction == "higher" else min)(known) if known else None)


def test_one_mission_is_measured_in_one_unit() -> None:
    by_tests = a_run(tests=13, tests_passed=10)
    by_score = a_run(score=0.8, tests=13, tests_passed=10)
    assert run_score(by_score, SCRIPT) == 0.8
    assert run_score(by_tests, SCRIPT) == 10.0
    assert run_score(by_tests, replace(SCRIPT, baseline_score=0.5)) is None
    assert run_score(by_tests, replace(SCRIPT, score_direction="lower")) is None
    assert run_score(a_run(), SCRIPT) is None


@pytest.mark.parametrize("verdict", ["error", "tampered"])
def test_a_run_that_could_not_tell_has_no_score(verdict: RunVerdict) -> None:
    assert run_score(a_run(verdict, score=99.0, tests_passed=99), SCRIPT) is None


def test_a_look_has_nothing_to_report_by_itself() -> None:
    assert WorkspaceSnapshot("h", "t", "p") == WorkspaceSnapshot("h", "t", "p", (), "", "", "", "")
