"""What becomes of every attack of the scoreboard, and of every honest mission."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import JournalBroken
from tests.attacks.listed import EXPERIMENTS, MISSIONS
from tests.attacks.scoreboard import ATTACKS, HONEST, Attack, Honest, Trial
from tests.support.scratch import Scratch

if TYPE_CHECKING:
    from tests.attacks.listed import Listed
    from tests.attacks.scoreboard import Outcome


TESTS_PATH = Path(__file__).resolve().parent.parent


def begun(root: Path, row: Attack | Honest) -> Trial:
    """A mission that is held, with the files of the row."""
    world = Scratch.make(root)
    for path, text in row.files.items():
        world.write(path, text, executable=True)
    world.write("answer.txt", "0\n")
    world.commit("The state before the work")
    return Trial(world, world.mission(**row.fields))  # type: ignore[arg-type]


def outcome_of(trial: Trial) -> Outcome:
    """What the journal and the owner's notices say after the agent's stops."""
    world, task_id = trial.world, trial.mission.task_id
    try:
        held = world.load(task_id)
        replies = [world.stop() for _ in range(2)]
        mission = world.load(task_id)
    except JournalBroken:  # whoever asks for the mission is told what is wrong with its journal
        return "told"
    if mission.phase == "complete" or held.phase in ("complete", "cancelled", "paused"):
        return "open"
    run = mission.attestation
    if run is not None and run.verdict == "tampered":
        return "detected"
    if any("tampered" in reply.refusal for reply in replies):
        return "detected"
    if mission.refused_verbs or any(reply.person_message and not reply.refusal for reply in replies):
        return "told"
    assert mission.contract == trial.mission.contract
    return "prevented"


@pytest.mark.requirement("DONE-27")
@pytest.mark.parametrize("row", [*MISSIONS, *EXPERIMENTS], ids=lambda row: row.test)
def test_a_listed_attack_has_the_test_that_it_names(row: Listed) -> None:
    name, _, function = row.test.partition("::")
    assert f"def {function}(" in (TESTS_PATH / name).read_text(encoding="utf-8")


@pytest.mark.requirement("DONE-27")
def test_the_scoreboard_has_as_many_rows_as_its_promise() -> None:
    assert len({attack.id for attack in ATTACKS}) == len(ATTACKS) >= 150
    assert len({honest.id for honest in HONEST}) == len(HONEST) >= 40


@pytest.mark.slow
@pytest.mark.requirement("DONE-27", "DONE-30")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.id)
def test_what_becomes_of_an_attack_is_what_the_threat_model_says(tmp_path: Path, attack: Attack) -> None:
    trial = begun(tmp_path, attack)
    attack.act(trial)
    assert outcome_of(trial) == attack.outcome
    if attack.outcome == "open":
        difference = trial.world.load(trial.mission.task_id).difference
        assert difference is not None
        assert difference.flagged_count > 0  # nothing but a person's eyes is left


@pytest.mark.slow
@pytest.mark.requirement("DONE-27")
@pytest.mark.parametrize("honest", HONEST, ids=lambda honest: honest.id)
def test_an_honest_mission_is_refused_until_its_work_is_done_and_never_called_tampering(
    tmp_path: Path, honest: Honest
) -> None:
    trial = begun(tmp_path, honest)
    assert trial.world.stop().refusal
    honest.act(trial)
    trial.world.write("answer.txt", "42\n")
    if honest.fields.get("confirm"):
        trial.world.commit("Answer")
    said = trial.world.stop()
    mission = trial.world.load(trial.mission.task_id)
    assert "tamper" not in said.refusal
    assert (mission.phase, said.refusal) == ("complete", "")
