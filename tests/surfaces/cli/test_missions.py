"""The verbs of a mission's life, as their owner types them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.times import to_the_second
from tests.surfaces.support.command_line import AGENT, PROGRAM, SESSION, at_terminal

if TYPE_CHECKING:
    from tests.surfaces.support.command_line import Person

OWNER_VERBS: tuple[tuple[str, ...], ...] = (
    ("approve",),
    ("pause",),
    ("resume",),
    ("unblock",),
    ("cancel",),
    ("amend", "--validator", "true"),
    ("unbind",),
    ("repair", "--accept"),
    ("review", "--approve"),
)


# --- init


@pytest.mark.requirement("CLI-06")
def test_init_names_the_options_that_are_missing(person: Person) -> None:
    done = person.run("init")
    assert done.returncode == 2
    for option in ("--goal", "--validator", "--prompt"):
        assert option in done.stderr
    assert not (person.project / ".omx").exists()


@pytest.mark.requirement("CLI-06")
def test_at_a_terminal_init_asks_for_what_is_missing_and_refuses_a_placeholder(person: Person) -> None:
    shown = at_terminal(
        person,
        "init",
        answers=(
            ("true in the end?", "TODO"),
            ("true in the end?", "Write the answer"),
            ("Who decides", "1"),
            ("Which command decides?", "./check.sh"),
        ),
    )
    assert shown.status == 0, shown.text
    assert "placeholder" in shown.text
    (view,) = person.json("list")
    assert (view["goal"], view["phase"]) == ("Write the answer", "draft")


@pytest.mark.requirement("WORK-04")
@pytest.mark.parametrize(("answer", "work"), [("y", ["src/**"]), ("n", [])])
def test_at_a_terminal_the_work_is_proposed_and_taken_only_with_a_yes(
    person: Person, answer: str, work: list[str]
) -> None:
    (person.project / "src").mkdir()
    (person.project / "src" / "answer.txt").write_text("41")
    shown = at_terminal(
        person,
        "init",
        "--goal",
        "Write the answer",
        answers=(
            ("Who decides", "1"),
            ("Which command decides?", "./check.sh"),
            ("Is the agent to change src/**", answer),
        ),
    )
    assert shown.status == 0, shown.text
    assert person.json("start")["work"] == work


@pytest.mark.requirement("WORK-03", "WORK-04")
def test_a_dry_run_and_start_show_what_becomes_of_the_files(person: Person) -> None:
    (person.project / "src").mkdir()
    (person.project / "src" / "answer.txt").write_text("41")
    goal = ("init", "--goal", "Write the answer", "--validator", "./check.sh")
    assert "name it: --work 'src/**'" in person.run(*goal, "--dry-run").stdout
    assert person.run(*goal, "--work", "src/**").returncode == 0
    started = person.run("start").stdout
    assert re.search(r"(?m)^  work +1 file: src/answer.txt$", started)
    assert re.search(r"(?m)^  frozen +1 file: check.sh$", started)


@pytest.mark.requirement("CLI-06")
def test_at_a_terminal_a_review_is_asked_for_its_file(person: Person) -> None:
    shown = at_terminal(
        person,
        "init",
        "--goal",
        "A true report",
        answers=(("Who decides", "2"), ("reviewer judge?", "Is it true?"), ("under review?", "report.md")),
    )
    assert shown.status == 0, shown.text
    assert person.json("start")["validation_mode"] == "prompt-architect-artifact"


@pytest.mark.requirement("DONE-01", "LIFE-11")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--validator", "./check.sh", "--prompt", "Is it true?", "--output", "r.md"), "both modes"),
        (("--validator", "<your command>"), "placeholder"),
        (("--validator", "./check.sh", "--mode", "prompt-architect-artifact"), "validation_mode"),
        (("--prompt", "Is it true?"), "--output"),
        (("--validator", "./check.sh", "--limit", "refusals_total=0"), "refusals_total"),
        (("--validator", "./check.sh", "--limit", "no_such=1"), "no_such"),
    ],
)
def test_init_refuses_what_cannot_stand_with_the_reason(
    person: Person, options: tuple[str, ...], reason: str
) -> None:
    done = person.run("init", "--goal", "Write the answer", *options)
    assert done.returncode == 3
    assert reason in done.stderr
    assert not (person.project / ".omx").exists()


@pytest.mark.requirement("LIFE-09")
def test_init_takes_every_field_as_an_option(person: Person) -> None:
    made = person.json(
        "init", "--goal", "Write the answer", "--slug", "answer", "--mode", "mission-validator-script",
        "--validator", "./check.sh", "--protect", "*.toml", "--env", "MY_VARIABLE", "--scope", "answer.txt",
        "--non-goal", "the check", "--timeout", "30", "--score-direction", "lower", "--isolate-home", "--track",
        "--limit", "refusals_total=50", "--limit", "wall-clock-hours=2.5",
    )  # fmt: skip
    sandbox, mission = (Path(made[name]).read_text("utf-8") for name in ("sandbox_path", "mission_path"))
    for text in ("./check.sh", "*.toml", "MY_VARIABLE", "timeout_seconds: 30", "lower", "isolate_home: true"):
        assert text in sandbox
    assert "answer.txt" in mission
    assert "the check" in mission
    limits = person.json("start", made["task_id"])["limits"]
    assert (limits["refusals_total"], limits["wall_clock_hours"]) == (50, 2.5)


@pytest.mark.requirement("LIFE-12")
def test_a_dry_run_shows_verdict_and_pins_and_touches_nothing(person: Person) -> None:
    before = sorted(person.project.rglob("*"))
    text = person.ok("init", "--goal", "Write the answer", "--validator", "./check.sh", "--dry-run")
    for words in ("answer.txt must hold 42", "failed (exit-nonzero)", "would freeze 1 file:", "  check.sh"):
        assert words in text
    assert sorted(person.project.rglob("*")) == before
    assert not person.home.exists()


@pytest.mark.case("VAL-01")
def test_init_warns_of_a_validator_that_is_missing_or_may_not_be_executed(person: Person) -> None:
    person.write("plain.sh", "#!/bin/sh\nexit 1\n", mode=0o644)
    for validator, words in (("./plain.sh", "chmod +x ./plain.sh"), ("./gone.sh", "does not exist")):
        done = person.run("init", "--goal", "Write the answer", "--validator", validator)
        assert done.returncode == 0
        assert "warning: " in done.stderr
        assert words in done.stderr


def test_init_in_a_folder_below_writes_into_the_project(person: Person) -> None:
    below = person.project / "src" / "deep"
    below.mkdir(parents=True)
    arguments = ("init", "--goal", "Write the answer", "--validator", "./check.sh", "--json")
    made = json.loads(person.run(*arguments, cwd=below).stdout)
    assert made["mission_path"].startswith(f"{person.project}/.omx/specs/")
    assert person.json("start", made["task_id"])["phase"] == "running"


# --- start


@pytest.mark.requirement("GATE-17")
def test_start_prints_the_line_to_type_and_every_limit(person: Person) -> None:
    task_id = person.init()
    text = person.ok("start")
    assert f"\n    $autoresearch {task_id}\n" in text
    assert f"OMX_AUTORESEARCH_TASK={task_id}:" in text
    limits = person.json("status", task_id)
    assert limits["max_refusals"] == 200
    for words in (
        "200 refusals and 24 h in all",
        "3 refusals in a row without a tool call",
        "4 iterations without progress: a pivot is due at 2, a fresh direction at 3",
        "40 weak signs of progress",
        "8 stops for work in the background, 6 for a running check",
        "24 h of a silent session",
    ):
        assert words in text
    assert "forbidden" not in text


@pytest.mark.requirement("SESS-02")
def test_a_second_start_shows_the_line_and_the_variable_of_the_first_again(person: Person) -> None:
    task_id = person.start()
    (shown,) = re.findall(rf"OMX_AUTORESEARCH_TASK={task_id}:\w+", person.ok("start", task_id))
    again = person.ok("start", task_id)
    assert shown in again
    assert f"\n    $autoresearch {task_id}\n" in again


@pytest.mark.requirement("DONE-26")
def test_a_confirmation_in_a_clean_copy_is_shown_by_init_start_and_status(person: Person) -> None:
    task_id = person.init("answer", "--confirm", "clean")
    for text in (person.ok("start", task_id), person.ok("status", task_id)):
        assert "./check.sh, then again in a clean copy of what git tracks" in text


def test_times_are_told_to_the_second(person: Person) -> None:
    task_id = person.start()
    person.ok("start", task_id, "--session", "s-1")
    assert not re.search(r"\.\d{6}Z", person.ok("status", task_id))
    assert to_the_second("at 2026-01-02T03:04:05.123456Z, .123456Z") == "at 2026-01-02T03:04:05Z, .123456Z"


@pytest.mark.requirement("GATE-17")
def test_start_prints_what_the_mission_is_forbidden_and_whom_that_binds(person: Person) -> None:
    person.init("answer", "--forbid", "publish", "--forbid", "network")
    assert "network (in the runtime's own runs), publish (a request to the agent)" in person.ok("start")
    task_id = person.init("other", "--forbid", "write")
    document = person.json("start", task_id)
    assert document["forbidden"] == ["write"]


@pytest.mark.requirement("SESS-13")
def test_start_shouts_that_the_hold_is_unproven(person: Person) -> None:
    person.init()
    assert "UNPROVEN" in person.ok("start", "--session", SESSION)
    assert person.json("status")["hold"].startswith("unproven")
    person.stop()
    assert person.json("status")["hold"].startswith("proven (stop answered ")


@pytest.mark.requirement("LIFE-03")
def test_start_refuses_what_passes_already_unless_told_otherwise(person: Person) -> None:
    person.write("answer.txt", "42\n")
    person.init()
    done = person.run("start")
    assert done.returncode == 5
    assert "--no-baseline" in done.stderr
    person.ok("start", "--no-baseline")


@pytest.mark.requirement("SESS-04")
def test_a_start_by_an_agent_binds_its_session_once_the_client_confirms(person: Person) -> None:
    task_id = person.init()
    person.ok("start", task_id, env=AGENT)
    assert person.json("status", task_id)["session_id"] == ""
    person.hook("PostToolUse", tool_name="Bash", tool_input={"command": f"omx-autoresearch start {task_id}"})
    assert person.json("status", task_id)["session_id"] == SESSION


@pytest.mark.requirement("SESS-04")
def test_where_the_shell_knows_no_session_the_bind_token_is_the_last_line_of_a_short_output(
    person: Person,
) -> None:
    task_id = person.init()
    output = person.ok("start", task_id, env={"GEMINI_CLI": "1"})
    assert len(output) < 1000
    token = output.splitlines()[-1]
    assert token.startswith("omx-bind-")
    assert token not in "".join(path.read_text() for path in (person.home / "active").iterdir())
    response = {"llmContent": output}
    person.hook("AfterTool", client="gemini", tool_name="run_shell_command", tool_response=response)
    assert person.json("status", task_id)["session_id"] == SESSION


# --- owner and agent


@pytest.mark.requirement("LIFE-06", "DONE-13")
@pytest.mark.parametrize("verb", OWNER_VERBS, ids=" ".join)
def test_an_owner_verb_inside_an_agent_is_refused_recorded_and_shown(
    person: Person, verb: tuple[str, ...]
) -> None:
    task_id = person.start()
    before = person.json("status", task_id)
    done = person.run(verb[0], task_id, *verb[1:], env=AGENT)
    assert done.returncode == 5
    assert "CLAUDECODE" in done.stderr
    assert "next: " in done.stderr
    (record,) = person.records(task_id, "owner_verb_refused")
    assert record["verb"].split()[0] == verb[0]
    after = person.json("status", task_id)
    assert after["phase"] == before["phase"]
    assert any(verb[0] in notice for notice in after["notices"])
    assert to_the_second(after["notices"][0]) in person.ok("status", task_id)


@pytest.mark.requirement("LIFE-06")
@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_hooks_are_neither_installed_nor_removed_from_inside_an_agent(person: Person, verb: str) -> None:
    done = person.run(verb, "claude", env=AGENT)
    assert done.returncode == 5
    assert "CLAUDECODE" in done.stderr
    assert not (person.root / ".claude").exists()


@pytest.mark.case("LOOP-09")
@pytest.mark.requirement("LIFE-07")
def test_an_agent_may_block_by_command_and_not_by_words(person: Person) -> None:
    task_id = person.start()
    person.bind(task_id)
    assert person.stop(last_assistant_message="I am blocked, please pause.")["decision"] == "block"
    person.ok("block", task_id, "--reason", "device offline", "--needs", "plug it in", env=AGENT)
    for _ in range(3):
        answer = person.stop()
        assert answer is None or "decision" not in answer
    status = person.json("status", task_id)
    assert (status["phase"], status["status"]) == ("blocked", "blocked")
    assert "device offline" in status["blocker"]
    assert "plug it in" in person.ok("status", task_id)
    assert person.records(task_id, "mission_completed") == []
    assert person.run("validate", task_id).returncode == 9


def test_block_without_a_reason_or_a_need_says_what_is_missing(person: Person) -> None:
    task_id = person.start()
    done = person.run("block", task_id, "--reason", "stuck")
    assert done.returncode == 2
    assert "--needs" in done.stderr


@pytest.mark.requirement("LIFE-01")
def test_an_illegal_step_names_the_legal_ones_and_the_next_command(person: Person) -> None:
    task_id = person.init()
    done = person.run("pause", task_id)
    assert done.returncode == 5
    assert "a draft cannot be paused; it can be started, cancelled or amended" in done.stderr
    assert f"omx-autoresearch start {task_id}" in done.stderr


@pytest.mark.requirement("CLI-03")
def test_a_run_whose_mission_is_cancelled_meanwhile_names_a_command_that_may_be_typed(person: Person) -> None:
    gate = person.root / "gate"
    os.mkfifo(gate)
    person.write("check.sh", f"#!/bin/sh\necho begun > {gate}\nread line < {gate}\nexit 1\n", mode=0o755)
    task_id = person.init()
    person.ok("start", task_id, "--no-baseline")
    running = subprocess.Popen(
        [*PROGRAM, "validate", task_id, "--seconds", "60"],
        cwd=person.project,
        env=person.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    gate.read_text("utf-8")
    person.ok("cancel", task_id)
    said, refused = running.communicate(timeout=60)
    assert (running.returncode, said) == (5, "")
    assert f"mission {task_id} became cancelled" in refused
    person.ok(*refused.rpartition("next: omx-autoresearch ")[2].split())


@pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None, reason="nothing is read-only to root"
)
def test_files_that_may_not_be_written_are_told_as_such(person: Person) -> None:
    """Root without its capabilities is refused as anybody else is."""
    under = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ("env",)
    task_id = person.start()
    folder = person.project / ".omx/autoresearch" / task_id
    person.ok("note", task_id, "so far")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        noted = person.run("note", task_id, "more", under=under)
        repaired = person.run("repair", task_id, under=under)
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert (noted.returncode, repaired.returncode) == (0, 4)
    assert "findings.jsonl: Permission denied" in noted.stderr
    assert f"Could not write the mission's files in {folder}/: Permission denied" in repaired.stderr
    assert f"ls -ld {folder})" in repaired.stderr


@pytest.mark.requirement("LIFE-04")
def test_unblock_adds_to_the_limits(person: Person) -> None:
    task_id = person.start()
    person.ok("block", task_id, "--reason", "stuck", "--needs", "a hint")
    more = person.json("unblock", task_id, "--add-refusals", "5", "--add-hours", "1.5")
    assert (more["phase"], more["max_refusals"], more["max_hours"]) == ("running", 205, 25.5)


# --- which mission


@pytest.mark.requirement("CLI-01")
def test_task_is_the_bound_mission_inside_a_session_and_the_only_one_outside(person: Person) -> None:
    first = person.start("one")
    assert person.json("status")["task_id"] == first
    second = person.start("two")
    done = person.run("status")
    assert done.returncode == 2
    assert first in done.stderr
    assert second in done.stderr
    person.bind(first)
    assert person.json("status", env=AGENT)["task_id"] == first
    assert person.json("status", "two")["task_id"] == second


@pytest.mark.requirement("CLI-01")
def test_status_shows_the_newest_mission_that_ended_here_where_none_is_under_way(person: Person) -> None:
    person.ok("cancel", person.start("one"))
    task_id = person.start("two")
    person.bind(task_id)
    person.write("answer.txt", "42\n")
    person.stop()
    assert (person.json("status")["task_id"], person.json("status")["phase"]) == (task_id, "complete")
    for verb in ("log", "findings"):
        assert person.json(verb)["task_id"] == task_id
    assert person.run("pause").returncode == 2
    assert person.run("status", cwd=person.root).returncode == 2, "another folder has no mission that ended"
    under_way = person.init("three")
    assert person.json("status")["task_id"] == under_way


@pytest.mark.requirement("CLI-01")
def test_the_question_which_mission_names_an_answer_that_can_be_typed(person: Person) -> None:
    person.start("one")
    person.start("two")
    answer = person.run("pause").stderr.rpartition("next: omx-autoresearch ")[2]
    assert person.json(*answer.split())["phase"] == "paused"


def test_the_status_says_in_words_what_judges_and_what_is_missing(person: Person) -> None:
    person.init()
    draft = person.ok("status")
    assert "draft" in draft
    assert "running" not in draft
    person.ok("start")
    text = person.ok("status")
    assert "judged by   ./check.sh\n" in text
    assert "missing     a passing run of its validator\n" in text
    person.write("answer.txt", "42\n")
    assert "completes at the agent's next stop" in person.ok("validate")
    assert "missing     nothing; the agent's next stop completes it" in person.ok("status")
    person.ok("pause")
    assert "nothing; resume it first, then the agent's next stop completes it" in person.ok("status")
    person.ok("resume")
    person.write("check.sh", "#!/bin/sh\nexit 0\n", mode=0o755)
    assert "next     omx-autoresearch restore" in person.run("validate").stdout
    for looks in ((), ("--look",)):
        shown = person.ok("status", *looks)
        assert re.search(r"next +omx-autoresearch restore", shown)
        assert "frozen files changed, so no run can pass: check.sh" in shown
    said = person.ok("restore")
    (aside,) = re.findall(r"What stood there is in (\.omx/aside/\d+)\.", said)
    assert len(list((person.project / aside).iterdir())) == 1
    assert "next: omx-autoresearch validate" in said
    assert "frozen files changed" not in person.ok("status")


@pytest.mark.requirement("SESS-06")
def test_a_mission_begun_in_a_linked_work_tree_is_judged_there(person: Person) -> None:
    tree = person.root / "my tree é"
    person.git("worktree", "add", "--quiet", "-b", "work", str(tree))
    person.write("answer.txt", "42\n")
    words = ("--goal", "Write the answer", "--validator", "./check.sh")
    tried = person.run("init", *words, "--dry-run", cwd=tree)
    assert "failed (exit-nonzero)" in tried.stdout
    assert person.run("init", *words, cwd=tree).returncode == 0
    started = person.run("start", cwd=tree)
    assert f"judged in the work tree {tree}" in started.stdout
    (tree / "answer.txt").write_text("42\n")
    (person.project / "answer.txt").unlink()
    assert person.run("validate").returncode == 0
    assert person.json("status")["task_path"].startswith(str(person.project)), "the mission is the project's"


@pytest.mark.requirement("SESS-06")
def test_a_draft_that_is_launched_from_a_linked_work_tree_is_frozen_and_judged_there(person: Person) -> None:
    task_id = person.init()
    tree = person.root / "tree"
    person.git("worktree", "add", "--quiet", "-b", "work", str(tree))
    (tree / "check.sh").write_text("#!/bin/sh\ntest -e other.txt\n")
    person.hook("UserPromptSubmit", prompt=f"$autoresearch {task_id}", cwd=str(tree))
    assert "(validation)" in person.stop()["reason"], "what is frozen is the work tree's own check"


# --- what cannot be read


@pytest.mark.case("STA-07")
@pytest.mark.requirement("STATE-05")
def test_a_corrupt_mission_is_shown_by_file_and_hides_no_other_and_is_not_overwritten(person: Person) -> None:
    broken, sound = person.start("broken"), person.start("sound")
    person.bind(broken)
    lines = person.journal(broken).read_bytes().splitlines(keepends=True)
    damaged = b"".join([lines[0], b'{"seq": 2, "oops\n', *lines[2:]])
    person.journal(broken).write_bytes(damaged)
    views = {view["task_id"]: view for view in person.json("list")}
    assert views[sound]["status"] == "running"
    assert views[broken]["status"] == "invalid"
    assert str(person.journal(broken)) in views[broken]["blocker"]
    assert "2" in views[broken]["blocker"]
    status = person.ok("status", broken)
    assert "invalid" in status
    assert str(person.journal(broken)) in status
    answer = person.stop()
    assert answer is None or "decision" not in answer
    assert person.stop("99999999-2222-4333-8444-555555555555") is None
    for verb in ("validate", "pause", "block"):
        done = person.run(verb, broken, *(("--reason", "x", "--needs", "y") if verb == "block" else ()))
        assert done.returncode == 4, verb
    assert person.journal(broken).read_bytes() == damaged


@pytest.mark.case("STA-07")
def test_an_empty_or_removed_journal_is_said_and_holds_nobody(person: Person) -> None:
    emptied, removed = person.start("emptied"), person.start("removed")
    person.bind(removed)
    person.journal(emptied).write_bytes(b"")
    person.journal(removed).unlink()
    views = {view["task_id"]: view["status"] for view in person.json("list")}
    assert views == {emptied: "invalid", removed: "missing"}
    assert str(person.journal(removed)) in person.ok("status", removed)
    answer = person.stop()
    assert answer is None or "decision" not in answer
    assert person.journal(emptied).read_bytes() == b""


@pytest.mark.requirement("STATE-06")
def test_repair_writes_projections_again_byte_for_byte(person: Person) -> None:
    task_id = person.start()
    folder = person.project / ".omx" / "autoresearch" / task_id / "state"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for path in folder.iterdir():
        path.unlink()
    person.ok("repair", task_id)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


# --- what a step leaves to be done


@pytest.mark.requirement("CLI-03")
@pytest.mark.parametrize("verb", [("approve",), ("amend", "--limit", "refusals_total=7"), ("restore",)])
def test_a_step_that_mends_a_blocked_mission_says_what_lets_it_go_on(
    person: Person, verb: tuple[str, ...]
) -> None:
    task_id = person.start()
    next_line = f"next: omx-autoresearch unblock {task_id}"
    assert next_line not in person.ok(verb[0], task_id, *verb[1:])
    person.ok("block", task_id, "--reason", "no corpus", "--needs", "a corpus")
    assert next_line in person.ok(verb[0], task_id, *verb[1:])


@pytest.mark.requirement("LIFE-05")
@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        (("pause",), "mission_paused"),
        (("cancel",), "mission_cancelled"),
        (("unbind",), "session_unbound"),
        (("restore",), "pins_restored"),
        (("block", "--needs", "a corpus"), "mission_blocked"),
        (("amend", "--limit", "refusals_total=7"), "mission_amended"),
    ],
)
def test_the_reason_of_a_step_is_kept(person: Person, verb: tuple[str, ...], kind: str) -> None:
    task_id = person.start()
    person.bind(task_id)
    person.ok(verb[0], task_id, *verb[1:], "--reason", "for a good reason")
    assert "for a good reason" in str(person.records(task_id, kind)[-1])


@pytest.mark.requirement("DONE-14")
def test_start_says_what_is_named_by_the_check_and_not_pinned(person: Person) -> None:
    person.write("judge.sh", "#!/bin/sh\npython3 parser.py < answer.txt\n", mode=0o755)
    person.write("parser.py", "import sys\nsys.exit(1)\n")
    person.ok("init", "--goal", "Write the answer", "--validator", "./judge.sh")
    assert "parser.py is named in judge.sh" in person.ok("start")


def other_project(person: Person) -> Path:
    """A repository beside the person's own that has no mission."""
    path = person.root / "other"
    shutil.copytree(person.project, path, ignore=shutil.ignore_patterns(".omx"))
    return path


def test_no_verb_without_a_task_touches_a_mission_of_another_project(person: Person) -> None:
    draft = person.init()
    other = other_project(person)
    for verb in ("start", "status", "cancel", "amend", "approve"):
        done = person.run(verb, cwd=other)
        assert done.returncode == 2, verb
        assert "no mission of this project is under way" in done.stderr
        assert f"{draft} ({person.project})" in done.stderr
        assert f"next: omx-autoresearch {verb} {draft}" in done.stderr
    person.ok("start", draft)
    for verb in ("pause", "resume", "unbind", "validate", "status", "log", "findings", "direction list"):
        assert person.run(*verb.split(), cwd=other).returncode == 2, verb
    assert person.run("note", "a word", cwd=other).returncode == 2
    assert person.json("status", draft)["phase"] == "running"
    assert person.run("pause", draft, cwd=other).returncode == 0
    assert person.json("status")["phase"] == "paused"


def test_a_mission_that_ended_here_is_shown_although_another_project_has_one_under_way(
    person: Person,
) -> None:
    ended = person.init()
    person.ok("cancel", ended)
    other = other_project(person)
    assert person.run("init", "--goal", "Else", "--validator", "./check.sh", cwd=other).returncode == 0
    assert person.json("status")["task_id"] == ended
