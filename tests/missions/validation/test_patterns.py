"""A pattern is searched for, and no pattern takes longer than its time."""

from __future__ import annotations

import pytest

from omx_autoresearch.missions.validation.checks import is_found


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^## Findings$", "# Report\n## Findings\n", True),
        ("^## Findings$", "# Report\n ## Findings\n", False),
        ("", "anything", True),
        ("ergebnis: größer", "Ergebnis: größer\nergebnis: größer", True),
        ("結果", "これが結果です", True),
    ],
)
def test_a_pattern_is_found_where_it_stands(pattern: str, text: str, found: bool) -> None:
    assert is_found(pattern, text.encode()) is found


@pytest.mark.requirement("EVID-05")
def test_a_pattern_that_would_search_for_ever_has_no_answer() -> None:
    assert is_found("(a+)+$", b"a" * 64 + b"b", timeout_seconds=0.5) is None


def test_a_text_that_is_no_utf_8_is_searched_all_the_same() -> None:
    assert is_found("end$", b"\xff\xfe\n\0 the end") is True


def test_what_is_no_pattern_has_no_answer() -> None:
    assert is_found("(", b"(") is None
