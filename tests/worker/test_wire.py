"""Between a worker and the database go durations, never the time of another clock."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from doubles.resend import KEY, ResendDouble, serve
from doubles.resend_parts import Fault
from mailgres import model
from mailgres.providers.resend.provider import ResendProvider
from mailgres.providers.retry_after import retry_after, server_time
from providers.mails import mail

THEIRS = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def test_no_time_of_a_workers_clock_is_in_a_result() -> None:
    assert [f.name for f in fields(model.Result) if "timedelta" in str(f.type)] == ["retry_after"]
    assert not [f.name for f in fields(model.Result) if "datetime" in str(f.type)]


@pytest.mark.parametrize("wrong", [timedelta(days=-400), timedelta(0), timedelta(days=400)])
def test_a_date_to_come_back_is_read_by_the_clock_that_wrote_it(wrong: timedelta) -> None:
    """The answer says what time it is there."""
    headers = {
        "retry-after": format_datetime(THEIRS + timedelta(seconds=30), usegmt=True),
        "date": format_datetime(THEIRS, usegmt=True),
    }
    now = server_time(headers, THEIRS + wrong)
    assert retry_after(headers["retry-after"], now) == timedelta(seconds=30)


@pytest.mark.parametrize("wrong", [timedelta(days=-400), timedelta(0), timedelta(days=400)])
def test_a_worker_with_a_wrong_clock_waits_as_long_as_it_was_asked_to(wrong: timedelta) -> None:
    with serve(ResendDouble()) as double:
        provider = ResendProvider(KEY, double.url, now=lambda: datetime.now(UTC) + wrong)
        theirs = {
            "retry-after": format_datetime(THEIRS + timedelta(minutes=5), usegmt=True),
            "date": format_datetime(THEIRS, usegmt=True),
        }
        double.add_faults(Fault(status=429, name="rate_limit_exceeded", headers=theirs))
        (result,) = provider.send([mail()])
        assert result.retry_after == timedelta(minutes=5)
        double.add_faults(Fault(status=429, name="daily_quota_exceeded", headers=theirs))
        (result,) = provider.send([mail()])
        assert result.retry_after == timedelta(minutes=5)
        double.add_faults(
            Fault(status=429, name="monthly_quota_exceeded", headers={"date": theirs["date"]})
        )
        (result,) = provider.send([mail()])
        assert result.retry_after == datetime(2026, 12, 1, tzinfo=UTC) - THEIRS
        provider.close()
