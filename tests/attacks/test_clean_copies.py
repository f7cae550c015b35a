"""``confirm: clean``: what passes in the workspace must pass in a copy of what git tracks as well."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import MissionInvalid
from omx_autoresearch.missions import launch
from omx_autoresearch.missions.rules.criteria import criterion_of
from tests.support.boxes import BOXES, take_box
from tests.support.scratch import SESSION, Scratch

if TYPE_CHECKING:
    from pathlib import Path

READS_CACHE = (
    "#!/bin/sh\n[ -e build/answer ] || cp answer.txt build/answer 2>/dev/null; grep -q 42 build/answer\n"
)


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


def verdict(world: Scratch, task_id: str) -> tuple[str, str, str]:
    run = world.load(task_id).attestation
    assert run is not None
    return run.verdict, run.cause, run.summary


@pytest.mark.requirement("DONE-26")
def test_work_that_git_does_not_track_completes_nothing(world: Scratch) -> None:
    mission = world.mission(confirm="clean")
    world.write("answer.txt", "42\n")
    assert "git does not track answer.txt" in world.hook(world.payload()).reason
    assert verdict(world, mission.task_id)[:2] == ("failed", "clean-copy")
    world.commit("Answer")
    assert world.hook(world.payload(last_assistant_message="Added.")).reason == ""
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("DONE-26")
def test_a_result_that_was_left_in_an_ignored_folder_completes_nothing(world: Scratch) -> None:
    world.write("check.sh", READS_CACHE, executable=True)
    world.write(".gitignore", "build/\n.omx/\n")
    world.commit("Check what was built")
    mission = world.mission(confirm="clean")
    world.write("build/answer", "42\n")
    assert "build" in world.hook(world.payload()).reason
    assert verdict(world, mission.task_id)[:2] == ("failed", "clean-copy")


@pytest.mark.requirement("DONE-26")
@pytest.mark.parametrize("way", ["keep", "link"])
def test_what_the_owner_names_stands_in_the_copy(world: Scratch, way: str) -> None:
    world.write("check.sh", "#!/bin/sh\ngrep -q 1 packages/there && grep -q 42 answer.txt\n", executable=True)
    world.write(".gitignore", "packages/\n.omx/\n")
    world.write("packages/there", "1\n")
    world.commit("Check with packages")
    named: dict[str, Any] = {way: ("packages",)}
    mission = world.mission(confirm="clean", **named)
    world.write("answer.txt", "42\n")
    world.commit("Answer")
    assert world.hook(world.payload()).reason == ""
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("DONE-26")
def test_the_copy_judges_by_the_frozen_files(world: Scratch) -> None:
    """A pinned file that git does not track stands in the copy, too."""
    world.write("check.sh", "#!/bin/sh\n. ./tests/lib.sh\n", executable=True)
    world.write(".gitignore", "tests/\n.omx/\n")
    world.write("tests/lib.sh", "grep -q 42 answer.txt\n")
    world.write("answer.txt", "0\n")
    world.commit("Check by a library that is not tracked")
    mission = world.mission(confirm="clean")
    world.write("answer.txt", "42\n")
    assert world.hook(world.payload()).reason == ""
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("DONE-26")
def test_start_names_what_is_missing_in_a_clean_copy(world: Scratch) -> None:
    check = "#!/bin/sh\n[ -e packages/there ] || exit 3\ngrep -q 42 answer.txt\n"
    world.write("check.sh", check, executable=True)
    world.write(".gitignore", "packages/\n.omx/\n")
    world.write("packages/there", "1\n")
    world.commit("Check with packages")
    task_id = world.draft(confirm="clean").task_id
    started = launch.start(world.runtime(), task_id, launch.StartOptions(session_id=SESSION))
    note = next(note for note in started.notes if "clean copy" in note)
    assert "git does not track packages (git add, or amend --keep or --link)" in note


@pytest.mark.requirement("DONE-26")
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"confirm": "twice"}, "confirm: 'twice'"),
        ({"keep": ("packages",)}, "keep, link: they belong to a clean copy"),
        ({"confirm": "clean", "link": ("../packages",)}, "link: "),
    ],
)
def test_an_intake_that_cannot_be_confirmed_is_refused(
    world: Scratch, fields: dict[str, object], said: str
) -> None:
    with pytest.raises(MissionInvalid, match=said):
        world.draft(**fields)


@pytest.mark.requirement("DONE-26")
@pytest.mark.parametrize("way", ["keep", "link"])
def test_no_path_of_the_copy_leads_out_of_it(world: Scratch, way: str) -> None:
    """A folder that the owner named a path below is replaced by a tracked link to somewhere else."""
    victim = world.root / "victim"
    victim.mkdir()
    (victim / "data.bin").write_text("precious")
    world.write("vendor/data.bin", "1\n")
    world.write(".gitignore", "vendor/data.bin\n.omx/\n")
    world.commit("Ignore what is kept")
    named: dict[str, Any] = {way: ("vendor/data.bin",)}
    mission = world.mission(confirm="clean", **named)
    (world.project / "vendor" / "data.bin").unlink()
    (world.project / "vendor").rmdir()
    (world.project / "vendor").symlink_to(victim)
    world.write("answer.txt", "42\n")
    world.commit("Lead elsewhere")
    assert world.hook(world.payload()).reason
    assert (victim / "data.bin").read_text() == "precious"
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("DONE-26")
@pytest.mark.parametrize("way", ["a repository within", "an absolute link", "a folder behind a link"])
def test_what_a_clone_elsewhere_lacks_is_lacking_in_the_copy(world: Scratch, way: str) -> None:
    world.write("check.sh", "#!/bin/sh\ngrep -q 42 cache/answer\n", executable=True)
    world.write(".gitignore", "out/\n.omx/\n")
    if way == "a folder behind a link":
        world.write("cache/answer", "0\n")
    world.commit("Check what was made")
    mission = world.mission(confirm="clean")
    world.write("out/answer", "42\n")
    if way == "a repository within":
        (world.project / "cache").mkdir()
        world.git("init", "-q", cwd=world.project / "cache")
        world.git("commit", "-q", "--allow-empty", "-m", "x", cwd=world.project / "cache")
        world.git("add", "cache")
        world.write("cache/answer", "42\n")
    elif way == "an absolute link":
        (world.project / "cache").symlink_to(world.project / "out")
        world.commit("Link")
    else:
        (world.project / "cache" / "answer").unlink()
        (world.project / "cache").rmdir()
        (world.project / "cache").symlink_to("out")
    assert world.hook(world.payload()).reason
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("DONE-26")
def test_a_link_stands_in_the_place_of_a_folder_with_tracked_files(world: Scratch) -> None:
    world.write("check.sh", "#!/bin/sh\ngrep -q 1 data/there && grep -q 42 answer.txt\n", executable=True)
    world.write(".gitignore", "data/*\n!data/.gitkeep\n.omx/\n")
    world.write("data/there", "1\n")
    world.write("data/.gitkeep", "")
    world.commit("Check with data")
    mission = world.mission(confirm="clean", link=("data",))
    world.write("answer.txt", "42\n")
    world.commit("Answer")
    assert world.hook(world.payload()).reason == ""
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("DONE-26")
def test_a_program_of_a_linked_folder_that_is_pinned_leaves_the_rest_of_the_folder_there(
    world: Scratch,
) -> None:
    world.write("check.sh", "#!/bin/sh\n. ./packages/run.sh\n", executable=True)
    world.write(".gitignore", "packages/\n.omx/\n")
    world.write("packages/run.sh", "grep -q 1 packages/there && grep -q 42 answer.txt\n")
    world.write("packages/there", "1\n")
    world.commit("Check with packages")
    mission = world.mission(confirm="clean", link=("packages",), protect=("!packages/there",))
    assert mission.contract is not None
    assert mission.contract.pinned_count == 2
    world.write("answer.txt", "42\n")
    world.commit("Answer")
    assert world.hook(world.payload()).reason == ""
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("DONE-26")
def test_a_criterion_whose_command_leans_on_what_git_ignores_is_not_met(world: Scratch) -> None:
    world.write(".gitignore", "build/\n.omx/\n")
    world.write("answer.txt", "42\n")
    world.commit("Answer")
    criterion = criterion_of("built: the build says 42 :: command: grep -q 42 build/answer")
    mission = world.mission(confirm="clean", criteria=(criterion,))
    world.write("build/answer", "42\n")
    world.hook(world.payload())
    [check] = world.load(mission).checks
    assert not check.is_met
    assert check.received.startswith("in a clean copy: exit status 2")
    assert "git does not track build" in check.received
    world.write(".gitignore", ".omx/\n")
    world.commit("Track what was built")
    assert world.hook(world.payload(last_assistant_message="Tracked.")).reason == ""
    assert world.load(mission).phase == "complete"


WAITING = """#!/bin/sh
case $PWD in *omx-autoresearch-*) pwd > "$SIGNALS/ready"; read -r _ < "$SIGNALS/go";; esac
. ./tests/lib.sh
"""
MEANWHILE = {
    "the work": "echo 42 too > $copy/answer.txt",
    "a new file": "echo x > $copy/new.txt",
    "what judges": "mv $copy/tests/lib.sh $copy/kept; cp $copy/kept $copy/tests/lib.sh",
    "the folder of what judges, moved back": "mv $copy/tests $copy/kept; mv $copy/kept $copy/tests; "
    ": > $copy/tests/x; rm $copy/tests/x",
}


@pytest.mark.requirement("DONE-26")
@pytest.mark.parametrize("way", MEANWHILE)
def test_a_copy_that_another_process_writes_into_while_it_is_judged_proves_nothing(
    world: Scratch, way: str
) -> None:
    signals = world.root / "signals"
    signals.mkdir()
    for name in ("ready", "go"):
        os.mkfifo(signals / name)
    world.environ["SIGNALS"] = str(signals)
    world.write("check.sh", WAITING, executable=True)
    world.write("tests/lib.sh", "grep -q 42 answer.txt\n")
    world.commit("Check by a library")
    mission = world.mission(confirm="clean", environment_names=("SIGNALS",))
    world.write("answer.txt", "42\n")
    world.commit("Answer")
    meddle = f'read -r copy < "$SIGNALS/ready"; {MEANWHILE[way]}; echo > "$SIGNALS/go"'
    with subprocess.Popen(["/bin/sh", "-c", meddle], cwd=world.project, env=world.environ):
        assert world.stop().refusal
    word, cause, summary = verdict(world, mission.task_id)
    assert (word, cause) == ("failed", "clean-copy")
    assert "was made, written or moved there while it ran" in summary


@pytest.mark.requirement("DONE-26")
def test_a_check_may_leave_caches_and_what_git_ignores_in_the_copy(world: Scratch) -> None:
    leaves = "mkdir -p build tests/__pycache__ && : > build/x && : > tests/__pycache__/x"
    world.write("check.sh", f"#!/bin/sh\n{leaves} && grep -q 42 answer.txt\n", executable=True)
    world.write(".gitignore", "build/\n.omx/\n")
    world.commit("Check and leave things behind")
    mission = world.mission(confirm="clean")
    world.write("answer.txt", "42\n")
    world.commit("Answer")
    assert world.hook(world.payload()).reason == ""
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("DONE-26")
@pytest.mark.parametrize("kind", BOXES)
def test_a_boxed_run_in_the_copy_of_a_folder_sees_the_rest_of_its_repository(
    world: Scratch, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_box(monkeypatch, kind)
    check = "#!/bin/sh\n: > out && grep -q 1 ../shared && grep -q 42 answer.txt\n"
    world.write("part/check.sh", check, executable=True)
    world.write("shared", "1\n")
    world.write(".gitignore", "out\n.omx/\n")
    world.commit("Check by a file of the repository")
    draft = world.draft(confirm="clean", forbid=("network",))
    options = launch.StartOptions(
        session_id=SESSION, workspace_path=str(world.project / "part"), has_baseline=False
    )
    mission = launch.start(world.runtime(), draft.task_id, options).mission
    world.write("part/answer.txt", "42\n")
    world.commit("Answer")
    assert world.stop().refusal == ""
    assert world.load(mission).phase == "complete"
