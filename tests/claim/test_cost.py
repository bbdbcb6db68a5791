"""What a claim costs does not depend on how much is in the table."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Protocol

import psycopg
import pytest

from claim.harness import ClaimHarness
from claim.plans import buffers, reads, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from claim.harness import Row
    from support.postgres import Connect, Server


class Observe(Protocol):
    """Watches a step of the work, which is about so many emails at the most."""

    def __call__(self, step: str, most: int, function: Callable[[], list[Row]], /) -> list[Row]: ...


# Half of what is ready belongs to one tenant, and none of it is urgent. As much again is sent, or
# urgent but scheduled for tomorrow.
FILL = """
    INSERT INTO email_queue
        (template_type, recipient_email, status, ready, sent_at, next_retry_at, tenant_id, priority)
    SELECT 'welcome_user', 'someone@example.com', kind.status, kind.ready,
           CASE WHEN kind.status = 'sent' THEN mailgres.now() END,
           mailgres.now() + kind.due,
           'tenant ' || CASE WHEN n %% 2 = 0 THEN 0 ELSE n / 2 %% %(tenants)s END,
           CASE WHEN kind.ready THEN 3 + n %% 7 ELSE 1 END
    FROM (VALUES
        ('pending', true, interval '-1 hour', %(ready)s),
        ('sent', false, interval '-1 hour', %(ready)s / 2),
        ('pending', false, interval '1 day', %(ready)s / 2)
    ) AS kind(status, ready, due, many)
    CROSS JOIN LATERAL generate_series(1, kind.many) n
"""
# Nobody but these tests decides when the planner learns something.
LEARN_NOTHING = "ALTER TABLE email_queue SET (autovacuum_enabled = false)"
IS_SUPERUSER = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
HOUR = timedelta(hours=1)
BUCKETS = ["calls:capture", "emails:capture", "emails:fallback", "tenant:tenant 0"]


def fill(harness: ClaimHarness, ready: int) -> None:
    faster = harness.ask(IS_SUPERUSER)  # than with triggers
    if faster:
        harness.do("SET session_replication_role = replica")
    harness.connection.execute(FILL, {"ready": ready, "tenants": ready // 100})
    if faster:
        harness.do("RESET session_replication_role")


@pytest.fixture(scope="module")
def large(server: Server, template: str) -> Iterator[str]:
    """A queue with 200,000 emails that are ready, of 2,000 tenants."""
    with server.database(template) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(LEARN_NOTHING)
            fill(ClaimHarness(connection), 200_000)
        yield url


@pytest.fixture(scope="module", params=["never analysed", "analysed"])
def known(large: str, request: pytest.FixtureRequest) -> str:
    """Yield the large queue, never analysed or analysed."""
    with psycopg.connect(large, autocommit=True) as connection:
        if request.param == "analysed":
            connection.execute("ANALYZE")
        else:
            analysed = connection.execute("SELECT FROM pg_stats WHERE tablename = 'email_queue'")
            assert not analysed.rowcount, "the queue was analysed too early"
    return large


@pytest.fixture
def fresh(known: str, connect: Connect) -> Iterator[ClaimHarness]:
    """The large queue, in a session that has no plans yet and leaves no changes behind."""
    connection = connect(known, autocommit=False)
    yield ClaimHarness(connection)
    connection.rollback()


def work(harness: ClaimHarness, observe: Observe, many: int = 2000) -> None:
    """Do once what workers and janitors do all day."""
    harness.put("urgent", 20, priority=1)
    harness.put("due", many, ready=False, next_retry_at=-HOUR)
    harness.put("expired", many, expires_at=-timedelta(seconds=1))
    observe("claim and promote", 1000, harness.claim)
    observe("promote", 1000, lambda: harness.rows("SELECT mailgres.promote()"))
    observe("expire", 1000, lambda: harness.rows("SELECT mailgres.expire()"))
    while harness.ask("SELECT mailgres.promote()"):
        pass
    harness.put(
        "dead worker's", many, status="sending", ready=False, lease_worker="dead",
        lease_token="00000000-0000-0000-0000-000000000000",
        leased_at=-timedelta(milliseconds=2), lease_until=-timedelta(milliseconds=1),
    )  # fmt: skip
    observe("reap", 500, lambda: harness.rows("SELECT mailgres.reap()"))

    observe("claim 10", 10, harness.claim)
    observe("claim 10 for a processor", 10, lambda: harness.claim(tokenless=True))
    claimed = observe("claim 100", 100, lambda: harness.claim(100))
    token, email_ids = claimed[0]["lease_token"], [row["id"] for row in claimed]
    for call, some in (
        ("start_attempts", email_ids),
        ("extend", email_ids),
        ("give_back", email_ids[:20]),
    ):
        query = f"SELECT * FROM mailgres.{call}(%s, %s)"
        observe(call, len(some), partial(harness.rows, query, token, some))
    observe("finish sent", 40, lambda: harness.finish(claimed[20:60], "sent"))
    observe("finish failed", 40, lambda: harness.finish(claimed[60:], "transient"))


def by_the_plans(harness: ClaimHarness) -> Observe:
    def observe(step: str, most: int, function: Callable[[], list[Row]]) -> list[Row]:
        with watched(harness.connection) as nodes:
            result = function()
        assert result
        assert any(node.table == "email_queue" for node in nodes), "its plans are seen"
        for node in nodes:
            if node.table in {"email_queue", "email_logs"}:
                assert node.kind != "Seq Scan", f"{step}: {node}"
            if node.table or "Index" in node.kind or "Sort" in node.kind:
                assert node.rows <= 100 + 3 * most, f"{step}: {node}"
        return result

    return observe


def test_no_plan_reads_or_sorts_the_backlog(fresh: ClaimHarness) -> None:
    work(fresh, by_the_plans(fresh))


def test_with_batches_and_limits_no_step_reads_more_rows_than_it_needs(fresh: ClaimHarness) -> None:
    fresh.do("UPDATE mailgres.providers SET fixed_batches = true")
    fresh.do("SELECT mailgres.set_bucket(name, 500) FROM unnest(%s::text[]) name", BUCKETS)
    fresh.add_provider("fallback")
    fresh.add_route("default", "capture", "fallback")
    fresh.add_route("batches", "capture")
    fresh.put("doubtful", 250, route="batches")
    observe = by_the_plans(fresh)
    fresh.do("UPDATE mailgres.routes SET paused = route = 'default'")
    doubtful = observe("claim batches", 250, lambda: fresh.claim(250))
    assert sorted(Counter(row["batch_id"] for row in doubtful).values()) == [50, 100, 100]
    observe("finish batches", 250, lambda: fresh.finish(doubtful, "ambiguous", batch_size=100))
    fresh.do("UPDATE email_queue SET next_retry_at = mailgres.now() WHERE route = 'batches'")
    # All versions of a row are still in the indexes, as the transaction is.
    again = observe("claim a batch again", 4 * 250, lambda: fresh.claim(1))
    assert len(again) == 100
    fresh.do("UPDATE mailgres.routes SET paused = route <> 'default'")
    rejected = observe("claim", 100, lambda: fresh.claim(100))
    observe("finish", 100, lambda: fresh.finish(rejected, "transient"))
    observe("claim for the fallback", 100, lambda: fresh.claim(100))


def by_the_counters(harness: ClaimHarness) -> Observe:
    def observe(step: str, most: int, function: Callable[[], list[Row]]) -> list[Row]:
        before = reads(harness)
        result = function()
        after = reads(harness)
        assert result
        assert after.sequential_scans == before.sequential_scans, step
        assert after.rows - before.rows <= 12 * most, step
        return result

    return observe


def test_no_step_of_an_email_reads_more_rows_than_it_needs(fresh: ClaimHarness) -> None:
    work(fresh, by_the_counters(fresh))


@pytest.mark.parametrize("vacuumed", [False, True], ids=["never vacuumed", "vacuumed"])
def test_plans_made_while_the_queue_was_empty_are_good_when_it_is_full(
    harness: ClaimHarness, connect: Connect, *, vacuumed: bool
) -> None:
    harness.do(LEARN_NOTHING)
    if vacuumed:
        harness.do("VACUUM ANALYZE")
    old = ClaimHarness(connect())
    old.connection.autocommit = False
    old.put(count=30)
    work(old, lambda _step, _most, function: function(), many=1)
    old.connection.rollback()
    fill(harness, 10_000)
    work(old, by_the_counters(old))


def test_a_claim_touches_no_more_pages_in_a_large_queue(
    fresh: ClaimHarness, harness: ClaimHarness
) -> None:
    def touched(at: ClaimHarness, limit: int, *, tokenless: bool) -> int:
        query = "SELECT * FROM mailgres.claim('worker', %s, p_tokenless => %s)"
        at.connection.rollback()
        buffers(at, query, limit, tokenless)  # warms caches and plans
        at.connection.rollback()
        return buffers(at, query, limit, tokenless)

    harness.do(LEARN_NOTHING)
    fill(harness, 1000)
    harness.connection.autocommit = False
    for limit, tokenless in product((10, 100), (False, True)):
        most = 2 * touched(harness, limit, tokenless=tokenless)
        assert touched(fresh, limit, tokenless=tokenless) <= most, (limit, tokenless)


def test_falling_asleep_touches_no_more_pages_after_many_emails_were_sent(
    harness: ClaimHarness,
) -> None:
    asleep = "SELECT mailgres.mark_asleep('worker', '1 minute')"
    harness.do(LEARN_NOTHING)
    buffers(harness, asleep)  # registers the worker, and plans while the queue is empty
    before = buffers(harness, asleep)
    harness.do(
        "INSERT INTO email_queue (template_type, recipient_email, status, sent_at)"
        " SELECT 'welcome_user', 'someone@example.com', 'sent', mailgres.now()"
        " FROM generate_series(1, 5000)"
    )
    assert buffers(harness, asleep) <= before + 20


def test_the_queue_has_at_most_six_indexes(harness: ClaimHarness) -> None:
    indexes = "SELECT count(*) FROM pg_index WHERE indrelid = 'email_queue'::regclass"
    assert harness.ask(indexes) <= 6
