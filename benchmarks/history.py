"""A queue with a month of history, for the benchmarks of operators' commands.

Ids and times are spread evenly over 30 days. Of a hundred emails ten are dead, one was cancelled,
one of the last day is pending, the others were sent, every eleventh after a retry.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

DAYS = 30
# The primary key, then the keys that refer to it.
KEYS = """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE contype = 'p' AND conrelid = 'email_queue'::regclass
       OR contype = 'f' AND confrelid = 'email_queue'::regclass
    ORDER BY contype DESC
"""
INDEXES = """
    SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
    WHERE indrelid = 'email_queue'::regclass AND NOT indisprimary
"""
# An id like those of mailgres.uuid_v7(), but of another time.
FILL = """
    INSERT INTO email_queue
        (id, tenant_id, template_type, recipient_email, payload, status, ready, retries,
         next_retry_at, created_at, last_attempt_at, sent_at, dead_at, dead_reason, error_code,
         error_class, error_message, provider, provider_message_id)
    SELECT encode(overlay(uuid_send(gen_random_uuid()) PLACING int8send(
               (floor(date_part('epoch', k.at) * 1000)::bigint << 16) | 28672) FROM 1 FOR 8),
               'hex')::uuid,
           'tenant-' || i % 1000, 'template_' || i % 50,
           'user' || i * 7919 % 500000 || '@example.com',
           '{{"name": "Ana", "url": "https://app.example.com/welcome"}}',
           k.status, k.status = 'pending' AND i % 2 = 0, k.retries, k.at, k.at, k.at,
           CASE WHEN k.status = 'sent' THEN k.at + interval '2 seconds' END,
           CASE WHEN k.status = 'failed' THEN k.at + interval '20 minutes' END,
           CASE WHEN k.status = 'failed' THEN 'exhausted' END,
           CASE WHEN k.retries > 0 THEN 'code_' || i % 20 END,
           CASE WHEN k.retries > 0 THEN 'transient' END,
           CASE WHEN k.retries > 0 THEN 'the provider was away' END,
           'resend', 'message-' || i
    FROM generate_series(1, {emails}::bigint) i
    CROSS JOIN LATERAL (
        SELECT now() - interval '{days} days' * (1 - i / {emails}::double precision) AS at,
               CASE WHEN i % 10 = 0 THEN 'failed' WHEN i % 100 = 1 THEN 'cancelled'
                    WHEN i % 100 = 2 AND i > {emails} - {emails} / {days} THEN 'pending'
                    ELSE 'sent' END AS status,
               CASE WHEN i % 10 = 0 THEN 3 WHEN i % 11 = 0 THEN 1 ELSE 0 END AS retries) k
"""


@contextmanager
def in_bulk(conn: psycopg.Connection) -> Iterator[None]:
    """Make filling fast: without triggers, and with indexes created afterwards."""
    keys = conn.execute(KEYS).fetchall()
    indexes = conn.execute(INDEXES).fetchall()
    conn.execute("SET session_replication_role = replica")
    conn.execute("SET synchronous_commit = off")
    conn.execute("SET maintenance_work_mem = '512MB'")
    for table, name, _ in reversed(keys):
        conn.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    for name, _ in indexes:
        conn.execute(f"DROP INDEX {name}")
    yield
    for table, name, definition in keys:
        conn.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
    for _, create in indexes:
        conn.execute(create)
    conn.execute("RESET ALL")


def fill(conn: psycopg.Connection, emails: int) -> None:
    """Fill the queue."""
    with in_bulk(conn):
        conn.execute(FILL.format(emails=emails, days=DAYS))
    conn.execute("VACUUM (ANALYZE) email_queue")
