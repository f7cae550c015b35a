"""Whole outputs in files; what of them is shown."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.foundation.errors import StateUntrusted, UsageError
from omx_autoresearch.journal.layout import MissionFolder
from omx_autoresearch.journal.outputs import MASK, harmless, masked, output_path, read_output, trim_for_person

if TYPE_CHECKING:
    from pathlib import Path


def test_an_output_is_read_whole_byte_for_byte_and_bounded(tmp_path: Path) -> None:
    folder = MissionFolder(str(tmp_path / "mission"))
    data = b"\x00\x1b[31m\xff\xfe" * 100_000
    path = output_path(folder, "run-1")
    assert path == f"{tmp_path}/mission/outputs/run-1.txt"
    os.makedirs(folder.outputs_path)
    with open(path, "wb") as stream:
        stream.write(data)
    assert read_output(folder, "run-1") == data
    with pytest.raises(StateUntrusted, match="larger"):
        read_output(folder, "run-1", limit_bytes=10)
    with pytest.raises(FileNotFoundError):
        read_output(folder, "run-2")


@pytest.mark.parametrize("run_id", ["../x", "a/b", "", "..", "CON"])
def test_a_run_id_that_is_no_file_name_is_refused(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(UsageError, match="not the id of a run"):
        output_path(MissionFolder(str(tmp_path)), run_id)


@pytest.mark.case("HIO-12")
def test_control_characters_and_broken_utf_8_become_harmless() -> None:
    text = trim_for_person(b"\x00 \x1b[31mred\x1b[0m \xff\xfe half \xe2\x82", 1000)
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
    text = trim_for_person(data, limit)
    assert len(text) <= limit
    assert not [c for c in text if (ord(c) < 0x20 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0]
    text.encode("utf-8")


def test_head_and_tail_are_kept_and_the_size_is_said() -> None:
    data = b"first\n" + b"middle\n" * 100_000 + b"last\n"
    text = trim_for_person(data, 500)
    assert len(text) == 500
    assert text.startswith("first\n")
    assert text.endswith("last")
    assert f"[... cut: {len(data)} bytes in all ...]" in text
    assert trim_for_person(b"short\n", 500) == "short"


SECRETS = [
    ("API_KEY=abcdefg", "API_KEY=" + MASK),
    ("export AWS_SECRET_ACCESS_KEY = wJalrXUtnFEMI", "export AWS_SECRET_ACCESS_KEY = " + MASK),
    ('{"password": "hunter22 x"}', '{"password": "' + MASK + '"}'),
    ("auth-token: 'abc 123 x'", "auth-token: '" + MASK + "'"),
    ("Authorization: Bearer abcdefghijkl.mno", "Authorization: Bearer " + MASK),
    ("authorization: Basic dXNlcjpwYXNzd29yZA==", "authorization: Basic " + MASK),
    ("git clone https://me:s3cret@host/x", f"git clone https://me:{MASK}@host/x"),
    ("sk-ant-0123456789abcdefghij x", MASK + " x"),
    ("ghp_0123456789abcdefghij0123", MASK),
    ("AKIAABCDEFGHIJKLMNOP", MASK),
    ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abc-_", MASK),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\nok", MASK + "\nok"),
    ("-----BEGIN PRIVATE KEY-----\nMIIE\nabc", MASK),
    ("MIIE\nabc=\n-----END PRIVATE KEY-----\nok", MASK + "\nok"),
]


@pytest.mark.parametrize(("text", "shown"), SECRETS)
def test_what_looks_like_a_secret_is_masked(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert masked(shown) == shown
    assert MASK in trim_for_person(text.encode(), 1000)


@pytest.mark.parametrize(
    "text",
    ["max_token=4096", "tokens: 512 in all", "unexpected token: identifier", "Basic functionality works", "token=abc",
     "KeyError: 'name'", "see https://host:80/a@b", "monkey=bananas1", "a key: value123"],
)  # fmt: skip
def test_ordinary_output_stays_readable(text: str) -> None:
    assert masked(text) == text


def test_a_secret_is_masked_wherever_the_cut_falls() -> None:
    secret = "ghp_" + "abcdefghij" * 4
    for place in range(0, 60, 7):
        data = (b"x " * 3000)[: 5000 + place] + b" " + secret.encode() + b" " + b"y " * 50_000
        for limit in (100, 600, 700, 800, 5000, 20_000):
            assert "abcdefgh" not in trim_for_person(data, limit)
            assert "abcdefgh" not in trim_for_person(
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
        assert "efgh" not in trim_for_person(data, 400)
