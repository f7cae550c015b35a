"""A process in the background that swaps the check while it runs, and puts it back before anybody looks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.missions import launch
from omx_autoresearch.missions.amending import amend_mission
from omx_autoresearch.missions.rules.mission import next_command
from omx_autoresearch.system import watching
from tests.support.needs import needs_bubblewrap, needs_user_namespaces
from tests.support.scratch import SESSION, Scratch

if TYPE_CHECKING:
    from pathlib import Path

# The validator itself lets the swap happen at the right moment: it waits for the swapper, which waits for it.
CHECK = """#!/bin/sh
echo started > "$SIGNALS/started"
read -r _ < "$SIGNALS/go"
. ./tests/lib.sh
"""
SWAP = """#!/bin/sh
read -r _ < "$SIGNALS/started"
{swap}
echo go > "$SIGNALS/go"
read -r _ < "$SIGNALS/judged"
{back}
echo back > "$SIGNALS/back"
"""
HONEST = 'echo judged > "$SIGNALS/judged"; read -r _ < "$SIGNALS/back"; exit 1\n'
LENIENT = 'echo judged > "$SIGNALS/judged"; read -r _ < "$SIGNALS/back"; exit 0\n'
WAYS = {
    "by content": ("cat lenient.sh > tests/lib.sh", "cat honest.sh > tests/lib.sh"),
    "by renaming": ("mv tests/lib.sh kept.sh; cp lenient.sh tests/lib.sh", "mv kept.sh tests/lib.sh"),
    "by its folder": (
        "mv tests kept; mkdir tests; cp lenient.sh tests/lib.sh",
        "mv tests gone; mv kept tests; rm -r gone",
    ),
    "by its folder, and an entry in it": (
        "mv tests kept; mkdir tests; cp lenient.sh tests/lib.sh",
        "mv tests gone; mv kept tests; rm -r gone; : > tests/entry; rm tests/entry",
    ),
}


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    world = Scratch.make(tmp_path)
    signals = tmp_path / "signals"
    signals.mkdir()
    import os

    for name in ("started", "go", "judged", "back"):
        os.mkfifo(signals / name)
    world.environ["SIGNALS"] = str(signals)
    world.write("check.sh", CHECK, executable=True)
    world.write("tests/lib.sh", HONEST)
    world.write("honest.sh", HONEST)
    world.write("lenient.sh", LENIENT)
    world.commit("Check by a library")
    return world


@pytest.mark.requirement("DONE-14")
@pytest.mark.parametrize("way", WAYS)
def test_a_check_that_was_swapped_while_it_ran_and_put_back_proves_nothing(world: Scratch, way: str) -> None:
    import subprocess

    mission = world.mission(environment_names=("SIGNALS",))
    swap, back = WAYS[way]
    with subprocess.Popen(
        ["/bin/sh", "-c", SWAP.format(swap=swap, back=back)], cwd=world.project, env=world.environ
    ) as swapper:
        refusal = world.stop().refusal
    assert swapper.returncode == 0
    assert world.read("tests/lib.sh") == HONEST
    run = world.load(mission).attestation
    assert run is not None
    assert (run.verdict, run.cause, run.is_fresh) == ("tampered", "pins-moved", False)
    assert (
        next_command(world.load(mission), is_after_run=True) == f"omx-autoresearch validate {mission.task_id}"
    )
    assert "tests/" in run.summary
    assert "while it ran" in refusal
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("DONE-14")
def test_a_system_that_grants_no_watch_compares_times_and_says_what_may_go_unseen(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    monkeypatch.setattr(watching, "c_function", lambda _name: lambda *_: -1)
    world.write("check.sh", "#!/bin/sh\ngrep -q 42 answer.txt\n", executable=True)
    world.commit("Check at once")
    started = launch.start(world.runtime(), world.draft().task_id, launch.StartOptions(session_id=SESSION))
    unseen = "what stands for a moment while a check runs may go unseen: the system grants no watch"
    assert any(unseen in note for note in started.notes)
    world.write("answer.txt", "42\n")
    assert world.stop().refusal == ""
    run = world.load(started.mission).attestation
    assert run is not None
    assert unseen in run.summary

    world.write("check.sh", CHECK, executable=True)
    world.commit("Check by a library")
    mission = world.mission(environment_names=("SIGNALS",))
    swap, back = WAYS["by renaming"]
    with subprocess.Popen(
        ["/bin/sh", "-c", SWAP.format(swap=swap, back=back)], cwd=world.project, env=world.environ
    ):
        assert world.stop().refusal
    run = world.load(mission).attestation
    assert run is not None
    assert run.verdict == "tampered"


@needs_user_namespaces
@pytest.mark.requirement("DONE-14", "DONE-25")
@pytest.mark.parametrize("act", ["touch tests/lib.sh", "ln tests/lib.sh linked; rm linked"])
def test_a_backup_or_an_editor_that_changes_no_content_during_a_mounted_run_is_no_tampering(
    world: Scratch, act: str
) -> None:
    import subprocess

    world.write("tests/lib.sh", LENIENT)
    world.commit("Let it pass")
    mission = world.mission(environment_names=("SIGNALS",))
    with subprocess.Popen(
        ["/bin/sh", "-c", SWAP.format(swap=act, back="true")], cwd=world.project, env=world.environ
    ):
        assert world.stop().refusal == ""
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("DONE-14")
def test_a_configuration_that_the_check_itself_makes_is_named_at_start_with_the_owners_way_out(
    world: Scratch,
) -> None:
    check = "#!/bin/sh\necho '[pytest]' > pytest.ini; rm pytest.ini; grep -q 42 answer.txt && pytest -q\n"
    world.write("check.sh", check, executable=True)
    world.commit("Configure for the run alone")
    with pytest.raises(WorkspaceFault, match=r"pytest\.ini .* was made, written or moved while") as caught:
        world.mission(has_baseline=True)
    assert "--protect '!pytest.ini'" in str(caught.value)


@pytest.mark.requirement("DONE-14")
def test_a_check_may_write_beside_its_pinned_files(world: Scratch) -> None:
    world.write("check.sh", "#!/bin/sh\n. ./tests/lib.sh\n", executable=True)
    world.write("tests/lib.sh", "echo seen > tests/last-output\nexit 0\n")
    world.write(".gitignore", "tests/last-output\n")
    world.commit("Write beside")
    mission = world.mission()
    world.stop()
    assert (world.project / "tests" / "last-output").exists()
    assert world.load(mission).phase == "complete"


WRITES_ITS_LIBRARY = (
    "#!/bin/sh\ncat tests/lib.sh > copy && cat copy > tests/lib.sh && grep -q 42 answer.txt\n"
)


@needs_user_namespaces
@pytest.mark.requirement("DONE-14", "DONE-25")
def test_what_the_check_itself_writes_is_left_out_and_named(world: Scratch) -> None:
    world.write("check.sh", WRITES_ITS_LIBRARY, executable=True)
    world.commit("Write what is read")
    started = launch.start(world.runtime(), world.draft().task_id, launch.StartOptions(session_id=SESSION))
    mission = started.mission
    assert mission.contract is not None
    assert mission.contract.written_by_check == ("tests/lib.sh",)
    assert "tests/lib.sh is not frozen, because the check itself writes it" in started.notes
    world.write("answer.txt", "42\n")
    assert world.hook(world.payload()).reason == ""
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("DONE-14")
def test_a_check_that_writes_all_that_judges_is_refused_at_start(world: Scratch) -> None:
    world.write(
        "check.sh", "#!/bin/sh\ncat check.sh > copy && cat copy > check.sh; exit 1\n", executable=True
    )
    world.commit("Write the check itself")
    with pytest.raises(WorkspaceFault, match=r"check\.sh would be frozen") as caught:
        world.mission(has_baseline=True)
    assert "--protect '!check.sh'" in str(caught.value)


@needs_bubblewrap
@pytest.mark.requirement("DONE-14")
def test_an_agent_s_own_start_leaves_nothing_out(world: Scratch) -> None:
    world.write("check.sh", WRITES_ITS_LIBRARY, executable=True)
    world.commit("Write what is read")
    with pytest.raises(WorkspaceFault, match=r"tests/lib\.sh would be frozen"):
        launch.start(world.runtime(), world.draft().task_id, launch.StartOptions(is_agent=True))


@needs_user_namespaces
@pytest.mark.requirement("DONE-25")
def test_a_file_that_something_else_touches_during_the_baseline_stays_frozen(world: Scratch) -> None:
    world.write("check.sh", "#!/bin/sh\n. ./tests/lib.sh\n", executable=True)
    world.write("tests/lib.sh", "touch -c tests/lib.sh 2>/dev/null; grep -q 42 answer.txt\n")
    world.commit("Touch what judges")
    with pytest.raises(WorkspaceFault, match=r"tests/lib\.sh would be frozen"):
        world.mission(has_baseline=True)


@needs_user_namespaces
@pytest.mark.requirement("DONE-25")
def test_a_check_that_meets_a_mount_late_names_the_owners_way_out(world: Scratch) -> None:
    """The baseline ends before the step that a mounted folder does not allow."""
    check = "#!/bin/sh\ngrep -q 42 answer.txt || exit 1\n: > o && ln o tests/o && rm o tests/o\n"
    world.write("check.sh", check, executable=True)
    world.write("tests/lib.sh", "true\n")
    world.commit("Link into the folder of what judges")
    mission = world.mission(has_baseline=True, protect=("tests/lib.sh",))
    world.write("answer.txt", "42\n")
    assert f"omx-autoresearch amend {mission.task_id} --no-mounts" in world.hook(world.payload()).reason
    world.write("o", "")
    (world.project / "o").unlink()
    amend_mission(world.runtime(), mission.task_id, lambda draft: replace(draft, mounts=False))
    assert world.hook(world.payload(last_assistant_message="Again.")).reason == ""
    assert world.load(mission).phase == "complete"
