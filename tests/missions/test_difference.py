"""What changed since the launch: told at completion, and at any time before and after."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.freezing.tree import tree_state
from omx_autoresearch.missions import lifecycle_commands, views
from omx_autoresearch.missions.amending import AmendOptions, amend_mission
from omx_autoresearch.missions.difference import (
    ChangedLines,
    changed_lines,
    difference_since_launch,
    flagged_changes,
)
from omx_autoresearch.missions.rules.difference import KEPT_CHANGES, SHOWN_CHANGES

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.difference import Change, Difference
    from omx_autoresearch.missions.rules.mission import Mission
    from tests.support.scratch import Scratch

SHADOWS, DATA, LOADED, READ = (
    "shadows an installed module",
    "test or data",
    "new in a loaded folder",
    "read by the check",
)


def difference(world: Scratch, mission: Mission) -> Difference:
    return difference_since_launch(world.runtime(), world.load(mission))


def changes(world: Scratch, mission: Mission) -> dict[str, Change]:
    return {change.path: change for change in difference(world, mission).changes}


def kinds(world: Scratch, mission: Mission) -> dict[str, str]:
    return {path: change.kind for path, change in changes(world, mission).items()}


def lines(world: Scratch, mission: Mission) -> dict[str, ChangedLines]:
    folder, mission = world.home.mission(mission.task_id), world.load(mission)
    files = [file for _, file in flagged_changes(folder, mission)]
    return {name.decode(): found for name, found in changed_lines(folder, mission, files).items()}


def follow(world: Scratch, mission: Mission, path: Path) -> None:
    """The owner moves the mission to another folder."""
    options = AmendOptions(workspace_path=str(path))
    amend_mission(world.runtime(), mission.task_id, lambda draft: draft, options)


# --- against what it is compared


@pytest.mark.requirement("DONE-29")
def test_what_was_edited_or_untracked_at_the_launch_is_no_change(world: Scratch) -> None:
    world.write("notes.md", "# dirty\n")
    world.write("draft.txt", "untracked\n")
    mission = world.mission(session="")
    assert difference(world, mission).file_count == 0
    world.write("notes.md", "# dirty\nmore\n")
    world.write("draft.txt", "edited\n")
    assert kinds(world, mission) == {"notes.md": "edited", "draft.txt": "edited"}
    found = lines(world, mission)
    assert "-untracked\n+edited\n" in found["draft.txt"].patch
    assert (found["notes.md"].added, found["notes.md"].removed) == (1, 0)


@pytest.mark.requirement("DONE-29")
def test_it_makes_no_difference_whether_and_where_a_change_was_committed(world: Scratch) -> None:
    world.write("old.py", "print(1)\n")
    world.write("gone.py", "print(2)\n")
    world.commit("More")
    mission = world.mission(session="")
    world.write("answer.txt", "41\n")
    world.write("notes.md", "# other\n")
    (world.project / "old.py").rename(world.project / "new.py")
    (world.project / "gone.py").unlink()
    seen = kinds(world, mission)
    assert seen == {"answer.txt": "added", "notes.md": "edited", "new.py": "moved", "gone.py": "removed"}
    assert changes(world, mission)["new.py"].old_path == "old.py"
    world.git("checkout", "-q", "-b", "work")
    world.commit("Work")
    assert kinds(world, mission) == seen
    world.git("commit", "-q", "--amend", "-m", "Rewritten", "--allow-empty")
    world.git("gc", "-q", "--prune=now")
    assert kinds(world, mission) == seen
    assert "-# notes\n+# other\n" in lines(world, mission)["notes.md"].patch


@pytest.mark.requirement("DONE-29")
def test_another_work_tree_and_a_moved_project_are_compared_with_the_same_launch(world: Scratch) -> None:
    world.write("draft.txt", "untracked\n")
    mission = world.mission(session="")
    tree = world.root / "tree"
    world.git("worktree", "add", "-q", "-b", "side", str(tree))
    (tree / "notes.md").write_text("# side\n")
    follow(world, mission, tree)
    assert kinds(world, mission) == {"notes.md": "edited", "draft.txt": "removed"}
    follow(world, mission, world.project)
    moved = world.project.rename(world.root / "moved")
    follow(world, mission, moved)
    assert kinds(world, mission) == {}
    (moved / "draft.txt").write_text("edited\n")
    assert lines(world, mission)["draft.txt"].removed == 1


@pytest.mark.requirement("DONE-29")
def test_without_git_files_are_compared_with_what_was_kept_of_them(world: Scratch) -> None:
    shutil.rmtree(world.project / ".git")
    mission = world.mission(session="")
    world.write("notes.md", "# other\n")
    assert kinds(world, mission) == {"notes.md": "edited"}
    assert "-# notes\n+# other\n" in lines(world, mission)["notes.md"].patch


@pytest.mark.requirement("DONE-29")
def test_a_file_that_git_is_told_to_ignore_since_the_launch_is_still_compared(world: Scratch) -> None:
    mission = world.mission(session="")
    world.write(".gitignore", "notes.md\n")
    world.git("rm", "-q", "--cached", "notes.md")
    assert kinds(world, mission) == {".gitignore": "added"}
    world.write("notes.md", "# other\n")
    assert kinds(world, mission) == {".gitignore": "added", "notes.md": "edited"}


@pytest.mark.requirement("DONE-29")
def test_a_file_that_only_becomes_a_program_is_told_apart_from_an_edit(world: Scratch) -> None:
    mission = world.mission(session="")
    (world.project / "notes.md").chmod(0o755)
    assert kinds(world, mission) == {"notes.md": "mode"}


@pytest.mark.requirement("DONE-29")
@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"\0" * 8, "binary"),
        (b"x" * (512 * 1024 + 1), "unreadable now, or too large"),
        (b"x\n" * 20_001, "too many lines"),
    ],
)
def test_a_change_whose_lines_cannot_be_shown_says_why(world: Scratch, content: bytes, fault: str) -> None:
    mission = world.mission(session="")
    world.write("notes.md", content)
    assert lines(world, mission)["notes.md"] == ChangedLines(fault=fault)


@pytest.mark.requirement("DONE-29")
def test_a_lost_list_is_told_and_keeps_no_mission_from_its_end(world: Scratch) -> None:
    mission = world.mission()
    Path(world.home.mission(mission.task_id).root_path, "launch-tree").write_bytes(b"100644 0\tforged\0")
    world.write("answer.txt", "42\n")
    said = world.stop().person_message
    assert "is complete" in said
    assert "What changed since the launch is not known: no list of the files at launch is there" in said
    assert world.completion(mission)["changed_since_launch"]["fault"]


# --- why a person should look


def project_with_tests(world: Scratch) -> None:
    world.write("tests/data/golden.json", '{"answer": 42}\n')
    world.write(
        "tests/test_app.py",
        "import json, pathlib\nfrom src.app import answer\nfrom helpers.must import same\n"
        "GOLDEN = pathlib.Path(__file__).parent / 'data' / 'golden.json'\n",
    )
    for name in ("src/app.py", "src/other.py", "helpers/must.py"):
        world.write(name, "x = 1\n")
    world.write("docs/data.md", "# data\n")
    world.commit("A project with tests")


@pytest.mark.requirement("DONE-30")
def test_each_change_has_the_reasons_to_look_at_it(world: Scratch) -> None:
    project_with_tests(world)
    world.write("reference/case.txt", "1\n")
    world.commit("A case")
    mission = world.mission(
        session="",
        validator_command="./check.sh reference",
        protect=("tests/test_app.py", "reference/case.txt"),
    )
    for name in ("src/app.py", "src/other.py", "helpers/must.py", "docs/data.md"):
        world.write(name, "y = 2\n")
    for name in ("reference/other.txt", "tests/helper.py", "tests/filecmp.py", "src/pkg/json/__init__.py"):
        world.write(name, "z = 3\n")
    world.write("src/pkg/__init__.py", "")
    flags = {path: set(change.flags) for path, change in changes(world, mission).items()}
    assert flags == {
        "src/app.py": {READ},
        "src/other.py": set(),
        "helpers/must.py": {READ},
        "docs/data.md": set(),
        "reference/other.txt": {DATA, READ, LOADED},
        "tests/helper.py": {DATA, LOADED},
        "tests/filecmp.py": {DATA, LOADED, SHADOWS},
        "src/pkg/json/__init__.py": set(),
        "src/pkg/__init__.py": set(),
    }


@pytest.mark.requirement("DONE-30")
def test_a_module_named_like_an_installed_one_is_flagged_and_the_weightiest_comes_first(
    world: Scratch,
) -> None:
    site = world.project / ".venv" / "lib" / "python3.11" / "site-packages"
    (site / "yaml").mkdir(parents=True)
    world.write(".gitignore", ".venv\n")
    project_with_tests(world)
    mission = world.mission(session="")
    for name in ("yaml.py", "zebra.py", "notes.md"):
        world.write(name, "x = 1\n")
    found = difference(world, mission)
    assert [(change.path, change.flags) for change in found.changes] == [
        ("yaml.py", (SHADOWS,)),
        ("notes.md", ()),
        ("zebra.py", ()),
    ]
    assert (found.file_count, found.flagged_count) == (3, 1)


@pytest.mark.requirement("DONE-30")
def test_work_that_the_owner_named_is_flagged_only_where_it_shadows_a_module(world: Scratch) -> None:
    project_with_tests(world)
    mission = world.mission(session="", work=("src/**",))
    for name in ("src/app.py", "src/cases.json", "src/filecmp.py", "data.csv"):
        world.write(name, "y = 2\n")
    flags = {path: change.flags for path, change in changes(world, mission).items()}
    assert flags == {
        "src/app.py": (),
        "src/cases.json": (),
        "src/filecmp.py": (SHADOWS,),
        "data.csv": (DATA,),
    }


@pytest.mark.requirement("DONE-30")
def test_a_file_that_the_check_opened_at_the_baseline_is_read_by_it(world: Scratch) -> None:
    world.write("inputs/one.bin", "1\n")
    world.write("check.sh", "#!/bin/sh\ncat inp*/*.bin; grep -qx 42 answer.txt\n", executable=True)
    world.commit("Inputs")
    mission = world.mission(session="", has_baseline=True)
    world.write("inputs/one.bin", "2\n")
    assert changes(world, mission)["inputs/one.bin"].flags == (DATA, READ)


# --- where it is told


@pytest.mark.requirement("DONE-29")
def test_a_completion_tells_the_first_changes_by_name_and_counts_the_rest(world: Scratch) -> None:
    mission = world.mission()
    for number in range(KEPT_CHANGES + 20):
        world.write(f"more/{number:03}.py", "x = 1\n")
    world.write("tests/test_more.py", "def test_more(): pass\n")
    world.write("answer.txt", "42\n")
    said = world.stop().person_message.splitlines()
    count = KEPT_CHANGES + 22
    assert said[1] == f"{count} files changed since the launch, 2 flagged:"
    assert said[2] == "  added answer.txt (test or data, read by the check)"
    assert said[3] == "  added tests/test_more.py (test or data)"
    assert said[2 + SHOWN_CHANGES :] == [
        f"  and {count - SHOWN_CHANGES} more files",
        f"To see them: omx-autoresearch diff {mission.task_id}",
    ]
    told = world.completion(mission)["changed_since_launch"]
    assert (told["file_count"], told["flagged_count"], len(told["changes"])) == (count, 2, KEPT_CHANGES)
    assert told["changes"][0]["flags"] == [DATA, READ]
    shutil.rmtree(world.project / ".omx")
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert world.completion(mission)["changed_since_launch"] == told


@pytest.mark.requirement("DONE-29")
def test_what_was_read_is_believed_before_the_index_of_git(world: Scratch) -> None:
    path = world.write("notes.md", "before\n")
    world.commit("Notes")
    mission = world.mission(session="")
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as page:
        page[:] = b"before\n"
        os.utime(path, (1_600_000_000, 1_600_000_000))  # or git would doubt its own entry
        world.git("update-index", "--really-refresh")
        later_ns = path.stat().st_ctime_ns + 10**10
        os.utime(world.project / ".git" / "index", ns=(later_ns, later_ns))
        page[:] = b"after!\n"  # a mapping moves no time
        digest = tree_state(str(world.project), reads_files=True).digest
        found = difference_since_launch(world.runtime(), mission, read_digest=digest)
    assert [change.path for change in found.changes] == ["notes.md"]


@pytest.mark.requirement("DONE-29")
def test_a_view_counts_the_changes_where_it_looks_and_after_the_completion(world: Scratch) -> None:
    mission = world.mission()
    world.write("notes.md", "# other\n")
    assert views.view(world.runtime(), mission.task_id).difference is None
    looked = views.view(world.runtime(), mission.task_id, looks=True).difference
    assert looked is not None
    assert [change.path for change in looked.changes] == ["notes.md"]
    world.write("answer.txt", "42\n")
    world.stop()
    world.write("later.py", "x = 1\n")
    after = views.view(world.runtime(), mission.task_id).difference
    assert after is not None
    assert [change.path for change in after.changes] == ["answer.txt", "notes.md"]


@pytest.mark.requirement("DONE-29")
def test_a_refused_stop_compares_nothing_with_the_launch(world: Scratch) -> None:
    mission = world.mission()
    assert world.stop().refusal
    loaded = (
        "import sys; print([name for name in sys.modules if 'difference' in name or 'launch_tree' in name])"
    )
    seen = subprocess.run(
        [sys.executable, "-c", f"import omx_autoresearch.missions.stop; {loaded}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert "missions.difference" not in seen.stdout.replace("rules.difference", "")
    assert "launch_tree" not in seen.stdout
    assert world.load(mission).difference is None
