"""The scratch world of the runtime's tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.runtime import sessions, turns
from omx_autoresearch.system.processes import identify
from tests.support.scratch import Scratch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    """A project in git with a validator, a state home, and nothing started."""
    return Scratch.make(tmp_path)


@pytest.fixture(autouse=True)
def _own_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's process is the client of every event that it answers itself, whatever started the tests."""
    monkeypatch.setattr(sessions, "client_process", lambda: identify(os.getpid()))
    monkeypatch.setattr(turns, "not_from_client", lambda _: "")
