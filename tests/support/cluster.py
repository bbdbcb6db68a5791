"""A server of a test run's own, for what belongs to all databases of one: roles; and Supabase's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from mailgres import embedded, migrate
from mailgres.embedded import EmbeddedError
from support.grants import SUPABASE
from support.postgres import GIVEN_URL, Server, database_name, open_server

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
        """Make a database whose owner is not a superuser; return the owner's URL."""
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
def supabase_roles(cluster: Cluster) -> Iterator[None]:
    """The roles of Supabase's API."""
    cluster.admin.execute(SUPABASE_ROLES)
    yield
    cluster.drop_roles(*SUPABASE)


@contextmanager
def supabase_project(cluster: Cluster, migrations: Path) -> Iterator[str]:
    """A project on Supabase after `mailgres migrate` by its owner; give the owner's URL."""
    # Supabase's `postgres` is no superuser.
    with cluster.owner("CREATEROLE BYPASSRLS") as url:
        with psycopg.connect(url) as connection:
            connection.execute(SUPABASE_DEFAULTS)
        migrate.upgrade(url, directory=migrations)
        yield url
