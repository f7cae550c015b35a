"""The ``active/`` folder stands exactly while something is bound or pending: the hook's shell line looks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omx_autoresearch.storage.layout import StateHome
from omx_autoresearch.storage.registry import ActiveSession, Registry

ROOT = Path(__file__).resolve().parents[2]

CHURN = """
import sys
from omx_autoresearch.storage.layout import StateHome
from omx_autoresearch.storage.registry import ActiveSession, Registry
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
    registry = Registry(StateHome(str(tmp_path)))
    active = tmp_path / "active"
    assert not active.exists()
    registry.put(entry("a"))
    registry.put(entry("b"))
    registry.remove("a")
    registry.remove("unknown")
    assert active.is_dir()
    registry.remove("b")
    assert not active.exists()
    registry.put(entry("c"))
    registry.remove_task("20260102-030405-x")
    assert not active.exists()


def test_processes_that_bind_and_unbind_at_once_lose_no_entry(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen([sys.executable, "-c", CHURN, str(tmp_path), name], env=environ)
        for name in ("a", "b", "c")
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert sorted(item.session_id for item in Registry(StateHome(str(tmp_path))).entries()) == ["a", "b", "c"]
