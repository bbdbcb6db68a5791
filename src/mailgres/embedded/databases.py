"""Databases on a server: their URLs; created if missing."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from .errors import EmbeddedError


def database_url(url: str, name: str) -> str:
    """Return the URL of another database of the server."""
    return urlsplit(url)._replace(path="/" + quote(name, safe="")).geturl()


def database(url: str, name: str) -> str:
    """Return the URL of a database of the server, after creating it if it does not exist."""
    # The supervisor imports this package, too, and should not load the driver.
    import psycopg  # noqa: PLC0415
    from psycopg import errors, sql  # noqa: PLC0415

    from mailgres.database import connect, first_line  # noqa: PLC0415

    exists = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = %s)"
    create = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    try:
        with connect(url, autocommit=True) as connection:
            row = connection.execute(exists, (name,)).fetchone()
            if row != (True,):
                connection.execute(create)
    except (errors.DuplicateDatabase, errors.UniqueViolation):
        pass  # another process created it first
    except psycopg.Error as error:
        raise EmbeddedError(
            f"Cannot create the database {name!r}: {first_line(error)}",
            "The user of the URL needs the right to create databases.",
        ) from error
    return database_url(url, name)
