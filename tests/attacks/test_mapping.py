"""A pinned file that a process has mapped and written to once: from then on it changes without a new time."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.missions import launch
from omx_autoresearch.missions.lifecycle_commands import unblock
from omx_autoresearch.missions.rules.criteria import criterion_of
from omx_autoresearch.missions.validation.checks import accept
from omx_autoresearch.system import mounts
from tests.support.needs import needs_user_namespaces
from tests.support.scratch import CHECK, SESSION, Scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of open writers by leases")

LENIENT = "#!/bin/sh\nexit 0\n".ljust(len(CHECK) - 1) + "\n"


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    """The file in memory, its page dirty: this write was the last one that moves a time."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        with mmap.mmap(descriptor, 0) as page:
            page[:] = page[:]
            yield page
    finally:
        os.close(descriptor)


def verdict(world: Scratch, task_id: str) -> tuple[str, str]:
    run = world.load(task_id).attestation
    return (run.verdict, run.summary) if run else ("", "")


@pytest.mark.requirement("DONE-14")
def test_a_check_that_changed_without_a_new_time_is_seen(world: Scratch) -> None:
    mission = world.mission(validator_command="sh check.sh")
    with mapped(world.project / "check.sh") as page:
        assert world.hook(world.payload()).reason
        page[:] = LENIENT.encode()
        assert "check.sh" in world.hook(world.payload(last_assistant_message="Done now.")).reason
        assert world.load(mission).phase == "running"
        page[:] = CHECK.encode()
    world.write("answer.txt", "42\n")
    assert world.hook(world.payload(last_assistant_message="Really.")).reason == ""
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("DONE-14")
def test_what_the_cache_of_pins_says_lets_no_run_pass(world: Scratch) -> None:
    """As on a file system that moves no times, or by the hand of one who edits the cache."""
    mission = world.mission()
    assert world.hook(world.payload()).reason
    path = world.write("check.sh", LENIENT, executable=True)
    cache_path = Path(world.home.mission(mission.task_id).root_path, "pins.cache")
    cache = json.loads(cache_path.read_bytes())
    status = path.stat()
    marks = [
        status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
    ]  # fmt: skip
    cache["files"]["check.sh"] = [*marks, hashlib.sha256(CHECK.encode()).hexdigest()]
    cache_path.write_text(json.dumps(cache))
    assert world.hook(world.payload(last_assistant_message="Done now.")).reason
    assert verdict(world, mission.task_id) == ("tampered", "check.sh")
    assert world.load(mission).phase == "running"


SWAPPING = """#!/bin/sh
[ -e "$SIGNALS/armed" ] || exit 1
echo started > "$SIGNALS/started"
read -r _ < "$SIGNALS/go"
. ./tests/lib.sh
"""
NOT_MOUNTED = "#!/bin/sh\n[ -w tests/lib.sh ] || exit 9\n"
"""A check that needs to write its library: the baseline finds out that it cannot run with frozen files mounted."""
HONEST = 'echo judged > "$SIGNALS/judged"; read -r _ < "$SIGNALS/back"; exit 1\n'
LENIENT_LIBRARY = 'echo judged > "$SIGNALS/judged"; read -r _ < "$SIGNALS/back"; exit 0\n'


def stop_beside_a_writer(world: Scratch, check: str, library: str) -> str:
    """A stop whose check runs while a mapping of its library is swapped for a lenient one and put back."""
    from threading import Thread

    signals = world.root / "signals"
    signals.mkdir()
    for name in ("started", "go", "judged", "back"):
        os.mkfifo(signals / name)
    world.environ["SIGNALS"] = str(signals)
    world.write("check.sh", check, executable=True)
    world.write("tests/lib.sh", library)
    world.commit("Check by a library")
    mission = world.mission(environment_names=("SIGNALS",), has_baseline=True)
    (signals / "armed").touch()
    with mapped(world.project / "tests" / "lib.sh") as page:

        def swap() -> None:
            (signals / "started").read_text()
            page[:] = LENIENT_LIBRARY.encode()
            (signals / "go").write_text("go\n")
            (signals / "judged").read_text()
            page[:] = library.encode()
            (signals / "back").write_text("back\n")

        swapper = Thread(target=swap, daemon=True)
        swapper.start()
        world.hook(world.payload())
        swapper.join(timeout=60)
    return mission.task_id


@needs_user_namespaces
@pytest.mark.requirement("DONE-14", "DONE-25")
def test_a_swap_in_a_mapping_does_not_reach_a_check_whose_files_are_mounted(world: Scratch) -> None:
    task_id = stop_beside_a_writer(world, SWAPPING, HONEST)
    run = world.load(task_id).attestation
    assert run is not None
    assert (run.verdict, run.is_mounted) == ("failed", True)


@needs_user_namespaces
@pytest.mark.requirement("DONE-14", "DONE-25")
def test_an_editor_that_holds_a_mounted_file_open_spoils_no_pass(world: Scratch) -> None:
    task_id = stop_beside_a_writer(world, SWAPPING, LENIENT_LIBRARY)
    assert world.load(task_id).phase == "complete"


@pytest.mark.requirement("DONE-14")
@pytest.mark.parametrize("library", [HONEST, LENIENT_LIBRARY], ids=["swapped", "left alone"])
def test_a_pass_does_not_count_beside_a_process_that_can_write_the_check_unseen(
    world: Scratch, library: str
) -> None:
    """Swapped in a mapping while it runs and put back, no time and no digest tells of it; the open writer does."""
    task_id = stop_beside_a_writer(world, SWAPPING.replace("#!/bin/sh\n", NOT_MOUNTED), library)
    word, summary = verdict(world, task_id)
    assert word == "tampered"
    assert "tests/lib.sh: open for writing in another process" in summary
    assert world.load(task_id).phase == "running"


@needs_user_namespaces
@pytest.mark.requirement("DONE-25")
def test_a_check_that_cannot_run_with_mounted_files_is_named_at_start_and_hashed(world: Scratch) -> None:
    world.write("check.sh", "#!/bin/sh\n[ -w tests/lib.sh ] && . ./tests/lib.sh\n", executable=True)
    world.write("tests/lib.sh", "grep -q 42 answer.txt\n")
    world.commit("Check by a library that must be writable")
    started = launch.start(world.runtime(), world.draft().task_id, launch.StartOptions(session_id=SESSION))
    assert started.notes == (
        "the check does not run with frozen files mounted over its own: they are hashed instead",
    )
    world.write("answer.txt", "42\n")
    world.write("tests/lib.sh", "true\n")
    assert "tampered" in world.stop().refusal
    world.write("tests/lib.sh", "grep -q 42 answer.txt\n")
    assert world.stop().refusal == ""
    run = world.load(started.mission).attestation
    assert run is not None
    assert (run.verdict, run.is_mounted) == ("passed", False)


@pytest.mark.requirement("DONE-25")
def test_a_machine_that_grants_no_mounts_is_named_at_start_and_its_files_are_hashed(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "_enter_namespaces", lambda: "the system refuses user namespaces")
    started = launch.start(world.runtime(), world.draft().task_id, launch.StartOptions(session_id=SESSION))
    assert any(note.endswith("not mounted (the system refuses user namespaces)") for note in started.notes)
    world.write("answer.txt", "42\n")
    assert world.stop().refusal == ""
    run = world.load(started.mission).attestation
    assert run is not None
    assert (run.verdict, run.is_mounted) == ("passed", False)


@pytest.mark.requirement("DONE-14")
def test_work_that_changed_without_a_new_time_after_its_pass_completes_nothing(world: Scratch) -> None:
    """The pass is kept while a criterion is open; meanwhile the work changes in a mapping that moves no time."""
    answer = world.write("answer.txt", "42\n")
    with mapped(answer) as page:
        world.commit("Answer")
        mission = world.mission(criteria=(criterion_of("shown: the answer was shown :: person"),))
        world.hook(world.payload())  # blocked: only the person is missing
        assert verdict(world, mission.task_id)[0] == "passed"
        accept(world.runtime(), mission.task_id, "shown", reason="seen")
        unblock(world.runtime(), mission.task_id)
        page[:] = b"00\n"
        assert world.hook(world.payload(last_assistant_message="Done now.")).reason
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("DONE-14")
def test_a_reader_of_the_check_and_a_writer_that_has_left_change_nothing(world: Scratch) -> None:
    mission = world.mission()
    world.write("answer.txt", "42\n")
    with mapped(world.project / "check.sh") as page:
        page[:] = CHECK.encode()
    with (world.project / "check.sh").open("rb"):
        assert world.hook(world.payload()).reason == ""
    assert world.load(mission).phase == "complete"


@pytest.mark.requirement("DONE-14")
def test_a_writer_that_is_open_beside_a_failing_run_is_no_tampering(world: Scratch) -> None:
    mission = world.mission(validator_command="sh check.sh")
    with mapped(world.project / "check.sh"):
        assert world.hook(world.payload()).reason
    assert verdict(world, mission.task_id)[0] == "failed"
