"""Frontmatter comes back as it was written, and says by file and line what it cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.foundation.errors import MissionInvalid
from omx_autoresearch.missions.intake import dump, parse


def read(text: str | bytes) -> dict[str, Any]:
    return parse(text if isinstance(text, bytes) else text.encode(), where="sandbox.md").values


def fenced(text: str) -> str:
    return f"---\n{text}---\n\nBody: with\n---\nmore\n"


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
SCALARS = (
    TEXTS | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)
)


@pytest.mark.requirement("LIFE-10")
@given(st.dictionaries(TEXTS.filter(bool), SCALARS | st.lists(TEXTS) | st.dictionaries(TEXTS, SCALARS)))
def test_whatever_is_written_is_read_back_unchanged(values: dict[str, Any]) -> None:
    again = read(fenced(dump(values)))
    assert again == values
    assert [type(value) for value in again.values()] == [type(value) for value in values.values()]


@pytest.mark.requirement("LIFE-10")
@pytest.mark.parametrize(
    "command",
    [
        "./check.sh 'a' \"b\" # c", "sort <in >out: x", "cat <<'E'\n  x: 1\n# no comment\nE\n",
        "echo {a: 1} [2] & *x !y",
        "printf '\\t\\n' | od", "größe=1 ./prüfe.sh ✓", "---", "a\n---\nb", "- x", "yes", "12:30", "2026-01-01", "~",
        "1e3",
        "0x1f", "=", "<<", "tab\tend", " leading", "trailing ", "a\u2028b", "\ufeffx",
    ],
)  # fmt: skip
def test_a_command_survives(command: str) -> None:
    assert read(fenced(dump({"validator_command": command}))) == {"validator_command": command}


def test_a_person_may_write_block_scalars_and_lists_either_way() -> None:
    text = "a: |\n  one # not a comment\n  two\nb: >-\n  folded\n  text\nc: [x, 'y: z']\nd:\n- 1\n- no\n# comment\n"
    assert read(fenced(text)) == {
        "a": "one # not a comment\ntwo\n", "b": "folded text", "c": ["x", "y: z"], "d": [1, "no"],
    }  # fmt: skip


@pytest.mark.case("HIO-09")
def test_a_byte_order_mark_and_windows_line_ends_are_taken() -> None:
    assert read(b"\xef\xbb\xbf---\r\na: x\r\nb: |\r\n  y\r\n---\r\nBody\r\n") == {"a": "x", "b": "y\n"}


@pytest.mark.case("HIO-09")
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_another_encoding_is_named_with_the_file(encoding: str) -> None:
    with pytest.raises(MissionInvalid, match=r"sandbox\.md: it is encoded in UTF-(16|32); save it as UTF-8"):
        read("---\na: x\n---\n".encode(encoding))


@pytest.mark.case("ART-01")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("---\na: 1\nb: 2\na: 3\n---\n", "line 4: the key 'a' is given twice"),
        ("---\nl:\n  x: 1\n  'x': 2\n---\n", "line 4: the key 'x' is given twice"),
        ("---\na: &x 1\nb: *x\n---\n", "alias"),
        ("---\na: !!python/object:os.system x\n---\n", "line 2: the tag"),
        ("---\na: !x y\n---\n", "line 2: the tag !x is not allowed"),
        ("---\n? [a]\n: b\n---\n", "a key must be plain text"),
        ("---\na: [1\n---\n", "line 3: expected"),
        ("---\na: 'x\n---\n", "while scanning|found unexpected end"),
        ("---\n- a\n---\n", "must be a mapping"),
        ("---\ntext\n---\n", "must be a mapping"),
        ("---\na: x\n", "no frontmatter"),
        ("", "no frontmatter"),
        ("a: x\n", "no frontmatter"),
        ("---\nb: 1\na: \x07\n---\n", "line 3: the character U\\+0007"),
        ("---\na: " + "[" * 5000 + "\n---\n", "nested too deeply"),
    ],
)
def test_what_cannot_be_is_said_with_the_line(text: str, said: str) -> None:
    with pytest.raises(MissionInvalid, match=rf"sandbox\.md.*({said})"):
        read(text)


def test_bytes_that_are_no_utf8_are_named_by_line() -> None:
    with pytest.raises(MissionInvalid, match="line 3: byte 9 is not UTF-8"):
        read(b"---\na: x\n\xff\n---\n")


def test_an_empty_frontmatter_is_an_empty_mapping() -> None:
    assert read("---\n---\n") == {}


def test_the_line_of_every_field_is_known() -> None:
    page = parse(b"---\na: 1\nlimits:\n  x: 2\nl:\n  - p\n  - q\n---\n", where="f")
    assert page.lines["a",] == 2
    assert page.lines["limits", "x"] == 4
    assert page.lines["l", 1] == 7
