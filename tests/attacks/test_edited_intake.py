"""An agent edits what its owner is about to approve: mission.md, sandbox.md, or a mission of its own."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import StepIllegal
from omx_autoresearch.missions import launch
from omx_autoresearch.missions.accepted import edits_between, refuse_edits, take_contract
from omx_autoresearch.missions.amending import AmendOptions, amend_mission
from omx_autoresearch.missions.rules.intake import MissionDraft
from tests.support.scratch import Scratch

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.missions.rules.mission import Mission


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    world = Scratch.make(tmp_path)
    world.write("easy.sh", "#!/bin/sh\nexit 0\n", executable=True)
    return world


def _edit(world: Scratch, mission: Mission, old: str = "./check.sh", new: str = "./easy.sh") -> None:
    page = world.project / mission.specs_path / "sandbox.md"
    assert old in page.read_text()
    page.write_text(page.read_text().replace(old, new))


def _start(world: Scratch, mission: Mission, **options: Any) -> launch.Started:
    return launch.start(world.runtime(), mission.task_id, launch.StartOptions(has_baseline=False, **options))


@pytest.mark.requirement("LIFE-14")
def test_a_start_does_not_approve_an_edit_that_its_owner_has_not_seen(world: Scratch) -> None:
    mission = world.draft()
    _edit(world, mission)
    with pytest.raises(StepIllegal, match=re.escape("validator_command: ./check.sh -> ./easy.sh")) as refused:
        _start(world, mission)
    assert refused.value.next_step.endswith(f"omx-autoresearch start {mission.task_id} --take-edits")
    assert world.load(mission).phase == "draft"


@pytest.mark.requirement("LIFE-14")
def test_an_edit_that_is_taken_back_or_changes_no_field_needs_no_word(world: Scratch) -> None:
    mission = world.draft()
    _edit(world, mission)
    _edit(world, mission, "./easy.sh", "./check.sh")
    page = world.project / mission.specs_path / "mission.md"
    page.write_text(page.read_text() + "\nA remark below the fields.\n")
    assert _start(world, mission).mission.phase == "running"


@pytest.mark.requirement("LIFE-14")
def test_an_amendment_by_options_leaves_out_what_was_edited(world: Scratch) -> None:
    mission = world.mission()
    _edit(world, mission)
    started = amend_mission(
        world.runtime(), mission.task_id, lambda draft: replace(draft, timeout_seconds=60.0)
    )
    contract = started.mission.contract
    assert contract is not None
    assert (contract.validator_command, contract.timeout_seconds) == ("./check.sh", 60.0)
    assert any("./check.sh -> ./easy.sh" in note for note in started.notes)
    with pytest.raises(StepIllegal, match="--take-edits"):
        amend_mission(world.runtime(), mission.task_id, lambda draft: draft)
    taken = amend_mission(
        world.runtime(), mission.task_id, lambda draft: draft, AmendOptions(takes_edits=True)
    ).mission.contract
    assert taken is not None
    assert (taken.validator_command, taken.timeout_seconds) == ("./easy.sh", 60.0)


@pytest.mark.requirement("LIFE-14")
def test_a_prompt_shows_the_edit_and_its_code_takes_exactly_that(world: Scratch) -> None:
    mission = world.draft()
    _edit(world, mission)
    shown = _typed(world, f"$autoresearch {mission.task_id}")
    assert "validator_command: ./check.sh -> ./easy.sh" in shown
    assert world.load(mission).phase == "draft"
    code = _code(shown)
    _edit(world, mission, "./easy.sh", "./easy.sh; true")
    again = _typed(world, f"$autoresearch yes {code}")
    assert "./easy.sh; true" in again
    assert world.load(mission).phase == "draft"
    _typed(world, f"$autoresearch yes {code}")  # the code of what was shown before
    assert world.load(mission).phase == "draft"


@pytest.mark.requirement("LIFE-14")
def test_a_code_binds_what_was_shown_and_an_unknown_one_nothing(world: Scratch) -> None:
    world.write("stern.sh", "#!/bin/sh\nexit 1\n", executable=True)
    mission = world.draft()
    _edit(world, mission, new="./stern.sh")
    shown = _typed(world, f"$autoresearch {mission.task_id}")
    assert "no contract was shown" in _typed(world, "$autoresearch yes QQQQ")
    assert "judged by `./stern.sh`" in _typed(world, f"$autoresearch yes {_code(shown)}")
    after = world.load(mission)
    assert after.contract is not None
    assert (after.phase, after.contract.validator_command) == ("running", "./stern.sh")


@pytest.mark.requirement("LIFE-14")
def test_a_mission_that_an_agent_wrote_is_shown_whole(world: Scratch) -> None:
    mark = world.runtime().shell_marks[0]
    runtime = replace(world.runtime(), environ={**world.runtime().environ, mark: "1"})
    draft = MissionDraft(goal="write the answer", validator_command="./easy.sh")
    mission = launch.create_mission(runtime, str(world.project), draft)
    with pytest.raises(StepIllegal, match=re.escape("validator_command: nothing -> ./easy.sh")):
        _start(world, mission)
    assert "goal: nothing -> write the answer" in _typed(world, f"$autoresearch {mission.task_id}")
    _start(world, mission, take=lambda *_: None)
    amend_mission(world.runtime(), mission.task_id, lambda draft: replace(draft, timeout_seconds=60.0))


@pytest.mark.requirement("LIFE-14")
def test_an_agents_start_approves_nothing_and_counts_as_no_acceptance(world: Scratch) -> None:
    mission = world.draft()
    _edit(world, mission)
    _start(world, mission, is_agent=True)
    with pytest.raises(StepIllegal, match="--take-edits"):
        amend_mission(world.runtime(), mission.task_id, lambda draft: draft)


@pytest.mark.requirement("LIFE-14")
@pytest.mark.parametrize("is_edited_again", [False, True])
def test_an_approval_shows_what_an_agent_has_launched(world: Scratch, is_edited_again: bool) -> None:
    mission = world.draft(environment_names=("HOME", "NOT_SET"), limits={"refusals_total": 200})
    _edit(world, mission)
    mission = _start(world, mission, is_agent=True).mission
    if is_edited_again:
        _edit(world, mission, "./easy.sh", "./check.sh")
    with pytest.raises(StepIllegal, match="--take-edits") as refused:
        take_contract(world.runtime(), mission, refuse_edits(mission.task_id, "approve"))
    assert refused.value.message.splitlines()[1:] == ["  - validator_command: ./check.sh -> ./easy.sh"]
    take_contract(world.runtime(), mission, lambda *_: None)
    take_contract(world.runtime(), mission, refuse_edits(mission.task_id, "approve"))


@pytest.mark.requirement("LIFE-14")
@pytest.mark.parametrize("is_edited", [False, True])
def test_what_the_owner_launched_is_approved_without_a_word(world: Scratch, is_edited: bool) -> None:
    mission = world.mission(environment_names=("HOME", "NOT_SET"), limits={"refusals_total": 200})
    if is_edited:
        _edit(world, mission)
    take_contract(world.runtime(), mission, refuse_edits(mission.task_id, "approve"))


def _typed(world: Scratch, text: str) -> str:
    """What a person is told who types a line in the agent."""
    return str(world.hook(world.payload("UserPromptSubmit", prompt=text)).json.get("systemMessage", ""))


def _code(shown: str) -> str:
    found = re.search(r"\$autoresearch yes ([A-Z]{4})", shown)
    assert found, shown
    return found[1]


@pytest.mark.requirement("LIFE-14")
@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        (
            ("data/one", "data/two"),
            ("data/one; data/two",),
            "(1) data/one (2) data/two -> data/one; data/two",
        ),
        (("data/one",), ("data/one\u200b",), r"data/one -> data/one\u200b"),
        (("data/one",), ("data/one\n",), r"data/one -> data/one\n"),
    ],
)
def test_an_edit_that_looks_like_nothing_is_shown(
    old: tuple[str, ...], new: tuple[str, ...], shown: str
) -> None:
    base = MissionDraft(goal="find it", validator_command="./check.sh", protect=old)
    (edit,) = edits_between(base, replace(base, protect=new))
    assert str(edit) == f"protect: {shown}"
