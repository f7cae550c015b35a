"""Strict where data enters: unknown fields, loose numbers, endless numbers, instances."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from omx_autoresearch.foundation.errors import MissionInvalid, UsageError
from omx_autoresearch.foundation.input_validation import validated
from omx_autoresearch.foundation.records import nested
from omx_autoresearch.missions.rules.allowances import Limits
from omx_autoresearch.missions.rules.mission import Contract


@dataclass(frozen=True, slots=True)
class Inner:
    number: int = 1


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    share: float = 0.5
    is_on: bool = False
    side: Literal["a", "b"] = "a"
    many: tuple[str, ...] = ()
    table: dict[str, int | float] = field(default_factory=dict)
    inner: Inner = nested(Inner, default=Inner())
    inners: tuple[Inner, ...] = nested(Inner, default=())


def test_sound_values_become_the_cores_own_class() -> None:
    value = {
        "name": "x",
        "share": 2,
        "many": ["p"],
        "table": {"q": 1},
        "inner": {"number": 7},
        "inners": [{}],
    }
    assert validated(Sample, value, where="f") == Sample(
        "x", 2.0, many=("p",), table={"q": 1}, inner=Inner(7), inners=(Inner(),)
    )


@pytest.mark.case("ART-02")
@pytest.mark.requirement("DONE-24")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": 5}, "name: must be text, received 5"),
        ({"share": "5"}, 'share: must be a number, received "5"'),
        ({"share": True}, "share: must be a number, received true"),
        ({"share": float("nan")}, "share: must be a finite number, received NaN"),
        ({"share": float("inf")}, "share: must be a finite number"),
        ({"is_on": 1}, "is_on: must be true or false, received 1"),
        ({"is_on": "yes"}, "is_on: must be true or false"),
        ({"side": "c"}, "side: must be 'a' or 'b', received \"c\""),
        ({"many": "p"}, 'many: must be a list, received "p"'),
        ({"many": ["p", 3]}, "many.1: must be text, received 3"),
        ({"table": {"q": "x"}}, "table.q: must be"),
        ({"inner": {"number": 2.0}}, "inner.number: must be a whole number, received 2.0"),
        ({"inner": {"no": 1}}, "inner.no: unknown field"),
        ({"inners": [{"no": 1}]}, "inners.0.no: unknown field"),
        ({"extra": 1}, "extra: unknown field"),
        ({"name": "\ud800"}, "a character that UTF-8 cannot"),
    ],
)
def test_any_other_form_is_refused_with_field_and_value(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(MissionInvalid) as caught:
        validated(Sample, {"name": "x", **changes}, where="file.json")
    assert said in caught.value.message
    assert caught.value.message.startswith("file.json: ")


def test_a_missing_field_and_every_further_fault_are_named_once_each_with_their_line() -> None:
    with pytest.raises(UsageError) as caught:
        validated(
            Sample, {"share": "x", "extra": 1}, where="f", lines={(): 2, ("share",): 7}, error=UsageError
        )
    lines = caught.value.message.splitlines()
    assert lines[0] == "f: 3 faults"
    assert sorted(lines[1:]) == [
        "  - line 2: extra: unknown field",
        "  - line 2: name: it is required but missing",
        '  - line 7: share: must be a number, received "x"',
    ]


def test_an_instance_is_not_trusted() -> None:
    wrong: Any = {"refusals_total": "many"}
    with pytest.raises(MissionInvalid, match="refusals_total"):
        validated(Limits, Limits(**wrong), where="f")
    contract = Contract("mission-validator-script", validator_command="x")
    assert validated(Contract, contract, where="f") == contract


def test_a_value_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(MissionInvalid, match="JSON cannot represent"):
        validated(Sample, {"name": object()}, where="f")


def test_a_long_value_is_shown_short() -> None:
    with pytest.raises(MissionInvalid) as caught:
        validated(Sample, {"name": ["x" * 5000]}, where="f")
    assert len(caught.value.message) < 200
