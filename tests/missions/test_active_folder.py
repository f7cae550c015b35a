"""The ``active/`` folder stands exactly while something is bound or pending: the hook's shell line looks for it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omx_autoresearch.foundation.errors import StorageFailed
from omx_autoresearch.journal.layout import StateHome
from omx_autoresearch.journal.safe_files import ensure_folder
from omx_autoresearch.missions import registry
from omx_autoresearch.missions.registry import ActiveSession, Registry

ROOT = Path(__file__).resolve().parents[2]

CHURN = """
import sys
from omx_autoresearch.journal.layout import StateHome
from omx_autoresearch.missions.registry import ActiveSession, Registry
registry = Registry(StateHome(sys.argv[1]))
for _ in range(60):
    registry.put(ActiveSession("bound", sys.argv[2], "20260102-030405-x", "/workspace"))
    assert registry.find(sys.argv[2]) is not None
    registry.remove(sys.argv[2])
registry.put(ActiveSession("bound", sys.argv[2], "20260102-030405-x", "/workspace"))
"""


def entry(session_id: str) -> ActiveSession:
    return ActiveSession("bound", session_id, "20260102-030405-x", "/workspace")


@pytest.mark.requirement("SPEED-01")
def test_the_folder_goes_with_its_last_entry_and_comes_with_the_next(tmp_path: Path) -> None:
    sessions = Registry(StateHome(str(tmp_path)))
    active = tmp_path / "active"
    assert not active.exists()
    sessions.put(entry("a"))
    sessions.put(entry("b"))
    sessions.remove("a")
    sessions.remove("unknown")
    assert active.is_dir()
    sessions.remove("b")
    assert not active.exists()
    sessions.put(entry("c"))
    sessions.remove_task("20260102-030405-x")
    assert not active.exists()


def test_processes_that_bind_and_unbind_at_once_lose_no_entry(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen([sys.executable, "-c", CHURN, str(tmp_path), name], env=environ)
        for name in ("a", "b", "c")
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert sorted(item.session_id for item in Registry(StateHome(str(tmp_path))).entries()) == ["a", "b", "c"]


def test_an_entry_finds_its_place_however_often_the_folder_is_taken_away_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter(range(50))

    def ensured_and_taken_away(path: str) -> None:
        ensure_folder(path)
        if next(losses, None) is not None:
            os.rmdir(path)  # as another process does that unbinds the last session at this instant

    monkeypatch.setattr(registry, "ensure_folder", ensured_and_taken_away)
    Registry(StateHome(str(tmp_path))).put(entry("a"))
    assert next(losses, None) is None
    assert [item.session_id for item in Registry(StateHome(str(tmp_path))).entries()] == ["a"]


def test_a_folder_that_another_process_made_and_emptied_meanwhile_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made_by_another(path: str, mode: int) -> None:
        raise FileExistsError(errno.EEXIST, f"stood there a moment ago, mode {mode:o}", path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", made_by_another)
        ensure_folder(str(tmp_path / "active"))
    assert not (tmp_path / "active").exists()
    (tmp_path / "active").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StorageFailed, match="EEXIST"):
        ensure_folder(str(tmp_path / "active"))
