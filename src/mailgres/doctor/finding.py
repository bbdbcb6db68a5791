"""What a check finds, and what it may ask: the settings, the database, the clock."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from psycopg.rows import dict_row
from psycopg.sql import Identifier

from mailgres import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import psycopg

    from mailgres.settings import Settings

Severity = Literal["ok", "info", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info", "ok")

QUERIES = queries.load("doctor/doctor.sql")
OPERATOR = ("GRANT mailgres_operator TO {user}",)
AS_OPERATOR = "run it as a member of mailgres_operator: a worker's role should get no more rights"
ADMINISTRATOR = '"${ADMIN_DATABASE_URL:?is to be the URL of this database for an administrator}"'
"""The shell says so and stops, unless it is set: our own URL is of a user who may not."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: how it is, and the command that mends it."""

    check: str
    severity: Severity
    message: str
    fix: str | None = None


@dataclass(frozen=True)
class DoctorContext:
    """What is examined. Without a connection, only what needs none."""

    settings: Settings
    connection: psycopg.Connection[Any] | None = None
    migrated: bool = False
    """Whether the schema is the one of this package."""
    as_worker: bool = False
    """Whether the settings are those of a worker; else they are of a shell that only asks."""
    nameservers: tuple[str, ...] | None = None
    """Who is asked about domains; None stands for the system's."""
    clock: Callable[[], float] = field(default=time.time)

    def ask(self, query: str, **parameters: object) -> list[dict[str, Any]]:
        """Ask the database a named query."""
        if self.connection is None:
            raise RuntimeError("a check that asks the database runs with one only")
        with self.connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(QUERIES[query], parameters)
            return cursor.fetchall()

    def one(self, query: str, **parameters: object) -> dict[str, Any]:
        """Ask a query that gives one row."""
        (row,) = self.ask(query, **parameters)
        return row

    @property
    def database(self) -> str:
        """The database as a word of a shell: where its URL is from, as it may hold a password."""
        origin = self.settings.origin("database_url")
        if origin.layer == "environment":
            return f'"${origin.text.split()[0]}"'
        if origin.layer == "default":
            return '"$DATABASE_URL"'
        return shlex.quote(f"<the URL from {origin}>")

    def psql(self, *statements: str) -> str:
        """The command that runs SQL here; each statement is a transaction of its own."""
        return f"psql {self.database} {_options(statements)}"

    def grant(self, *statements: str) -> str:
        """The command by which an administrator gives our user what he lacks."""
        user = Identifier(self.one("server")["user"]).as_string(None)
        return (
            f"psql {ADMINISTRATOR} {_options(each.replace('{user}', user) for each in statements)}"
        )

    def let_see(self, *statements: str) -> str:
        """What lets the doctor see more. The role of a worker keeps the few rights that it has."""
        if self.one("server")["works"]:
            return AS_OPERATOR
        return self.grant(*statements)

    def mailgres(self, command: str) -> str:
        """A command of ours, for this database."""
        given = self.settings.origin("database_url").layer == "flag"
        return f"mailgres {command}" + (f" --database-url {self.database}" if given else "")

    @property
    def restore(self) -> str:
        """The command that undoes what differs in the schema."""
        return f"{self.mailgres('doctor --sql')} | psql -v ON_ERROR_STOP=1 {self.database}"


def _options(statements: Iterable[str]) -> str:
    return " ".join(f"-c {shlex.quote(statement)}" for statement in statements)


@dataclass(frozen=True)
class Check:
    """A question, what it needs to be asked, and what to say if nothing is wrong."""

    name: str
    run: Callable[[DoctorContext], Iterable[Finding]]
    good: str
    needs: Literal["nothing", "database", "schema", "network"] = "schema"
    sees: tuple[str, ...] = OPERATOR
    """The grants without which it may be refused."""


def duration(seconds: float) -> str:
    """A time span for people."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
