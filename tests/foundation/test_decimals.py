"""A number has one spelling; every other text says why it is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.foundation.metric_texts import LARGEST, LENGTH_LIMIT, SMALLEST, decimal_of


@pytest.mark.case("MET-01")
@pytest.mark.requirement("METRIC-02")
@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("-7.539458549707136e-05", -7.539458549707136e-05),
        ("4.2E8", 4.2e8),
        ("1e+3", 1000.0),
        ("+5", 5.0),
        ("007", 7.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("0", 0.0),
        ("-0.0", 0.0),
        ("0e-999", 0.0),
        ("1e-150", 1e-150),
        ("-1e150", -1e150),
        (" \t3 ", 3.0),
    ],
)
def test_a_decimal_is_read_exactly(raw: str, value: float) -> None:
    number = decimal_of(raw)
    assert (number.value, number.why) == (value, "")
    assert str(number.value) != "-0.0"


@given(
    st.one_of(st.just(0.0), st.floats(SMALLEST, LARGEST), st.floats(-LARGEST, -SMALLEST)),
)
def test_whatever_python_prints_of_a_finite_number_comes_back(value: float) -> None:
    assert decimal_of(repr(value)).value == value


@pytest.mark.case("MET-06")
@pytest.mark.requirement("METRIC-02")
@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("", "empty"),
        ("15,00", "comma"),
        ("1,234.5", "comma"),
        ("1.234,5", "comma"),
        ("1_000", "underscore"),
        ("١٢", "digits other than 0-9"),
        ("\uff11\uff12", "digits other than 0-9"),
        ("12ms", "'ms'"),
        ("50%", "'%'"),
        ("1.5 s", "'s'"),
        ("1 2", "'2'"),
        ("1.2.3", "'.3'"),
        ("0x10", "hexadecimal"),
        ("0x1p3", "hexadecimal"),
        ("0b11", "'b11'"),
        ("True", "boolean"),
        ("null", "boolean"),
        ("1e", "'e'"),
        ("--1", "not a decimal"),
        ("\u22121", "not a decimal"),
        ("fast", "not a decimal"),
        ("1e-400", "tell from 0"),
        ("-9e-151", "tell from 0"),
        ("1" * (LENGTH_LIMIT + 1), "characters"),
    ],
)
def test_every_other_spelling_is_an_error_that_says_why(raw: str, why: str) -> None:
    number = decimal_of(raw)
    assert (number.value, number.is_finite) == (None, True)
    assert why in number.why


@pytest.mark.case("MET-03")
@pytest.mark.parametrize(
    "raw", ["nan", "NaN", "-nan", "nan(0x8)", "inf", "-Infinity", "+INF", "1e400", "-1e400", "1e151"]
)
def test_a_number_that_is_none_is_told_apart(raw: str) -> None:
    number = decimal_of(raw)
    assert (number.value, number.is_finite) == (None, False)
    assert number.why
