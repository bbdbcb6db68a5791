"""What leaves the queue is found by an index, however large the queue is."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from claim.plans import watched
from janitor.harness import DAY
from mailgres.testing import travel
from support.postgres import Connect, Server

# As many of each; all with two entries in the log, a tenth with an attachment.
FILL = """
    SET session_replication_role = replica;
    ALTER TABLE email_queue SET (autovacuum_enabled = false);
    ALTER TABLE email_logs SET (autovacuum_enabled = false);
    INSERT INTO email_queue
        (template_type, recipient_email, status, sent_at, dead_at, dead_reason, error_message,
         next_retry_at)
    SELECT 'welcome_user', 'ana@example.com', s.status,
           CASE s.status WHEN 'sent' THEN now() END, CASE s.status WHEN 'failed' THEN now() END,
           CASE s.status WHEN 'failed' THEN 'permanent' END,
           CASE s.status WHEN 'failed' THEN 'no' END, now() + interval '1000 days'
    FROM generate_series(1, 25000) n,
         (VALUES ('pending'), ('sent'), ('failed'), ('cancelled')) s(status);
    INSERT INTO email_logs (queue_id, event, to_status, tenant_id, template_type)
    SELECT id, 'x', status, 'default', 'welcome_user' FROM email_queue, generate_series(1, 2);
    INSERT INTO mailgres.attachments (queue_id, position, filename, content)
    SELECT id, 1, 'a', 'a' FROM email_queue WHERE random() < 0.1;
    INSERT INTO mailgres.captured (key, queue_id, message) SELECT id, id, '{}' FROM email_queue;
    INSERT INTO mailgres.dead_letters
        (queue_id, tenant_id, template_type, dead_reason, dead_at, expires_at, email, log)
    SELECT gen_random_uuid(), 'default', 'x', 'permanent', now(), now() + n * interval '1 minute',
           '{}', '[]'
    FROM generate_series(1, 100000) n;
"""
CALLS = {
    "archive_dead_letters": 200,
    "purge_archive": 500,
    "delete_expired_emails": 1000,
    "promote": 1000,
    "expire": 1000,
    "reap": 500,
    "notify": 10_000,
}
SEQUENTIAL = """
    SELECT relname, seq_scan FROM pg_stat_xact_user_tables
    WHERE relname IN ('email_queue', 'email_logs', 'dead_letters', 'attachments', 'captured')
      AND seq_scan > 0
"""
BIG = {"email_queue", "email_logs", "dead_letters", "attachments", "captured"}


@pytest.fixture(scope="module")
def large(server: Server, template: str) -> Iterator[str]:
    """100,000 emails and as many in the archive, a hundred days later."""
    with server.database(template) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(FILL)
            travel(connection, 100 * DAY)
        yield url


@pytest.fixture(scope="module", params=["never analysed", "analysed"])
def known(large: str, request: pytest.FixtureRequest) -> str:
    """Return what the planner knows of it."""
    if request.param == "analysed":
        with psycopg.connect(large, autocommit=True) as connection:
            connection.execute("ANALYZE")
    return large


@pytest.mark.slow
@pytest.mark.parametrize("function", CALLS)
def test_janitors_cause_no_sequential_scan_by_the_counters_of_the_server(
    known: str, connect: Connect, function: str
) -> None:
    """Wherever the tests run, also where plans cannot be watched."""
    connection = connect(known, autocommit=False)
    connection.execute(f"SELECT mailgres.{function}(%s)", (CALLS[function],))
    assert connection.execute(SEQUENTIAL).fetchall() == []
    connection.rollback()


@pytest.mark.slow
@pytest.mark.parametrize("function", CALLS)
def test_janitors_cause_no_sequential_scan_by_their_plans(
    known: str, connect: Connect, function: str
) -> None:
    connection = connect(known, autocommit=False)
    query = f"SELECT mailgres.{function}(%s)"
    with watched(connection) as nodes:
        row = connection.execute(query, (CALLS[function],)).fetchone()
    assert row is not None
    if function in ("archive_dead_letters", "purge_archive", "delete_expired_emails"):
        assert row[0] == CALLS[function]
    found = [node for node in nodes if node.kind == "Seq Scan" and node.table in BIG]
    assert [(node.query, node.table) for node in found] == []
    # Rows of one chunk, or of the stretch that retention looks at.
    most = 20 * CALLS[function] if function == "delete_expired_emails" else 3 * CALLS[function]
    assert all(node.rows <= most for node in nodes if node.table in BIG)
    connection.rollback()


@pytest.mark.slow
def test_a_retention_run_that_deletes_nothing_causes_no_sequential_scan(
    known: str, connect: Connect
) -> None:
    """A call that finds nothing causes no sequential scan either."""
    connection = connect(known, autocommit=False)
    connection.execute("SET LOCAL session_replication_role = replica")
    connection.execute("UPDATE email_queue SET status = 'pending', dead_at = NULL")
    with watched(connection) as nodes:
        for _ in range(3):
            assert connection.execute("SELECT mailgres.delete_expired_emails()").fetchone() == (0,)
    assert not [node for node in nodes if node.kind == "Seq Scan" and node.table in BIG]
    assert all(node.rows <= 20_000 for node in nodes if node.table in BIG)
    connection.rollback()
