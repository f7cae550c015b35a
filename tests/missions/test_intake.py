"""Intake: the files that `init` writes, and what of them can be read again."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import MissionInvalid, StateUntrusted, StorageFailed, WorkspaceFault
from omx_autoresearch.foundation.records import to_plain
from omx_autoresearch.journal import safe_files
from omx_autoresearch.journal.layout import Runtime, StateHome
from omx_autoresearch.missions import intake
from omx_autoresearch.missions.intake import check_draft, read_intake, write_intake
from omx_autoresearch.missions.rules.intake import MissionDraft

if TYPE_CHECKING:
    from pathlib import Path


SCRIPT = MissionDraft(
    goal="Make the parser pass", validator_command="./check.sh 'a' # \"b\" <in\n./more.sh\n"
)
REVIEW = MissionDraft(
    goal="Write it up",
    validator_prompt="Is it sound?\nBe strict: yes.",
    output_artifact_path=".omx/specs/autoresearch-demo/report.md",
    reviewer_command="claude -p",
    reviewed_by=("command", "session"),
    scope=("the parser", "größe: all"),
    non_goals=("speed",),
)


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(StateHome(str(tmp_path / "state")), environ={"PATH": os.defpath})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


def git(project: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=project, check=True, capture_output=True, text=True).stdout


# --- writing


@pytest.mark.requirement("LIFE-09")
def test_the_three_files_stand_in_the_folder_of_the_slug(runtime: Runtime, project: Path) -> None:
    record = write_intake(runtime, str(project), SCRIPT)
    folder = project / ".omx/specs/autoresearch-make-the-parser-pass"
    assert sorted(path.name for path in folder.iterdir()) == ["mission.md", "result.json", "sandbox.md"]
    assert record.specs_path == ".omx/specs/autoresearch-make-the-parser-pass"
    assert (
        json.loads((folder / "result.json").read_text())["mission_path"] == f"{record.specs_path}/mission.md"
    )
    assert json.loads((folder / "result.json").read_text()) == to_plain(record)


@pytest.mark.requirement("LIFE-09")
def test_a_taken_slug_gets_a_suffix_and_nothing_is_overwritten(runtime: Runtime, project: Path) -> None:
    first = write_intake(runtime, str(project), SCRIPT)
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    slugs = [
        write_intake(runtime, str(project), replace(SCRIPT, goal="Make the parser pass")).slug
        for _ in range(2)
    ]
    assert slugs == [f"{first.slug}-2", f"{first.slug}-3"]
    assert {path: path.read_bytes() for path in before} == before
    assert read_intake(str(project / f".omx/specs/autoresearch-{slugs[0]}")).slug == slugs[0]


@pytest.mark.requirement("LIFE-10", "LIFE-09")
@pytest.mark.parametrize("draft", [SCRIPT, REVIEW], ids=["script", "review"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "goal": "---\n# {{ goal }} {% raw %}\n---", "slug": "odd", "protect": ("data/**", "!data/x"),
            "environment_names": ("NO", "TOKEN"), "limits": {"refusals_total": 5, "wall_clock_hours": 1.5},
            "timeout_seconds": 12.5, "isolate_home": True, "accept_unattested": True,
            "unfrozen_reason": "no: files", "score_direction": "lower",
        },
    ],
    ids=["plain", "all"],
)  # fmt: skip
def test_what_was_asked_is_read_back_unchanged(
    runtime: Runtime, project: Path, draft: MissionDraft, changes: dict[str, Any]
) -> None:
    asked = replace(draft, **changes)
    record = write_intake(runtime, str(project), asked)
    again = read_intake(str(project / record.specs_path))
    assert again.intake_digests == record.digests
    mode = record.validation_mode
    assert replace(again, intake_digests={}) == replace(asked, slug=record.slug, validation_mode=mode)


@pytest.mark.requirement("LIFE-11")
def test_an_unsound_draft_leaves_nothing_behind(runtime: Runtime, project: Path) -> None:
    with pytest.raises(MissionInvalid, match="goal: it holds a placeholder") as caught:
        write_intake(runtime, str(project), replace(SCRIPT, goal="<goal>", validator_prompt="both"))
    assert "both modes are given" in caught.value.message
    assert list(project.iterdir()) == []


def test_a_failed_write_takes_back_what_it_made(
    runtime: Runtime, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = safe_files.replace_file

    def full(path: str, data: bytes, *, mode: int) -> None:
        if path.endswith("result.json"):
            raise StorageFailed(f"Could not write {path}: No space left on device (ENOSPC).")
        real(path, data, mode=mode)

    monkeypatch.setattr(intake, "replace_file", full)
    with pytest.raises(StorageFailed):
        write_intake(runtime, str(project), SCRIPT)
    assert list((project / ".omx/specs").iterdir()) == []


def test_a_link_in_place_of_our_folder_is_refused(runtime: Runtime, project: Path, tmp_path: Path) -> None:
    (project / ".omx").symlink_to(tmp_path)
    with pytest.raises(WorkspaceFault, match="symbolic link"):
        write_intake(runtime, str(project), SCRIPT)
    with pytest.raises(WorkspaceFault, match="is not a folder"):
        write_intake(runtime, str(project / "nowhere"), SCRIPT)


# --- git


@pytest.mark.case("SES-03")
def test_git_status_stays_clean_after_an_intake(runtime: Runtime, project: Path) -> None:
    git(project, "init", "-q")
    write_intake(runtime, str(project), SCRIPT)
    assert git(project, "status", "--porcelain", "--untracked-files=all") == ""


@pytest.mark.case("SES-03")
def test_with_track_only_the_specs_are_left_to_be_committed(runtime: Runtime, project: Path) -> None:
    git(project, "init", "-q")
    write_intake(runtime, str(project), SCRIPT)
    record = write_intake(runtime, str(project), replace(SCRIPT, track=True))
    (project / ".omx/autoresearch").mkdir()
    (project / ".omx/autoresearch/x").touch()
    shown = git(project, "status", "--porcelain", "--untracked-files=all").splitlines()
    assert f"?? {record.sandbox_path}" in shown
    assert all(line.startswith("?? .omx/specs/") for line in shown)


def test_rules_that_somebody_else_wrote_stay(runtime: Runtime, project: Path) -> None:
    (project / ".omx").mkdir()
    (project / ".omx/.gitignore").write_text("mine\n")
    write_intake(runtime, str(project), replace(SCRIPT, track=True))
    assert (project / ".omx/.gitignore").read_text() == "mine\n"


# --- checks that need paths


@pytest.mark.case("ART-04")
@pytest.mark.parametrize(
    "path", ["../../etc/hosts", "/etc/hosts", "a\nb", "x" * 5000, "folder/", "~/x", "a/../../b", "a\0b"]
)
def test_an_artifact_that_leaves_the_workspace_is_refused_with_the_rule(path: str) -> None:
    assert check_draft(replace(REVIEW, output_artifact_path=path))[0].startswith("output_artifact_path: ")


@pytest.mark.parametrize("slug", ["../x", "A", "a b", "con", "a--b", "-a", "x" * 60])
def test_a_slug_that_is_no_short_name_is_refused_with_one_that_is(slug: str) -> None:
    assert "try " in check_draft(replace(SCRIPT, slug=slug))[0]


# --- reading


@pytest.fixture
def specs(runtime: Runtime, project: Path) -> Path:
    return project / write_intake(runtime, str(project), SCRIPT).specs_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.requirement("LIFE-11")
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "timeout_seconds: 900.0",
            "timeout_seconds: '900'",
            'timeout_seconds: must be a number, received "900"',
        ),
        ("timeout_seconds: 900.0", "timeout_seconds: .inf", "timeout_seconds: must be a number"),
        ("timeout_seconds: 900.0", "timeout_seconds: true", "must be a number, received true"),
        ("timeout_seconds: 900.0", "timeout: 900", "timeout: unknown field"),
        ("timeout_seconds: 900.0", "isolate_home: yes", 'must be true or false, received "yes"'),
        ("timeout_seconds: 900.0", "limits: {refusals: 3}", "'refusals' is unknown"),
        ("timeout_seconds: 900.0", "limits: {refusals_total: 1.5}", "limits.refusals_total must be"),
        ("timeout_seconds: 900.0", "validator_prompt: both", "both modes are given"),
        ("timeout_seconds: 900.0", "output_artifact_path: /etc/hosts", "absolute"),
        ("timeout_seconds: 900.0", "env: [NO, 3]", "env.1: must be text, received 3"),
        ("timeout_seconds: 900.0", "validation_mode: x", "line 6: the key 'validation_mode' is given twice"),
        (
            "mission-validator-script",
            "both",
            "line 2: validation_mode: must be 'mission-validator-script' or",
        ),
    ],
)
def test_an_edit_that_cannot_stand_is_told_with_file_line_field_and_value(
    specs: Path, old: str, new: str, said: str
) -> None:
    edit(specs / "sandbox.md", old, new)
    with pytest.raises(MissionInvalid) as caught:
        read_intake(str(specs))
    assert said in caught.value.message
    assert str(specs) in caught.value.message


def test_a_placeholder_in_an_edited_file_is_refused(specs: Path) -> None:
    edit(specs / "mission.md", "goal: Make the parser pass", "goal: <your goal>")
    with pytest.raises(MissionInvalid, match="goal: it holds a placeholder"):
        read_intake(str(specs))


def test_a_missing_goal_is_named_by_line(specs: Path) -> None:
    edit(specs / "mission.md", "goal: Make the parser pass\n", "")
    with pytest.raises(MissionInvalid, match=r"mission\.md: line 2: goal: it is required but missing"):
        read_intake(str(specs))


@pytest.mark.case("HIO-09")
@pytest.mark.parametrize("name", ["mission.md", "sandbox.md"])
def test_a_byte_order_mark_loads_and_utf16_is_named_and_left_untouched(specs: Path, name: str) -> None:
    plain = (specs / name).read_bytes()
    (specs / name).write_bytes(b"\xef\xbb\xbf" + plain)
    assert read_intake(str(specs)).goal == SCRIPT.goal
    wide = plain.decode().encode("utf-16")
    (specs / name).write_bytes(wide)
    with pytest.raises(MissionInvalid, match=rf"{name}: it is encoded in UTF-16"):
        read_intake(str(specs))
    assert (specs / name).read_bytes() == wide


def test_a_missing_file_and_a_pipe_are_no_hang(specs: Path) -> None:
    (specs / "sandbox.md").unlink()
    with pytest.raises(MissionInvalid, match=r"sandbox\.md is missing"):
        read_intake(str(specs))
    os.mkfifo(specs / "sandbox.md")
    with pytest.raises(StateUntrusted, match="not a regular file"):
        read_intake(str(specs))


@pytest.mark.requirement("LIFE-11")
@pytest.mark.parametrize("command", ["./check.sh 'a", 'sh -c "./check.sh', "./check.sh \\'a'"])
def test_a_quotation_mark_that_is_not_closed_is_named(command: str) -> None:
    assert check_draft(MissionDraft(goal="g", validator_command=command)) == [
        "validator_command: a quotation mark is not closed"
    ]


@pytest.mark.parametrize(
    "command", ["./check.sh it\\'s", "true # don't", "cat <<E\ndon't\nE", 'grep "don\'t" x']
)
def test_a_command_that_a_shell_reads_is_taken(command: str) -> None:
    assert check_draft(MissionDraft(goal="g", validator_command=command)) == []
