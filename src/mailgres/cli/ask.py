"""One way for operators' commands to ask the database, and to say what it refused."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres import database, queries
from mailgres.errors import MailgresError, UnknownProvider, UnknownRoute
from mailgres.settings.kinds import suggestion
from mailgres.sqlstates import from_database

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

QUERIES = queries.load("operator.sql")
TIMEOUT = "5s"
_NO_PRIVILEGE = "42501"


class Operator:
    """The database, as an operator asks it: all in one transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def ask(self, query: str, **parameters: object) -> list[Any]:
        """The first column of what a query gives."""
        rows = self._connection.execute(QUERIES[query], parameters or None)
        return [row[0] for row in rows]

    def suggest(self, error: MailgresError, given: Iterable[str]) -> None:
        """Name the provider or route that was most likely meant, in the error's hint."""
        self._connection.rollback()
        what = "provider" if isinstance(error, UnknownProvider) else "route"
        known = [row[what] for row in self.ask(f"{what}s")]
        unknown = next((name for name in given if name not in known), "")
        if meant := suggestion(unknown, known):
            error.hint = f"Did you mean {meant}? `mailgres {what}s list` shows all."


@contextmanager
def operator(database_url: str | None, *names: str, timeout: str = TIMEOUT) -> Iterator[Operator]:
    """Ask the database in one transaction; an error becomes what a person needs of it.

    `names`: the providers or routes that somebody named, and may have misspelt.
    """
    try:
        with database.connect(database_url) as connection:
            asked = Operator(connection)
            asked.ask("limits", timeout=timeout)
            try:
                yield asked
            except psycopg.Error as error:
                ours = _explained(error)
                if isinstance(ours, UnknownProvider | UnknownRoute):
                    asked.suggest(ours, names)
                raise ours from None
    except psycopg.Error as error:  # of the commit, or of asking for suggestions
        raise _explained(error) from None


def _explained(error: psycopg.Error) -> MailgresError:
    if error.sqlstate == _NO_PRIVILEGE:
        return MailgresError(
            database.first_line(error),
            "Connect as a user with the role: GRANT mailgres_operator TO …, or as the owner.",
        )
    return from_database(error) or MailgresError(
        f"The database refused it: {database.first_line(error)}", "Nothing was changed."
    )
