"""A migrated database for each kind of place: a plain server, and a project on Supabase."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from mailgres import embedded, migrate
from mailgres.embedded import EmbeddedError
from support.fixtures import clock, committed, queue, shared_connection, shared_url
from support.grants import SUPABASE
from support.postgres import GIVEN_URL, Server, database_name, open_server
from support.queue import Queue

__all__ = ["clock", "committed", "queue", "shared_connection", "shared_url"]

PASSWORD = "only for this server"

# What a project on Supabase has before anybody migrates: the roles of its API, and that
# whatever the owner makes in `public` is open to them.
SUPABASE_ROLES = """
    CREATE ROLE anon NOLOGIN;
    CREATE ROLE authenticated NOLOGIN;
    CREATE ROLE service_role NOLOGIN BYPASSRLS;
"""
SUPABASE_DEFAULTS = """
    GRANT USAGE ON SCHEMA public TO anon, authenticated, service_role;
    ALTER DEFAULT PRIVILEGES IN SCHEMA public
        GRANT ALL ON TABLES TO anon, authenticated, service_role;
    ALTER DEFAULT PRIVILEGES IN SCHEMA public
        GRANT ALL ON FUNCTIONS TO anon, authenticated, service_role;
    ALTER DEFAULT PRIVILEGES IN SCHEMA public
        GRANT ALL ON SEQUENCES TO anon, authenticated, service_role;
"""


class Cluster:
    """A server of its own, because roles belong to all databases of one."""

    def __init__(self, server: Server, admin: psycopg.Connection) -> None:
        self.server = server
        self.admin = admin

    @contextmanager
    def owner(self, attributes: str = "") -> Iterator[str]:
        """Make a database with an owner who is no superuser; give the owner's URL."""
        with self.server.role() as name, self.server.database() as url:
            role, database = sql.Identifier(name), sql.Identifier(database_name(url))
            login = sql.SQL("ALTER ROLE {} LOGIN PASSWORD {} " + attributes)
            self.admin.execute(login.format(role, sql.Literal(PASSWORD)))
            change = sql.SQL("ALTER DATABASE {} OWNER TO {}")
            self.admin.execute(change.format(database, role))
            parts = urlsplit(url)
            place = f"{name}:{PASSWORD.replace(' ', '%20')}@{parts.hostname}:{parts.port}"
            yield parts._replace(netloc=place).geturl()

    def superuser_url(self, url: str) -> str:
        """The URL of the same database for the superuser."""
        return urlsplit(self.server.url)._replace(path=urlsplit(url).path).geturl()

    def drop_roles(self, *names: str) -> None:
        """Drop roles of which no database is left."""
        for name in names:
            self.admin.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A fresh server in which no role of ours exists yet."""
    with TemporaryDirectory(prefix="mailgres-tests-") as directory:
        Path(directory).chmod(0o711)
        try:
            started = embedded.server(Path(directory), settings={"synchronous_commit": "off"})
            url = started.__enter__()
        except EmbeddedError as error:
            (pytest.skip if GIVEN_URL else pytest.fail)(f"no server of its own: {error}")
        try:
            with open_server(url) as server, psycopg.connect(url, autocommit=True) as admin:
                yield Cluster(server, admin)
        finally:
            started.__exit__(None, None, None)


@pytest.fixture(scope="session")
def supabase_url(cluster: Cluster, migrations: Path) -> Iterator[str]:
    """A project on Supabase after `mailgres migrate` by its owner, as the superuser sees it."""
    cluster.admin.execute(SUPABASE_ROLES)
    # Supabase's `postgres` is no superuser.
    with cluster.owner("CREATEROLE BYPASSRLS") as url:
        with psycopg.connect(url) as connection:
            connection.execute(SUPABASE_DEFAULTS)
        migrate.upgrade(url, directory=migrations)
        yield cluster.superuser_url(url)
    cluster.drop_roles(*SUPABASE)


def in_vain(url: str) -> Iterator[Queue]:
    with (
        psycopg.connect(url, autocommit=True) as connection,
        connection.transaction(force_rollback=True),
    ):
        yield Queue(connection)


@pytest.fixture(params=["plain", "supabase"])
def place(request: pytest.FixtureRequest) -> Iterator[Queue]:
    """A queue in each kind of place, in a transaction that is rolled back."""
    supabase = request.param == "supabase"
    url: str = request.getfixturevalue("supabase_url" if supabase else "shared_url")
    yield from in_vain(url)


@pytest.fixture
def supabase(supabase_url: str) -> Iterator[Queue]:
    """A queue in a project on Supabase, in a transaction that is rolled back."""
    yield from in_vain(supabase_url)


@contextmanager
def acting_as(queue: Queue, role: str) -> Iterator[Queue]:
    """Be another role for a while; what it did stays."""
    with queue.conn.transaction():
        queue.run(f"SET LOCAL ROLE {role}")
        yield queue
        queue.run("RESET ROLE")


def forbidden(queue: Queue, role: str, statement: str, *parameters: Any) -> bool:
    """Whether a role is refused a statement for want of a privilege."""
    try:
        with acting_as(queue, role):
            queue.run(statement, *parameters)
    except psycopg.errors.InsufficientPrivilege:
        return True
    return False
