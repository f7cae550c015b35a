from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.agents import settings_text

STYLES = [
    '{\n  "a": 1,\n  "b": [1, 2]\n}\n',
    '{\r\n\t"a": 1,\r\n\t"b": [1, 2]\r\n}\r\n',
    '{"a":1,"b":[1,2]}',
    '{\n    "a": 1, "b": [\n        1,\n        2\n    ]\n}',
    '  {"a": 1.50e3, "b": []}\n\n',
    "{}",
    "{ }\n",
]


@pytest.mark.parametrize("text", STYLES)
def test_a_member_that_is_added_and_taken_away_leaves_no_trace(text: str) -> None:
    added = settings_text.with_value(text, ("new",), {"deep": [1]}, comments=False)
    assert json.loads(added) == {**json.loads(text), "new": {"deep": [1]}}
    removed = settings_text.without_value(added, ("new",), comments=False)
    assert json.loads(removed) == json.loads(text)
    if json.loads(text):
        assert removed == text


def test_the_texts_own_indentation_and_line_ends_are_taken_up() -> None:
    text = '{\r\n\t"a": {\r\n\t\t"b": 1\r\n\t}\r\n}\r\n'
    added = settings_text.with_value(text, ("c",), {"d": 2}, comments=False)
    assert added == '{\r\n\t"a": {\r\n\t\t"b": 1\r\n\t},\r\n\t"c": {\r\n\t\t"d": 2\r\n\t}\r\n}\r\n'


def test_comments_stay_where_they_are() -> None:
    text = '{\n  // first\n  "a": 1, // one, two\n  "b": 2 // last\n  /* end */\n}\n'
    added = settings_text.with_value(text, ("c",), 3, comments=True)
    assert added == '{\n  // first\n  "a": 1, // one, two\n  "b": 2, // last\n  /* end */\n  "c": 3\n}\n'
    removed = settings_text.without_value(added, ("a",), comments=True)
    assert removed == '{\n  // first\n  // one, two\n  "b": 2, // last\n  /* end */\n  "c": 3\n}\n'


def test_a_comment_is_a_fault_with_its_line_where_the_client_reads_none() -> None:
    with pytest.raises(settings_text.TextFault, match="comment") as caught:
        settings_text.parse('{\n  "a": 1, // one\n  "b": 2\n}', comments=False)
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("{", 1),
        ('{\n"a": 1,\n}', 3),
        ('{"a": 1}\n{"b": 2}', 2),
        ('{\n"a": 1\n"b": 2}', 3),
        ("{'a': 1}", 1),
        ('{\n"a": 1,\n"a": 2}', 3),
        ('{"a": nul}', 1),
        ('{"a": "x\n"}', 1),
        ("[" * 5000, 1),
    ],
)
def test_what_is_no_json_is_a_fault_with_its_line(text: str, line: int) -> None:
    with pytest.raises(settings_text.TextFault) as caught:
        settings_text.parse(text, comments=True)
    assert caught.value.line == line


def test_the_first_a_middle_and_the_last_item_can_be_taken_out() -> None:
    text = "[\n  1,\n  [2, 3],\n  4\n]"
    assert settings_text.without_value(text, (0,), comments=False) == "[\n  [2, 3],\n  4\n]"
    assert settings_text.without_value(text, (1,), comments=False) == "[\n  1,\n  4\n]"
    assert settings_text.without_value(text, (2,), comments=False) == "[\n  1,\n  [2, 3]\n]"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.sampled_from([None, 1, 4, "\t"]), JSON, st.data())
def test_an_edit_changes_the_one_value_and_nothing_else(
    value: dict[str, object], indent: int | str | None, new: object, data: st.DataObject
) -> None:
    text = json.dumps(value, indent=indent)
    assert settings_text.value_at(text, (), comments=False) == value
    added = settings_text.with_value(text, ("\0new",), new, comments=False)
    assert json.loads(added) == {**value, "\0new": new}
    if value:
        key = data.draw(st.sampled_from(sorted(value)))
        rest = {name: kept for name, kept in value.items() if name != key}
        assert json.loads(settings_text.without_value(text, (key,), comments=False)) == rest
        assert json.loads(settings_text.with_value(text, (key,), new, comments=False)) == {**value, key: new}


# --- a value at the end of a way

PATH = ("servers", "ours")
MEMBER_TEXTS = [
    "{}",
    '{"a": 1.50}',
    '{\n  "servers": {\n    "mine": {"b": 1}\n  },\n  "z": []\n}\n',
    '{\r\n\t"servers": {\r\n\t\t"mine": 1\r\n\t}\r\n}',
]


@pytest.mark.requirement("INST-02")
@pytest.mark.parametrize("text", MEMBER_TEXTS)
def test_a_member_goes_in_beside_the_rest_and_out_again_to_the_very_bytes(text: str) -> None:
    there = settings_text.with_value(text, PATH, {"command": "x"}, comments=False)
    expected = json.loads(text)
    expected.setdefault("servers", {})["ours"] = {"command": "x"}
    assert json.loads(there) == expected
    assert settings_text.value_at(there, PATH, comments=False) == {"command": "x"}
    assert settings_text.with_value(there, PATH, {"command": "x"}, comments=False) == there
    assert settings_text.without_value(there, PATH, comments=False) == text


def test_an_older_value_is_replaced_where_it_stands() -> None:
    text = '{"servers": {"ours": 1, "mine": 2}}'
    assert settings_text.with_value(text, PATH, 3, comments=False) == '{"servers": {"ours": 3, "mine": 2}}'


def test_an_object_that_holds_something_else_stays() -> None:
    assert (
        settings_text.without_value('{"servers": {"ours": 1, "mine": 2}}', PATH, comments=False)
        == '{"servers": {"mine": 2}}'
    )
    assert settings_text.without_value('{"servers": 5}', PATH, comments=False) == '{"servers": 5}'
    assert settings_text.without_value("", PATH, comments=False) == ""


@pytest.mark.parametrize("text", ['{"servers": 5}', "[]", "{"])
def test_what_has_another_shape_is_named_and_left(text: str) -> None:
    with pytest.raises(settings_text.TextFault):
        settings_text.with_value(text, PATH, 1, comments=False)
