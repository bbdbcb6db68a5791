"""The generated pages are what would be generated now, and nothing in them is left unexplained."""

from __future__ import annotations

import psycopg
import pytest

import metrics_page
import monitoring_page
import provider_errors
import reference
import speed_table


def test_the_page_of_errors_is_current() -> None:
    written = (reference.DOCS / "errors.md").read_text(encoding="utf-8")
    assert written == reference.errors_page(), "run `make docs`"


def test_page_of_provider_errors_is_current() -> None:
    written = provider_errors.PAGE.read_text(encoding="utf-8")
    assert written == provider_errors.page(), "run `make docs`"


def test_page_of_metrics_is_current() -> None:
    written = metrics_page.PAGE.read_text(encoding="utf-8")
    assert written == metrics_page.page(), "run `make docs`"


def test_the_page_of_sql_is_current(conn: psycopg.Connection) -> None:
    written = (reference.DOCS / "sql.md").read_text(encoding="utf-8")
    assert written == reference.sql_page(conn), "run `make freeze docs`"


def test_page_of_the_views_is_current(conn: psycopg.Connection) -> None:
    written = monitoring_page.PAGE.read_text(encoding="utf-8")
    assert written == monitoring_page.page(conn), "run `make freeze docs`"


def test_the_figures_on_speed_are_those_of_the_results() -> None:
    assert speed_table.short_table() in speed_table.README.read_text(encoding="utf-8"), "make docs"
    assert speed_table.speed_table() in speed_table.PAGE.read_text(encoding="utf-8"), "make docs"
    assert speed_table.inbox_line() in speed_table.INBOX.read_text(encoding="utf-8"), "make docs"


def test_the_figures_of_the_page_on_events_are_those_of_the_results() -> None:
    assert speed_table.events_table() in speed_table.EVENTS.read_text(encoding="utf-8"), "make docs"


@pytest.mark.parametrize(
    ("what", "query"),
    [
        (
            "functions",
            """SELECT p.oid::regprocedure FROM pg_proc p
               WHERE p.pronamespace IN ('public'::regnamespace, 'mailgres'::regnamespace)
                 AND p.prorettype <> 'trigger'::regtype
                 AND obj_description(p.oid, 'pg_proc') IS NULL""",
        ),
        (
            "tables",
            """SELECT c.oid::regclass FROM pg_class c
               WHERE c.relnamespace IN ('public'::regnamespace, 'mailgres'::regnamespace)
                 AND c.relkind IN ('r', 'v') AND c.relname <> 'schema_version'
                 AND obj_description(c.oid, 'pg_class') IS NULL""",
        ),
        (
            "columns of email_queue",
            """SELECT attname FROM pg_attribute
               WHERE attrelid = 'email_queue'::regclass AND attnum > 0 AND NOT attisdropped
                 AND col_description(attrelid, attnum) IS NULL""",
        ),
    ],
)
def test_every_object_of_the_database_has_a_comment(
    conn: psycopg.Connection, what: str, query: str
) -> None:
    assert conn.execute(query).fetchall() == [], f"{what} without COMMENT ON"
