"""Run the queries of operators' commands, and explain errors of the database."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres import database, queries
from mailgres.errors import (
    MailgresError,
    UnknownAlertRule,
    UnknownProvider,
    UnknownRetryPolicy,
    UnknownRoute,
    UnknownSuppressionRule,
)
from mailgres.sqlstates import from_database
from mailgres.values.kinds import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

QUERIES = queries.load("cli/support/operator.sql")
TIMEOUT = "5s"
STREAMED = 500
"""Rows in memory at once of a long result."""
_NO_PRIVILEGE = "42501"
_LISTS: dict[type[MailgresError], tuple[str, str, str]] = {
    UnknownProvider: ("providers", "provider", "providers list"),
    UnknownRoute: ("routes", "route", "routes list"),
    UnknownRetryPolicy: ("policies", "name", "policies list"),
    UnknownAlertRule: ("alert_rules", "name", "alerts rules"),
    UnknownSuppressionRule: ("suppression_rules", "name", "suppressions rules"),
}
"""For each error about an unknown name: the query that lists the known names, its key, and the
command that lists them."""


class Operator:
    """The database for operators' commands: one transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def limit(self, timeout: str = TIMEOUT) -> None:
        """Set the statement timeout and the search_path of the transaction."""
        self.ask("limits", timeout=timeout)

    def ask(self, query: str, **parameters: object) -> list[Any]:
        """Return the first column of a query's result."""
        rows = self.connection.execute(QUERIES[query], parameters or None)
        return [row[0] for row in rows]

    def savepoint(self) -> AbstractContextManager[Any]:
        """Return a savepoint: a failure rolls back only what came after it."""
        return self.connection.transaction()

    def stream(self, query: str, **parameters: object) -> Iterator[Any]:
        """Yield the first column of a query's result, a few rows at a time."""
        with self.connection.cursor(name="mailgres_stream") as cursor:
            cursor.itersize = STREAMED
            cursor.execute(QUERIES[query], parameters or None)
            for row in cursor:
                yield row[0]

    def suggest(self, error: MailgresError, given: Iterable[str]) -> None:
        """Suggest the nearest name in the error's hint."""
        self.connection.rollback()
        self.limit()
        listing, key, command = _LISTS[type(error)]
        known = [row[key] for row in self.ask(listing)]
        unknown = next((name for name in given if name not in known), "")
        if meant := suggestion(unknown, known):
            error.hint = f"Did you mean {meant}? `mailgres {command}` shows all."


@contextmanager
def operator(
    database_url: str | None, *names: str, timeout: str = TIMEOUT, dry_run: bool = False
) -> Iterator[Operator]:
    """Open a transaction; turn errors of the database into readable errors.

    `names`: the providers, routes, policies or rules that the user gave and may have misspelt.
    `dry_run`: the transaction is rolled back.
    """
    try:
        with database.connect(database_url) as connection:
            asked = Operator(connection)
            asked.limit(timeout)
            try:
                yield asked
                if dry_run:
                    connection.rollback()
            except psycopg.Error as error:
                ours = explained(error)
                if type(ours) in _LISTS:
                    asked.suggest(ours, names)
                raise ours from None
    except psycopg.Error as error:  # of the commit, or of the query for suggestions
        raise explained(error) from None


def explained(error: psycopg.Error) -> MailgresError:
    """Return a readable error for an error of the database."""
    if error.sqlstate == _NO_PRIVILEGE:
        return MailgresError(
            database.first_line(error),
            "Connect as a user with the role: GRANT mailgres_operator TO …, or as the owner.",
        )
    return from_database(error) or MailgresError(
        f"The database refused it: {database.first_line(error)}", "Nothing was changed."
    )
