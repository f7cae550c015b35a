"""Schema versions: old journals are read as they stand, new ones are refused in words, and nobody rewrites any."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import JournalBroken
from omx_autoresearch.foundation.json_codec import encode
from omx_autoresearch.foundation.records import NewerShape, OlderShape, ShapeError, replace
from omx_autoresearch.journal.reader import GENESIS, digest_of
from omx_autoresearch.missions import snapshots, store
from omx_autoresearch.missions import snapshots as migrations
from omx_autoresearch.missions.records import KINDS
from omx_autoresearch.missions.records.lifecycle import (
    MissionBlocked,
    MissionCancelled,
    MissionCompleted,
    MissionPaused,
    MissionResumed,
    MissionUnblocked,
)
from omx_autoresearch.missions.records.work import ClaimRecorded, ValidationFinished
from omx_autoresearch.missions.rules.mission import SCHEMA_VERSION, Blocker
from tests.missions.real_missions import TASK, Place, at
from tests.missions.rules.samples import a_run

if TYPE_CHECKING:
    from collections.abc import Callable


def rewritten(place: Place, change: Callable[[str, dict[str, Any]], dict[str, Any]]) -> bytes:
    """The journal as another version would have written it, alone on the disk; returns its bytes."""
    path = Path(place.folder.journal_path)
    prev, lines = GENESIS, []
    for line in path.read_bytes().splitlines():
        value = json.loads(line)
        value["data"], value["prev"] = change(value["kind"], value["data"]), prev
        lines.append(encode(value))
        prev = digest_of(lines[-1])
    path.write_bytes(b"\n".join(lines) + b"\n")
    for name in snapshots.NAMES:
        Path(place.folder.root_path, name).unlink(missing_ok=True)
    store.forget(place.folder)
    return path.read_bytes()


def oldest(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """A record of version 1: no version, no milestones, nothing forbidden, no phase."""
    data = {key: value for key, value in data.items() if key not in ("schema_version", "milestones", "phase")}
    if "contract" in data:
        data["contract"] = {key: value for key, value in data["contract"].items() if key != "forbidden"}
    return data


def stamped(version: Any) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    return lambda kind, data: {**data, "schema_version": version} if kind == "mission_created" else data


def kinds(place: Place) -> list[str]:
    lines = Path(place.folder.journal_path).read_bytes().splitlines()
    return [json.loads(line)["kind"] for line in lines]


@pytest.mark.requirement("STATE-14")
def test_a_new_journal_and_its_snapshot_say_their_version(tmp_path: Path) -> None:
    place = Place(tmp_path)
    first = json.loads(Path(place.folder.journal_path).read_bytes().splitlines()[0])
    assert first["data"]["schema_version"] == SCHEMA_VERSION
    (_, content), *_ = snapshots.newest(place.folder.root_path)
    assert content["schema_version"] == content["mission"]["schema_version"] == SCHEMA_VERSION


@pytest.mark.requirement("STATE-14")
def test_the_oldest_journal_is_read_as_it_stands_and_goes_on_in_the_newest_version(tmp_path: Path) -> None:
    place = Place(tmp_path)
    before = rewritten(place, oldest)
    mission = place.store.load(TASK)
    assert (mission.schema_version, mission.phase, mission.milestones) == (1, "running", ())
    assert mission.contract is not None
    assert mission.contract.forbidden == ()
    assert Path(place.folder.journal_path).read_bytes() == before, "reading writes nothing"
    place.claim("first words of a new version")
    place.claim("second")
    assert kinds(place)[2:] == ["schema_migrated", "claim_recorded", "claim_recorded"]
    assert Path(place.folder.journal_path).read_bytes().startswith(before)
    after = place.store.load(TASK)
    assert after.schema_version == SCHEMA_VERSION
    store.forget(place.folder)
    for name in snapshots.NAMES:
        Path(place.folder.root_path, name).unlink()
    assert place.store.load(TASK) == after


@pytest.mark.requirement("STATE-14", "LIFE-13")
def test_records_from_before_they_carried_a_phase_fold_to_the_same_mission(tmp_path: Path) -> None:
    place = Place(tmp_path)
    blocker = Blocker("stalled", "no progress", "a direction", "omx-autoresearch unblock", "gate")
    place.record(MissionPaused("paused"))
    place.record(MissionResumed("running"))
    place.record(MissionBlocked("blocked", blocker))
    place.record(MissionPaused("paused"))  # raced, and changed nothing
    place.record(MissionUnblocked("running"))
    phases = [place.store.load(TASK)]
    place.record(ValidationFinished(a_run("passed")))
    place.record(MissionCompleted("complete", "r-1"))
    place.record(MissionCancelled("cancelled"))
    phases.append(place.store.load(TASK))
    assert [mission.phase for mission in phases] == ["running", "complete"]

    def of_version_2(kind: str, data: dict[str, Any]) -> dict[str, Any]:
        data = {key: value for key, value in data.items() if key != "phase"}
        return stamped(2)(kind, data)

    rewritten(place, of_version_2)
    assert place.store.load(TASK) == replace(phases[-1], schema_version=2)


@pytest.mark.requirement("STATE-14")
def test_an_old_snapshot_is_taken_through_the_steps_and_not_thrown_away(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (number, content), *_ = snapshots.newest(place.folder.root_path)
    old = {"head": content["head"], "mission": dict(content["mission"])}
    del old["mission"]["schema_version"], old["mission"]["milestones"]
    snapshots.save(place.folder.root_path, old, after=number)
    saved = store.saved_state(place.folder)
    assert saved is not None
    assert (saved.number, saved.mission.schema_version) == (number + 1, 1)


@pytest.mark.requirement("STATE-15")
def test_too_new_and_too_old_have_sentences_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    before = rewritten(place, stamped(SCHEMA_VERSION + 1))
    with pytest.raises(JournalBroken, match="written by a newer omx-autoresearch") as newer:
        place.store.load(TASK)
    assert "upgrade" in newer.value.next_step
    with pytest.raises(JournalBroken, match="newer"):
        place.claim("no")
    assert Path(place.folder.journal_path).read_bytes() == before
    rewritten(place, stamped(1))
    monkeypatch.setattr(migrations, "OLDEST", 2)
    with pytest.raises(JournalBroken, match="older than this omx-autoresearch reads") as older:
        place.store.load(TASK)
    assert "an older omx-autoresearch" in older.value.next_step
    rewritten(place, stamped("2"))
    with pytest.raises(JournalBroken, match="a whole number is needed"):
        place.store.load(TASK)


@pytest.mark.case("STA-07")
def test_a_text_where_a_number_belongs_breaks_the_journal_in_words(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.record(ValidationFinished(a_run("failed")))

    def with_text(kind: str, data: dict[str, Any]) -> dict[str, Any]:
        run = data.get("attestation")
        return {**data, "attestation": {**run, "exit_status": "one"}} if run else data

    rewritten(place, with_text)
    said = r"record \d+: Attestation\.exit_status: int \| None is needed, received str"
    with pytest.raises(JournalBroken, match=said) as broken:
        place.store.load(TASK)
    assert broken.value.next_step.startswith("put the newest copy of the journal back")


@pytest.mark.requirement("STATE-15")
def test_steps_run_in_order_leave_their_argument_alone_and_name_what_they_cannot_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = {1: lambda _, data: {**data, "a": [1]}, 2: lambda _, data: {**data, "a": [*data["a"], 2]}}
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", 3)
    monkeypatch.setattr(migrations, "RECORD_STEPS", steps)
    given = {"b": 1}
    assert migrations.migrated("x", given, 1) == {"b": 1, "a": [1, 2]}
    assert given == {"b": 1}
    assert migrations.migrated("x", given, 3) == given
    with pytest.raises(ShapeError, match="step 2 of the migrations cannot read x"):
        migrations.migrated("x", given, 2)
    with pytest.raises(NewerShape):
        migrations.version_after("schema_migrated", {"to_version": 4}, 1)
    with pytest.raises(OlderShape):
        migrations.migrated_state({"schema_version": 0})


def test_every_version_has_a_step_and_every_stamp_is_a_kind() -> None:
    for table in (migrations.RECORD_STEPS, migrations.STATE_STEPS):
        assert list(table) == list(range(migrations.OLDEST, SCHEMA_VERSION))
    assert set(store._STAMPS) <= KINDS.keys()


@pytest.mark.requirement("STATE-16")
def test_a_migration_that_was_cut_off_is_done_by_the_next_writer(tmp_path: Path) -> None:
    place = Place(tmp_path)
    before = rewritten(place, oldest)
    with open(place.folder.journal_path, "ab") as stream:
        stream.write(b'{"seq":3,"ts":"2026-01-02T03:04:06Z","kind":"schema_mig')
    assert place.store.load(TASK).schema_version == 1
    place.claim("after the cut")
    assert kinds(place)[2:] == ["schema_migrated", "torn_tail_set_aside", "claim_recorded"]
    assert Path(place.folder.journal_path).read_bytes().startswith(before)
    assert place.store.load(TASK).schema_version == SCHEMA_VERSION


@pytest.mark.requirement("STATE-16")
def test_of_many_writers_who_meet_an_old_journal_one_migrates_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    rewritten(place, oldest)
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            try:
                place.claim(f"of {number}")
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    threads = [threading.Thread(target=place.claim, args=(f"thread {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kinds(place).count("schema_migrated") == 1
    assert kinds(place).count("claim_recorded") == 8
    assert place.store.load(TASK).claim_count == 8


def test_a_claim_is_written_in_the_version_that_the_journal_says(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.store.transaction(TASK, at(2)) as transaction:
        transaction.record(ClaimRecorded("x", "cli", "c"))
    assert "schema_migrated" not in kinds(place), "a journal of this version is left alone"
