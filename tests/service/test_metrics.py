"""The metrics: who reads them, that each is there and right, and that scraping is cheap."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from doubles.resend import Fault, ResendDouble
from e2e.harness import E2eHarness
from mailgres import __version__, measurements
from mailgres.metrics import METRICS, Exposition, queue
from mailgres.metrics.monotonic_counter import MonotonicCounter
from mailgres.metrics.queue import spread
from mailgres.worker.store import Store
from service.harness import TOKEN, site

Found = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Found:
    families = text_string_to_metric_families(text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(found: Found, name: str, **labels: str) -> float | None:
    return found.get((f"mailgres_{name}", tuple(sorted(labels.items()))))


def total(found: Found, name: str) -> float:
    return sum(n for (each, _), n in found.items() if each == f"mailgres_{name}")


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = Store(database_url, worker="metrics")
    yield store
    store.close()


def scrape(store: Store) -> Found:
    return parsed(Exposition(store).text()[0].decode())


def test_metrics_need_the_token(harness: E2eHarness, resend: ResendDouble) -> None:  # noqa: ARG001
    with site(harness, metrics_token=TOKEN) as service:
        assert service.get("/metrics").status == 401
        assert service.get("/metrics", "Authorization: Bearer wrong").status == 401
        answer = service.get("/metrics", f"Authorization: Bearer {TOKEN}", host="mail.example.com")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert value(parsed(answer.body.decode()), "up") == 1


def test_every_metric_has_its_value_after_one_email_of_each_outcome(
    harness: E2eHarness, resend: ResendDouble, store: Store
) -> None:
    resend.add_faults(
        Fault(status=422, name="validation_error", message="no"),
        Fault(status=429, name="rate_limit_exceeded", headers={"retry-after": "1"}),
        Fault(status=500, name="application_error"),
    )
    for tenant in ("acme", "acme", "zeta", "zeta"):
        harness.enqueue(tenant_id=tenant, priority=1)
    harness.enqueue(tenant_id="acme", scheduled_for=datetime.now(UTC) + timedelta(hours=1))
    harness.work(rate_limit="1000/m", concurrency="1")
    harness.run("SELECT mailgres.heartbeat('someone', '1.0')")
    harness.run("UPDATE mailgres.providers SET daily_quota = 100 WHERE name = 'resend'")
    harness.run("UPDATE mailgres.alert_rules SET threshold = 0 WHERE name = 'dead_letters'")
    found = scrape(store)
    names = {name for name, _ in found}
    for metric in METRICS.values():
        suffix = "_bucket" if metric.kind == "histogram" else ""
        assert metric.full_name + suffix in names, metric.name

    rows = harness.rows("SELECT status::text, count(*) AS n FROM email_queue GROUP BY 1")
    for row in rows:
        assert value(found, "queue_depth", status=row.status) == row.n, row
    assert value(found, "dlq_size") == value(found, "dlq_entries_total") == 1
    assert value(found, "dlq_by_error_code", error_code="validation_error") == 1
    (dead,) = harness.rows("SELECT tenant_id FROM email_queue WHERE status = 'failed'")
    assert value(found, "dlq_by_company", tenant=dead.tenant_id) == 1
    assert value(found, "dlq_age_seconds_count") == 1
    assert value(found, "workers") == 1
    assert value(found, "alerts_firing", rule="dead_letters", severity="warning") == 1
    assert value(found, "provider_circuit_state", provider="resend", state="closed") == 1
    assert value(found, "provider_circuit_state", provider="resend", state="open") == 0
    logged = Counter(
        row.event for row in harness.rows("SELECT event FROM email_logs") if row.event != "enqueued"
    )
    for event in ("sent", "retry", "dead", "deferred"):
        assert (value(found, "events_total", event=event) or 0) == logged[event], event
    tries = logged["sent"] + logged["retry"] + logged["dead"]
    assert total(found, "retry_attempts_total") == tries
    assert total(found, "tenant_jobs_processed") == sum(
        logged[event] for event in ("sent", "retry", "dead", "deferred")
    )


def test_metrics_name_a_bounded_number_of_tenants(
    harness: E2eHarness, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_TENANTS", 3)
    harness.use("capture")
    for n in range(8):
        for _ in range(8 - n):
            harness.enqueue(tenant_id=f"tenant-{n}", from_email="a@example.com")
    harness.work()
    found = scrape(store)
    labels = {dict(pairs)["tenant"] for name, pairs in found if name.startswith("mailgres_tenant_")}
    assert labels == {"tenant-0", "tenant-1", "tenant-2", "other"}
    assert value(found, "tenant_jobs_processed", tenant="tenant-0") == 8
    assert value(found, "tenant_jobs_processed", tenant="other") == 5 + 4 + 3 + 2 + 1


def test_many_scrapes_cause_one_query(harness: E2eHarness, store: Store) -> None:
    """However many ask: figures hold for a few seconds."""
    asked = Exposition(store)
    first = value(parsed(asked.text()[0].decode()), "queue_depth", status="pending")
    harness.enqueue()
    assert value(parsed(asked.text()[0].decode()), "queue_depth", status="pending") == first == 0
    asked._until = 0.0
    assert value(parsed(asked.text()[0].decode()), "queue_depth", status="pending") == 1


def test_an_email_due_since_forever_does_not_break_the_metrics(
    harness: E2eHarness, store: Store
) -> None:
    """-infinity was written by hand to have it sent at once."""
    assert value(scrape(store), "queue_oldest_due_seconds") == 0
    harness.enqueue()
    harness.run("UPDATE email_queue SET next_retry_at = '-infinity'")
    found = scrape(store)
    assert value(found, "up") == 1
    since_1970 = datetime.now(UTC).timestamp()
    assert value(found, "queue_oldest_due_seconds") == pytest.approx(since_1970, rel=0.01)


def test_metrics_report_up_0_when_the_database_is_slow(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All statements together have their time, then it is up 0 and no error."""
    slow = {**queue.QUERIES, "due": "SELECT pg_sleep(60), 1, 1"}
    monkeypatch.setattr(queue, "QUERIES", slow)
    monkeypatch.setattr(queue, "LIMIT", 0.5)
    found = scrape(store)
    assert value(found, "up") == 0
    assert value(found, "build_info", version=__version__) == 1
    assert value(found, "queue_depth", status="pending") is None
    assert "no metrics from the database" in caplog.text
    monkeypatch.setattr(queue, "LIMIT", 0.0)
    assert value(scrape(store), "up") == 0


def test_counters_never_decrease() -> None:
    """A rollup that forgets what is old does not make a counter smaller."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rollup: dict[datetime, int] = {}
    monotonic_counter = MonotonicCounter("SELECT 1")

    def ask(_query: str, given: Any) -> list[tuple[str, int, int]]:
        known = {hour: n for hour, n in rollup.items() if hour >= given["since"]}
        settled = sum(n for hour, n in known.items() if hour < given["until"])
        return [("dead", settled, sum(known.values()))] if known else []

    total = 0
    for hours in range(24 * 30):
        hour = start + timedelta(hours=hours)
        rollup[hour] = hours % 5
        total += hours % 5
        for old in [each for each in rollup if each < hour - timedelta(days=8)]:
            del rollup[old]
        assert monotonic_counter.read(ask, hour).get("dead", 0) == total


def test_a_histogram_of_counted_values_is_cumulative() -> None:
    found = spread([(10.0, 2), (100.0, 1), (5000.0, 4)], (10.0, 1000.0))
    assert (found.at_most, found.count, found.total) == ((2, 3), 7, 20120.0)


def test_a_histogram_of_observed_values_is_cumulative() -> None:
    histogram = measurements.Histogram((1.0, 10.0))
    for seconds in (0.5, 1.0, 5.0, 100.0):
        histogram.observe(seconds, "resend")
    (reading,) = histogram.read()
    assert (reading.label, reading.at_most, reading.count) == ("resend", (2, 3), 4)
    assert reading.total == 106.5


def test_metric_names_follow_the_conventions() -> None:
    for metric in METRICS.values():
        assert re.fullmatch(r"[a-z][a-z_]*", metric.name)
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert metric.about.endswith(".")
