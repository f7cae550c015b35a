"""What a newcomer reads of an experiment: why a trial came to nothing, what cannot be told, what to type next."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.surfaces.support.command_line import at_terminal
from tests.surfaces.support.experiments import START, Researcher, works_at

README = Path(__file__).parents[3] / "README.md"


@pytest.fixture
def person(tmp_path: Path) -> Researcher:
    """Somebody with a program that has a cost."""
    return Researcher(tmp_path)


@pytest.mark.requirement("DRIVE-04")
def test_the_status_says_why_a_trial_came_to_nothing(person: Researcher) -> None:
    person.begin()
    person.tries("echo 'echo METRIC ms=1' > measure.sh", status=9)
    person.tries("printf 'out of \\033[2J credit'; exit 3", status=9)
    person.tries(works_at(200), status=9)
    said = person.ok("experiment", "status").partition("trial 1: ")[2]
    frozen, failed = said.splitlines()[:2]
    assert "measure.sh" in frozen
    assert failed.startswith("trial 2: ")
    assert "out of" in failed
    assert "\x1b" not in said
    assert "trial 3" not in said, "what the judge said stands in the table"


@pytest.mark.requirement("DRIVE-08")
def test_a_few_pairs_tell_no_noise_and_say_so_in_plan_status_and_report(person: Researcher) -> None:
    person.write("work.sh", "#!/bin/sh\necho $((1000 + $(od -An -N2 -tu2 /dev/urandom) % 997))\n", mode=0o755)
    person.commit("Be noisy")
    said = person.ok(*START)
    few = "2 pairs of base against base cannot show the noise"
    assert few in said
    assert "standard deviations of a run is detected about four times in five" in said, (
        "no percentage is made up"
    )
    status = person.ok("experiment", "status")
    assert few in status
    assert "usually seen" not in status
    report = person.ok("experiment", "report").replace("\\", "")
    assert few in report
    assert "unknown" in report.partition("Smallest gain that can be seen")[2].splitlines()[0]


@pytest.mark.requirement("DRIVE-01")
def test_the_smallest_budget_of_runs_that_is_taken_brings_a_trial_to_its_end(person: Researcher) -> None:
    said = person.refused(*START, "--budget-runs", "17", status=2)
    assert "--budget-runs: must be 18 or more" in said
    person.begin("--budget-runs", "18")
    row = person.drive(works_at(50), "--trials", "1", "--no-verify")["experiment"]["rows"][0]
    assert (row["status"], row["reason_code"]) == ("accepted", "improved")


def test_the_mission_of_the_readme_can_be_typed_as_it_stands(person: Researcher) -> None:
    text = README.read_text().replace("\\\n", " ")
    found = re.search(r"^    omx-autoresearch (init .*--type experiment.*)$", text, re.MULTILINE)
    assert found is not None
    person.write("check.py", "")
    person.commit("Have a check")
    task_id = person.json(*shlex.split(found[1]))["task_id"]
    person.ok("start", task_id)
    assert person.json("experiment", "list") == []
    assert person.json(*START, "--task", task_id[:13])["experiment"]["task_id"] == task_id


@pytest.mark.requirement("DRIVE-13")
def test_a_list_tells_which_project_each_experiment_is_of(person: Researcher) -> None:
    person.begin()
    header, line = (text.split("\t") for text in person.ok("experiment", "list").splitlines())
    assert line[header.index("PROJECT")].endswith(person.project.name)


@pytest.mark.requirement("DRIVE-12")
def test_in_a_pipe_each_result_is_said_once(person: Researcher) -> None:
    person.begin()
    command = ("sh", "-c", works_at(50))
    for verb in (("trial", "--", *command), ("verify",), ("accept", "--yes")):
        done = person.run("experiment", *verb)
        assert done.returncode == 0, done.stderr
        said = (done.stdout + done.stderr).splitlines()
        results = [line for line in said if line.startswith(("trial 1 accepted", "Verified:"))]
        assert len(results) == 1, (verb, said)


@pytest.mark.requirement("DRIVE-14")
def test_after_a_verified_gain_the_owner_is_told_to_accept_and_a_no_is_said(person: Researcher) -> None:
    experiment_id = person.begin()
    said = person.drive(works_at(50), "--trials", "1")
    assert said["experiment"]["next"] == f"omx-autoresearch experiment accept {experiment_id}"
    shown = at_terminal(person, "experiment", "accept", answers=(("Apply this to your checkout?", "n"),))
    assert shown.status == 130
    assert "Not applied; nothing was changed" in shown.text
    person.tries(works_at(40))
    assert " run " in person.experiment()["next"], "the newest step is not verified yet"


@pytest.mark.requirement("DRIVE-10")
def test_a_command_that_fails_or_cannot_be_started_is_called_a_command(person: Researcher) -> None:
    person.begin()
    row = person.tries("exit 3", status=9)
    assert row["reason_code"] == "change_failed"
    assert row["reason"].startswith("the command ended with exit status 3")
    said = person.refused("experiment", "trial", "--", "no-such-program", "a;b", status=2)
    assert "no-such-program: no such program on PATH" in said
    assert person.experiment()["usage"]["trials"] == 1


def test_every_form_of_a_guard_of_a_trial_and_of_no_limit_stands_in_the_help(person: Researcher) -> None:
    said = " ".join(person.ok("experiment", "start", "--help").split())
    assert "`name:+5`" in said
    assert said.count("0 for no limit") == 4
    assert "`trial METRIC GAIN[%]`" in " ".join(person.ok("init", "--help").split())
