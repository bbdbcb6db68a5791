"""The database as the page sees it: short transactions, each as the database role of the person.

A page that only shows something reads in a read-only transaction. PostgreSQL refuses what a role
may not do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from mailgres.errors import MailgresError
from mailgres.page.users import DATABASE_ROLES, Role
from mailgres.web import Pool

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from mailgres.page.users import User

    Row = dict[str, Any]
    Connection = psycopg.Connection[Any]

T = TypeVar("T")

REFUSED = MailgresError("Your role may not do this", "PostgreSQL refused it: ask an operator.")


class PageStore:
    """Runs the queries of the page."""

    def __init__(self, url: str) -> None:
        self._pool = Pool(url, "page/page.sql", "mailgres page", REFUSED)
        self.asked = 0
        """How many transactions were run."""

    def check(self) -> None:
        """Refuse a login that may not act as the two roles."""
        for role in DATABASE_ROLES.values():
            try:
                self._pool.run(("reader", {"role": role}))
            except MailgresError as error:
                if error is not REFUSED:
                    raise
                raise MailgresError(
                    f"The database role of the page may not act as {role}",
                    f"Let it: GRANT {', '.join(DATABASE_ROLES.values())} TO its role;",
                ) from None

    def read(self, role: Role, query: str, /, **parameters: object) -> list[Row]:
        """Run a query as a role, read-only."""
        return self.read_all(role, (query, parameters))[0]

    def read_all(self, role: Role, *steps: tuple[str, dict[str, object]]) -> list[list[Row]]:
        """Run queries as a role in one read-only transaction."""
        self.asked += 1
        first: tuple[str, dict[str, object]] = ("reader", {"role": DATABASE_ROLES[role]})
        return self._pool.run(first, *steps)[1:]

    def change(self, user: User, query: str, /, **parameters: object) -> list[Row]:
        """Run a change as the role of a person, whose name goes to the log."""
        self.asked += 1
        role = DATABASE_ROLES[user.role]
        return self._pool.run(("writer", {"role": role, "actor": user.name}), (query, parameters))[
            1
        ]

    def run_bulk_actions(self, chunk: int) -> tuple[int, bool]:
        """Do a chunk of a bulk action; return its emails, and whether an action is running.

        The action knows who started it. A request did not ask for this, so it is not counted.
        """
        _, (done,), (left,) = self._pool.run(
            ("writer", {"role": DATABASE_ROLES[Role.OPERATOR], "actor": ""}),
            ("run_bulk_actions", {"chunk": chunk}),
            ("is_bulk_action_running", {}),
        )
        return done["emails"], left["is_running"]

    def read_with(self, role: Role, call: Callable[[Connection], T]) -> T:
        """Run a function with a connection as a role, read-only."""
        self.asked += 1
        return self._pool.using(("reader", {"role": DATABASE_ROLES[role]}), call)

    def change_with(self, user: User, call: Callable[[Connection], T]) -> T:
        """Run a function that changes something as the role of a person."""
        self.asked += 1
        role = DATABASE_ROLES[user.role]
        return self._pool.using(("writer", {"role": role, "actor": user.name}), call)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()
