"""The program as a whole: help, errors, exit statuses, pipes, colour, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omx_autoresearch.surfaces.cli import program as former
from omx_autoresearch.surfaces.cli.program import VERBS, all_verbs
from tests.surfaces.support.command_line import PROGRAM, Person, at_terminal

SLOW = {"pydantic", "jinja2", "yaml", "rich", "psutil", "transitions", "sqlite3", "subprocess"}


def _imported(person: Person, *arguments: str) -> set[str]:
    """Top-level modules that one command line loads."""
    program = (
        "import sys\nfrom omx_autoresearch.surfaces.cli.program import run\n"
        f"run({list(arguments)!r})\nprint('LOADED', *{{name.partition('.')[0] for name in sys.modules}})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=person.project,
        env=person.environment(PYTHONPATH=str(Path(__file__).resolve().parents[3])),
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.rpartition("LOADED")[2].split())


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_no_slow_package(person: Person, argument: str) -> None:
    assert _imported(person, argument) & SLOW == set()


def test_the_help_of_a_verb_imports_no_slow_package(person: Person) -> None:
    assert _imported(person, "status", "--help") & SLOW == set()


def test_the_help_names_every_verb_and_every_verb_explains_itself(person: Person) -> None:
    text = person.ok("--help")
    assert [name for name in VERBS if f"\n  {name} " not in text] == []
    for name in VERBS:
        assert f"Usage: omx-autoresearch {name}" in person.ok(name, "--help")


@pytest.mark.requirement("CLI-02")
def test_json_stands_at_every_verb_but_those_that_a_client_calls(person: Person) -> None:
    paths = [verb.path for verb in all_verbs()]
    silent = {path for path in paths if "--json" not in person.ok(*path.split(), "--help")}
    assert silent == {"hook", "statusline", "mcp"}
    assert {"direction add", "experiment start"} <= set(paths)


@pytest.mark.requirement("CLI-03")
@pytest.mark.parametrize(
    ("arguments", "status", "slug"),
    [
        (("no-such-verb",), 2, "usage"),
        (("status", "--no-such-option"), 2, "usage"),
        (("status",), 2, "usage"),
        (("status", "no-such-mission"), 2, "usage"),
        (("init", "--goal", "TODO", "--validator", "./check.sh"), 3, "mission-invalid"),
    ],
)
def test_an_error_has_its_exit_status_and_names_what_comes_next(
    person: Person, arguments: tuple[str, ...], status: int, slug: str
) -> None:
    plain = person.run(*arguments)
    assert (plain.returncode, plain.stdout) == (status, "")
    assert plain.stderr.startswith("error: ")
    assert "\n  next: " in plain.stderr
    machine = person.run(*arguments, "--json")
    assert (machine.returncode, machine.stderr) == (status, "")
    error = json.loads(machine.stdout)["error"]
    assert error["slug"] == slug
    assert error["message"]
    assert error["next"]


@pytest.mark.requirement("CLI-03")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("statsu",), ("Did you mean 'status'?", "next: omx-autoresearch --help")),
        (("--json", "status"), ("after the verb", "next: omx-autoresearch status --json")),
        (("init", "--goal"), ("--goal", "next: omx-autoresearch init --help")),
        (("install",), ("Choose from: claude, codex, gemini", "next: omx-autoresearch install --help")),
        (("experiment", "run"), ("'--agent'", "next: omx-autoresearch experiment run --help")),
        (("experiment", "statsu"), ("No such command", "next: omx-autoresearch experiment --help")),
        (("criterion",), ("needs a verb", "next: omx-autoresearch criterion --help")),
    ],
)
def test_a_slip_of_the_hand_is_answered_with_what_was_meant(
    person: Person, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    plain = person.run(*[word for word in arguments if word != "--json"])
    done = plain if "--json" not in arguments else person.run(*arguments)
    shown = done.stderr or "\n".join(
        f"{key}: {text}" for key, text in json.loads(done.stdout)["error"].items()
    )
    assert done.returncode == 2
    assert [word for word in words if word not in shown] == []


def with_a_fault_of_ours(person: Person, **environ: str) -> subprocess.CompletedProcess[str]:
    program = (
        "import sys\nfrom omx_autoresearch.surfaces.cli import console, program, status\n"
        "def broken(): raise ZeroDivisionError('token=secret')\nstatus.this_caller = broken\n"
        "sys.exit(program.run(['list', '--json']))"
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=person.project,
        env=person.environment(PYTHONPATH=str(Path(__file__).resolve().parents[3]), **environ),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.requirement("CLI-03")
@pytest.mark.parametrize("temporary", ["project", "project/scratch", "elsewhere"])
def test_a_log_that_fits_nowhere_else_is_not_left_in_the_project(person: Person, temporary: str) -> None:
    folder = person.root / temporary
    folder.mkdir(exist_ok=True)
    before = sorted(person.project.rglob("*"))
    done = with_a_fault_of_ours(person, OMX_AUTORESEARCH_HOME=f"{os.devnull}/state", TMPDIR=str(folder))
    assert done.returncode == 1
    assert sorted(person.project.rglob("*")) == before
    said = json.loads(done.stdout)["error"]["next"]
    if temporary == "elsewhere":
        (log,) = folder.iterdir()
        assert str(log) in said
    else:
        assert "no report was written" in said


@pytest.mark.requirement("CLI-03")
def test_a_fault_of_ours_is_no_bare_traceback_but_a_log_file(person: Person) -> None:
    (person.home / "missions").mkdir(parents=True)
    done = with_a_fault_of_ours(person)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    error = json.loads(done.stdout)["error"]
    (log,) = (person.home / "faults").iterdir()
    assert str(log) in error["next"]
    assert log.stat().st_mode & 0o077 == 0
    text = log.read_text()
    assert "ZeroDivisionError" in text
    assert "omx-autoresearch 0" in text


def test_an_argument_that_is_no_text_is_an_error_with_its_name(person: Person) -> None:
    done = subprocess.run(
        [*PROGRAM, "status", b"caf\xe9"],
        cwd=person.project,
        env=person.environment(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert b"not UTF-8" in done.stderr


def test_a_goal_in_any_script_survives_a_locale_that_cannot_show_it(person: Person) -> None:
    ascii_only = {"LANG": "C", "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    person.json("init", "--goal", "Öffne die Tür 開ける", "--validator", "./check.sh")
    assert person.json("list", env=ascii_only)[0]["goal"] == "Öffne die Tür 開ける"
    assert person.run("list", env=ascii_only).returncode == 0


def test_a_reader_that_goes_away_makes_no_noise(person: Person) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed:
        done = subprocess.run(
            [*PROGRAM, "--help"],
            cwd=person.project,
            env=person.environment(),
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, b"")


def with_full_stdout(person: Person, *arguments: str, stderr: int = subprocess.PIPE) -> tuple[int, str]:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*PROGRAM, *arguments],
            cwd=person.project,
            env=person.environment(),
            stdout=full,
            stderr=stderr if stderr == subprocess.PIPE else full,
            text=True,
            check=False,
        )
    return done.returncode, done.stderr or ""


NEEDS_FULL = pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="only Linux has a device that is full"
)


@NEEDS_FULL
@pytest.mark.parametrize(
    "arguments", [("list", "--json"), ("list",), ("--help",), ("status", "none", "--json")]
)
def test_an_answer_that_cannot_be_printed_is_one_line_on_stderr(
    person: Person, arguments: tuple[str, ...]
) -> None:
    person.start()
    status, said = with_full_stdout(person, *arguments)
    assert status == (2 if "none" in arguments else 1)
    assert said.startswith("error: ")
    assert "Traceback" not in said
    assert "again" not in said
    if "none" not in arguments:
        assert said.count("\n") == 1
        assert "No space left on device" in said
    assert with_full_stdout(person, *arguments, stderr=2)[0] == status


@NEEDS_FULL
def test_a_note_whose_answer_cannot_be_printed_is_said_to_be_recorded(person: Person) -> None:
    task_id = person.start()
    status, said = with_full_stdout(person, "note", task_id, "zzz")
    assert (status, said.count("\n")) == (1, 1)
    assert said.startswith("error: `note` was recorded; do not repeat it.")
    (journal,) = person.home.glob("missions/*/journal.jsonl")
    assert journal.read_text().count("zzz") == 1


@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_stream_is_no_fault_of_ours(person: Person, closed: int) -> None:
    person.start()
    command = " ".join([*PROGRAM, "list", f"{closed}>&-"])
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=person.project,
        env=person.environment(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_interrupt_ends_with_130_and_no_traceback(person: Person) -> None:
    # The interpreter drops an interrupt that comes in the very moment of the prompt; a person presses again.
    shown = at_terminal(person, "init", answers=(("true in the end?", "\x03"),), is_insisting=True)
    assert shown.status == 130
    assert "Traceback" not in shown.text


@pytest.mark.requirement("CLI-04")
@pytest.mark.parametrize(
    "arguments",
    [
        ("launch", "--tmux", "missions/parser"),
        ("run", "missions/parser"),
        ("--tmux",),
        ("start", "--split"),
        ("start", "--detach"),
        ("--resume", "run-1"),
        ("missions/parser",),
    ],
)
def test_a_former_launch_form_starts_nothing_and_shows_the_new_way(
    person: Person, arguments: tuple[str, ...]
) -> None:
    (person.project / "missions" / "parser").mkdir(parents=True)
    done = person.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is no longer supported" in done.stderr
    for word in ("omx-autoresearch init", "omx-autoresearch start", "$autoresearch"):
        assert word in done.stderr
    assert not person.home.exists()


def test_no_former_verb_is_a_verb_of_today() -> None:
    assert set(former.REMOVED_VERBS) & set(VERBS) == set()


@pytest.mark.requirement("CLI-05")
def test_colour_is_for_terminals_whose_person_wants_it(person: Person) -> None:
    person.start()
    assert "\x1b[" in at_terminal(person, "status").raw
    assert "\x1b[" in at_terminal(person, "list").raw
    for unwanted in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b[3" not in at_terminal(person, "status", env=unwanted).raw
        assert "\x1b[3" not in at_terminal(person, "list", env=unwanted).raw
    assert "\x1b" not in person.run("status", env={"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}).stdout
    assert "\x1b" not in person.run("list", env={"FORCE_COLOR": "1"}).stdout


def test_a_narrow_terminal_cuts_no_task_id(person: Person) -> None:
    task_id = person.start("a-slug-that-is-rather-long-for-a-narrow-terminal")
    shown = at_terminal(person, "list", env={"COLUMNS": "60"}).text
    assert f"\n{task_id} " in shown


@pytest.mark.requirement("CLI-05")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_printed_on_request(person: Person, shell: str) -> None:
    text = person.ok(env={"_OMX_AUTORESEARCH_COMPLETE": f"{shell}_source"})
    assert "_OMX_AUTORESEARCH_COMPLETE" in text


@pytest.mark.requirement("CLI-05")
def test_completion_knows_verbs_and_missions(person: Person) -> None:
    task_id = person.init()
    asked = {"_OMX_AUTORESEARCH_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    assert "plain,status" in person.ok(env={**asked, "COMP_WORDS": "omx-autoresearch sta"})
    asked["COMP_CWORD"] = "2"
    assert f"plain,{task_id}" in person.ok(env={**asked, "COMP_WORDS": "omx-autoresearch pause "})


def test_a_terminal_is_never_steered_by_foreign_text(person: Person) -> None:
    person.json("init", "--goal", "a \x1b]0;title\x07 \x1b[2J goal", "--validator", "./check.sh")
    assert "\x1b" not in person.ok("status") + person.ok("list")


@pytest.mark.parametrize("arguments", [("hook",), ("hook", "nobody"), ("hook", "claude", "more")])
def test_the_hook_never_ends_with_the_status_that_means_refuse(
    person: Person, arguments: tuple[str, ...]
) -> None:
    done = person.run(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
