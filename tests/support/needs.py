"""What a test needs of the machine beyond Python and git; without it the test is skipped and says why."""

from __future__ import annotations

import pytest

from omx_autoresearch.system.sandbox import can_isolate

needs_bubblewrap = pytest.mark.skipif(
    not can_isolate(), reason="bubblewrap is missing, or the kernel does not let it work"
)
