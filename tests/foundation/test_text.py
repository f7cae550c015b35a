"""Text from outside, made harmless."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.foundation.text import (
    REDACTED,
    count_of,
    duration_text,
    harmless,
    head_and_tail,
    one_line,
    quoted,
    redacted,
)


@pytest.mark.case("HIO-12")
def test_control_characters_and_broken_utf_8_become_harmless() -> None:
    text = head_and_tail(b"\x00 \x1b[31mred\x1b[0m \xff\xfe half \xe2\x82", 1000)
    assert text == "\\x00 red \ufffd\ufffd half \ufffd"
    json.loads(json.dumps(text, ensure_ascii=False).encode("utf-8").decode("utf-8"))


@pytest.mark.case("HIO-12")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07a", "a"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never closed\nb", "\nb"),
        ("\x1bP1$r\x1b\\a\x1b(Bb\x1b7c\x9b31md", "abcd"),
        ("\x1b[2J\x1b[1;31;40ma\x1b[K", "a"),
        ("a\x1b", "a"),
        ("a\r\nb\rc\td", "a\nb\nc\td"),
        ("\u202eevil\u200b\ufeff", "\\u202eevil\\u200b\\ufeff"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("grün 修 🚀", "grün 修 🚀"),
    ],
)
def test_terminal_sequences_go_and_hidden_characters_are_shown_by_their_code(text: str, shown: str) -> None:
    assert harmless(text) == shown


@pytest.mark.case("HIO-12")
@given(st.binary(max_size=300), st.integers(100, 400))
def test_any_bytes_become_text_of_bounded_length_without_control_characters(data: bytes, limit: int) -> None:
    text = head_and_tail(data, limit)
    assert len(text) <= limit
    assert not [c for c in text if (ord(c) < 0x20 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0]
    text.encode("utf-8")


def test_head_and_tail_are_kept_and_the_size_is_said() -> None:
    data = b"first\n" + b"middle\n" * 100_000 + b"last\n"
    text = head_and_tail(data, 500)
    assert len(text) == 500
    assert text.startswith("first\n")
    assert text.endswith("last")
    assert f"[... cut: {len(data)} bytes in all ...]" in text
    assert head_and_tail(b"short\n", 500) == "short"


SECRETS = [
    ("API_KEY=abcdefg", "API_KEY=" + REDACTED),
    ("export AWS_SECRET_ACCESS_KEY = wJalrXUtnFEMI", "export AWS_SECRET_ACCESS_KEY = " + REDACTED),
    ('{"password": "hunter22 x"}', '{"password": "' + REDACTED + '"}'),
    ("auth-token: 'abc 123 x'", "auth-token: '" + REDACTED + "'"),
    ("Authorization: Bearer abcdefghijkl.mno", "Authorization: Bearer " + REDACTED),
    ("authorization: Basic dXNlcjpwYXNzd29yZA==", "authorization: Basic " + REDACTED),
    ("git clone https://me:s3cret@host/x", f"git clone https://me:{REDACTED}@host/x"),
    ("sk-ant-0123456789abcdefghij x", REDACTED + " x"),
    ("ghp_0123456789abcdefghij0123", REDACTED),
    ("AKIAABCDEFGHIJKLMNOP", REDACTED),
    ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abc-_", REDACTED),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\nok", REDACTED + "\nok"),
    ("-----BEGIN PRIVATE KEY-----\nMIIE\nabc", REDACTED),
    ("MIIE\nabc=\n-----END PRIVATE KEY-----\nok", REDACTED + "\nok"),
]


@pytest.mark.parametrize(("text", "shown"), SECRETS)
def test_what_looks_like_a_secret_is_redacted(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted(shown) == shown
    assert REDACTED in head_and_tail(text.encode(), 1000)


@pytest.mark.parametrize(
    "text",
    ["max_token=4096", "tokens: 512 in all", "unexpected token: identifier", "Basic functionality works", "token=abc",
     "KeyError: 'name'", "see https://host:80/a@b", "monkey=bananas1", "a key: value123"],
)  # fmt: skip
def test_ordinary_output_stays_readable(text: str) -> None:
    assert redacted(text) == text


def test_a_secret_is_redacted_wherever_the_cut_falls() -> None:
    secret = "ghp_" + "abcdefghij" * 4
    for place in range(0, 60, 7):
        data = (b"x " * 3000)[: 5000 + place] + b" " + secret.encode() + b" " + b"y " * 50_000
        for limit in (100, 600, 700, 800, 5000, 20_000):
            assert "abcdefgh" not in head_and_tail(data, limit)
            assert "abcdefgh" not in head_and_tail(
                data[::-1].replace(secret[::-1].encode(), secret.encode()), limit
            )


@pytest.mark.parametrize("separator", [b" ", b"\n"])
def test_a_secret_at_the_edge_of_what_is_looked_at_is_not_shown_in_half(separator: bytes) -> None:
    colour = b"\x1b[38;2;255;100;100m"  # nothing of it is shown, so what is shown reaches to the edge
    secret = b"ghp_" + b"abcdefghij" * 4
    for shift in range(0, 60, 5):
        filler = colour * 300 + b"." * shift
        middle = separator + secret + separator
        data = filler[-4096 + 20 :] + middle + filler * 3 + middle + filler[: 4096 - 20]
        assert "efgh" not in head_and_tail(data, 400)


@pytest.mark.parametrize(
    ("text", "line"), [("abcd", "abcd"), ("abcde", "abc…"), (" a\n b ", "a b"), ("", "")]
)
def test_a_line_is_cut_only_where_it_is_too_long(text: str, line: str) -> None:
    assert one_line(text, 4) == line


@given(st.text(), st.integers(2, 50))
def test_one_line_is_one_printable_line_of_its_length(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert line.isprintable()
    assert line == line.strip()


def test_a_foreign_text_is_shown_whole_enough_and_harmless() -> None:
    assert quoted("a\x1b[31m\u202eb") == "'a\\x1b[31m\\u202eb'"
    assert quoted("x" * 100) == f"'{'x' * 80}...'"


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.2, "4.2 s"), (125.0, "2 min 05 s"), (3661.0, "1 h 01 min"), (0.0, "0.0 s")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_count_agrees_with_its_noun() -> None:
    assert [count_of(number, "pair") for number in (0, 1, 2)] == ["0 pairs", "1 pair", "2 pairs"]
    assert count_of(2, "entry", "entries") == "2 entries"
