"""The mission store: what is derived may be lost or lie, the journal decides, and nothing acknowledged goes missing."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omx_autoresearch.agents.clients.claude import CLIENT
from omx_autoresearch.agents.events import SILENCE, HookEvent
from omx_autoresearch.foundation.errors import (
    JournalBroken,
    StateUntrusted,
    StepIllegal,
    StorageFailed,
    UsageError,
)
from omx_autoresearch.journal import reader
from omx_autoresearch.journal.layout import StateHome
from omx_autoresearch.journal.reader import Head
from omx_autoresearch.missions import registry
from omx_autoresearch.missions import store as states
from omx_autoresearch.missions.claims import write_changed
from omx_autoresearch.missions.records.work import ClaimRecorded
from omx_autoresearch.missions.stop import answer_stop
from omx_autoresearch.missions.store import MissionStore
from tests.missions.real_missions import SESSION, TASK, Place, at
from tests.support import snapshots

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def journal_path(place: Place) -> Path:
    return Path(place.folder.journal_path)


def child(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program with the package and these helpers at hand."""
    head = "import sys\nfrom pathlib import Path\nfrom tests.missions.real_missions import *\n"
    return subprocess.run(
        [sys.executable, "-c", head + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


# --- snapshots


@pytest.mark.requirement("STATE-07")
@pytest.mark.case("STA-07")
@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"{",
        b"\0" * 400,
        b"[]",
        b"null",
        b'{"format": 1}',
        b'{"format": 99, "head": {}, "mission": {}}',
    ],
)
def test_a_lost_or_corrupt_snapshot_costs_nothing_but_time(place: Place, content: bytes | None) -> None:
    place.claim("first")
    expected = place.store.load(TASK)
    if content is None:
        snapshots.lose(place.folder)
    else:
        snapshots.overwrite(place.folder, content)
    assert place.store.load(TASK) == expected
    place.claim("second", second=2)
    states.forget(place.folder)
    assert place.store.load(TASK).claim_count == 2
    assert snapshots.content(place.folder)["head"]["seq"] == 4


@pytest.mark.requirement("STATE-07")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the bytes that a process read")
def test_the_state_of_a_long_mission_is_read_in_as_many_bytes_as_that_of_a_short_one(place: Place) -> None:
    def bytes_read() -> int:
        states.forget(place.folder)
        before = Path("/proc/thread-self/io").read_text()
        place.store.load(TASK)
        after = Path("/proc/thread-self/io").read_text()
        counts = [int(text.split()[1]) for text in (before, after)]
        return counts[1] - counts[0]

    short = bytes_read()
    place.record(*(ClaimRecorded(f"{count} {'x' * 900}", "cli", f"c-{count}") for count in range(3000)))
    assert os.path.getsize(place.folder.journal_path) > 3_000_000
    assert bytes_read() < short + 16 * 1024


def test_a_snapshot_of_another_mission_is_not_believed(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path, task_id="20260102-030406-other")
    other.claim("theirs")
    snapshots.overwrite(place.folder, snapshots.paths(other.folder)[-1].read_bytes())
    assert place.store.load(TASK).task_id == TASK
    assert place.store.load(TASK).claim_count == 0


def test_a_snapshot_is_behind_only_until_the_next_look(place: Place) -> None:
    place.claim("first")
    older = snapshots.paths(place.folder)[-1].read_bytes()
    place.claim("second", second=2)
    snapshots.overwrite(place.folder, older)
    assert place.store.load(TASK).claim_count == 2


def test_a_copy_of_the_journal_with_another_inode_is_folded_anew(place: Place, journal_path: Path) -> None:
    place.claim("first")
    expected = place.store.load(TASK)
    copy = journal_path.with_suffix(".copy")
    shutil.copy(journal_path, copy)
    os.replace(copy, journal_path)
    assert place.store.load(TASK) == expected
    place.claim("second", second=2)
    assert place.texts() == ["first", "second"]


@pytest.mark.requirement("STATE-03")
def test_a_journal_cut_below_what_was_acknowledged_is_named(place: Place, journal_path: Path) -> None:
    place.claim("first")
    journal_path.write_bytes(b"".join(journal_path.read_bytes().splitlines(keepends=True)[:2]))
    for use in (
        lambda: place.store.load(TASK),
        lambda: place.claim("second"),
        lambda: place.store.rebuild(TASK),
    ):
        with pytest.raises(JournalBroken, match=r"ends at record 2, but 3 were acknowledged") as caught:
            use()
        assert f"repair {TASK} --accept" in caught.value.next_step
    assert place.store.rebuild(TASK, accept_loss=True).claim_count == 0
    place.claim("second")
    assert place.texts() == ["second"]


def test_a_journal_with_another_history_is_named(place: Place, journal_path: Path) -> None:
    place.claim("first")
    entries = list(place.store.journal(TASK).read())
    drafts = [(entry.kind, entry.data) for entry in entries]
    drafts[-1] = ("claim_recorded", {"text": "forged", "origin": "cli", "claim_id": "c-x"})
    head, block = Head(0, reader.GENESIS, 0, 0), b""
    for draft in (*drafts, drafts[-1]):
        line, entry = reader.make_line(draft, at(1), head)
        head, block = Head(entry.seq, entry.digest, entry.end, 0), block + line + b"\n"
    journal_path.write_bytes(block)
    with pytest.raises(JournalBroken, match=r"record 3 is not the one that was acknowledged|record 2 is not"):
        place.store.load(TASK)


# --- broken and newer journals


@pytest.mark.requirement("STATE-05")
@pytest.mark.case("STA-03")
@pytest.mark.parametrize("line", [b"\0" * 400, b"[]", b"3", b"null", b'{"seq":3}'])
def test_a_broken_line_in_the_middle_is_named_and_hides_no_other_mission(
    place: Place, journal_path: Path, tmp_path: Path, line: bytes
) -> None:
    other = Place(tmp_path, task_id="20260102-030406-other")
    place.claim("first")
    place.claim("second", second=2)
    kept = journal_path.read_bytes().splitlines(keepends=True)
    journal_path.write_bytes(b"".join((*kept[:2], line + b"\n", *kept[3:])))
    snapshots.lose(place.folder)
    before = journal_path.read_bytes()
    for use in (
        lambda: place.store.load(TASK),
        lambda: place.claim("third"),
        lambda: place.store.rebuild(TASK),
    ):
        with pytest.raises(JournalBroken, match=r"journal\.jsonl line 3"):
            use()
    assert journal_path.read_bytes() == before
    assert other.store.load(other.task_id).phase == "running"
    assert set(place.store.task_ids()) == {TASK, other.task_id}


@pytest.mark.parametrize(
    ("draft", "cause"),
    [
        (("trial_judged", {"id": 1}), "record kind 'trial_judged' is unknown"),
        (
            ("claim_recorded", {"text": "x", "origin": "cli", "claim_id": "c", "weight": 2}),
            "ClaimRecorded has unknown fields: weight",
        ),
    ],
)
def test_a_record_of_a_newer_version_has_its_own_sentence(
    place: Place, draft: tuple[str, dict[str, Any]], cause: str
) -> None:
    place.store.journal(TASK).append([draft], ts=at(2))
    with pytest.raises(
        JournalBroken, match=f"record 3 was written by a newer omx-autoresearch: {cause}"
    ) as caught:
        place.store.load(TASK)
    assert caught.value.next_step.startswith("upgrade omx-autoresearch")


def test_a_record_of_a_wrong_shape_is_named_by_its_number(place: Place) -> None:
    place.store.journal(TASK).append([("claim_recorded", {"text": "x"})], ts=at(2))
    with pytest.raises(JournalBroken, match=r"record 3: ClaimRecorded\.origin is missing"):
        place.store.load(TASK)


@pytest.mark.requirement("STATE-04")
@pytest.mark.case("STA-01")
def test_a_torn_last_line_is_set_aside_and_named_and_the_next_record_is_readable(
    place: Place, journal_path: Path
) -> None:
    with journal_path.open("ab") as stream:
        stream.write(b'{"id":"f2","kind":"te')
    assert place.store.load(TASK).phase == "running"
    place.claim("after the tear")
    assert place.texts() == ["after the tear"]
    torn = [entry.data for entry in place.store.journal(TASK).read() if entry.kind == "torn_tail_set_aside"]
    assert len(torn) == 1
    assert Path(torn[0]["path"]).read_bytes() == b'{"id":"f2","kind":"te'
    assert "line-3" in torn[0]["path"]


@pytest.mark.requirement("STATE-04")
def test_repair_names_a_torn_tail_as_well(place: Place, journal_path: Path) -> None:
    with journal_path.open("ab") as stream:
        stream.write(b"half")
    place.store.rebuild(TASK)
    assert place.kinds()[-1] == "torn_tail_set_aside"


# --- creating


@pytest.mark.requirement("STATE-10")
def test_a_task_id_is_given_once(place: Place) -> None:
    with pytest.raises(StepIllegal, match="is taken"):
        place.store.create(TASK, at(1), place.created())
    assert place.store.load(TASK).phase == "running"


def test_a_journal_without_a_mission_says_so_and_is_not_written_to(place: Place, journal_path: Path) -> None:
    journal_path.write_bytes(b"")
    snapshots.lose(place.folder)
    for use in (
        lambda: place.store.load(TASK),
        lambda: place.claim("x"),
        lambda: place.store.rebuild(TASK),
    ):
        with pytest.raises(StateUntrusted, match="holds no mission"):
            use()
    assert journal_path.read_bytes() == b""


def test_an_unknown_or_unsafe_id_is_no_mission(place: Place) -> None:
    for name in ("20260102-030405-none", "../x", "", "a/b"):
        assert not place.store.exists(name)
        with pytest.raises(UsageError):
            place.store.load(name)


# --- disks that refuse


@pytest.mark.requirement("STATE-11")
@pytest.mark.case("STA-04")
def test_a_full_disk_fails_a_transaction_loses_nothing_and_the_next_call_works(tmp_path: Path) -> None:
    code = """
import resource
from omx_autoresearch.foundation.errors import StorageFailed
place = Place(Path(sys.argv[1]))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (9000, hard))
told = 0
try:
    for number in range(1000):
        place.claim(f"{number} " + "x" * 200)
        told = number + 1
except StorageFailed as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert place.store.load(TASK).claim_count == told
place.claim("after")
place.follow()
print(told, place.store.load(TASK).claim_count)
"""
    ran = child(code, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "EFBIG" in ran.stdout
    told, now = map(int, ran.stdout.split()[-2:])
    assert told > 3
    assert now == told + 1
    store = MissionStore(StateHome(str(tmp_path / "state")))
    assert store.journal(TASK).verify().ok
    findings = tmp_path / "project" / ".omx" / "autoresearch" / TASK / "state" / "findings.jsonl"
    assert len(findings.read_bytes().splitlines()) == now
    leftovers = [path.name for path in tmp_path.rglob("*.tmp")]
    assert leftovers == []


@pytest.mark.requirement("STATE-11")
@pytest.mark.case("STA-04")
def test_derived_files_that_cannot_be_written_lose_no_record(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.rename

    def full(source: str, target: str, **options: Any) -> None:
        if str(target).endswith(("status.json", "projected.json", "progress.json", "NOTICE")):
            raise OSError(errno.ENOSPC, "no", target)
        real(source, target, **options)

    before = (place.task_path / "state" / "progress.json").read_bytes()
    with monkeypatch.context() as disk:
        disk.setattr(os, "rename", full)
        place.claim("first")
        assert place.store.load(TASK).claim_count == 1
        assert write_changed(place.runtime) != ()
        assert (place.task_path / "state" / "progress.json").read_bytes() == before
    place.claim("second", second=2)
    place.follow()
    assert json.loads((place.task_path / "state" / "progress.json").read_bytes())["total_findings"] == 2


@pytest.mark.requirement("STATE-11")
@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_state_home_that_cannot_be_written_is_read_and_says_what_mends_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    place.claim("first")
    real_open, real_mkdir = os.open, os.mkdir

    def refuse(path: str, flags: int, mode: int = 0o777, **options: Any) -> int:
        if str(path).startswith(place.home.root_path) and flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(number, os.strerror(number), path)
        return real_open(path, flags, mode, **options)

    def refuse_folder(path: str, mode: int = 0o777, **options: Any) -> None:
        if str(path).startswith(place.home.root_path):
            raise OSError(number, os.strerror(number), path)
        real_mkdir(path, mode, **options)

    with monkeypatch.context() as disk:
        disk.setattr(os, "open", refuse)
        disk.setattr(os, "mkdir", refuse_folder)
        assert place.store.load(TASK).claim_count == 1
        for use in (
            lambda: place.claim("second"),
            lambda: place.store.rebuild(TASK),
            lambda: place.store.create("20260102-030407-new", at(1), place.created()),
        ):
            with pytest.raises(StorageFailed, match=errno.errorcode[number]) as caught:
                use()
            assert caught.value.next_step
    place.claim("second", second=2)
    assert place.texts() == ["first", "second"]


@pytest.mark.requirement("STATE-11")
def test_a_state_home_that_cannot_be_read_is_no_empty_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "no")

    for name, use in (("stat", lambda: place.store.exists(TASK)), ("listdir", place.store.task_ids)):
        with monkeypatch.context() as disk:
            disk.setattr(os, name, refuse)
            with pytest.raises(StorageFailed, match="EACCES"):
                use()


@pytest.mark.requirement("STATE-11")
def test_a_mission_that_could_not_be_begun_leaves_its_id_free(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = "20260102-030407-new"
    with monkeypatch.context() as disk:

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "no")

        disk.setattr(os, "write", full)
        with pytest.raises(StorageFailed, match="ENOSPC"):
            place.store.create(task_id, at(1), place.created())
    assert not Path(place.home.mission(task_id).root_path).exists()
    place.store.create(task_id, at(1), place.created())


# --- several processes


@pytest.mark.requirement("STATE-03")
@pytest.mark.case("STA-05")
def test_processes_that_record_at_once_lose_nothing_and_leave_no_temporary_file(tmp_path: Path) -> None:
    place = Place(tmp_path)
    code = """
place = object.__new__(Place)
place.task_id, place.home = TASK, StateHome(sys.argv[1])
place.store = MissionStore(place.home)
place.runtime = Runtime(home=place.home)
for number in range(10):
    place.claim(f"{sys.argv[2]}-{number}")
place.follow()
"""
    head = "import sys\nfrom tests.missions.real_missions import *\n"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", head + code, place.home.root_path, str(number)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for number in range(4)
    ]
    assert [process.wait(120) for process in running] == [0] * 4
    assert len(set(place.texts())) == 40
    assert place.store.load(TASK).claim_count == 40
    findings = (place.task_path / "state" / "findings.jsonl").read_bytes().splitlines()
    assert sorted(json.loads(line)["summary"] for line in findings) == sorted(place.texts())
    assert list(tmp_path.rglob("*.tmp")) == []


@pytest.mark.requirement("STATE-03")
def test_a_transaction_that_fails_half_way_keeps_what_it_had_recorded(place: Place) -> None:
    def half() -> None:
        with place.store.transaction(TASK, at(2)) as transaction:
            transaction.record(ClaimRecorded("kept", "cli", "c-kept"))
            raise StepIllegal("not this one")

    with pytest.raises(StepIllegal):
        half()
    assert place.store.load(TASK).claim_count == 1
    place.claim("next", second=3)
    place.follow()
    findings = (place.task_path / "state" / "findings.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["summary"] for line in findings] == ["kept", "next"]


# --- one source


def stop(session_id: str = SESSION) -> HookEvent:
    return HookEvent(client="claude", kind="stop", session_id=session_id, payload_digest="d")


@pytest.mark.case("LOOP-04")
@pytest.mark.case("SES-03")
def test_a_mode_state_that_came_with_a_clone_holds_nobody(tmp_path: Path) -> None:
    place = Place(tmp_path)
    foreign = place.mode("somebody-elses")
    foreign.parent.mkdir(parents=True)
    foreign.write_text(json.dumps({"active": True, "phase": "running", "task_id": TASK, "session_id": "x"}))
    before = foreign.read_bytes()
    for session_id in ("somebody-elses", "x", SESSION):
        assert answer_stop(place.runtime, CLIENT, stop(session_id)) == SILENCE
    place.store.rebuild(TASK)
    assert foreign.read_bytes() == before
    assert place.store.load(TASK).binding is None


@pytest.mark.case("LOOP-04")
def test_without_a_state_home_no_file_in_the_project_is_a_mission(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.bind()
    shutil.rmtree(place.home.root_path)
    assert place.store.task_ids() == ()
    assert not place.store.exists(TASK)
    assert answer_stop(place.runtime, CLIENT, stop()) == SILENCE


def test_the_heartbeat_is_outside_the_journal(place: Place, journal_path: Path) -> None:
    before = journal_path.read_bytes()
    registry.beat(place.folder.heartbeat_path, at=at(2), status="tool", session_id=SESSION)
    assert journal_path.read_bytes() == before
