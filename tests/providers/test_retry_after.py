"""Retry-After comes in two forms, and from anybody."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailgres.providers.retry_after import LONGEST, retry_after, server_time

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("1", 1),
        (" 30 ", 30),
        ("1.5", 1.5),
        ("3600", 3600),
        ("Mon, 16 Nov 2026 12:00:30 GMT", 30),
        ("Mon, 16 Nov 2026 12:00:30 -0000", 30),
        ("Mon, 16 Nov 2026 13:00:30 +0100", 30),
        ("Monday, 16-Nov-26 12:00:30 GMT", 30),
        ("Mon, 16 Nov 2026 11:00:00 GMT", 0),
        ("999999999", LONGEST.total_seconds()),
        ("Mon, 16 Nov 2099 11:00:00 GMT", LONGEST.total_seconds()),
    ],
)
def test_retry_after_may_be_seconds_or_a_date(value: str, seconds: float) -> None:
    assert retry_after(value, NOW) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [None, "", " ", "-1", "soon", "1e9", "٣", "1,5", "99999999999999999999", "Mon, 99 Foo 2026"],
)
def test_a_malformed_retry_after_is_ignored(value: str | None) -> None:
    assert retry_after(value, NOW) is None


def test_retry_after_is_bounded_by_what_the_caller_gives() -> None:
    assert retry_after("3600", NOW, timedelta(seconds=5)) == timedelta(seconds=5)


@given(value=st.text())
def test_reading_retry_after_never_raises_and_is_bounded(value: str) -> None:
    wait = retry_after(value, NOW)
    assert wait is None or timedelta(0) <= wait <= LONGEST


@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_dates_of_retry_after_are_read_in_every_format(date: datetime) -> None:
    wait = retry_after(format_datetime(date, usegmt=True), NOW)
    whole = date.replace(microsecond=0)
    assert wait == min(max(whole - NOW, timedelta(0)), LONGEST)


@given(value=st.text())
def test_a_date_that_makes_no_sense_is_not_believed(value: str) -> None:
    assert server_time({"date": value}, NOW).tzinfo is not None
    assert server_time({}, NOW) == NOW
