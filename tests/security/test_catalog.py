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
    ("installation", "role"),
    [
        *(("plain", role) for role in (PUBLIC, *OURS)),
        *(("supabase", role) for role in (PUBLIC, *OURS, *SUPABASE)),
    ],
    indirect=["installation"],
)


def test_every_function_has_intended_grants(queue: Queue) -> None:
    assert {row.name for row in queue.rows(FUNCTIONS)} == EXECUTE.keys() | INTERNAL


def test_every_table_has_intended_grants(queue: Queue) -> None:
    found = queue.rows(f"SELECT name FROM ({RELATIONS}) r WHERE {HAVE_ROWS}")
    assert {row.name for row in found} == TABLES.keys()


@EVERYBODY
def test_each_role_may_call_exactly_the_intended_functions(installation: Queue, role: str) -> None:
    found = installation.rows(
        f"SELECT name FROM ({FUNCTIONS}) f WHERE has_function_privilege(%s, oid, 'EXECUTE')", role
    )
    expected = {name for name, roles in EXECUTE.items() if role in roles}
    assert {row.name for row in found} == expected


def table_privileges(installation: Queue, role: str) -> dict[str, set[str]]:
    maintain = ["MAINTAIN"] if installation.conn.info.server_version >= 170000 else []
    found = installation.rows(
        "SELECT name, ARRAY(SELECT p FROM unnest(%s::text[]) p"
        " WHERE has_table_privilege(%s, oid, p)) AS may"
        f" FROM ({RELATIONS}) r WHERE {HAVE_ROWS}",
        *(PRIVILEGES + maintain, role),
    )
    return {row.name: set(row.may) for row in found if row.may}


@EVERYBODY
def test_each_role_has_exactly_the_intended_rights_on_tables(
    installation: Queue, role: str
) -> None:
    expected = {name: roles[role] for name, roles in TABLES.items() if role in roles}
    assert table_privileges(installation, role) == expected


@EVERYBODY
def test_no_role_has_rights_on_sequences(installation: Queue, role: str) -> None:
    open_to_role = installation.rows(
        f"SELECT name FROM ({RELATIONS}) r WHERE CASE relkind WHEN 'S'"
        " THEN has_sequence_privilege(%s, oid, 'USAGE, SELECT, UPDATE') END",
        role,
    )
    assert open_to_role == []


@EVERYBODY
def test_each_role_has_exactly_the_intended_rights_on_schemas(
    installation: Queue, role: str
) -> None:
    asked = [("mailgres", "USAGE"), ("mailgres", "CREATE"), ("public", "CREATE")]
    may = tuple(
        installation.value("SELECT has_schema_privilege(%s, %s, %s)", role, *ask) for ask in asked
    )
    assert may == (role in SCHEMA_USAGE, False, False)


def may_use_column(role: str, privilege: str, table: str, column: str) -> bool:
    by_column = role == ANALYST and privilege == "SELECT" and column in OPEN.get(table, ())
    by_view = role in (ANALYST, SERVICE) and privilege == "SELECT"
    by_column |= by_view and column in OPEN_TO_VIEWS.get(table, ())
    return by_column or privilege in TABLES.get(table, {}).get(role, ())


@EVERYBODY
def test_each_role_has_exactly_the_intended_rights_on_columns(
    installation: Queue, role: str
) -> None:
    """A column is readable where its table is; otherwise only columns for analysts are."""
    found = installation.rows(
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
def test_every_column_is_public_or_personal(queue: Queue, table: str) -> None:
    found = queue.rows(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass"
        " AND attnum > 0 AND NOT attisdropped",
        table,
    )
    assert PERSONAL[table].isdisjoint(OPEN[table])
    assert {row.attname for row in found} == PERSONAL[table] | OPEN[table]


def test_no_role_can_pass_on_its_rights(installation: Queue) -> None:
    """No role may pass on its rights."""
    passed_on = installation.rows(
        f"SELECT name FROM ({RELATIONS}) r JOIN pg_class c USING (oid), aclexplode(c.relacl) a"
        " WHERE a.is_grantable AND a.grantee <> c.relowner"
    )
    assert passed_on == []


def test_every_table_of_the_contract_has_row_security(installation: Queue) -> None:
    """On every table of the contract, and no policy that is for everybody."""
    tables = installation.rows(f"SELECT * FROM ({RELATIONS}) r WHERE relkind IN ('r', 'p')")
    public = {row.name: row.relrowsecurity for row in tables if row.name.startswith("public.")}
    assert public == {name: True for name in TABLES.keys() - VIEWS if name.startswith("public.")}
    policies = installation.rows(
        "SELECT * FROM pg_policies WHERE schemaname IN ('public', 'mailgres')"
    )
    assert {name for policy in policies for name in policy.roles} <= set(OURS)


def test_views_show_what_their_reader_may_see(installation: Queue) -> None:
    found = installation.rows(
        "SELECT relnamespace::regnamespace || '.' || relname AS name,"
        " coalesce(reloptions, '{}') AS options FROM pg_class"
        f" WHERE relkind IN ('v', 'm') AND relnamespace {OBJECTS}"
    )
    assert {row.name for row in found} == VIEWS
    assert all("security_invoker=true" in row.options for row in found)


def test_row_security_lets_in_exactly_the_roles_with_grants(installation: Queue) -> None:
    """Roles with rights on a table of the contract see its rows, and no other role does."""
    policies = installation.rows("SELECT tablename, roles[1] AS role, cmd, qual FROM pg_policies")
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


def test_security_definer_functions_fix_their_search_path(installation: Queue) -> None:
    """They trust no search_path, and belong to the role that migrated."""
    migrator = installation.value(
        "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'mailgres'"
    )
    definers = [row for row in installation.rows(FUNCTIONS) if row.prosecdef]
    assert definers
    for row in definers:
        assert "search_path=pg_catalog, pg_temp" in row.settings, row.signature
        assert row.owner == migrator, row.signature


def test_functions_that_roles_may_call_run_as_the_owner(installation: Queue) -> None:
    """So that no caller needs a privilege on a table; a clock, an id, a sum, a check need none."""
    definers = {row.name for row in installation.rows(FUNCTIONS) if row.prosecdef}
    assert EXECUTE.keys() - definers == {
        *("mailgres.now", "mailgres.uuid_v7", "mailgres.round_robin_priority"),
        *FIELD_CHECKS,
    }


def test_no_function_is_overloaded(queue: Queue) -> None:
    """PostgREST does not take overloads well, and nor do people."""
    signatures: dict[str, list[str]] = {}
    for row in queue.rows(FUNCTIONS):
        signatures.setdefault(row.name, []).append(row.signature)
    assert [found for found in signatures.values() if len(found) > 1] == []


def test_arguments_beyond_the_contract_have_defaults(queue: Queue) -> None:
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


def test_everything_that_a_role_may_use_has_a_comment(queue: Queue) -> None:
    """What people name in their SQL has a comment."""
    silent = queue.rows(
        f"SELECT name FROM ({RELATIONS}) r WHERE relkind IN ('r', 'v')"
        " AND starts_with(name, 'public.') AND obj_description(oid, 'pg_class') IS NULL"
        f" UNION ALL SELECT name FROM ({FUNCTIONS}) f"
        " WHERE starts_with(name, 'public.') AND obj_description(oid, 'pg_proc') IS NULL"
    )
    assert silent == []
