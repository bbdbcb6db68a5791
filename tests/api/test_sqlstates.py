"""Every error of the database becomes ours, whichever driver brings it."""

from __future__ import annotations

import re
import socket
import traceback
from collections.abc import Iterator

import psycopg
import pytest

import mailgres
from mailgres import errors, resources
from mailgres.errors import MailgresError
from mailgres.sqlstates import from_database
from support.sources import OPENERS, SESSIONS, Source, open_source

ANA = "ana.secret@example.com"


def raised_in_sql() -> set[str]:
    text = "".join(path.read_text() for path in resources.sql_files())
    return set(re.findall(r"'(MG\d{3})'", text))


def classes(cls: type[MailgresError] = MailgresError) -> Iterator[type[MailgresError]]:
    for child in cls.__subclasses__():
        yield child
        yield from classes(child)


def test_every_code_in_sql_has_an_error_and_every_error_a_code_in_sql() -> None:
    assert raised_in_sql() == {cls.sqlstate for cls in classes() if cls.sqlstate}


def test_every_code_brings_message_and_hint(conn: psycopg.Connection) -> None:
    for state in raised_in_sql():
        with pytest.raises(psycopg.Error) as caught:
            conn.execute("SELECT mailgres.refuse(%s, 'what', 'do')", [state])
        error = from_database(caught.value)
        assert error is not None
        assert type(error) is not MailgresError
        assert (error.sqlstate, error.message, error.hint) == (state, "what", "do")


def test_a_code_of_a_newer_schema_is_still_ours(conn: psycopg.Connection) -> None:
    with pytest.raises(psycopg.Error) as caught:
        conn.execute("SELECT mailgres.refuse('MG999', 'what', 'do')")
    error = from_database(caught.value)
    assert type(error) is MailgresError
    assert (error.message, error.hint) == ("what", "do")


@pytest.mark.parametrize("state", ["40001", "40P01", "42501", "57014", "23505"])
def test_errors_for_the_application_stay_those_of_the_driver(
    conn: psycopg.Connection, state: str
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        conn.execute("SELECT mailgres.refuse(%s, 'what', 'do')", [state])
    assert from_database(caught.value) is None


def test_postgresqls_words_about_a_value_are_not_repeated(conn: psycopg.Connection) -> None:
    with pytest.raises(psycopg.Error, match=ANA) as caught:
        conn.execute("SELECT %s::uuid", [ANA])
    error = from_database(caught.value)
    assert isinstance(error, errors.MalformedRequest)
    assert ANA not in f"{error.message} {error.hint}"


@pytest.mark.parametrize("kind", OPENERS)
def test_enqueue_without_a_schema_raises_not_migrated(kind: str, empty_database_url: str) -> None:
    with open_source[kind](empty_database_url) as source:
        with pytest.raises(errors.NotMigrated) as caught:
            source.call(mailgres.enqueue, "welcome_user", ANA)
        assert "`mailgres migrate`" in str(caught.value.hint)
        assert ANA not in "".join(traceback.format_exception(caught.value))
        source.rollback()
        for action in (mailgres.cancel, mailgres.retry):
            with pytest.raises(errors.NotMigrated):
                source.call(action, "6f9619ff-8b86-4d01-b42d-00cf4fc964ff")
            source.rollback()
        with pytest.raises(errors.NotMigrated):
            source.call(mailgres.enqueue_many, [{"recipient_email": ANA}])


def test_enqueue_with_an_older_schema_raises_not_migrated(conn: psycopg.Connection) -> None:
    conn.execute("DROP FUNCTION enqueue_email")
    conn.execute(
        "CREATE FUNCTION enqueue_email(uuid, text, text, jsonb) RETURNS uuid"
        " LANGUAGE sql RETURN NULL::uuid"
    )
    with pytest.raises(errors.NotMigrated):
        mailgres.enqueue(conn, "welcome_user", ANA)


def test_a_broken_connection_raises_database_unreachable(
    source: Source, conn: psycopg.Connection
) -> None:
    source.execute("SELECT 1")
    conn.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with pytest.raises(errors.DatabaseUnreachable) as caught:
        source.call(mailgres.enqueue, "welcome_user", ANA)
    assert caught.value.hint
    assert ANA not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("kind", SESSIONS)
def test_a_port_without_a_server_raises_database_unreachable(kind: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody else gets the port, and nobody answers
        url = f"postgresql://nobody@127.0.0.1:{closed.getsockname()[1]}/nothing"
        with (
            open_source[kind](url) as source,
            pytest.raises(errors.DatabaseUnreachable, match="cannot be reached"),
        ):
            source.call(mailgres.enqueue, "welcome_user", ANA)


@pytest.mark.parametrize("kind", ["connection-psycopg", "connection-psycopg2"])
def test_a_closed_connection_below_sqlalchemy_raises_database_unreachable(
    kind: str, database_url: str
) -> None:
    with open_source[kind](database_url) as source:
        source.execute("SELECT 1")
        source.connection.connection.dbapi_connection.close()
        with pytest.raises(errors.DatabaseUnreachable):
            source.call(mailgres.enqueue, "welcome_user", ANA)


def test_a_closed_connection_below_asyncpg_raises_database_unreachable(database_url: str) -> None:
    with open_source["async-connection-asyncpg"](database_url) as source:
        source.execute("SELECT 1")
        raw = source.wait(source.connection.get_raw_connection())
        source.wait(raw.driver_connection.close())
        with pytest.raises(errors.DatabaseUnreachable):
            source.call(mailgres.enqueue, "welcome_user", ANA)


def test_a_closed_connection_raises_database_unreachable(database_url: str) -> None:
    connection = psycopg.connect(database_url)
    connection.close()
    with pytest.raises(errors.DatabaseUnreachable):
        mailgres.enqueue(connection, "welcome_user", ANA)
