"""On bad disks: pipes and devices in the place of files, folders that cannot be written, disks that are full."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.journal.layout import ProjectFolder
from omx_autoresearch.journal.omx_folder import OmxFolder
from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.surfaces import hook
from tests.support.contents_on_disk import everything
from tests.support.scratch import HOOK, OTHER, PACKAGE, SESSION, Scratch
from tests.surfaces.support.command_line import SESSION as HELD
from tests.surfaces.support.experiments import Researcher, works_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.surfaces.support.command_line import Person


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


def command_line(world: Scratch, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, as the owner types it."""
    return subprocess.run(
        [sys.executable, "-m", "omx_autoresearch.surfaces.cli", *arguments],
        env={**world.environ, "OMX_AUTORESEARCH_HOME": str(world.home_path)},
        cwd=world.project,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# --- pipes and devices

OURS = (
    *(
        f"missions/TASK/{name}"
        for name in ("heartbeat.jsonl", "journal.jsonl", "journal.lock", "projected.json")
    ),
    *(
        f"missions/TASK/{name}"
        for name in ("status.0.json", "status.1.json", "index.sqlite", "NOTICE", "told")
    ),
    *(f"active/{SESSION}", f"told/{SESSION}", "hook.log"),
)
"""Every file of the state home that an event or a look opens."""


@pytest.mark.slow
@pytest.mark.case("DSK-01")
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", OURS)
def test_what_is_no_file_in_the_place_of_one_of_ours_makes_nobody_wait(
    world: Scratch, name: str, kind: str
) -> None:
    mission = world.mission(is_unsandboxed=True)
    path = world.home_path / name.replace("TASK", mission.task_id)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    events = [
        world.payload("PostToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_response={}),
        world.payload("Stop"),
        world.payload("UserPromptSubmit", prompt="go on"),
        world.payload("SessionEnd"),
    ]
    for event in events:  # a hook that waited would end this test
        assert world.hook(event).exit_status == 0
    looked = command_line(world, "status", mission.task_id)
    assert "unexpected" not in looked.stderr
    shown = subprocess.run(
        [sys.executable, "-I", "-S", str(HOOK), str(world.home_path), "claude", "statusline"],
        input=b'{"session_id":"%b"}' % SESSION.encode(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert shown.returncode == 0


@pytest.mark.case("DSK-02")
def test_a_hook_that_gets_little_memory_holds_all_the_same(world: Scratch) -> None:
    mission = world.mission(is_unsandboxed=True)
    lifecycle_commands.approve(world.runtime(), mission.task_id, is_unsandboxed=True)
    little = ["sh", "-c", 'ulimit -v 60000 && exec "$@"', "sh", *world.hook_argv("codex")]
    done = subprocess.run(
        little,
        input=json.dumps(world.payload()).encode(),
        env=world.environ,
        cwd=world.project,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert json.loads(done.stdout)["decision"] == "block"


# --- a state home that takes no record


@contextmanager
def small_disk(path: Path, size: str = "1m") -> Iterator[None]:
    """A small file system at an empty folder."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path) -> Path:
    """Take all room of the disk of a folder; returns the file that takes it."""
    filler, disk = path / "filler", os.statvfs(path)
    filler.write_bytes(bytes(disk.f_bavail * disk.f_frsize))
    return filler


def held(person: Person) -> str:
    """A mission that holds a session; returns its id."""
    person.ok("install", "claude", "--no-mcp", "--no-skill")
    task_id = person.start()
    person.bind(task_id)
    return task_id


def lost(person: Person, task_id: str) -> tuple[str, str]:
    """What doctor and status say of a hold that is lost, and the command that both name."""
    (document,) = person.json("doctor", "claude", env={"SHELL": "/bin/sh"}, status=9)
    (check,) = [check for check in document["checks"] if check["name"] == "state home"]
    assert (document["is_held"], check["ok"]) == (False, False)
    view = person.json("status", task_id)
    what = check["what"].partition(": ")[2]
    assert (view["hold"], view["next_command"]) == (f"lost (every stop is let go: {what})", check["cure"])
    return what, check["cure"]


@pytest.mark.case("DSK-03")
def test_doctor_and_status_find_a_mission_that_cannot_record(person: Person) -> None:
    task_id = held(person)
    person.json("status", task_id)  # the first look may record that the client is gone
    before = everything(person.home)
    assert "every stop is let go" not in person.json("status", task_id)["hold"]
    assert everything(person.home) == before
    journal = person.journal(task_id)
    journal.rename(journal.with_name("aside"))
    journal.symlink_to("aside")
    what, _ = lost(person, task_id)
    assert what.startswith(f"Could not append to {journal}: ")


@pytest.mark.case("DSK-03")
def test_doctor_and_status_find_a_disk_that_is_full(person: Person) -> None:
    person.home.mkdir()
    with small_disk(person.home):
        task_id = held(person)
        fill(person.home)
        what, cure = lost(person, task_id)
    assert "ENOSPC" in what
    assert cure.startswith("free space on the disk of ")


@pytest.mark.case("DSK-03")
def test_an_acceptance_on_a_full_disk_says_so_and_is_done_once_there_is_room(tmp_path: Path) -> None:
    person = Researcher(tmp_path)
    person.home.mkdir()
    with small_disk(person.home, "16m"):
        person.begin()
        person.drive(works_at(50), "--trials", "1", "--no-verify")
        filler = fill(person.home)
        said = person.refused("experiment", "accept", "--yes", "--no-verify", status=4)
        assert "No space left on device (ENOSPC)" in said
        assert "next: free space on the disk of " in said
        filler.unlink()
        assert person.json("experiment", "accept", "--yes", "--no-verify")["is_applied"]


@pytest.mark.case("DSK-02")
def test_a_program_that_may_open_no_file_says_so_without_a_traceback(person: Person) -> None:
    program = (
        "import resource\nfrom omx_autoresearch.surfaces.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=person.environment(),
        cwd=person.project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: omx-autoresearch could not be loaded: [Errno 24]")
    assert "next: raise the limits" in done.stderr


@pytest.mark.case("DSK-03")
def test_doctor_and_status_find_a_state_home_that_is_read_only(person: Person) -> None:
    task_id = held(person)
    bind = ["mount", "--bind", "-o", "ro", str(person.home), str(person.home)]
    if os.geteuid() != 0 or subprocess.run(bind, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a folder is not permitted here")
    try:
        what, cure = lost(person, task_id)
    finally:
        subprocess.run(["umount", "-l", str(person.home)], check=True)
    assert "EROFS" in what
    assert cure.startswith("make ")


# --- files under .omx that cannot be written


@contextmanager
def unwritable(path: Path) -> Iterator[None]:
    """A file, or a folder, that even its owner cannot change."""
    if os.geteuid() != 0:
        mode = path.stat().st_mode
        path.chmod(mode & ~0o222)
        try:
            yield
        finally:
            path.chmod(mode)
        return
    mount = ["mount", "--bind", "-o", "ro", str(path), str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a file is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.mark.case("DSK-05")
@pytest.mark.parametrize("name", ["findings.jsonl", "iteration_log.jsonl"])
def test_a_line_that_could_not_be_written_is_owed_and_no_edit(person: Person, name: str) -> None:
    task_id = held(person)
    for number in range(2):
        person.stop(last_assistant_message=f"Done {number}.")
        person.ok("finding", "add", task_id, "--summary", f"the finding {number}")
    path = person.project / ".omx" / "autoresearch" / task_id / "state" / name
    count = len(path.read_text().splitlines())
    with unwritable(path):
        person.stop(last_assistant_message="Done 2.")
        told = person.run("finding", "add", task_id, "--summary", "the finding 2")
        assert (told.returncode, "older than its journal" in told.stderr) == (0, True)
    assert len(path.read_text().splitlines()) == count
    person.ok("finding", "add", task_id, "--summary", "the finding 3")
    text = path.read_text()
    assert text.count("the finding") in (0, 4)
    person.ok("repair", task_id)
    assert path.read_text() == text
    assert person.records(task_id, "projection_edited") == []


@pytest.mark.case("DSK-05")
def test_a_file_that_cannot_be_opened_now_is_not_taken_for_an_edit(world: Scratch) -> None:
    mission = world.mission()
    folder_path = ProjectFolder(mission.project_path).task_path(mission.task_id)
    with OmxFolder(mission.project_path, os.path.relpath(folder_path, mission.project_path)) as folder:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(folder.descriptor)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                folder.read("inbox", 1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- what killed processes leave


@pytest.fixture
def gone(person: Person) -> int:
    """The pid of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        return process.pid


@pytest.mark.case("DSK-06")
@pytest.mark.parametrize(
    "verb", [("cancel", "TASK"), ("pause", "OTHER"), ("doctor", "claude")], ids=lambda verb: verb[0]
)
def test_an_entry_of_an_ended_mission_and_temporary_files_are_swept(
    person: Person, gone: int, verb: tuple[str, str]
) -> None:
    other, task_id = person.start("other"), held(person)
    (entry,) = (person.home / "active").iterdir()
    kept = entry.read_bytes()
    person.ok("cancel", task_id)
    litter = [
        person.home / f".{gone}-0-00000000.tmp",
        person.home / "active" / f".{gone}-0-00000000.tmp",
        person.journal(task_id).with_name(f".{gone}-0-00000000.tmp"),
        person.journal(task_id).with_name(f".{os.getpid()}-0-00000000.tmp"),
    ]
    entry.parent.mkdir()
    for path in (entry, *litter):  # as a kill between the record and the removal would leave them
        path.write_bytes(kept)
    person.run(*(word.replace("TASK", task_id).replace("OTHER", other) for word in verb))
    assert [path for path in (entry, *litter) if path.exists()] == litter[-1:], "that writer is still at work"
    assert not entry.parent.exists()


@pytest.mark.case("DSK-06")
def test_temporary_files_under_omx_are_swept_with_the_next_record(person: Person, gone: int) -> None:
    task_id = held(person)
    omx = person.project / ".omx"
    task = omx / "autoresearch" / task_id
    folders = [task / "state", task / "logs", omx / "state" / "sessions" / HELD]
    litter = [folder / f".{gone}-000000000000.tmp" for folder in folders]
    for path in litter:
        path.write_text("")
    person.stop()
    assert [path for path in litter if path.exists()] == []


@pytest.mark.case("DSK-06")
@pytest.mark.parametrize("end", ["cancel", "complete"])
def test_a_mission_ends_although_its_sessions_entry_cannot_be_removed(person: Person, end: str) -> None:
    task_id = held(person)
    active = person.home / "active"
    with unwritable(active):
        if end == "cancel":
            done = person.run("cancel", task_id)
            assert (done.returncode, "Could not remove" in done.stderr) == (4, True)
        else:
            person.write("answer.txt", "42\n")
            assert "Could not remove" in person.stop()["systemMessage"]
        assert person.json("status", task_id)["phase"] in ("cancelled", "complete")
        assert person.stop() is None, "the journal says that it holds nobody"
    person.run("cancel", task_id)
    assert not active.exists()


# --- events that cannot be read


@pytest.mark.case("DSK-09")
@pytest.mark.parametrize("kind", ["slow", "large"])
@pytest.mark.parametrize(("session", "event"), [(SESSION, "Stop"), (OTHER, "Stop"), (SESSION, "PostToolUse")])
def test_a_held_sessions_stop_that_cannot_be_read_is_let_go_loudly_and_no_other_event(
    world: Scratch, monkeypatch: pytest.MonkeyPatch, kind: str, session: str, event: str
) -> None:
    world.mission(is_unsandboxed=True)
    raw = json.dumps(world.payload(event, session, last_assistant_message="x" * 200_000)).encode()
    monkeypatch.setattr(hook, "PAYLOAD_LIMIT_BYTES", 1000 if kind == "large" else len(raw))
    monkeypatch.setattr(hook, "READ_SECONDS", 0.2)
    source, sink = os.pipe()
    with os.fdopen(sink, "wb", buffering=0) as stream, os.fdopen(source, "rb"):
        os.set_blocking(sink, False)
        stream.write(raw[:50_000])  # and the client never closes its end
        answer = hook.answer(hook.read_event(source), "claude", str(world.home_path))
    is_told = (session, event) == (SESSION, "Stop")
    assert bool(answer) == is_told
    if is_told:
        assert "could not be read" in json.loads(answer)["systemMessage"]


# --- values that are none


@pytest.mark.case("DSK-10")
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    "words",
    [
        ("validate", "--seconds"),
        ("wait", "--seconds"),
        ("list", "--prune", "--days"),
        ("resume", "--add-hours"),
    ],
    ids=lambda words: words[0],
)
def test_a_number_that_is_none_is_a_mistake_of_the_command(
    person: Person, words: tuple[str, ...], value: str
) -> None:
    done = person.run(*words, value)
    assert (done.returncode, words[-1] in done.stderr, "unexpected" in done.stderr) == (2, True, False)


@pytest.mark.case("DSK-10")
@pytest.mark.parametrize(
    "damage",
    [
        {"session_id": 1e308},
        {"session_id": None},
        {"session_id": ["x"]},
        {"covered": {"seq": "1", "digest": 5, "size_bytes": None, "inode": []}},
        {"covered": {"seq": 1e308, "digest": "", "size_bytes": -1, "inode": 1}},
        {"covered": []},
        {"files": {"state/findings.jsonl": {"stamp": ["x", None, {}], "digests": 5}}},
        {"files": {"state/progress.json": 5}},
        {"files": []},
    ],
    ids=str,
)
def test_damage_in_what_is_kept_of_projections_is_forgotten(world: Scratch, damage: dict[str, Any]) -> None:
    mission = world.mission(is_unsandboxed=True)
    path = world.home_path / "missions" / mission.task_id / "projected.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    assert "(validation)" in world.stop().refusal
    lifecycle_commands.repair(world.runtime(), mission.task_id)
    assert world.records(mission, "projection_edited") == []


@pytest.mark.case("DSK-05")
def test_repair_names_the_folder_that_it_cannot_write(person: Person) -> None:
    task_id = held(person)
    person.stop()
    task = person.project / ".omx" / "autoresearch" / task_id
    with unwritable(task / "state"):
        (task / "logs" / "heartbeat.jsonl").unlink()
        person.ok("note", task_id, "so that there is something to write")
        done = person.run("repair", task_id)
    assert (done.returncode, str(task) in done.stderr, ".tmp" in done.stderr) == (4, True, False)


@pytest.mark.case("DSK-02")
def test_a_command_that_may_open_no_file_names_the_limit(world: Scratch) -> None:
    world.mission(session="")
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 5; exec "$0" -m omx_autoresearch.surfaces.cli validate', sys.executable],
        env={
            **world.environ,
            "OMX_AUTORESEARCH_HOME": str(world.home_path),
            "PYTHONPATH": str(PACKAGE.parent),
        },
        cwd=world.project,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "ulimit -n" in done.stderr


@pytest.mark.case("DSK-06")
def test_logs_of_faults_and_what_sessions_were_told_are_removed_after_a_month(person: Person) -> None:
    task_id = person.start()
    kept = []
    for name in ("faults", "told"):
        (person.home / name).mkdir()
        for age in (0, 40 * 86400):
            path = person.home / name / f"of-{age}"
            path.write_text("x")
            os.utime(path, (path.stat().st_mtime - age,) * 2)
            kept += [path] if not age else []
    person.ok("pause", task_id)
    assert sorted(path for name in ("faults", "told") for path in (person.home / name).iterdir()) == sorted(
        kept
    )
