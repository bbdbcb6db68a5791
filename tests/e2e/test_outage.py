"""Hours and days of a quiet project, by the moved clock: outages, a wrong key, a small quota."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from doubles import ses as ses_double
from doubles.resend import KEY, ResendDouble
from doubles.ses import ACCESS_KEY, ACCOUNT, SEND, Fault, SesDouble
from doubles.smtp import SmtpDouble, serve
from e2e.harness import SECOND, E2eHarness, accepted, once_each
from support.queue import HOLD

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NOBODY = "127.0.0.1:9"
NEXT = """
    SELECT min(t) FROM (
        SELECT next_retry_at FROM email_queue WHERE status = 'pending'
        UNION ALL SELECT limited_until FROM mailgres.providers
        UNION ALL SELECT circuit_until FROM mailgres.providers WHERE circuit = 'open'
    ) AS x(t) WHERE t > %s
"""


@dataclass
class Site:
    """A provider that can be away, or take our credentials for wrong; and its double."""

    kind: str
    double: Any
    away: Callable[[], None]
    back: Callable[[], None]
    lock_out: Callable[[], None]
    let_in: Callable[[], None]


@contextmanager
def resend_site(harness: E2eHarness, request: pytest.FixtureRequest) -> Iterator[Site]:
    double: ResendDouble = request.getfixturevalue("resend")
    yield Site(
        "resend",
        double,
        away=lambda: harness.set(resend_api_url=f"http://{NOBODY}"),
        back=lambda: harness.use_resend(double),
        lock_out=lambda: double.set(keys=["re_other"]),
        let_in=lambda: double.set(keys=[KEY]),
    )


@contextmanager
def ses_site(_house: E2eHarness, request: pytest.FixtureRequest) -> Iterator[Site]:
    double: SesDouble = request.getfixturevalue("ses")
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    where = next(name for name in ses_double.environ("") if "ENDPOINT" in name)
    yield Site(
        "ses",
        double,
        away=lambda: patch.setenv(where, f"http://{NOBODY}"),
        back=lambda: patch.setenv(where, double.url),
        lock_out=lambda: double.set(keys=("AKIAOTHER",)),
        let_in=lambda: double.set(keys=(ACCESS_KEY,)),
    )


@contextmanager
def smtp_site(harness: E2eHarness, _request: pytest.FixtureRequest) -> Iterator[Site]:
    with serve(SmtpDouble(user="shop", password="right")) as double:
        harness.use_smtp(double)
        yield Site(
            "smtp",
            double,
            away=lambda: harness.set(smtp_url=f"smtp://{NOBODY}?tls=none"),
            back=lambda: harness.use_smtp(double),
            lock_out=lambda: harness.set(smtp_url=double.url.replace("right", "wr0ng")),
            let_in=lambda: harness.use_smtp(double),
        )


SITES = {"resend": resend_site, "ses": ses_site, "smtp": smtp_site}


@pytest.fixture(params=SITES)
def site(harness: E2eHarness, request: pytest.FixtureRequest) -> Iterator[Site]:
    with SITES[request.param](harness, request) as found:
        yield found


def live(harness: E2eHarness, lasts: timedelta) -> list[Any]:
    """One email every five minutes; a worker looks whenever something may be due."""
    emails, ends = [], harness.clock.now + lasts
    while harness.clock.now < ends:
        emails.append(harness.enqueue())
        harness.work()
        following = harness.clock.now + 5 * MINUTE
        while (due := harness.value(NEXT, harness.clock.now)) is not None and due < following:
            harness.clock.set(due)
            harness.work()
        harness.clock.set(following)
    return emails


def test_emails_survive_a_quiet_outage_of_two_hours(harness: E2eHarness, site: Site) -> None:
    """At most the first email dies; one probe is sent first, the rest within the rate limit."""
    site.away()
    emails = live(harness, 2 * HOUR)
    before = Counter(harness.statuses())
    assert before["failed"] <= 1
    assert before["failed"] + before["pending"] == len(emails) == 24
    assert harness.provider(site.kind).circuit == "open"
    assert harness.value("SELECT count(*) FROM email_logs WHERE worker IS NOT NULL") <= 15

    site.back()
    harness.run("SELECT mailgres.limit_provider(%s, 5 / 60.0, NULL, NULL)", site.kind)
    harness.clock.set(harness.provider(site.kind).circuit_until)
    for sent in range(1, 4):  # the probe, then one every twelve seconds
        harness.work()
        assert accepted(site.double).total() == sent
        harness.clock.forward(12 * SECOND)
    assert harness.events_of(site.kind)[-2:] == ["CircuitBreakerHalfOpen", "CircuitBreakerClosed"]
    harness.run("SELECT mailgres.limit_provider(%s, NULL, NULL, NULL)", site.kind)
    harness.work_until_settled()
    alive = [email for email in emails if harness.status_of(email) == "sent"]
    assert len(alive) == before["pending"]
    assert accepted(site.double) == once_each(alive)


def test_an_outage_of_ses_holds_uncertain_emails_and_spends_no_other(
    harness: E2eHarness, ses: SesDouble
) -> None:
    """SES has no keys: what opens the circuit is held, and no email is spent on trying again."""
    down = [Fault("InternalFailure", "away", 500, times=-1, path=path) for path in (SEND, ACCOUNT)]
    ses.add_faults(*down)
    emails = live(harness, 2 * HOUR)
    threshold = harness.provider("ses").failure_threshold
    assert Counter(harness.statuses()) == {"failed": threshold, "pending": len(emails) - threshold}
    calls = ses.summary()["calls"]
    assert calls[SEND] == threshold
    assert 4 <= harness.events_of("ses").count("CircuitBreakerHalfOpen") <= 8  # growing pauses
    assert harness.provider("ses").circuit == "open"
    assert {(row.status, row.retries) for row in harness.rows("SELECT * FROM email_queue")} == {
        ("failed", 0),
        ("pending", 0),
    }

    ses.clear_faults()
    harness.clock.set(harness.provider("ses").circuit_until)
    harness.work_until_settled()
    assert Counter(harness.statuses()) == {"failed": threshold, "sent": len(emails) - threshold}
    assert accepted(ses) == once_each([e for e in emails if harness.status_of(e) == "sent"])


def test_a_wrong_key_for_an_hour_kills_no_email(harness: E2eHarness, site: Site) -> None:
    """No row is harmed; the circuit says why, and all are sent when the key is fixed."""
    site.lock_out()
    emails = live(harness, HOUR)
    provider = harness.provider(site.kind)
    assert (provider.circuit, bool(provider.circuit_reason)) == ("open", True)
    assert {(status, retries) for status, retries, _ in harness.state()} == {("pending", 0)}
    site.let_in()
    harness.work_until_settled()
    assert harness.state() == {("sent", 0, None): len(emails)}
    assert accepted(site.double) == once_each(emails)


@pytest.mark.parametrize("learned", [False, True], ids=["set by hand", "learned"])
def test_a_thousand_emails_at_a_hundred_a_day_are_all_sent(
    harness: E2eHarness, resend: ResendDouble, *, learned: bool
) -> None:
    """Ten days: none dies, none spends a retry, and the ETA is right once the quota is known."""
    harness.work()
    if not learned:
        harness.run("SELECT mailgres.limit_provider('resend', NULL, 100, NULL)")
    resend.set(daily=100, usage=learned)
    mails = Jsonb([{"template_type": HOLD, "recipient_email": "ana@example.org"}] * 1000)
    harness.run("SELECT count(*) FROM enqueue_emails(%s)", mails)
    last_day = datetime(2027, 3, 19, tzinfo=UTC)
    for day in range(10):
        now = datetime(2027, 3, 10, tzinfo=UTC) + day * timedelta(days=1, minutes=1)
        harness.clock.set(now)
        resend.set(ahead=(now - datetime.now(UTC)).total_seconds())
        if day or not learned:
            (eta,) = harness.rows("SELECT * FROM mailgres.eta()")
            assert eta.emails == 1000 - 100 * day
            assert day == 9 or (eta.why == "quota" and last_day <= eta.at < last_day + HOUR)
        harness.work()
        assert len(resend.accepted()) == 100 * (day + 1)
    assert harness.state() == {("sent", 0, None): 1000}
