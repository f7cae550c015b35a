"""Claims on their way into the journal: noted, dropped, taken in once, never obeyed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from omx_autoresearch.foundation.errors import JournalBroken, StorageFailed, UsageError, WorkspaceFault
from omx_autoresearch.missions import claims, projection_texts
from omx_autoresearch.missions.claims import claim_id, note, take_in, take_in_quietly, write_changed
from omx_autoresearch.missions.rules import briefing
from omx_autoresearch.missions.store import MissionStore
from tests.missions.real_missions import TASK, Place, at
from tests.support import snapshots


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def refuse_writing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a sandbox does: the state home can be read and not written."""

    def transaction(*_: object) -> None:
        raise StorageFailed("Could not lock it: Read-only file system (EROFS).", next_step="...")

    monkeypatch.setattr(MissionStore, "transaction", transaction)


def test_a_note_stands_in_the_journal_and_among_the_findings(place: Place) -> None:
    noted = note(place.runtime, TASK, "the tokenizer is slow", origin="cli")
    assert noted.inbox_file_path == ""
    assert noted.mission.claim_count == 1
    place.follow()
    finding = json.loads((place.task_path / projection_texts.FINDINGS).read_bytes())
    assert (finding["summary"], finding["source"], finding["accepted"]) == (
        "the tokenizer is slow",
        "cli",
        False,
    )


def test_the_same_note_twice_is_one_claim(place: Place) -> None:
    note(place.runtime, TASK, "again", origin="cli")
    assert note(place.runtime, TASK, "again", origin="cli").mission.claim_count == 1


def test_a_note_that_quotes_another_claims_id_does_not_hide_it(place: Place) -> None:
    note(place.runtime, TASK, f'"claim_id":"{claim_id("hidden")}"', origin="cli")
    note(place.runtime, TASK, "hidden", origin="cli")
    assert place.texts()[1:] == ["hidden"]


def test_an_empty_note_is_a_usage_error(place: Place) -> None:
    with pytest.raises(UsageError, match="needs text"):
        note(place.runtime, TASK, " \n", origin="cli")


@pytest.mark.requirement("STATE-08")
def test_a_note_that_cannot_be_written_waits_in_the_inbox_and_is_taken_in_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as sandbox:
        refuse_writing(place, sandbox)
        noted = note(place.runtime, TASK, "from inside", origin="cli")
    assert Path(noted.inbox_file_path).exists()
    assert place.texts() == []
    assert take_in(place.runtime, TASK) == 1
    assert take_in(place.runtime, TASK) == 0
    assert place.texts() == ["from inside"]
    assert not Path(noted.inbox_file_path).exists()


def test_a_note_that_can_be_written_nowhere_says_what_to_do(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_writing(place, monkeypatch)
    shutil.rmtree(place.project / ".omx")
    (place.project / ".omx").write_text("in the way")
    with pytest.raises(StorageFailed, match="was not recorded") as caught:
        note(place.runtime, TASK, "from inside", origin="cli")
    assert "the hook takes it in" in caught.value.next_step


@pytest.mark.requirement("STATE-08")
def test_a_taker_killed_before_the_file_was_removed_takes_it_in_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims.drop_claim(place.inbox_path, "once", verb="note", at=at(1))
    with monkeypatch.context() as killed:
        killed.setattr(claims, "remove_claims", lambda _: None)
        assert take_in(place.runtime, TASK) == 1
    assert take_in(place.runtime, TASK) == 0
    assert place.texts() == ["once"]
    assert claims.waiting_claims(place.inbox_path) == ()


def test_verbs_in_the_inbox_are_claims_and_nothing_else(place: Place) -> None:
    for verb in ("block", "cancel", "complete"):
        claims.drop_claim(place.inbox_path, f"please {verb}", verb=verb, at=at(1))
    (Path(place.inbox_path) / "approve").write_text("approve")
    assert take_in(place.runtime, TASK) == 4
    assert place.store.load(TASK).phase == "running"
    *_, newest = place.store.journal(TASK).read()
    assert newest.data["origin"] in {"inbox", "unknown"}


def test_an_empty_file_is_removed_without_a_claim(place: Place) -> None:
    (Path(place.inbox_path) / "empty").write_text(" \n")
    assert take_in(place.runtime, TASK) == 0
    assert claims.waiting_claims(place.inbox_path) == ()
    assert "claim_recorded" not in place.kinds()


def test_nothing_waiting_writes_nothing(place: Place) -> None:
    take_in(place.runtime, TASK)
    before = Path(place.folder.journal_path).stat()
    assert take_in(place.runtime, TASK) == 0
    assert Path(place.folder.journal_path).stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.requirement("STATE-09")
def test_the_next_summary_says_what_was_edited(place: Place) -> None:
    (place.task_path / projection_texts.PROGRESS).write_text("{}")
    take_in(place.runtime, TASK)
    said = briefing.summary(place.store.load(TASK))
    assert "Edited and rewritten: state/progress.json" in said


def told_at_the_end(place: Place) -> str:
    place.claim("one more")
    (warning,) = write_changed(place.runtime)
    return warning


def test_what_waits_is_taken_in_although_the_projections_cannot_be_restored(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims.drop_claim(place.inbox_path, "still heard", verb="note", at=at(1))
    shutil.rmtree(place.task_path / "state")
    os.symlink("/", place.task_path / "state")
    with pytest.raises(WorkspaceFault, match="symbolic link"):
        take_in(place.runtime, TASK)
    assert place.texts() == ["still heard"]
    assert "older than its journal" in told_at_the_end(place)


def test_a_fault_while_taking_in_holds_and_releases_nobody(place: Place) -> None:
    claims.drop_claim(place.inbox_path, "waits", verb="note", at=at(1))
    snapshots.lose(place.folder)
    with Path(place.folder.journal_path).open("r+b") as stream:
        stream.write(b"garbage")
    with pytest.raises(JournalBroken):
        take_in(place.runtime, TASK)
    take_in_quietly(place.runtime, TASK)
    assert len(claims.waiting_claims(place.inbox_path)) == 1
