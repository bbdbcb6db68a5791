"""A migration binds no planted object, and takes over no schema of another owner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from mailgres import migrate
from mailgres.errors import MigrationFailed
from security.conftest import Cluster, cluster
from support.planted import alarms, restartable, uproot
from support.postgres import Connect, Server, dump, run_script
from support.schema import HEAD, add_revision, copy_migrations, objects

__all__ = ["cluster"]

# The names that a first migration used to bind: an exact match wins over pg_catalog's.
OVERLOADS = """
    CREATE FUNCTION public.times(float8, int) RETURNS float8 LANGUAGE plpgsql
        AS $$ BEGIN PERFORM public.planted('*'); RETURN 0; END $$;
    CREATE OPERATOR public.* (LEFTARG = float8, RIGHTARG = int, FUNCTION = public.times);
    CREATE FUNCTION public.floor(numeric, int DEFAULT 0) RETURNS numeric LANGUAGE plpgsql
        AS $$ BEGIN PERFORM public.planted('floor'); RETURN 0; END $$;
"""


@pytest.fixture
def planter(server: Server, empty_database_url: str, connect: Connect) -> Iterator[str]:
    """A role that has planted all it can in `public`, where everybody may create."""
    with server.role() as role:
        connection = connect(empty_database_url)
        restartable(connection, role)
        with connection.transaction():
            connection.execute(f"SET LOCAL ROLE {role}")
            connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
            connection.execute(OVERLOADS)
        yield role
        connection.execute(f"DROP OWNED BY {role} CASCADE")


def upgrade(url: str, migrations: Path) -> None:
    migrate.upgrade(url, directory=migrations)


def print_and_run(url: str, migrations: Path) -> None:
    run_script(url, migrate.script(directory=migrations), "-v", "ON_ERROR_STOP=1")


@pytest.mark.parametrize("act", [upgrade, print_and_run])
def test_a_migration_among_planted_objects_makes_the_same_schema(  # noqa: PLR0917
    empty_database_url: str,
    database_url: str,
    planter: str,
    migrations: Path,
    connect: Connect,
    act: object,
) -> None:
    assert callable(act)
    act(empty_database_url, migrations)
    connection = connect(empty_database_url)
    assert alarms(connection) == 0
    uproot(connection, planter)
    assert dump(empty_database_url) == dump(database_url)


@pytest.fixture
def owner(cluster: Cluster) -> Iterator[str]:
    """Yield the URL of a database for its owner, which is not a superuser."""
    with cluster.owner("CREATEROLE") as url:
        yield url


@pytest.fixture
def other(cluster: Cluster, owner: str) -> Iterator[psycopg.Connection]:
    """Another role that may create schemas there."""
    with (
        cluster.server.role() as name,
        psycopg.connect(cluster.superuser_url(owner), autocommit=True) as connection,
    ):
        row = connection.execute("SELECT current_database()").fetchone()
        assert row
        connection.execute(f"GRANT CREATE ON DATABASE {row[0]} TO {name}")
        connection.execute(f"SET SESSION AUTHORIZATION {name}")
        yield connection
        connection.execute("RESET SESSION AUTHORIZATION")
        connection.execute(f"DROP OWNED BY {name} CASCADE")


def name_of(connection: psycopg.Connection) -> str:
    row = connection.execute("SELECT current_user").fetchone()
    assert row
    return str(row[0])


VERSION_TABLE = """
    CREATE TABLE mailgres.schema_version (version_num varchar(32) PRIMARY KEY);
    INSERT INTO mailgres.schema_version VALUES ('0001_initial');
    GRANT USAGE ON SCHEMA mailgres TO PUBLIC;
    GRANT ALL ON mailgres.schema_version TO PUBLIC;
"""
VERSION_VIEW = """
    CREATE VIEW mailgres.schema_version AS SELECT '0001_initial'::text AS version_num;
    GRANT USAGE ON SCHEMA mailgres TO PUBLIC;
    GRANT ALL ON mailgres.schema_version TO PUBLIC;
"""


@pytest.mark.parametrize("contents", ["", VERSION_TABLE, VERSION_VIEW])
@pytest.mark.parametrize("act", [upgrade, print_and_run])
def test_a_schema_of_another_owner_is_refused(  # noqa: PLR0917
    cluster: Cluster,
    owner: str,
    other: psycopg.Connection,
    migrations: Path,
    contents: str,
    act: object,
) -> None:
    assert callable(act)
    other.execute("CREATE SCHEMA mailgres")
    other.execute("GRANT ALL ON SCHEMA mailgres TO PUBLIC")
    if contents:
        other.execute(contents)
    superuser = cluster.superuser_url(owner)
    before = dump(superuser)
    with pytest.raises((MigrationFailed, AssertionError), match="mailgres belongs to") as raised:
        act(owner, migrations)
    if isinstance(raised.value, MigrationFailed):
        assert raised.value.hint
        assert "Nothing was changed" in raised.value.hint
    assert dump(superuser) == before
    with pytest.raises(MigrationFailed, match="mailgres belongs to"):
        migrate.upgrade(superuser, directory=migrations)


def test_a_view_is_no_version_table(
    cluster: Cluster, owner: str, other: psycopg.Connection
) -> None:
    """A view runs code of its owner as the one who reads it."""
    other.execute("CREATE SCHEMA mailgres")
    other.execute(VERSION_VIEW)
    assert migrate.current(owner) is None
    assert migrate.current(cluster.superuser_url(owner)) is None


def test_a_schema_that_holds_something_else_is_refused(
    empty_database_url: str, migrations: Path, connect: Connect
) -> None:
    connection = connect(empty_database_url)
    connection.execute("CREATE SCHEMA mailgres")
    connection.execute("CREATE FUNCTION mailgres.helper() RETURNS int LANGUAGE sql RETURN 1")
    with pytest.raises(MigrationFailed, match="holds objects that are not of mailgres") as raised:
        migrate.upgrade(empty_database_url, directory=migrations)
    assert raised.value.hint
    assert "ALTER SCHEMA mailgres RENAME" in raised.value.hint
    assert objects(empty_database_url) == ["schema mailgres"]


def test_an_empty_schema_of_the_migrating_role_is_used(
    empty_database_url: str, migrations: Path, connect: Connect
) -> None:
    connect(empty_database_url).execute("CREATE SCHEMA mailgres")
    migrate.upgrade(empty_database_url, directory=migrations)
    assert migrate.current(empty_database_url) == HEAD


# All that a migration would call, made by a role that waits for a superuser.
FAKE_INSTALLATION = f"""
    CREATE SCHEMA mailgres;
    {VERSION_TABLE}
    CREATE TABLE public.email_queue (id int);
    CREATE FUNCTION mailgres.remember_objects() RETURNS void LANGUAGE plpgsql
        AS $$ BEGIN RESET ROLE; CREATE ROLE made_by_planted_code; END $$;
    CREATE FUNCTION mailgres.secure() RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$;
"""


@pytest.mark.parametrize("act", [upgrade, print_and_run])
def test_a_planted_installation_runs_nothing_as_the_superuser_who_migrates(
    cluster: Cluster, owner: str, other: psycopg.Connection, migrations: Path, act: object
) -> None:
    """SET ROLE does not take a superuser's rights away: what runs then can RESET it."""
    assert callable(act)
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
    other.execute(FAKE_INSTALLATION)
    with pytest.raises((MigrationFailed, AssertionError), match="mailgres belongs to"):
        act(cluster.superuser_url(owner), migrations)
    made = "SELECT FROM pg_roles WHERE rolname = 'made_by_planted_code'"
    assert cluster.admin.execute(made).fetchone() is None


@pytest.mark.parametrize("who", ["a superuser", "a member"])
def test_migrating_what_another_role_owns_is_refused(
    cluster: Cluster, owner: str, other: psycopg.Connection, migrations: Path, who: str
) -> None:
    migrate.upgrade(owner, directory=migrations)
    role = urlsplit(owner).username
    url = cluster.superuser_url(owner)
    if who == "a member":
        member = name_of(other)
        cluster.admin.execute(f"GRANT {role} TO {member}")
        cluster.admin.execute(f"ALTER ROLE {member} LOGIN PASSWORD 'x'")
        parts = urlsplit(url)
        url = parts._replace(netloc=f"{member}:x@{parts.hostname}:{parts.port}").geturl()
    with pytest.raises(MigrationFailed, match="mailgres belongs to") as raised:
        migrate.upgrade(url, directory=migrations)
    assert raised.value.hint
    assert f"-c role={role}" in raised.value.hint
    migrate.upgrade(f"{url}?options=-c%20role%3D{role}", directory=migrations)


def test_a_superuser_migrates_what_another_superuser_owns(
    cluster: Cluster, owner: str, migrations: Path, tmp_path: Path
) -> None:
    """What a later migration makes belongs to the owner of the rest."""
    role = urlsplit(owner).username
    cluster.admin.execute(f"ALTER ROLE {role} SUPERUSER")
    migrate.upgrade(owner, directory=migrations)
    newer = copy_migrations(migrations, tmp_path / "migrations")
    add_revision(newer, "CREATE TABLE mailgres.more ();", "DROP TABLE mailgres.more;")
    notices: list[str] = []
    superuser = cluster.superuser_url(owner)
    migrate.upgrade(superuser, on_notice=notices.append, directory=newer)
    with psycopg.connect(owner) as connection:
        row = connection.execute(
            "SELECT count(DISTINCT relowner), min(pg_get_userbyid(relowner)) = current_user"
            " FROM pg_class WHERE relnamespace = 'mailgres'::regnamespace"
        ).fetchone()
        assert row == (1, True)
    assert len(notices) == 1
    assert "which owns the schema mailgres" in notices[0]


def test_an_object_of_another_owner_in_the_schema_is_refused(
    owner: str, other: psycopg.Connection, migrations: Path
) -> None:
    """It could be bound into what the next migration makes."""
    migrate.upgrade(owner, directory=migrations)
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute("GRANT CREATE, USAGE ON SCHEMA mailgres TO PUBLIC")
        other.execute(
            "CREATE FUNCTION mailgres.now(int) RETURNS timestamptz"
            " LANGUAGE sql RETURN pg_catalog.now()"
        )
        connection.execute("REVOKE ALL ON SCHEMA mailgres FROM PUBLIC")
    with pytest.raises(MigrationFailed, match=r"mailgres\.now\(integer\) .*belongs to") as raised:
        migrate.upgrade(owner, directory=migrations)
    assert raised.value.hint
    assert "DROP" in raised.value.hint


@pytest.mark.parametrize(
    "planted",
    [
        "CREATE VIEW public.email_queue AS SELECT 1 AS id",
        "CREATE TABLE public.email_templates (id int)",
        "CREATE SEQUENCE public.email_logs",
        "CREATE TYPE public.email_queue AS ENUM ('a')",
    ],
)
def test_a_planted_object_with_our_name_is_refused(
    cluster: Cluster, owner: str, other: psycopg.Connection, migrations: Path, planted: str
) -> None:
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
    other.execute(planted)
    superuser = cluster.superuser_url(owner)
    before = dump(superuser)
    with pytest.raises(MigrationFailed, match="already exists") as raised:
        migrate.upgrade(owner, directory=migrations)
    assert raised.value.hint
    assert "Nothing was changed" in raised.value.hint
    assert dump(superuser) == before
