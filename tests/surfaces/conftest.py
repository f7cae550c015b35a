from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.surfaces.support.command_line import Person

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def person(tmp_path: Path) -> Person:
    """Somebody with a repository, a state home and no mission yet."""
    return Person(tmp_path)
