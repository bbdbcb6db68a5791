"""The doctor looks at indexes, dead rows and old transactions."""

from __future__ import annotations

import psycopg
import pytest

from doctor.harness import DoctorHarness
from mailgres.doctor import health
from mailgres.doctor.finding import DoctorContext, duration
from mailgres.settings import Settings
from support.postgres import Connect


def test_doctor_finds_no_health_problem_in_a_new_database(harness: DoctorHarness) -> None:
    for check in ("indexes", "bloat", "transactions"):
        assert harness.findings(check) == []


def test_doctor_reports_an_invalid_index(harness: DoctorHarness) -> None:
    """As a CREATE INDEX CONCURRENTLY leaves one that fails."""
    for _ in range(2):
        harness.run("SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        harness.run("CREATE UNIQUE INDEX CONCURRENTLY of_ours_idx ON email_queue (recipient_email)")
    found = harness.finding("indexes")
    assert found.severity == "error"
    assert found.message.startswith("public.of_ours_idx is invalid")
    harness.run("UPDATE email_queue SET recipient_email = id || '@example.com'")
    harness.fix(found)
    assert harness.findings("indexes") == []


def test_doctor_reports_and_fixes_a_table_without_autovacuum(harness: DoctorHarness) -> None:
    harness.run("ALTER TABLE email_queue SET (autovacuum_enabled = false)")
    found = harness.fixed("bloat")
    assert (found.severity, found.message) == ("error", "autovacuum is off for public.email_queue")


def test_doctor_reports_many_dead_rows(
    harness: DoctorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "MANY_DEAD", 10)
    harness.run("ALTER TABLE email_suppressions SET (autovacuum_enabled = false)")
    harness.run(
        "INSERT INTO email_suppressions (recipient_email, reason)"
        " SELECT n || '@example.com', 'manual' FROM generate_series(1, 50) n"
    )
    harness.run("DELETE FROM email_suppressions")
    harness.run("SELECT pg_stat_force_next_flush()")
    harness.run("ALTER TABLE email_suppressions RESET (autovacuum_enabled)")
    found = [one for one in harness.findings("bloat") if "suppressions" in one.message]
    assert found[0].message == "public.email_suppressions has 50 dead rows and 0 live ones"
    harness.fix(found[0])
    assert [one for one in harness.findings("bloat") if "suppressions" in one.message] == []


@pytest.mark.parametrize(
    ("live", "dead", "bloated"),
    [(0, 0, False), (0, 49_999, False), (100_000, 60_000, True), (10_000_000, 200_000, False)],
)
def test_doctor_judges_dead_rows_by_their_share(live: int, dead: int, *, bloated: bool) -> None:
    assert health.is_bloated(live, dead) is bloated


MB = 1024**2


@pytest.mark.parametrize(
    ("size", "entries", "air"),
    [
        (8192, 0, False),
        (60 * MB, 0, False),
        (200 * MB, 1000, True),
        (900 * MB, 1e7, False),
        (900 * MB, -1, False),
    ],
)
def test_doctor_judges_an_index_by_its_size_and_entries(
    size: int, entries: float, *, air: bool
) -> None:
    assert health.is_mostly_empty(size, entries) is air


# --- transactions


@pytest.fixture
def context(harness: DoctorHarness, monkeypatch: pytest.MonkeyPatch) -> DoctorContext:
    """For whom every transaction is an old one."""
    monkeypatch.setattr(health, "OLD", 0)
    return DoctorContext(Settings(), harness.conn)


def test_doctor_warns_of_an_old_transaction(
    harness: DoctorHarness, connect: Connect, context: DoctorContext
) -> None:
    other = connect(autocommit=False)
    other.execute("SELECT count(*) FROM email_queue")
    (found,) = health.transactions(context)
    assert found.severity == "warning"
    assert "idle in transaction" in found.message
    harness.fix(found)
    with pytest.raises(psycopg.OperationalError):
        other.execute("SELECT 1")
    assert list(health.transactions(context)) == []


def test_doctor_reports_a_very_old_transaction_as_an_error(
    connect: Connect, context: DoctorContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "VERY_OLD", 0)
    connect(autocommit=False).execute("SELECT 1")
    (found,) = health.transactions(context)
    assert found.severity == "error"


def test_doctor_warns_of_an_unused_replication_slot(
    harness: DoctorHarness, context: DoctorContext
) -> None:
    harness.run("SELECT pg_create_physical_replication_slot('mailgres_test_slot')")
    (found,) = health.transactions(context)
    assert found.severity == "warning"
    harness.fix(found)
    assert list(health.transactions(context)) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3, "3 s"), (119, "119 s"), (600, "10 min"), (7200, "2 h"), (3e5, "3 days")],
)
def test_doctor_prints_durations_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text
