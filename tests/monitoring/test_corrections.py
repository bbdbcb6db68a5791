"""What is known later changes the figures of the emails it is about, in their own hours."""

from __future__ import annotations

from datetime import timedelta

from support.queue import Clock, Queue, report

HOUR = timedelta(hours=1)


def kpi(queue: Queue, name: str) -> tuple[float | None, str, int]:
    row = queue.row("SELECT value, verdict, emails FROM email_kpis WHERE name = %s", name)
    return row.value and float(row.value), row.verdict, row.emails


def test_kpis_without_emails_say_no_data(queue: Queue) -> None:
    for name in ("delivered", "time to delivery", "recovered after a failure", "dead"):
        assert kpi(queue, name) == (None, "no data", 0)


def test_a_dead_letter_that_is_retried_and_sent_counts_as_delivered(
    queue: Queue, clock: Clock
) -> None:
    """Days later, and it arrives: it was delivered, and is not dead."""
    queue_id = queue.enqueue()
    queue.attempt("permanent")
    assert kpi(queue, "delivered") == (0, "missed", 1)
    assert kpi(queue, "dead") == (100, "missed", 1)
    queue.run("SELECT mailgres.fold_rollups()")
    clock.forward(50 * HOUR)
    queue.run("SELECT retry_email(%s)", queue_id)
    assert kpi(queue, "delivered") == (None, "no data", 0)
    queue.attempt("sent")
    assert kpi(queue, "delivered") == (100, "met", 1)
    assert kpi(queue, "dead") == (0, "met", 1)
    assert queue.value("SELECT emails FROM email_dlq_size") == 0
    entered = "SELECT sum(emails) FROM mailgres.counted_by_minute WHERE outcome = 'dead'"
    assert queue.value(entered) == 1, "that it died remains a fact"


def test_a_later_bounce_counts_once_as_not_delivered(queue: Queue, clock: Clock) -> None:
    """The provider took it, and yet it was not delivered; told twice, it counts once."""
    first, _ = queue.enqueue(), queue.enqueue()
    queue.finish(*(report(email, "sent") for email in queue.claim()))
    queue.run("SELECT mailgres.fold_rollups()")
    clock.forward(HOUR)
    for _ in range(2):
        queue.run("SELECT record_email_event(NULL, 'bounced', p_queue_id => %s)", first)
    assert kpi(queue, "delivered") == (50, "missed", 2)
    queue.run("SELECT mailgres.fold_rollups()")
    assert kpi(queue, "delivered") == (50, "missed", 2)
    queue.run("SELECT record_email_event(NULL, 'failed', p_queue_id => %s)", first)
    assert kpi(queue, "delivered") == (50, "missed", 2)
    assert kpi(queue, "dead") == (0, "met", 2), "a bounce says that it was sent"


def test_a_bounce_settles_an_uncertain_email_as_sent(queue: Queue) -> None:
    """A call whose outcome nobody knew: it went, and came back."""
    queue.use_provider("smtp")
    queue_id = queue.enqueue()
    queue.attempt("ambiguous")
    queue.run("SELECT record_email_event(NULL, 'bounced', p_queue_id => %s)", queue_id)
    assert queue.email(queue_id).status == "sent"
    assert kpi(queue, "delivered") == (0, "missed", 1)


def test_time_to_delivery_starts_when_the_email_is_due(queue: Queue, clock: Clock) -> None:
    """One that was scheduled for tomorrow was not late because it was enqueued today."""
    queue.enqueue(scheduled_for=clock.now + 24 * HOUR)
    clock.forward(24 * HOUR + timedelta(seconds=30))
    queue.run("SELECT mailgres.promote()")
    queue.attempt("sent")
    assert kpi(queue, "time to delivery") == (30, "met", 1)
    assert queue.row("SELECT * FROM email_delivery_times") == (60, 1, 100)


def test_an_email_sent_before_it_was_due_took_no_time(queue: Queue, clock: Clock) -> None:
    """An application holds it back and sends it itself."""
    queue_id = queue.enqueue(scheduled_for=clock.now + HOUR)
    queue.run("SELECT mark_email_sent(%s, 're_1')", queue_id)
    assert kpi(queue, "time to delivery") == (0, "met", 1)


def test_an_email_sent_by_a_retry_counts_as_recovered(queue: Queue, clock: Clock) -> None:
    queue.enqueue()
    queue.attempt("transient")
    clock.forward(HOUR)
    queue.run("SELECT mailgres.promote()")
    queue.attempt("sent")
    assert kpi(queue, "recovered after a failure") == (100, "met", 1)
    row = queue.row("SELECT * FROM email_time_between_attempts")
    assert (row.attempt, row.retries, row.mean_wait) == (2, 1, HOUR)


def test_a_kpi_exactly_at_its_target_is_missed(queue: Queue) -> None:
    """More than 98 % is asked for, and less than 2 %."""
    queue.run(
        "INSERT INTO email_queue (template_type, recipient_email, status, sent_at, dead_at,"
        " dead_reason, error_message)"
        " SELECT 'x', 'ana@example.com', s, CASE s WHEN 'sent' THEN mailgres.now() END,"
        " CASE s WHEN 'failed' THEN mailgres.now() END, CASE s WHEN 'failed' THEN 'permanent' END,"
        " 'no' FROM (SELECT CASE WHEN n > 2 THEN 'sent' ELSE 'failed' END AS s"
        " FROM generate_series(1, 100) n) x"
    )
    assert kpi(queue, "delivered") == (98, "missed", 100)
    assert kpi(queue, "dead") == (2, "missed", 100)


def test_kpis_ignore_emails_older_than_the_window(queue: Queue, clock: Clock) -> None:
    queue.enqueue()
    queue.attempt("sent")
    clock.forward(7 * 24 * HOUR)
    assert kpi(queue, "delivered") == (100, "met", 1)
    clock.forward(HOUR)
    assert kpi(queue, "delivered") == (None, "no data", 0)


def test_old_counts_are_deleted(queue: Queue, clock: Clock) -> None:
    queue.enqueue()
    queue.attempt("sent")
    queue.enqueue()
    queue.attempt("permanent")
    queue.run("SELECT mailgres.fold_rollups()")
    clock.forward(9 * 24 * HOUR)
    queue.run("SELECT mailgres.archive_dead_letters()")
    queue.run("SELECT mailgres.fold_rollups()")
    queue.run("SELECT mailgres.delete_expired_rollups()")
    assert queue.value("SELECT count(*) FROM mailgres.rollup_by_minute") == 0
    assert queue.value("SELECT count(*) FROM mailgres.rollup_dead") == 0
    assert queue.value("SELECT count(*) FROM mailgres.rollup_by_template") == 2
    clock.forward(100 * 24 * HOUR)
    assert [queue.value("SELECT mailgres.delete_expired_rollups(3)") for _ in range(9)][-1] == 0
    for table in ("by_template", "by_tenant", "by_provider", "by_retries", "by_attempt"):
        assert queue.value(f"SELECT count(*) FROM mailgres.rollup_{table}") == 0
    assert queue.value("SELECT count(*) FROM mailgres.tenant_activity") == 0
    state = "SELECT emails FROM email_queue_state WHERE status = 'sent'"
    assert queue.value(state) == 1, "it is still in the queue"
