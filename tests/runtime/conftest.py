"""The scratch world of the runtime's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.scratch import Scratch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    """A project in git with a validator, a state home, and nothing started."""
    return Scratch.make(tmp_path)
