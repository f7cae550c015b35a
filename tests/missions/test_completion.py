"""completion.json: what a completed mission leaves for people and tools, written by the runtime alone."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.records import from_plain
from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.rules.mission import Attestation
from omx_autoresearch.missions.workspace import snapshot_workspace

if TYPE_CHECKING:
    from tests.support.scratch import Scratch

TRUE_FORM = {"status": "passed", "passed": True, "summary": "x"}


def claim_of(world: Scratch, content: bytes | str, **fields: Any) -> tuple[str, str]:
    """What is made of a hand-written artifact: (claim, report)."""
    mission = world.mission(session="", **fields)
    world.write(f"{mission.specs_path}/completion.json", content)
    look = snapshot_workspace(world.home.mission(mission.task_id), mission)
    return look.artifact_claim, look.artifact_report


@pytest.mark.requirement("DONE-09")
def test_the_artifact_has_the_agreed_keys_and_the_whole_attestation(world: Scratch) -> None:
    mission = world.mission()
    world.write("answer.txt", "42\n")
    world.stop()
    after = world.load(mission)
    artifact = world.completion(after)
    keys = {"task_id", "status", "passed", "summary", "completed_at", "changed_since_launch", "sandboxed"}
    assert set(artifact) == {*keys, "attestation"}
    assert from_plain(Attestation, artifact["attestation"]) == after.attestation
    assert artifact["summary"] == "exit status 0"
    path = world.project / mission.specs_path / "completion.json"
    assert path.stat().st_mode & 0o777 == 0o644
    assert sorted(item.name for item in path.parent.iterdir()) == [
        "completion.json",
        "mission.md",
        "result.json",
        "sandbox.md",
    ]


@pytest.mark.requirement("DONE-09")
def test_repair_writes_a_lost_artifact_again(world: Scratch) -> None:
    mission = world.mission()
    world.write("answer.txt", "42\n")
    world.stop()
    path = world.project / mission.specs_path / "completion.json"
    before = json.loads(path.read_text())
    shutil.rmtree(world.project / ".omx")
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert json.loads(path.read_text())["attestation"] == before["attestation"]


@pytest.mark.requirement("DONE-09", "STATE-11")
def test_a_project_that_cannot_be_written_takes_no_completion_away(world: Scratch) -> None:
    mission = world.mission()
    specs = world.project / mission.specs_path
    shutil.rmtree(specs)
    specs.write_text("in the way")
    world.write("answer.txt", "42\n")
    answer = world.stop()
    assert "is complete" in answer.person_message
    assert "could not be written" in answer.person_message
    assert f"omx-autoresearch repair {mission.task_id}" in answer.person_message
    assert world.load(mission).phase == "complete"
    specs.unlink()
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert world.completion(mission)["passed"] is True


@pytest.mark.requirement("SESS-14", "DONE-24")
@pytest.mark.parametrize("link", ["the folder", "the folder above", "the file"])
def test_what_an_agent_may_write_does_not_choose_where_we_write(world: Scratch, link: str) -> None:
    mission = world.mission()
    elsewhere = world.root / "elsewhere"
    specs = world.project / mission.specs_path
    if link == "the file":
        elsewhere.write_text("precious")
        (specs / "completion.json").symlink_to(elsewhere)
    else:
        moved = specs if link == "the folder" else specs.parent
        shutil.move(moved, elsewhere)
        moved.symlink_to(elsewhere)
    world.write("answer.txt", "42\n")
    assert "is complete" in world.stop().person_message
    if link == "the file":
        assert elsewhere.read_text() == "precious"
        assert not (specs / "completion.json").is_symlink()
    else:
        assert list(elsewhere.rglob("completion.json")) == []


# --- what others wrote there


@pytest.mark.requirement("DONE-10", "DONE-24")
@pytest.mark.case("ART-02")
@pytest.mark.parametrize(
    "change",
    [
        {"passed": "false"}, {"passed": "true"}, {"passed": 1}, {"passed": None}, {"passed": [True]}, {"passed": {}},
        {"status": "PASSED"}, {"status": "passed "}, {"status": "not passed"}, {"passed": False},
        {"status": "failed", "passed": True}, {"passed": ..., "Passed": True}, {"passed": ..., "pased": True},
    ],
)  # fmt: skip
def test_only_the_exact_values_are_even_a_claim(world: Scratch, change: dict[str, object]) -> None:
    document = {key: value for key, value in {**TRUE_FORM, **change}.items() if value is not ...}
    claim, report = claim_of(world, json.dumps(document))
    assert claim == ""
    assert "status=" in report
    assert "passed=" in report


@pytest.mark.requirement("DONE-24")
@pytest.mark.case("ART-01", "ART-02", "ART-06")
@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"passed":false,"status":"failed","passed":true,"status":"passed"}', "'passed'"),
        (
            '{"status":"passed","passed":true,"architect_review":{"verdict":"x","verdict":"approved"}}',
            "'verdict'",
        ),
        ("", "empty"),
        ('{"status": "passed", "pass', "line 1"),
        ("[1]", "not an object but list"),
        ('"passed"', "not an object but str"),
        ('{"status":"passed","passed":true,"score":NaN}', "NaN"),
        ('{"status":"passed","passed":true}'.encode("utf-16"), "UTF-16"),
    ],
)
def test_a_document_that_cannot_be_believed_is_named_with_its_fault(
    world: Scratch, content: str | bytes, told: str
) -> None:
    claim, report = claim_of(world, content, accept_unattested=True)
    assert claim == ""
    assert told in report


@pytest.mark.requirement("DONE-24")
@pytest.mark.case("HIO-09", "ART-06")
def test_a_byte_order_mark_is_read_past_and_a_whole_rewrite_counts_at_once(world: Scratch) -> None:
    mission = world.mission(accept_unattested=True)
    path = world.write(f"{mission.specs_path}/completion.json", "")
    assert world.stop().refusal
    path.write_bytes(b'{"status": "passed", "pas')
    assert "cannot be read" in world.stop().refusal
    temporary = path.with_name("new")
    temporary.write_bytes(b"\xef\xbb\xbf" + json.dumps(TRUE_FORM).encode())
    os.replace(temporary, path)
    assert "is complete" in world.stop().person_message


@pytest.mark.requirement("DONE-24")
@pytest.mark.case("ART-04")
@pytest.mark.parametrize("kind", ["a link", "a pipe", "a folder", "an endless file"])
def test_what_is_no_regular_file_of_the_project_is_no_artifact(world: Scratch, kind: str) -> None:
    mission = world.mission(session="", accept_unattested=True)
    path = world.project / mission.specs_path / "completion.json"
    foreign = world.root / "foreign.json"
    foreign.write_text(json.dumps(TRUE_FORM))
    if kind == "a link":
        path.symlink_to(foreign)
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        with path.open("wb") as stream:
            stream.truncate(10 * 1024**3)
    look = snapshot_workspace(world.home.mission(mission.task_id), mission)
    assert look.artifact_claim == ""
    assert "cannot be read" in look.artifact_report


@pytest.mark.requirement("DONE-10", "DONE-11")
@pytest.mark.case("ART-03")
@pytest.mark.parametrize(
    ("document", "is_claim"),
    [
        ({"architect_review": {"verdict": "approved"}, "output_artifact_path": "report.md"}, True),
        ({"architect_review": {"verdict": "approved"}, "output_artifact_path": "other.md"}, False),
        ({"architect_review": {"verdict": "approved"}}, False),
        ({"architect_review": {"verdict": "not approved"}, "output_artifact_path": "report.md"}, False),
        ({"architect_review": {"verdict": "APPROVED"}, "output_artifact_path": "report.md"}, False),
        ({"architect_review": "approved", "output_artifact_path": "report.md"}, False),
        (
            {
                "architect_review": {"verdict": "approved"},
                "output_artifact_path": "report.md",
                "passed": False,
            },
            False,
        ),
        ({"verdict": "approved", "output_artifact_path": "report.md", "summary": "APPROVED"}, False),
    ],
)
def test_a_hand_written_review_is_a_claim_only_in_its_exact_form(
    world: Scratch, document: dict[str, object], is_claim: bool
) -> None:
    claim, report = claim_of(
        world,
        json.dumps(document),
        validator_prompt="Is there a conclusion?",
        output_artifact_path="report.md",
    )
    assert (claim == "passed") == is_claim
    assert "does not count" in report


@pytest.mark.requirement("DONE-02")
def test_an_artifact_of_our_own_form_is_a_claim_as_well(world: Scratch) -> None:
    world.write("answer.txt", "42\n")
    first = world.mission()
    world.stop()
    world.write("answer.txt", "41\n")
    second = world.mission(goal="again")
    ours = Path(world.project / first.specs_path / "completion.json").read_text()
    world.write(f"{second.specs_path}/completion.json", ours.replace(first.task_id, second.task_id))
    refusal = world.stop().refusal
    assert "it is unattested and does not count" in refusal
