"""The skill that ``install`` puts down, judged by the agent CLI itself: listed, and brought along when it is typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.agents.parts.skill import skill_bytes
from tests.clients.support.agent_clis import CLAUDE, CODEX, GEMINI, AgentCli
from tests.clients.support.owned_mission import EVIDENCE, PRODUCT, REFUSED, OwnedMission
from tests.clients.support.terminal import GeminiTerminal
from tests.clients.support.wire_formats import Turn

if TYPE_CHECKING:
    from tests.clients.support.stage import ClientRun, OpenStage, Stage

pytestmark = pytest.mark.client
LISTED = "Work on a mission of omx-autoresearch until its completion contract is met."
BODY = "Declare a direction before you try it"


def played(stage: Stage, mission: OwnedMission, sign: str) -> ClientRun:
    """A whole mission that a person begins by typing its name behind a sign."""
    work = stage.cli.does("Then I write the answer.", EVIDENCE, needs=REFUSED)
    line = f"{sign}autoresearch {mission.task_id}"
    run = stage.run(line, Turn("I am done."), work, Turn("Now it is done."))
    assert run.exit_code == 0, run
    mission.assert_let_go_with_evidence()
    return run


@pytest.mark.requirement("INST-09")
@pytest.mark.parametrize("cli", [CLAUDE, CODEX], ids=lambda cli: cli.name)
def test_the_skill_is_listed_and_both_ways_to_type_its_name_bind_the_mission(
    open_stage: OpenStage, cli: AgentCli
) -> None:
    stage = open_stage(cli)
    mission = OwnedMission(stage).start()
    brings_it = "/" if cli is CLAUDE else "$"
    run = played(stage, mission, brings_it)
    assert run.first_turn_with(BODY) == 0
    assert run.first_turn_with(LISTED) == 0


@pytest.mark.requirement("INST-09")
@pytest.mark.parametrize("cli", [CLAUDE, CODEX], ids=lambda cli: cli.name)
def test_a_projects_skill_is_listed_and_the_other_sign_binds_as_well(
    open_stage: OpenStage, cli: AgentCli
) -> None:
    stage = open_stage(cli)
    mission = OwnedMission(stage)
    stage.owner(PRODUCT, "install", cli.name, "--no-skill")
    installed = stage.owner_json(PRODUCT, "install", cli.name, "--scope", "project", "--json")
    assert any(path.endswith("SKILL.md") for path in installed["changed_paths"])
    stage.owner(PRODUCT, "uninstall", cli.name)
    run = played(stage, mission.start(), "$" if cli is CLAUDE else "/")
    assert run.first_turn_with(LISTED) == 0


@pytest.mark.requirement("INST-09")
def test_gemini_has_no_skill_of_ours_and_both_signs_bind(open_stage: OpenStage) -> None:
    stage = open_stage(GEMINI)
    run = played(stage, OwnedMission(stage).start(), "/")
    assert run.first_turn_with(LISTED) == -1


@pytest.mark.requirement("INST-09")
def test_codexs_skill_takes_nothing_away_from_a_person_at_geminis_terminal(open_stage: OpenStage) -> None:
    stage = open_stage(GEMINI)
    mission = OwnedMission(stage).start()
    stage.owner(PRODUCT, "install", "codex")
    with GeminiTerminal(stage, Turn("I am done.")) as terminal:
        terminal.enter(f"/autoresearch {mission.task_id}")
        terminal.wait_for("holds this session")
    assert mission.status()["session_id"] != ""


@pytest.mark.requirement("INST-10")
def test_a_skill_where_gemini_reads_it_hides_the_typed_command_and_doctor_names_it(
    open_stage: OpenStage,
) -> None:
    stage = open_stage(GEMINI)
    mission = OwnedMission(stage).start()
    skill_path = stage.place.home / ".agents" / "skills" / "autoresearch" / "SKILL.md"
    skill_path.parent.mkdir(parents=True)
    skill_path.write_bytes(skill_bytes())
    said = stage.owner(PRODUCT, "doctor", "gemini", may_fail=True)
    assert said.returncode == 9
    assert f"{skill_path} hides /autoresearch from the hook" in " ".join(said.stdout.split())
    with GeminiTerminal(stage, Turn("I am done.")) as terminal:
        terminal.enter(f"/autoresearch {mission.task_id}")
        terminal.wait_for("I am done.")
    assert mission.status()["session_id"] == "", "the hook saw the task's id alone, which binds nothing"
