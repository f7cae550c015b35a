"""The story of the validator-gated loop, told by the hook process that an agent CLI runs, over real files."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.missions import launch
from tests.support.scratch import OTHER, SESSION, Scratch

if TYPE_CHECKING:
    from pathlib import Path

NEEDED = "a passing run of the validator `./check.sh`, by the runtime, on the workspace as it is now"


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


@pytest.mark.requirement(
    "GATE-06", "GATE-12", "GATE-19", "DONE-02", "DONE-09", "HOOK-01", "HOOK-02", "SESS-02"
)
@pytest.mark.case("HIO-01", "HIO-02", "SES-04")
def test_an_agent_is_held_until_evidence_exists_and_then_let_go_for_good(world: Scratch) -> None:
    draft = world.draft(goal="make the parser pass the corpus", slug="parser")
    assert world.hook(world.payload()).is_silent, "a draft holds nobody"

    bound = world.hook(world.payload("UserPromptSubmit", prompt=f"$autoresearch {draft.task_id}"))
    assert draft.task_id in bound.json["hookSpecificOutput"]["additionalContext"]
    assert world.load(draft).phase == "running"

    first = world.hook(world.payload(last_assistant_message="I am done."))
    assert set(first.json) == {"decision", "reason", "systemMessage"}
    assert first.json["decision"] == "block"
    for told in (
        draft.task_id,
        "make the parser pass the corpus",
        "(validation)",
        NEEDED,
        "exit status 1",
        "answer.txt does not say 42",
        f"omx-autoresearch validate {draft.task_id}",
        "refusal 1 of 200",
        ".omx/specs/autoresearch-parser/completion.json",
    ):
        assert told in first.reason
    assert "$autoresearch pause" in first.json["systemMessage"]

    world.hook(world.payload("PostToolUse", tool_name="Write", tool_input={}, tool_response={}))
    world.write("answer.txt", "41\n")
    second = world.hook(world.payload(stop_hook_active=True, last_assistant_message="Now I am done."))
    assert "refusal 2 of 200" in second.reason
    assert world.hook(world.payload(session=OTHER)).is_silent, "nobody else is held"

    world.hook(world.payload("PostToolUse", tool_name="Write", tool_input={}, tool_response={}))
    world.write("answer.txt", "42\n")
    third = world.hook(world.payload(stop_hook_active=True, last_assistant_message="Now it is right."))
    assert set(third.json) == {"systemMessage"}, "let go, and the person is told"
    assert f"mission {draft.task_id} is complete" in third.json["systemMessage"]

    mission = world.load(draft)
    run = mission.attestation
    assert (mission.phase, run and run.verdict, run and run.isolation) == ("complete", "passed", "none")
    artifact = world.completion(mission)
    assert run is not None
    assert (artifact["status"], artifact["passed"], artifact["task_id"]) == ("passed", True, draft.task_id)
    assert artifact["attestation"] == json.loads(json.dumps(artifact["attestation"]))
    assert artifact["attestation"]["run_id"] == run.run_id == mission.completed_run_id
    assert artifact["attestation"]["head"] == world.git("rev-parse", "HEAD")
    assert len(artifact["attestation"]["tree_digest"]) == 64
    assert artifact["attestation"]["exit_status"] == 0
    assert artifact["attestation"]["contract_digest"] == mission.contract_digest

    before = world.kinds(mission)
    for _ in range(2):
        follow_up = world.payload(last_assistant_message="If you want, I can also write X.")
        assert world.hook(follow_up).is_silent
    assert world.kinds(mission) == before
    assert before.count("mission_completed") == 1
    assert not (world.home_path / "active").exists(), "nothing is active, so no interpreter starts"


@pytest.mark.requirement("DONE-11", "DONE-12")
def test_an_architect_lets_the_agent_go_once_the_report_is_approved(world: Scratch) -> None:
    world.write(
        "review.sh",
        "#!/bin/sh\n"
        "prompt=$(cat)\n"
        'nonce=$(printf \'%s\' "$prompt" | sed -n \'s/.*"nonce": "\\([0-9a-f]*\\)".*/\\1/p\')\n'
        "verdict=rejected; grep -q conclusion report.md && verdict=approved\n"
        'printf \'{"nonce": "%s", "verdict": "%s", "summary": "read it"}\\n\' "$nonce" "$verdict"\n',
        executable=True,
    )
    world.commit("Add the reviewer")
    mission = world.mission(
        validator_prompt="Is there a conclusion?",
        output_artifact_path="report.md",
        reviewer_command="./review.sh",
    )

    nothing = world.hook(world.payload(last_assistant_message="1"))
    assert "a non-empty output artifact at report.md" in nothing.reason
    assert "received: no such file" in nothing.reason
    world.write("report.md", "an introduction\n")
    rejected = world.hook(world.payload(last_assistant_message="2"))
    assert "an approving review of report.md as it is now" in rejected.reason
    assert "failed (rejected): read it" in rejected.reason
    world.write("report.md", "an introduction\na conclusion\n")
    assert "is complete" in world.hook(world.payload(last_assistant_message="3")).json["systemMessage"]

    artifact = world.completion(world.load(mission))
    assert artifact["validator_prompt"] == "Is there a conclusion?"
    assert artifact["architect_review"] == {"verdict": "approved", "rejections": 1}
    assert artifact["output_artifact_path"] == "report.md"
    assert len(artifact["attestation"]["output_artifact_digest"]) == 64


@pytest.mark.requirement("GATE-11", "GATE-14", "GATE-20")
@pytest.mark.case("LOOP-01")
def test_thirty_stops_without_progress_end_in_a_loud_block_and_never_in_complete(world: Scratch) -> None:
    mission = world.mission()
    payload = world.payload(stop_hook_active=True, last_assistant_message="I am done.")
    answers = [world.hook(payload) for _ in range(30)]

    refused = [answer for answer in answers if answer.reason]
    assert len(refused) == 3
    assert answers[:3] == refused
    released = answers[3]
    assert f"mission {mission.task_id} is BLOCKED, not complete (stalled)" in released.json["systemMessage"]
    assert f"omx-autoresearch unblock {mission.task_id}" in released.json["systemMessage"]
    assert all(answer.is_silent for answer in answers[4:])
    after = world.load(mission)
    assert (after.phase, after.blocker and after.blocker.reason_code) == ("blocked", "stalled")
    notice = (world.home_path / "missions" / mission.task_id / "NOTICE").read_text()
    assert "BLOCKED (stalled)" in notice
    assert "mission_completed" not in world.kinds(mission)
    assert not (world.project / mission.specs_path / "completion.json").exists()


@pytest.mark.requirement("STATE-01")
def test_a_cleaned_workspace_loses_no_mission(world: Scratch) -> None:
    mission = world.mission()
    world.hook(world.payload(last_assistant_message="1"))
    subprocess.run(["git", "clean", "-fdxq"], cwd=world.project, check=True)
    assert not (world.project / ".omx").exists()

    assert "refusal 2 of 200" in world.hook(world.payload(last_assistant_message="2")).reason
    assert (world.project / ".omx" / "autoresearch" / mission.task_id / "state" / "progress.json").exists()
    world.write("answer.txt", "42\n")
    assert "is complete" in world.hook(world.payload(last_assistant_message="3")).json["systemMessage"]
    assert world.completion(mission)["passed"] is True


@pytest.mark.requirement("LIFE-03")
def test_what_passes_already_is_not_started(world: Scratch) -> None:
    world.write("answer.txt", "42\n")
    draft = world.draft()
    answer = world.hook(world.payload("UserPromptSubmit", prompt=f"$autoresearch {draft.task_id}"))
    assert "the validator already passes" in answer.json["systemMessage"]
    assert world.load(draft).phase == "draft"
    started = launch.start(world.runtime(), draft.task_id, launch.StartOptions(has_baseline=False))
    assert started.mission.phase == "running"
    assert SESSION not in {entry.name for entry in (world.home_path / "missions").iterdir()}
