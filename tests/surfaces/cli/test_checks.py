"""validate, review, wait, note and doctor as an agent, a person and a script type them."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.times import to_the_second
from omx_autoresearch.missions.claims import relay_line
from omx_autoresearch.system.processes import ProcessIdentity, wait_for
from tests.support.needs import AS_ANYBODY, needs_bubblewrap, needs_user_namespaces
from tests.surfaces.support.command_line import AGENT, REVIEWER, SESSION, Person

if TYPE_CHECKING:
    from pathlib import Path

OTHER = "99999999-2222-4333-8444-555555555555"


# --- validate, wait


@pytest.mark.requirement("CLI-03")
def test_validate_ends_with_0_only_when_it_passed(person: Person) -> None:
    task_id = person.start()
    failing = person.run("validate", task_id)
    assert failing.returncode == 9
    assert "| answer.txt must hold 42" in failing.stdout
    assert "failed (exit-nonzero)" in failing.stdout
    person.write("answer.txt", "42\n")
    passing = person.json("validate", task_id)
    assert (passing["verdict"], passing["is_fresh"], passing["isolation"]) == ("passed", True, "none")
    assert os.path.exists(passing["output_path"])
    # It is the stop that completes, by a look at the workspace as it then is.
    assert person.json("status", task_id)["phase"] == "running"


@needs_user_namespaces
@pytest.mark.requirement("DONE-25")
def test_validate_says_whether_the_check_saw_its_frozen_files(person: Person) -> None:
    task_id = person.start()
    assert "not sandboxed, frozen files mounted" in person.run("validate", task_id).stdout
    assert person.json("validate", task_id, status=9)["is_mounted"] is True


@pytest.mark.requirement("CLI-03")
def test_validate_names_the_folder_that_is_judged_wherever_it_is_typed(person: Person) -> None:
    task_id = person.start()
    person.git("worktree", "add", "-q", str(person.root / "elsewhere"))
    done = person.run("validate", task_id, cwd=person.root / "elsewhere")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("judged")]
    assert line.split()[1] == str(person.project)
    assert person.json("validate", task_id, status=9)["workspace_path"] == str(person.project)


@pytest.mark.requirement("CLI-03")
def test_validate_in_a_read_only_state_home_names_the_cause_and_shows_no_older_run(person: Person) -> None:
    task_id = person.start()
    person.run("validate", task_id)
    folder = person.home / "missions" / task_id
    folder.chmod(0o500)
    try:
        done = person.run("validate", task_id, under=AS_ANYBODY)
    finally:
        folder.chmod(0o700)
    assert done.returncode == 4
    assert str(folder) in done.stderr
    assert done.stdout == ""


@pytest.mark.requirement("DONE-19")
def test_a_validation_that_outlasts_the_wait_is_said_to_run_still_and_waited_for(person: Person) -> None:
    person.write("check.sh", "#!/bin/sh\nwhile [ ! -e done ]; do sleep 0.05; done\nexit 1\n", mode=0o755)
    task_id = person.init()
    person.ok("start", task_id, "--no-baseline")
    done = person.run("validate", task_id, "--seconds", "0")
    assert done.returncode == 9
    assert f"call again: omx-autoresearch wait {task_id} --seconds " in done.stdout
    assert person.json("wait", task_id, "--seconds", "0")["is_running"] is True
    person.write("done", "")
    ended = person.json("wait", task_id)
    assert (ended["is_running"], ended["verdict"]) == (False, "failed")


@pytest.mark.requirement("DONE-19")
def test_status_tells_a_run_that_goes_on_from_one_that_was_killed_and_from_its_verdict(
    person: Person,
) -> None:
    person.write("check.sh", "#!/bin/sh\nwhile [ ! -e done ]; do sleep 0.05; done\nexit 1\n", mode=0o755)
    task_id = person.init()
    person.ok("start", task_id, "--no-baseline")
    person.run("validate", task_id, "--seconds", "0")
    shown = person.json("status", task_id)
    assert (shown["running_since"] > "2", shown["lost_run_id"], shown["last_verdict"]) == (True, "", "")
    since = to_the_second(shown["running_since"])
    assert f"running since {since}; omx-autoresearch wait" in person.ok("status", task_id)

    run = person.records(task_id, "validation_started")[0]["run"]
    os.kill(run["pid"], signal.SIGKILL)
    assert wait_for(ProcessIdentity(run["pid"], run["pid_started"]), 60)
    lost = (
        f"{run['run_id']}: it ended without a verdict; to run it again: omx-autoresearch validate {task_id}"
    )
    assert lost in person.ok("status", task_id), "before anything recorded the loss"
    assert f"Run {run['run_id']} ended without a verdict." in person.ok("wait", task_id)
    assert lost in person.ok("status", task_id), "and after"

    person.write("done", "")
    person.run("validate", task_id)
    shown = person.json("status", task_id)
    assert (shown["running_since"], shown["lost_run_id"], shown["last_verdict"]) == ("", "", "failed")


@pytest.mark.case("DSK-04")
def test_a_run_that_left_no_verdict_shows_none_of_an_older_one(person: Person) -> None:
    person.write(
        "check.sh",
        "#!/bin/sh\necho older\n[ -e deadly ] && kill -9 $(ps -o ppid= -p $(ps -o sid= -p $$)) && sleep 600\nexit 1\n",
        mode=0o755,
    )
    task_id = person.start()
    person.bind(task_id)
    assert person.run("validate", task_id).returncode == 9
    person.write("deadly", "")
    document = person.json("validate", task_id, status=7)
    assert document["error"]["message"].startswith("the run ended without a verdict")
    assert document["error"]["next"] == f"omx-autoresearch validate {task_id}"
    lost = person.json("wait", task_id)
    assert (lost["verdict"], lost["cause"], lost["output_tail"]) == (None, "lost", "")
    assert lost["run_id"] == person.records(task_id, "validation_started")[-1]["run"]["run_id"]
    reason = person.stop()["reason"]
    assert "left no verdict" in reason
    assert "older" not in reason


def test_wait_with_nothing_to_wait_for_says_so_at_once(person: Person) -> None:
    task_id = person.start()
    document = person.json("wait", task_id)
    assert (document["is_running"], document["verdict"]) == (False, None)
    assert "No run yet" in person.ok("wait", task_id)


@pytest.mark.requirement("LIFE-01")
def test_an_ended_mission_has_nothing_to_validate(person: Person) -> None:
    task_id = person.start()
    person.ok("cancel", task_id)
    assert person.run("validate", task_id).returncode == 5


# --- note, and a sandbox that lets nothing be written


@pytest.mark.requirement("STATE-08")
def test_a_note_is_kept_as_a_claim(person: Person) -> None:
    task_id = person.start()
    person.ok("note", task_id, "the parser", "is slow")
    person.ok("note", "no task named")
    texts = [record["text"] for record in person.records(task_id, "claim_recorded")]
    assert texts == ["the parser is slow", "no task named"]
    assert person.json("status", task_id)["finding_count"] == 2


@needs_bubblewrap
@pytest.mark.requirement("SESS-16")
@pytest.mark.parametrize(
    "arguments",
    [
        ("block", "--reason", "no device", "--needs", "a device"),
        ("validate",),
        ("note", "slow"),
        ("finding", "add", "--summary", "slow"),
    ],
)
def test_where_nothing_can_be_written_the_command_leaves_the_rest_to_the_hook(
    person: Person, arguments: tuple[str, ...]
) -> None:
    task_id = person.start()
    person.bind(task_id)
    command = (*SEALED, *_sealed(person))
    done = person.run(*arguments, under=command, env=AGENT)
    assert done.returncode == 0, done.stderr
    assert relay_line(arguments[0]) in done.stdout.splitlines()
    words = " ".join(f"'{word}'" for word in arguments)
    asked = {"command": f"omx-autoresearch {words}"}
    person.hook("PostToolUse", tool_name="Bash", tool_input=asked, tool_response={"stdout": done.stdout})
    kind = {
        "block": "mission_blocked",
        "validate": "validation_started",
        "note": "claim_recorded",
        "finding": "finding_recorded",
    }[arguments[0]]
    assert len(person.records(task_id, kind)) == 1
    person.run("wait", task_id)


@pytest.mark.requirement("GATE-25")
def test_status_believes_what_was_seen_last_and_says_how_old_that_is_and_a_look_looks(person: Person) -> None:
    task_id = person.start()
    person.bind(task_id)
    person.write("answer.txt", "42\n")
    assert person.json("validate", task_id)["verdict"] == "passed"
    person.write("answer.txt", "41\n")
    seen, now = person.json("status", task_id), person.json("status", task_id, "--look")
    assert (seen["open_criteria"], now["open_criteria"]) == ([], ["validation"])
    assert seen["checked_age_seconds"] >= now["checked_age_seconds"] == 0.0
    assert seen["checked_at"] < now["checked_at"]
    assert "ago; --look looks" not in person.ok("status", task_id, "--look")


@pytest.mark.requirement("GATE-25")
def test_after_a_pass_stands_what_readiness_still_misses(person: Person) -> None:
    person.write("review.sh", REVIEWER, mode=0o755)
    judged = ("--prompt", "Is it true?", "--output", "r.md", "--reviewer", "./review.sh")
    task_id = person.start("report", *judged)
    person.bind(task_id)
    person.write("r.md", "It is.\n")
    person.write("code.py", "print(1)\n")
    assert "still open: verification" in person.ok("review", task_id)
    missing = person.json("readiness", task_id, status=9)["missing"]
    assert [item["code"] for item in missing] == ["verification"]


@needs_bubblewrap
@pytest.mark.requirement("GATE-25")
def test_where_nothing_can_be_written_the_status_looks_all_the_same(person: Person) -> None:
    task_id = person.start()
    person.bind(task_id)
    person.write("answer.txt", "42\n")
    for verb in ("status", "current", "readiness"):
        done = person.run(verb, "--json", under=(*SEALED, *_sealed(person)), env=AGENT)
        assert done.returncode in (0, 9), done.stderr
        assert task_id in done.stdout
    shown = json.loads(
        person.run("status", "--look", "--json", under=(*SEALED, *_sealed(person)), env=AGENT).stdout
    )
    assert shown["open_criteria"] == ["validation"]
    assert shown["checked_at"] > person.json("list")[0]["checked_at"]


@needs_bubblewrap
@pytest.mark.requirement("SESS-04")
def test_where_nothing_can_be_written_a_start_asks_for_the_person(person: Person) -> None:
    task_id = person.init()
    done = person.run("start", task_id, under=(*SEALED, *_sealed(person)), env=AGENT)
    assert done.returncode == 4
    assert f"$autoresearch {task_id}" in done.stderr


SEALED = ("/bin/sh", "-c", 'exec bwrap "$@"', "sh")


def _sealed(person: Person) -> tuple[str, ...]:
    return ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--chdir", str(person.project))


# --- who is held


@pytest.mark.case("SES-02")
def test_a_mission_without_a_session_holds_nobody_and_is_shown_as_unbound(person: Person) -> None:
    task_id = person.start()
    for session_id in (SESSION, OTHER, ""):
        assert person.stop(session_id) is None
    assert person.hook("Stop", session_id="", stop_hook_active=False) is None
    status = person.json("status", task_id)
    assert (status["session_id"], status["hold"], status["refusals"]) == ("", "unbound", 0)
    assert "unbound" in person.ok("status", task_id)


@pytest.mark.requirement("GATE-20")
def test_status_says_who_is_held_and_how_to_leave(person: Person) -> None:
    task_id = person.start()
    person.bind(task_id)
    page = person.ok("status", task_id)
    for words in (SESSION, f"omx-autoresearch pause {task_id}", f"cancel {task_id}"):
        assert words in page


@pytest.mark.case("LOOP-04")
def test_what_holds_a_stop_is_listed_and_what_is_not_listed_holds_nothing(person: Person) -> None:
    for folder in (".omx/state", f".omx/state/sessions/{SESSION}"):
        (person.project / folder).mkdir(parents=True, exist_ok=True)
        state = f'{{"active": true, "phase": "running", "session_id": "{SESSION}", "iteration": 3}}'
        person.write(f"{folder}/autoresearch-state.json", state)
    assert person.json("list") == []
    assert person.stop() is None
    task_id = person.start()
    person.bind(task_id)
    assert task_id in person.stop()["reason"]
    held = [view for view in person.json("list") if view["session_id"] == SESSION]
    assert [(view["task_id"], view["phase"]) for view in held] == [(task_id, "running")]


# --- install, doctor, demo


@pytest.mark.requirement("INST-07", "SESS-13")
def test_doctor_proves_an_installed_hook_and_shouts_when_there_is_none(person: Person) -> None:
    nothing = person.run("doctor", "claude")
    assert nothing.returncode == 9
    assert "UNPROVEN" in nothing.stdout
    assert "omx-autoresearch install claude" in nothing.stdout
    person.ok("install", "claude")
    proven = person.run("doctor")
    assert proven.returncode == 0, proven.stdout
    assert "PROVEN" in proven.stdout
    (document,) = person.json("doctor")
    assert {"hold", "others"} <= {check["name"] for check in document["checks"]}


@pytest.mark.requirement("INST-08")
def test_doctor_finds_a_hook_that_looks_elsewhere_than_the_command_line(person: Person) -> None:
    person.ok("install", "claude")
    elsewhere = {"OMX_AUTORESEARCH_HOME": str(person.root / "elsewhere")}
    (document,) = person.json("doctor", "claude", env=elsewhere, status=9)
    assert [check["name"] for check in document["checks"] if not check["ok"]] == ["registry"]


@pytest.mark.requirement("INST-08")
def test_each_scope_names_its_own_commands_and_a_second_registration_is_taken_out_by_one(
    person: Person,
) -> None:
    assert "next: omx-autoresearch doctor claude\n" in person.ok("install", "claude")
    assert "next: omx-autoresearch doctor claude --scope project\n" in person.ok(
        "install", "claude", "--scope", "project"
    )
    doubled = person.run("doctor", "claude")
    assert doubled.returncode == 9
    assert "omx-autoresearch uninstall claude --scope project" in doubled.stdout
    person.ok("uninstall", "claude", "--scope", "project")
    person.ok("doctor", "claude")


@pytest.mark.requirement("INST-05")
def test_a_dry_installation_shows_the_difference_and_writes_nothing(person: Person) -> None:
    text = person.ok("install", "claude", "--scope", "project", "--dry-run")
    assert f"+++ {person.project}/.claude/settings.json" in text
    assert not (person.project / ".claude").exists()
    assert not person.home.exists()


@pytest.mark.requirement("INST-02")
def test_uninstall_gives_the_settings_back(person: Person) -> None:
    settings = person.root / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{\n  "model": "opus"\n}\n')
    person.ok("install", "claude")
    assert "omx" not in settings.read_text() or "hooks" in settings.read_text()
    person.ok("uninstall", "claude")
    assert settings.read_text() == '{\n  "model": "opus"\n}\n'


@pytest.mark.requirement("INST-02")
def test_uninstall_names_the_missions_that_would_hold_no_session_any_more_and_asks(person: Person) -> None:
    task_id = person.start()
    person.ok("start", task_id, "--session", SESSION)
    person.ok("install", "claude")
    settings = person.root / ".claude" / "settings.json"
    installed = settings.read_bytes()
    refused = person.run("uninstall", "claude")
    assert refused.returncode == 2
    assert f"{task_id} would hold claude no longer" in refused.stderr
    assert "--yes" in refused.stderr
    assert settings.read_bytes() == installed
    assert "would hold" not in person.ok("uninstall", "gemini")
    person.ok("install", "claude", "--scope", "project")
    assert "held no longer" not in person.ok("uninstall", "claude", "--scope", "project")
    assert f"claude is held no longer by: {task_id}" in person.ok("uninstall", "claude", "--yes")
    assert not settings.exists()


@pytest.mark.requirement("CLI-07")
def test_the_demo_shows_a_refusal_and_a_release_and_leaves_nothing_behind(
    person: Person, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    inside_an_agent = {**AGENT, "TMPDIR": str(scratch), "AI_AGENT": "claude-code_1_agent"}
    done = person.run("demo", env=inside_an_agent)
    assert done.returncode == 0, done.stderr
    refused, released = done.stdout.index("REFUSED"), done.stdout.index("LET GO")
    assert refused < done.stdout.index("answer.txt must hold exactly one line: 42") < released
    assert len(done.stdout.splitlines()) <= 24
    document = person.json("demo", env=inside_an_agent)
    assert document["is_released"] is True
    assert document["completion"]["attestation"]["run_id"] == document["run_id"]
    assert list(scratch.iterdir()) == []
    assert not person.home.exists()
