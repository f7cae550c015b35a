"""Readiness at the stop: a mission is complete when every line of it holds on the workspace as it is at that moment."""

from __future__ import annotations

import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import StepIllegal
from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.amending import amend_mission
from omx_autoresearch.missions.findings import Submission, add_finding
from omx_autoresearch.missions.launch_tree import UNKNOWN
from omx_autoresearch.missions.records.work import CriteriaChecked
from omx_autoresearch.missions.rules.criteria import CriterionCheck, criterion_of
from omx_autoresearch.missions.validation import checks
from omx_autoresearch.missions.validation.reviews import record_review
from omx_autoresearch.missions.verification import state_fault, unresolved_ids
from omx_autoresearch.missions.views import readiness

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission
    from tests.support.scratch import Scratch

PATIENT = {"idle_refusals": 50, "stale_pivot": 50, "stale_fresh": 50, "stale_stalled": 50}
COMMAND = "tests: it verifies :: command: ./verify.sh"
FILE = "report: written :: file: report.md ~ ^## Findings"


def with_criteria(world: Scratch, *criteria: str, verify: str = "exit 0", **fields: Any) -> Mission:
    world.write("verify.sh", f"#!/bin/sh\n{verify}\n", executable=True)
    world.commit("Verify")
    fields.setdefault("limits", PATIENT)
    return world.mission(criteria=tuple(map(criterion_of, criteria)), **fields)


def passed(world: Scratch) -> None:
    world.write("answer.txt", "42\n")


# --- criteria at the stop


@pytest.mark.requirement("READY-01")
def test_a_passing_validator_is_refused_as_long_as_a_required_criterion_is_open(world: Scratch) -> None:
    mission = with_criteria(world, FILE, "optional more: x :: file: more.md")
    passed(world)
    refusal = world.stop().refusal
    assert "(criterion:report)" in refusal
    assert "file: report.md ~ ^## Findings" in refusal
    assert "received: no such file" in refusal
    assert "more.md" not in refusal, "an optional one may stay open"
    (notice,) = world.records(mission, "readiness_blocked")
    assert notice["data"]["missing"] == ["criterion:report"]
    world.stop()
    assert len(world.records(mission, "readiness_blocked")) == 1, "told once while the reason stays"
    world.write("report.md", "## Findings\n")
    assert not world.stop().refusal
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("READY-01", "READY-02")
def test_the_completing_stop_looks_at_every_criterion_itself_and_records_what_it_saw(world: Scratch) -> None:
    mission = with_criteria(world, COMMAND, FILE, "done: it agrees :: validator")
    passed(world)
    world.write("report.md", "## Findings\n")
    assert not world.stop().refusal
    state = world.load(mission)
    assert state.phase == "complete"
    assert set(state.evidence_ids) == {"tests", "report", "done"}
    assert unresolved_ids(world.runtime(), state) == ()
    folder = world.project / ".omx/autoresearch" / mission.task_id / "state"
    spec = json.loads((folder / "task_spec.json").read_text())
    assert [item["evidence_ids"] for item in spec["success_criteria"]] == [
        list(state.evidence_ids[name]) for name in ("tests", "report", "done")
    ]
    lines = [json.loads(line) for line in (folder / "findings.jsonl").read_text().splitlines()]
    assert {line["id"] for line in lines if line["accepted"]} == {
        name for ids in state.evidence_ids.values() for name in ids
    }
    assert json.loads((folder / "progress.json").read_text())["total_findings"] == 3


@pytest.mark.requirement("READY-02")
def test_a_command_that_passed_once_and_fails_now_completes_nothing(world: Scratch) -> None:
    mission = with_criteria(world, COMMAND, verify="grep -q good state.txt")
    world.write("state.txt", "good\n")
    submission = Submission("all green", criterion_id="tests")
    assert add_finding(world.runtime(), mission.task_id, submission, source="cli").was_accepted
    world.write("state.txt", "bad\n")
    passed(world)
    refusal = world.stop().refusal
    assert "(criterion:tests)" in refusal
    assert "received: exit status 1" in refusal
    assert world.load(mission).phase == "running"
    world.write("state.txt", "good\n")
    assert not world.stop().refusal
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("READY-02")
@pytest.mark.parametrize("change", ["edited", "deleted", "swapped for a link", "emptied"])
def test_a_file_that_is_another_one_at_the_stop_completes_nothing(world: Scratch, change: str) -> None:
    world.write(".gitignore", "report.md\n")
    mission = with_criteria(world, FILE)
    report = world.write("report.md", "## Findings\n")
    submission = Submission("written", criterion_id="report")
    assert add_finding(world.runtime(), mission.task_id, submission, source="mcp").was_accepted
    passed(world)
    if change == "edited":
        report.write_text("nothing\n")
    elif change == "emptied":
        report.write_text("")
    else:
        report.unlink()
    if change == "swapped for a link":
        (world.root / "other.md").write_text("## Findings\n")
        report.symlink_to(world.root / "other.md")
    assert "(criterion:report)" in world.stop().refusal, "ignored by git, and looked at all the same"
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("READY-02")
def test_an_open_criterion_is_run_at_a_stop_only_after_the_validator_passed(world: Scratch) -> None:
    ran = world.root / "ran"
    mission = with_criteria(world, COMMAND, verify=f"echo x >> {ran}; exit 1")
    world.stop()
    assert not ran.exists()
    passed(world)
    world.stop()
    world.stop()
    assert ran.read_text() == "x\nx\n", "a quick miss is looked at anew"
    assert len(world.records(mission, "validation_finished")) == 2, "the validator's pass stands"


@pytest.mark.requirement("READY-02")
def test_a_long_miss_is_reused_while_nothing_moves_and_looked_at_before_a_block(world: Scratch) -> None:
    ran = world.root / "ran"
    mission = with_criteria(world, COMMAND, verify=f"echo x >> {ran}; sleep 1.1; exit 1", limits={})
    passed(world)
    world.stop()
    world.stop()
    assert ran.read_text() == "x\n"
    world.stop()
    assert world.load(mission).phase == "running"
    world.stop()
    assert world.load(mission).phase == "blocked"
    assert ran.read_text() == "x\nx\n", "the last word before a block is a look of now"


@pytest.mark.requirement("EVID-09", "READY-01")
def test_the_first_evidence_of_a_criterion_is_strong_progress_and_more_of_it_is_not(world: Scratch) -> None:
    mission = with_criteria(world, FILE)
    for number in range(3):
        world.write("report.md", f"## Findings\n{number}\n")
        submission = Submission("more", criterion_id="report")
        assert add_finding(world.runtime(), mission.task_id, submission, source="cli").was_accepted
        world.stop()
    progress = [record["data"]["progress"] for record in world.records(mission, "stop_refused")]
    assert progress == ["strong", "weak", "weak"]


@pytest.mark.requirement("EVID-16")
def test_the_iteration_log_tells_what_each_iteration_brought(world: Scratch) -> None:
    mission = with_criteria(world, FILE)
    world.write("report.md", "## Findings\n")
    add_finding(
        world.runtime(), mission.task_id, Submission("x", id="f1", criterion_id="report"), source="cli"
    )
    world.tool()
    world.tool()
    world.stop()
    passed(world)
    world.stop()
    path = world.project / ".omx/autoresearch" / mission.task_id / "state/iteration_log.jsonl"
    first, last = (json.loads(line) for line in path.read_text().splitlines())
    assert (first["iteration"], first["tools_used"], first["evidence_ids"]) == (1, 2, ["f1"])
    assert (first["answer"], first["progress"], first["verdict"], first["stale_count"]) == (
        "refuse",
        "strong",
        "failed",
        0,
    )
    assert first["began_at"] < first["at"] <= last["at"]
    assert (last["iteration"], last["answer"], last["verdict"]) == (2, "allow", "passed")
    assert last["began_at"] == first["at"]
    assert last["run_id"] == world.load(mission).completed_run_id


# --- what only the owner can bring


@pytest.mark.requirement("READY-05", "EVID-07")
def test_a_mission_that_waits_only_for_its_owners_word_is_blocked_at_once(world: Scratch) -> None:
    mission = with_criteria(world, "look: the plots were seen :: person")
    first = world.stop().refusal
    assert "the owner types: omx-autoresearch criterion accept" not in first.split("Missing:")[0]
    assert "(validation)" in first, "the agent has work of its own"
    passed(world)
    reply = world.stop()
    assert not reply.refusal
    state = world.load(mission)
    assert state.phase == "blocked"
    assert state.blocker is not None
    assert state.blocker.command == (
        f'omx-autoresearch criterion accept {mission.task_id} look --reason "..." '
        f"&& omx-autoresearch unblock {mission.task_id}"
    )
    checks.accept(world.runtime(), mission.task_id, "look", "seen")
    lifecycle_commands.unblock(world.runtime(), mission.task_id)
    assert not world.stop().refusal
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("READY-10")
def test_an_amended_contract_takes_no_word_and_no_look_of_the_old_one(world: Scratch) -> None:
    mission = with_criteria(world, "look: seen :: person", COMMAND)
    checks.accept(world.runtime(), mission.task_id, "look", "seen")
    passed(world)
    amend_mission(world.runtime(), mission.task_id, lambda draft: replace(draft, timeout_seconds=60.0))
    assert [item.code for item in readiness(world.runtime(), mission.task_id).missing] == [
        "validation",
        "criterion:look",
        "criterion:tests",
    ]


# --- verification of changed code


def reviewed(world: Scratch, *criteria: str, **fields: Any) -> Mission:
    mission = with_criteria(
        world,
        *criteria,
        validator_prompt="Is it true?",
        output_artifact_path="report.md",
        reviewed_by=("person",),
        **fields,
    )
    world.write("report.md", "It is.\n")
    return mission


def approve(world: Scratch, mission: Mission) -> None:
    record_review(world.runtime(), mission.task_id, "person", is_approved=True)


@pytest.mark.requirement("READY-04")
def test_an_approved_report_beside_changed_code_waits_for_a_verification_or_an_excuse(world: Scratch) -> None:
    mission = reviewed(world)
    world.write("src/tool.py", "print(1)\n")
    world.commit("Change code")
    approve(world, mission)
    assert not world.stop().refusal
    state = world.load(mission)
    assert state.blocker is not None
    assert (state.phase, state.blocker.reason_code) == ("blocked", "verification")
    assert "src/tool.py" in state.blocker.what
    lifecycle_commands.unblock(world.runtime(), mission.task_id)
    checks.excuse(world.runtime(), mission.task_id, "no toolchain on this machine")
    assert not world.stop().refusal
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("READY-04")
def test_a_criterions_command_verifies_changed_code(world: Scratch) -> None:
    mission = reviewed(world, COMMAND)
    world.write("src/tool.py", "print(1)\n")
    approve(world, mission)
    assert not world.stop().refusal
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("READY-04")
@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        lambda world: world.write("notes.md", "prose\n"),
        lambda world: world.write("plot.png", b"\x89PNG"),
        lambda world: world.commit("Commit what stood there at launch"),
    ],
)
def test_prose_and_what_was_there_at_launch_need_no_verification(world: Scratch, change: Any) -> None:
    world.write("draft.py", "dirty at launch\n")
    mission = reviewed(world)
    change(world)
    approve(world, mission)
    assert not world.stop().refusal
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("READY-04")
def test_a_lost_list_of_the_launch_counts_as_changed_code(world: Scratch) -> None:
    mission = reviewed(world)
    Path(world.home.mission(mission.task_id).root_path, "launch-tree").write_bytes(b"100644 0\tforged\0")
    approve(world, mission)
    report = readiness(world.runtime(), mission.task_id)
    assert [item.code for item in report.missing] == ["verification"]
    assert UNKNOWN in report.missing[0].received


@pytest.mark.parametrize("phase", ["draft", "cancelled"])
def test_only_a_live_mission_is_excused(world: Scratch, phase: str) -> None:
    mission = world.draft()
    if phase == "cancelled":
        lifecycle_commands.cancel(world.runtime(), mission.task_id)
    with pytest.raises(StepIllegal, match=phase):
        checks.excuse(world.runtime(), mission.task_id, "why")


# --- state files, evidence ids


@pytest.mark.requirement("READY-07")
@pytest.mark.parametrize("name", ["task_spec.json", "progress.json"])
@pytest.mark.parametrize("change", ["deleted", "edited", "folder"])
def test_state_files_that_are_not_the_journals_are_told_and_restored_by_the_next_stop(
    world: Scratch, name: str, change: str
) -> None:
    mission = with_criteria(world)
    path = world.project / ".omx/autoresearch" / mission.task_id / "state" / name
    if change == "edited":
        path.write_text(path.read_text().replace('"running"', '"complete"').replace(mission.goal, "less"))
    else:
        path.unlink()
    if change == "folder":
        path.mkdir()
    report = readiness(world.runtime(), mission.task_id)
    (item,) = (item for item in report.missing if item.code == "state-files")
    assert name in item.received
    passed(world)
    assert not world.stop().refusal
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("READY-07")
def test_a_project_that_cannot_be_written_holds_nobody(world: Scratch) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is read-only for this user")
    mission = with_criteria(world)
    passed(world)
    folder = world.project / ".omx/autoresearch" / mission.task_id / "state"
    shutil.rmtree(folder)
    folder.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert not world.stop().refusal
        assert world.load(mission).phase == "complete"
    finally:
        folder.parent.chmod(0o755)


@pytest.mark.requirement("READY-07")
def test_nothing_is_asked_for_where_nobody_can_write(world: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    mission = with_criteria(world)
    (world.project / ".omx/autoresearch" / mission.task_id / "state/progress.json").unlink()
    assert "progress.json" in state_fault(world.runtime(), mission)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert state_fault(world.runtime(), mission) == ""


@pytest.mark.requirement("READY-03")
def test_a_check_that_rests_on_no_recorded_finding_completes_nothing(world: Scratch) -> None:
    mission = with_criteria(world, "look: seen :: person")
    passed(world)
    forged = CriterionCheck("look", True, finding_id="f-nowhere", contract_digest=mission.contract_digest)
    with world.store.transaction(mission.task_id, world.runtime().now()) as transaction:
        transaction.record(CriteriaChecked((forged,)))
    assert [item.code for item in readiness(world.runtime(), mission.task_id).missing][-1] == "evidence-ids"
    reply = world.stop()
    assert "f-nowhere" in reply.person_message
    assert "could not decide" in reply.person_message
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("READY-08")
def test_a_draft_has_no_readiness_and_a_blocked_mission_is_not_ready(world: Scratch) -> None:
    draft = world.draft()
    with pytest.raises(StepIllegal, match="draft"):
        readiness(world.runtime(), draft.task_id)
    mission = with_criteria(world)
    lifecycle_commands.block(world.runtime(), mission.task_id, reason="no device", needs="a device")
    report = readiness(world.runtime(), mission.task_id)
    assert "blocked" in [item.code for item in report.missing]
