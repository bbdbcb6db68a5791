"""Events for the benchmark of the views: what providers reported about the emails in the queue.

Of a hundred sent emails two bounced, one of them hard; one in a thousand was called spam; the
others were delivered, after two to 61 seconds. Every email has one row of `email_events`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

DAYS = 30
OF_A_DAY = """
    WITH reported AS MATERIALIZED (
        SELECT q.id, q.provider, q.provider_message_id, q.tenant_id, q.template_type,
               q.recipient_email, q.sent_at + (2 + n %% 60) * interval '1 second' AS at,
               CASE WHEN n %% 100 < 2 THEN 'bounced' ELSE 'delivered' END AS event,
               CASE n %% 100 WHEN 0 THEN 'hard' WHEN 1 THEN 'soft' END AS kind,
               n %% 1000 = 7 AS complained
        FROM email_queue q
        CROSS JOIN LATERAL (SELECT hashtext(q.id::text) & 2147483647) h(n)
        WHERE q.status = 'sent'
          AND q.id >= mailgres.first_id_of(now() - (%(days)s + 1 - %(day)s) * interval '1 day')
          AND q.id < mailgres.first_id_of(now() - (%(days)s - %(day)s) * interval '1 day')
    ), events AS (
        INSERT INTO email_events
            (queue_id, provider, event, occurred_at, received_at, kind, reason, tenant_id,
             template_type, provider_message_id, event_id, recipient_email)
        SELECT id, provider, event, at, at, kind, CASE WHEN kind IS NOT NULL THEN 'other' END,
               tenant_id, template_type, provider_message_id, 'evt-' || id, recipient_email
        FROM reported
    )
    INSERT INTO mailgres.deliveries
        (queue_id, seen, delivered_at, bounced_at, bounce_kind, bounce_reason, complained_at)
    SELECT id,
           CASE kind WHEN 'hard' THEN 768 WHEN 'soft' THEN 256 ELSE 32 END
           | CASE WHEN complained THEN 2048 ELSE 0 END,
           CASE WHEN kind IS NULL THEN at END, CASE WHEN kind IS NOT NULL THEN at END, kind,
           CASE WHEN kind IS NOT NULL THEN 'other' END,
           CASE WHEN complained THEN at + interval '1 hour' END
    FROM reported
"""
ROLLUP = """
    INSERT INTO mailgres.rollup_by_event
        (hour, dimension, name, reported, delivered, bounced, hard_bounced, complained, seconds)
    SELECT date_trunc(%(period)s, q.created_at, 'UTC'), %(dimension)s,
           CASE %(dimension)s WHEN 'template' THEN q.template_type WHEN 'tenant' THEN q.tenant_id
                ELSE split_part(q.recipient_email, '@', 2) END,
           count(*), count(*) FILTER (WHERE d.seen & 256 = 0),
           count(*) FILTER (WHERE d.seen & 256 <> 0), count(*) FILTER (WHERE d.seen & 512 <> 0),
           count(*) FILTER (WHERE d.seen & 2048 <> 0),
           coalesce(sum(date_part('epoch', d.delivered_at - q.created_at)), 0)
    FROM mailgres.deliveries d JOIN email_queue q ON q.id = d.queue_id
    GROUP BY 1, 2, 3
"""
PERIODS = {"template": "hour", "tenant": "day", "domain": "day"}
LEFT_UNFOLDED = """
    INSERT INTO mailgres.event_deltas (hour, template_type, tenant_id, domain, reported, delivered)
    SELECT date_trunc('hour', created_at, 'UTC'), template_type, tenant_id,
           split_part(recipient_email, '@', 2), u.change, u.change
    FROM (SELECT * FROM email_queue WHERE status = 'sent' ORDER BY id DESC LIMIT %(deltas)s) last,
         (VALUES (1), (-1)) u(change)
"""
SAMPLE = {
    "delivery rates": (
        (
            "SELECT name, day, reported, delivered, bounced, complained FROM email_delivery_rates"
            " WHERE by = 'template'"
        ),
        (
            "SELECT q.template_type, date_trunc('day', q.created_at, 'UTC'), count(*),"
            " count(*) FILTER (WHERE d.seen & 256 = 0), count(*) FILTER (WHERE d.seen & 256 <> 0),"
            " count(*) FILTER (WHERE d.seen & 2048 <> 0)"
            " FROM mailgres.deliveries d JOIN email_queue q ON q.id = d.queue_id GROUP BY 1, 2"
        ),
    ),
}
"""A view, and the same question asked of the emails."""


def fill(conn: psycopg.Connection, deltas: int) -> None:
    """Record an event for every sent email, and count them."""
    for day in range(1, DAYS + 1):
        conn.execute(OF_A_DAY, {"days": DAYS, "day": day}, prepare=False)
    for dimension, period in PERIODS.items():
        conn.execute(ROLLUP, {"dimension": dimension, "period": period}, prepare=False)
    conn.execute(LEFT_UNFOLDED, {"deltas": deltas}, prepare=False)
