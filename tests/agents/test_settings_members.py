from __future__ import annotations

import json

import pytest

from omx_autoresearch.agents.json_text import JsonTextFault, member, with_settings_member, without_member

PATH = ("servers", "ours")
TEXTS = [
    "{}",
    '{"a": 1.50}',
    '{\n  "servers": {\n    "mine": {"b": 1}\n  },\n  "z": []\n}\n',
    '{\r\n\t"servers": {\r\n\t\t"mine": 1\r\n\t}\r\n}',
]


@pytest.mark.requirement("INST-02")
@pytest.mark.parametrize("text", TEXTS)
def test_a_member_goes_in_beside_the_rest_and_out_again_to_the_very_bytes(text: str) -> None:
    there = with_settings_member(text, PATH, {"command": "x"}, comments=False)
    expected = json.loads(text)
    expected.setdefault("servers", {})["ours"] = {"command": "x"}
    assert json.loads(there) == expected
    assert member(there, PATH, comments=False) == {"command": "x"}
    assert with_settings_member(there, PATH, {"command": "x"}, comments=False) == there
    assert without_member(there, PATH, comments=False) == text


def test_an_older_value_is_replaced_where_it_stands() -> None:
    text = '{"servers": {"ours": 1, "mine": 2}}'
    assert with_settings_member(text, PATH, 3, comments=False) == '{"servers": {"ours": 3, "mine": 2}}'


def test_an_object_that_holds_something_else_stays() -> None:
    assert (
        without_member('{"servers": {"ours": 1, "mine": 2}}', PATH, comments=False)
        == '{"servers": {"mine": 2}}'
    )
    assert without_member('{"servers": 5}', PATH, comments=False) == '{"servers": 5}'
    assert without_member("", PATH, comments=False) == ""


@pytest.mark.parametrize("text", ['{"servers": 5}', "[]", "{"])
def test_what_has_another_shape_is_named_and_left(text: str) -> None:
    with pytest.raises(JsonTextFault):
        with_settings_member(text, PATH, 1, comments=False)
