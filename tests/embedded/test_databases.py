"""Further databases on the server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

from mailgres import embedded

if TYPE_CHECKING:
    from embedded.harness import ServerDirectory


def test_databases_are_made_when_missing(directory: ServerDirectory) -> None:
    with embedded.server(directory.path) as url:
        for name in ("app", 'Ä "quoted"/50%'):
            for _ in range(2):
                other = embedded.database(url, name)
                with psycopg.connect(other) as connection:
                    row = connection.execute("SELECT current_database()").fetchone()
                assert row == (name,)


def test_databases_may_be_made_by_many_at_once(directory: ServerDirectory) -> None:
    with embedded.server(directory.path) as url, ThreadPoolExecutor(8) as pool:
        urls = set(pool.map(lambda _: embedded.database(url, "app"), range(8)))
    assert urls == {embedded.database_url(url, "app")}


def test_a_role_that_may_not_create_databases_gets_a_clear_error(
    directory: ServerDirectory,
) -> None:
    with embedded.server(directory.path) as url:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
        port = psycopg.conninfo.conninfo_to_dict(url)["port"]
        guest = f"postgresql://guest:guest@127.0.0.1:{port}/postgres"
        with pytest.raises(embedded.EmbeddedError, match="permission denied"):
            embedded.database(guest, "app")


def test_another_database_name_leaves_the_rest_of_the_url_unchanged() -> None:
    url = "postgresql://me:secret@example.com:6543/old?sslmode=require"
    assert (
        embedded.database_url(url, "new")
        == "postgresql://me:secret@example.com:6543/new?sslmode=require"
    )
