"""What default privileges give on our objects is revoked; explicit grants stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from mailgres import migrate
from mailgres.errors import MigrationFailed
from security.conftest import Cluster
from support.postgres import run_script
from support.schema import HEAD, NEXT, add_revision, copy_migrations, objects

KINDS = ("TABLES", "SEQUENCES", "FUNCTIONS", "TYPES")
IN_PUBLIC = [f"IN SCHEMA public GRANT ALL ON {kind}" for kind in KINDS]
EVERYWHERE = [f"GRANT ALL ON {kind}" for kind in (*KINDS, "SCHEMAS")]
PASSED_ON = [f"{grant} TO {{role}} WITH GRANT OPTION" for grant in EVERYWHERE]

RIGHTS = """
    SELECT kind || ' ' || object FROM (
        SELECT 'relation' AS kind, c.oid::regclass::text AS object, c.relacl AS acl FROM pg_class c
        UNION ALL SELECT 'column', a.attrelid::regclass || '.' || a.attname, a.attacl FROM pg_attribute a
        UNION ALL SELECT 'function', p.oid::regprocedure::text, p.proacl FROM pg_proc p
        UNION ALL SELECT 'type', t.oid::regtype::text, t.typacl FROM pg_type t
        UNION ALL SELECT 'schema', n.nspname, n.nspacl FROM pg_namespace n) x
    CROSS JOIN LATERAL aclexplode(x.acl) a
    WHERE a.grantee = %s::regrole ORDER BY 1
"""  # noqa: E501


def rights(url: str, role: str) -> list[str]:
    """Everything in a database that a role has a right on."""
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute(RIGHTS, [role])]


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def url(cluster: Cluster) -> Iterator[str]:
    """Yield a database for its owner, which is not a superuser."""
    with cluster.owner("CREATEROLE") as url:
        yield url


@pytest.fixture
def web_anon(cluster: Cluster, url: str) -> Iterator[str]:
    """A role of an API, by the name that PostgREST's manual gives it."""
    cluster.admin.execute("CREATE ROLE web_anon NOLOGIN")
    yield "web_anon"
    run(cluster.superuser_url(url), "DROP OWNED BY web_anon CASCADE")
    cluster.drop_roles("web_anon")


def give(url: str, grants: list[str], role: str) -> None:
    texts = [grant if "{role}" in grant else grant + " TO {role}" for grant in grants]
    run(url, *(f"ALTER DEFAULT PRIVILEGES {text.format(role=role)}" for text in texts))


@pytest.mark.parametrize("how", ["migrate", "script"])
@pytest.mark.parametrize("grants", [IN_PUBLIC, EVERYWHERE, PASSED_ON])
def test_default_privileges_of_another_role_reach_nothing_of_ours(
    url: str, web_anon: str, migrations: Path, grants: list[str], how: str
) -> None:
    give(url, grants, web_anon)
    notices: list[str] = []
    if how == "script":
        said = run_script(url, migrate.script(directory=migrations), "-v", "ON_ERROR_STOP=1")
        notices = [line for line in said.splitlines() if "NOTICE" in line]
    else:
        migrate.upgrade(url, on_notice=notices.append, directory=migrations)
    assert rights(url, web_anon) == []
    reported = [notice for notice in notices if "revoked from web_anon: " in notice]
    assert any("EXECUTE on " in each and each.endswith("(functions)") for each in reported)
    assert any("SELECT" in each and each.endswith("(tables)") for each in reported)


def test_default_privileges_do_not_reach_objects_of_later_revisions(
    url: str, web_anon: str, migrations: Path, tmp_path: Path
) -> None:
    """Whether it is new, or dropped and created again by the same name."""
    migrate.upgrade(url, directory=migrations)
    give(url, EVERYWHERE, web_anon)
    newer = copy_migrations(migrations, tmp_path / "migrations")
    add_revision(
        newer,
        "CREATE TABLE mailgres.more (id int GENERATED ALWAYS AS IDENTITY);"
        "CREATE FUNCTION mailgres.more() RETURNS int LANGUAGE sql RETURN 1;"
        "CREATE TYPE mailgres.other AS (id int);"
        "DROP FUNCTION public.calculate_next_retry_time;"
        "CREATE FUNCTION public.calculate_next_retry_time(retry_count int) RETURNS timestamptz"
        " LANGUAGE sql RETURN pg_catalog.now();",
    )
    migrate.upgrade(url, directory=newer)
    assert rights(url, web_anon) == []


MAKES_ALL_KINDS = """
    CREATE TABLE mailgres.more (id int GENERATED ALWAYS AS IDENTITY);
    CREATE TABLE public.email_more (id int GENERATED ALWAYS AS IDENTITY, more int);
    CREATE FUNCTION mailgres.more() RETURNS int LANGUAGE sql RETURN 1;
    CREATE DOMAIN mailgres.more_text AS text;
    CREATE TYPE mailgres.other AS (id int);
"""
INDEX_OF_A_LARGE_TABLE = """\
-- not in a transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS email_more_idx ON public.email_more ({column});
"""
SECOND = f"{int(HEAD[:4]) + 2:04}_index"


def run_migration(how: str, url: str, directory: Path) -> None:
    if how == "script":
        run_script(url, migrate.script(directory=directory), "-v", "ON_ERROR_STOP=1")
    else:
        migrate.upgrade(url, directory=directory)


@pytest.mark.parametrize("how", ["migrate", "script"])
@pytest.mark.parametrize("start", ["empty", "installed"])
def test_default_privileges_reach_nothing_when_a_migration_commits_and_stops(  # noqa: PLR0917
    url: str, web_anon: str, migrations: Path, tmp_path: Path, start: str, how: str
) -> None:
    """A revision that is not in a transaction fails: what came before it is committed."""
    granted = []
    if start == "installed":
        migrate.upgrade(url, directory=migrations)
        run(url, f"GRANT SELECT ON public.email_kpis, public.email_queue TO {web_anon}")
        granted = rights(url, web_anon)
        assert len(granted) == 2
    give(url, EVERYWHERE, web_anon)
    newer = copy_migrations(migrations, tmp_path / "migrations")
    add_revision(newer, MAKES_ALL_KINDS)
    add_revision(newer, INDEX_OF_A_LARGE_TABLE.format(column="nosuch"), "", SECOND, before=NEXT)
    with pytest.raises((MigrationFailed, AssertionError), match="nosuch"):
        run_migration(how, url, newer)
    assert rights(url, web_anon) == granted
    assert objects(url) if (start, how) != ("empty", "migrate") else not objects(url)

    add_revision(newer, INDEX_OF_A_LARGE_TABLE.format(column="more"), "", SECOND, before=NEXT)
    run_migration(how, url, newer)
    assert migrate.current(url) == SECOND
    # Only what sql/ knows is secured in public; the table of this test is not in it.
    assert [each for each in rights(url, web_anon) if "email_more" not in each] == granted


def test_explicit_grants_survive_every_later_migrate(
    url: str, web_anon: str, migrations: Path, tmp_path: Path
) -> None:
    migrate.upgrade(url, directory=migrations)
    run(
        url,
        "GRANT EXECUTE ON FUNCTION public.enqueue_emails TO web_anon",
        "GRANT SELECT ON public.email_kpis TO web_anon WITH GRANT OPTION",
        "GRANT SELECT (id, status) ON public.email_queue TO web_anon",
        "GRANT USAGE ON SCHEMA mailgres TO web_anon",
    )
    granted = rights(url, web_anon)
    assert len(granted) == 5
    migrate.upgrade(url, directory=migrations)
    newer = copy_migrations(migrations, tmp_path / "migrations")
    add_revision(newer, "ALTER TABLE public.email_queue ADD COLUMN more int;")
    migrate.upgrade(url, directory=newer)
    assert rights(url, web_anon) == granted


def test_functions_of_the_rights_that_were_dropped_are_made_again_and_grants_stay(
    url: str, web_anon: str, migrations: Path
) -> None:
    migrate.upgrade(url, directory=migrations)
    run(
        url,
        "DROP FUNCTION mailgres.remember_objects, mailgres.revoke_unintended, mailgres.secure,"
        " mailgres.unintended_grants, mailgres.intended_rights, mailgres.rights,"
        " mailgres.intended_grants CASCADE",
        "GRANT SELECT (payload) ON public.email_queue TO web_anon",
    )
    migrate.upgrade(url, directory=migrations)
    assert rights(url, web_anon) == ["column email_queue.payload"]


@pytest.mark.parametrize("role", ["PUBLIC", "anon", "authenticated"])
def test_everybody_loses_every_right_at_every_migrate(
    supabase_roles: None,  # noqa: ARG001
    url: str,
    migrations: Path,
    role: str,
) -> None:
    migrate.upgrade(url, directory=migrations)
    run(
        url,
        f"GRANT ALL ON public.email_queue, mailgres.settings TO {role}",
        f"GRANT SELECT (payload), UPDATE (payload) ON public.email_queue TO {role}",
        f"GRANT EXECUTE ON FUNCTION public.enqueue_emails, mailgres.claim TO {role}",
        f"GRANT ALL ON SEQUENCE public.email_logs_id_seq TO {role}",
        f"GRANT USAGE ON TYPE mailgres.status TO {role}",
        f"GRANT ALL ON SCHEMA mailgres TO {role}",
    )
    notices: list[str] = []
    migrate.upgrade(url, on_notice=notices.append, directory=migrations)
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT * FROM mailgres.unintended_grants()").fetchall()
    assert found == []
    assert all(notice.startswith(f"revoked from {role}: ") for notice in notices)
    assert len(notices) >= 5


def test_what_a_role_passed_on_to_everybody_is_revoked_with_its_option(
    url: str, web_anon: str, migrations: Path
) -> None:
    migrate.upgrade(url, directory=migrations)
    run(
        url,
        f"GRANT {web_anon} TO current_user",
        f"GRANT SELECT ON public.email_kpis TO {web_anon} WITH GRANT OPTION",
        f"SET ROLE {web_anon}; GRANT SELECT ON public.email_kpis TO PUBLIC; RESET ROLE",
    )
    migrate.upgrade(url, directory=migrations)
    with psycopg.connect(url) as connection:
        may = connection.execute(
            "SELECT grantee, privileges, passes_on FROM mailgres.unintended_grants()"
        ).fetchall()
    assert may == [(web_anon, "SELECT", False)]
