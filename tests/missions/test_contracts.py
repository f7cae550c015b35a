"""Compiling: what is pinned, whose environment, which digest; and a later edit of the files is only told."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import MissionInvalid
from omx_autoresearch.foundation.records import from_plain, to_plain
from omx_autoresearch.journal.layout import Runtime, StateHome
from omx_autoresearch.missions.contracts import (
    captured_environment,
    compile_contract,
    contract_digest,
    intake_drift,
)
from omx_autoresearch.missions.intake import read_intake, write_intake
from omx_autoresearch.missions.rules.allowances import Limits
from omx_autoresearch.missions.rules.intake import MissionDraft
from omx_autoresearch.missions.rules.mission import Contract, Mission

if TYPE_CHECKING:
    from pathlib import Path

DRAFT = MissionDraft(goal="make it pass", validator_command="./check.sh")
ENVIRON = {
    "PATH": "/bin:/usr/bin", "HOME": "/h", "VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/c", "CUDA_HOME": "/g",
    "CONDA_TOKEN": "s", "OPENAI_API_KEY": "s", "MARK": "1", "CUDA_MARK": "1", "DATA": "d", "LANG": "x\udcff",
}  # fmt: skip


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(StateHome(str(tmp_path / "state")), environ=ENVIRON, shell_marks=("MARK", "CUDA_MARK"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "check.sh").write_text("#!/bin/sh\n# cargo test\npytest -q\n")
    (path / "check.sh").chmod(0o755)
    return path


def compiled(runtime: Runtime, project: Path, **changes: Any) -> Contract:
    return compile_contract(runtime, workspace_path=str(project), draft=replace(DRAFT, **changes))[0]


def test_a_contract_holds_what_was_asked_and_what_was_pinned(runtime: Runtime, project: Path) -> None:
    draft = replace(
        DRAFT, limits={"refusals_total": 7}, timeout_seconds=5, intake_digests={"mission.md": "x"}
    )
    contract, manifest = compile_contract(runtime, workspace_path=str(project), draft=draft)
    assert contract.validation_mode == "mission-validator-script"
    assert (contract.pin_digest, contract.pinned_count) == (manifest.digest, 1)
    assert contract.runner == "pytest"
    assert contract.limits == Limits(refusals_total=7)
    assert contract.intake_digests == {"mission.md": "x"}
    assert from_plain(Contract, json_codec.decode(json_codec.encode(to_plain(contract)))) == contract


@pytest.mark.requirement("DONE-04")
def test_validators_get_the_owners_environment_without_marks_and_secrets_unless_declared(
    runtime: Runtime,
) -> None:
    assert captured_environment(runtime, ()) == {
        "PATH": "/bin:/usr/bin", "HOME": "/h", "VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/c", "CUDA_HOME": "/g",
    }  # fmt: skip
    declared = captured_environment(runtime, ("DATA", "OPENAI_API_KEY", "ABSENT"))
    assert {"DATA", "OPENAI_API_KEY"} <= declared.keys()
    assert "ABSENT" not in declared


@pytest.mark.requirement("DONE-16")
@pytest.mark.parametrize("command", ["true", "pytest", "/bin/false"])
def test_a_validator_without_a_file_to_freeze_needs_a_reason(
    runtime: Runtime, tmp_path: Path, command: str
) -> None:
    with pytest.raises(MissionInvalid, match="could be frozen") as caught:
        compiled(runtime, tmp_path, validator_command=command)
    assert "--unfrozen --reason" in caught.value.next_step
    contract = compiled(runtime, tmp_path, validator_command=command, unfrozen_reason="a service judges")
    assert (contract.pinned_count, contract.unfrozen_reason) == (0, "a service judges")


@pytest.mark.requirement("DONE-16")
def test_what_a_command_of_readers_alone_reads_is_left_to_the_agent_and_named(
    runtime: Runtime, tmp_path: Path
) -> None:
    command = "grep -q done notes.md && grep -q 42 expected.txt"
    for name in ("notes.md", "expected.txt"):
        (tmp_path / name).touch()
    draft = MissionDraft(goal="g", validator_command=command)
    _, manifest = compile_contract(runtime, workspace_path=str(tmp_path), draft=draft)
    assert [pin.path for pin in manifest.pins if pin.kind == "file"] == ["expected.txt"]
    assert any(
        note.startswith("notes.md is read by") and "(--protect notes.md" in note for note in manifest.notes
    )
    (tmp_path / "notes.md").unlink()
    assert compiled(runtime, tmp_path, validator_command="grep -q done notes.md").pinned_count == 0


@pytest.mark.requirement("DONE-16")
def test_a_file_that_is_frozen_because_a_command_names_it_is_named_with_the_way_to_free_it(
    runtime: Runtime, tmp_path: Path
) -> None:
    for name in ("check.py", "notes.md"):
        (tmp_path / name).touch()
    command = "python3 check.py notes.md"
    draft = MissionDraft(goal="g", validator_command=command)
    _, manifest = compile_contract(runtime, workspace_path=str(tmp_path), draft=draft)
    (note,) = (note for note in manifest.notes if "frozen" in note)
    assert note.startswith(f"notes.md is frozen, since `{command}` names it")
    assert note.endswith("leave it free: --protect '!notes.md'")
    draft = MissionDraft(goal="g", validator_command=command, protect=("!notes.md",))
    _, manifest = compile_contract(runtime, workspace_path=str(tmp_path), draft=draft)
    assert [pin.path for pin in manifest.pins if pin.kind == "file"] == ["check.py"]
    assert not manifest.notes


@pytest.mark.requirement("DONE-16")
@pytest.mark.parametrize(
    ("command", "name"), [("./chekc.sh --all", "./chekc.sh"), ("python3 judge.py", "judge.py")]
)
def test_a_check_that_is_not_there_is_said_to_be_missing_and_not_to_need_a_reason(
    runtime: Runtime, tmp_path: Path, command: str, name: str
) -> None:
    with pytest.raises(MissionInvalid, match=f"{name}.* is not in .*could be frozen") as caught:
        compiled(runtime, tmp_path, validator_command=command)
    assert caught.value.next_step.startswith(f"create {name}")
    compiled(runtime, tmp_path, validator_command=command, unfrozen_reason="it is generated")


@pytest.mark.requirement("DONE-16")
def test_configuration_without_a_test_freezes_no_judge(runtime: Runtime, tmp_path: Path) -> None:
    for name in ("pyproject.toml", "conftest.py"):
        (tmp_path / name).touch()
    with pytest.raises(MissionInvalid, match="no test files of pytest were found"):
        compiled(runtime, tmp_path, validator_command="pytest -q")
    (tmp_path / "test_a.py").touch()
    assert compiled(runtime, tmp_path, validator_command="pytest -q").pinned_count == 3
    (tmp_path / "Makefile").touch()
    assert compiled(runtime, tmp_path, validator_command="make check").pinned_count == 1


def test_a_review_needs_no_file_to_freeze(runtime: Runtime, project: Path) -> None:
    (project / "report.md").write_text("x")
    contract = compiled(
        runtime,
        project,
        validator_command="",
        validator_prompt="Is it sound?",
        output_artifact_path="report.md",
    )
    assert (contract.validation_mode, contract.pinned_count) == ("prompt-architect-artifact", 0)


@pytest.mark.requirement("LIFE-11")
def test_a_placeholder_is_refused_at_the_start_too(runtime: Runtime, project: Path) -> None:
    with pytest.raises(MissionInvalid, match="validator_command: it holds a placeholder"):
        compiled(runtime, project, validator_command="<command>")


def test_a_comment_makes_no_runner(runtime: Runtime, project: Path) -> None:
    (project / "check.sh").write_text("#!/bin/sh\n# pytest\nexit 1\n")
    assert compiled(runtime, project).runner == ""
    assert compiled(runtime, project, validator_command="go test ./... && ./check.sh").runner == "go"


# --- digests


def test_the_digest_covers_everything_but_the_limits(runtime: Runtime, project: Path) -> None:
    contract = compiled(runtime, project)
    digest = contract_digest(contract)
    assert contract_digest(replace(contract, limits=Limits(refusals_total=1))) == digest
    others = (
        replace(contract, environment={**contract.environment, "PATH": "/evil"}),
        replace(contract, validator_command="true"),
        replace(contract, pin_digest="0"),
        replace(contract, accept_unattested=True),
        replace(contract, baseline_tests=3),
    )
    assert len({digest, *(contract_digest(other) for other in others)}) == len(others) + 1


def test_the_digest_survives_the_journal(runtime: Runtime, project: Path) -> None:
    contract = compiled(runtime, project)
    again = from_plain(Contract, json_codec.decode(json_codec.encode(to_plain(contract))))
    assert contract_digest(again) == contract_digest(contract)


# --- drift


@pytest.mark.requirement("LIFE-05")
def test_a_later_edit_of_the_intake_is_told_and_changes_nothing(runtime: Runtime, project: Path) -> None:
    record = write_intake(runtime, str(project), DRAFT)
    folder = project / record.specs_path
    contract, _ = compile_contract(runtime, workspace_path=str(project), draft=read_intake(str(folder)))
    mission = Mission(
        "t", "s", "g", "standard", str(project), str(project), record.specs_path, contract=contract
    )
    assert intake_drift(mission) == ()
    (folder / "sandbox.md").write_text((folder / "sandbox.md").read_text().replace("./check.sh", "true"))
    assert intake_drift(mission) == ("sandbox.md",)
    (folder / "mission.md").unlink()
    os.mkfifo(folder / "mission.md")
    assert intake_drift(mission) == ("mission.md", "sandbox.md")
    assert intake_drift(replace(mission, contract=None)) == ()
