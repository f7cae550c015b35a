"""Projections: equal to the rebuilt ones whatever happened, healed when killed, heard when added to."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from omx_autoresearch.foundation.errors import StorageFailed
from omx_autoresearch.journal import omx_folder, safe_files
from omx_autoresearch.journal.omx_folder import OmxFolder
from omx_autoresearch.missions import projection_texts, projections, registry, store
from omx_autoresearch.missions.claims import take_in, write_changed
from omx_autoresearch.missions.lifecycle_commands import repair
from omx_autoresearch.missions.projections import Projections
from omx_autoresearch.missions.records.work import DirectionDeclared, DirectionInjected, FindingRecorded
from omx_autoresearch.missions.rules.criteria import Evidence, Finding
from omx_autoresearch.missions.rules.directions import direction_of
from tests.missions.real_missions import SESSION, START, TASK, Place, at
from tests.support import snapshots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omx_autoresearch.foundation.types import DirectionBy
    from omx_autoresearch.missions.rules.mission import Mission

FINDINGS, PROGRESS = projection_texts.FINDINGS, projection_texts.PROGRESS


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def rebuilt(place: Place) -> dict[str, bytes]:
    """What ``repair`` writes from nothing but the journal."""
    shutil.rmtree(place.task_path)
    (Path(place.folder.root_path) / "projected.json").unlink(missing_ok=True)
    repair(place.runtime, place.task_id)
    return place.projections()


def edits(place: Place) -> list[dict[str, Any]]:
    entries = place.store.journal(place.task_id).read()
    return [entry.data for entry in entries if entry.kind == "projection_edited"]


def entries(place: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((place.task_path / projection_texts.DIRECTIONS).read_bytes())
    return found


def declare(place: Place, *texts: str) -> None:
    place.record(*(DirectionDeclared(direction_of(text, {})) for text in texts))
    place.follow()


def origins(place: Place) -> list[str]:
    entries = place.store.journal(place.task_id).read()
    return [entry.data["origin"] for entry in entries if entry.kind == "claim_recorded"]


@pytest.mark.requirement("STATE-06")
def test_what_grew_process_by_process_is_what_repair_writes_byte_for_byte(place: Place) -> None:
    place.claim("first")
    place.follow()
    place.bind()
    registry.beat(place.folder.heartbeat_path, at=at(2), status="tool", session_id=SESSION)
    place.follow()
    place.claim("second", second=3)
    place.block()
    place.follow()
    grown = place.projections()
    assert b"second" in grown[FINDINGS]
    assert json.loads(grown[PROGRESS])["blocked_reason"] == "no key"
    assert grown == rebuilt(place)


@pytest.mark.requirement("STATE-06")
@pytest.mark.parametrize(
    "gone", ["state", "logs", "", FINDINGS, "state/directions_tried.json", projection_texts.WORK]
)
def test_what_is_missing_is_rebuilt_by_the_next_process_that_records(place: Place, gone: str) -> None:
    place.claim("first")
    place.follow()
    path = place.task_path / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    place.claim("second", second=2)
    place.follow()
    assert place.projections() == rebuilt(place)


@pytest.mark.requirement("STATE-06")
def test_what_is_missing_is_rebuilt_by_a_look_alone(place: Place) -> None:
    place.claim("first")
    place.follow()
    shutil.rmtree(place.project / ".omx")
    assert take_in(place.runtime, TASK) == 0
    assert b"first" in place.projections()[FINDINGS]
    assert (place.project / ".omx" / ".gitignore").read_bytes() == b"*\n"


def test_an_ignore_rule_that_the_owner_changed_stays(place: Place) -> None:
    (place.project / ".omx" / ".gitignore").write_text("autoresearch/\n")
    shutil.rmtree(place.task_path)
    take_in(place.runtime, TASK)
    assert (place.project / ".omx" / ".gitignore").read_text() == "autoresearch/\n"


@pytest.mark.requirement("STATE-19")
def test_a_record_waits_for_no_projection_and_the_end_of_the_process_brings_all(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fsync

    def sync(descriptor: int) -> None:
        synced.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    before = place.projections()
    for number in range(20):
        place.claim(f"{number}")
        assert len(synced) == number + 1
    assert place.projections() == before
    place.follow()
    assert len(synced) == 20
    assert len(place.projections()[FINDINGS].splitlines()) == 20
    assert store.changed == {}


@pytest.mark.requirement("STATE-19")
def test_a_process_killed_before_its_end_is_made_up_for_by_the_next_look(place: Place) -> None:
    child = os.fork()
    if not child:
        for number in range(9):
            place.claim(f"{number}")
        os._exit(0)
    os.waitpid(child, 0)
    assert place.projections()[FINDINGS] == b""
    assert take_in(place.runtime, TASK) == 0
    assert len(place.projections()[FINDINGS].splitlines()) == 9
    assert edits(place) == []
    assert place.projections() == rebuilt(place)


def test_a_process_that_changes_two_missions_brings_both(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path, task_id="20260102-030406-other")
    place.claim("here")
    other.claim("there")
    place.follow()
    assert b"here" in place.projections()[FINDINGS]
    assert b"there" in other.projections()[FINDINGS]


def test_a_mission_that_is_gone_by_the_end_is_passed_over(place: Place) -> None:
    place.claim("first")
    shutil.rmtree(place.folder.root_path)
    assert write_changed(place.runtime) == ()


@pytest.mark.parametrize("step", ["put", "append", "save"])
def test_a_process_killed_among_the_projections_leaves_no_edit_behind(
    place: Place, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    place.claim("first")
    place.follow()
    owner = projections._Kept if step == "save" else OmxFolder
    whole = getattr(owner, step)

    def killed_after(self: Any, *arguments: Any, **options: Any) -> Any:
        if step == "append":
            whole(self, *arguments, **options)
        raise OSError("killed")

    with monkeypatch.context() as killed:
        killed.setattr(owner, step, killed_after)
        place.claim("second", second=2)
        assert "killed" in write_changed(place.runtime)[0]
    assert list(place.task_path.glob("*/.*.tmp")) == []
    place.block()
    place.follow()
    assert edits(place) == []
    assert place.set_aside() == {}
    assert place.projections() == rebuilt(place)


@pytest.mark.requirement("STATE-06")
@pytest.mark.parametrize("is_added", [False, True])
def test_what_is_far_behind_is_written_anew_and_what_was_added_is_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch, *, is_added: bool
) -> None:
    monkeypatch.setattr(projections, "MANY_RECORDS", 3)
    place.claim("first")
    place.follow()
    for number in range(5):
        place.claim(f"{number}")
    if is_added:
        with (place.task_path / FINDINGS).open("a") as stream:
            stream.write("somebody's line\n")
    with monkeypatch.context() as memory:
        memory.setattr(OmxFolder, "append", lambda *_, **__: pytest.fail("they were added one by one"))
        place.follow()
    assert ("somebody's line" in place.texts()) == is_added
    assert place.projections() == rebuilt(place)


def test_a_torn_line_of_our_own_is_finished_and_is_no_edit(place: Place) -> None:
    place.claim("first")
    place.follow()
    (Path(place.folder.root_path) / "projected.json").unlink()
    path = place.task_path / FINDINGS
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert take_in(place.runtime, TASK) == 0
    assert path.read_bytes() == whole
    assert edits(place) == []


def test_lost_stamps_are_no_edit(place: Place) -> None:
    place.claim("first")
    place.follow()
    for content in (b"", b"{", b"[]", b'{"format": 3, "covered": null, "session_id": "", "files": {}}'):
        (Path(place.folder.root_path) / "projected.json").write_bytes(content)
        place.claim(f"more {content!r}", second=2)
        declare(place, f"try {len(content)}")
        assert edits(place) == []
    assert place.projections() == rebuilt(place)


def test_a_backup_that_was_put_back_is_no_edit(place: Place, tmp_path: Path) -> None:
    place.claim("first")
    place.follow()
    shutil.copytree(place.project / ".omx", tmp_path / "copy")
    shutil.rmtree(place.project / ".omx")
    shutil.copytree(tmp_path / "copy", place.project / ".omx")
    assert take_in(place.runtime, TASK) == 0
    assert edits(place) == []
    assert Projections(place.folder, place.store.load(TASK)).are_current()


# --- what others add


@pytest.mark.requirement("STATE-09")
@pytest.mark.parametrize("name", [FINDINGS, projection_texts.ITERATIONS])
@pytest.mark.parametrize(
    ("added", "heard"),
    [
        (b"look at the tokenizer\n", ["look at the tokenizer"]),
        (b'{"finding": "it is slow"}\n{"n": 2}\n', ['{"finding": "it is slow"}', '{"n": 2}']),
        (b'{"finding": "without a newline"}', ['{"finding": "without a newline"}']),
        (b"\r\n\n  \nby an editor\r\n\n", ["by an editor"]),
        (b"\xff\xfe?\n", ["\ufffd\ufffd?"]),
        (b"\n\n", []),
    ],
)
def test_added_lines_become_claims_of_unknown_origin(
    place: Place, name: str, added: bytes, heard: list[str]
) -> None:
    place.claim("first")
    place.follow()
    path = place.task_path / name
    whole = path.read_bytes()
    path.write_bytes(whole + added)
    assert take_in(place.runtime, TASK) == len(heard)
    assert place.texts() == ["first", *heard]
    assert origins(place)[1:] == ["unknown"] * len(heard)
    assert (place.set_aside(), edits(place)) == ({}, [])
    assert path.read_bytes().startswith(whole)
    assert place.projections() == rebuilt(place)


def hand_written(place: Place) -> list[dict[str, Any]]:
    """The findings that have no known origin, as findings.jsonl shows them."""
    lines = [json.loads(line) for line in place.projections()[FINDINGS].splitlines()]
    return [line for line in lines if line["source"] == "unknown"]


@pytest.mark.requirement("STATE-09")
def test_a_finding_that_somebody_added_as_json_keeps_its_fields_and_is_a_claim(place: Place) -> None:
    added = {
        "id": "f-mine",
        "kind": "benchmark",
        "summary": "it is quadratic",
        "command": "./bench",
        "paths": ["parser.py"],
        "accepted": True,
        "evidence": {"criterion_id": "fast"},
        "criterion_id": "no-such-criterion",
        "source": "owner",
        "author": "me",
    }
    path = place.task_path / FINDINGS
    path.write_text(path.read_text() + json.dumps(added) + "\n")
    assert take_in(place.runtime, TASK) == 1
    (line,) = hand_written(place)
    for name in ("id", "kind", "summary", "command", "paths"):
        assert line[name] == added[name]
    assert (line["accepted"], line["evidence"], line["criterion_id"]) == (False, None, "")
    assert f"omx-autoresearch criterion check {TASK}" in line["claim_reason"]
    assert place.texts() == []
    assert place.projections() == rebuilt(place)
    assert take_in(place.runtime, TASK, is_thorough=True) == 0


@pytest.mark.requirement("STATE-09")
def test_an_added_finding_counts_once_and_never_takes_the_place_of_another(place: Place) -> None:
    path = place.task_path / FINDINGS
    line = '{"id": "f-1", "summary": "first"}\n'
    path.write_text(line)
    assert take_in(place.runtime, TASK) == 1
    path.write_bytes(path.read_bytes() + line.encode() + b'{"id": "f-1", "summary": "second"}\n')
    assert take_in(place.runtime, TASK) == 1
    assert [(item["id"] == "f-1", item["summary"]) for item in hand_written(place)] == [
        (True, "first"),
        (False, "second"),
    ]
    path.write_bytes(path.read_bytes() + b'{"id": "f-1", "summary": "second"}\n')
    assert take_in(place.runtime, TASK) == 0


@pytest.mark.requirement("STATE-09")
@pytest.mark.parametrize(
    "fields",
    [{}, {"summary": 5}, {"summary": " "}, {"summary": "x", "kind": "guess"}, {"summary": "x", "paths": "a"}],
)
def test_json_that_is_no_finding_stays_a_claim_in_its_own_words(place: Place, fields: dict[str, Any]) -> None:
    path = place.task_path / FINDINGS
    path.write_text(json.dumps({"id": "f-1", **fields}) + "\n")
    assert take_in(place.runtime, TASK) == 1
    assert place.texts() == [json.dumps({"id": "f-1", **fields})]


@pytest.mark.requirement("STATE-09")
@pytest.mark.parametrize("indent", [None, 2])
def test_added_entries_become_directions_of_unknown_origin(place: Place, indent: int | None) -> None:
    declare(place, "profile the parser", "vary the seed")
    added = ["swap the grammar", {"summary": "cache the tokens", "axis": "search_space"}, {"odd": 1}]
    path = place.task_path / projection_texts.DIRECTIONS
    path.write_text(json.dumps(entries(place) + added, indent=indent))
    assert take_in(place.runtime, TASK) == 3
    assert [item["summary"] for item in entries(place)] == [
        "profile the parser",
        "vary the seed",
        "swap the grammar",
        "cache the tokens",
        '{"odd":1}',
    ]
    said = [entry for entry in place.store.journal(TASK).read() if entry.kind == "direction_declared"]
    assert [entry.data["direction"]["by"] for entry in said][2:] == ["claim"] * 3
    assert '{"summary":"cache the tokens","axis":"search_space"}' in place.texts()
    assert (place.set_aside(), edits(place)) == ({}, [])
    assert place.projections() == rebuilt(place)


@pytest.mark.requirement("STATE-09")
def test_what_is_added_twice_or_to_two_files_at_once_is_taken_in_once_each(place: Place) -> None:
    declare(place, "profile the parser")
    for _ in range(2):
        with (place.task_path / FINDINGS).open("a") as stream:
            stream.write("again\n")
        (place.task_path / projection_texts.DIRECTIONS).write_text(
            json.dumps([*entries(place)[:1], "again too"])
        )
        place.follow()
        take_in(place.runtime, TASK)
    assert place.texts() == ["again", "again too"]
    assert place.projections() == rebuilt(place)


def test_what_is_added_before_our_own_next_records_stands_beside_them(place: Place) -> None:
    place.claim("first")
    place.follow()
    with (place.task_path / FINDINGS).open("a") as stream:
        stream.write("my own finding\n")
    place.claim("another")
    place.block()
    place.follow()
    assert place.texts() == ["first", "another", "my own finding"]
    assert place.projections() == rebuilt(place)


def test_a_taker_killed_before_it_rewrote_the_file_takes_a_line_in_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (place.task_path / FINDINGS).open("a") as stream:
        stream.write("once\n")
    (place.task_path / projection_texts.DIRECTIONS).write_text('["try it"]')
    with monkeypatch.context() as killed:
        killed.setattr(Projections, "write", lambda *_: None)
        assert take_in(place.runtime, TASK) == 2
    assert take_in(place.runtime, TASK) == 0
    assert sorted(place.texts()) == ["once", "try it"]
    assert [item["count"] for item in entries(place)] == [1]
    assert place.projections() == rebuilt(place)


@pytest.mark.parametrize("name", [FINDINGS, projection_texts.DIRECTIONS])
def test_what_is_written_while_we_write_is_left_to_the_next_look(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    declare(place, "profile the parser")
    path, whole = place.task_path / name, Projections.write

    def write(self: Projections, mission: Mission, source: Any) -> None:
        if name == FINDINGS:
            with path.open("a") as stream:
                stream.write("in between\n")
        else:
            path.write_text(json.dumps([*entries(place), "in between"]))
        whole(self, mission, source)

    place.claim("ours")
    with monkeypatch.context() as racing:
        racing.setattr(Projections, "write", write)
        place.follow()
    assert b"in between" in path.read_bytes()
    take_in(place.runtime, TASK)
    assert place.texts() == ["ours", "in between"]
    assert place.set_aside() == {}
    assert place.projections() == rebuilt(place)


def test_what_comes_between_our_check_and_our_line_is_taken_in(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.claim("first")
    place.follow()
    path, whole = place.task_path / FINDINGS, safe_files.write_all

    def write_all(descriptor: int, data: bytes) -> None:
        if b'"ours"' in data and b'"kind":"manual"' in data:
            with path.open("a") as stream:
                stream.write("in between\n")
        whole(descriptor, data)

    place.claim("ours")
    with monkeypatch.context() as racing:
        racing.setattr(omx_folder, "write_all", write_all)
        place.follow()
    take_in(place.runtime, TASK)
    assert place.texts() == ["first", "ours", "in between"]
    assert place.projections() == rebuilt(place)


def test_a_writer_that_goes_on_after_we_read_writes_into_the_file_that_is_set_aside(place: Place) -> None:
    path = place.task_path / FINDINGS
    with path.open("ab", buffering=0) as stream:
        stream.write(b"half a li")
        take_in(place.runtime, TASK)
        stream.write(b"ne\n")
    assert place.set_aside() == {FINDINGS: b"half a line\n"}
    assert place.projections() == rebuilt(place)


# --- what others change


def changed(data: bytes) -> bytes:
    return data.replace(b'"accepted":false', b'"accepted":true', 1)


def without_first(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[1:])


def turned_round(data: bytes) -> bytes:
    return b"".join(reversed(data.splitlines(keepends=True)))


def too_many(data: bytes) -> bytes:
    return data + b"x\n" * (projections.ADDED_LINES + 1)


def too_much(data: bytes) -> bytes:
    return data + b"x" * (projections.ADDED_BYTES + 1) + b"\n"


def with_one_above(data: bytes) -> bytes:
    return b"above\n" + data


@pytest.mark.requirement("STATE-09")
@pytest.mark.parametrize(
    "edit",
    [changed, without_first, turned_round, too_many, too_much, with_one_above, lambda _: b"", lambda _: b"{"],
)
def test_any_other_edit_of_a_line_file_is_set_aside_whole_and_told_once(
    place: Place, edit: Callable[[bytes], bytes]
) -> None:
    place.claim("first")
    place.claim("second")
    place.follow()
    path = place.task_path / FINDINGS
    ours = path.read_bytes()
    path.write_bytes(edit(ours))
    assert take_in(place.runtime, TASK) == 0
    assert path.read_bytes() == ours
    assert place.set_aside() == {FINDINGS: edit(ours)}
    take_in(place.runtime, TASK)
    (told,) = edits(place)
    assert told["path"] == FINDINGS
    assert re.fullmatch(r"state/findings\.edited-\d{8}T\d{6}Z\.jsonl", told["moved_to"])
    assert (place.task_path / told["moved_to"]).read_bytes() == edit(ours)
    assert place.store.load(TASK).edited_projections == (FINDINGS,)
    assert place.projections() == rebuilt(place)


@pytest.mark.requirement("STATE-09")
@pytest.mark.parametrize(
    "rewrite", [lambda d: d.replace(b"\n", b"\r\n"), lambda d: d[:-1], lambda d: b"\xef\xbb\xbf" + d]
)
def test_an_editors_line_ends_are_no_edit(place: Place, rewrite: Callable[[bytes], bytes]) -> None:
    place.claim("first")
    place.claim("second")
    place.follow()
    path = place.task_path / FINDINGS
    ours = path.read_bytes()
    path.write_bytes(rewrite(ours))
    assert take_in(place.runtime, TASK) == 0
    assert path.read_bytes() == ours
    assert (place.set_aside(), edits(place)) == ({}, [])


@pytest.mark.requirement("STATE-09")
@pytest.mark.case("STA-07")
@pytest.mark.parametrize("content", [b"", b"{", b'{\n  "phase": "complete",\n  "iteration": 0\n}\n'])
def test_an_edited_state_file_decides_nothing_and_is_set_aside(place: Place, content: bytes) -> None:
    before = place.store.load(TASK)
    for name in (PROGRESS, projection_texts.TASK_SPEC):
        (place.task_path / name).write_bytes(content)
    take_in(place.runtime, TASK)
    after = place.store.load(TASK)
    assert (after.phase, after.goal) == (before.phase, before.goal)
    assert {edit["path"] for edit in edits(place)} == {PROGRESS, projection_texts.TASK_SPEC}
    assert place.set_aside() == {PROGRESS: content, projection_texts.TASK_SPEC: content}
    assert place.texts() == []
    assert place.projections() == rebuilt(place)


@pytest.mark.requirement("STATE-09")
@pytest.mark.parametrize(
    "edit",
    [
        lambda _: "",
        lambda _: "[",
        lambda _: "{}",
        lambda found: json.dumps([{**found[0], "count": 9}, *found[1:], "new"]),
        lambda found: json.dumps(found[1:]),
        lambda found: json.dumps(found[::-1]),
        lambda found: json.dumps(["new", *found]),
        lambda found: json.dumps(found + [str(number) for number in range(projections.ADDED_LINES + 1)]),
    ],
)
def test_directions_that_were_changed_otherwise_are_set_aside_whole(
    place: Place, edit: Callable[[list[Any]], str]
) -> None:
    declare(place, "profile the parser", "vary the seed")
    path, found = place.task_path / projection_texts.DIRECTIONS, entries(place)
    path.write_text(edit(found))
    assert take_in(place.runtime, TASK) == 0
    assert entries(place) == found
    assert place.set_aside() == {projection_texts.DIRECTIONS: edit(found).encode()}
    assert [told["path"] for told in edits(place)] == [projection_texts.DIRECTIONS]


def test_a_line_added_to_a_log_is_set_aside(place: Place) -> None:
    with (place.task_path / projection_texts.WORK).open("a") as stream:
        stream.write("not asked for\n")
    take_in(place.runtime, TASK)
    assert place.set_aside() == {projection_texts.WORK: b"not asked for\n"}
    assert place.texts() == []


def test_edits_within_a_second_have_names_of_their_own(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(place.runtime.clock), "now", lambda _: START)
    for number in range(3):
        (place.task_path / PROGRESS).write_text(f"{number}")
        take_in(place.runtime, TASK)
    assert {path.read_text() for path in place.task_path.glob("state/progress.edited-*")} == {"0", "1", "2"}
    assert len({told["moved_to"] for told in edits(place)}) == 3


def test_old_edits_make_room_for_newer_ones(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projections, "EDITED_LIMIT", 3)
    for number in range(5):
        (place.task_path / PROGRESS).write_text(f"{number}")
        take_in(place.runtime, TASK)
    assert {path.read_text() for path in place.task_path.glob("state/progress.edited-*")} == {"2", "3", "4"}


def test_an_edit_waits_while_the_journal_cannot_be_written(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.task_path / PROGRESS).write_text("{}")

    def refuse(*_: object, **__: object) -> None:
        raise StorageFailed("the disk is full", next_step="...")

    with monkeypatch.context() as full:
        full.setattr(store.Transaction, "record", refuse)
        with pytest.raises(StorageFailed):
            take_in(place.runtime, TASK)
    assert (place.task_path / PROGRESS).read_text() == "{}"
    take_in(place.runtime, TASK)
    assert place.set_aside() == {PROGRESS: b"{}"}


def test_an_edit_of_same_size_and_time_is_found_by_repair(place: Place) -> None:
    place.claim("first")
    place.follow()
    path = place.task_path / FINDINGS
    status = path.stat()
    with path.open("r+b") as stream:
        stream.write(path.read_bytes().replace(b"first", b"fists"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert take_in(place.runtime, TASK) == 0
    assert edits(place) == []
    repair(place.runtime, TASK)
    assert b"fists" not in path.read_bytes()
    assert b"fists" in place.set_aside()[FINDINGS]


@pytest.mark.parametrize("name", [FINDINGS, PROGRESS])
def test_a_pipe_or_link_in_a_projections_place_is_neither_waited_for_nor_followed(
    place: Place, tmp_path: Path, name: str
) -> None:
    private = tmp_path / "private"
    private.write_text("a secret\n")
    path = place.task_path / name
    for make in (os.mkfifo, lambda it: os.symlink(private, it), lambda it: os.link(private, it), os.mkdir):
        path.unlink()
        make(path)
        place.claim(f"while {make} stands there")
        place.follow()
        assert path.is_file()
        assert not path.is_symlink()
    assert private.read_text() == "a secret\n"
    assert "a secret" not in place.texts()
    assert place.projections() == rebuilt(place)


@pytest.mark.parametrize("sub", ["state", "logs", "inbox", "."])
def test_a_linked_folder_is_never_written_through(place: Place, tmp_path: Path, sub: str) -> None:
    outside = tmp_path / "outside"
    path = place.task_path / sub
    shutil.move(path, outside)
    os.symlink(outside, path.parent / path.name if sub != "." else place.task_path)
    before = {item: item.read_bytes() for item in outside.rglob("*") if item.is_file()}
    registry.beat(place.folder.heartbeat_path, at=at(2), status="tool", session_id=SESSION)
    place.claim("not to be written outside")
    assert (write_changed(place.runtime) == ()) == (sub == "inbox")
    assert {item: item.read_bytes() for item in outside.rglob("*") if item.is_file()} == before


def test_a_heartbeat_that_was_linked_away_is_not_appended_to(place: Place, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("")
    os.symlink(target, place.task_path / "logs" / "heartbeat.jsonl")
    registry.beat(place.folder.heartbeat_path, at=at(2), status="tool", session_id=SESSION)
    place.claim("first")
    place.follow()
    assert target.read_text() == ""


def test_a_project_that_is_gone_or_read_only_is_no_fault_and_the_notice_is_written(place: Place) -> None:
    shutil.rmtree(place.project)
    place.block()
    place.follow()
    assert "BLOCKED (agent-blocked)" in Path(place.folder.notice_path).read_text()
    assert take_in(place.runtime, TASK) == 0
    assert not place.project.exists()


@pytest.mark.requirement("STATE-12")
def test_the_mode_state_has_the_protocols_fields_and_ends_with_the_binding(place: Place) -> None:
    place.bind()
    place.follow()
    state = json.loads(place.mode().read_bytes())
    assert state["active"] is True
    assert state["validation_mode"] == "mission-validator-script"
    assert state["mission_validator_command"] == "./check.sh"
    assert state["completion_artifact_path"] == ".omx/specs/autoresearch-parser/completion.json"
    place.bind("third-session")
    place.bind("another-session")
    place.follow()
    assert json.loads(place.mode().read_bytes())["active"] is False
    assert json.loads(place.mode("another-session").read_bytes())["active"] is True
    place.block()
    place.follow()
    assert json.loads(place.mode("another-session").read_bytes())["active"] is False


def test_a_mode_state_of_another_mission_is_left_to_it(place: Place, tmp_path: Path) -> None:
    place.bind()
    place.follow()
    other = Place(tmp_path, task_id="20260102-030406-other")
    other.bind()
    other.follow()
    place.bind("another-session")
    place.follow()
    repair(place.runtime, TASK)
    assert json.loads(place.mode().read_bytes())["task_id"] == other.task_id
    assert json.loads(place.mode().read_bytes())["active"] is True


def test_repair_closes_the_mode_states_of_sessions_that_were_held(place: Place) -> None:
    place.bind()
    place.follow()
    state = place.mode().read_bytes()
    place.bind("another-session")
    place.follow()
    place.mode().write_bytes(state)
    (Path(place.folder.root_path) / "projected.json").unlink()
    repair(place.runtime, TASK)
    assert json.loads(place.mode().read_bytes())["active"] is False


def test_git_status_stays_clean_when_the_folder_had_to_be_made_anew(place: Place) -> None:
    subprocess.run(["git", "init", "-q"], cwd=place.project, check=True)
    subprocess.run(["git", "clean", "-fdxq"], cwd=place.project, check=True)
    place.claim("after the cleaning")
    place.follow()
    said = subprocess.run(
        ["git", "status", "--porcelain"], cwd=place.project, capture_output=True, text=True, check=True
    )
    assert said.stdout == ""
    assert place.projections() == rebuilt(place)


def test_temporary_files_of_killed_writers_are_swept(place: Place) -> None:
    (place.task_path / "state" / ".99-abc.tmp").write_text("half")
    (place.task_path / FINDINGS).unlink()
    place.claim("first")
    place.follow()
    assert list((place.task_path / "state").glob("*.tmp")) == []


TEXTS = st.sampled_from(["profile it", "It, profile!", "\u5206\u6790\u5668", 'a\u2028b "c" \\ d', "x" * 3000])


class AnySequence(RuleBasedStateMachine):
    """Records, crashes, edits, losses and repairs in any order: the projections are those of the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="omx-projections-")
        self.place = Place(Path(self.root))
        self.second = 1
        self.heard: set[str] = set()

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def _next(self) -> int:
        self.second += 1
        return self.second

    @rule()
    def claim(self) -> None:
        second = self._next()
        self.place.claim(f"claim {second}", second=second)

    @rule()
    def end_the_process(self) -> None:
        self.place.follow()

    @rule()
    def be_killed_before_the_projections(self) -> None:
        store.changed.clear()

    @rule(session=st.sampled_from(["one", "two"]))
    def bind(self, session: str) -> None:
        self.place.bind(session)

    @rule(
        texts=st.lists(TEXTS, min_size=1, max_size=3),
        criterion=st.sampled_from(["", "tests", "cause"]),
        is_new=st.booleans(),
    )
    def find(self, texts: list[str], criterion: str, *, is_new: bool) -> None:
        evidence = Evidence(criterion, "d" * 64, is_new=is_new) if criterion else None
        second = self._next()
        findings = (
            Finding(f"f-{second}-{number}", "test", text, evidence=evidence, criterion_id=criterion)
            for number, text in enumerate(texts)
        )
        self.place.record(*map(FindingRecorded, findings), second=second)

    @rule(
        text=TEXTS,
        axis=st.sampled_from(["objective", "search_space"]),
        by=st.sampled_from(["agent", "claim"]),
    )
    def declare(self, text: str, axis: str, by: DirectionBy) -> None:
        direction = direction_of(text, {axis: text}, is_pivot=by == "agent", by=by)
        self.place.record(DirectionDeclared(direction), second=self._next())

    @rule(text=TEXTS)
    def inject(self, text: str) -> None:
        self.place.record(DirectionInjected(direction_of(text, {}, by="owner")), second=self._next())

    @rule(name=st.sampled_from([FINDINGS, projection_texts.ITERATIONS]))
    def add(self, name: str) -> None:
        path = self.place.task_path / name
        if path.is_file():
            text = f"edit {self._next()}"
            path.write_bytes(path.read_bytes() + f"{text}\n".encode())
            is_changed = path.read_bytes().startswith(b"above")
            has_stamps = (Path(self.place.folder.root_path) / "projected.json").exists()
            if has_stamps and not is_changed:  # else the file is set aside whole
                self.heard.add(text)

    @rule(name=st.sampled_from([*projection_texts.LINE_FILES, *projection_texts.STATE_FILES]))
    def change(self, name: str) -> None:
        path = self.place.task_path / name
        if path.is_file():
            path.write_bytes(f"above {self._next()}\n".encode() + path.read_bytes())
            self.heard = {text for text in self.heard if text in self.place.texts()}

    @rule(name=st.sampled_from(["state", "logs", FINDINGS, PROGRESS]))
    def lose(self, name: str) -> None:
        take_in(self.place.runtime, TASK)
        path = self.place.task_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    @rule()
    def lose_the_stamps(self) -> None:
        # Without them, what was added to a file that is behind is set aside.
        take_in(self.place.runtime, TASK)
        (Path(self.place.folder.root_path) / "projected.json").unlink(missing_ok=True)

    @rule()
    def lose_the_snapshot(self) -> None:
        snapshots.lose(self.place.folder)

    @rule()
    def repair(self) -> None:
        repair(self.place.runtime, TASK)

    @invariant()
    def projections_are_those_of_the_journal_once_taken_in(self) -> None:
        if self.second % 3:
            return  # leave some steps to pile up
        take_in(self.place.runtime, TASK)
        now = self.place.projections()
        expected = dict(_expected(self.place))
        assert now == expected
        assert self.heard <= set(self.place.texts())


def _expected(place: Place) -> Iterator[tuple[str, bytes]]:
    entries = list(place.store.journal(TASK).read())
    for name in projection_texts.LINE_FILES:
        yield name, b"".join(projection_texts.line_of(name, entry) for entry in entries)
    yield from projection_texts.states(place.store.load(TASK)).items()


AnySequence.TestCase.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnySequence = AnySequence.TestCase
TestAnySequence.pytestmark = [pytest.mark.requirement("STATE-06"), pytest.mark.slow]  # type: ignore[attr-defined]
