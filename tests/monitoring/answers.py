"""What each view has to say, asked of the emails and their log themselves.

`all_emails` and `all_logs` also hold what has left the queue: see `remember`.
"""

from __future__ import annotations

from typing import Any, Final

from support.queue import Queue

WEEK: Final = "date_trunc('hour', mailgres.now() - interval '7 days', 'UTC')"
MONTH: Final = "date_trunc('hour', mailgres.now() - interval '30 days', 'UTC')"
SETTLED: Final = "status IN ('sent', 'failed', 'cancelled')"
OPEN: Final = "status IN ('pending', 'sending')"
TOOK: Final = "greatest(date_part('epoch', sent_at - greatest(created_at, scheduled_for)), 0)"
MADE: Final = "claimed_at IS NOT NULL AND event IN ('sent', 'retry', 'dead', 'deferred')"
DEAD_HOUR: Final = "date_trunc('hour', dead_at, 'UTC')"

REMEMBER = """
    CREATE TABLE left_emails AS SELECT * FROM email_queue WITH NO DATA;
    CREATE TABLE left_deliveries AS SELECT * FROM mailgres.deliveries WITH NO DATA;
    CREATE VIEW all_deliveries AS
        SELECT * FROM mailgres.deliveries
        UNION ALL SELECT * FROM left_deliveries x
        WHERE NOT EXISTS (SELECT FROM mailgres.deliveries d WHERE d.queue_id = x.queue_id)
          AND NOT EXISTS (SELECT FROM email_queue q WHERE q.id = x.queue_id);
    CREATE TABLE left_reported AS SELECT * FROM email_queue WITH NO DATA;
    CREATE VIEW all_reported AS
        SELECT * FROM email_queue
        UNION ALL SELECT * FROM left_reported x
        WHERE NOT EXISTS (SELECT FROM email_queue q WHERE q.id = x.id);
    CREATE TABLE left_logs AS SELECT * FROM email_logs WITH NO DATA;
    CREATE VIEW all_emails AS
        SELECT * FROM email_queue
        UNION ALL SELECT * FROM left_emails x
        WHERE NOT EXISTS (SELECT FROM email_queue q WHERE q.id = x.id);
    CREATE VIEW all_logs AS
        SELECT * FROM email_logs
        UNION ALL SELECT * FROM left_logs x
        WHERE NOT EXISTS (SELECT FROM email_logs l WHERE l.id = x.id);
"""
NOTE = """
    DELETE FROM left_emails WHERE id IN (SELECT id FROM email_queue);
    INSERT INTO left_emails SELECT * FROM email_queue
    WHERE status IN ('sent', 'failed', 'cancelled');
    DELETE FROM left_deliveries WHERE queue_id IN (SELECT id FROM email_queue);
    DELETE FROM left_deliveries WHERE queue_id IN (SELECT queue_id FROM mailgres.deliveries);
    INSERT INTO left_deliveries SELECT * FROM mailgres.deliveries;
    DELETE FROM left_reported WHERE id IN (SELECT id FROM email_queue);
    INSERT INTO left_reported SELECT * FROM email_queue;
    DELETE FROM left_logs WHERE id IN (SELECT id FROM email_logs);
    INSERT INTO left_logs SELECT * FROM email_logs;
"""


def remember(queue: Queue) -> None:
    """Make places for what leaves the queue."""
    queue.run(REMEMBER)


def note(queue: Queue) -> None:
    """Keep everything, just before something may leave."""
    queue.run(NOTE)


def counts(*statuses: str) -> str:
    """Columns that count emails by status."""
    return ", ".join(f"count(*) FILTER (WHERE status = '{status}')" for status in statuses)


DELIVERED = """
    SELECT FROM all_deliveries d
    WHERE d.queue_id = e.id AND d.seen & 3296 <> 0 AND d.bounced_at IS NULL
"""
RATES = f"""
    SELECT x.by, x.name, date_trunc('day', e.created_at, 'UTC'), count(*),
           count(*) FILTER (WHERE EXISTS ({DELIVERED})),
           count(*) FILTER (WHERE d.bounced_at IS NOT NULL),
           count(*) FILTER (WHERE d.seen & 512 <> 0), count(d.complained_at)
    FROM all_reported e JOIN all_deliveries d ON d.queue_id = e.id AND d.seen & 3552 <> 0
    CROSS JOIN LATERAL (VALUES
        ('template', e.template_type::text), ('tenant', e.tenant_id::text),
        ('domain', split_part(lower(e.recipient_email), '@', 2))) x(by, name)
    WHERE e.created_at >= date_trunc('day', mailgres.now() - interval '30 days', 'UTC')
    GROUP BY 1, 2, 3
"""
KPIS = f"""
    WITH r AS (
        SELECT count(*) FILTER (WHERE EXISTS (
                   SELECT FROM all_deliveries d
                   WHERE d.queue_id = e.id AND d.bounced_at IS NOT NULL)) AS bounced,
               count(*) FILTER (WHERE EXISTS (
                   SELECT FROM all_deliveries d
                   WHERE d.queue_id = e.id AND d.seen & 3552 <> 0)) AS reported,
               count(*) FILTER (WHERE EXISTS ({DELIVERED})) AS delivered,
               sum(coalesce((
                   SELECT greatest(date_part(
                       'epoch', d.delivered_at - greatest(e.created_at, e.scheduled_for)), 0)
                   FROM all_deliveries d
                   WHERE d.queue_id = e.id AND d.bounced_at IS NULL), 0)) AS took
        FROM all_reported e WHERE created_at >= {WEEK}
    ), c AS (
        SELECT count(*) FILTER (WHERE status = 'sent') AS sent,
               count(*) FILTER (WHERE status = 'failed') AS failed,
               sum({TOOK}) FILTER (WHERE status = 'sent') AS seconds,
               count(*) FILTER (WHERE status = 'sent' AND retries > 0) AS recovered,
               count(*) FILTER (WHERE status IN ('sent', 'failed') AND retries > 0) AS retried
        FROM all_emails e WHERE created_at >= {WEEK}
    )
    SELECT 'delivered', CASE
        WHEN delivered > 0 THEN round(100.0 * delivered / (reported + failed), 2)
        ELSE round(100.0 * (sent - bounced) / nullif(sent + failed, 0), 2) END FROM c, r
    UNION ALL SELECT 'time to delivery', CASE
        WHEN delivered > 0 THEN round(took::numeric / delivered, 2)
        ELSE round(seconds::numeric / nullif(sent, 0), 2) END FROM c, r
    UNION ALL
    SELECT 'recovered after a failure', round(100.0 * recovered / nullif(retried, 0), 2) FROM c
    UNION ALL SELECT 'dead', round(100.0 * failed / nullif(sent + failed, 0), 2) FROM c
"""
FAIRNESS = f"""
    SELECT coalesce(a.tenant_id, o.tenant_id), a.last_at, coalesce(a.attempts, 0),
           coalesce(a.batch, 0), coalesce(o.emails, 0), coalesce(o.due, 0)
    FROM (
        SELECT tenant_id, max(claimed_at) AS last_at, count(*) AS attempts,
               count(*) FILTER (WHERE claimed_at = newest) AS batch
        FROM (SELECT *, max(claimed_at) OVER (PARTITION BY tenant_id) AS newest
              FROM all_logs WHERE {MADE}) l
        GROUP BY tenant_id
    ) a
    FULL JOIN (
        SELECT tenant_id::text AS tenant_id, count(*) AS emails,
               count(*) FILTER (WHERE next_retry_at <= mailgres.now()) AS due
        FROM email_queue WHERE status = 'pending' GROUP BY tenant_id
    ) o ON o.tenant_id = a.tenant_id
"""

ANSWERS: Final = {
    "email_queue_state": (
        (
            "SELECT status, emails, date_trunc('hour', oldest), date_trunc('hour', newest)"
            " FROM email_queue_state WHERE emails > 0"
        ),
        (
            "SELECT status, count(*), date_trunc('hour', min(created_at)),"
            " date_trunc('hour', max(created_at)) FROM email_queue GROUP BY status"
        ),
    ),
    "email_pending_by_template": (
        (
            "SELECT template_type, pending_count, avg_retries, oldest, newest, due_count,"
            " oldest_due, parked_count FROM email_pending_by_template"
        ),
        (
            "SELECT template_type, count(*), round(avg(retries), 2), min(created_at),"
            " max(created_at), count(*) FILTER (WHERE next_retry_at <= mailgres.now()),"
            " min(next_retry_at) FILTER (WHERE next_retry_at <= mailgres.now()),"
            " count(parked_since) FROM email_queue WHERE status = 'pending' GROUP BY template_type"
        ),
    ),
    "email_failure_rate_by_template": (
        (
            "SELECT template_type, total, sent, failed, cancelled, waiting, failure_rate"
            " FROM email_failure_rate_by_template"
        ),
        (
            f"SELECT template_type, count(*), {counts('sent', 'failed', 'cancelled')},"
            f" count(*) FILTER (WHERE {OPEN}),"
            " round(100.0 * count(*) FILTER (WHERE status = 'failed') / count(*), 2)"
            f" FROM all_emails WHERE created_at >= {WEEK} GROUP BY template_type"
        ),
    ),
    "email_kpis": ("SELECT name, value FROM email_kpis", KPIS),
    "email_delivery_rates": (
        (
            "SELECT by, name, day, reported, delivered, bounced, hard_bounced, complained"
            " FROM email_delivery_rates"
        ),
        RATES,
    ),
    "email_deliveries": (
        "SELECT id, status, state, delivered_at, bounced_at FROM email_deliveries",
        (
            "SELECT q.id, q.status, d.state, d.delivered_at, d.bounced_at FROM email_queue q"
            " LEFT JOIN mailgres.deliveries d ON d.queue_id = q.id"
        ),
    ),
    "email_delivery_times": (
        "SELECT coalesce(within_seconds, 2147483647), emails FROM email_delivery_times",
        (
            f"SELECT mailgres.bucket_of({TOOK}), count(*) FROM all_emails"
            f" WHERE status = 'sent' AND created_at >= {WEEK} GROUP BY 1"
        ),
    ),
    "email_recovery_by_retries": (
        (
            "SELECT retries, emails, sent, failed, waiting, recovery_rate"
            " FROM email_recovery_by_retries"
        ),
        (
            f"SELECT retries, count(*), {counts('sent', 'failed')}, count(*) FILTER (WHERE {OPEN}),"
            " round(100.0 * count(*) FILTER (WHERE status = 'sent')"
            " / nullif(count(*) FILTER (WHERE status IN ('sent', 'failed')), 0), 2) FROM all_emails"
            f" WHERE retries > 0 AND (created_at >= {MONTH} OR {OPEN}) GROUP BY retries"
        ),
    ),
    "email_recipients": (
        "SELECT id, recipient FROM email_recipients",
        "SELECT id, mailgres.mask_email(recipient_email) FROM email_queue",
    ),
    "email_retried": (
        "SELECT id, status, retries FROM email_retried",
        (
            "SELECT id, status, retries FROM email_queue WHERE id IN ("
            " SELECT queue_id FROM email_logs"
            " WHERE event = 'retry' AND at > mailgres.now() - interval '24 hours')"
        ),
    ),
    "email_success_by_attempt": (
        "SELECT attempt, attempts, sent, retried, dead FROM email_success_by_attempt",
        (
            "SELECT attempt, count(*), count(*) FILTER (WHERE event = 'sent'),"
            " count(*) FILTER (WHERE event = 'retry'), count(*) FILTER (WHERE event = 'dead')"
            f" FROM all_logs WHERE {MADE} AND event <> 'deferred' AND at >= {WEEK} GROUP BY attempt"
        ),
    ),
    "email_error_codes": (
        (
            "SELECT provider, error_class, error_code, attempts, retried, dead, deferred"
            " FROM email_error_codes"
        ),
        (
            "SELECT coalesce(provider, ''), coalesce(error_class, ''), coalesce(error_code, ''),"
            " count(*), count(*) FILTER (WHERE event = 'retry'),"
            " count(*) FILTER (WHERE event = 'dead'), count(*) FILTER (WHERE event = 'deferred')"
            f" FROM all_logs WHERE {MADE} AND event <> 'sent' AND at >= {WEEK} GROUP BY 1, 2, 3"
        ),
    ),
    "email_common_errors": (
        "SELECT error_message, emails, first_at, last_at FROM email_common_errors",
        (
            "SELECT error_message, count(*), min(dead_at), max(dead_at)"
            " FROM email_queue WHERE status = 'failed' GROUP BY error_message"
        ),
    ),
    "email_dlq_entries": (
        "SELECT id, dead_reason, error_message, dead_at, recipient FROM email_dlq_entries",
        (
            "SELECT id, dead_reason, error_message, dead_at, 'a***@example.com' FROM email_queue"
            " WHERE status = 'failed'"
        ),
    ),
    "email_dlq_size": (
        "SELECT emails, oldest, newest FROM email_dlq_size",
        "SELECT count(*), min(dead_at), max(dead_at) FROM email_queue WHERE status = 'failed'",
    ),
    "email_dlq_per_hour": (
        "SELECT hour, entered, sent FROM email_dlq_per_hour WHERE entered + sent > 0",
        (
            "SELECT date_trunc('hour', at, 'UTC'), count(*) FILTER (WHERE event = 'dead'),"
            " count(*) FILTER (WHERE event = 'sent') FROM all_logs WHERE event IN ('sent', 'dead')"
            " AND at >= date_trunc('hour', mailgres.now(), 'UTC') - interval '23 hours' GROUP BY 1"
        ),
    ),
    "email_dlq_by_code": (
        "SELECT error_code, dead_reason, emails FROM email_dlq_by_code",
        (
            "SELECT coalesce(error_code, ''), dead_reason, count(*) FROM email_queue"
            " WHERE status = 'failed' GROUP BY 1, 2"
        ),
    ),
    "email_dlq_by_tenant": (
        "SELECT tenant_id, emails FROM email_dlq_by_tenant",
        "SELECT tenant_id, count(*) FROM email_queue WHERE status = 'failed' GROUP BY 1",
    ),
    "email_dlq_by_age": (
        (
            "SELECT sum(emails), sum(emails) FILTER (WHERE age = 'up to 1 hour'),"
            " sum(emails) FILTER (WHERE age = 'up to 3 days') FROM email_dlq_by_age"
        ),
        (
            "SELECT count(*), count(*) FILTER (WHERE hours < 1),"
            " count(*) FILTER (WHERE hours >= 24 AND hours < 72) FROM (SELECT date_part('epoch',"
            f" date_trunc('hour', mailgres.now(), 'UTC') - {DEAD_HOUR}) / 3600 AS hours"
            " FROM email_queue WHERE status = 'failed') x"
        ),
    ),
    "email_throughput": (
        (
            "SELECT minute, sent, retried, deferred, dead, cancelled FROM email_throughput"
            " WHERE sent + retried + deferred + dead + cancelled > 0"
        ),
        "SELECT date_trunc('minute', at, 'UTC'),"
        + ", ".join(
            f"count(*) FILTER (WHERE event = '{event}')"
            for event in ("sent", "retry", "deferred", "dead", "cancelled")
        )
        + " FROM all_logs WHERE event IN ('sent', 'retry', 'deferred', 'dead', 'cancelled')"
        " AND at >= date_trunc('minute', mailgres.now(), 'UTC') - interval '59 minutes'"
        " GROUP BY 1",
    ),
    "email_throughput_24h": (
        (
            "SELECT since, sent, retried, deferred, dead, cancelled FROM email_throughput_24h"
            " WHERE sent + retried + deferred + dead + cancelled > 0"
        ),
        "SELECT date_bin('15 minutes', at, '2000-01-01Z'),"
        + ", ".join(
            f"count(*) FILTER (WHERE event = '{event}')"
            for event in ("sent", "retry", "deferred", "dead", "cancelled")
        )
        + " FROM all_logs WHERE event IN ('sent', 'retry', 'deferred', 'dead', 'cancelled')"
        " AND at >= date_bin('15 minutes', mailgres.now(), '2000-01-01Z') - interval '1425 minutes'"
        " GROUP BY 1",
    ),
    "email_tenant_fairness": (
        (
            "SELECT tenant_id, last_processed_at, total_processed, consecutive_batch, backlog, due"
            " FROM email_tenant_fairness"
        ),
        FAIRNESS,
    ),
}
"""By view: what it says, and what is so."""


def assert_views_are_right(queue: Queue) -> None:
    """Compare every view with the emails themselves."""
    for view, (said, so) in ANSWERS.items():
        assert answer(queue, said) == answer(queue, so), view


def answer(queue: Queue, query: str) -> set[tuple[Any, ...]]:
    """Return what a query gives, in no order."""
    return set(queue.conn.execute(query.encode()).fetchall())
