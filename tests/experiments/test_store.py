"""The experiment store: exclusive folders, durable events, corrupt logs that hide nobody."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from omx_autoresearch.experiments.judge.events import (
    ControllerAttached,
    ExperimentCompleted,
    ExperimentStarted,
)
from omx_autoresearch.experiments.judge.metrics import MetricSpec
from omx_autoresearch.experiments.judge.state import ExperimentConfig
from omx_autoresearch.experiments.store import ExperimentFolder, ExperimentStore
from omx_autoresearch.foundation.errors import JournalBroken, UsageError
from omx_autoresearch.journal.layout import StateHome

TS = "2026-01-02T03:04:05.000000Z"
CONFIG = ExperimentConfig("faster", MetricSpec("ms"), measure="./m.sh", check="./c.sh")


@pytest.fixture
def store(tmp_path: Path) -> ExperimentStore:
    return ExperimentStore(StateHome(str(tmp_path / "home")))


def made(
    store: ExperimentStore, *, name: str = "Faster parsing", second: int = 5, project: str = "/p"
) -> ExperimentFolder:
    folder = store.create(name, datetime(2026, 1, 2, 3, 4, second, tzinfo=UTC))
    store.append(folder.experiment_id, ExperimentStarted(folder.experiment_id, project, CONFIG), ts=TS)
    return folder


@pytest.mark.requirement("EXP-01")
def test_an_experiment_has_a_private_folder_of_its_own_and_no_id_is_given_twice(
    store: ExperimentStore,
) -> None:
    first, second = made(store), made(store)
    assert first.experiment_id == "20260102-030405-faster-parsing"
    assert second.experiment_id == "20260102-030405-faster-parsing-2"
    assert os.stat(first.root_path).st_mode & 0o777 == 0o700
    assert store.list_ids() == (second.experiment_id, first.experiment_id)


@pytest.mark.requirement("EXP-02")
def test_events_fold_to_the_state_in_their_order(store: ExperimentStore) -> None:
    folder = made(store)
    store.append(folder.experiment_id, ControllerAttached(3, "b:1"), ExperimentCompleted("explicit"), ts=TS)
    state = store.load(folder.experiment_id)
    assert (state.project_path, state.controller_pid, state.phase) == ("/p", 3, "completed")
    assert [event.kind for _, event in store.events(folder.experiment_id)] == [
        "started",
        "resumed",
        "completed",
    ]


@pytest.mark.requirement("EXP-02")
def test_a_broken_line_is_an_error_by_file_and_line_and_hides_no_other_experiment(
    store: ExperimentStore,
) -> None:
    good, bad = made(store), made(store, second=6)
    store.append(bad.experiment_id, ExperimentCompleted("explicit"), ts=TS)
    path = Path(bad.journal_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0].replace(b"/p", b"/q") + b"".join(lines[1:]))
    with pytest.raises(JournalBroken, match=r"events\.jsonl line 2 .*not the digest of the line before"):
        store.load(bad.experiment_id)
    assert store.load(good.experiment_id).project_path == "/p"


def test_an_event_of_a_newer_version_is_told_by_file_and_line(
    store: ExperimentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(store)
    monkeypatch.setattr(ExperimentCompleted, "kind", "teleported")
    store.append(folder.experiment_id, ExperimentCompleted("explicit"), ts=TS)
    with pytest.raises(JournalBroken, match=r"events\.jsonl line 2 .*unknown"):
        store.load(folder.experiment_id)
    with pytest.raises(JournalBroken, match=r"events\.jsonl line 2 .*newer"):
        list(store.events(folder.experiment_id))


def test_a_torn_last_line_is_set_aside_by_the_next_event(store: ExperimentStore) -> None:
    folder = made(store)
    with open(folder.journal_path, "ab") as stream:
        stream.write(b'{"seq":2,"ts"')
    assert store.load(folder.experiment_id).phase == "started"
    store.append(folder.experiment_id, ExperimentCompleted("explicit"), ts=TS)
    assert store.load(folder.experiment_id).phase == "completed"
    assert len(os.listdir(folder.torn_path)) == 1


def test_an_experiment_is_found_by_id_by_beginning_or_by_slug(store: ExperimentStore) -> None:
    old = made(store, name="alpha", second=1).experiment_id
    new = made(store, name="beta", second=2).experiment_id
    made(store, name="gamma", second=3)
    assert store.find(old) == old
    assert store.find("20260102-030402") == new
    assert store.find("alpha") == old
    with pytest.raises(UsageError, match="matches 3 experiments"):
        store.find("20260102")
    with pytest.raises(UsageError, match="matches no experiment"):
        store.find("nothing")


def test_an_id_that_would_leave_the_folder_is_refused(store: ExperimentStore) -> None:
    for words in ("../../etc", "/etc", "a/b", ""):
        with pytest.raises(UsageError):
            store.folder(words)
        assert not store.exists(words)


def test_an_experiment_that_never_began_is_no_experiment(store: ExperimentStore) -> None:
    folder = store.create("empty", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    with pytest.raises(UsageError, match="never began"):
        store.load(folder.experiment_id)
    with pytest.raises(UsageError, match="matches no experiment"):
        store.find("empty")


def test_a_log_that_does_not_begin_with_its_start_is_told_by_file_and_line(store: ExperimentStore) -> None:
    folder = store.create("faster", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    store.append(folder.experiment_id, ControllerAttached(3, "b:1"), ts=TS)
    with pytest.raises(JournalBroken, match=r"events\.jsonl line 1 .*comes before started"):
        store.load(folder.experiment_id)
