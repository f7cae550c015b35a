"""`init --dry-run`: the validator's word in the environment of every later run, the pins, and what will not work."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from omx_autoresearch.journal.layout import Runtime, StateHome
from omx_autoresearch.missions.contracts import command_warnings, draft_warnings, dry_run
from omx_autoresearch.missions.rules.intake import MissionDraft

DRAFT = MissionDraft(goal="make it pass", validator_command="./check.sh")


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    environ = {"PATH": os.environ["PATH"], "HOME": "/h", "CLAUDECODE": "1", "DATA": "seen"}
    return Runtime(StateHome(str(tmp_path / "state")), environ=environ, shell_marks=("CLAUDECODE",))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


def script(project: Path, text: str, *, mode: int = 0o755) -> None:
    (project / "check.sh").write_text(text)
    (project / "check.sh").chmod(mode)


def files(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()
    }


@pytest.mark.requirement("LIFE-12", "DONE-04")
@pytest.mark.case("VAL-03")
def test_the_validator_runs_once_in_the_workspace_and_nothing_of_ours_stays(
    runtime: Runtime, project: Path
) -> None:
    script(
        project,
        '#!/bin/sh\npwd\necho "mark=$CLAUDECODE data=$DATA lc=$LC_ALL"\necho \'{"score": 3}\'\nexit 1\n',
    )
    (project / "lib.sh").write_text("true\n")
    before = files(project)
    found = dry_run(runtime, str(project), replace(DRAFT, environment_names=("DATA",), protect=("lib.sh",)))
    assert files(project) == before
    assert not Path(runtime.home.root_path).exists()
    assert found.tryout is not None
    assert (found.tryout.report.verdict, found.tryout.report.score, found.tryout.exit_status) == (
        "failed",
        3.0,
        1,
    )
    assert str(project) in found.tryout.output
    assert "mark= data=seen lc=C.UTF-8" in found.tryout.output
    assert found.pinned_paths == ("check.sh", "lib.sh")
    assert (found.warnings, found.changed_by_run) == ((), ())


def test_a_validator_that_changes_what_judges_is_told_before_the_mission_starts(
    runtime: Runtime, project: Path
) -> None:
    script(project, "#!/bin/sh\ndate > expected.txt\n")
    (project / "expected.txt").write_text("old")
    found = dry_run(runtime, str(project), replace(DRAFT, protect=("expected.txt",)))
    assert found.changed_by_run == ("expected.txt",)


def test_a_review_is_not_tried(runtime: Runtime, project: Path) -> None:
    draft = MissionDraft(goal="write it", validator_prompt="Is it sound?", output_artifact_path="report.md")
    assert dry_run(runtime, str(project), draft).tryout is None


def test_a_review_without_a_command_is_said_to_wait_for_a_person(runtime: Runtime, project: Path) -> None:
    draft = MissionDraft(goal="write it", validator_prompt="Is it sound?", output_artifact_path="report.md")
    told = dry_run(runtime, str(project), draft).warnings
    assert len(told) == 1
    assert "only a person can decide" in told[0]
    assert "--reviewer" in told[0]
    two = replace(draft, reviewed_by=("command", "person", "session"))
    assert "a person or a session" in dry_run(runtime, str(project), two).warnings[0]
    assert dry_run(runtime, str(project), replace(draft, reviewer_command="cat")).warnings == ()


@pytest.mark.case("VAL-01")
@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("#!/bin/sh\n", 0o644, "./check.sh is not executable (mode 0644): chmod +x ./check.sh"),
        ("exit 0\n", 0o755, "./check.sh has no `#!` line"),
        ("#!/nowhere/sh\n", 0o755, "names the interpreter '/nowhere/sh', which does not exist"),
        ("#!/bin/sh\r\nexit 0\r\n", 0o755, "Windows line ends"),
    ],
)
def test_a_script_that_will_not_start_is_warned_of(
    runtime: Runtime, project: Path, text: str, mode: int, said: str
) -> None:
    script(project, text, mode=mode)
    assert said in draft_warnings(runtime, str(project), DRAFT)[0]


@pytest.mark.case("VAL-01")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("./gone.sh", "./gone.sh does not exist"),
        ("A=1 ./gone.sh", "./gone.sh does not exist"),
        ("sh gone.sh", "gone.sh, which sh should run, does not exist"),
        ("no-such-program-here --x", "no-such-program-here is not found on your PATH"),
        ("./folder", "./folder is a folder"),
    ],
)
def test_a_program_that_is_not_there_is_warned_of(
    runtime: Runtime, project: Path, command: str, said: str
) -> None:
    (project / "folder").mkdir()
    assert said in command_warnings(runtime, str(project), command)[0]


@pytest.mark.parametrize(
    "command", ["sh -c 'exit 1'", "cd x && y", "[ -f a ]", "true", "( exit 1 )", "sh $X/a.sh"]
)
def test_what_can_run_is_not_warned_of(runtime: Runtime, project: Path, command: str) -> None:
    assert command_warnings(runtime, str(project), command) == []


def test_a_declared_variable_that_is_not_set_is_warned_of(runtime: Runtime, project: Path) -> None:
    script(project, "#!/bin/sh\n")
    assert (
        "env: GONE is not set"
        in draft_warnings(runtime, str(project), replace(DRAFT, environment_names=("GONE",)))[0]
    )
