"""``transitions`` decides every change of phase: without it none happens, and nothing else notices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omx_autoresearch.experiments.judge.events import TrialAdmitted
from omx_autoresearch.experiments.judge.state import ExperimentUsage, TrialRow
from omx_autoresearch.experiments.store import ExperimentStore
from omx_autoresearch.journal.layout import StateHome
from omx_autoresearch.missions.rules.mission import TRANSITIONS
from tests.surfaces.support.command_line import CLIENT, SESSION, Person
from tests.surfaces.support.experiments import Researcher, works_at

pytestmark = pytest.mark.slow

PACKAGE = Path(__file__).resolve().parents[2] / "omx_autoresearch"
SAID = "the package transitions, which decides it, cannot be loaded"


class Without:
    """An installation whose ``transitions`` cannot be imported, for a person's commands and for the hook."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self._site = person.root / "site"
        self._site.mkdir()
        (self._site / "omx_autoresearch").symlink_to(PACKAGE)
        (self._site / "transitions.py").write_text("raise ImportError('it was taken away')\n")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._person.run(*arguments, env={"PYTHONPATH": str(self._site)})

    def ok(self, *arguments: str) -> str:
        return self._person.ok(*arguments, env={"PYTHONPATH": str(self._site)})

    def fails(self, *arguments: str) -> None:
        """The command ends with the fault, which says what to do."""
        done = self.run(*arguments)
        assert done.returncode == 1, done.stdout + done.stderr
        assert SAID in done.stderr
        assert "pip install transitions" in done.stderr
        assert str(self._site) in done.stderr

    def stop(self) -> Any:
        return hook_of(self._site / "omx_autoresearch", self._person, "Stop", last_assistant_message="done")


def hook_of(package: Path, person: Person, event: str, **fields: Any) -> Any:
    """The installed hook of an installation, as the agent CLI starts it: its answer, None for silence."""
    payload = {"session_id": SESSION, "cwd": str(person.project), "hook_event_name": event, **fields}
    script = str(package / "surfaces" / "hook_start.py")
    done = subprocess.run(
        [*CLIENT, sys.executable, "-I", "-S", script, str(person.home), "claude"],
        input=json.dumps(payload).encode(),
        env={"PATH": os.environ["PATH"], "HOME": str(person.root)},
        cwd=person.project,
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == b""
    return json.loads(done.stdout) if done.stdout else None


@pytest.fixture
def without(person: Person) -> Without:
    return Without(person)


def phase_of(person: Person, task_id: str) -> str:
    return str(person.json("status", task_id)["phase"])


@pytest.mark.requirement("LIFE-13")
def test_without_its_machine_no_owner_verb_changes_a_phase_and_with_it_each_does(
    person: Person, without: Without
) -> None:
    task_id = person.init()
    story = (
        ("start", (), "draft", "running"),
        ("pause", (), "running", "paused"),
        ("resume", (), "paused", "running"),
        ("block", ("--reason", "no key", "--needs", "a key"), "running", "blocked"),
        ("unblock", (), "blocked", "running"),
        ("cancel", (), "running", "cancelled"),
    )
    assert {*(verb for verb, *_ in story), "complete"} == {
        "start" if step == "launch" else step for step, *_ in TRANSITIONS
    }
    for verb, more, before, after in story:
        journal = person.journal(task_id).read_bytes()
        without.fails(verb, task_id, *more)
        assert (phase_of(person, task_id), person.journal(task_id).read_bytes()) == (before, journal)
        person.ok(verb, task_id, *more)
        assert phase_of(person, task_id) == after


@pytest.mark.requirement("LIFE-13", "GATE-03")
def test_without_its_machine_a_stop_that_would_complete_lets_go_and_the_next_one_with_it_completes(
    person: Person, without: Without
) -> None:
    task_id = person.start()
    person.bind(task_id)
    assert "answer.txt must hold 42" in without.stop()["reason"], "a refusal needs no machine"
    person.write("answer.txt", "42\n")
    for _ in range(2):
        answer = without.stop()
        assert set(answer) == {"systemMessage"}
        assert SAID in answer["systemMessage"]
        assert "pip install transitions" in answer["systemMessage"]
        assert phase_of(person, task_id) == "running"
    assert person.records(task_id, "mission_completed") == person.records(task_id, "stop_allowed") == []
    assert not [*person.project.rglob("completion.json")]
    answer = hook_of(PACKAGE, person, "Stop", last_assistant_message="now")
    assert "is complete" in answer["systemMessage"]
    assert person.records(task_id, "mission_completed")[0]["phase"] == phase_of(person, task_id) == "complete"


@pytest.mark.requirement("LIFE-13", "GATE-03")
def test_without_its_machine_a_stop_that_would_block_lets_go_and_blocks_nothing(
    person: Person, without: Without
) -> None:
    task_id = person.start()
    person.bind(task_id)
    check = person.write("check.sh", "#!/bin/sh\nexit 0\n", mode=0o755)
    assert check.name in without.stop()["reason"], "changed pins are refused once"
    assert SAID in without.stop()["systemMessage"]
    assert phase_of(person, task_id) == "running"
    assert person.records(task_id, "stop_released") == []
    answer = hook_of(PACKAGE, person, "Stop", last_assistant_message="now")
    assert "pinned files changed" in answer["systemMessage"]
    assert person.records(task_id, "mission_blocked")[0]["phase"] == phase_of(person, task_id) == "blocked"


@pytest.mark.requirement("LIFE-13")
def test_without_its_machine_looks_checks_and_a_rebuild_from_the_journal_work(
    person: Person, without: Without
) -> None:
    task_id = person.start()
    person.ok("pause", task_id)
    person.ok("resume", task_id)
    for snapshot in (person.home / "missions" / task_id).glob("snapshot*"):
        snapshot.unlink()
    assert "running" in without.ok("status", task_id)
    assert task_id in without.ok("list")
    without.ok("repair", task_id)
    without.ok("note", task_id, "a word")
    assert "answer.txt must hold 42" in without.run("validate", task_id).stdout


@pytest.mark.requirement("LIFE-13")
def test_without_its_machine_no_phase_of_an_experiment_changes_and_looks_at_it_work(tmp_path: Path) -> None:
    person = Researcher(tmp_path)
    without = Without(person)
    experiment_id = person.begin("--no-baseline", "--budget-trials", "2")
    store = ExperimentStore(StateHome(str(person.home)))

    def kept(phase: str) -> None:
        state = store.load(experiment_id)
        assert (state.phase, len(state.rows)) == (phase, rows)
        assert phase in without.ok("experiment", "status", "--json")
        assert experiment_id in without.ok("experiment", "list")

    rows = 0
    without.fails("experiment", "trial", "--", "sh", "-c", works_at(50))  # measure
    kept("started")
    person.ok("experiment", "resume")
    kept("ready")
    without.fails("experiment", "trial", "--", "sh", "-c", works_at(50))  # admit
    kept("ready")
    without.fails("experiment", "stop")  # complete
    kept("ready")
    store.append(
        experiment_id,
        TrialAdmitted(TrialRow(1, "h-1"), ExperimentUsage(trials=1), "running"),
        ts="2026-01-02T03:04:05.000000Z",
    )
    rows = 1
    without.fails("experiment", "resume")  # conclude
    kept("running")
    assert person.tries(works_at(50))["status"] == "accepted"
    rows = 2
    kept("completed")
    assert store.load(experiment_id).completed_reason == "budget_trials"
    without.fails("experiment", "resume", "--add-trials", "3")  # reopen
    kept("completed")
    person.ok("experiment", "resume", "--add-trials", "3")
    kept("ready")
    phases = [
        (entry.kind, entry.data["phase"]) for entry in store.read(experiment_id) if entry.data.get("phase")
    ]
    assert phases == [
        ("baseline", "ready"),
        ("iteration", "running"),
        ("failed", "ready"),
        ("iteration", "running"),
        ("accepted", "ready"),
        ("completed", "completed"),
        ("amended", "ready"),
    ]
