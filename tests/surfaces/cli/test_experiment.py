"""An experiment from the command line, from its start to the accepted patch."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.cli.test_json import DOCUMENTS, check
from tests.surfaces.support.command_line import AGENT, PROGRAM, at_terminal
from tests.surfaces.support.experiments import START, Researcher, works_at

PATCH = """\
diff --git a/work.sh b/work.sh
--- a/work.sh
+++ b/work.sh
@@ -1,2 +1,2 @@
 #!/bin/sh
-echo 50
+echo 40
"""


@pytest.fixture
def person(tmp_path: Path) -> Researcher:
    """Somebody with a program that has a cost."""
    return Researcher(tmp_path)


def untouched(person: Researcher) -> bool:
    """The checkout stands as it was committed."""
    said = subprocess.run(
        ["git", "-C", str(person.project), "status", "--porcelain"],
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout == ""


@pytest.mark.slow
@pytest.mark.requirement("DRIVE-13")
def test_every_verb_prints_what_its_schema_says(person: Researcher, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    seen: dict[str, Any] = {}

    def ask(verb: str, *arguments: str, status: int = 0) -> Any:
        seen[verb] = person.json("experiment", verb, *arguments, status=status)
        check(DOCUMENTS[f"experiment {verb}"][0], seen[verb])
        return seen[verb]

    ask("start", *START[2:], "--dry-run")
    ask("start", *START[2:])
    ask("workspace")
    ask("run", "--agent", works_at(50), "--trials", "1")
    path = tmp_path / "change.patch"
    path.write_text(PATCH)
    ask("trial", "--patch", str(path))
    ask("wait")
    ask("verify")
    ask("status")
    ask("list")
    ask("plot", "--output", str(tmp_path / "plot.svg"))
    ask("report", "--output", str(tmp_path / "report.md"))
    ask("export", "--format", "jsonl", "--output", str(tmp_path / "trials.jsonl"))
    ask("patch")
    ask("resume", "--add-trials", "5")
    ask("finalize", "--prefix", "review")
    ask("stop")
    assert untouched(person)
    ask("accept", "--yes")
    ask("close")
    ask("remove", "--yes")
    person.git("reset", "--quiet", "--hard")
    person.json(*START)
    ask("cancel")
    check("error", person.json("experiment", "status", "nothing", status=2))
    assert {f"experiment {verb}" for verb in seen} == {
        path for path in DOCUMENTS if path.startswith("experiment ")
    }


@pytest.mark.requirement("ACC-13", "DRIVE-08")
def test_a_start_says_what_is_frozen_what_a_trial_costs_and_what_comes_next(person: Researcher) -> None:
    done = person.run(*START, "--budget-hours", "1")
    assert done.returncode == 0, done.stderr
    assert "frozen: 2 files: check.sh, measure.sh" in done.stderr
    assert "a trial without effect: about" in done.stdout
    assert "the budget holds 20 trials" in done.stdout
    assert "any gain is detected: every run of the base gave the same value" in done.stdout
    assert "next: omx-autoresearch experiment run " in done.stdout
    assert untouched(person)


@pytest.mark.requirement("DRIVE-08")
def test_a_budget_that_holds_no_trial_is_said_with_what_to_raise(person: Researcher) -> None:
    said = person.ok("experiment", "start", *START[2:], "--budget-runs", "18", "--dry-run")
    assert "the budget holds no trial" in said
    assert "raise --budget-runs" in said
    assert "{" not in said


@pytest.mark.requirement("DRIVE-08")
def test_a_long_calibration_is_announced_with_the_plan_after_the_first_runs(person: Researcher) -> None:
    from omx_autoresearch.experiments.configuration import configure
    from omx_autoresearch.surfaces.cli.experiment import LineProgress
    from omx_autoresearch.surfaces.cli.experiment_start import PlanTeller

    said: list[str] = []

    class Heard(LineProgress):
        def note(self, text: str) -> None:
            said.append(text)

    config = configure({"metric": "ms", "measure": "./m", "check": "./c", "budget_hours": 8})
    plans = PlanTeller(config, Heard(lambda: None))  # type: ignore[arg-type, return-value]
    run = {"type": "measured", "stage": "warmup", "fault": "", "wall_seconds": 300.0}
    plans(run)
    assert said == []
    plans(run)
    text = "\n".join(said)
    assert "a run takes 300.0 s, so calibration will take about 2 h 30 min" in text
    assert "standard deviations of a run is detected about four times in five" in text
    assert "cheaper: --rule median" in text
    assert "the budget holds" in text


def test_a_dry_run_begins_nothing(person: Researcher) -> None:
    document = person.json(*START, "--dry-run")
    assert (document["dry_run"], document["experiment"]) == (True, None)
    assert person.json("experiment", "list") == []


@pytest.mark.requirement("DRIVE-01")
def test_a_start_tells_every_fault_of_its_options(person: Researcher) -> None:
    said = person.refused("experiment", "start", "--guard", "x", "--min-effect", "y", status=2)
    for word in (
        "metric: a metric needs a name",
        "measure: no shell command is given",
        "a guard is",
        "a number, or a share",
    ):
        assert word in said


def test_an_unclean_checkout_and_a_failing_check_are_refused_with_the_reason(person: Researcher) -> None:
    person.write("work.sh", "#!/bin/sh\necho 99\n", mode=0o755)
    assert "work.sh" in person.refused(*START, status=6)
    person.git("checkout", "--quiet", "work.sh")
    person.write("answer.sh", "#!/bin/sh\necho 41\n", mode=0o755)
    person.commit("Break it")
    assert "the unchanged repository cannot be measured" in person.refused(*START, status=7)
    assert person.experiment()["completed_reason"] == "failure"


@pytest.mark.requirement("DRIVE-07")
def test_the_morning_has_a_table_one_number_and_a_patch(person: Researcher) -> None:
    person.begin()
    script = (
        "n=$(sed -n 's/^Trial \\([0-9]*\\)\\. Left.*/\\1/p'); case $n in"
        f" 1) {works_at(80)}; echo 'HYPOTHESIS: fewer steps';;"
        f" 2) {works_at(300)}; echo 'HYPOTHESIS: no use';;"
        " 3) echo 'echo METRIC ms=1' > measure.sh;;"
        " 4) exit 1;;"
        " 5) echo 'echo 41' > answer.sh;;"
        " 6) printf '#!/bin/sh\\necho NaN\\n' > work.sh;;"
        " 7) true;;"
        f" 8) {works_at(60)}; echo 'HYPOTHESIS: fewer still';; esac"
    )
    document = person.drive(script, "--trials", "8")
    assert (document["trials"], document["reason"]) == (8, "trials")
    rows = document["experiment"]["rows"]
    assert [(row["status"], row["reason_code"]) for row in rows] == [
        ("accepted", "improved"),
        ("rejected", "not_better"),
        ("rejected", "tampered"),
        ("failed", "agent_failed"),
        ("rejected", "check_failed"),
        ("failed", "metric_not_finite"),
        ("rejected", "no_change"),
        ("accepted", "improved"),
    ]
    assert "ms is 40 % lower than at the base" in document["experiment"]["result"]
    patch = person.run("experiment", "patch").stdout
    assert "+echo 60" in patch
    assert "measure.sh" not in patch
    assert untouched(person)


@pytest.mark.requirement("DRIVE-14")
def test_accept_shows_asks_and_takes_the_patch_without_committing(person: Researcher) -> None:
    person.begin()
    person.drive(works_at(50), "--trials", "1")
    assert "there is no terminal for the question" in person.refused("experiment", "accept", status=2)
    shown = at_terminal(person, "experiment", "accept", answers=(("Apply this to your checkout?", "n"),))
    assert shown.status == 130
    assert untouched(person), "no is no"
    shown = at_terminal(person, "experiment", "accept", answers=(("Apply this to your checkout?", "y"),))
    assert "work.sh" in shown.text
    assert "ms is 50 % lower than at the base" in shown.text
    assert shown.status == 0
    assert (person.project / "work.sh").read_text() == "#!/bin/sh\necho 50\n"
    assert person.experiment()["completed_reason"] == "final_patch"


@pytest.mark.requirement("DRIVE-14")
def test_accept_measures_nothing_where_nothing_can_be_taken_or_no_terminal_is_there(
    person: Researcher,
) -> None:
    person.begin()
    for more in ((), ("--yes",)):
        assert "nothing was accepted" in person.refused("experiment", "accept", *more, status=5)
    person.drive(works_at(50), "--trials", "1", "--no-verify")
    said = person.refused("experiment", "accept", status=2)
    assert "there is no terminal for the question" in said
    assert "measuring" not in said
    assert "Not verified yet" in person.experiment()["result"]


def test_a_start_whose_measurement_is_json_names_the_command_that_reads_it(person: Researcher) -> None:
    person.write("measure.sh", "#!/bin/sh\necho '{\"ms\": 11.8}'\n", mode=0o755)
    person.commit("Print JSON")
    said = person.refused(*START, status=7)
    next_command = said.partition("next: ")[2].strip()
    assert next_command == (
        "omx-autoresearch experiment start --metric ms --measure ./measure.sh --check ./check.sh --source json:ms"
    )
    person.ok(*shlex.split(next_command)[1:], "--calibration-pairs", "2")


@pytest.mark.requirement("DRIVE-14")
def test_accept_is_refused_where_the_checkout_moved_and_warns_without_a_gain(person: Researcher) -> None:
    person.begin("--rule", "median", "--min-effect", "0")
    person.drive(works_at(50), "--trials", "1", "--no-verify")
    done = person.run("experiment", "accept", "--yes", "--no-verify")
    assert "warning: the final state was not yet measured" in done.stderr
    assert done.returncode == 0
    person.git("reset", "--quiet", "--hard")
    person.begin()
    person.drive(works_at(50), "--trials", "1")
    person.write("answer.sh", "#!/bin/sh\necho 42 # mine\n", mode=0o755)
    document = person.json("experiment", "accept", "--yes", status=9)
    assert (document["is_applied"], bool(document["reasons"])) == (False, True)
    assert "# mine" in (person.project / "answer.sh").read_text()


@pytest.mark.requirement("DRIVE-09")
@pytest.mark.parametrize(
    "verb",
    [
        "run --agent true",
        "stop",
        "cancel",
        "accept --yes",
        "finalize",
        "close",
        "remove --yes",
        "resume --add-trials 3",
    ],
)
def test_a_verb_of_the_owner_is_refused_inside_an_agent(person: Researcher, verb: str) -> None:
    experiment_id = person.begin()
    said = person.refused("experiment", *verb.split(), status=5, **AGENT)
    assert "only the owner may run" in said
    state = person.experiment(experiment_id)
    assert (state["phase"], state["limits"]["trials"]) == ("ready", 20)


@pytest.mark.case("DSK-11")
@pytest.mark.parametrize("lost", ["work/checkpoints/worktrees.json", "work", "events.jsonl"])
def test_what_a_killed_start_or_removal_left_of_an_experiment_is_removed(
    person: Researcher, lost: str
) -> None:
    experiment_id = person.begin()
    folder = person.home / "experiments" / experiment_id
    person.run("experiment", "remove", experiment_id)  # asks, and has a terminal to ask at nowhere
    path = folder / lost
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    assert person.json("experiment", "remove", experiment_id, "--yes")["removed"] == "everything"
    assert not folder.exists()
    kept = subprocess.run(
        ["git", "for-each-ref"], cwd=person.project, capture_output=True, text=True, check=True
    ).stdout
    assert "omx-autoresearch" not in kept, "nor is the base commit held any longer"


@pytest.mark.requirement("DRIVE-09")
def test_an_agent_may_start_but_not_choose_the_sandbox_or_a_held_out_check(person: Researcher) -> None:
    for option in (("--sandbox", "none"), ("--held-out", "/bin/true")):
        assert "only the owner may run" in person.refused(*START, *option, status=5, **AGENT)
    assert person.json(*START, env=AGENT)["experiment"]["phase"] == "ready"


@pytest.mark.requirement("DRIVE-10")
def test_an_agent_has_its_own_change_judged(person: Researcher) -> None:
    person.begin()
    workspace = person.json("experiment", "workspace", env=AGENT)["workspace_path"]
    assert person.run("experiment", "workspace", env=AGENT).stdout.strip() == workspace
    for cost, status, said in ((70, 0, "accepted"), (75, 9, "rejected")):
        with open(os.path.join(workspace, "work.sh"), "w", encoding="utf-8") as target:
            target.write(f"#!/bin/sh\necho {cost}\n")
        arguments = ("--hypothesis", "mine", "--description", "By hand.", "--direction", "hands")
        row = person.json("experiment", "trial", *arguments, env=AGENT, status=status)["row"]
        assert (row["status"], row["hypothesis_id"], row["description"], row["direction"]) == (
            said,
            "mine",
            "By hand.",
            "hands",
        )
    assert "nothing was changed" in person.refused("experiment", "trial", status=2, **AGENT)


@pytest.mark.requirement("DRIVE-10")
def test_a_patch_and_a_command_are_tried_too(person: Researcher, tmp_path: Path) -> None:
    person.begin()
    person.write("work.sh", "#!/bin/sh\necho 70\n", mode=0o755)
    patch = subprocess.run(["git", "-C", str(person.project), "diff"], capture_output=True, check=True).stdout
    person.git("checkout", "--quiet", "work.sh")
    path = tmp_path / "change.patch"
    path.write_bytes(patch)
    assert person.json("experiment", "trial", "--patch", str(path))["row"]["status"] == "accepted"
    assert "does not fit" in person.refused("experiment", "trial", "--patch", str(path), status=2)
    row = person.tries(works_at(60), "--cost", "0.5")
    assert (row["status"], row["cost_usd"]) == ("accepted", 0.5)
    assert row["description"].startswith("sh -c ")
    assert "one change" in person.refused("experiment", "trial", "--patch", "x", "--", "true", status=2)
    assert person.tries("exit 1", status=9)["reason_code"] == "change_failed"


def test_a_file_of_hypotheses_is_tried_line_by_line(person: Researcher, tmp_path: Path) -> None:
    person.begin()
    path = tmp_path / "ideas"
    path.write_text('# mine\nUse a set.\n\n{"id": "two", "description": "Use a map.", "direction": "maps"}\n')
    document = person.drive("true", "--hypotheses", str(path))
    assert [(row["hypothesis_id"], row["description"]) for row in document["experiment"]["rows"]] == [
        ("h-2", "Use a set."),
        ("two", "Use a map."),
    ]
    assert document["reason"] == "hypotheses"
    path.write_text("Use a set.\n{nothing}\n")
    assert "line 2" in person.refused(
        "experiment", "run", "--agent", "true", "--hypotheses", str(path), status=2
    )


@pytest.mark.requirement("DRIVE-07")
def test_sessions_that_bring_nothing_end_the_run_with_a_status_of_their_own(person: Researcher) -> None:
    person.begin()
    done = person.run("experiment", "run", "--agent", "exit 9", "--max-failures", "2")
    assert done.returncode == 7
    assert "2 sessions in a row produced no candidate" in done.stdout
    assert "exit status 9" in done.stdout
    said = person.refused("experiment", "run", "--agent", "no-such-agent", status=2)
    assert "no-such-agent: no such program on PATH" in said
    assert "no trial began" in said
    assert person.experiment()["usage"]["trials"] == 2
    assert "cannot be read" in person.refused("experiment", "run", "--agent", "claude 'oops", status=2)


def _running(person: Researcher, script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, "experiment", "run", "--agent", script],
        cwd=person.project,
        env=person.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _gate(person: Researcher) -> tuple[Path, str]:
    """A pipe, and an agent that tells through it that it works and then hangs."""
    path = person.root / "gate"
    os.mkfifo(path)
    return path, f"{works_at(1)}; echo $$ > {path}; exec sleep 600"


@pytest.mark.requirement("DRIVE-11")
def test_one_interrupt_rolls_back_and_lets_the_experiment_go_on_later(person: Researcher) -> None:
    person.begin()
    gate, script = _gate(person)
    process = _running(person, script)
    agent = gate.read_text().strip()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"rolled back" in out
    state = person.experiment()
    assert (state["phase"], state["completed_reason"]) == ("ready", "")
    assert [row["reason_code"] for row in state["rows"]] == ["cancelled"]
    assert not os.path.exists(f"/proc/{agent}")
    assert untouched(person)
    assert person.drive(works_at(50), "--trials", "1")
    assert person.experiment()["rows"][-1]["status"] == "accepted"


@pytest.mark.requirement("DRIVE-11")
@pytest.mark.parametrize(("verb", "word"), [("cancel", "cancelled"), ("stop", "explicit")])
def test_another_process_ends_the_one_at_work(person: Researcher, verb: str, word: str) -> None:
    person.begin()
    gate, script = _gate(person)
    if verb == "stop":
        script = f"{works_at(50)}; echo $$ > {gate}; read line < {gate}"
    process = _running(person, script)
    gate.read_text()
    state = person.experiment()
    assert (state["phase"], state["is_at_work"], state["controller_pid"]) == ("running", True, process.pid)
    assert "works on" in person.refused("experiment", "accept", "--yes", status=5)
    person.json("experiment", verb)
    if verb == "stop":
        gate.write_text("go on\n")
    process.communicate(timeout=60)
    state = person.experiment()
    assert (state["phase"], state["completed_reason"]) == ("completed", word)
    assert state["rows"][-1]["status"] == ("accepted" if verb == "stop" else "failed")
    assert "has ended" in person.refused("experiment", verb, state["experiment_id"], status=5)


@pytest.mark.requirement("DRIVE-11")
def test_after_a_kill_the_next_run_goes_on(person: Researcher) -> None:
    person.begin()
    gate, script = _gate(person)
    process = _running(person, script)
    agent = gate.read_text().strip()
    process.kill()
    process.communicate(timeout=60)
    shown = person.run("experiment", "status").stdout
    assert "its controller was killed" in shown
    assert "omx-autoresearch experiment resume" in shown
    person.ok("experiment", "resume")
    assert not os.path.exists(f"/proc/{agent}")
    document = person.drive(works_at(50), "--trials", "1")
    rows = document["experiment"]["rows"]
    assert [(row["iteration"], row["status"], row["reason_code"]) for row in rows] == [
        (1, "failed", "interrupted"),
        (2, "accepted", "improved"),
    ]


def test_what_is_drawn_without_a_name_does_not_stand_in_the_way_of_accept(person: Researcher) -> None:
    pytest.importorskip("altair")
    person.begin()
    person.drive(works_at(50), "--trials", "1")
    drawn = person.json("experiment", "plot")["path"]
    assert os.path.dirname(drawn) == person.experiment()["session_path"]
    assert untouched(person)
    assert person.json("experiment", "accept", "--yes")["is_applied"]


def test_a_checkout_that_moved_is_refused_before_anything_is_measured_for_it(person: Researcher) -> None:
    person.begin()
    person.drive(works_at(50), "--trials", "1", "--no-verify")
    runs = person.experiment()["usage"]["runs"]
    person.write("work.sh", "#!/bin/sh\necho 99\n", mode=0o755)
    said = person.refused("experiment", "accept", "--yes", status=9)
    assert "not applied: the work tree was changed: work.sh" in said
    assert "experiment finalize" in said
    assert person.experiment()["usage"]["runs"] == runs
    person.git("checkout", "--quiet", "work.sh")
    assert person.json("experiment", "accept", "--yes")["is_applied"]


def test_a_base_that_misses_what_git_ignores_is_told_how_to_have_it(person: Researcher) -> None:
    person.write(".gitignore", ".venv/\n__pycache__/\nnotes\n")
    person.write("measure.sh", "#!/bin/sh\ncat .venv/size && ./work.sh\n", mode=0o755)
    person.commit("Need an environment")
    for path in (".venv/size", "__pycache__/x", "notes"):
        (person.project / path).parent.mkdir(exist_ok=True)
        person.write(path, "1\n")
    said = person.refused(*START, status=7)
    assert "No such file or directory" in said
    assert "git ignores .venv, so the worktrees lack it (--link PATH, or --setup)" in said
    assert "worktrees lack it" not in person.refused(*START, "--link", ".venv/", status=7)


def test_a_second_experiment_of_a_project_is_told_of_the_first(person: Researcher) -> None:
    first = person.begin()
    said = person.run(*START)
    assert f"{first} is also active, so each verb needs an id" in said.stderr


def test_a_list_says_in_few_words_how_each_experiment_stands(person: Researcher) -> None:
    person.begin()
    lines = person.ok("experiment", "list").splitlines()
    assert lines[1].split("\t")[-1] == "Not verified yet"
    person.drive(works_at(50), "--trials", "1")
    lines = person.ok("experiment", "list").splitlines()
    assert lines[1].split("\t")[-1] == "Verified: ms is 50 % lower than at the base"
    person.write("answer.sh", "#!/bin/sh\necho 41\n", mode=0o755)
    person.commit("Break it")
    person.refused(*START, status=7)
    lines = person.ok("experiment", "list").splitlines()
    assert lines[1].split("\t")[-1] == "the unchanged project could not be measured"


def test_an_experiment_is_no_command_that_makes_a_change(person: Researcher) -> None:
    begun = person.begin()
    assert f"trial --experiment {begun}" in person.refused("experiment", "trial", begun, status=2)
    assert person.experiment()["usage"]["trials"] == 0


def test_what_was_ended_by_hand_is_not_promised_to_go_on_with_more_budget(person: Researcher) -> None:
    person.begin()
    person.ok("experiment", "stop")
    assert "for good" in person.refused("experiment", "resume", "--add-trials", "3", status=5)


@pytest.mark.requirement("CLI-03")
@pytest.mark.parametrize(
    "arguments",
    [
        ("stop",),
        ("cancel",),
        ("resume",),
        ("verify",),
        ("workspace",),
        ("run", "--agent", "true"),
        ("trial",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_verb_that_an_ended_experiment_does_not_allow_names_one_that_it_does(
    person: Researcher, arguments: tuple[str, ...]
) -> None:
    begun = person.begin("--no-baseline")
    person.ok("experiment", "stop")
    name = ("--experiment", begun) if arguments == ("trial",) else (begun,)
    said = person.refused("experiment", *arguments, *name, status=5)
    assert "ended" in said
    person.ok(*said.rpartition("next: omx-autoresearch ")[2].split())


def test_a_spent_budget_goes_on_with_more_of_it(person: Researcher) -> None:
    person.begin("--budget-trials", "1")
    person.drive(works_at(50))
    assert person.experiment()["completed_reason"] == "budget_trials"
    said = person.refused("experiment", "resume", status=5)
    assert "only more of a spent budget" in said
    assert "--add-trials 20" in said
    assert "--add-trials 20" in person.refused("experiment", "run", "--agent", "true", status=2)
    assert "have no limit" in person.refused("experiment", "resume", "--add-hours", "1", status=2)
    document = person.json("experiment", "resume", "--add-trials", "2")
    assert (document["phase"], document["limits"]["trials"], document["usage"]["trials"]) == ("ready", 3, 1)
    assert person.drive(works_at(40), "--trials", "1")["trials"] == 1


def test_which_experiment_is_meant_is_asked_where_it_is_not_clear(person: Researcher, tmp_path: Path) -> None:
    assert "this project has no experiment" in person.refused("experiment", "status", status=2)
    first = person.begin("--name", "first")
    second = person.begin("--name", "second")
    assert "2 experiments are under way" in person.refused("experiment", "status", status=2)
    assert f"such as --experiment {second}" in person.refused("experiment", "trial", status=2)
    assert person.experiment("first")["experiment_id"] == first
    person.ok("experiment", "stop", "first")
    assert person.experiment()["experiment_id"] == second
    person.ok("experiment", "stop")
    assert person.experiment()["experiment_id"] == second, "the newest that ended"
    assert "no experiment of this project is under way" in person.refused(
        "experiment", "run", "--agent", "true", status=2
    )
    assert [item["experiment_id"] for item in person.json("experiment", "list")] == [second, first]


def test_a_broken_log_is_shown_and_hides_no_other(person: Researcher) -> None:
    first = person.begin("--name", "first")
    second = person.begin("--name", "second")
    path = person.home / "experiments" / first / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], lines[1].replace("pid", "pod"), *lines[2:]]))
    listed = {item["experiment_id"]: item for item in person.json("experiment", "list")}
    assert listed[first]["phase"] == "invalid"
    assert "events.jsonl" in listed[first]["fault"]
    assert person.experiment()["experiment_id"] == second
    assert "events.jsonl" in person.refused("experiment", "status", first, status=4)


@pytest.mark.requirement("DRIVE-12")
def test_a_terminal_has_a_live_table_and_a_pipe_has_lines(person: Researcher) -> None:
    person.begin()
    from omx_autoresearch.surfaces.cli.experiment import HEADER

    agent = f"{works_at(50)}; echo 'HYPOTHESIS: half of it, {'and so on ' * 30}'"
    shown = at_terminal(person, "experiment", "run", "--agent", agent, "--trials", "1")
    assert shown.status == 0
    for word in ("TRIAL", "half of it", "━─", "5 %  left: 19 trials", "accepted", "▄", "+50 % (+50 to +50)"):
        assert word in shown.text, word
    assert "\x1b[" in shown.raw
    assert [word for word in HEADER if word not in shown.text] == [], "no column is lost on a narrow screen"
    plain = at_terminal(
        person, "experiment", "run", "--agent", works_at(40), "--trials", "1", env={"TERM": "dumb"}
    )
    assert "\x1b[" not in plain.raw
    assert "trial 2 accepted, +20 %" in plain.text
    done = person.run("experiment", "run", "--agent", works_at(30), "--trials", "1")
    assert "\x1b[" not in done.stdout + done.stderr
    assert "trial 3 begins: h-3" in done.stderr
    assert "ms is 70 % lower" in done.stdout
    bare = at_terminal(
        person, "experiment", "run", "--agent", works_at(20), "--trials", "1", env={"NO_COLOR": "1"}
    )
    assert "\x1b[3" not in bare.raw, "no colour"


@pytest.mark.requirement("DRIVE-12")
def test_a_sparkline_spans_its_values() -> None:
    from omx_autoresearch.surfaces.cli.experiment import sparkline

    assert sparkline([]) == ""
    assert sparkline([3.0, 3.0]) == "▄▄"
    assert sparkline([0.0, 7.0, 3.0]) == "▁█▄"
    assert len(sparkline([float(n) for n in range(1000)], width=30)) == 30


def test_what_an_agent_wrote_moves_no_cursor(person: Researcher) -> None:
    person.begin()
    agent = f"{works_at(50)}; printf 'HYPOTHESIS: a\\033[2Jb\\r\\tc\\n'"
    done = person.run("experiment", "run", "--agent", agent, "--trials", "1")
    assert "\x1b" not in done.stdout + done.stderr
    assert "\x1b" not in person.run("experiment", "status").stdout
    assert "\x1b" not in person.run("experiment", "report").stdout
    assert (
        json.loads(person.run("experiment", "export", "--format", "jsonl").stdout)["description"]
        == "a [2Jb c"
    )


def test_an_auto_log_is_reported_without_an_experiment(person: Researcher, tmp_path: Path) -> None:
    folder = tmp_path / "other" / ".auto"
    folder.mkdir(parents=True)
    lines = [
        {"type": "config", "name": "old", "metricName": "ms", "metricUnit": "ms", "bestDirection": "lower"},
        {"run": 1, "commit": "abc1234", "metric": 100.0, "status": "keep", "description": "base"},
        {"run": 2, "commit": "abc1235", "metric": 90.0, "status": "keep", "description": "better"},
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = person.ok("experiment", "report", "--auto-log", str(tmp_path / "other"))
    assert "isolated none of it" in report
    assert "better" in report
    assert person.ok("experiment", "export", "--auto-log", str(tmp_path / "other")).count("\n") == 3


@pytest.mark.requirement("SEE-06")
def test_an_auto_log_has_a_status_that_says_what_it_is_not(person: Researcher) -> None:
    header = {"type": "config", "name": "old", "metricName": "ms", "bestDirection": "lower"}
    lines = [
        header,
        {"run": 1, "commit": "abc1234", "metric": 300.0, "status": "keep", "description": "first session"},
        header,
        {"run": 1, "commit": "abc1235", "metric": 100.0, "status": "keep", "description": "base"},
        {"run": 2, "commit": "abc1236", "metric": None, "status": "crash", "description": "too bold"},
    ]
    log = person.project / ".auto" / "log.jsonl"
    log.parent.mkdir()
    log.write_text("".join(json.dumps(line) + "\n" for line in [*lines, "no run"]))
    before = log.read_bytes()
    shown = person.run("experiment", "status", "--auto-log", ".")
    assert "Not verified yet" in shown.stdout
    assert "failed: crash" in shown.stdout
    assert "experiment report --auto-log ." in shown.stdout
    assert "experiment run" not in shown.stdout
    assert "isolated none of it" in shown.stderr
    assert "1 earlier session of the log left out" in shown.stderr
    document = person.json("experiment", "status", "--auto-log", str(log))
    check("experiment", document)
    assert (document["baseline"], document["claim"]) == (100.0, None)
    assert [row["status"] for row in document["rows"]] == ["accepted", "failed"]
    assert any("line 6" in warning for warning in document["warnings"])
    assert log.read_bytes() == before
    said = person.refused("experiment", "status", "old", "--auto-log", ".", status=2)
    assert "leave one of them out" in said


@pytest.mark.requirement("MCP-08")
def test_a_rejected_change_is_kept_and_named_with_the_command_that_shows_it(person: Researcher) -> None:
    person.begin()
    worktree = person.ok("experiment", "workspace").strip()
    Path(worktree, "work.sh").write_text("#!/bin/sh\necho 500\n")
    rejected = person.run("experiment", "trial", "--description", "slower")
    assert rejected.returncode == 9
    (command,) = re.findall(r"your change was taken out again; to read it: (cat \S+)", rejected.stdout)
    assert "+echo 500" in Path(shlex.split(command)[1]).read_text()
    assert person.json("experiment", "wait", status=9)["change_path"] == shlex.split(command)[1]
