"""The queries of the operating documents run as they are, for analysts too, and the views agree."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from security.conftest import acting_as
from support.grants import ANALYST
from support.queue import HOLD, RESEND, Clock, Queue, report

# The query, and the query of the view that must give the same.
QUERIES = {
    "pending by template": (
        """SELECT template_type, COUNT(*) AS pending_count, AVG(retries) AS avg_retries,
                  MIN(created_at) AS oldest
           FROM email_queue WHERE status = 'pending'
           GROUP BY template_type ORDER BY pending_count DESC""",
        """SELECT template_type, pending_count, avg_retries, oldest
           FROM email_pending_by_template ORDER BY pending_count DESC""",
    ),
    "failure rate by template, 7 days": (
        """SELECT template_type, COUNT(*) AS total,
                  COUNT(CASE WHEN status = 'failed' THEN 1 END) AS failed,
                  ROUND(100.0 * COUNT(CASE WHEN status = 'failed' THEN 1 END) / COUNT(*), 2)
                      AS failure_rate
           FROM email_queue WHERE created_at > NOW() - INTERVAL '7 days'
           GROUP BY template_type ORDER BY failure_rate DESC""",
        """SELECT template_type, total, failed, failure_rate
           FROM email_failure_rate_by_template ORDER BY failure_rate DESC""",
    ),
    "needed a retry, 24 hours": (
        """SELECT id, template_type, retries, status, created_at
           FROM email_queue WHERE retries > 0 AND created_at > NOW() - INTERVAL '24 hours'
           ORDER BY id""",
        """SELECT id, template_type, retries, status, created_at
           FROM email_retried ORDER BY id""",
    ),
    "recovery by retries": (
        """SELECT retries, COUNT(*) AS count,
                  COUNT(CASE WHEN status = 'sent' THEN 1 END) AS eventually_sent
           FROM email_queue WHERE retries > 0 GROUP BY retries ORDER BY retries""",
        "SELECT retries, emails, sent FROM email_recovery_by_retries",
    ),
    "state of the queue": (
        """SELECT status, COUNT(*) AS count, MIN(created_at) AS oldest, MAX(created_at) AS newest
           FROM email_queue GROUP BY status ORDER BY status""",
        """SELECT status, emails, oldest, newest FROM email_queue_state
           WHERE emails > 0 ORDER BY status""",
    ),
    "most common errors": (
        """SELECT error_message, COUNT(*) AS count FROM email_queue
           WHERE status = 'failed' GROUP BY error_message ORDER BY count DESC LIMIT 10""",
        "SELECT error_message, emails FROM email_common_errors LIMIT 10",
    ),
    "success by attempt": (
        """SELECT attempt, COUNT(*) AS tries, COUNT(CASE WHEN event = 'sent' THEN 1 END) AS sent
           FROM email_logs WHERE event IN ('sent', 'retry', 'dead') AND claimed_at IS NOT NULL
           GROUP BY attempt ORDER BY attempt""",
        "SELECT attempt, attempts, sent FROM email_success_by_attempt",
    ),
    "error codes": (
        """SELECT error_code, COUNT(*) AS count FROM email_logs
           WHERE error_code IS NOT NULL GROUP BY error_code ORDER BY count DESC, error_code""",
        """SELECT error_code, sum(attempts) FROM email_error_codes
           GROUP BY error_code ORDER BY 2 DESC, 1""",
    ),
    "time between attempts": (
        """SELECT attempt, COUNT(*),
                  date_trunc('second', AVG(claimed_at - before) + interval '0.5 seconds')
           FROM (SELECT attempt, claimed_at,
                        LAG(claimed_at) OVER (PARTITION BY queue_id ORDER BY id) AS before
                 FROM email_logs WHERE claimed_at IS NOT NULL) l
           WHERE attempt > 1 GROUP BY attempt ORDER BY attempt""",
        "SELECT attempt, retries, mean_wait FROM email_time_between_attempts",
    ),
    "dead letters": (
        """SELECT id, error_message, dead_at FROM email_queue
           WHERE status = 'failed' ORDER BY dead_at DESC, id""",
        "SELECT id, error_message, dead_at FROM email_dlq_entries ORDER BY dead_at DESC, id",
    ),
    "dead letters by code": (
        """SELECT error_code, COUNT(*) FROM email_queue
           WHERE status = 'failed' GROUP BY error_code ORDER BY 2 DESC""",
        "SELECT error_code, emails FROM email_dlq_by_code",
    ),
    "dead letters by tenant": (
        """SELECT tenant_id, COUNT(*) FROM email_queue
           WHERE status = 'failed' GROUP BY tenant_id ORDER BY 2 DESC""",
        "SELECT tenant_id, emails FROM email_dlq_by_tenant",
    ),
    "delivered finally": (
        """SELECT ROUND(100.0 * COUNT(CASE WHEN status = 'sent' THEN 1 END) / COUNT(*), 2)
           FROM email_queue WHERE status IN ('sent', 'failed')""",
        "SELECT value FROM email_kpis WHERE name = 'delivered'",
    ),
    "mean time to delivery": (
        """SELECT ROUND(AVG(EXTRACT(EPOCH FROM sent_at - created_at)), 2)
           FROM email_queue WHERE status = 'sent'""",
        "SELECT value FROM email_kpis WHERE name = 'time to delivery'",
    ),
}


def work(queue: Queue, clock: Clock) -> None:
    """Forty emails: some fail at first, some for good."""
    for number in range(40):
        queue.enqueue((HOLD, RESEND)[number % 3 == 0], tenant_id=f"t{number % 4 % 3}")
        clock.forward(timedelta(seconds=7))
    while claimed := queue.claim(limit=7):
        outcomes = []
        for number, email in enumerate(claimed):
            fault = (number + email.retries) % 4
            outcome = {0: "transient", 1: "permanent"}.get(fault, "sent")
            reported = {"code": f"E{number % 2}", "message": f"fault {fault}"} if fault < 2 else {}
            outcomes.append(report(email, outcome, **reported))
        queue.start_attempts(claimed)
        clock.forward(timedelta(seconds=11))
        queue.finish(*outcomes)
        clock.forward(timedelta(minutes=2))
        queue.run("SELECT mailgres.fold_rollups(5)")
    queue.enqueue(tenant_id="t0")


@pytest.fixture
def busy(queue: Queue) -> Queue:
    """A queue with a history; afterwards it is as late in mailgres as in PostgreSQL."""
    now: datetime = queue.value("SELECT now()")
    clock = Clock(queue.conn, now - timedelta(hours=6))
    work(queue, clock)
    clock.set(now)
    return queue


@pytest.mark.parametrize("name", QUERIES)
def test_each_view_returns_what_the_verbatim_query_returns(busy: Queue, name: str) -> None:
    verbatim, view = QUERIES[name]
    with acting_as(busy, ANALYST):
        said: list[Any] = busy.rows(view)
        so = busy.rows(verbatim)
    assert said
    assert [tuple(row) for row in said] == [rounded(row) for row in so]


def rounded(row: Any) -> tuple[Any, ...]:
    """As the views round."""
    return tuple(round(value, 2) if hasattr(value, "quantize") else value for value in row)
