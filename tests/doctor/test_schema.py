"""The doctor compares the schema with what the migrations make."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

import schema_hashes
from doctor.harness import DoctorHarness
from mailgres import migrate
from mailgres.doctor import restoring_sql, schema
from mailgres.errors import NotMigrated
from mailgres.schema.sources import split
from mailgres.settings import Settings
from mailgres.testing import travel


def test_the_hashes_of_the_schema_are_current(conn: psycopg.Connection) -> None:
    """On whatever version of PostgreSQL the tests run."""
    written = schema.EXPECTED.read_text(encoding="utf-8")
    assert written == schema_hashes.text(conn), "run `make freeze docs`"


def test_doctor_finds_nothing_wrong_with_a_new_schema(harness: DoctorHarness) -> None:
    for check in ("schema-drift", "missing-indexes", "schema-version", "durability"):
        assert harness.findings(check) == []


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (
            """CREATE OR REPLACE FUNCTION mailgres.reap(p_limit int DEFAULT 500) RETURNS int
               LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'SELECT 0'""",
            "function mailgres.reap is changed",
        ),
        (
            "ALTER FUNCTION public.enqueue_email RESET search_path",
            "function public.enqueue_email is changed",
        ),
        (
            "ALTER FUNCTION mailgres.claim SECURITY INVOKER",
            "function mailgres.claim is changed",
        ),
        (
            "DROP FUNCTION public.calculate_next_retry_time",
            "function public.calculate_next_retry_time is missing",
        ),
        (
            "ALTER TABLE email_queue DISABLE TRIGGER wake_after_insert",
            "trigger public.email_queue.wake_after_insert is changed",
        ),
        (
            "DROP TRIGGER wake_after_insert ON email_queue",
            "trigger public.email_queue.wake_after_insert is missing",
        ),
    ],
)
def test_doctor_restores_changed_functions_and_triggers(
    harness: DoctorHarness, fault: str, named: str
) -> None:
    harness.run(fault)
    found = harness.fixed("schema-drift")
    assert (found.severity, found.message) == ("error", named)


def test_doctor_restores_a_changed_view(harness: DoctorHarness) -> None:
    harness.run("ALTER VIEW email_dead_letters RESET (security_invoker)")
    assert harness.fixed("schema-drift").message == "view public.email_dead_letters is changed"


RESHAPED = "is changed"


@pytest.mark.parametrize(
    ("faults", "named"),
    [
        (
            [
                "DROP VIEW email_dead_letters",
                "CREATE VIEW email_dead_letters AS SELECT user_id, 1 AS id FROM email_queue",
            ],
            "view public.email_dead_letters",
        ),
        (
            [
                "DROP FUNCTION calculate_next_retry_time",
                """CREATE FUNCTION calculate_next_retry_time(retry_count int) RETURNS text
                   LANGUAGE sql AS 'SELECT NULL::text'""",
            ],
            "function public.calculate_next_retry_time",
        ),
        (
            [
                "DROP FUNCTION mailgres.reap",
                """CREATE FUNCTION mailgres.reap(p_many int DEFAULT 500) RETURNS int
                   LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS 'SELECT 0'""",
            ],
            "function mailgres.reap",
        ),
        (
            # others of ours are built on it, and go and come with it
            ["ALTER VIEW mailgres.counted_by_template RENAME COLUMN hour TO moment"],
            "view mailgres.counted_by_template",
        ),
    ],
)
def test_doctor_restores_objects_that_have_to_be_dropped_first(
    harness: DoctorHarness, faults: list[str], named: str
) -> None:
    comments = "SELECT objoid::regclass, objsubid, description FROM pg_description"
    comments += " WHERE classoid = 'pg_class'::regclass AND objoid >= 16384"
    before = {str(row) for row in harness.conn.execute(comments)}
    for fault in faults:
        harness.run(fault)
    found = harness.findings("schema-drift")
    assert f"{named} {RESHAPED}" in [one.message for one in found]
    harness.fix(found[0])
    assert harness.findings("schema-drift") == []
    assert harness.findings("grants") == []
    assert {str(row) for row in harness.conn.execute(comments)} == before


def test_the_restoring_script_stops_at_objects_that_depend_on_ours(harness: DoctorHarness) -> None:
    harness.run("DROP VIEW email_dead_letters")
    harness.run("CREATE VIEW email_dead_letters AS SELECT user_id FROM email_queue")
    harness.run("CREATE VIEW of_ours AS SELECT user_id FROM email_dead_letters")
    harness.run("DROP FUNCTION calculate_next_retry_time")
    printed = restoring_sql(Settings(database_url=harness.url))
    needed = "view public.email_dead_letters has to be dropped, and view public.of_ours depends on"
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match=needed):
        harness.run(printed)
    harness.run("ROLLBACK")
    harness.run("DROP VIEW of_ours")
    harness.run(printed)
    assert harness.findings("schema-drift") == []


def test_doctor_names_a_function_of_the_application_with_our_name_without_an_error(
    harness: DoctorHarness,
) -> None:
    """It is named, is no fault, and stands in the way of nothing."""
    harness.run("CREATE FUNCTION enqueue_email(int) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    found = harness.finding("schema-drift")
    assert (found.severity, found.message) == (
        "info",
        "not of mailgres: function public.enqueue_email(integer)",
    )
    assert harness.findings("grants") == []
    assert restoring_sql(Settings(database_url=harness.url)) == "-- Nothing differs.\n"
    migrate.upgrade(harness.url)
    harness.run("SELECT mailgres.secure()")
    harness.run("ALTER FUNCTION mailgres.claim SECURITY INVOKER")
    harness.fix(harness.findings("schema-drift")[0])
    assert harness.finding("schema-drift") == found
    assert harness.conn.execute("SELECT enqueue_email(7)").fetchone() == (1,)


def test_doctor_restores_a_function_that_was_created_again_with_other_arguments(
    harness: DoctorHarness,
) -> None:
    """A function was created again with other arguments."""
    harness.run("DROP FUNCTION mailgres.reap")
    harness.run("CREATE FUNCTION mailgres.reap(text) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    harness.fix(harness.findings("schema-drift")[0])
    assert harness.findings("schema-drift") == []


def test_the_restored_is_granted_as_before(harness: DoctorHarness) -> None:
    harness.run("DROP FUNCTION public.calculate_next_retry_time")
    harness.fixed("schema-drift")
    assert harness.findings("grants") == []
    granted = "SELECT has_function_privilege('mailgres_operator', %s, 'EXECUTE')"
    name = "public.calculate_next_retry_time(int)"
    assert harness.conn.execute(granted, (name,)).fetchone() == (True,)


@pytest.mark.parametrize(
    "fault",
    [
        "DROP INDEX email_queue_due_idx",
        """DROP INDEX email_queue_due_idx;
           CREATE INDEX email_queue_due_idx ON email_queue (due_at) WHERE due_at IS NOT NULL""",
    ],
)
def test_doctor_restores_missing_and_changed_indexes(harness: DoctorHarness, fault: str) -> None:
    harness.run(fault)
    found = harness.fixed("missing-indexes")
    assert found.severity == "error"
    assert found.message.startswith("index public.email_queue_due_idx is ")
    assert harness.findings("schema-drift") == []


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (
            "ALTER TABLE email_queue ALTER COLUMN max_retries SET DEFAULT 9",
            "column public.email_queue.max_retries is changed",
        ),
        (
            "ALTER TABLE email_queue DROP CONSTRAINT email_queue_state",
            "constraint public.email_queue.email_queue_state is missing",
        ),
        (
            "ALTER TABLE email_queue ALTER COLUMN created_at SET DEFAULT pg_catalog.now()",
            "column public.email_queue.created_at is changed",
        ),
        (
            "ALTER TABLE mailgres.workers ALTER COLUMN version DROP NOT NULL",
            "column mailgres.workers.version is changed",
        ),
    ],
)
def test_doctor_shows_changes_that_a_person_has_to_fix(
    harness: DoctorHarness, fault: str, named: str
) -> None:
    """The command shows how it should be."""
    harness.run(fault)
    found = harness.finding("schema-drift")
    assert (found.severity, found.message) == ("error", named)
    harness.fix(found)
    assert "ALTER it by hand" in (found.fix or "")


def test_doctor_names_added_objects_without_an_error(harness: DoctorHarness) -> None:
    harness.run("ALTER TABLE email_queue ADD COLUMN of_ours int")
    harness.run("CREATE INDEX of_ours_idx ON email_queue (user_id)")
    harness.run("CREATE TABLE of_ours ()")
    found = harness.finding("schema-drift")
    assert found.severity == "info"
    assert found.message.endswith("column public.email_queue.of_ours, index public.of_ours_idx")
    assert harness.findings("missing-indexes") == []


def test_doctor_reports_an_unlogged_table(harness: DoctorHarness) -> None:
    harness.run("ALTER TABLE email_suppressions SET UNLOGGED")
    found = harness.fixed("durability")
    assert (found.severity, found.message) == (
        "error",
        "public.email_suppressions is unlogged: a crash empties it",
    )


def test_doctor_reports_and_fixes_a_clock_that_a_test_replaced(harness: DoctorHarness) -> None:
    travel(harness.conn, timedelta(days=3))
    found = harness.fixed("clock")
    assert found.message == "mailgres.now() is 3 days off: a test replaced it"
    # its table of its own stays
    assert [one.severity for one in harness.findings("schema-drift")] == ["info"]


def test_doctor_reports_a_missing_schema(empty_database_url: str, conn: psycopg.Connection) -> None:
    harness = DoctorHarness(empty_database_url, conn)
    found = harness.finding("schema-version")
    assert (found.severity, found.fix) == ("error", "mailgres migrate")
    assert harness.finding("schema-drift").message.startswith("not checked: ")
    harness.fix(found)
    assert harness.findings("schema-version") == []
    assert harness.findings("schema-drift") == []


@pytest.mark.parametrize("revision", ["9999_later"])
def test_doctor_reports_a_schema_of_a_newer_version(harness: DoctorHarness, revision: str) -> None:
    harness.run("UPDATE mailgres.schema_version SET version_num = %s", revision)
    found = harness.finding("schema-version")
    fix = "Install that version, from a checkout or its wheel file"
    assert (found.severity, found.fix) == ("error", fix)


def test_sql_is_for_a_schema_of_this_version(empty_database_url: str) -> None:
    with pytest.raises(NotMigrated):
        restoring_sql(Settings(database_url=empty_database_url))


def test_statements_are_split_at_the_right_semicolons() -> None:
    text = """
        -- a comment; with a semicolon
        CREATE FUNCTION a.b() RETURNS text LANGUAGE sql AS $$ SELECT ';' || 'it''s; -- no'; $$;
        COMMENT ON FUNCTION a.b() IS 'first; second';
    """
    first, second = split(text)
    assert first.startswith("CREATE FUNCTION a.b()")
    assert first.endswith("$$;")
    assert second == "COMMENT ON FUNCTION a.b() IS 'first; second';"


@pytest.mark.parametrize(
    ("table", "wanted"), [("email_queue", "DEFAULT"), ("mailgres.attempt_deltas", "FULL")]
)
def test_doctor_warns_of_a_table_without_replica_identity(
    harness: DoctorHarness, table: str, wanted: str
) -> None:
    harness.run(f"ALTER TABLE {table} REPLICA IDENTITY NOTHING")
    name = table if "." in table else f"public.{table}"
    found = harness.finding("publications")
    assert (found.severity, found.message) == ("warning", f"{name} has no replica identity")
    harness.run("CREATE PUBLICATION everything FOR ALL TABLES")
    found = harness.fixed("publications")
    assert found.severity == "error"
    assert found.message.endswith(" and is published: rows cannot be updated or deleted")
    assert f"REPLICA IDENTITY {wanted}" in (found.fix or "")
