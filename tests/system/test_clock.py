"""The clock and the form in which times stand on disk."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.system.clock import SystemClock, format_time, parse_time

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)


def test_the_system_clock_is_aware_and_in_utc() -> None:
    assert SystemClock().now().utcoffset() == timedelta(0)


def test_the_monotonic_clock_never_goes_back() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()


def test_no_environment_variable_moves_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    before = datetime.now(UTC)
    for name in ("TZ", "FAKETIME", "SOURCE_DATE_EPOCH", "OMX_AUTORESEARCH_NOW"):
        monkeypatch.setenv(name, "1")
    assert before <= SystemClock().now() <= datetime.now(UTC)


def test_a_time_is_written_with_microseconds_and_z() -> None:
    assert format_time(MOMENT) == "2026-01-02T03:04:05.123456Z"
    assert format_time(MOMENT.replace(microsecond=0)) == "2026-01-02T03:04:05.000000Z"


def test_another_zone_is_written_in_utc() -> None:
    assert format_time(MOMENT.astimezone(timezone(timedelta(hours=5)))) == "2026-01-02T03:04:05.123456Z"


def test_a_naive_time_is_not_written() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        format_time(MOMENT.replace(tzinfo=None))


def test_an_offset_is_read_into_utc() -> None:
    moment = parse_time("2026-01-02T05:04:05.123456+02:00")
    assert moment == MOMENT
    assert moment.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "text",
    ["", "today", "2026-01-02", "2026-01-02T03:04:05", "2026-13-02T03:04:05Z", "0001-01-01T00:00:00+05:00"],
)
def test_what_is_no_aware_time_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"isoformat|no time zone|month|outside"):
        parse_time(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_every_time_survives_the_disk(moment: datetime) -> None:
    assert parse_time(format_time(moment)) == moment
