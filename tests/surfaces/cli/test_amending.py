"""amend, and what start may add: sandbox.md and the contract stay one."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.surfaces.support.command_line import at_terminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.surfaces.support.command_line import Person


def _sandbox(person: Person, slug: str = "answer") -> Path:
    return person.project / ".omx" / "specs" / f"autoresearch-{slug}" / "sandbox.md"


@pytest.mark.requirement("LIFE-05")
def test_an_amendment_begins_where_the_last_one_ended(person: Person) -> None:
    person.write("other.sh", "#!/bin/sh\nexit 1\n", mode=0o755)
    task_id = person.start()
    person.ok("block", task_id, "--reason", "stuck", "--needs", "time")
    person.ok("unblock", task_id, "--add-hours", "3")
    person.ok("amend", task_id, "--validator", "./other.sh", "--protect", "*.toml")
    amended = person.json("amend", task_id, "--limit", "refusals_total=7")
    assert amended["validator_command"] == "./other.sh"
    assert (amended["limits"]["refusals_total"], amended["limits"]["wall_clock_hours"]) == (7, 27)
    assert "*.toml" in _sandbox(person).read_text()
    assert person.json("status", task_id)["notices"] == []


@pytest.mark.requirement("LIFE-05")
def test_a_limit_alone_voids_no_verdict_and_any_other_change_names_what_it_voids(person: Person) -> None:
    task_id = person.start()
    person.write("answer.txt", "42\n")
    person.ok("validate", task_id)
    said = person.ok("amend", task_id, "--limit", "refusals_total=7")
    assert "does not count" not in said
    assert "nothing; the agent's next stop completes it" in person.ok("status", task_id, "--look")
    said = person.ok("amend", task_id, "--timeout", "33")
    assert "was under the contract before this change and does not count any more" in said
    assert f"omx-autoresearch validate {task_id}" in said
    assert "a passing run of its validator" in person.ok("status", task_id, "--look")


@pytest.mark.requirement("LIFE-05")
def test_an_edit_of_sandbox_md_is_reported_and_counts_only_from_the_next_amendment(person: Person) -> None:
    person.write("other.sh", "#!/bin/sh\nexit 1\n", mode=0o755)
    task_id = person.start()
    sandbox = _sandbox(person)
    sandbox.write_text(sandbox.read_text().replace("./check.sh", "./other.sh") + "\nA remark of mine.\n")
    (notice,) = person.json("status", task_id)["notices"]
    assert "sandbox.md" in notice
    assert f"omx-autoresearch amend {task_id}" in notice
    assert "answer.txt must hold 42" in person.run("validate", task_id).stdout
    refused = person.run("amend", task_id, "--reason", "as edited")
    assert refused.returncode == 5
    assert "validator_command: ./check.sh -> ./other.sh" in refused.stderr
    assert f"amend {task_id} --take-edits" in refused.stderr
    assert person.json("amend", task_id, "--take-edits")["validator_command"] == "./other.sh"
    assert person.json("status", task_id)["notices"] == []
    assert sandbox.read_text().endswith("\nA remark of mine.\n")


@pytest.mark.requirement("LIFE-05", "LIFE-14")
def test_options_of_an_amendment_leave_an_edit_in_the_file_until_it_is_taken(person: Person) -> None:
    person.write("other.sh", "#!/bin/sh\nexit 1\n", mode=0o755)
    task_id = person.start()
    sandbox = _sandbox(person)
    sandbox.write_text(sandbox.read_text().replace("./check.sh", "./other.sh"))
    amended = person.json("amend", task_id, "--timeout", "60", "--reason", "more time")
    assert (amended["validator_command"], amended["limits"]["refusals_total"]) == ("./check.sh", 200)
    assert any("validator_command: ./check.sh -> ./other.sh" in note for note in amended["notes"])
    assert "timeout_seconds: 60" in sandbox.read_text()
    assert "./other.sh" in sandbox.read_text()
    assert any("sandbox.md" in notice for notice in person.json("status", task_id)["notices"])
    taken = person.json("amend", task_id, "--take-edits")
    assert taken["validator_command"] == "./other.sh"
    assert person.json("status", task_id)["notices"] == []


@pytest.mark.requirement("LIFE-14")
@pytest.mark.parametrize(("answer", "phase"), [("y", "running"), ("n", "draft")])
def test_an_edit_is_shown_at_a_terminal_and_taken_by_a_yes(person: Person, answer: str, phase: str) -> None:
    person.write("other.sh", "#!/bin/sh\nexit 1\n", mode=0o755)
    task_id = person.init()
    sandbox = _sandbox(person)
    sandbox.write_text(sandbox.read_text().replace("./check.sh", "./other.sh"))
    shown = at_terminal(person, "start", task_id, answers=(("Take these edits?", answer),))
    assert "validator_command: ./check.sh -> ./other.sh" in shown.text
    assert person.json("status", task_id)["phase"] == phase


@pytest.mark.requirement("LIFE-05")
def test_a_refused_amendment_changes_nothing(person: Person) -> None:
    task_id = person.start()
    before = _sandbox(person).read_bytes()
    done = person.run("amend", task_id, "--validator", "TODO")
    assert done.returncode == 3
    assert "placeholder" in done.stderr
    assert _sandbox(person).read_bytes() == before
    assert person.records(task_id, "mission_amended") == []


@pytest.mark.requirement("LIFE-05")
def test_an_amendment_whose_sandbox_md_cannot_be_written_is_not_recorded(person: Person) -> None:
    task_id = person.start()
    folder = _sandbox(person).parent
    shutil.rmtree(folder)
    folder.symlink_to(person.root / "unmounted")
    done = person.run("amend", task_id, "--limit", "refusals_total=7")
    assert done.returncode == 4
    assert "nothing was amended" in done.stderr
    assert "the same amend again" in done.stderr
    assert person.records(task_id, "mission_amended") == []
    folder.unlink()
    person.ok("amend", task_id, "--limit", "refusals_total=7")
    assert "refusals_total: 7" in _sandbox(person).read_text()


def test_an_amendment_may_choose_the_other_way_of_judging(person: Person) -> None:
    task_id = person.start()
    amended = person.json("amend", task_id, "--prompt", "Is it true?", "--output", "report.md")
    assert amended["validation_mode"] == "prompt-architect-artifact"
    back = person.json("amend", task_id, "--validator", "./check.sh")
    assert (back["validation_mode"], back["validator_command"]) == ("mission-validator-script", "./check.sh")


@pytest.mark.requirement("STATE-01")
def test_a_mission_whose_files_were_cleaned_away_can_be_amended(person: Person) -> None:
    task_id = person.start("answer", "--env", "MY_VARIABLE", "--limit", "idle_refusals=5")
    shutil.rmtree(person.project / ".omx")
    amended = person.json("amend", task_id, "--limit", "refusals_total=7")
    assert amended["validator_command"] == "./check.sh"
    assert (amended["limits"]["idle_refusals"], amended["limits"]["refusals_total"]) == (5, 7)
    assert amended["pinned_count"] == 1
    assert "./check.sh" in _sandbox(person).read_text()


def test_an_amendment_of_a_draft_is_in_its_file_when_it_starts(person: Person) -> None:
    task_id = person.init()
    person.ok("amend", task_id, "--limit", "refusals_total=7")
    assert person.json("start", task_id)["limits"]["refusals_total"] == 7


@pytest.mark.requirement("DONE-16")
def test_a_mission_with_nothing_to_freeze_starts_only_with_a_reason(person: Person) -> None:
    made = person.run("init", "--goal", "Write the answer", "--validator", "false", "--json")
    assert "could be frozen" in made.stdout
    refused = person.run("start")
    assert refused.returncode == 3
    assert "--unfrozen --reason" in refused.stderr
    assert person.run("start", "--unfrozen").returncode == 2
    started = person.json("start", "--unfrozen", "--reason", "it is a command of the system")
    assert started["pinned_count"] == 0
    assert "it is a command of the system" in person.ok("status")


def test_start_may_freeze_more_files(person: Person) -> None:
    person.write("limits.toml", "a = 1\n")
    task_id = person.init()
    assert person.json("start", task_id, "--protect", "*.toml")["pinned_count"] == 2
    done = person.run("start", task_id, "--protect", "*.md")
    assert done.returncode == 5
    assert f"omx-autoresearch amend {task_id}" in done.stderr


@pytest.mark.requirement("LIFE-05")
def test_an_amended_draft_is_said_to_be_one_and_shows_how_it_is_started(person: Person) -> None:
    task_id = person.init()
    text = person.ok("amend", task_id, "--timeout", "30")
    assert "is a draft" in text
    assert f"next: omx-autoresearch start {task_id}" in text
    assert "review" not in text
    assert "timeout_seconds: 30" in _sandbox(person).read_text()


@pytest.mark.requirement("DONE-22")
def test_a_check_that_could_not_be_run_at_the_start_may_be_made_a_program_since(person: Person) -> None:
    person.write("check.sh", "#!/bin/sh\nexit 1\n", mode=0o644)
    task_id = person.init()
    assert "not executable" in person.run("start", task_id).stderr
    person.ok("start", task_id, "--no-baseline")
    (person.project / "check.sh").chmod(0o755)
    assert "failed (exit-nonzero)" in person.run("validate").stdout


@pytest.mark.requirement("STATE-01")
@pytest.mark.parametrize("verb", ["repair", "amend"])
@pytest.mark.parametrize("name", ["mission.md", "sandbox.md", "result.json"])
def test_a_deleted_intake_file_is_written_anew(person: Person, verb: str, name: str) -> None:
    task_id = person.start()
    path = _sandbox(person).parent / name
    others = {other: other.read_bytes() for other in path.parent.iterdir() if other.name != name}
    path.unlink()
    person.ok(verb, task_id)
    assert path.read_bytes()
    if verb == "repair":
        assert {other: other.read_bytes() for other in others} == others
    assert person.json("amend", task_id)["validator_command"] == "./check.sh"
    assert person.json("status", task_id)["notices"] == []


def test_the_deleted_mission_md_of_a_draft_is_written_anew(person: Person) -> None:
    task_id = person.init()
    path = _sandbox(person).parent / "mission.md"
    before = path.read_bytes()
    path.unlink()
    person.ok("repair", task_id)
    assert path.read_bytes() == before
    person.ok("start", task_id)


@pytest.mark.requirement("LIFE-05")
@pytest.mark.parametrize("broken", ["---\nvalidator_command: [\n---\n", "nothing at all\n"])
def test_options_amend_a_mission_whose_sandbox_md_cannot_be_read(person: Person, broken: str) -> None:
    person.write("other.sh", "#!/bin/sh\nexit 1\n", mode=0o755)
    task_id = person.start("answer", "--limit", "idle_refusals=5")
    sandbox = _sandbox(person)
    sandbox.write_text(broken)
    refused = person.run("amend", task_id, "--reason", "as edited")
    assert refused.returncode == 3
    assert "sandbox.md" in refused.stderr
    assert sandbox.read_text() == broken
    said = person.ok("amend", task_id, "--validator", "./other.sh")
    assert "sandbox.replaced.md" in said
    assert sandbox.with_name("sandbox.replaced.md").read_text() == broken
    amended = person.json("amend", task_id)
    assert (amended["validator_command"], amended["limits"]["idle_refusals"]) == ("./other.sh", 5)


@pytest.mark.requirement("LIFE-05")
def test_a_mission_follows_its_project_where_that_was_moved(person: Person) -> None:
    task_id = person.start()
    moved = person.root / "moved here"
    person.project.rename(moved)
    refused = person.run("status", cwd=moved)
    assert refused.returncode == 6
    assert f"{person.project}, the project of mission {task_id}, is gone" in refused.stderr
    cure = f"omx-autoresearch amend {task_id} --workspace '{moved}'"
    assert cure in refused.stderr
    assert f"{person.project}, the project of {task_id}, is gone" in person.run("list", cwd=moved).stdout
    assert f"amend {task_id} --workspace PATH" in person.run("status", task_id, cwd=moved).stdout
    bare = person.run("amend", task_id, "--limit", "refusals_total=7", cwd=moved)
    elsewhere = person.run("amend", task_id, "--workspace", str(person.root), cwd=moved)
    assert (bare.returncode, elsewhere.returncode) == (6, 6)
    assert not person.project.exists()
    assert person.run("amend", task_id, "--workspace", str(moved), cwd=moved).returncode == 0
    shown = person.run("status", "--look", cwd=moved)
    assert f"files       {moved}/.omx/autoresearch/{task_id}" in " ".join(shown.stdout.split("\n"))
    (moved / "answer.txt").write_text("42\n")
    assert person.run("validate", cwd=moved).returncode == 0
    assert "is gone" not in person.run("list", cwd=moved).stdout
    assert not person.project.exists()
