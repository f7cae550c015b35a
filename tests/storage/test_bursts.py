"""A burst: each record as durable as alone, what people read a little behind and complete at the end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.runtime.claims import take_in
from omx_autoresearch.storage import missions, states, views
from omx_autoresearch.storage.projections import Projections
from tests.storage.real_missions import TASK, Place
from tests.support import snapshots

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(
        missions, "BURST_SECONDS", 3600.0
    )  # only the first record and the end bring anything up
    return Place(tmp_path)


def shown(place: Place) -> int:
    return len((place.task_path / views.FINDINGS).read_bytes().splitlines())


@pytest.mark.requirement("STATE-19")
def test_projections_trail_within_a_burst_and_are_whole_at_its_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fsync

    def sync(descriptor: int) -> None:
        synced.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    with place.store.burst(TASK):
        for number in range(20):
            place.claim(f"{number}")
            assert len(synced) == number + 1
            assert place.store.load(TASK).claim_count == number + 1
            states.forget(place.folder)
            assert place.store.load(TASK).claim_count == number + 1
        assert shown(place) == 1
        assert snapshots.content(place.folder)["mission"]["claim_count"] == 1
    assert shown(place) == 20
    assert snapshots.content(place.folder)["mission"]["claim_count"] == 20
    assert not Projections(place.folder, place.store.load(TASK)).needs_care()
    place.claim("alone")
    assert shown(place) == 21


def test_a_burst_that_fails_leaves_them_whole_as_well(place: Place) -> None:
    def fail() -> None:
        with place.store.burst(TASK):
            place.claim("first")
            place.claim("second")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert shown(place) == 2


@pytest.mark.requirement("STATE-19")
def test_a_burst_that_is_killed_is_made_up_for_by_the_next_look(place: Place) -> None:
    child = os.fork()
    if not child:
        with place.store.burst(TASK):
            for number in range(9):
                place.claim(f"{number}")
            os._exit(0)
    os.waitpid(child, 0)
    assert shown(place) == 1
    assert take_in(place.runtime, TASK) == 0
    assert shown(place) == 9
    assert "projection_edited" not in place.kinds()


def test_a_burst_without_a_record_does_nothing(place: Place) -> None:
    before = place.projections()
    with place.store.burst(TASK):
        pass
    assert place.projections() == before


def test_a_burst_on_one_mission_delays_no_other(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path, task_id="20260102-030406-other")
    other.store = place.store
    with place.store.burst(TASK):
        for number in range(3):
            other.claim(f"{number}")
    assert shown(other) == 3
