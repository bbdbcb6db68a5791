"""Functions, views, triggers and comments: a migration replaces those that differ, and no other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from mailgres import migrate, resources
from mailgres.errors import MigrationFailed
from mailgres.schema import objects
from mailgres.schema.sources import Sources
from support.postgres import Connect, Server, dump, run_script
from support.schema import HEAD

Edit = Callable[..., Sources]

# Rows of the catalog that a replacement writes again; a trigger that fires changes none.
ROWS = """
    SELECT p.oid::regprocedure::text AS name, p.xmin::text FROM pg_proc p
    WHERE p.pronamespace IN ('mailgres'::regnamespace, 'public'::regnamespace)
    UNION ALL
    SELECT w.ev_class::regclass::text, w.xmin::text FROM pg_rewrite w WHERE w.oid >= 16384
    UNION ALL
    SELECT t.tgname, t.xmin::text FROM pg_trigger t WHERE NOT t.tgisinternal
"""
OURS = """
    SELECT c.oid::regclass::text FROM pg_class c
    WHERE c.relnamespace IN ('public'::regnamespace, 'mailgres'::regnamespace) AND c.relkind IN ('r', 'v')
      AND c.relname NOT IN ('schema_version', 'schema_objects', 'schema_releases')
"""  # noqa: E501
LOCKED = f"SELECT l.relation::regclass::text FROM pg_locks l WHERE l.pid = pg_backend_pid() AND l.relation::regclass::text IN ({OURS})"  # noqa: E501


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    """Change a copy of `sql/`: in one file, replace a text."""
    root = tmp_path / "sql"
    shutil.copytree(resources.sql_directory(), root)

    def change(file: str, old: str, new: str) -> Sources:
        path = root / file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        assert old in text
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace(old, new, 1) if old else text + new, encoding="utf-8")
        return Sources(root)

    return change


def rows(connection: psycopg.Connection) -> dict[str, str]:
    return dict(connection.execute(ROWS).fetchall())


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before | after if before.get(name) != after.get(name)}


def test_a_migration_with_nothing_to_do_locks_no_table_and_no_view(
    database_url: str, conn: psycopg.Connection, connect: Connect
) -> None:
    before = rows(conn)
    other = connect(autocommit=False)
    tables = [name for (name,) in conn.execute(f"{OURS} AND c.relkind = 'r'")]
    other.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
    assert migrate.upgrade(database_url).replaced == 0
    assert migrate.differences(database_url) == ([], [])
    other.rollback()
    assert rows(conn) == before
    with conn.transaction():
        assert objects.replace(conn, Sources()) == 0
        assert conn.execute(LOCKED).fetchall() == []


def test_only_the_function_that_changed_is_replaced(
    database_url: str, conn: psycopg.Connection, edit: Edit
) -> None:
    before = rows(conn)
    newer = edit("30_engine/05_common/20_time_text.sql", "' UTC'", "' UTC '")
    change = migrate.upgrade(database_url, sources=newer)
    assert (change.before, change.after, change.replaced) == (HEAD, HEAD, 1)
    assert changed(before, rows(conn)) == {"mailgres.time_text(timestamp with time zone)"}
    assert conn.execute("SELECT mailgres.time_text('2026-01-02 03:04Z')").fetchone() == (
        "2026-01-02 03:04:00 UTC ",
    )
    assert migrate.upgrade(database_url, sources=newer).replaced == 0


def test_an_object_that_was_changed_or_dropped_is_restored(
    database_url: str, conn: psycopg.Connection
) -> None:
    before = dump(database_url)
    conn.execute("ALTER FUNCTION mailgres.claim SECURITY INVOKER")
    conn.execute("DROP VIEW email_kpis")
    conn.execute("ALTER TABLE email_queue DISABLE TRIGGER wake_after_insert")
    conn.execute("COMMENT ON COLUMN email_queue.priority IS 'mine'")
    _, found = migrate.differences(database_url)
    assert {(each.kind, each.state) for each in found} >= {
        ("function", "changed"),
        ("view", "missing"),
        ("trigger", "changed"),
        ("comment", "changed"),
    }
    assert migrate.upgrade(database_url).replaced > 0
    assert migrate.differences(database_url) == ([], [])
    assert sorted(dump(database_url).splitlines()) == sorted(before.splitlines())


def test_a_rule_of_the_application_on_a_view_is_not_dropped_with_it(
    conn: psycopg.Connection,
) -> None:
    conn.execute("CREATE RULE mine AS ON INSERT TO public.email_alerts DO INSTEAD NOTHING")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="rule mine on view"):
        conn.execute("SELECT mailgres.drop_object('view', 'public.email_alerts'::regclass)")


def test_a_grant_to_a_role_with_a_percent_sign_survives(
    conn: psycopg.Connection, server: Server
) -> None:
    with server.role() as role:
        name = f"{role}%off"
        conn.execute(f'ALTER ROLE {role} RENAME TO "{name}"')
        try:
            conn.execute(f'GRANT SELECT ON public.email_alerts TO "{name}"')
            grants = (
                "SELECT format(g.statement, 'x') FROM mailgres.grants_on('view', %s::regclass) g"
            )
            found = [row[0] for row in conn.execute(grants, ["public.email_alerts"])]
            assert f'GRANT SELECT ON TABLE x TO "{name}"' in found
            conn.execute(f'REVOKE ALL ON public.email_alerts FROM "{name}"')
        finally:
            conn.execute(f'ALTER ROLE "{name}" RENAME TO {role}')


def test_grants_survive_when_a_view_is_dropped_and_created_again(
    database_url: str, conn: psycopg.Connection, edit: Edit, server: Server
) -> None:
    with server.role() as reader:
        conn.execute(f"GRANT SELECT ON mailgres.counted_by_template TO {reader} WITH GRANT OPTION")
        conn.execute(f"GRANT SELECT ON email_kpis TO {reader}")
        old = "CREATE VIEW mailgres.counted_by_template"
        (place,) = [
            each.file
            for each in Sources().statements
            if each.wanted and each.wanted.name == "mailgres.counted_by_template"
        ][:1]
        text = (resources.sql_directory() / place).read_text(encoding="utf-8")
        statement = text[text.index(old) :].partition(";")[0]
        select = statement.index("SELECT")
        newer = edit(
            place,
            statement,
            statement[:select]
            + "SELECT 1 AS first_column, x.* FROM ("
            + statement[select:]
            + ") x",
        )
        before = conn.execute("SELECT 'mailgres.counted_by_template'::regclass::oid").fetchone()
        migrate.upgrade(database_url, sources=newer)
        after = conn.execute("SELECT 'mailgres.counted_by_template'::regclass::oid").fetchone()
        assert after != before, "it was replaced in place"
        for name, privilege in (
            ("mailgres.counted_by_template", "SELECT WITH GRANT OPTION"),
            ("email_kpis", "SELECT"),
        ):
            row = conn.execute("SELECT has_table_privilege(%s, %s, %s)", [reader, name, privilege])
            assert row.fetchone() == (True,), name
        assert migrate.differences(database_url, sources=newer) == ([], [])
        conn.execute(f"DROP OWNED BY {reader}")


def test_an_argument_with_a_default_replaces_the_old_signature_and_keeps_its_grants(
    database_url: str, conn: psycopg.Connection, edit: Edit, server: Server
) -> None:
    with server.role() as caller:
        conn.execute(f"GRANT EXECUTE ON FUNCTION calculate_next_retry_time TO {caller}")
        newer = edit(
            "40_api/60_processors.sql",
            "calculate_next_retry_time(retry_count int",
            "calculate_next_retry_time(retry_count int, more text DEFAULT NULL",
        )
        migrate.upgrade(database_url, sources=newer)
        found = conn.execute(
            "SELECT oid::regprocedure::text, has_function_privilege(%s, oid, 'EXECUTE')"
            " FROM pg_proc WHERE proname = 'calculate_next_retry_time'",
            [caller],
        ).fetchall()
        assert found == [("calculate_next_retry_time(integer,text)", True)]
        conn.execute(f"DROP OWNED BY {caller}")


def test_what_an_earlier_version_made_is_dropped_and_nothing_else(
    database_url: str, conn: psycopg.Connection, edit: Edit
) -> None:
    conn.execute("CREATE FUNCTION mine() RETURNS int LANGUAGE sql RETURN 1")
    made = "CREATE FUNCTION mailgres.short_lived() RETURNS int LANGUAGE sql RETURN 1;\n"
    migrate.upgrade(database_url, sources=edit("90_more/10_more.sql", "", made))
    assert conn.execute("SELECT mailgres.short_lived()").fetchone() == (1,)
    assert [each.state for each in migrate.differences(database_url)[1]] == ["obsolete"]
    migrate.upgrade(database_url)
    row = conn.execute("SELECT to_regproc('mailgres.short_lived'), to_regproc('mine')").fetchone()
    assert row == (None, "mine")


def test_an_object_of_the_application_that_stands_in_the_way_is_named_and_nothing_changes(
    database_url: str, conn: psycopg.Connection, edit: Edit
) -> None:
    made = "CREATE VIEW mailgres.short_lived AS SELECT 1 AS one;\n"
    migrate.upgrade(database_url, sources=edit("90_more/10_more.sql", "", made))
    conn.execute("CREATE VIEW mine AS SELECT one FROM mailgres.short_lived")
    before = dump(database_url)
    with pytest.raises(
        MigrationFailed, match=r"short_lived has to be dropped, and view public\.mine"
    ) as raised:
        migrate.upgrade(database_url)
    assert raised.value.hint
    assert raised.value.hint.startswith("Nothing was changed.")
    assert dump(database_url) == before
    conn.execute("DROP VIEW mine")
    migrate.upgrade(database_url)


def test_a_function_of_the_application_with_a_name_of_a_new_one_is_left_alone(
    database_url: str, conn: psycopg.Connection, edit: Edit
) -> None:
    conn.execute("CREATE FUNCTION preview_email(int) RETURNS int LANGUAGE sql RETURN 1")
    made = "CREATE FUNCTION public.preview_email(p_id int) RETURNS int LANGUAGE sql RETURN 2;\n"
    before = dump(database_url)
    with pytest.raises(MigrationFailed, match=r"preview_email\(integer\) already exists") as raised:
        migrate.upgrade(database_url, sources=edit("90_more/10_more.sql", "", made))
    assert "ALTER FUNCTION … RENAME" in (raised.value.hint or "")
    assert dump(database_url) == before


def trigger_changed(edit: Edit) -> Sources:
    return edit(
        "30_engine/10_triggers/30_wake.sql", "FOR EACH ROW WHEN (", "FOR EACH ROW WHEN (true AND "
    )


def test_a_lock_that_is_never_given_ends_with_an_error_and_changes_nothing(
    database_url: str,
    conn: psycopg.Connection,
    connect: Connect,
    edit: Edit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(migrate, "LOCK_ATTEMPTS", 2)
    newer = trigger_changed(edit)
    other = connect(autocommit=False)
    other.execute("UPDATE email_queue SET priority = 1")
    before = rows(conn)
    with pytest.raises(MigrationFailed, match="lock timeout") as raised:
        migrate.upgrade(database_url, sources=newer)
    assert raised.value.hint
    assert "holds a lock (pg_stat_activity shows it)" in raised.value.hint
    assert rows(conn) == before
    other.rollback()
    assert migrate.upgrade(database_url, sources=newer).replaced == 1
    assert len(changed(before, rows(conn))) == 1


def test_a_lock_that_is_given_later_is_waited_for_in_short_attempts(
    database_url: str, connect: Connect, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = connect(autocommit=False)
    other.execute("UPDATE email_queue SET priority = 1")
    paused = []

    def pause(seconds: float) -> None:
        paused.append(seconds)
        other.rollback()

    monkeypatch.setattr("mailgres.migrate.time.sleep", pause)
    assert migrate.upgrade(database_url, sources=trigger_changed(edit)).replaced == 1
    assert paused == [migrate.LOCK_PAUSE_SECONDS]


def test_the_script_replaces_what_differs_and_can_be_run_twice(
    database_url: str, conn: psycopg.Connection, edit: Edit
) -> None:
    newer = edit("30_engine/05_common/20_time_text.sql", "' UTC'", "' UTC '")
    printed = migrate.script(sources=newer)
    before = rows(conn)
    said = run_script(database_url, printed, "-v", "ON_ERROR_STOP=1")
    assert "1 functions, views, triggers and comments were created, replaced or dropped" in said
    machinery = {"find_objects", "compare_objects", "replace_objects"}
    names = {
        name.partition("(")[0].removeprefix("mailgres.") for name in changed(before, rows(conn))
    }
    assert names >= machinery | {"time_text"}
    assert "nothing to do" in run_script(database_url, printed, "-v", "ON_ERROR_STOP=1")
    assert migrate.status(database_url, sources=newer).is_current


def test_a_downgrade_returns_to_the_objects_of_the_earlier_version(
    database_url: str, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dump(database_url)
    made = "CREATE VIEW public.email_more AS SELECT id FROM public.email_queue;\n"
    edit("90_more/10_more.sql", "", made)
    newer = edit("30_engine/05_common/20_time_text.sql", "' UTC'", "' UTC '")
    with monkeypatch.context() as patched:
        patched.setattr("mailgres.schema.objects.version", lambda: "99.0.0")
        migrate.upgrade(database_url, sources=newer)
    earlier = migrate.status(database_url).release
    assert earlier
    assert earlier.version == "99.0.0"
    from mailgres import __version__

    migrate.downgrade(database_url, __version__)
    assert dump(database_url) == before
    assert migrate.status(database_url).is_current
    assert migrate.upgrade(database_url).replaced == 0


def test_every_object_of_sql_is_recorded(conn: psycopg.Connection) -> None:
    row = conn.execute("SELECT count(*) FROM mailgres.schema_objects").fetchone()
    assert row == (len(Sources().wanted),)
