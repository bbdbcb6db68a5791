"""Each rule fires when it should and not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from janitor.harness import DAY
from janitor.notifier import MINUTE
from support.postgres import Connect
from support.queue import Clock, Queue

RULES = "SELECT name FROM mailgres.alert_rules"
# Emails that ended, as if tried now, counted by the triggers like any.
END = """
    WITH put AS (
        INSERT INTO email_queue (template_type, recipient_email, tenant_id, next_retry_at)
        SELECT %(template)s, 'ana@example.com', %(tenant)s, 'infinity'
        FROM generate_series(1, %(count)s)
        RETURNING id
    ) SELECT array_agg(id) FROM put
"""
SENT = "UPDATE email_queue SET status = 'sent', sent_at = mailgres.now() WHERE id = ANY(%s)"
RETRY = "UPDATE email_queue SET retries = retries + 1 WHERE id = ANY(%s)"
DEAD = """
    UPDATE email_queue SET status = 'failed', dead_at = mailgres.now(), dead_reason = 'permanent',
        error_message = 'no'
    WHERE id = ANY(%s)
"""
HEARTBEAT = "SELECT mailgres.heartbeat('w')"


class RuleHarness:
    """A queue in which things go wrong; a worker lives until it is said to be dead."""

    def __init__(self, queue: Queue, clock: Clock) -> None:
        self.queue = queue
        self.clock = clock
        queue.run(HEARTBEAT)

    def end(self, how: str, count: int, template: str = "x", tenant: str = "default") -> None:
        given = {"template": template, "tenant": tenant, "count": count}
        (ids,) = self.queue.conn.execute(END, given).fetchone() or ([],)
        self.queue.run(how, ids)

    def wait(self, length: timedelta, *, alive: bool = True) -> None:
        self.clock.forward(length)
        if alive:
            self.queue.run(HEARTBEAT)

    def firing(self) -> dict[tuple[str, str], Any]:
        found = self.queue.rows("SELECT * FROM email_alerts")
        return {(row.rule, row.subject): row for row in found}


@pytest.fixture
def rules(queue: Queue, clock: Clock) -> RuleHarness:
    return RuleHarness(queue, clock)


# Each pair: what does not let the rule fire yet, and what does then.


def failure_rate(rules: RuleHarness) -> Iterator[None]:
    rules.end(RETRY, 10)  # of too few
    yield
    rules.end(SENT, 90)  # exactly 10 %
    yield
    rules.end(DEAD, 1)


def failure_rate_of_old(rules: RuleHarness) -> Iterator[None]:
    rules.end(DEAD, 40)
    rules.wait(61 * MINUTE)
    yield
    rules.end(DEAD, 20)


def dead_letters(rules: RuleHarness) -> Iterator[None]:
    rules.end(DEAD, 100)
    yield
    rules.end(DEAD, 1)


def dead_letters_ceiling(rules: RuleHarness) -> Iterator[None]:
    rules.end(DEAD, 10_000)
    yield
    rules.end(DEAD, 1)


def dead_letter_rate(rules: RuleHarness) -> Iterator[None]:
    rules.end(DEAD, 10)
    yield
    rules.wait(2 * 60 * MINUTE)
    rules.end(SENT, 490)
    rules.end(RETRY, 100)  # these may still arrive
    yield
    rules.end(DEAD, 1)


def tenant_dead_letters(rules: RuleHarness) -> Iterator[None]:
    rules.end(DEAD, 50, tenant="acme")
    rules.end(DEAD, 50, tenant="other")
    yield
    rules.end(DEAD, 1, tenant="acme")


def backlog(rules: RuleHarness) -> Iterator[None]:
    for _ in range(50):
        rules.queue.enqueue()
    rules.wait(10 * MINUTE)
    yield
    rules.queue.enqueue()


def backlog_that_is_new(rules: RuleHarness) -> Iterator[None]:
    for _ in range(60):
        rules.queue.enqueue()
    rules.wait(4 * MINUTE)
    yield
    rules.wait(MINUTE)


def backlog_that_nobody_promotes(rules: RuleHarness) -> Iterator[None]:
    for _ in range(60):
        rules.queue.enqueue(scheduled_for=rules.clock.now + DAY)
    rules.wait(DAY)
    yield
    rules.wait(5 * MINUTE)


def template_failing(rules: RuleHarness) -> Iterator[None]:
    rules.end(DEAD, 4, template="broken")
    yield
    rules.end(SENT, 4, template="broken")  # exactly half
    yield
    rules.end(DEAD, 1, template="broken")


def no_processor(rules: RuleHarness) -> Iterator[None]:
    rules.wait(DAY, alive=False)  # nothing was due
    yield
    rules.queue.enqueue()
    rules.wait(10 * MINUTE, alive=False)
    yield
    rules.wait(MINUTE, alive=False)


def no_processor_because_it_died(rules: RuleHarness) -> Iterator[None]:
    rules.queue.enqueue()
    rules.wait(30 * MINUTE)
    yield
    rules.wait(11 * MINUTE, alive=False)


def no_processor_of_old_kind(rules: RuleHarness) -> Iterator[None]:
    """An old processor has no heartbeat; that it takes emails is seen."""
    rules.queue.run("DELETE FROM mailgres.workers")
    rules.queue.enqueue()
    rules.queue.enqueue()
    rules.wait(30 * MINUTE, alive=False)
    (claimed,) = rules.queue.claim_rpc(1)
    yield
    rules.queue.run("SELECT mark_email_sent(%s, 'x')", claimed.queue_id)
    rules.wait(9 * MINUTE, alive=False)
    yield
    rules.wait(2 * MINUTE, alive=False)


def no_processor_for_what_can_leave(rules: RuleHarness) -> Iterator[None]:
    """Yield where nothing may be sent, no worker is missing."""
    rules.queue.run("UPDATE mailgres.routes SET paused = true")
    rules.queue.enqueue()
    rules.wait(30 * MINUTE, alive=False)
    yield
    rules.queue.run("UPDATE mailgres.routes SET paused = false")


def stuck_sending(rules: RuleHarness) -> Iterator[None]:
    rules.queue.enqueue()
    rules.queue.claim(lease="1 hour")
    rules.wait(5 * MINUTE - timedelta(seconds=1))
    yield
    rules.wait(timedelta(seconds=1))


def circuit_open(rules: RuleHarness) -> Iterator[None]:
    rules.queue.run("UPDATE mailgres.providers SET failures = 4 WHERE name = 'capture'")
    yield
    rules.queue.run("SELECT mailgres.set_circuit('capture', 'open', 'down', NULL)")


def half_open(rules: RuleHarness) -> Iterator[None]:
    yield
    rules.queue.run("SELECT mailgres.set_circuit('capture', 'open', 'down', NULL)")
    rules.queue.run("SELECT mailgres.set_circuit('capture', 'half_open', 'down', NULL)")


def used(rules: RuleHarness, emails: int, period: str = "day") -> None:
    rules.queue.run(
        "INSERT INTO mailgres.quota_usage (provider, period, starts, emails)"
        " VALUES ('capture', %s, date_trunc(%s, mailgres.now(), 'UTC'), %s)"
        " ON CONFLICT (provider, period, starts) DO UPDATE SET emails = excluded.emails",
        *(period, period, emails),
    )


def reported(rules: RuleHarness, count: int, event: str) -> None:
    rules.end(SENT, count, tenant="acme")
    rules.queue.run(
        'SELECT record_email_event(NULL, %s, p_queue_id => q.id, p_detail => \'{"kind": "hard"}\')'
        " FROM email_queue q WHERE q.status = 'sent' AND NOT EXISTS ("
        " SELECT FROM mailgres.deliveries d WHERE d.queue_id = q.id)",
        event,
    )


def bounce_rate(rules: RuleHarness) -> Iterator[None]:
    reported(rules, 5, "bounced")  # of too few
    yield
    reported(rules, 95, "delivered")  # exactly 5 %
    yield
    reported(rules, 1, "bounced")


def complaint_rate(rules: RuleHarness) -> Iterator[None]:
    reported(rules, 299, "delivered")
    yield
    reported(rules, 1, "complained")
    reported(rules, 34, "delivered")  # 1 of 334 is less than 0.3 %
    yield
    reported(rules, 1, "complained")


def quota_80(rules: RuleHarness) -> Iterator[None]:
    used(rules, 1000)  # there is no quota
    yield
    rules.queue.run("UPDATE mailgres.providers SET daily_quota = 100, monthly_quota = 2000")
    used(rules, 79)
    yield
    used(rules, 80)


def quota_90(rules: RuleHarness) -> Iterator[None]:
    rules.queue.run("UPDATE mailgres.providers SET daily_quota = 1000, monthly_quota = 2000")
    used(rules, 1799, "month")
    yield
    used(rules, 1800, "month")


def tenant_starved(rules: RuleHarness) -> Iterator[None]:
    rules.queue.enqueue(tenant_id="acme")
    rules.wait(30 * MINUTE)  # nobody is served
    yield
    rules.queue.run(
        "INSERT INTO mailgres.tenant_activity VALUES ('other', 1, mailgres.now(), 1, 1)"
    )


def tenant_starved_that_was_served(rules: RuleHarness) -> Iterator[None]:
    """A large backlog that is worked on is no starvation."""
    rules.queue.enqueue(tenant_id="acme")
    rules.wait(30 * MINUTE)
    rules.queue.run(
        "INSERT INTO mailgres.tenant_activity VALUES"
        " ('acme', 1, mailgres.now(), 1, 1), ('other', 1, mailgres.now() + '16 minutes', 1, 1)"
    )
    yield
    rules.wait(16 * MINUTE)


def parked(rules: RuleHarness) -> Iterator[None]:
    rules.queue.enqueue(tenant_id="acme")
    rules.queue.enqueue(scheduled_for=rules.clock.now + DAY)
    yield
    rules.queue.use_provider("resend")
    rules.queue.attempt("config", code="validation_error", message="not verified", account=False)


def capacity(rules: RuleHarness, part: float) -> None:
    rules.queue.run(
        "UPDATE mailgres.settings"
        " SET database_capacity = (pg_database_size(current_database()) / %s)::bigint",
        part,
    )


def database_80(rules: RuleHarness) -> Iterator[None]:
    yield
    capacity(rules, 0.75)
    yield
    capacity(rules, 0.82)


def database_90(rules: RuleHarness) -> Iterator[None]:
    capacity(rules, 0.85)
    yield
    capacity(rules, 0.95)


FAILED = "SELECT mailgres.record_janitor_run('fold_rollups', 'w', %s, '5 seconds')"


def janitor_failing(rules: RuleHarness) -> Iterator[None]:
    for _ in range(2):
        rules.queue.run(FAILED, "division by zero")
        yield
    rules.queue.run(FAILED, "division by zero")


def janitor_failing_that_had_succeeded(rules: RuleHarness) -> Iterator[None]:
    for error in ("no", "no", None, "no", "no"):
        rules.queue.run(FAILED, error)
        yield
    rules.queue.run(FAILED, "no")


def quarantined(rules: RuleHarness) -> Iterator[None]:
    rules.queue.enqueue()
    rules.wait(10 * MINUTE)
    yield
    rules.queue.run("SELECT mailgres.quarantine('a copy for staging')")
    rules.queue.run("UPDATE email_queue SET next_retry_at = mailgres.now()")
    yield
    rules.wait(5 * MINUTE)


def quarantined_because_it_is_a_copy(rules: RuleHarness) -> Iterator[None]:
    rules.queue.enqueue()
    rules.wait(5 * MINUTE)
    yield
    rules.queue.run("UPDATE mailgres.home SET database = gen_random_uuid()")


FIRES: dict[str, tuple[str, str]] = {
    "failure_rate": ("failure_rate", ""),
    "failure_rate_of_old": ("failure_rate", ""),
    "dead_letters": ("dead_letters", ""),
    "dead_letters_ceiling": ("dead_letters_ceiling", ""),
    "dead_letter_rate": ("dead_letter_rate", ""),
    "tenant_dead_letters": ("tenant_dead_letters", "acme"),
    "bounce_rate": ("bounce_rate", "acme"),
    "complaint_rate": ("complaint_rate", "acme"),
    "backlog": ("backlog", ""),
    "backlog_that_is_new": ("backlog", ""),
    "backlog_that_nobody_promotes": ("backlog", ""),
    "template_failing": ("template_failing", "broken"),
    "no_processor": ("no_processor", ""),
    "no_processor_because_it_died": ("no_processor", ""),
    "no_processor_of_old_kind": ("no_processor", ""),
    "no_processor_for_what_can_leave": ("no_processor", ""),
    "stuck_sending": ("stuck_sending", ""),
    "circuit_open": ("circuit_open", "capture"),
    "half_open": ("circuit_open", "capture"),
    "quota_80": ("quota_80", "capture"),
    "quota_90": ("quota_90", "capture"),
    "tenant_starved": ("tenant_starved", "acme"),
    "tenant_starved_that_was_served": ("tenant_starved", "acme"),
    "parked": ("parked", "acme"),
    "database_80": ("database_80", ""),
    "database_90": ("database_90", ""),
    "janitor_failing": ("janitor_failing", "fold_rollups"),
    "janitor_failing_that_had_succeeded": ("janitor_failing", "fold_rollups"),
    "quarantined": ("quarantined", ""),
    "quarantined_because_it_is_a_copy": ("quarantined", ""),
}
ELSEWHERE = {"dead_tuples", "old_transaction", "provider_missing", "webhook_off"}
"""Rules with a test of their own."""


@pytest.mark.parametrize("case", FIRES)
def test_each_rule_fires_at_its_threshold_and_not_before(rules: RuleHarness, case: str) -> None:
    steps: Callable[[RuleHarness], Iterator[None]] = globals()[case]
    rule = FIRES[case]
    for _ in steps(rules):
        assert rule not in rules.firing()
    row = rules.firing()[rule]
    assert row.figure >= row.threshold
    assert row.since <= rules.clock.now
    rules.queue.run("UPDATE mailgres.alert_rules SET enabled = false WHERE name = %s", rule[0])
    assert rule not in rules.firing()


def test_every_alert_rule_is_tested(queue: Queue) -> None:
    assert {rule for rule, _ in FIRES.values()} | ELSEWHERE == {
        row.name for row in queue.rows(RULES)
    }


def test_nothing_fires_in_an_empty_queue(rules: RuleHarness) -> None:
    rules.wait(DAY, alive=False)
    assert rules.firing() == {}


def test_a_small_sample_fires_no_alert(rules: RuleHarness) -> None:
    rules.end(SENT, 1)
    rules.end(DEAD, 1)
    assert rules.firing() == {}


def test_no_processor_fires_in_the_view_without_any_worker(rules: RuleHarness) -> None:
    """Without anybody who evaluates: since when, and for how long."""
    rules.wait(DAY, alive=False)
    rules.queue.enqueue()
    rules.wait(70 * MINUTE, alive=False)
    row = rules.firing()["no_processor", ""]
    assert row.since == rules.clock.now - 60 * MINUTE
    assert (row.figure, row.severity) == (70, "critical")


def test_infinite_times_break_no_alert_rule(rules: RuleHarness) -> None:
    """Infinite times were written by hand."""
    rules.queue.enqueue()
    rules.queue.run("UPDATE email_queue SET next_retry_at = '-infinity'")
    rules.wait(DAY, alive=False)
    assert ("no_processor", "") in rules.firing()


def test_old_transaction_fires_for_a_long_transaction(
    conn: psycopg.Connection, connect: Connect
) -> None:
    fires = "SELECT count(*) FROM email_alerts WHERE rule = 'old_transaction'"
    conn.execute("UPDATE mailgres.alert_rules SET threshold = 0 WHERE name = 'old_transaction'")
    other = connect(autocommit=False)
    other.execute("SELECT txid_current()")
    assert conn.execute(fires).fetchone() == (1,)
    other.rollback()
    assert conn.execute(fires).fetchone() == (0,)


def test_dead_tuples_fires_for_a_table_with_many_dead_rows(conn: psycopg.Connection) -> None:
    conn.execute("ALTER TABLE mailgres.captured SET (autovacuum_enabled = false)")
    conn.execute("UPDATE mailgres.alert_rules SET least = 30 WHERE name = 'dead_tuples'")
    fill = (
        "INSERT INTO mailgres.captured (key, queue_id, message) SELECT n, gen_random_uuid(), '{}'"
    )
    conn.execute(f"{fill} FROM generate_series(1, 100) n")
    conn.execute("DELETE FROM mailgres.captured WHERE key::int <= 50")
    conn.execute("SELECT pg_stat_force_next_flush()")
    (row,) = conn.execute("SELECT subject, figure FROM email_alerts").fetchall()
    assert row == ("mailgres.captured", 50)
    conn.execute("UPDATE mailgres.alert_rules SET least = 51 WHERE name = 'dead_tuples'")
    assert conn.execute("SELECT * FROM email_alerts").fetchall() == []
