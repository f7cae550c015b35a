"""The command line within the worktrees of an experiment, where an agent must work: it means that experiment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.support.command_line import AGENT
from tests.surfaces.support.experiments import START, Researcher


@pytest.fixture
def person(tmp_path: Path) -> Researcher:
    """Somebody with two experiments under way in one checkout, so that only the worktree tells which one is meant."""
    person = Researcher(tmp_path)
    person.begin("--name", "older")
    person.begin("--name", "newer")
    return person


def worktree(person: Researcher, name: str, arm: str, folder: str = "") -> Path:
    """A folder of a worktree; ``workspace`` prints the candidate's."""
    candidate = Path(person.ok("experiment", "workspace", name).strip())
    path = candidate.with_name(arm) / folder
    path.mkdir(parents=True, exist_ok=True)
    return path


def told(person: Researcher, cwd: Path, *arguments: str, status: int = 0) -> Any:
    done = person.run("experiment", *arguments, "--json", cwd=cwd, env=AGENT)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)


PLACES = (("candidate", ""), ("incumbent", ""), ("candidate", "deep"))


@pytest.mark.requirement("DRIVE-19")
def test_a_verb_within_a_worktree_means_its_experiment_unless_another_one_is_named(
    person: Researcher,
) -> None:
    for name in ("older", "newer"):
        for arm, folder in PLACES:
            cwd = worktree(person, name, arm, folder)
            assert told(person, cwd, "status")["name"] == name
            candidate = worktree(person, name, "candidate")
            assert told(person, cwd, "workspace")["workspace_path"] == str(candidate)
    cwd = worktree(person, "older", "candidate")
    assert told(person, cwd, "status", "newer")["name"] == "newer"
    assert sorted(item["name"] for item in told(person, cwd, "list")) == ["newer", "older"]


@pytest.mark.requirement("CLI-01", "DRIVE-19")
def test_a_mission_verb_within_a_worktree_means_the_mission_of_its_project(person: Researcher) -> None:
    task_id = person.json("init", "--goal", "Count faster", "--validator", "./check.sh")["task_id"]
    for arm, folder in PLACES:
        done = person.run("readiness", cwd=worktree(person, "older", arm, folder))
        assert (done.returncode, task_id in done.stderr) == (5, True), done.stderr


@pytest.mark.requirement("DRIVE-10", "DRIVE-19")
def test_an_agent_has_its_change_judged_from_within_the_worktree(person: Researcher) -> None:
    candidate = worktree(person, "older", "candidate")
    (candidate / "work.sh").write_text("#!/bin/sh\necho 50\n")
    row = told(person, candidate, "trial", "--seconds", "60")["row"]
    assert (row["status"], row["metric"]) == ("accepted", 50.0)
    assert [len(person.experiment(name)["rows"]) for name in ("older", "newer")] == [1, 0]


@pytest.mark.requirement("DRIVE-19")
def test_nothing_begins_within_a_worktree_of_an_experiment_or_elsewhere_in_the_state_home(
    person: Researcher,
) -> None:
    elsewhere = person.root / "elsewhere"
    candidate = worktree(person, "older", "candidate")
    subprocess.run(["git", "-C", candidate, "worktree", "add", "--quiet", "--detach", elsewhere], check=True)
    mission = ("init", "--goal", "g", "--validator", "./check.sh")
    places = [worktree(person, "older", arm, folder) for arm, folder in PLACES]
    for cwd in (*places, elsewhere):
        for begin in (START, (*START, "--dry-run"), mission, (*mission, "--dry-run")):
            done = person.run(*begin, cwd=cwd)
            assert done.returncode == 2, done.stdout
            assert "-older; nothing else can start in its worktrees" in done.stderr
            assert "next: omx-autoresearch experiment status " in done.stderr
    clone = person.home / "clone"
    person.git("clone", "--quiet", ".", str(clone))
    done = person.run(*START, cwd=clone)
    assert done.returncode == 2
    assert "is inside the state home" in done.stderr
    assert [item["name"] for item in person.json("experiment", "list")] == ["newer", "older"]
    assert person.json("list") == []
