"""Criteria on their way through sandbox.md: strict, in both forms, and back as they were."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import MissionInvalid
from omx_autoresearch.missions.contracts import compile_contract, contract_digest
from omx_autoresearch.missions.intake import read_intake, write_intake
from omx_autoresearch.missions.rules.criteria import criterion_of, rule_forms
from omx_autoresearch.missions.rules.intake import MissionDraft

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.scratch import Scratch

DRAFT = MissionDraft(
    goal="Write the answer",
    validator_command="./check.sh",
    criteria=tuple(
        map(
            criterion_of,
            (
                "tests: es geht: größer :: command: sh -c 'echo \"a b\" # x'",
                "optional report: 書いた :: file: out/r.md ~ ^## \\w+: .*$",
                "done: it agrees :: validator",
                "look: yes :: person",
            ),
        )
    ),
)


def specs(world: Scratch, draft: MissionDraft = DRAFT) -> Path:
    return world.project / write_intake(world.runtime(), str(world.project), draft).specs_path


@pytest.mark.requirement("EVID-14")
def test_criteria_come_back_from_the_file_as_they_went_in(world: Scratch) -> None:
    assert read_intake(str(specs(world))).criteria == DRAFT.criteria


@pytest.mark.requirement("EVID-14")
def test_a_criterion_may_be_a_mapping(world: Scratch) -> None:
    folder = specs(world, replace(DRAFT, criteria=()))
    sandbox = folder / "sandbox.md"
    mapping = (
        "criteria:\n  - id: a\n    description: x\n    rule: 'file: a.md'\n    required: false\n"
        "  - 'b: y :: person'\n"
    )
    sandbox.write_text(sandbox.read_text().replace("---\n", f"---\n{mapping}", 1))
    assert read_intake(str(folder)).criteria == (
        criterion_of("optional a: x :: file: a.md"),
        criterion_of("b: y :: person"),
    )


@pytest.mark.requirement("EVID-14")
@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("'tests'", "criteria.0: a criterion must be written"),
        ("'t: x :: trust'", "criteria.0: a rule is one of"),
        ("{id: t, description: x}", "criteria"),
        ("{id: t, description: x, rule: person, accepted: true}", "criteria"),
        ("{id: t, description: x, rule: person, required: 1}", "criteria"),
        ("5", "criteria"),
        ("'t: x :: review'", "which only a prompt-architect-artifact mission has"),
    ],
)
def test_what_is_no_criterion_is_refused_by_its_place(world: Scratch, item: str, said: str) -> None:
    folder = specs(world, replace(DRAFT, criteria=()))
    sandbox = folder / "sandbox.md"
    sandbox.write_text(sandbox.read_text().replace("---\n", f"---\ncriteria:\n  - {item}\n", 1))
    with pytest.raises(MissionInvalid) as refused:
        read_intake(str(folder))
    assert said in refused.value.message


@pytest.mark.requirement("EVID-14")
def test_criteria_are_part_of_the_contracts_digest(world: Scratch) -> None:
    def digest(*criteria: str) -> str:
        draft = replace(DRAFT, criteria=tuple(map(criterion_of, criteria)))
        return contract_digest(
            compile_contract(world.runtime(), workspace_path=str(world.project), draft=draft)[0]
        )

    assert (
        len({digest(), digest("a: x :: person"), digest("optional a: x :: person"), digest("a: y :: person")})
        == 4
    )


@pytest.mark.requirement("EVID-02")
def test_the_files_of_a_criterions_command_are_frozen_and_those_of_a_file_rule_are_not(
    world: Scratch,
) -> None:
    world.write("verify.sh", "#!/bin/sh\nexit 0\n", executable=True)
    world.write("report.md", "so far\n")
    criteria = ("t: x :: command: ./verify.sh", "r: y :: file: report.md", "u: z :: command: no-such-program")
    draft = replace(DRAFT, criteria=tuple(map(criterion_of, criteria)), protect=("*.md",))
    _, manifest = compile_contract(world.runtime(), workspace_path=str(world.project), draft=draft)
    assert {pin.path for pin in manifest.pins if pin.kind != "absent-guard"} == {
        "check.sh",
        "verify.sh",
        "notes.md",
    }
    draft = replace(draft, protect=())
    _, manifest = compile_contract(world.runtime(), workspace_path=str(world.project), draft=draft)
    assert [note.split(",")[0] for note in manifest.notes if note.startswith("criterion ")] == [
        "criterion u: no file of `command: no-such-program` could be frozen"
    ]


@pytest.mark.requirement("EVID-02")
@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ('["./verify.sh", "a b"]', "command: ./verify.sh 'a b'"),
        ("./verify.sh 'a b'", "command: ./verify.sh 'a b'"),
        ("[ -f notes.md ]", "command: '[' -f notes.md ']'"),
    ],
)
def test_a_criterions_command_is_a_line_or_a_json_list_of_words(written: str, kept: str) -> None:
    assert str(criterion_of(f"t: x :: command: {written}").rule) == kept


@pytest.mark.requirement("EVID-02")
def test_a_criterions_script_freezes_nothing_of_the_validator(world: Scratch) -> None:
    world.write("verify.sh", "#!/bin/sh\nexit 0\n", executable=True)
    criteria = (criterion_of("t: x :: command: ./verify.sh"),)
    draft = replace(DRAFT, validator_command="true", criteria=criteria)
    with pytest.raises(MissionInvalid, match="no file of the validator"):
        compile_contract(world.runtime(), workspace_path=str(world.project), draft=draft)


def test_sandbox_md_names_every_kind_of_rule(world: Scratch) -> None:
    text = (specs(world) / "sandbox.md").read_text("utf-8")
    assert rule_forms() in text
    assert "trial METRIC GAIN" in text
