"""Strict JSON: what goes through it once, comes out the same everywhere."""

from __future__ import annotations

import pytest

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.records import to_plain
from omx_autoresearch.missions.rules.allowances import Limits
from omx_autoresearch.missions.rules.mission import Contract, Mission

MISSION = Mission(
    "t", "s", 'the "goal" é\ud800', "standard", "/p", "/w", "x", scope=("a", "b"), created_at="2026",
    contract=Contract("mission-validator-script", environment={"PATH": "/bin"}, limits=Limits(stale_pivot=9)),
)  # fmt: skip


def test_dataclasses_are_written_as_their_plain_form() -> None:
    for value in (MISSION, {"head": Limits(), "list": [MISSION, ()]}):
        assert json_codec.encode_dataclasses(value) == json_codec.encode(to_plain(value))


def test_what_is_no_dataclass_and_no_json_is_refused() -> None:
    with pytest.raises(TypeError, match="set has no plain form"):
        json_codec.encode_dataclasses({"a": {1}})
    with pytest.raises(ValueError, match="JSON"):
        json_codec.encode_dataclasses({"a": float("nan")})


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b'{"a":1,"a":2}', "the key 'a' is given twice"),
        (b"NaN", "NaN is not a JSON number"),
        (b"1e999", "the number 1e999 is out of range"),
        (b"\xff", "byte 0 is not UTF-8"),
        (b'{"a"\0:1}', "it holds NUL bytes, the first at byte 4"),
        (b'{"a":', "it is not JSON (Expecting value: line 1 column 6 (char 5))"),
        (b"[" * 200_000, "it is nested too deeply"),
    ],
)
def test_each_fault_has_its_sentence(data: bytes, cause: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        json_codec.decode(data)
    assert str(caught.value) == cause
