"""The registry: one small file a session, whatever the session is called and whoever damaged a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.foundation.errors import StateUntrusted, StorageFailed
from omx_autoresearch.journal.layout import StateHome, session_file_name
from omx_autoresearch.missions import sessions
from omx_autoresearch.missions.records.sessions import SessionBound
from omx_autoresearch.missions.registry import TOKEN_WORD, ActiveSession, Registry, token_name
from tests.missions.real_missions import SESSION, TASK, HandClock, Place

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = (
    "../../../../tmp/x",
    "a/b",
    "..",
    ".",
    "x" * 5000,
    "a\0b",
    "CON",
    "\n",
    "\ud800",
    "h-1",
    "A",
    "a",
    "é",
)


def entry(session_id: str, state: str = "bound", task_id: str = TASK) -> ActiveSession:
    return ActiveSession(state, session_id, task_id, "/workspace")  # type: ignore[arg-type]


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(StateHome(str(tmp_path / "state")))


@pytest.fixture
def active(tmp_path: Path) -> Path:
    return tmp_path / "state" / "active"


@pytest.mark.case("SES-11")
def test_a_hostile_session_id_makes_no_file_elsewhere_and_shares_none(
    registry: Registry, active: Path, tmp_path: Path
) -> None:
    for number, session_id in enumerate(HOSTILE):
        registry.put(entry(session_id, task_id=f"{TASK}-{number}"))
    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.parent for path in files} == {active}
    assert len(files) == len(HOSTILE)
    for number, session_id in enumerate(HOSTILE):
        if session_id == "\ud800":
            continue  # no client sends one: a dialect replaces it when it reads the payload
        found = registry.find(session_id)
        assert found is not None
        assert (found.session_id, found.task_id) == (session_id, f"{TASK}-{number}")


@pytest.mark.case("SES-11")
@given(st.text(max_size=40), st.text(max_size=40))
def test_two_ids_never_share_a_file_on_any_file_system(one: str, other: str) -> None:
    if one != other:
        assert session_file_name(one).lower() != session_file_name(other).lower()


def test_a_session_that_is_unknown_or_empty_is_not_found(registry: Registry) -> None:
    registry.put(entry("a"))
    assert registry.find("b") is None
    assert registry.find("") is None


def test_a_token_is_kept_as_a_digest_found_by_itself_and_used_once(registry: Registry, active: Path) -> None:
    token = f"{TOKEN_WORD}0123"
    registry.put(entry("", "token"), token=token)
    assert [path.name for path in active.iterdir()] == [token_name(token)]
    assert token not in (active / token_name(token)).read_text()
    assert registry.find_token(f"{TOKEN_WORD}4567") is None
    assert registry.find_token(token) is not None
    registry.remove_token(token)
    assert registry.find_token(token) is None


def test_a_session_id_cannot_name_a_tokens_file(registry: Registry) -> None:
    token = f"{TOKEN_WORD}0123"
    registry.put(entry("", "token"), token=token)
    assert registry.find(token_name(token)) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\0" * 100,
        b"[]",
        b"{}",
        b'{"state":"bound","session_id":"d","task_id":"t","workspace_path":"/","more":1}',
        b'{"state":"open","session_id":"d","task_id":"t","workspace_path":"/"}',
        b'{"state":"bound","session_id":5,"task_id":"t","workspace_path":"/"}',
    ],
)
def test_a_damaged_file_is_skipped_and_named(registry: Registry, active: Path, content: bytes) -> None:
    registry.put(entry("a"))
    (active / "d").write_bytes(content)
    assert [item.session_id for item in registry.entries()] == ["a"]
    with pytest.raises(StateUntrusted, match=str(active / "d")):
        registry.find("d")
    registry.remove_task(TASK)
    assert registry.entries() == ()


def test_links_pipes_and_folders_are_damaged_files_and_nobody_waits(registry: Registry, active: Path) -> None:
    registry.put(entry("a"))
    os.symlink("/nowhere", active / "link")
    os.mkfifo(active / "pipe")
    (active / "folder").mkdir()
    assert [item.session_id for item in registry.entries()] == ["a"]


def test_a_file_that_goes_between_two_looks_is_absent(
    registry: Registry, active: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.put(entry("a"))
    registry.put(entry("b"))
    real = os.listdir

    def then_removed(path: str) -> list[str]:
        names = real(path)
        (active / "a").unlink(missing_ok=True)
        return names

    monkeypatch.setattr(os, "listdir", then_removed)
    assert [item.session_id for item in registry.entries()] == ["b"]
    assert registry.find("a") is None


def test_a_registry_that_cannot_be_listed_says_so(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> list[str]:
        raise PermissionError(13, "no")

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(StorageFailed, match="EACCES"):
        registry.entries()


def test_hidden_files_are_no_entries(registry: Registry, active: Path) -> None:
    registry.put(entry("a"))
    (active / ".1-2-abc.tmp").write_text("half")
    assert len(registry.entries()) == 1


def test_a_mission_that_ends_takes_its_entries_along(registry: Registry) -> None:
    registry.put(entry("a"))
    registry.put(entry("b", "pending"))
    registry.put(entry("", "token"), token="omx-bind-1")
    registry.put(entry("c", task_id=f"{TASK}-2"))
    registry.remove_task(TASK)
    assert [item.session_id for item in registry.entries()] == ["c"]


def clock_of(place: Place) -> HandClock:
    clock = place.runtime.clock
    assert isinstance(clock, HandClock)
    return clock


@pytest.mark.parametrize("minutes", [1, sessions.TOKEN_MINUTES + 1])
def test_a_pending_bind_is_confirmed_in_time_or_expires(tmp_path: Path, minutes: int) -> None:
    place = Place(tmp_path)
    sessions.pend(place.runtime, TASK, session_id=SESSION, client="claude", workspace_path="/w")
    token = sessions.pend(place.runtime, TASK, session_id="", client="gemini", workspace_path="/w")
    clock_of(place).seconds += minutes * 60
    confirmed = sessions.confirm_start(
        place.runtime, SESSION, "claude", f"omx-autoresearch start {TASK}"
    ) or sessions.confirm_token(place.runtime, "g-1", "gemini", f"started\n{token}\n")
    is_late = minutes > sessions.TOKEN_MINUTES
    assert (confirmed is None) is is_late
    bound = [record for record in place.kinds() if record == SessionBound.kind]
    assert len(bound) == (0 if is_late else 1)
    found = Registry(place.home).find(SESSION)
    assert found is None if is_late else found is not None and found.state == "bound"
