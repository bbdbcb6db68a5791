"""Every object times every role: what the catalog says is what was decided, no more and no less."""

from __future__ import annotations

import pytest

from support.grants import (
    ANALYST,
    EXECUTE,
    FIELD_CHECKS,
    INTERNAL,
    OPEN,
    OPEN_TO_VIEWS,
    OURS,
    PERSONAL,
    PUBLIC,
    SCHEMA_USAGE,
    SERVICE,
    SUPABASE,
    TABLES,
    VIEWS,
)
from support.queue import Queue

OBJECTS = "IN ('public'::regnamespace, 'mailgres'::regnamespace)"
PRIVILEGES = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"]
FUNCTIONS = f"""
    SELECT pronamespace::regnamespace || '.' || proname AS name, oid::regprocedure::text AS signature,
           oid, prosecdef, coalesce(proconfig, '{{}}') AS settings, pg_get_userbyid(proowner) AS owner
    FROM pg_proc WHERE pronamespace {OBJECTS}
"""  # noqa: E501
RELATIONS = f"""
    SELECT relnamespace::regnamespace || '.' || relname AS name, oid, relkind, relrowsecurity
    FROM pg_class WHERE relnamespace {OBJECTS}
"""


HAVE_ROWS = "relkind IN ('r', 'p', 'v', 'm', 'f')"
EVERYBODY = pytest.mark.parametrize(
    ("place", "role"),
    [
        *(("plain", role) for role in (PUBLIC, *OURS)),
        *(("supabase", role) for role in (PUBLIC, *OURS, *SUPABASE)),
    ],
    indirect=["place"],
)


def test_every_function_is_decided(queue: Queue) -> None:
    assert {row.name for row in queue.rows(FUNCTIONS)} == EXECUTE.keys() | INTERNAL


def test_every_table_is_decided(queue: Queue) -> None:
    found = queue.rows(f"SELECT name FROM ({RELATIONS}) r WHERE {HAVE_ROWS}")
    assert {row.name for row in found} == TABLES.keys()


@EVERYBODY
def test_grants_functions(place: Queue, role: str) -> None:
    found = place.rows(
        f"SELECT name FROM ({FUNCTIONS}) f WHERE has_function_privilege(%s, oid, 'EXECUTE')", role
    )
    expected = {name for name, roles in EXECUTE.items() if role in roles}
    assert {row.name for row in found} == expected


def table_privileges(place: Queue, role: str) -> dict[str, set[str]]:
    maintain = ["MAINTAIN"] if place.conn.info.server_version >= 170000 else []
    found = place.rows(
        "SELECT name, ARRAY(SELECT p FROM unnest(%s::text[]) p"
        " WHERE has_table_privilege(%s, oid, p)) AS may"
        f" FROM ({RELATIONS}) r WHERE {HAVE_ROWS}",
        *(PRIVILEGES + maintain, role),
    )
    return {row.name: set(row.may) for row in found if row.may}


@EVERYBODY
def test_grants_tables(place: Queue, role: str) -> None:
    expected = {name: roles[role] for name, roles in TABLES.items() if role in roles}
    assert table_privileges(place, role) == expected


@EVERYBODY
def test_grants_sequences(place: Queue, role: str) -> None:
    open_to_role = place.rows(
        f"SELECT name FROM ({RELATIONS}) r WHERE CASE relkind WHEN 'S'"
        " THEN has_sequence_privilege(%s, oid, 'USAGE, SELECT, UPDATE') END",
        role,
    )
    assert open_to_role == []


@EVERYBODY
def test_grants_schemas(place: Queue, role: str) -> None:
    asked = [("mailgres", "USAGE"), ("mailgres", "CREATE"), ("public", "CREATE")]
    may = tuple(place.value("SELECT has_schema_privilege(%s, %s, %s)", role, *ask) for ask in asked)
    assert may == (role in SCHEMA_USAGE, False, False)


def may_use_column(role: str, privilege: str, table: str, column: str) -> bool:
    by_column = role == ANALYST and privilege == "SELECT" and column in OPEN.get(table, ())
    by_view = role in (ANALYST, SERVICE) and privilege == "SELECT"
    by_column |= by_view and column in OPEN_TO_VIEWS.get(table, ())
    return by_column or privilege in TABLES.get(table, {}).get(role, ())


@EVERYBODY
def test_grants_columns(place: Queue, role: str) -> None:
    """A column is open where its table is; else only what analysts may read."""
    found = place.rows(
        "SELECT name, attname, p AS privilege, has_column_privilege(%s, oid, attnum, p) AS may"
        f" FROM ({RELATIONS}) r JOIN pg_attribute a ON a.attrelid = oid,"
        " unnest('{SELECT,INSERT,UPDATE,REFERENCES}'::text[]) p"
        f" WHERE {HAVE_ROWS} AND attnum > 0 AND NOT attisdropped",
        role,
    )
    wrong = [
        (row.name, row.attname, row.privilege)
        for row in found
        if row.may != may_use_column(role, row.privilege, row.name, row.attname)
    ]
    assert wrong == []


@pytest.mark.parametrize("table", OPEN)
def test_every_column_is_decided(queue: Queue, table: str) -> None:
    found = queue.rows(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass"
        " AND attnum > 0 AND NOT attisdropped",
        table,
    )
    assert PERSONAL[table].isdisjoint(OPEN[table])
    assert {row.attname for row in found} == PERSONAL[table] | OPEN[table]


def test_nothing_can_be_granted_on(place: Queue) -> None:
    """Nobody may pass on what he has."""
    passed_on = place.rows(
        f"SELECT name FROM ({RELATIONS}) r JOIN pg_class c USING (oid), aclexplode(c.relacl) a"
        " WHERE a.is_grantable AND a.grantee <> c.relowner"
    )
    assert passed_on == []


def test_grants_row_security(place: Queue) -> None:
    """On every table of the contract, and no policy that is for everybody."""
    tables = place.rows(f"SELECT * FROM ({RELATIONS}) r WHERE relkind IN ('r', 'p')")
    public = {row.name: row.relrowsecurity for row in tables if row.name.startswith("public.")}
    assert public == {name: True for name in TABLES.keys() - VIEWS if name.startswith("public.")}
    policies = place.rows("SELECT * FROM pg_policies WHERE schemaname IN ('public', 'mailgres')")
    assert {name for policy in policies for name in policy.roles} <= set(OURS)


def test_views_show_what_their_reader_may_see(place: Queue) -> None:
    found = place.rows(
        "SELECT relnamespace::regnamespace || '.' || relname AS name,"
        " coalesce(reloptions, '{}') AS options FROM pg_class"
        f" WHERE relkind IN ('v', 'm') AND relnamespace {OBJECTS}"
    )
    assert {row.name for row in found} == VIEWS
    assert all("security_invoker=true" in row.options for row in found)


def test_policies_follow_the_grants(place: Queue) -> None:
    """Who may read or write a table of the contract sees its rows, and nobody else."""
    policies = place.rows("SELECT tablename, roles[1] AS role, cmd, qual FROM pg_policies")
    found = {(f"public.{policy.tablename}", policy.role): policy.cmd for policy in policies}
    expected = {
        (name, role): "ALL" if "UPDATE" in may else "SELECT"
        for name, roles in TABLES.items()
        if name.startswith("public.") and name not in VIEWS
        for role, may in roles.items()
        if role in OURS
    }
    expected |= {(name, ANALYST): "SELECT" for name in OPEN}
    assert found == expected


def test_grants_security_definers(place: Queue) -> None:
    """They trust no search_path, and belong to whoever migrated."""
    migrator = place.value(
        "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'mailgres'"
    )
    definers = [row for row in place.rows(FUNCTIONS) if row.prosecdef]
    assert definers
    for row in definers:
        assert "search_path=pg_catalog, pg_temp" in row.settings, row.signature
        assert row.owner == migrator, row.signature


def test_what_others_may_call_runs_as_the_owner(place: Queue) -> None:
    """So that no caller needs a privilege on a table; a clock, an id, a sum, a check need none."""
    definers = {row.name for row in place.rows(FUNCTIONS) if row.prosecdef}
    assert EXECUTE.keys() - definers == {
        *("mailgres.now", "mailgres.uuid_v7", "mailgres.round_robin_priority"),
        *FIELD_CHECKS,
    }


def test_one_function_per_name(queue: Queue) -> None:
    """PostgREST does not take overloads well, and nor do people."""
    signatures: dict[str, list[str]] = {}
    for row in queue.rows(FUNCTIONS):
        signatures.setdefault(row.name, []).append(row.signature)
    assert [found for found in signatures.values() if len(found) > 1] == []


def test_optional_arguments_come_last(queue: Queue) -> None:
    """The contract's arguments first, with its names; what is appended has defaults."""
    contract = {
        "enqueue_email": ["p_user_id", "p_template_type", "p_recipient_email", "p_payload"],
        "mark_email_sent": ["p_queue_id", "p_resend_id"],
        "mark_email_failed": ["p_queue_id", "p_error_message"],
        "process_pending_emails_for_retry": ["batch_size"],
        "get_pending_emails_for_retry": ["batch_size"],
        "calculate_next_retry_time": ["retry_count"],
    }
    for name, arguments in contract.items():
        row = queue.row(
            "SELECT proargnames[1:pronargs] AS names, pronargs - pronargdefaults AS required"
            " FROM pg_proc WHERE proname = %s",
            name,
        )
        assert row.names[: len(arguments)] == arguments
        assert row.required <= len(arguments)


def test_grants_everything_is_explained(queue: Queue) -> None:
    """What people name in their SQL has a comment."""
    silent = queue.rows(
        f"SELECT name FROM ({RELATIONS}) r WHERE relkind IN ('r', 'v')"
        " AND starts_with(name, 'public.') AND obj_description(oid, 'pg_class') IS NULL"
        f" UNION ALL SELECT name FROM ({FUNCTIONS}) f"
        " WHERE starts_with(name, 'public.') AND obj_description(oid, 'pg_proc') IS NULL"
    )
    assert silent == []
