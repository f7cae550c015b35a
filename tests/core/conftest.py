from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home() -> Path:
    """The scratch home of the process: the rules read and write no file, and a home for each of 3,000 cases adds up."""
    return Path.home()
