"""A standby takes over while workers drain, or with less than the primary had."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psycopg
import pytest

from doubles import resend as resend_double
from doubles.resend import KEY, ResendDouble
from e2e.harness import FROM, accepted
from mailgres.settings import load
from mailgres.worker import open_worker
from support.postgres import GIVEN_URL
from support.program import Program
from support.queue import HOLD, Queue
from worker.harness import WorkerHarness, until
from worker.replicated import Pair, pair

EMAILS = 300
KNOWN = """
    SELECT id::text, provider, provider_message_id FROM email_queue WHERE sent_at IS NOT NULL
"""


@pytest.fixture
def servers(migrations: Path) -> Iterator[Pair]:
    if GIVEN_URL:
        pytest.skip("needs servers of its own")
    with pair(migrations) as both:
        yield both


@pytest.fixture
def resend() -> Iterator[ResendDouble]:
    with resend_double.serve(ResendDouble()) as double:
        yield double


def settings(url: str, double: ResendDouble) -> dict[str, str]:
    return {
        "DATABASE_URL": url,
        "MAILGRES_PROVIDERS": "resend",
        "MAILGRES_FROM_EMAIL": FROM,
        "MAILGRES_RESEND_API_KEY": KEY,
        "MAILGRES_RESEND_API_URL": double.url,
        "MAILGRES_LEASE": "3s",
        "MAILGRES_POLL_INTERVAL": "200ms",
        "MAILGRES_BATCH_SIZE": "10",
    }


def drain(url: str, double: ResendDouble) -> None:
    with open_worker(load(settings(url, double)), janitors=False) as worker:
        worker.drain()


def test_a_synchronous_failover_loses_nothing_and_doubles_nothing(
    servers: Pair, resend: ResendDouble, tmp_path: Path
) -> None:
    servers.make_synchronous()
    with psycopg.connect(servers.primary, autocommit=True) as conn:
        harness = WorkerHarness(conn, servers.url, tmp_path)
        harness.variables = settings(servers.url, resend)
        ids = {
            str(harness.enqueue(HOLD, f"user{n}@example.org", priority=1 + n % 9))
            for n in range(EMAILS)
        }
        with harness.script("worker") as one, harness.script("worker") as other:
            until(lambda: len(resend.accepted()) > EMAILS // 4, "a part has been sent")
            servers.kill_primary()
            servers.promote()
            with psycopg.connect(servers.url, autocommit=True) as survivor:
                queue = Queue(survivor)
                query = "SELECT count(*) FROM email_queue WHERE status IN ('pending', 'sending')"
                until(lambda: queue.value(query) == 0, "everything is settled")
                found = queue.rows("SELECT id::text, status FROM email_queue")
            assert one.alive()
            assert other.alive()
    assert {row.id for row in found} == ids, "no email is lost"
    assert {row.status for row in found} == {"sent"}
    assert accepted(resend) == Counter(ids), "no email is sent twice"


class Lost:
    """What happens before an asynchronous failover: emails are sent, and the standby knows less."""

    def __init__(self, servers: Pair, double: ResendDouble) -> None:
        with psycopg.connect(servers.primary, autocommit=True) as conn:
            queue = Queue(conn)
            drain(servers.primary, double)  # registers the provider
            self.alone = {str(queue.enqueue(HOLD, priority=1)) for _ in range(3)}
            self.batched = {str(queue.enqueue(HOLD)) for _ in range(4)}
            servers.catch_up()
            servers.cut_replication()
            self.since: datetime = queue.value("SELECT now()")
            self.gone = {str(queue.enqueue(HOLD, priority=1))}
            drain(servers.primary, double)
            self.known = queue.rows(KNOWN)
        assert accepted(double) == Counter(self.alone | self.batched | self.gone)
        servers.kill_primary()
        servers.promote()

    def write(self, path: Path) -> str:
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["id", "provider", "provider_message_id"])
            rows.writerows(self.known)
        return str(path)


def actions(found: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {one["id"]: one["action"] for one in found["emails"]}


def test_after_an_asynchronous_failover_recover_sends_nothing_twice(
    servers: Pair, resend: ResendDouble
) -> None:
    lost = Lost(servers, resend)
    mailgres = Program(servers.standby)
    since = ("recover", "--since", lost.since.isoformat())
    expected = dict.fromkeys(lost.alone, "key") | dict.fromkeys(lost.batched, "hold")
    assert actions(mailgres.json(*since, "--dry-run")) == expected
    assert "dry run" in mailgres(*since, "--dry-run")
    assert actions(mailgres.json(*since, "--yes")) == expected
    drain(servers.url, resend)
    with psycopg.connect(servers.url, autocommit=True) as conn:
        queue = Queue(conn)
        found = {str(row.id): row for row in queue.rows("SELECT * FROM email_queue")}
        assert {found[each].status for each in lost.alone} == {"sent"}
        assert {found[each].dead_reason for each in lost.batched} == {"uncertain"}
        with pytest.raises(psycopg.Error, match="may deliver it twice"):
            queue.run("SELECT retry_email(%s)", next(iter(lost.batched)))
    assert accepted(resend) == Counter(lost.alone | lost.batched | lost.gone)
    again = actions(mailgres.json(*since, "--yes"))
    assert set(again.values()) <= {"protected"}, "the second time there is nothing to do"


def test_what_an_asynchronous_failover_lost_is_settled_by_what_others_know(
    servers: Pair, resend: ResendDouble, tmp_path: Path
) -> None:
    lost = Lost(servers, resend)
    mailgres = Program(servers.standby)
    file = lost.write(tmp_path / "known.csv")
    since = ("recover", "--since", lost.since.isoformat(), "--known", file, "--yes")
    found = mailgres.json(*since)
    results = {one["id"]: one["result"] for one in found["known"]}
    settled = lost.alone | lost.batched
    assert results == dict.fromkeys(settled, "settled") | dict.fromkeys(lost.gone, "lost")
    assert found["emails"] == []
    drain(servers.url, resend)
    assert accepted(resend) == Counter(settled | lost.gone), "nothing is sent twice"


def test_an_asynchronous_failover_whose_workers_went_on_is_listed(
    servers: Pair, resend: ResendDouble
) -> None:
    """It was not quarantined in time: emails that may have been sent twice are listed."""
    lost = Lost(servers, resend)
    Queue(
        connection := psycopg.connect(servers.url, autocommit=True)
    ).reap()  # notices the failover
    connection.close()
    drain(servers.url, resend)
    twice = {each for each, count in accepted(resend).items() if count > 1}
    assert twice == lost.batched, "the keys of batches are lost"
    found = actions(
        Program(servers.standby).json("recover", "--since", lost.since.isoformat(), "--dry-run")
    )
    expected = dict.fromkeys(lost.alone, "protected") | dict.fromkeys(lost.batched, "repeated")
    assert found == expected


def test_a_promotion_delays_reaping_by_one_lease(servers: Pair) -> None:
    """The worker that holds the email may live, and reports first."""
    with psycopg.connect(servers.primary, autocommit=True) as conn:
        queue = Queue(conn)
        queue.enqueue()
        queue.claim("w", 1, "2 seconds")
        servers.catch_up()
        until(lambda: queue.value("SELECT max(lease_until) < now() FROM email_queue"), "it expired")
    with psycopg.connect(servers.standby) as standby:
        started = standby.execute("SELECT pg_postmaster_start_time()").fetchone()
    servers.kill_primary()
    servers.promote()
    with psycopg.connect(servers.url, autocommit=True) as conn:
        queue = Queue(conn)
        assert conn.execute("SELECT pg_postmaster_start_time()").fetchone() == started
        assert queue.reap() == 0
        until(lambda: queue.reap() == 1, "it is reaped after a lease")
        assert queue.value("SELECT server_since + interval '2 seconds' <= now() FROM mailgres.home")
