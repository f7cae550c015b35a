"""An experiment of a mission: a stop is refused before the verified gain and allowed after it; nothing else counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.json_codec import decoder
from omx_autoresearch.foundation.records import sha256
from tests.surfaces.support.command_line import AGENT, at_terminal
from tests.surfaces.support.experiments import START, Researcher, works_at

if TYPE_CHECKING:
    from pathlib import Path

CRITERION = "faster: it is faster :: trial ms 20%"


class Owner(Researcher):
    """A researcher whose mission asks for a gain of 20 %."""

    def mission(self, *more: str) -> str:
        """Write the mission down, launch it, bind a session; the validator passes from the start."""
        task_id = self.start("faster", "--type", "experiment", "--criterion", CRITERION, *more)
        self.bind(task_id)
        return task_id

    def experiment_of(self, task_id: str, *more: str) -> str:
        """Start an experiment for it."""
        return self.begin("--task", task_id, *more)

    def stops(self, text: str = "Done.") -> str:
        """The agent works a little and stops; what it is told, empty when it may."""
        self.hook("PostToolUse", tool_name="Bash", tool_input={"command": "true"})
        answer = self.stop(last_assistant_message=text)
        return str(answer.get("reason", "")) if answer else ""


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    """Somebody with a slow program."""
    return Owner(tmp_path)


@pytest.mark.requirement("DRIVE-16")
def test_a_stop_is_refused_before_the_verified_gain_and_allowed_after_it(owner: Owner) -> None:
    task_id = owner.mission()
    refusal = owner.stops()
    assert "trial ms 20%" in refusal
    assert "no experiment of this mission measured ms" in refusal
    owner.experiment_of(task_id)
    owner.tries(works_at(90))
    owner.ok("experiment", "verify")
    refusal = owner.stops("Ten percent.")
    assert (
        "its verified gain is 10 % to 10 %; the rule requires 20 %; to go on: omx-autoresearch experiment trial"
        in refusal
    )
    owner.tries(works_at(70))
    assert "a step was accepted after its claim was verified" in owner.stops("Thirty, I say.")
    owner.ok("experiment", "verify")
    assert owner.stops("Thirty, verified.") == ""
    status = owner.json("status", task_id)
    assert status["status"] == "complete"
    (evidence,) = [item for item in owner.records(task_id, "finding_recorded") if item["finding"]["evidence"]]
    assert evidence["finding"]["kind"] == "benchmark"


@pytest.mark.requirement("DRIVE-15")
def test_accepted_trials_are_told_once_and_reset_the_stale_count(owner: Owner) -> None:
    task_id = owner.mission("--limit", "idle_refusals=50")
    experiment_id = owner.experiment_of(task_id)
    owner.stops("one")
    owner.stops("two")
    assert owner.json("status", task_id)["stale_count"] > 0
    owner.tries(works_at(90))
    owner.stops("three")
    assert owner.json("status", task_id)["stale_count"] == 0
    owner.tries(works_at(95), status=9)
    owner.stops("four")
    assert owner.json("status", task_id)["stale_count"] == 1, "a rejected trial is no progress"
    assert owner.records(task_id, "experiment_linked") == [{"experiment_id": experiment_id, "metric": "ms"}]
    told = owner.records(task_id, "trials_accepted")
    assert [(item["experiment_id"], item["iterations"]) for item in told] == [(experiment_id, [1])]


@pytest.mark.requirement("DRIVE-15")
def test_what_a_killed_process_did_not_tell_is_told_at_the_next_look(owner: Owner) -> None:
    task_id = owner.mission()
    owner.experiment_of(task_id)
    owner.tries(works_at(50))
    journal = owner.journal(task_id)
    owner.ok("experiment", "verify")
    lines = journal.read_text().splitlines()
    cut = next(n for n, line in enumerate(lines) if json.loads(line)["kind"] == "trials_accepted")
    journal.write_text("".join(line + "\n" for line in lines[:cut]))
    owner.run("repair", task_id, "--accept")
    assert owner.records(task_id, "trials_accepted") == []
    assert owner.stops() == ""
    assert len(owner.records(task_id, "trials_accepted")) == 1
    assert len(owner.records(task_id, "gain_verified")) == 1


def forged(path: Path, change: Any) -> None:
    """Rewrite a log with a sound chain: what somebody could do who writes where only the runtime should."""
    prev, text = "", ""
    for before in path.read_text().splitlines():
        entry = decoder(dict)(before)
        change(entry)
        entry["prev"] = prev if text else entry["prev"]
        line = json.dumps(entry, separators=(",", ":"), ensure_ascii=False)
        prev = sha256(line.encode()).hexdigest()
        text += line + "\n"
    path.write_text(text)


@pytest.mark.requirement("DRIVE-17")
def test_a_claim_that_the_recorded_runs_do_not_bear_out_does_not_count(owner: Owner) -> None:
    task_id = owner.mission()
    experiment_id = owner.experiment_of(task_id)
    owner.tries(works_at(95))
    owner.ok("experiment", "verify")
    path = owner.home / "experiments" / experiment_id / "events.jsonl"

    def better(entry: dict[str, Any]) -> None:
        if entry["kind"] == "verified":
            entry["data"]["claim"].update(estimate=0.9, interval=[0.9, 0.9], final=10.0)

    before = path.read_text()
    forged(path, dict.copy)
    assert path.read_text() == before, "the forger knows the form of the log"
    forged(path, better)
    assert "its claim does not match the recorded runs" in owner.stops()
    path.write_text(before.replace('"estimate":0.05', '"estimate":0.95'))
    refusal = owner.stops("Again.")
    assert "cannot be trusted" in refusal
    assert "events.jsonl" in refusal


@pytest.mark.requirement("DRIVE-17")
def test_an_experiment_that_was_not_started_for_the_mission_does_not_count(owner: Owner) -> None:
    task_id = owner.mission()
    owner.begin()
    owner.tries(works_at(10))
    owner.ok("experiment", "verify")
    assert "no experiment of this mission measured ms" in owner.stops()
    assert owner.records(task_id, "trials_accepted") == []


@pytest.mark.requirement("DRIVE-17")
def test_words_of_an_agent_and_hand_written_files_stay_claims(owner: Owner) -> None:
    task_id = owner.mission()
    owner.experiment_of(task_id)
    said = ("--summary", "ms is 90 % lower, verified", "--kind", "benchmark", "--criterion", "faster")
    document = owner.json("finding", "add", task_id, *said, env=AGENT)
    assert document["accepted"] is False
    assert "trial ms 20%" in document["reason"]
    owner.ok("note", task_id, "ms is 90 % lower", env=AGENT)
    artifact = owner.project / ".omx" / "specs" / "autoresearch-faster" / "completion.json"
    artifact.write_text(json.dumps({"status": "passed", "passed": True, "summary": "90 % faster"}))
    assert "no verified claim yet: omx-autoresearch experiment trial --experiment " in owner.stops()


@pytest.mark.requirement("DRIVE-16")
def test_a_removed_experiment_is_not_taken_for_a_damaged_one(owner: Owner) -> None:
    task_id = owner.mission()
    owner.ok("experiment", "remove", owner.experiment_of(task_id), "--yes")
    refusal = owner.stops()
    assert (
        f"no experiment of this mission measured ms: omx-autoresearch experiment start --task {task_id}"
        in refusal
    )
    assert "cannot be trusted" not in refusal


def test_a_mission_whose_experiment_fails_its_held_out_check_is_not_complete(
    owner: Owner, tmp_path: Path
) -> None:
    secret = tmp_path / "held-out"
    secret.write_text('#!/bin/sh\ntest "$(./work.sh)" -ge 60\n')
    secret.chmod(0o755)
    task_id = owner.mission()
    owner.experiment_of(task_id, "--held-out", str(secret))
    row = owner.tries(works_at(50), status=9)
    assert row["reason_code"] == "held_out_failed"
    assert owner.tries(works_at(65))["status"] == "accepted"
    owner.ok("experiment", "verify")
    assert owner.stops() == ""


def test_an_experiment_in_the_missions_own_session_belongs_to_it(owner: Owner) -> None:
    task_id = owner.mission()
    started = owner.json(*START, env=AGENT)
    assert started["experiment"]["task_id"] == task_id
    assert len(owner.records(task_id, "experiment_linked")) == 1
    assert owner.experiment(task_id)["experiment_id"] == started["experiment"]["experiment_id"]


def test_a_draft_and_an_ended_mission_take_no_experiment(owner: Owner) -> None:
    task_id = owner.init("faster", "--criterion", CRITERION)
    assert "has not been started, so no experiment" in owner.refused(*START, "--task", task_id, status=5)
    owner.ok("start", task_id)
    assert "has no experiment yet" in owner.refused("experiment", "status", task_id, status=2)
    owner.ok("cancel", task_id)
    assert "has ended (cancelled), so no experiment" in owner.refused(*START, "--task", task_id, status=5)


@pytest.mark.requirement("DRIVE-01")
def test_the_block_of_the_missions_sandbox_configures_and_survives_an_amendment(owner: Owner) -> None:
    task_id = owner.init("faster", "--criterion", CRITERION)
    path = owner.project / ".omx" / "specs" / "autoresearch-faster" / "sandbox.md"
    head, _, below = path.read_text().removeprefix("---\n").partition("\n---\n")
    block = (
        "experiment:\n  metric: ms\n  measure: ./measure.sh\n  check: ./check.sh\n  calibration_pairs: 2\n"
    )
    path.write_text(f"---\n{head}\n{block}---\n{below}")
    said = owner.refused("start", task_id, status=5)
    assert "  - experiment.measure: nothing -> ./measure.sh\n" in said
    assert "  experiment  metric: ms\n" in owner.ok("start", task_id, "--take-edits")
    owner.ok("amend", task_id, "--limit", "refusals_total=50")
    assert block.splitlines()[1] in path.read_text()
    started = owner.json("experiment", "start", "--task", task_id, "--budget-trials", "3")
    state = started["experiment"]
    assert (state["metric"], state["limits"]["trials"], state["calibration"]["pairs"]) == ("ms", 3, 2)


@pytest.mark.requirement("LIFE-14", "DRIVE-01")
def test_an_owner_sees_what_was_edited_in_the_block_since_and_takes_it_or_not(owner: Owner) -> None:
    task_id = owner.init("faster", "--criterion", CRITERION)
    path = owner.project / ".omx" / "specs" / "autoresearch-faster" / "sandbox.md"
    head, _, below = path.read_text().removeprefix("---\n").partition("\n---\n")
    block = (
        "experiment:\n  metric: ms\n  measure: ./measure.sh\n  check: ./check.sh\n  calibration_pairs: 2\n"
    )
    path.write_text(f"---\n{head}\n{block}---\n{below}")
    owner.ok("start", task_id, "--take-edits")
    start = ("experiment", "start", "--task", task_id)
    path.write_text(path.read_text().replace("check: ./check.sh", "check: 'true'"))
    said = owner.refused(*start, status=5)
    assert "  - experiment.check: ./check.sh -> true\n" in said
    assert f"next: read them, then: omx-autoresearch {' '.join(start)} --take-edits" in said
    assert "experiment.metric" not in said
    shown = at_terminal(owner, *start, answers=(("Take these edits?", "n"),))
    assert shown.status == 130
    assert owner.json("experiment", "list") == []
    told = owner.run(*start, "--take-edits").stderr
    assert f"from {path}:\n  metric: ms\n  measure: ./measure.sh\n  check: true\n" in told
    owner.ok("experiment", "cancel")
    owner.ok(*start)  # what was taken is accepted


@pytest.mark.requirement("LIFE-14")
def test_a_code_takes_the_block_that_was_shown_with_it_and_no_other(owner: Owner) -> None:
    task_id = owner.init("faster", "--criterion", CRITERION)
    path = owner.project / ".omx" / "specs" / "autoresearch-faster" / "sandbox.md"
    head, _, below = path.read_text().removeprefix("---\n").partition("\n---\n")
    block = "experiment:\n  metric: ms\n  measure: ./measure.sh\n  check: ./check.sh\n"
    path.write_text(f"---\n{head}\n{block}---\n{below}")

    def typed(prompt: str) -> str:
        return str(owner.hook("UserPromptSubmit", prompt=prompt)["hookSpecificOutput"]["additionalContext"])

    first = typed(f"$autoresearch {task_id}")
    assert "experiment.check: nothing -> ./check.sh" in first
    path.write_text(path.read_text().replace("check: ./check.sh", "check: 'true'"))
    line = first.partition("type: ")[2].split("\n")[0]
    second = typed(line)
    assert "experiment.check: nothing -> true" in second
    typed(second.partition("type: ")[2].split("\n")[0])
    assert owner.json("status", task_id)["phase"] == "running"


@pytest.mark.requirement("DRIVE-15")
def test_a_failed_experiment_blocks_its_mission_until_the_owner_lets_it_go_on(owner: Owner) -> None:
    task_id = owner.mission()
    owner.write("broken.sh", "#!/bin/sh\necho METRIC ms=NaN\n", mode=0o755)
    owner.commit("Add a measurement that measures nothing")
    broken = [item.replace("./measure.sh", "./broken.sh") for item in START]
    owner.refused(*broken, "--task", task_id, status=7)
    status = owner.json("status", task_id)
    assert (status["phase"], "its experiment failed" in status["blocker"]) == ("blocked", True)
    owner.ok("unblock", task_id)
    owner.experiment_of(task_id)
    assert owner.json("status", task_id)["phase"] == "running"


def test_an_experiment_mission_needs_a_criterion_of_a_trial(owner: Owner) -> None:
    said = owner.refused(
        *("init", "--goal", "Faster", "--type", "experiment", "--validator", "./check.sh"), status=3
    )
    assert "trial METRIC GAIN%" in said
    task_id = owner.mission()
    spec = json.loads((owner.project / ".omx/autoresearch" / task_id / "state/task_spec.json").read_text())
    assert spec["task_type"] == "experiment"


@pytest.mark.requirement("DRIVE-16")
def test_in_a_linked_work_tree_the_gain_counts_for_the_mission_that_works_there(owner: Owner) -> None:
    tree = owner.root / "tree"
    owner.git("worktree", "add", "--quiet", str(tree))

    def there(*arguments: str) -> Any:
        done = owner.run(*arguments, cwd=tree)
        assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    there(
        "init", "--goal", "Faster", "--slug", "faster", "--validator", "./check.sh", "--criterion", CRITERION
    )
    there("start", "faster")
    there(*START, "--task", "faster")
    there("experiment", "trial", "--", "sh", "-c", works_at(50))
    there("experiment", "verify")
    assert "faster\tsatisfied" in there("criterion", "check", "faster")
    assert "trial ms 20%" in there("criterion", "list", "faster")


@pytest.mark.requirement("DRIVE-17")
def test_what_an_agents_own_commands_measure_meets_no_criterion_and_is_no_progress(owner: Owner) -> None:
    """Else an agent that may choose the measure would say which number it likes."""
    task_id = owner.mission("--limit", "idle_refusals=50")
    started = owner.json(*START, env=AGENT)
    assert any("an agent chose the evaluators" in note for note in started["notes"])
    owner.tries(works_at(1))
    owner.ok("experiment", "verify")
    refusal = owner.stops()
    assert "and chose its commands, so it does not count" in refusal
    assert f"experiment start --task {task_id}" in refusal
    assert owner.records(task_id, "trials_accepted") == []
    owner.experiment_of(task_id)
    owner.ok("experiment", "cancel", started["experiment"]["experiment_id"])
    owner.tries(works_at(70))
    owner.ok("experiment", "verify")
    assert owner.stops() == ""
