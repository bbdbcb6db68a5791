"""The database as the inbox sees it: short transactions on a few connections.

A connection that was lost is replaced at the next request, so that the page comes back as soon as
the database does.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import dict_row

from mailgres import database, queries
from mailgres.errors import DatabaseUnreachable, MailgresError
from mailgres.sqlstates import from_database

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from uuid import UUID

    Row = dict[str, Any]

MOST_CONNECTIONS = 8
"""Connections at a time; further requests wait."""
_NO_PRIVILEGE = "42501"


class InboxStore:
    """Runs the queries of the inbox; every error is one of ours."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._queries = queries.load("inbox/inbox.sql")
        self._idle: list[psycopg.Connection[Any]] = []
        self._closed = False
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)

    def check(self) -> None:
        """Refuse a role that may not use the inbox."""
        (row,) = self._ask("may_use")
        if not row["has_function_privilege"]:
            role = row["current_user"]
            raise MailgresError(
                f"The role {role} may not read the inbox",
                f"Connect as a member of mailgres_operator: GRANT mailgres_operator TO {role};",
            )

    def emails(self, search: str | None, before: datetime | None, limit: int) -> list[Row]:
        """Return a page of the inbox, newest first."""
        return self._ask("inbox", search=search, before=before, limit=limit)

    def email(self, queue_id: UUID) -> Row | None:
        """Return everything about an email; None if the inbox does not have it."""
        found = self._ask("email", id=queue_id)
        return found[0]["inbox_email"] if found else None

    def file(self, queue_id: UUID, position: int) -> Row | None:
        """Return an attachment with its content."""
        found = self._ask("file", id=queue_id, position=position)
        return found[0] if found else None

    def state(self, queue_id: UUID | None = None) -> str:
        """Return a text that changes when the inbox, or this email, looks different."""
        return str(self._ask("state", id=queue_id)[0]["inbox_state"])

    def delete(self, ids: Sequence[UUID] | None) -> int:
        """Delete emails, or up to 1000 of all; return how many."""
        return int(self._ask("delete", ids=ids)[0]["delete_from_inbox"])

    def faults(self) -> list[Row]:
        """Return the faults that wait for an email."""
        return self._ask("faults")

    def set_fault(self, fault: str, recipient: str | None, template: str | None) -> None:
        """Let the next such email fail."""
        self._ask("set_fault", fault=fault, recipient=recipient, template=template)

    def remove_fault(self, fault_id: int) -> None:
        """Remove a fault that has not happened."""
        self._ask("remove_fault", id=fault_id)

    def templates(self) -> list[str]:
        """Return the names of the templates."""
        return [row["template_type"] for row in self._ask("templates")]

    def close(self) -> None:
        """Close the connections: those in use when they are given back."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for connection in idle:
            connection.close()

    def _ask(self, query: str, **parameters: object) -> list[Row]:
        try:
            with (
                self._connection() as connection,
                connection.cursor(row_factory=dict_row) as cursor,
            ):
                return cursor.execute(self._queries[query], parameters or None).fetchall()
        except psycopg.Error as error:
            raise _explained(error) from None

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
            connection = known or database.connect(self._url, application_name="mailgres inbox")
            try:
                connection.execute(self._queries["limits"])
            except psycopg.Error:
                connection.close()
                if known is None:
                    raise
            else:
                return connection


def _explained(error: psycopg.Error) -> MailgresError:
    if error.sqlstate == _NO_PRIVILEGE:
        return MailgresError(
            "The database role of the inbox may not read it",
            "Connect as a member of mailgres_operator.",
        )
    if isinstance(error, psycopg.errors.QueryCanceled):
        return DatabaseUnreachable("The database took more than 5 seconds", "Try again.")
    return from_database(error) or MailgresError("The database refused the query", "See its log.")
