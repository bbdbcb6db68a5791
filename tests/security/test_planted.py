"""Objects that a caller plants in its session or in `public` never run as anybody else.

Everything that PostgreSQL itself has is planted again (`support.planted`), in the session's own
schema and in `public`, where everybody may create, and both come first in the caller's path. Then
the caller does everything that it may do (`support.examples`): calls, reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from security.conftest import Cluster
from support.cluster import supabase_project
from support.examples import EXAMPLES, NAMES, SEED, VERBS, WRITES, filled
from support.grants import ANALYST, EXECUTE, PRODUCER, SCHEMA_USAGE, SERVICE, TABLES, VIEWS
from support.grants import OURS as ROLES
from support.planted import PLACES, alarms, restartable
from support.queue import Queue

PATH = "SET LOCAL search_path = pg_temp, public, pg_catalog"


@pytest.fixture(scope="module")
def project(cluster: Cluster, supabase_roles: None, migrations: Path) -> Iterator[str]:  # noqa: ARG001
    """A migrated database with some emails, as the superuser sees it; nothing more is committed."""
    with supabase_project(cluster, migrations) as owner:
        with psycopg.connect(owner) as connection:
            connection.execute(SEED)
        yield cluster.superuser_url(owner)


@pytest.fixture
def conn(project: str) -> Iterator[psycopg.Connection]:
    """A new session, in which nothing of ours has been compiled yet; its transaction is lost."""
    with psycopg.connect(project) as connection:
        yield connection
        connection.rollback()


def within_reach(name: str, role: str) -> bool:
    return name.startswith("public.") or role in SCHEMA_USAGE


def calls(role: str, names: dict[str, str]) -> Iterator[str]:
    """Everything that a role may do, a statement each."""
    for function, roles in EXECUTE.items():
        if role in roles and within_reach(function, role):
            yield f"SELECT * FROM {function}({filled(EXAMPLES[function], names)})"
    for table, rights in TABLES.items():
        if within_reach(table, role):
            yield from reads_and_writes(table, rights.get(role, set()), names)
    if role == ANALYST:
        yield "SELECT id, status, error_message FROM public.email_queue"
        yield "SELECT id, event FROM public.email_logs"


def reads_and_writes(table: str, rights: set[str], names: dict[str, str]) -> Iterator[str]:
    if "SELECT" in rights:
        yield f"SELECT * FROM {table}"
    for privilege in sorted(rights & VERBS.keys()):
        for rest in WRITES[table, privilege]:
            yield f"{VERBS[privilege].format(table)} {filled(rest, names)}"


def test_every_function_has_an_example() -> None:
    assert EXAMPLES.keys() == EXECUTE.keys()


def test_every_permitted_write_has_an_example() -> None:
    writes = {
        (table, privilege)
        for table, roles in TABLES.items()
        for rights in roles.values()
        for privilege in rights & VERBS.keys()
    }
    assert WRITES.keys() == writes


@pytest.mark.parametrize("role", [*ROLES, SERVICE])
def test_nothing_that_a_caller_planted_runs_with_other_rights(
    conn: psycopg.Connection, role: str
) -> None:
    names = dict(conn.execute(NAMES).fetchall()) | {"role": PRODUCER}
    conn.rollback()
    for place in PLACES:
        restartable(conn, role, place)
    failed = {}
    for call in calls(role, names):
        try:
            with conn.transaction(force_rollback=True):
                conn.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
                conn.execute(PATH)
                conn.execute(call.encode())
                conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            # A view shows what its reader may see: a worker is refused some tables below.
            refused = isinstance(error, psycopg.errors.InsufficientPrivilege)
            if not (refused and call.removeprefix("SELECT * FROM ") in VIEWS):
                failed[call] = str(error)
    assert failed == {}
    conn.execute("SET LOCAL search_path = pg_catalog, pg_temp")
    assert {place: alarms(conn, place) for place in PLACES} == dict.fromkeys(PLACES, 0)


REACHED = r"""
    WITH RECURSIVE ours AS (
        SELECT p.* FROM pg_proc p WHERE p.pronamespace IN ('public'::regnamespace, 'mailgres'::regnamespace)
    ), reached AS (
        -- granted to any role
        SELECT p.oid FROM ours p, aclexplode(p.proacl) a WHERE a.grantee <> p.proowner
        UNION
        SELECT t.tgfoid FROM pg_trigger t WHERE NOT t.tgisinternal
        UNION
        -- in a check, a default, an index, a view, a policy, the condition of a trigger
        SELECT d.refobjid FROM pg_depend d
        WHERE d.refclassid = 'pg_proc'::regclass
          AND d.classid IN ('pg_constraint'::regclass, 'pg_attrdef'::regclass, 'pg_class'::regclass,
                            'pg_rewrite'::regclass, 'pg_policy'::regclass, 'pg_trigger'::regclass)
        UNION
        -- called by such a one with the rights and the path of its caller
        SELECT d.refobjid FROM reached r
        JOIN ours p ON p.oid = r.oid AND NOT p.prosecdef AND p.prosqlbody IS NOT NULL
        JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
                        AND d.refclassid = 'pg_proc'::regclass
    )
    SELECT p.oid::regprocedure::text AS name,
           p.prosqlbody IS NOT NULL OR 'search_path=pg_catalog, pg_temp' = ANY (p.proconfig)
           -- or every operator has its schema, and there is no call
           OR p.proname = 'is_state'
              AND regexp_replace(p.prosrc, 'OPERATOR\(pg_catalog\.[^)]*\)', '', 'g')
                  !~ '[-+*/<>~!@#^&|]|[^:]=|\m(?!coalesce)\w+\('
           AS bound
    FROM reached r JOIN ours p ON p.oid = r.oid ORDER BY 1
"""  # noqa: E501


def test_what_runs_with_a_callers_path_is_bound_when_it_is_created_or_sets_its_own(
    installation: Queue,
) -> None:
    """A body in standard SQL is parsed once, when it is migrated; any other at its first call."""
    found = installation.rows(REACHED)
    names = {row.name for row in found}
    assert {"mailgres.uuid_v7()", "mailgres.normalize_manual_update()"} <= names, (
        "defaults and triggers"
    )
    assert [row.name for row in found if not row.bound] == []
