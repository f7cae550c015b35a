"""Events that come in pieces: what an agent writes must not look like the end of an event."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from omx_autoresearch.surfaces import hook

if TYPE_CHECKING:
    import pytest


def test_a_message_of_braces_that_comes_in_pieces_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client pauses for longer than an end needs; each piece ends like an object."""
    whole = json.dumps({"session_id": "s", "last_assistant_message": "}" * 300}).encode()
    reader, writer = os.pipe()
    os.write(writer, whole[:200])
    asked: list[bytes] = []
    judged = hook.is_whole

    def feeding(raw: bytes) -> bool:
        asked.append(raw)
        os.write(writer, whole[200:])  # only now, after the silence
        monkeypatch.setattr(hook, "is_whole", judged)
        return judged(raw)

    monkeypatch.setattr(hook, "is_whole", feeding)
    try:
        assert hook.read_event(reader) == whole
    finally:
        os.close(writer)
        os.close(reader)
    assert asked == [whole[:200]]
