"""A database that cannot hold every text is refused, and nothing is changed in it."""

from __future__ import annotations

import psycopg
import pytest

from mailgres import migrate
from mailgres.errors import MigrationFailed
from support.postgres import Connect, Server

DATABASE = "mailgres_test_encoding"


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_only_a_utf8_database_is_migrated(server: Server, connect: Connect, encoding: str) -> None:
    admin = connect(server.url)
    admin.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
    admin.execute(f"CREATE DATABASE {DATABASE} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
    try:
        url = psycopg.conninfo.make_conninfo(server.url, dbname=DATABASE)
        with pytest.raises(MigrationFailed) as refused:
            migrate.upgrade(url)
        assert f"the encoding of the database is {encoding}" in refused.value.message
        assert "UTF8" in (refused.value.hint or "")
        with psycopg.connect(url, autocommit=True, client_encoding="utf8") as connection:
            found = connection.execute("SELECT FROM pg_namespace WHERE nspname = 'mailgres'")
            assert found.rowcount == 0
    finally:
        admin.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
