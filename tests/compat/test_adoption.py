"""Other runtimes' task folders: read whole or refused whole, copied as claims, and never touched."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.compat.adoption import adopt, draft_of, read_origin
from omx_autoresearch.foundation.errors import MissionInvalid, StepIllegal, WorkspaceFault
from omx_autoresearch.missions import launch, lifecycle_commands
from omx_autoresearch.missions.directions import declare
from omx_autoresearch.missions.findings import Submission, add_finding, list_findings
from omx_autoresearch.missions.records.work import ClaimRecorded
from omx_autoresearch.missions.rules.directions import direction_of

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.missions.rules.mission import Mission
    from tests.support.scratch import Scratch

ID = "20260629-153000-debug-lag"
SPEC: dict[str, Any] = {
    "task_id": ID,
    "goal": "Find the root cause of UI event-loop lag and verify the fix",
    "scope": ["desktop/frontend", "desktop"],
    "non_goals": [],
    "allowed_operations": {"write": True, "network": False, "publish": False},
    "success_criteria": [
        {
            "id": "root_cause",
            "description": "A cause is identified",
            "required": True,
            "evidence_ids": ["f1"],
        },
        {"id": "speed", "description": "It is fast", "required": False, "evidence_ids": []},
    ],
}
PROGRESS: dict[str, Any] = {
    "status": "running",
    "iteration": 4,
    "current_direction": "profile markdown rendering",
    "stale_count": 1,
    "pivot_count": 0,
    "blocked_reason": "",
    "updated_at": "2026-06-29T15:30:00Z",
}
FINDING: dict[str, Any] = {
    "id": "f1",
    "kind": "test",
    "summary": "A markdown render benchmark reproduces the lag",
    "source": "command",
    "command": "pnpm test",
    "paths": ["src/MarkdownRenderer.tsx"],
    "accepted": True,
    "created_at": "2026-06-29T15:30:00Z",
}
DIRECTION: dict[str, Any] = {
    "fingerprint": "profile-markdown-rendering",
    "summary": "Profile markdown rendering",
    "first_seen_iteration": 2,
    "last_seen_iteration": 4,
    "count": 2,
}


def host_folder(world: Scratch, **files: Any) -> Path:
    """A task of the host runtime, in the words of its own design; ``files`` stand in the place of its own."""
    path = world.project / ".reasonix" / "autoresearch" / ID
    content = {
        "task_spec.json": json.dumps(SPEC),
        "progress.json": json.dumps(PROGRESS),
        "directions_tried.json": json.dumps([DIRECTION]),
        "findings.jsonl": json.dumps(FINDING)
        + "\n"
        + json.dumps({**FINDING, "id": "f2", "kind": "hunch"})
        + "\n",
        "iteration_log.jsonl": "",
    }
    for name, text in {**content, **{name.replace("__", "."): text for name, text in files.items()}}.items():
        (path / "state").mkdir(parents=True, exist_ok=True)
        (path / "state" / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    (path / "logs").mkdir(exist_ok=True)
    (path / "logs" / "heartbeat.jsonl").write_text("{}\n", "utf-8")
    return path


def adopted(world: Scratch, path: Path, **fields: Any) -> Mission:
    origin = read_origin(str(path))
    draft = replace(draft_of(origin, str(world.project)), **fields)
    return adopt(world.runtime(), str(world.project), origin, draft)


def prints(path: Path) -> dict[str, str]:
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        + str(file.stat().st_mtime_ns)
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


@pytest.mark.requirement("RESUME-04")
def test_a_host_task_becomes_a_draft_of_claims_and_stays_as_it_was(world: Scratch) -> None:
    path = host_folder(world)
    before = prints(path)
    mission = world.load(adopted(world, path, validator_command="./check.sh"))
    assert (mission.task_id, mission.phase, mission.goal) == (ID, "draft", SPEC["goal"])
    assert (mission.iteration, mission.accepted_count, mission.finding_count) == (0, 0, 2)
    assert [item.summary for item in mission.directions] == ["Profile markdown rendering"]
    assert mission.adopted_from == str(path)
    assert world.kinds(mission)[:2] == ["mission_created", "mission_adopted"]
    (record,) = world.records(mission, "mission_adopted")
    data = (path / "state" / "findings.jsonl").read_bytes()
    assert record["data"]["digests"]["state/findings.jsonl"] == hashlib.sha256(data).hexdigest()
    assert (record["data"]["origin_status"], record["data"]["origin_iteration"]) == ("running", 4)
    found = list_findings(world.runtime(), ID)
    assert {item["id"]: item["accepted"] for item in found} == {"f1": False, "f2": False}
    (claim,) = [item for item in found if item["id"] == "f1"]
    assert f"adopted from {path}, findings.jsonl line 1, which calls it accepted" in json.dumps(claim)
    started = launch.start(
        world.runtime(), ID, launch.StartOptions(has_baseline=False, take=lambda *_: None)
    ).mission
    assert started.contract is not None
    assert started.contract.forbidden == ("network", "publish")
    assert [(item.id, str(item.rule), item.is_required) for item in started.contract.criteria] == [
        ("root_cause", "person", True),
        ("speed", "person", False),
    ]
    lifecycle_commands.repair(world.runtime(), ID)
    assert prints(path) == before


@pytest.mark.requirement("RESUME-04")
def test_a_folder_of_the_protocol_is_adopted_from_its_page(world: Scratch) -> None:
    path = world.root / "survey"
    (path / "state").mkdir(parents=True)
    page = "# Survey\n\n## Goal\n\nSurvey continual\nlearning.\n\n## Milestones\n- outline\n2. draft\n\n"
    page += "### Success criteria\n\n- [ ] 200 citations\n  that resolve\n* reviewed\n"
    (path / "state" / "task_spec.md").write_text(page, "utf-8")
    said = {"iteration": 7, "total_findings": 2, "status": "running", "stale_count": 0}
    (path / "state" / "progress.json").write_text(json.dumps(said), "utf-8")
    (path / "state" / "directions_tried.json").write_text(
        '["read surveys", {"direction": "ask authors"}]', "utf-8"
    )
    (path / "state" / "findings.jsonl").write_text('{"finding": "GPM forgets"}\n{"text": "torn', "utf-8")
    before = prints(path)
    origin = read_origin(str(path))
    mission = adopted(world, path, validator_command="./check.sh")
    assert origin.layout == "protocol"
    assert origin.notes == ("findings.jsonl line 2 is incomplete and was left out",)
    assert (mission.goal, mission.milestones) == (
        "Survey continual learning.",
        ("outline", "draft"),
    )
    assert [item.description for item in origin.draft.criteria] == ["200 citations that resolve", "reviewed"]
    assert [item.summary for item in origin.directions] == ["read surveys", "ask authors"]
    assert [(item.id, item.summary) for item in origin.findings] == [("line-1", "GPM forgets")]
    assert prints(path) == before


@pytest.mark.requirement("RESUME-05")
def test_our_own_projections_outlive_a_lost_state_home(world: Scratch) -> None:
    lost = world.mission(session="", milestones=("read",), forbid=("publish",))
    add_finding(world.runtime(), lost.task_id, Submission("seen"), source="cli")
    with world.store.transaction(lost.task_id, world.runtime().now()) as transaction:
        transaction.record(ClaimRecorded("a note \u2028 of 3 lines", "hand-edit", "0a" * 32))
    declare(world.runtime(), lost.task_id, direction_of("guess", {}))
    world.follow()
    shutil.rmtree(world.home_path)
    path = world.project / ".omx" / "autoresearch" / lost.task_id
    before = prints(path)
    assert read_origin(str(path)).layout == "own"
    mission = adopted(world, path)
    assert mission.task_id != lost.task_id, "its folder is the original, which stays"
    assert (mission.goal, mission.milestones, mission.finding_count) == (lost.goal, ("read",), 2)
    started = launch.start(
        world.runtime(), mission.task_id, launch.StartOptions(has_baseline=False, take=lambda *_: None)
    ).mission
    assert started.contract is not None
    assert (started.contract.validator_command, started.contract.forbidden) == ("./check.sh", ("publish",))
    assert prints(path) == before
    with pytest.raises(StepIllegal, match="already adopted, as mission"):
        adopted(world, path)


@pytest.mark.requirement("RESUME-04")
@pytest.mark.parametrize(
    ("files", "faults"),
    [
        ({"task_spec__json": "{"}, ["task_spec.json: "]),
        ({"task_spec__json": '{"goal": "a", "goal": "b"}'}, ["task_spec.json: ", "goal"]),
        ({"progress__json": "[]"}, ["progress.json: $: must be a mapping of fields, received []"]),
        (
            {"progress__json": '{"status": "happy", "iteration": -1, "stale_count": true}'},
            ["progress.json: $.status: ", "progress.json: $.iteration: ", "progress.json: $.stale_count: "],
        ),
        (
            {"task_spec__json": json.dumps({**SPEC, "goal": "", "success_criteria": [{"id": "A b"}, 3]})},
            [
                "$.goal: ",
                "$.success_criteria[0].id: ",
                "$.success_criteria[0].description: ",
                "$.success_criteria[1]: must be a mapping of fields, received 3",
            ],
        ),
        (
            {"findings__jsonl": json.dumps(FINDING) + "\nnot json\n" + json.dumps(FINDING) + "\n[]\n{}\n"},
            [
                "findings.jsonl: line 2: ",
                "findings.jsonl: line 3: $.id: 'f1' appears twice",
                "findings.jsonl: line 4: $: must be a mapping",
                "findings.jsonl: line 5: $: summary is empty",
            ],
        ),
        (
            {"directions_tried__json": '["", 4]'},
            ["directions_tried.json: $[0]: ", "directions_tried.json: $[1]: "],
        ),
        ({"directions_tried__json": "{}"}, ["directions_tried.json: $: must be a list"]),
    ],
)
def test_a_folder_with_faults_is_refused_with_file_place_and_cause_of_each(
    world: Scratch, files: dict[str, str], faults: list[str]
) -> None:
    path = host_folder(world, **files)
    before = prints(path)
    with pytest.raises(MissionInvalid) as error:
        adopted(world, path, validator_command="./check.sh")
    for fault in faults:
        assert fault in error.value.message
    assert f"cp -r {path}" in error.value.next_step
    assert world.store.task_ids() == ()
    assert prints(path) == before


@pytest.mark.requirement("RESUME-04")
def test_a_missing_folder_an_empty_one_and_a_missing_file_are_told_apart(world: Scratch) -> None:
    with pytest.raises(WorkspaceFault, match="there is no folder"):
        read_origin(str(world.root / "gone"))
    (world.root / "empty").mkdir()
    with pytest.raises(WorkspaceFault, match=r"neither task_spec.json nor task_spec.md"):
        read_origin(str(world.root / "empty"))
    path = host_folder(world)
    (path / "state" / "progress.json").unlink()
    with pytest.raises(MissionInvalid, match=r"progress.json: it is missing"):
        read_origin(str(path))


@pytest.mark.requirement("RESUME-04")
def test_without_a_way_to_be_judged_nothing_is_written(world: Scratch) -> None:
    path = host_folder(world)
    with pytest.raises(MissionInvalid, match="no mode is given"):
        adopted(world, path)
    assert world.store.task_ids() == ()
    assert not (world.project / ".omx").exists()
