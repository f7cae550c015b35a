"""The index: fast where it can be had, never believed over the journal, never missed where it cannot."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from omx_autoresearch.foundation.errors import JournalBroken
from omx_autoresearch.journal import index as index_module
from omx_autoresearch.journal.index import Index
from omx_autoresearch.journal.layout import MissionFolder
from omx_autoresearch.journal.log import Journal
from omx_autoresearch.journal.safe_files import replace_file

TS = "2026-01-02T03:04:05.123456Z"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal(MissionFolder(str(tmp_path / "mission")))
    journal.create()
    _add(journal, 0, 10)
    return journal


def _add(journal: Journal, start: int, stop: int) -> None:
    journal.append([("noted", {"id": f"f{number}"}) for number in range(start, stop)], ts=TS)


def _seq(journal: Journal, record_id: str) -> int:
    entry = journal.by_id(record_id)
    return entry.seq if entry else 0


def _found_by_reading_through(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True when a look-up had to read the journal from the start."""
    read: list[bool] = []
    real = Journal.read

    def noticed(self: Journal, from_offset: int = 0) -> object:
        read.append(True)
        return real(self, from_offset)

    with monkeypatch.context() as watched:
        watched.setattr(Journal, "read", noticed)
        assert _seq(journal, "f3") == 4
    return bool(read)


def test_a_record_is_found_by_its_id(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert journal.by_id("f3") == list(journal.read())[3]
    assert journal.by_id("no") is None
    assert not _found_by_reading_through(journal, monkeypatch)
    journal.close()


def test_what_is_appended_later_is_found_and_only_that_is_read(journal: Journal) -> None:
    index = Index(journal.folder.index_path)
    assert index.catch_up(journal) == 10
    _add(journal, 10, 13)
    assert index.catch_up(journal) == 3
    assert index.catch_up(journal) == 0
    assert _seq(journal, "f12") == 13
    index.close()
    journal.close()


def test_the_first_record_of_an_id_is_the_one_that_is_found(journal: Journal) -> None:
    _add(journal, 3, 4)
    assert _seq(journal, "f3") == 4
    journal.append([("noted", {"id": 7}), ("noted", {"id": ""})], ts=TS)
    assert journal.by_id("7") is journal.by_id("") is None
    journal.close()


def test_hostile_ids_are_looked_up_without_a_fault(journal: Journal) -> None:
    for record_id in ("\ud800", "a\0b", "'; DROP TABLE place; --"):
        assert journal.by_id(record_id) is None
    assert _seq(journal, "f9") == 10
    journal.close()


@pytest.mark.parametrize("keeps_inode", [True, False])
def test_a_rewritten_journal_makes_the_index_anew(journal: Journal, keeps_inode: bool) -> None:
    assert _seq(journal, "f9") == 10
    other = Journal(MissionFolder(journal.folder.root_path + "2"))
    other.create()
    _add(other, 5, 15)
    data = Path(other.path).read_bytes()
    if keeps_inode:
        Path(journal.path).write_bytes(data)
    else:
        replace_file(journal.path, data)
    assert (_seq(journal, "f9"), _seq(journal, "f14"), journal.by_id("f0")) == (5, 10, None)
    journal.close()


def test_a_cut_journal_makes_the_index_anew(journal: Journal) -> None:
    assert _seq(journal, "f9") == 10
    first = journal.by_id("f0")
    assert first is not None
    os.truncate(journal.path, first.end)
    assert journal.by_id("f9") is None
    assert _seq(journal, "f0") == 1
    journal.close()


def test_an_index_that_points_elsewhere_is_not_believed(journal: Journal) -> None:
    assert _seq(journal, "f3") == 4
    with sqlite3.connect(journal.folder.index_path) as forged:
        forged.execute("UPDATE place SET offset = 0, length = 5 WHERE seq = 4")
        forged.execute("UPDATE name SET seq = 6 WHERE id = 'f1'")
    forged.close()
    assert (_seq(journal, "f3"), _seq(journal, "f1")) == (4, 2)
    journal.close()


@pytest.mark.parametrize("damage", ["garbage", "empty", "other format", "other tables"])
def test_a_damaged_index_is_built_anew(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    path = journal.folder.index_path
    assert _seq(journal, "f3") == 4
    journal.close()
    if damage in ("garbage", "empty"):
        Path(path).write_bytes(b"garbage" * 1000 if damage == "garbage" else b"")
    else:
        with sqlite3.connect(path) as changed:
            changed.execute("PRAGMA user_version = 99" if damage == "other format" else "DROP TABLE covered")
        changed.close()
    assert not _found_by_reading_through(journal, monkeypatch)
    journal.close()


def test_where_no_index_can_be_had_the_journal_is_read_through(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkdir(journal.folder.index_path)
    assert _found_by_reading_through(journal, monkeypatch)
    journal.close()


def test_where_wal_fails_at_the_first_write_the_index_does_without(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = index_module._tuned

    def fail_in_wal(connection: sqlite3.Connection, mode: str) -> sqlite3.Connection:
        if mode == "wal":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return real(connection, mode)

    monkeypatch.setattr(index_module, "_tuned", fail_in_wal)
    assert not _found_by_reading_through(journal, monkeypatch)
    assert journal.index._open().execute("PRAGMA journal_mode").fetchone() == ("truncate",)
    journal.close()
    assert not _found_by_reading_through(journal, monkeypatch)
    journal.close()


def test_a_locked_index_is_left_alone_and_the_journal_is_read_through(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "BUSY_SECONDS", 0.0)
    assert _seq(journal, "f3") == 4
    _add(journal, 10, 11)
    holder = sqlite3.connect(journal.folder.index_path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    journal.close()
    assert _found_by_reading_through(journal, monkeypatch)
    holder.execute("ROLLBACK")
    holder.close()
    assert _seq(journal, "f10") == 11
    journal.close()


def test_a_broken_line_is_named_and_what_stands_before_it_is_covered(journal: Journal) -> None:
    with open(journal.path, "ab") as out:
        out.write(b"\0" * 400 + b"\n")
    index = Index(journal.folder.index_path)
    with pytest.raises(JournalBroken, match="line 11"):
        index.catch_up(journal)
    row = index._row()
    assert row is not None
    assert row.seq == 10
    index.close()


def test_small_batches_cover_the_same(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "BATCH_ENTRIES", 3)
    index = Index(journal.folder.index_path)
    assert index.catch_up(journal) == 10
    assert [_seq(journal, f"f{number}") for number in range(10)] == list(range(1, 11))
    index.close()
    journal.close()


def test_an_index_that_another_process_advances_meanwhile_is_caught_up_all_the_same(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "BATCH_ENTRIES", 4)
    mine, other = Index(journal.folder.index_path), Index(journal.folder.index_path)
    real = mine._add
    advanced: list[int] = []

    def add_late(*arguments: object) -> object:
        if not advanced:
            advanced.append(other.catch_up(journal))
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(mine, "_add", add_late)
    assert mine.catch_up(journal) + advanced[0] == 10
    assert mine.find_all(journal, ["f9"]) == other.find_all(journal, ["f9"])
    mine.close()
    other.close()


def test_an_append_imports_no_sqlite(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom omx_autoresearch.journal.log import Journal\n"
        "from omx_autoresearch.journal.layout import MissionFolder\n"
        "journal = Journal(MissionFolder(sys.argv[1])); journal.create()\n"
        f"journal.append([('noted', {{}})], ts={TS!r})\n"
        "heavy = {'sqlite3', 'pathlib', 'tempfile', 'subprocess'}\n"
        "heavy |= {'logging', 'asyncio', 'pydantic', 'shlex', 'ctypes'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    root_path = str(Path(__file__).parents[2])
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {root_path!r})\n{code}"]
    ran = subprocess.run([*command, str(tmp_path / "m")], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


# --- names of findings, and lists


def _finding(name: str, digest: str = "") -> tuple[str, dict[str, object]]:
    evidence = {"digest": digest} if digest else None
    return "finding_recorded", {"finding": {"id": name, "evidence": evidence}}


def _fill(journal: Journal) -> None:
    stop = {"stop": {"is_iteration": True}}
    journal.append(
        [
            _finding("a", "d1"),
            ("claim_recorded", {"claim_id": "c-1"}),
            ("stop_refused", stop),
            _finding("b"),
            _finding("c", "d1"),
            ("stop_allowed", {"stop": {"is_iteration": False}}),
            ("stop_released", stop),
        ],
        ts=TS,
    )


@pytest.mark.requirement("EVID-13")
def test_a_finding_is_found_by_its_id_and_by_the_digest_of_its_evidence(journal: Journal) -> None:
    _fill(journal)
    assert [_seq(journal, name) for name in ("finding:a", "finding:b", "evidence:d1", "claim:c-1")] == [
        11,
        14,
        11,
        12,
    ]
    assert journal.by_id("a") is journal.by_id("evidence:") is journal.by_id("finding:None") is None
    found = journal.by_ids(["finding:c", "finding:x", "evidence:d1", "f3"])
    assert {name: entry.seq for name, entry in found.items()} == {"finding:c": 15, "evidence:d1": 11, "f3": 4}


@pytest.mark.requirement("EVID-13")
@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_list_gives_its_newest_records_with_and_without_an_index(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, is_indexed: bool
) -> None:
    _fill(journal)
    if not is_indexed:
        Path(journal.folder.index_path).mkdir()

    def seqs(listed: str, limit: int = 10, before: int = 0) -> list[int]:
        return [entry.seq for entry in journal.newest(listed, limit=limit, before=before)]

    assert seqs("accepted") == [15, 11]
    assert seqs("claims") == [14, 12]
    assert seqs("iterations") == [17, 13]
    assert seqs("accepted", 1) == [15]
    assert seqs("accepted", before=15) == [11]
    assert seqs("nothing") == []
    assert set(journal.by_ids(["finding:a", "finding:x"])) == {"finding:a"}


def test_an_index_that_lists_what_is_not_there_is_made_anew(journal: Journal) -> None:
    _fill(journal)
    assert len(journal.newest("accepted", limit=10)) == 2
    journal.close()
    with sqlite3.connect(journal.folder.index_path) as database:
        database.execute("INSERT INTO listed VALUES ('accepted', 3)")
    database.close()
    assert [entry.seq for entry in journal.newest("accepted", limit=10)] == [15, 11]
