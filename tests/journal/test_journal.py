"""The journal: what was acknowledged is there, whatever dies, fills up or is broken."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omx_autoresearch.foundation.errors import JournalBroken, StateUntrusted, StorageFailed
from omx_autoresearch.journal.layout import MissionFolder
from omx_autoresearch.journal.log import Journal
from omx_autoresearch.journal.reader import GENESIS, Entry, Head, digest_of, make_line
from omx_autoresearch.journal.safe_files import replace_file

TS = "2026-01-02T03:04:05.123456Z"
CHILD = f"""
import sys
from omx_autoresearch.foundation.errors import StorageFailed
from omx_autoresearch.journal.log import Journal
from omx_autoresearch.journal.layout import MissionFolder
journal = Journal(MissionFolder(sys.argv[1]), lock_wait_seconds=60)
TS = {TS!r}
"""


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return _created(tmp_path / "mission")


def _created(path: Path) -> Journal:
    journal = Journal(MissionFolder(str(path)))
    journal.create()
    return journal


def _add(journal: Journal, *names: str, **data: Any) -> tuple[Entry, ...]:
    return journal.append([("finding_recorded", {"id": name, **data}) for name in names], ts=TS)


def _names(journal: Journal) -> list[str]:
    return [entry.data["id"] for entry in journal.read()]


def _bytes(journal: Journal) -> bytes:
    return Path(journal.path).read_bytes()


def test_a_record_comes_back_as_it_was_written(journal: Journal) -> None:
    first, second = journal.append([("started", {"goal": "x"}), ("noted", {"text": "é\n"})], ts=TS)
    assert (first.seq, first.kind, first.ts, first.data, first.prev) == (
        1,
        "started",
        TS,
        {"goal": "x"},
        GENESIS,
    )
    assert (second.seq, second.prev) == (2, first.digest)
    assert list(journal.read()) == [first, second]
    assert journal.head() == Head(2, second.digest, second.end, os.stat(journal.path).st_ino)


@pytest.mark.requirement("STATE-02")
def test_a_line_is_compact_and_its_prev_is_the_sha256_of_the_line_before(journal: Journal) -> None:
    _add(journal, "a")
    _add(journal, "b")
    one, two = _bytes(journal).splitlines()
    assert one == (
        b'{"seq":1,"ts":"%s","kind":"finding_recorded","data":{"id":"a"},"prev":"%s"}'
        % (TS.encode(), b"0" * 64)
    )
    assert json.loads(two)["prev"] == digest_of(one)


def test_a_batch_is_one_write_and_one_fsync(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: Any) -> Any:
            calls.append(name)
            return real(*arguments)

        monkeypatch.setattr(os, name, call)

    counted("write")
    counted("fsync")
    _add(journal, "a", "b", "c")
    assert calls == ["write", "fsync"]
    assert journal.append([], ts=TS) == ()
    assert calls == ["write", "fsync"]


def test_a_journal_is_made_once_and_never_by_an_append(tmp_path: Path) -> None:
    journal = Journal(MissionFolder(str(tmp_path / "mission")))
    with pytest.raises(JournalBroken, match="missing"):
        _add(journal, "a")
    journal.create()
    with pytest.raises(StorageFailed, match="EEXIST"):
        journal.create()
    _add(journal, "a")
    os.unlink(journal.path)
    for use in (
        journal.head,
        lambda: _add(journal, "b"),
        lambda: list(journal.read()),
    ):
        with pytest.raises(JournalBroken, match="missing"):
            use()
    assert not journal.exists()
    assert not journal.verify().ok


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(
    batches=st.lists(st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=3), max_size=4)
)
def test_any_data_is_read_back_the_same_in_any_batches(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[dict[str, Any]]]
) -> None:
    journal = _created(tmp_path_factory.mktemp("m") / "mission")
    for batch in batches:
        journal.append([("noted", data) for data in batch], ts=TS)
    expected = [data for batch in batches for data in batch]
    assert [entry.data for entry in journal.read()] == expected
    assert journal.verify().ok
    assert journal.verify().head == journal.head()


@pytest.mark.case("HIO-12")
@given(text=st.text(st.characters(codec=None, categories=None), max_size=20))
def test_every_line_is_strict_utf_8_json_without_control_characters(text: str) -> None:
    line, entry = make_line(("noted", {text: text}), TS, Head(0, GENESIS, 0, 0))
    assert not [byte for byte in line if byte < 0x20]
    (key, value), *_ = json.loads(line.decode("utf-8"))["data"].items()
    assert key == value == entry.data[key]
    assert "\\ud8" not in line.decode("utf-8") or "\\ud8" in text
    assert not any(0xD800 <= ord(character) < 0xE000 for character in key)


@pytest.mark.parametrize(
    "data",
    [
        {"a": float("nan")},
        {1: 1, "1": 2},
        dict.fromkeys(map(chr, (0xD800, 0xD801)), 1),
        {"a": {"b": object()}},
        {"deep": None},
        [],
    ],
)
def test_data_that_json_cannot_hold_is_refused_and_nothing_is_written(journal: Journal, data: Any) -> None:
    if isinstance(data, dict) and "deep" in data:
        for _ in range(200):
            data = {"deep": data}
    _add(journal, "a")
    before = _bytes(journal)
    with pytest.raises((ValueError, TypeError)):
        journal.append([("noted", {}), ("noted", data)], ts=TS)
    assert _bytes(journal) == before
    _add(journal, "b")
    assert _names(journal) == ["a", "b"]


@pytest.mark.requirement("STATE-13")
@pytest.mark.parametrize("size", [4095, 4096, 200 * 1024, 256 * 1024, 50_000_000])
def test_lines_of_any_length_are_read_from_both_ends(journal: Journal, size: int) -> None:
    _add(journal, "a")
    _add(journal, "long", text="x" * size)
    assert journal.head().seq == 2
    _add(journal, "b")
    assert _names(journal) == ["a", "long", "b"]


@pytest.mark.requirement("STATE-13")
def test_a_reader_holds_no_more_than_a_few_records_at_once(journal: Journal) -> None:
    for count in range(32):
        _add(journal, str(count), text="x" * 1_000_000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in journal.read()) == 32
        assert tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()


def test_reading_goes_on_from_a_head_and_proves_that_the_record_before_is_still_there(
    journal: Journal,
) -> None:
    _add(journal, "a", "b")
    head = journal.head()
    _add(journal, "c")
    assert [entry.seq for entry in journal.read(head.size_bytes, expect=head)] == [3]
    assert [entry.seq for entry in journal.read(head.size_bytes)] == [3]
    other = Head(head.seq, "f" * 64, head.size_bytes, head.inode)
    with pytest.raises(JournalBroken, match=r"line 2 .*rewritten"):
        list(journal.read(head.size_bytes, expect=other))
    with pytest.raises(JournalBroken, match="no line ends at byte"):
        list(journal.read(head.size_bytes - 1))
    with pytest.raises(ValueError, match="expect"):
        list(journal.read(0, expect=head))


def test_a_replaced_journal_is_appended_to_and_a_cut_one_goes_on_from_no_old_head(
    journal: Journal,
) -> None:
    _add(journal, "a", "b")
    head = journal.head()
    whole = _bytes(journal)
    replace_file(journal.path, whole)
    with journal.locked() as tail:
        assert tail.head == journal.head() != head
    _add(journal, "c")
    assert _names(journal) == ["a", "b", "c"]
    head = journal.head()
    os.truncate(journal.path, whole.index(b"\n") + 1)
    with pytest.raises(JournalBroken, match="cut or rewritten"):
        list(journal.read(head.size_bytes, expect=head))


def test_an_append_after_a_replacement_continues_the_file_that_is_there_now(journal: Journal) -> None:
    _add(journal, "a", "b", "c")
    replace_file(journal.path, _bytes(journal).splitlines(keepends=True)[0])
    assert _add(journal, "d")[0].seq == 2
    assert journal.verify().ok


def test_a_decision_on_an_older_head_is_refused(journal: Journal) -> None:
    _add(journal, "a")
    head = journal.head()
    journal.append([("noted", {})], ts=TS, expected=head)
    with pytest.raises(StateUntrusted, match="now ends at record 2; the decision was made on record 1"):
        journal.append([("noted", {})], ts=TS, expected=head)
    assert journal.head().seq == 2


def test_read_decide_and_append_under_one_lock(journal: Journal) -> None:
    _add(journal, "a")
    other = Journal(journal.folder, lock_wait_seconds=0)
    with journal.locked() as tail:
        assert [entry.seq for entry in tail.read_from(0)] == [1]
        tail.append([("noted", {"id": "b"})], ts=TS)
        _add(journal, "c")
        with journal.locked() as again:
            assert again is tail
        assert tail.head.seq == 3
        with pytest.raises(StorageFailed, match="held by"):
            _add(other, "d")
    _add(other, "d")
    assert _names(journal) == ["a", "b", "c", "d"]


@pytest.mark.case("STA-01")
def test_a_torn_last_line_is_ignored_by_readers_and_set_aside_by_the_next_writer(journal: Journal) -> None:
    _add(journal, "a")
    head = journal.head()
    torn = b'{"id":"f2","kind":"te'
    with open(journal.path, "ab") as out:
        out.write(torn)
    assert _names(journal) == ["a"]
    assert journal.head() == head
    assert journal.verify().torn_bytes == len(torn)
    with journal.locked() as tail:
        assert tail.torn is not None
        assert (tail.torn.line, tail.torn.size_bytes) == (2, len(torn))
        assert Path(tail.torn.path).read_bytes() == torn
        assert os.path.dirname(tail.torn.path) == journal.folder.torn_path
        tail.append([("noted", {"id": "b"})], ts=TS)
    with journal.locked() as tail:
        assert tail.torn is None
    assert _names(journal) == ["a", "b"]
    assert journal.verify().ok


@pytest.mark.case("STA-01")
def test_a_whole_last_record_that_only_lacks_its_newline_is_kept(journal: Journal) -> None:
    _add(journal, "a", "b")
    os.truncate(journal.path, os.stat(journal.path).st_size - 1)
    assert _names(journal) == ["a"]
    with journal.locked() as tail:
        assert tail.torn is None
        assert tail.head.seq == 2
    _add(journal, "c")
    assert _names(journal) == ["a", "b", "c"]


def test_a_whole_record_that_does_not_continue_the_chain_is_set_aside_and_not_kept(journal: Journal) -> None:
    _add(journal, "a")
    line, _ = make_line(("forged", {}), TS, Head(1, "f" * 64, 0, 0))
    with open(journal.path, "ab") as out:
        out.write(line)
    with journal.locked() as tail:
        assert tail.torn is not None
    assert journal.verify().entries == 1


@pytest.mark.case("STA-01")
@quick
@given(data=st.data())
def test_a_tear_at_any_byte_loses_at_most_the_torn_record(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    journal = _created(tmp_path_factory.mktemp("m") / "mission")
    _add(journal, "a", "b", "ü" * data.draw(st.integers(0, 30)))
    whole = _bytes(journal)
    cut = data.draw(st.integers(0, len(whole)))
    os.truncate(journal.path, cut)
    complete = whole[:cut].count(b"\n")
    kept = complete + (whole[cut : cut + 1] == b"\n")
    assert len(list(journal.read())) == complete
    (added,) = _add(journal, "new")
    assert added.seq == kept + 1
    assert len(list(journal.read())) == kept + 1
    assert journal.verify().ok


MIDDLE = [
    (b"\0" * 400, "NUL bytes"),
    (b"[]", "list"),
    (b"3", "int"),
    (b"null", "NoneType"),
    (b'{"seq":4,"seq":4}', "'seq' is given twice"),
    (b'{"seq":4}', "its keys"),
    (b"", "not JSON"),
    (b"\xff\xfe", "not UTF-8"),
    (b'{"seq":true,"ts":"t","kind":"k","data":{},"prev":"p"}', "seq"),
    (b'{"seq":4,"ts":"t","kind":"k","data":[],"prev":"p"}', "data"),
    (b'{"seq":4,"ts":1,"kind":"k","data":{},"prev":"p"}', "ts"),
    (b'{"seq":9,"ts":"t","kind":"k","data":{},"prev":"p"}', "its seq is 9, not 4"),
    (b'{"seq":4,"ts":"t","kind":"k","data":{},"prev":"p"}', "its prev is not"),
]


@pytest.mark.case("STA-03")
@pytest.mark.parametrize(("bad", "cause"), MIDDLE, ids=[cause for _, cause in MIDDLE])
def test_a_broken_line_in_the_middle_is_named_and_hides_nothing_after_it(
    journal: Journal, bad: bytes, cause: str
) -> None:
    _add(journal, *"abcdef")
    good = _bytes(journal).splitlines(keepends=True)
    replace_file(journal.path, b"".join([*good[:3], bad + b"\n", *good[3:]]))
    with pytest.raises(JournalBroken) as caught:
        list(journal.read())
    assert f"{journal.path} line 4 cannot be trusted" in caught.value.message
    assert f"omx-autoresearch repair {Path(journal.path).parent.name}" in caught.value.next_step
    assert cause in caught.value.message
    verification = journal.verify()
    assert (verification.ok, verification.line, verification.entries) == (False, 4, 6)
    assert cause in verification.cause


@pytest.mark.case("STA-03")
def test_a_removed_or_changed_line_breaks_the_chain_at_the_line_after_it(journal: Journal) -> None:
    _add(journal, *"abcd")
    good = _bytes(journal).splitlines(keepends=True)
    replace_file(journal.path, b"".join([good[0], *good[2:]]))
    assert (journal.verify().line, journal.verify().ok) == (2, False)
    replace_file(journal.path, b"".join([good[0], good[1].replace(b'"b"', b'"x"'), *good[2:]]))
    assert journal.verify().line == 3


def test_a_broken_last_line_stops_the_next_append_and_is_named(journal: Journal) -> None:
    _add(journal, "a")
    with open(journal.path, "ab") as out:
        out.write(b"garbage\n")
    before = _bytes(journal)
    for use in (journal.head, lambda: _add(journal, "b")):
        with pytest.raises(JournalBroken, match="line 2"):
            use()
    assert _bytes(journal) == before


@pytest.mark.parametrize("failing", ["write", "fsync"])
@pytest.mark.case("STA-04")
def test_a_failed_append_leaves_no_partial_line_and_the_next_one_works(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    _add(journal, "a")
    before = _bytes(journal)
    real = getattr(os, failing)
    outcomes = iter(["short", "fail"] if failing == "write" else ["fail"])

    def fail(descriptor: int, *data: bytes) -> Any:
        outcome = next(outcomes, "works")
        if outcome == "short":
            return real(descriptor, data[0][:10])  # the disk takes a little, then nothing
        if outcome == "fail":
            raise OSError(errno.ENOSPC if failing == "write" else errno.EIO, "no")
        return real(descriptor, *data)

    with monkeypatch.context() as broken:
        broken.setattr(os, failing, fail)
        with pytest.raises(StorageFailed, match="ENOSPC" if failing == "write" else "EIO"):
            _add(journal, "b", "c")
    assert _bytes(journal) == before
    _add(journal, "d")
    assert _names(journal) == ["a", "d"]


def test_an_interrupt_in_the_middle_of_an_append_leaves_no_record_and_no_lock(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            _add(journal, "a")
    assert _bytes(journal) == b""
    _add(journal, "b")


@pytest.mark.case("STA-04")
def test_a_limit_on_file_sizes_fails_clearly_and_heals_without_a_restart(tmp_path: Path) -> None:
    journal = _created(tmp_path / "mission")
    code = CHILD + (
        "import resource\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))\n"
        "for n in range(100):\n"
        "  try: journal.append([('noted', {'n': n, 'text': 'x' * 200})], ts=TS)\n"
        "  except StorageFailed as error: print(error); break\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))\n"
        "journal.append([('noted', {'n': n})], ts=TS)\n"
        "print(n)\n"
    )
    ran = _run(code, journal)
    assert "EFBIG" in ran
    assert "ulimit" in ran
    assert [entry.data["n"] for entry in journal.read()] == list(range(int(ran.split()[-1]) + 1))
    assert journal.verify().ok
    assert journal.verify().torn_bytes == 0


@pytest.mark.case("STA-04")
def test_a_full_disk_fails_clearly_and_heals_when_space_is_freed(tmp_path: Path) -> None:
    disk_path = tmp_path / "disk"
    disk_path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk is not permitted here; the limit on file sizes stands in for it")
    try:
        journal = _created(disk_path / "mission")
        (disk_path / "ballast").write_bytes(b"x" * 100_000)
        acknowledged: list[Entry] = []
        with pytest.raises(StorageFailed, match="ENOSPC") as caught:
            _fill(journal, acknowledged)
        assert "free space" in caught.value.next_step
        with pytest.raises(StorageFailed, match="ENOSPC"):
            replace_file(os.path.join(journal.folder.root_path, "NOTICE"), b"x" * 10_000)
        assert not [name for name in os.listdir(journal.folder.root_path) if name.endswith(".tmp")]
        assert list(journal.read()) == acknowledged != []
        assert journal.verify().torn_bytes == 0
        (disk_path / "ballast").unlink()
        _add(journal, "after")
        assert _names(journal)[-1] == "after"
    finally:
        subprocess.run(["umount", str(disk_path)], check=True)


def _fill(journal: Journal, acknowledged: list[Entry]) -> None:
    while True:
        acknowledged += _add(journal, f"f{len(acknowledged)}", text="x" * 1000)


def _run(code: str, journal: Journal, *arguments: str) -> str:
    command = [sys.executable, "-c", code, journal.folder.root_path, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.case("STA-05")
def test_many_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    journal = _created(tmp_path / "mission")
    code = CHILD + (
        "for n in range(10):\n"
        "  with journal.locked() as tail:\n"
        "    seen = sum(1 for _ in tail.read_from(0))\n"
        "    tail.append([('noted', {'id': f'{sys.argv[2]}-{n}', 'seen': seen})], ts=TS)\n"
    )
    command = [sys.executable, "-c", code, journal.folder.root_path]
    children = [subprocess.Popen([*command, str(number)]) for number in range(20)]
    assert [child.wait() for child in children] == [0] * 20
    entries = list(journal.read())
    assert sorted(entry.data["id"] for entry in entries) == sorted(
        f"{p}-{n}" for p in range(20) for n in range(10)
    )
    assert [entry.data["seen"] for entry in entries] == list(range(200))  # each decided on the newest state
    assert sorted(os.listdir(journal.folder.root_path)) == ["journal.jsonl", "journal.lock"]


def test_a_killed_writer_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    journal = _created(tmp_path / "mission")
    code = CHILD + (
        "for n in range(int(sys.argv[2]), 10_000_000):\n"
        "  journal.append([('noted', {'n': n, 'text': 'x' * (n % 7) * 30_000})], ts=TS)\n"
        "  print(n, flush=True)\n"
    )
    next_number = 0
    for round_number in range(6):
        command = [sys.executable, "-c", code, journal.folder.root_path, str(next_number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            read = [int(child.stdout.readline()) for _ in range(5 + round_number)]
            child.send_signal(signal.SIGKILL)
            acknowledged = [*read, *(int(line) for line in child.stdout if line.endswith("\n"))][-1]
        numbers = [entry.data["n"] for entry in journal.read()]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > acknowledged
        with journal.locked() as tail:
            next_number = tail.head.seq
    assert journal.verify().ok


def test_a_reader_beside_a_writer_who_sets_a_torn_tail_aside_sees_no_fault(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    _add(journal, "a")
    with open(journal.path, "ab") as out:
        out.write(b'{"torn":')
    pread = os.pread
    fixed: list[bool] = []

    def mend_after(descriptor: int, length: int, offset: int) -> bytes:
        data = pread(descriptor, length, offset)
        if not fixed:
            fixed.append(True)
            _add(Journal(journal.folder), "b", "c")
        return data

    reading = journal.read()
    monkeypatch.setattr(os, "pread", mend_after)
    assert [entry.data["id"] for entry in reading] == ["a", "b", "c"]


def test_a_journal_without_permission_says_so(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    _add(journal, "a")
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if path == journal.path:
            raise PermissionError(13, "no")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    for use in (journal.head, lambda: _add(journal, "b")):
        with pytest.raises(StorageFailed, match="EACCES") as caught:
            use()
        assert "permission" in caught.value.next_step
