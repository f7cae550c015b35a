from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.agents import json_text

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
    added = json_text.with_member(text, json_text.parse(text, comments=False), "new", {"deep": [1]})
    assert json.loads(added) == {**json.loads(text), "new": {"deep": [1]}}
    root = json_text.parse(added, comments=False)
    removed = json_text.without_part(added, root, len(root.members) - 1)
    assert json.loads(removed) == json.loads(text)
    if json.loads(text):
        assert removed == text


def test_the_texts_own_indentation_and_line_ends_are_taken_up() -> None:
    text = '{\r\n\t"a": {\r\n\t\t"b": 1\r\n\t}\r\n}\r\n'
    added = json_text.with_member(text, json_text.parse(text, comments=False), "c", {"d": 2})
    assert added == '{\r\n\t"a": {\r\n\t\t"b": 1\r\n\t},\r\n\t"c": {\r\n\t\t"d": 2\r\n\t}\r\n}\r\n'


def test_comments_stay_where_they_are() -> None:
    text = '{\n  // first\n  "a": 1, // one, two\n  "b": 2 // last\n  /* end */\n}\n'
    root = json_text.parse(text, comments=True)
    added = json_text.with_member(text, root, "c", 3)
    assert added == '{\n  // first\n  "a": 1, // one, two\n  "b": 2, // last\n  /* end */\n  "c": 3\n}\n'
    removed = json_text.without_part(added, json_text.parse(added, comments=True), 0)
    assert removed == '{\n  // first\n  // one, two\n  "b": 2, // last\n  /* end */\n  "c": 3\n}\n'


def test_a_comment_is_a_fault_with_its_line_where_the_client_reads_none() -> None:
    with pytest.raises(json_text.JsonTextFault, match="comment") as caught:
        json_text.parse('{\n  "a": 1, // one\n  "b": 2\n}', comments=False)
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
    with pytest.raises(json_text.JsonTextFault) as caught:
        json_text.parse(text, comments=True)
    assert caught.value.line == line


def test_the_first_a_middle_and_the_last_item_can_be_taken_out() -> None:
    text = "[\n  1,\n  [2, 3],\n  4\n]"
    root = json_text.parse(text, comments=False)
    assert json_text.without_part(text, root, 0) == "[\n  [2, 3],\n  4\n]"
    assert json_text.without_part(text, root, 1) == "[\n  1,\n  4\n]"
    assert json_text.without_part(text, root, 2) == "[\n  1,\n  [2, 3]\n]"


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
    root = json_text.parse(text, comments=False)
    assert json_text.value_of(text, root) == value
    assert json.loads(json_text.with_member(text, root, "\0new", new)) == {**value, "\0new": new}
    if value:
        key = data.draw(st.sampled_from(sorted(value)))
        place = [name for name, _, _ in root.members].index(key)
        assert json.loads(json_text.without_part(text, root, place)) == {
            k: v for k, v in value.items() if k != key
        }
        assert json.loads(json_text.replaced(text, root.members[place][2], new)) == {**value, key: new}
