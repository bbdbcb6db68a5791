"""The views for analysts at ten million emails, and the cost of keeping their counts.

    python -m benchmarks.monitoring [--trial]

Ten million emails of thirty days in `email_queue` (1,000 tenants, 50 templates, 2,000 domains), an
event for each that was sent, the log of the last nine days, a hundred thousand pending; the example
query of every view runs as an analyst. The rollups are computed from the table, and a sample of the
answers is compared with it. Some thousand deltas are left unfolded, as between two runs of the
janitor.

Then the same drain with and without the part of the trigger that writes deltas, in turn, in two
databases of the same server: 1,000 tenants, so that nearly every email is a delta of its own.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from typing import TYPE_CHECKING, Any

from benchmarks import harness, monitoring_events
from benchmarks.draining import Drainer, drain
from benchmarks.history import in_bulk
from mailgres.metrics.queue import QueueReader
from mailgres.worker.store import Store

if TYPE_CHECKING:
    import psycopg

GOAL_MS = 50
GOAL_WRITING = 0.9
ROUNDS = 30
EMAILS, WAITING, DELTAS = 10_000_000, 100_000, 5_000
DRAINED, DRAINS = 20_000, 7

# Ids and times increase together, as in production. One in a hundred of the last seven days is dead
# (older ones are in the archive); one in twenty needed a retry.
FILL = """
    INSERT INTO email_queue
        (id, template_type, recipient_email, payload, tenant_id, status, retries, created_at,
         next_retry_at, last_attempt_at, sent_at, dead_at, dead_reason, error_message, error_code,
         error_class, provider, provider_message_id, ready)
    SELECT (lpad(to_hex((extract(epoch FROM x.at) * 1000)::bigint), 12, '0') || '7'
            || substr(md5(x.n::text), 1, 3) || '8' || substr(md5(x.n::text), 4, 15))::uuid,
           'template_' || x.n %% 50, 'user' || x.n || '@example' || x.n %% 2000 || '.com',
           '{"name": "Ana"}',
           'tenant_' || (hashint8(x.n) & 2147483647) %% 1000, x.status,
           CASE WHEN x.n %% 20 = 7 THEN 1 + x.n %% 3 ELSE 0 END, x.at, x.at, x.at,
           CASE WHEN x.status = 'sent' THEN x.at + interval '2 seconds' END,
           CASE WHEN x.status = 'failed' THEN x.at + interval '20 minutes' END,
           CASE WHEN x.status = 'failed' THEN 'exhausted' END,
           CASE WHEN x.status = 'failed' THEN 'the provider was down ' || x.n %% 7 END,
           CASE WHEN x.status = 'failed' THEN 'E' || x.n %% 9 END,
           CASE WHEN x.status = 'failed' THEN 'transient' END,
           CASE WHEN x.status IN ('sent', 'failed') THEN 'capture' END,
           CASE WHEN x.status = 'sent' THEN x.n::text END, x.status = 'pending'
    FROM (
        SELECT n, at, CASE WHEN n > %(emails)s - %(waiting)s THEN 'pending'
                           WHEN n %% 100 = 50 AND at > now() - interval '7 days' THEN 'failed'
                           WHEN n %% 200 = 3 THEN 'cancelled' ELSE 'sent' END AS status
        FROM (SELECT n, now() - interval '30 days' * (1 - n::float8 / %(emails)s) AS at
              FROM generate_series(1, %(emails)s::bigint) n) s
    ) x
"""
LOG = """
    INSERT INTO email_logs
        (queue_id, at, event, from_status, to_status, attempt, tenant_id, template_type, claimed_at,
         provider, error_class, error_code, error_message)
    SELECT q.id, e.at, e.event, 'sending', e.status, e.attempt, q.tenant_id, q.template_type, e.at,
           q.provider, e.class, e.code, e.message
    FROM email_queue q
    CROSS JOIN LATERAL (
        SELECT q.created_at AS at, 'retry' AS event, 'pending' AS status, t AS attempt,
               'transient' AS class, 'E1' AS code, 'the provider was down' AS message
        FROM generate_series(1, q.retries) t
        UNION ALL
        SELECT coalesce(q.sent_at, q.dead_at, q.created_at),
               CASE q.status WHEN 'failed' THEN 'dead' ELSE q.status END, q.status, q.retries + 1,
               q.error_class, q.error_code, q.error_message
        WHERE q.status <> 'pending'
    ) e
    WHERE q.id >= mailgres.first_id_of(now() - (31 - %(day)s) * interval '1 day')
      AND q.id < mailgres.first_id_of(now() - (30 - %(day)s) * interval '1 day')
    ORDER BY e.at
"""
SETTLED = "status IN ('sent', 'failed', 'cancelled')"
HOUR = "date_trunc('hour', created_at, 'UTC')"
MADE = "event IN ('sent', 'retry', 'dead')"
ROLLUPS = [
    (
        f"INSERT INTO mailgres.rollup_by_template SELECT {HOUR}, template_type, status, count(*)"
        f" FROM email_queue WHERE {SETTLED} GROUP BY 1, 2, 3"
    ),
    (
        f"INSERT INTO mailgres.rollup_by_tenant SELECT {HOUR}, tenant_id, status, count(*)"
        f" FROM email_queue WHERE {SETTLED} GROUP BY 1, 2, 3"
    ),
    (
        f"INSERT INTO mailgres.rollup_by_provider SELECT {HOUR}, coalesce(provider, ''),"
        f" coalesce(error_code, ''), status, count(*) FROM email_queue WHERE {SETTLED}"
        " GROUP BY 1, 2, 3, 4"
    ),
    (
        f"INSERT INTO mailgres.rollup_by_retries SELECT {HOUR}, status, retries,"
        " mailgres.bucket_of(date_part('epoch', sent_at - created_at)), count(*),"
        " coalesce(sum(date_part('epoch', sent_at - created_at)), 0)"
        f" FROM email_queue WHERE {SETTLED} GROUP BY 1, 2, 3, 4"
    ),
    (
        f"INSERT INTO mailgres.rollup_by_status SELECT {HOUR}, status, count(*), min(created_at),"
        f" max(created_at) FROM email_queue WHERE {SETTLED} GROUP BY 1, 2"
    ),
    (
        "INSERT INTO mailgres.rollup_dead SELECT date_trunc('hour', dead_at, 'UTC'), tenant_id,"
        " error_code, dead_reason, count(*) FROM email_queue WHERE status = 'failed'"
        " GROUP BY 1, 2, 3, 4"
    ),
    (
        "INSERT INTO mailgres.rollup_by_minute SELECT date_trunc('minute', at, 'UTC'), event,"
        " coalesce(provider, ''), count(*) FROM email_logs"
        " WHERE at > now() - interval '8 days' GROUP BY 1, 2, 3"
    ),
    (
        "INSERT INTO mailgres.rollup_by_attempt SELECT date_trunc('hour', at, 'UTC'), attempt,"
        f" event, count(*), 0 FROM email_logs WHERE {MADE} GROUP BY 1, 2, 3"
    ),
    (
        "INSERT INTO mailgres.rollup_by_attempt SELECT date_trunc('hour', at, 'UTC'), attempt + 1,"
        " 'claimed', count(*), 60 * count(*) FROM email_logs WHERE event = 'retry' GROUP BY 1, 2"
    ),
    (
        "INSERT INTO mailgres.rollup_by_fault SELECT date_trunc('hour', at, 'UTC'),"
        " coalesce(provider, ''), error_class, error_code, event, count(*) FROM email_logs"
        " WHERE event IN ('retry', 'dead') GROUP BY 1, 2, 3, 4, 5"
    ),
    (
        "INSERT INTO mailgres.tenant_activity SELECT tenant_id, count(*), max(claimed_at), 1, 0"
        f" FROM email_logs WHERE {MADE} GROUP BY 1"
    ),
]
# As finish leaves them: a row for each email.
LEFT_UNFOLDED = """
    WITH last AS MATERIALIZED (
        SELECT * FROM email_queue WHERE status = 'sent' ORDER BY id DESC LIMIT %(deltas)s
    ), counts AS (
        INSERT INTO mailgres.rollup_deltas
            (hour, template_type, tenant_id, provider, error_code, status, retries, within, emails,
             here, seconds, oldest, newest)
        SELECT date_trunc('hour', created_at, 'UTC'), template_type, tenant_id, provider, '',
               'sent', retries, 5, u.change, u.change, 2 * u.change, created_at, created_at
        FROM last, (VALUES (1), (-1)) u(change)
    )
    INSERT INTO mailgres.attempt_deltas
        (at, event, attempt, tenant_id, provider, error_class, error_code, claimed_at,
         claim_number, emails)
    SELECT sent_at, 'sent', retries + 1, tenant_id, provider, '', '', sent_at, 0, u.change
    FROM last, (VALUES (1), (-1)) u(change)
"""
# Some views, and the same query on the table.
SAMPLE = {
    "failure rate": (
        "SELECT template_type, total, failed FROM email_failure_rate_by_template",
        (
            "SELECT template_type, count(*), count(*) FILTER (WHERE status = 'failed')"
            " FROM email_queue"
            " WHERE created_at >= date_trunc('hour', now() - interval '7 days', 'UTC') GROUP BY 1"
        ),
    ),
    "state": (
        "SELECT status, emails, oldest, newest FROM email_queue_state WHERE emails > 0",
        "SELECT status, count(*), min(created_at), max(created_at) FROM email_queue GROUP BY 1",
    ),
    "dead letters by tenant": (
        "SELECT tenant_id, emails FROM email_dlq_by_tenant",
        "SELECT tenant_id, count(*) FROM email_queue WHERE status = 'failed' GROUP BY 1",
    ),
    "success by attempt": (
        "SELECT attempt, attempts, sent FROM email_success_by_attempt",
        (
            "SELECT attempt, count(*), count(*) FILTER (WHERE event = 'sent') FROM email_logs"
            f" WHERE {MADE} AND at >= date_trunc('hour', now() - interval '7 days', 'UTC')"
            " GROUP BY 1"
        ),
    ),
}


# Removes the deltas from the trigger.
PLAIN = [
    (r"    PERFORM FROM new_rows n WHERE n.retries > 0.*?END IF;\n", ""),
    (r"    PERFORM FROM old_rows o WHERE o.status IN .*?\n    END IF;\n", ""),
    (r"    WITH logged AS \(\n", ""),
    (r"\s+RETURNING id, queue_id.*?GROUP BY 2, 3, 4, 5, 6, 7, 8;", ";"),
    (r"    INSERT INTO mailgres.rollup_deltas.*?<> 0;\n", ""),
]


def build(conn: psycopg.Connection, emails: int, waiting: int, deltas: int) -> None:
    """Fill the queue, its log and the rollups."""
    with in_bulk(conn):
        conn.execute(FILL, {"emails": emails, "waiting": waiting}, prepare=False)
    conn.execute("VACUUM (ANALYZE) email_queue")
    conn.execute("SET session_replication_role = replica")
    conn.execute("SET synchronous_commit = off")
    for day in range(22, 31):
        conn.execute(LOG, {"day": day}, prepare=False)
    for statement in ROLLUPS:
        conn.execute(statement.encode(), prepare=False)
    conn.execute(LEFT_UNFOLDED, {"deltas": deltas // 2}, prepare=False)
    monitoring_events.fill(conn, deltas // 2)
    conn.execute("SET session_replication_role = origin")
    conn.execute("VACUUM (ANALYZE)")
    conn.execute("CHECKPOINT")


def check(conn: psycopg.Connection) -> None:
    """Compare some answers with the table: a fast wrong view would prove nothing."""
    for name, (said, so) in (SAMPLE | monitoring_events.SAMPLE).items():
        if set(conn.execute(said.encode())) != set(conn.execute(so.encode())):
            sys.exit(f"{name}: the view and the table differ")


def ask(conn: psycopg.Connection, rounds: int) -> dict[str, Any]:
    """Query every view as an analyst; the depth is as old as allowed."""
    examples: dict[str, str] = dict(
        conn.execute("SELECT name, example FROM email_monitoring").fetchall()
    )
    conn.execute("SET ROLE mailgres_analyst")
    found = {}
    for name, example in examples.items():
        query = example.encode()

        def call(query: bytes = query) -> None:
            conn.execute(query, prepare=False).fetchall()

        call()
        (times,) = harness.in_turn(rounds, call)
        found[name] = harness.milliseconds(times)
    conn.execute("RESET ROLE")
    return found


def scrape(url: str, rounds: int) -> dict[str, float]:
    """Measure reading all metrics of the queue."""
    store = Store(url, worker="benchmark")
    reader = QueueReader(store)
    reader.read()
    (times,) = harness.in_turn(rounds, reader.read)
    store.close()
    return harness.milliseconds(times)


def views(
    conn: psycopg.Connection, emails: int, waiting: int, deltas: int, rounds: int
) -> dict[str, Any]:
    """Measure the views, and the janitor that counts the depth."""
    build(conn, emails, waiting, deltas)
    # Otherwise it would not count again until ten times as long has passed.
    again = "DELETE FROM mailgres.depth"
    measure = "SELECT mailgres.measure_depth('0')"
    _, depth = harness.in_turn(5, lambda: conn.execute(again), lambda: conn.execute(measure))
    check(conn)
    # Nothing else counts during the run, however long it takes.
    conn.execute("UPDATE mailgres.depth SET valid_until = now() + interval '1 day'")
    asked = ask(conn, rounds)
    slowest = max(asked, key=lambda name: asked[name]["p95_ms"])
    return {
        "emails": emails,
        "waiting": waiting,
        "unfolded_deltas": deltas,
        "goal_p95_ms": GOAL_MS,
        "slowest": {"view": slowest, "p95_ms": asked[slowest]["p95_ms"]},
        "views": asked,
        "count_of_the_depth": harness.milliseconds(depth),
    }


def without_deltas(conn: psycopg.Connection) -> None:
    """Make the trigger write only the log."""
    row = conn.execute("SELECT pg_get_functiondef('mailgres.log_changes'::regproc)").fetchone()
    definition: str = row[0] if row else ""
    for pattern, instead in PLAIN:
        definition, changes = re.subn(pattern, instead, definition, count=1, flags=re.DOTALL)
        if changes != 1:
            sys.exit(f"the trigger has changed: {pattern} is not in it")
    if "deltas" in definition:
        sys.exit("the trigger still writes deltas")
    conn.execute(definition.encode(), prepare=False)


def fill(conn: psycopg.Connection, count: int) -> None:
    """Enqueue emails of a thousand tenants."""
    emails = [
        {
            "template_type": "welcome_user",
            "recipient_email": f"user{number}@example.com",
            "payload": {"name": "Ana", "product": "Acme", "url": "https://app.example.com"},
            "tenant_id": f"tenant-{number}",
        }
        for number in range(1000)
    ]
    for _ in range(count // 1000):
        conn.execute("SELECT count(*) FROM enqueue_emails(%s)", (json.dumps(emails),))


def fold(conn: psycopg.Connection) -> None:
    """Add all deltas to the rollups, as the janitor does."""
    while conn.execute("SELECT mailgres.fold_rollups()").fetchone() != (0,):
        pass


def writing(server: str, rounds: int, count: int) -> dict[str, Any]:
    """Compare the drain with and without deltas, in turn; measure folding afterwards."""
    urls = {name: harness.migrated(server, name) for name in ("with_deltas", "without_deltas")}
    conns = {name: harness.connect(url) for name, url in urls.items()}
    without_deltas(conns["without_deltas"])
    workers = {name: Drainer(url) for name, url in urls.items()}
    times: dict[str, list[float]] = {name: [] for name in urls}
    folding = []
    for number in range(rounds):
        for name in sorted(urls, reverse=bool(number % 2)):
            fill(conns[name], count)
            times[name].append(drain([workers[name]], count)[0])
        folding.append(harness.timed(lambda: fold(conns["with_deltas"])))
    for name in urls:
        workers[name].close()
        conns[name].close()
    median = {name: statistics.median(seen) for name, seen in times.items()}
    return {
        "emails": count,
        "rounds": rounds,
        "per_s": {name: round(count / seconds) for name, seconds in median.items()},
        "ratio": round(median["without_deltas"] / median["with_deltas"], 3),
        "goal": GOAL_WRITING,
        "fold_us_per_email": round(statistics.median(folding) / count * 1e6, 1),
    }


def main(*, trial: bool) -> None:
    """Run it."""
    sizes = (20_000, 1000, 200, 3) if trial else (EMAILS, WAITING, DELTAS, ROUNDS)
    with harness.server() as server:
        written = writing(server, *((1, 2000) if trial else (DRAINS, DRAINED)))
        url = harness.migrated(server, "views")
        with harness.connect(url) as conn:
            result = {
                "trial": trial,
                "writing": written,
                "views": views(conn, *sizes),
                "scrape_of_metrics": scrape(url, sizes[-1]),
            }
            harness.report("monitoring", conn, result)


if __name__ == "__main__":
    main(trial=harness.is_trial(__doc__))
