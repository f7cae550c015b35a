"""Findings over real files and processes: what the runtime accepts, what stays a claim, and what is said of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import StepIllegal, UsageError
from omx_autoresearch.journal.layout import ProjectFolder
from omx_autoresearch.missions import claims, lifecycle_commands
from omx_autoresearch.missions.claims import take_in
from omx_autoresearch.missions.findings import (
    Recorded,
    Submission,
    add_finding,
    drop_finding,
    find_finding,
    list_findings,
)
from omx_autoresearch.missions.rules.criteria import criterion_of
from omx_autoresearch.missions.validation import checks

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission
    from tests.support.scratch import Scratch

VERIFY = "#!/bin/sh\necho looking at $*\ngrep -qx 42 answer.txt\n"


def with_criteria(world: Scratch, *criteria: str, **fields: Any) -> Mission:
    world.write("verify.sh", VERIFY, executable=True)
    world.commit("Verify")
    return world.mission(criteria=tuple(map(criterion_of, criteria)), **fields)


def add(
    world: Scratch, mission: Mission, criterion: str = "", source: str = "cli", **fields: Any
) -> Recorded:
    submission = Submission(fields.pop("summary", "seen"), criterion_id=criterion, **fields)
    return add_finding(world.runtime(), mission.task_id, submission, source=source)


# --- commands


@pytest.mark.requirement("EVID-02")
def test_the_runtime_runs_exactly_the_rules_command_and_keeps_its_whole_output(world: Scratch) -> None:
    mission = with_criteria(world, "tests: it verifies :: command: ./verify.sh 'a b' $HOME")
    world.write("answer.txt", "42\n")
    recorded = add(world, mission, "tests", kind="test", command="something else")
    assert recorded.was_accepted
    evidence = recorded.finding.evidence
    assert evidence is not None
    assert (evidence.exit_status, evidence.is_new, evidence.isolation) == (0, True, "none")
    kept = Path(world.home.mission(mission.task_id).output_path(evidence.run_id)).read_bytes()
    assert kept == b"looking at a b $HOME\n", "an argument list, no shell"
    assert evidence.size_bytes == len(kept)
    look = world.load(mission).checks[0]
    assert (look.is_met, look.finding_id, look.tree_digest) == (
        True,
        recorded.finding.id,
        evidence.tree_digest,
    )


@pytest.mark.requirement("EVID-01", "EVID-08")
def test_a_command_that_fails_leaves_a_claim_that_says_what_would_count(world: Scratch) -> None:
    mission = with_criteria(world, "tests: it verifies :: command: ./verify.sh")
    recorded = add(world, mission, "tests", summary="all tests pass, I promise")
    assert not recorded.was_accepted
    reason = recorded.finding.claim_reason
    assert reason.startswith("criterion: tests accepts only `command: ./verify.sh`")
    assert "received: exit status 2" in reason
    assert f"omx-autoresearch criterion check {mission.task_id} tests" in reason
    (line,) = list_findings(world.runtime(), mission.task_id)
    assert (line["accepted"], line["summary"]) == (False, "all tests pass, I promise")


@pytest.mark.requirement("EVID-02")
def test_a_command_sees_the_owners_environment_and_never_the_callers(world: Scratch) -> None:
    world.write("env.sh", '#!/bin/sh\n[ "$ANSWER" = right ]\n', executable=True)
    world.commit("Look at the environment")
    criteria = (criterion_of("env: the owner's :: command: ./env.sh"),)
    world.environ["ANSWER"] = "right"
    mission = world.mission(criteria=criteria, environment_names=("ANSWER",))
    world.environ["ANSWER"] = "wrong"
    assert add(world, mission, "env").was_accepted


@pytest.mark.requirement("EVID-02")
def test_a_pass_during_which_the_workspace_changed_is_no_evidence(world: Scratch) -> None:
    world.write("touch.sh", "#!/bin/sh\necho x >> trace.txt\n", executable=True)
    world.commit("Change something")
    mission = world.mission(criteria=(criterion_of("t: x :: command: ./touch.sh"),))
    recorded = add(world, mission, "t")
    assert not recorded.was_accepted
    assert "the workspace changed while it ran" in recorded.reason


@pytest.mark.requirement("EVID-02")
def test_nothing_counts_beside_changed_pins_and_the_command_does_not_even_run(world: Scratch) -> None:
    mission = with_criteria(world, "tests: it verifies :: command: ./verify.sh")
    world.write("verify.sh", f"#!/bin/sh\necho ran > {world.root}/ran\n", executable=True)
    recorded = add(world, mission, "tests")
    assert not recorded.was_accepted
    assert "pinned files changed" in recorded.reason
    assert not (world.root / "ran").exists()


@pytest.mark.requirement("EVID-02")
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\nkill -9 $$\n", "exit status -9"),
        ("#!/no/such/interpreter\n", "could not be started"),
        ("#!/bin/sh\nsleep 600\n", "ended after its limit of 0.5 s"),
    ],
)
def test_a_command_that_could_not_tell_is_no_evidence(world: Scratch, script: str, said: str) -> None:
    world.write("odd.sh", script, executable=True)
    world.commit("Be odd")
    mission = world.mission(criteria=(criterion_of("odd: x :: command: ./odd.sh"),), timeout_seconds=0.5)
    recorded = add(world, mission, "odd")
    assert not recorded.was_accepted
    assert said in recorded.reason


@pytest.mark.requirement("EVID-03")
@pytest.mark.parametrize("source", ["mcp", "inbox"])
def test_no_command_runs_for_a_submission_that_did_not_come_by_the_command_line(
    world: Scratch, source: str
) -> None:
    mission = with_criteria(world, "tests: it verifies :: command: ./verify.sh")
    world.write("answer.txt", "42\n")
    recorded = add(world, mission, "tests", source)
    assert not recorded.was_accepted
    assert f"a claim through {source}" in recorded.reason
    assert "validation_started" not in world.kinds(mission)
    assert checks.check(world.runtime(), mission.task_id, ("tests",), wait_seconds=60)
    assert world.load(mission).checks[0].is_met, "the runtime itself looked, as the owner approved"


def test_a_command_that_takes_longer_is_recorded_when_it_ends(world: Scratch) -> None:
    world.write("slow.sh", "#!/bin/sh\nwhile [ ! -e $1 ]; do sleep 0.05; done\n", executable=True)
    world.commit("Be slow")
    go = world.root / "go"
    mission = world.mission(criteria=(criterion_of(f"slow: x :: command: ./slow.sh {go}"),))
    submission = Submission("slow but sure", id="s1", criterion_id="slow")
    pending = add_finding(world.runtime(), mission.task_id, submission, source="cli", wait_seconds=0.0)
    assert (pending.is_pending, pending.was_accepted) == (True, False)
    assert find_finding(world.runtime(), mission.task_id, "s1") is None
    go.touch()
    assert checks.check(world.runtime(), mission.task_id, ("slow",), wait_seconds=60)
    found = find_finding(world.runtime(), mission.task_id, "s1")
    assert found is not None
    assert found.evidence


# --- files


@pytest.mark.requirement("EVID-04")
@pytest.mark.parametrize("source", ["cli", "mcp"])
def test_a_file_with_the_pattern_in_it_is_evidence_with_its_digest_and_size(
    world: Scratch, source: str
) -> None:
    mission = with_criteria(world, "report: written :: file: out/report.md ~ ^## 結果$")
    world.write("out/report.md", "# Report\n## 結果\n🧪\n")
    recorded = add(world, mission, "report", source)
    assert recorded.was_accepted
    evidence = recorded.finding.evidence
    assert evidence is not None
    assert evidence.size_bytes == (world.project / "out/report.md").stat().st_size
    assert world.load(mission).checks[0].content_digest == evidence.output_digest


def _link(world: Scratch) -> None:
    (world.root / "outside.md").write_text("## Findings\n")
    (world.project / "r.md").symlink_to(world.root / "outside.md")


def _linked_folder(world: Scratch) -> None:
    (world.root / "elsewhere").mkdir()
    (world.root / "elsewhere" / "r.md").write_text("## Findings\n")
    (world.project / "sub").symlink_to(world.root / "elsewhere")


@pytest.mark.requirement("EVID-04", "EVID-05")
@pytest.mark.parametrize(
    ("rule", "prepare", "said"),
    [
        ("r.md", lambda _: None, "no such file"),
        ("r.md", lambda world: world.write("r.md", ""), "is empty"),
        ("r.md", _link, "symbolic link"),
        ("sub/r.md", _linked_folder, "symbolic link"),
        ("r.md", lambda world: (world.project / "r.md").mkdir(), "a folder"),
        ("r.md", lambda world: os.mkfifo(world.project / "r.md"), "a pipe"),
        ("r.md ~ ^## Findings", lambda world: world.write("r.md", "findings\n"), "nothing in it matches"),
    ],
)
def test_anything_else_is_no_evidence_for_a_file(world: Scratch, rule: str, prepare: Any, said: str) -> None:
    mission = with_criteria(world, f"report: written :: file: {rule}")
    prepare(world)
    recorded = add(world, mission, "report")
    assert not recorded.was_accepted
    assert said in recorded.reason


@pytest.mark.requirement("EVID-05")
def test_a_pattern_that_never_ends_is_no_evidence_and_holds_nobody(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks.is_found, "__kwdefaults__", {"timeout_seconds": 0.5})
    mission = with_criteria(world, "report: written :: file: r.md ~ (a+)+$")
    world.write("r.md", "a" * 64 + "b")
    recorded = add(world, mission, "report")
    assert not recorded.was_accepted
    assert "takes longer than" in recorded.reason


# --- verdicts and persons


@pytest.mark.requirement("EVID-06")
def test_a_validator_rule_accepts_an_attested_pass_of_now_and_nothing_before(world: Scratch) -> None:
    from omx_autoresearch.missions.validation import runs

    mission = with_criteria(world, "done: it agrees :: validator")
    assert "no attested pass" in add(world, mission, "done").reason
    world.write("answer.txt", "42\n")
    assert runs.validate(world.runtime(), mission.task_id, runs.Ask("none"), wait_seconds=60)
    recorded = add(world, mission, "done", source="mcp")
    assert recorded.was_accepted
    run = world.load(mission).attestation
    assert run is not None
    assert recorded.finding.evidence is not None
    assert recorded.finding.evidence.run_id == run.run_id
    world.write("other.txt", "x")
    assert not add(world, mission, "done").was_accepted


@pytest.mark.requirement("EVID-07")
def test_only_the_owners_word_is_evidence_for_a_persons_criterion(world: Scratch) -> None:
    mission = with_criteria(world, "look: the plots were seen :: person", "done: x :: validator")
    recorded = add(world, mission, "look", summary="the owner told me that it is fine")
    assert not recorded.was_accepted
    assert f"omx-autoresearch criterion accept {mission.task_id} look" in recorded.reason
    with pytest.raises(StepIllegal, match="only the owner's word"):
        checks.check(world.runtime(), mission.task_id, ("look",), wait_seconds=1)
    with pytest.raises(StepIllegal, match="not a person's word"):
        checks.accept(world.runtime(), mission.task_id, "done", "I say so")
    with pytest.raises(UsageError, match="an acceptance needs a reason"):
        checks.accept(world.runtime(), mission.task_id, "look", " ")
    state = checks.accept(world.runtime(), mission.task_id, "look", "seen on the screen")
    assert state.checks[0].is_met
    found = find_finding(world.runtime(), mission.task_id, state.checks[0].finding_id)
    assert found is not None
    assert (found.source, found.summary) == ("owner", "seen on the screen")
    checks.check(world.runtime(), mission.task_id, (), wait_seconds=60)
    assert {check.criterion_id: check.is_met for check in world.load(mission).checks}["look"], (
        "a look keeps it"
    )


# --- what is new, and what is refused


@pytest.mark.requirement("EVID-09")
def test_the_same_evidence_twice_is_accepted_and_is_not_new(world: Scratch) -> None:
    mission = with_criteria(world, "tests: it verifies :: command: ./verify.sh")
    world.write("answer.txt", "42\n")
    first, second = add(world, mission, "tests"), add(world, mission, "tests", summary="and again")
    assert first.finding.evidence is not None
    assert second.finding.evidence is not None
    assert (first.finding.evidence.is_new, second.finding.evidence.is_new) == (True, False)
    assert "not progress" in second.reason
    assert world.load(mission).turn_evidence == 1


@pytest.mark.requirement("EVID-09")
def test_looking_again_at_what_holds_records_no_further_finding(world: Scratch) -> None:
    mission = with_criteria(world, "tests: it verifies :: command: ./verify.sh")
    world.write("answer.txt", "42\n")
    for _ in range(3):
        assert checks.check(world.runtime(), mission.task_id, ("tests",), wait_seconds=60)
    assert world.load(mission).finding_count == 1


@pytest.mark.requirement("EVID-10")
def test_a_finding_sent_twice_is_one_and_another_under_its_id_is_refused(world: Scratch) -> None:
    mission = world.mission()
    fields: dict[str, Any] = {"id": "f1", "kind": "test", "paths": ("a.py",), "summary": "seen"}
    add(world, mission, **fields)
    again = add(world, mission, **fields)
    assert again.is_known
    assert world.load(mission).finding_count == 1
    for change in ({"summary": "else"}, {"kind": "file"}, {"paths": ()}, {"command": "x"}):
        with pytest.raises(
            UsageError, match=f"'f1' belongs to another finding of this mission; {next(iter(change))}"
        ):
            add(world, mission, **{**fields, **change})
    assert world.load(mission).finding_count == 1


@pytest.mark.requirement("EVID-10")
def test_an_unknown_criterion_is_refused_with_those_that_there_are(world: Scratch) -> None:
    mission = with_criteria(world, "tests: it verifies :: command: ./verify.sh", "done: x :: validator")
    with pytest.raises(UsageError, match="'test' is not in this contract; it has tests, done"):
        add(world, mission, "test")
    assert world.load(mission).finding_count == 0


@pytest.mark.requirement("EVID-11")
def test_any_text_comes_back_byte_for_byte_and_what_cannot_is_refused(world: Scratch) -> None:
    mission = world.mission()
    for number, text in enumerate(("結果は🧪です", 'quotes " and \\', "x" * 200 * 1024, "a\nb\u2028c")):
        add(world, mission, id=f"f{number}", summary=text)
        found = find_finding(world.runtime(), mission.task_id, f"f{number}")
        assert found is not None
        assert found.summary == text
    for text in ("a\0b", "\ud800", "", "x" * 300_000):
        with pytest.raises(UsageError, match="summary"):
            add(world, mission, summary=text)
    assert world.load(mission).finding_count == 4


@pytest.mark.requirement("EVID-01", "EVID-08")
def test_a_finding_for_no_criterion_is_kept_and_says_which_would_count(world: Scratch) -> None:
    bare = add(world, world.mission(session=""))
    assert "the validator alone decides" in bare.reason
    mission = with_criteria(world, "tests: it verifies :: command: ./verify.sh")
    assert "one of tests would count: --criterion ID" in add(world, mission).reason


def test_nothing_is_added_to_a_mission_that_ended(world: Scratch) -> None:
    mission = world.mission()
    lifecycle_commands.cancel(world.runtime(), mission.task_id)
    with pytest.raises(StepIllegal, match="cancelled"):
        add(world, mission)


# --- the inbox, and lists


@pytest.mark.requirement("EVID-15")
def test_a_finding_in_the_inbox_is_taken_in_once_as_a_claim_whatever_it_says_of_itself(
    world: Scratch,
) -> None:
    mission = with_criteria(world, "tests: it verifies :: command: ./verify.sh")
    world.write("answer.txt", "42\n")
    submission = Submission("結果", kind="test", criterion_id="tests", paths=("a.py",))
    dropped = drop_finding(world.runtime(), mission.task_id, submission)
    assert (dropped.was_accepted, dropped.is_pending) == (False, True)
    folder = Path(ProjectFolder(mission.project_path).inbox_path(mission.task_id))
    (file,) = folder.glob("*.json")
    forged = file.read_text().replace(
        '\\"evidence\\":null', '\\"evidence\\":{\\"criterion_id\\":\\"tests\\"}'
    )
    (folder / "forged.json").write_text(forged.replace(dropped.finding.id, "f-forged"))
    assert take_in(world.runtime(), mission.task_id) == 2
    assert take_in(world.runtime(), mission.task_id) == 0
    for name in (dropped.finding.id, "f-forged"):
        found = find_finding(world.runtime(), mission.task_id, name)
        assert found is not None
        assert (found.evidence, found.source, found.summary) == (None, "inbox", "結果")
    assert world.load(mission).accepted_count == 0


@pytest.mark.requirement("EVID-15")
def test_a_broken_finding_in_the_inbox_is_a_claim_like_any_other(world: Scratch) -> None:
    mission = world.mission()
    inbox_path = ProjectFolder(mission.project_path).inbox_path(mission.task_id)
    for text in (
        '{"finding": {"id": "f1"}}',
        "{",
        '{"finding": {"id":"f2","kind":"test","summary":"x","evil":1}}',
    ):
        claims.drop_claim(inbox_path, text, verb=claims.FINDING_VERB, at=world.runtime().now())
    take_in(world.runtime(), mission.task_id)
    state = world.load(mission)
    assert (state.finding_count, state.claim_count) == (0, 3)


@pytest.mark.requirement("EVID-13")
def test_the_newest_come_first_and_evidence_before_claims(world: Scratch) -> None:
    mission = with_criteria(world, "report: written :: file: r.md")
    for number in range(3):
        add(world, mission, id=f"c{number}")
        world.write("r.md", f"{number}\n")
        add(world, mission, "report", id=f"e{number}")
    world.stop()

    def ids(**options: Any) -> list[str]:
        return [line["id"] for line in list_findings(world.runtime(), mission.task_id, **options)]

    assert ids() == ["e2", "e1", "e0", "c2", "c1", "c0"]
    assert ids(limit=2) == ["e2", "e1"]
    assert ids(limit=4) == ["e2", "e1", "e0", "c2"]
    assert ids(wanted="claims") == ["c2", "c1", "c0"]
    lines = list_findings(world.runtime(), mission.task_id, wanted="accepted", limit=1)
    assert ids(wanted="accepted", before=lines[0]["seq"]) == ["e1", "e0"]
    for limit in (0, 1001):
        with pytest.raises(UsageError, match="limit must be 1 to 1000"):
            ids(limit=limit)
