"""Every test of missions answers its own events."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_client(own_client: None) -> None:
    pass
