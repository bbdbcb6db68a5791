"""Alerts cost little however large the queue is: they go by what was counted lately."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from claim.plans import watched
from janitor.notifier import MINUTE
from support.postgres import Connect, Server
from support.queue import Clock, Queue

FILL = """
    SET session_replication_role = replica;
    ALTER TABLE email_queue SET (autovacuum_enabled = false);
    INSERT INTO email_queue
        (template_type, recipient_email, tenant_id, status, sent_at, dead_at, dead_reason,
         error_message, next_retry_at, ready)
    SELECT 'welcome_user', 'ana@example.com', 't' || n % 100, s.status,
           CASE s.status WHEN 'sent' THEN now() END, CASE s.status WHEN 'failed' THEN now() END,
           CASE s.status WHEN 'failed' THEN 'permanent' END,
           CASE s.status WHEN 'failed' THEN 'no' END, now() + s.later, s.ready
    FROM generate_series(1, 20000) n,
         (VALUES ('pending', interval '-1 hour', true), ('pending', interval '1 hour', false),
                 ('sent', interval '0', false), ('failed', interval '0', false))
             s(status, later, ready);
"""
BIG = {"email_queue", "email_logs"}
MOST = 35_000
"""Entries read: two counts of 10,001, two short looks of 2,000, a step for each tenant."""


@pytest.fixture(scope="module")
def large(server: Server, template: str) -> Iterator[str]:
    with server.database(template) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(FILL)
        yield url


@pytest.mark.slow
@pytest.mark.parametrize("analysed", [False, True])
def test_the_queue_is_never_scanned(large: str, connect: Connect, *, analysed: bool) -> None:
    connection = connect(large)
    if analysed:
        connection.execute("ANALYZE")
    with watched(connection) as nodes:
        found = connection.execute("SELECT rule FROM email_alerts").fetchall()
    assert {rule for (rule,) in found} >= {"backlog", "no_processor"}
    scans = [node for node in nodes if node.kind == "Seq Scan" and node.table in BIG]
    assert [(node.query, node.table) for node in scans] == []
    assert sum(node.rows for node in nodes if node.table in BIG) <= MOST


def fire(queue: Queue) -> set[str]:
    return {row.rule for row in queue.rows("SELECT rule FROM email_alerts")}


def test_alerts_use_the_depth_snapshot_while_it_is_recent_and_complete(
    queue: Queue, clock: Clock
) -> None:
    """But not for long, nor if there was more than was counted: then the queue is looked at."""
    queue.enqueue()
    clock.forward(20 * MINUTE)
    queue.run("SELECT mailgres.measure_depth('0')")
    assert "no_processor" in fire(queue)
    queue.run("DELETE FROM email_queue")
    assert "no_processor" in fire(queue)
    queue.run("UPDATE mailgres.depth SET capped = true")
    assert "no_processor" not in fire(queue)
    queue.run("UPDATE mailgres.depth SET capped = false")
    assert "no_processor" in fire(queue)
    clock.forward(2 * MINUTE)
    assert "no_processor" not in fire(queue)
