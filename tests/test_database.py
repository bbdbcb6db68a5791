"""Any spelling of a database's address, and no password in any message."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from mailgres.database import connect, conninfo, describe, first_line
from mailgres.errors import BadDatabaseUrl, DatabaseUnreachable
from support.postgres import Server


@pytest.mark.parametrize(
    "url",
    [
        "postgres://me:p%40ss@db:6543/mail",
        "postgresql://me:p%40ss@db:6543/mail",
        "postgresql+psycopg://me:p%40ss@db:6543/mail",
        "  postgresql+asyncpg://me:p%40ss@db:6543/mail\n",
        "host=db port=6543 user=me password=p@ss dbname=mail",
    ],
)
def test_every_form_of_a_database_url_is_understood(url: str) -> None:
    assert conninfo_to_dict(conninfo(url)) == {
        "host": "db",
        "port": "6543",
        "user": "me",
        "password": "p@ss",
        "dbname": "mail",
        "connect_timeout": "10",
        "application_name": "mailgres",
        "client_encoding": "UTF8",
    }


def test_options_of_the_url_override_ours() -> None:
    url = "postgresql://db/mail?connect_timeout=3&application_name=mine&sslmode=require"
    given = conninfo_to_dict(conninfo(url, application_name="mailgres migrate"))
    assert given["connect_timeout"] == "3"
    assert given["application_name"] == "mine"
    assert given["sslmode"] == "require"


@pytest.mark.parametrize("url", [None, "", "  "])
def test_a_missing_database_url_is_a_clear_error(url: str | None) -> None:
    with pytest.raises(BadDatabaseUrl, match="No database was named"):
        conninfo(url)


@pytest.mark.parametrize(
    "url",
    [
        "se-cret",
        "http://me:se-cret@db/mail",
        "postgresql://me:se%cret@db/mail",
        "postgresql://me:a@se-cret@db/mail",
        "postgresql://me:se/cret@db/mail",
        "postgresql://me:1/cret@db/mail",
        "postgresql://db/mail?cret=1",
        "postgresql://me:se-cret@db:port/mail",
    ],
)
def test_bad_urls_are_not_repeated(url: str) -> None:
    with pytest.raises(BadDatabaseUrl) as raised:
        connect(url)
    error = raised.value
    assert "cret" not in f"{error} {error.hint} {error.__cause__}"
    assert error.__suppress_context__ or error.__context__ is None


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://me:secret@db:6543/mail", "db:6543/mail"),
        ("postgresql://a:1,b:2/mail", "a,b:1,2/mail"),
        ("postgresql:///mail", "localhost:5432/mail"),
        ("hostaddr=10.0.0.1 user=me", "10.0.0.1:5432/me"),
    ],
)
def test_a_database_url_is_described_without_its_password(url: str, text: str) -> None:
    assert describe(url) == text


def test_an_unreachable_database_is_reported_without_its_password() -> None:
    with pytest.raises(DatabaseUnreachable, match="Connection refused") as raised:
        connect("postgresql://me:secret@127.0.0.1:1/mail")
    assert "secret" not in str(raised.value)
    assert "\n" not in raised.value.message


def test_a_missing_database_is_reported_as_unreachable(server: Server) -> None:
    url = server.url.rpartition("/")[0] + "/no_such_database"
    with pytest.raises(DatabaseUnreachable, match='"no_such_database" does not exist'):
        connect(url)


def test_connections_have_our_settings(server: Server) -> None:
    with connect(server.url, application_name="a test", autocommit=True) as connection:
        assert connection.autocommit
        assert connection.prepare_threshold is None
        row = connection.execute("SELECT current_setting('application_name')").fetchone()
        assert row == ("a test",)


def test_the_first_line_of_an_error_ends_without_a_dot() -> None:
    assert first_line(psycopg.OperationalError("it failed.\n\tIs it running?")) == "it failed"
    assert first_line(psycopg.OperationalError()) == "OperationalError"
