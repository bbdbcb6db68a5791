"""A window of time is a range of the primary key, the dead and the waiting have indexes.

The queue here holds emails of 30 days; a search in the last one may read that day, not more.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from claim.plans import watched
from support.postgres import Connect, Server

DAYS = 30
A_DAY = 1000
EMAILS = DAYS * A_DAY
# One in a hundred is dead, one in two hundred was cancelled; a few of the last day wait.
FILL = """
    INSERT INTO email_queue
        (id, template_type, recipient_email, tenant_id, created_at, next_retry_at, status, ready,
         sent_at, dead_at, dead_reason, error_message, error_code)
    SELECT overlay(mailgres.first_id_of(k.at)::text
                   PLACING substr(gen_random_uuid()::text, 15) FROM 15)::uuid,
           'template ' || n % 50, 'user' || n % 5000 || '@example.com', 'tenant ' || n % 1000,
           k.at, k.at, k.status, k.status = 'pending' AND n % 2 = 0,
           CASE WHEN k.status = 'sent' THEN k.at END,
           CASE WHEN k.status = 'failed' THEN k.at END,
           CASE WHEN k.status = 'failed' THEN 'exhausted' END,
           CASE WHEN k.status = 'failed' THEN 'why' END,
           CASE WHEN k.status = 'failed' THEN 'code ' || n % 7 END
    FROM generate_series(1, {emails}) n
    CROSS JOIN LATERAL (
        SELECT now() - (n * interval '1 day' / {a_day}) AS at,
               CASE WHEN n % 100 = 0 THEN 'failed' WHEN n % 200 = 1 THEN 'cancelled'
                    WHEN n < {a_day} AND n % 30 < 2 THEN 'pending' ELSE 'sent' END AS status) k
"""
NOBODY = {
    "template": ["no template"],
    "tenant": ["no tenant"],
    "recipient": ["nobody@example.com"],
    "error_code": ["no code"],
    "provider": ["no provider"],
    "dead_reason": ["crashed"],
}
"""Filters that nothing passes: all of the window has to be looked at."""
STATES = (["failed"], ["sending"], ["pending"], ["pending", "failed", "sending"])
A_DAY_AGO = (datetime.now(UTC) - timedelta(days=1)).isoformat()
CALLS = (
    "SELECT mailgres.count_emails(%s, 50)",
    "SELECT count(*) FROM mailgres.find_emails(%s, NULL, 50, 'newest')",
    "SELECT count(*) FROM mailgres.find_emails(%s, NULL, 50, 'oldest')",
    "SELECT count(*) FROM mailgres.find_emails(%s, NULL, 50, 'retries')",
)


@pytest.fixture(scope="module")
def month(server: Server, template: str) -> Iterator[str]:
    with server.database(template) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER TABLE email_queue SET (autovacuum_enabled = false)")
            connection.execute(FILL.format(emails=EMAILS, a_day=A_DAY))
        yield url


@pytest.fixture(scope="module", params=["never analysed", "analysed"])
def known(month: str, request: pytest.FixtureRequest) -> str:
    """Yield the queue, never analysed or analysed."""
    if request.param == "analysed":
        with psycopg.connect(month, autocommit=True) as connection:
            connection.execute("ANALYZE")
    return month


def most_read(connection: psycopg.Connection, call: str, given: dict[str, Any]) -> int:
    """Return how many rows of the queue a step reads, at the most."""
    with watched(connection) as nodes:
        connection.execute(call, (Jsonb(given),))
    mine = [node for node in nodes if node.table == "email_queue"]
    assert mine, "its plans are seen"
    assert not any(node.kind == "Seq Scan" for node in mine), given
    return max(node.rows for node in mine)


@pytest.mark.parametrize("call", CALLS)
def test_a_window_reads_no_more_than_it_spans(known: str, connect: Connect, call: str) -> None:
    connection = connect(known)
    for key, value in NOBODY.items():
        given = {"since": A_DAY_AGO, key: value}
        assert most_read(connection, call, given) <= A_DAY + 50, given


@pytest.mark.parametrize("call", CALLS)
def test_unsettled_emails_are_found_by_an_index(known: str, connect: Connect, call: str) -> None:
    connection = connect(known)
    for status in STATES:
        given = {"status": status, "recipient": ["nobody@example.com"]}
        assert most_read(connection, call, given) <= EMAILS / 50, given


def test_the_dead_of_a_day_are_found_among_the_dead(known: str, connect: Connect) -> None:
    given = {"status": ["failed"], "since": A_DAY_AGO, "error_code": ["no code"]}
    for call in CALLS:
        assert most_read(connect(known), call, given) <= A_DAY / 50


def test_the_newest_emails_are_found_without_a_sort(month: str, connect: Connect) -> None:
    """Fifty out of a day: the key is read backwards until there are fifty."""
    connection = connect(month, autocommit=False)
    connection.execute("ANALYZE email_queue")
    assert most_read(connection, CALLS[1], {"since": A_DAY_AGO}) <= 51
    assert most_read(connection, CALLS[2], {"since": A_DAY_AGO}) <= 51
    assert most_read(connection, CALLS[1], {}) <= 51
