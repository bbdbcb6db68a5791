"""Short transactions on a few connections.

A connection that was lost is replaced at the next request, so that a page comes back as soon as
the database does.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.rows import dict_row

from mailgres import database, queries
from mailgres.errors import DatabaseUnreachable, MailgresError
from mailgres.sqlstates import from_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Row = dict[str, Any]
    Connection = psycopg.Connection[Any]

T = TypeVar("T")

MOST_CONNECTIONS = 8
"""Connections at a time; further requests wait."""
NO_PRIVILEGE = "42501"
NOT_STORABLE = MailgresError(
    "PostgreSQL cannot store a character of this text", "Remove characters such as NUL."
)


TOO_SLOW = DatabaseUnreachable("The database took more than 5 seconds", "Try again.")
"""The error of a transaction that was rolled back after its time limit."""


class Pool:
    """Runs the queries of a file; every error is one of ours.

    The query `limits` starts each transaction. `refused`: the error of a role without a right.
    """

    def __init__(self, url: str, file: str, name: str, refused: MailgresError) -> None:
        self._url = url
        self._name = name
        self._refused = refused
        self._queries = queries.load(file)
        self._idle: list[psycopg.Connection[Any]] = []
        self._closed = False
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)

    def ask(self, query: str, /, **parameters: object) -> list[Row]:
        """Run a query in a transaction of its own."""
        return self.run((query, parameters))[0]

    def run(self, *steps: tuple[str, dict[str, object]]) -> list[list[Row]]:
        """Run queries in one transaction; return the rows of each."""
        try:
            with (
                self._connection() as connection,
                connection.cursor(row_factory=dict_row) as cursor,
            ):
                return [
                    cursor.execute(self._queries[query], parameters or None).fetchall()
                    for query, parameters in steps
                ]
        except UnicodeEncodeError:
            raise NOT_STORABLE from None
        except psycopg.Error as error:
            raise self._explained(error) from None

    def using(self, step: tuple[str, dict[str, object]], call: Callable[[Connection], T]) -> T:
        """Run a query, and then a function with the connection, in one transaction."""
        try:
            with self._connection() as connection:
                connection.execute(self._queries[step[0]], step[1] or None)
                return call(connection)
        except psycopg.Error as error:
            raise self._explained(error) from None

    def close(self) -> None:
        """Close the connections: those in use when they are given back."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for connection in idle:
            connection.close()

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield a connection in a transaction with our limits."""
        with self._free:
            connection = self._open()
            try:
                yield connection
                connection.commit()
            except BaseException:
                connection.close()
                raise
            with self._lock:
                if not self._closed:
                    self._idle.append(connection)
                    return
            connection.close()

    def _open(self) -> psycopg.Connection[Any]:
        """Return a connection that answers: one that is idle, or a new one."""
        while True:
            with self._lock:
                known = self._idle.pop() if self._idle else None
            connection = known or database.connect(self._url, application_name=self._name)
            try:
                connection.execute(self._queries["limits"])
            except psycopg.Error:
                connection.close()
                if known is None:
                    raise
            else:
                return connection

    def _explained(self, error: psycopg.Error) -> MailgresError:
        if error.sqlstate == NO_PRIVILEGE:
            return self._refused
        if isinstance(error, psycopg.DataError) and error.sqlstate is None:
            return NOT_STORABLE  # psycopg did not send it
        if isinstance(error, psycopg.errors.QueryCanceled):
            return TOO_SLOW
        return from_database(error) or MailgresError(
            "The database refused the query", "See its log."
        )
