"""What a process remembers of a mission is believed only while the journal still says it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import JournalBroken
from omx_autoresearch.missions import store
from omx_autoresearch.missions.projections import Projections
from omx_autoresearch.missions.records.work import ClaimRecorded, ValidationLost, ValidationStarted
from omx_autoresearch.missions.rules.mission import RunningValidation
from tests.missions.real_missions import TASK, Place, at
from tests.support import snapshots

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission

RUN = ValidationStarted(RunningValidation("r-1", 1, "boot:1", at(1), "tree"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def in_child(place: Place, *texts: str) -> None:
    """Another process records these claims."""
    child = os.fork()
    if not child:
        try:
            for text in texts:
                place.claim(text)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def anew(place: Place) -> Mission:
    """The mission as a process sees it that knows nothing, without a snapshot."""
    snapshots.lose(place.folder)
    return place.store.load(TASK)


def test_a_second_look_folds_nothing_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.claim("first")
    expected = place.store.load(TASK)
    folded: list[object] = []

    def fold(mission: Mission, entries: Any) -> Mission:
        folded.extend(entries)
        return mission

    monkeypatch.setattr(store, "fold", fold)
    monkeypatch.setattr(store, "saved_state", lambda _: pytest.fail("the snapshot was read"))
    assert place.store.load(TASK) is expected
    assert folded == []


@pytest.mark.requirement("STATE-07")
def test_what_other_processes_record_is_seen_at_once_and_everything_is_what_a_fold_gives(
    place: Place,
) -> None:
    for number in range(5):
        in_child(place, f"theirs {number}", f"theirs again {number}")
        assert place.store.load(TASK).claim_count == 3 * number + 2
        place.claim(f"ours {number}")
    assert place.store.load(TASK) == anew(place)


@pytest.mark.requirement("STATE-03")
def test_a_journal_that_was_cut_or_put_back_is_noticed_whatever_is_remembered(place: Place) -> None:
    path = Path(place.folder.journal_path)
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    place.claim("first")
    os.replace(copy, path)
    with pytest.raises(JournalBroken, match=r"ends at record 2, but 3 were acknowledged"):
        place.store.load(TASK)


def test_more_missions_than_are_remembered_are_all_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_REMEMBERED_MISSIONS", 3)
    places = [Place(tmp_path, task_id=f"20260102-030405-m{number}") for number in range(8)]
    for number, place in enumerate(places):
        for _ in range(number % 3):
            place.claim("x")
    assert [place.store.load(place.task_id).claim_count for place in places] == [n % 3 for n in range(8)]


# --- announcing


@pytest.mark.requirement("STATE-18")
def test_an_announcement_is_seen_by_everybody_and_waits_for_no_disk(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_sync(_: int) -> Any:
        pytest.fail("the disk was waited for")

    before = snapshots.paths(place.folder)[-1].read_bytes()
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", no_sync)
        with place.store.transaction(TASK, at(2)) as transaction:
            assert transaction.announce(RUN).running_validation == RUN.run
    assert snapshots.paths(place.folder)[-1].read_bytes() == before
    assert place.store.load(TASK).running_validation == RUN.run
    assert anew(place).running_validation == RUN.run


@pytest.mark.requirement("STATE-18")
def test_an_announcement_that_a_power_cut_took_was_never_promised(place: Place) -> None:
    path = Path(place.folder.journal_path)
    durable = path.read_bytes()
    with place.store.transaction(TASK, at(2)) as transaction:
        transaction.announce(RUN)
    store.forget(place.folder)
    path.write_bytes(durable)  # what the disk had
    assert place.store.load(TASK).running_validation is None
    place.claim("after")
    assert place.store.rebuild(TASK) == place.store.load(TASK)


@pytest.mark.requirement("STATE-18")
def test_whoever_promises_an_announced_record_makes_it_durable_first(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.store.transaction(TASK, at(2)) as transaction:
        transaction.announce(RUN)
    synced: list[int] = []
    real = os.fsync

    def sync(descriptor: int) -> None:
        synced.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    for look in (place.store.transaction(TASK, at(3)), place.store.transaction(TASK, at(4))):
        with look:
            pass
    assert len(synced) == 1  # the first of them found the snapshot behind
    assert snapshots.content(place.folder)["head"]["seq"] == 3


def test_a_record_after_an_announcement_brings_everything_up(place: Place) -> None:
    with place.store.transaction(TASK, at(2)) as transaction:
        transaction.announce(RUN)
    with place.store.transaction(TASK, at(3)) as transaction:
        transaction.record(ValidationLost("r-1"), ClaimRecorded("x", "cli", "c-x"))
    assert snapshots.content(place.folder)["head"]["seq"] == 5
    place.follow()
    assert Projections(place.folder, place.store.load(TASK)).are_current()
    assert place.store.load(TASK) == anew(place)
