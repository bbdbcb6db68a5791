"""What a check finds, and what it can use: the settings, the database, the clock."""

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
AS_OPERATOR = "run it as a member of mailgres_operator: a worker's role needs no more rights"
ADMINISTRATOR = '"${ADMIN_DATABASE_URL:?set it to the URL of this database for an administrator}"'
"""The shell stops with this message unless the variable is set: our own user lacks the rights."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: its severity, a message, and the command that fixes it."""

    check: str
    severity: Severity
    message: str
    fix: str | None = None


@dataclass(frozen=True)
class DoctorContext:
    """What the checks examine. Without a connection, only checks that need none can run."""

    settings: Settings
    connection: psycopg.Connection[Any] | None = None
    migrated: bool = False
    """Whether the schema has the version of this package."""
    as_worker: bool = False
    """Whether the settings are a worker's; otherwise they belong to an operator's shell."""
    nameservers: tuple[str, ...] | None = None
    """The name servers to ask about domains; None means those of the system."""
    clock: Callable[[], float] = field(default=time.time)

    def ask(self, query: str, **parameters: object) -> list[dict[str, Any]]:
        """Run a named query and return its rows."""
        if self.connection is None:
            raise RuntimeError("this check needs a database connection")
        with self.connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(QUERIES[query], parameters)
            return cursor.fetchall()

    def one(self, query: str, **parameters: object) -> dict[str, Any]:
        """Run a named query that returns one row."""
        (row,) = self.ask(query, **parameters)
        return row

    @property
    def database(self) -> str:
        """Return where the URL comes from, as a shell word: the URL may hold a password."""
        origin = self.settings.origin("database_url")
        if origin.layer == "environment":
            return f'"${origin.text.split()[0]}"'
        if origin.layer == "default":
            return '"$DATABASE_URL"'
        return shlex.quote(f"<the URL from {origin}>")

    def psql(self, *statements: str) -> str:
        """Return the command that runs SQL here, each statement in its own transaction."""
        return f"psql {self.database} {_options(statements)}"

    def grant(self, *statements: str) -> str:
        """Return the command with which an administrator grants our user the missing rights."""
        user = Identifier(self.one("server")["user"]).as_string(None)
        return (
            f"psql {ADMINISTRATOR} {_options(each.replace('{user}', user) for each in statements)}"
        )

    def let_see(self, *statements: str) -> str:
        """Return what lets the doctor see more; the role of a worker gets no more rights."""
        if self.one("server")["works"]:
            return AS_OPERATOR
        return self.grant(*statements)

    def mailgres(self, command: str) -> str:
        """Return a mailgres command for this database."""
        given = self.settings.origin("database_url").layer == "flag"
        return f"mailgres {command}" + (f" --database-url {self.database}" if given else "")

    @property
    def restore(self) -> str:
        """Return the command that restores the schema."""
        return f"{self.mailgres('doctor --sql')} | psql -v ON_ERROR_STOP=1 {self.database}"


def _options(statements: Iterable[str]) -> str:
    return " ".join(f"-c {shlex.quote(statement)}" for statement in statements)


@dataclass(frozen=True)
class Check:
    """A check, what it needs to run, and the message if nothing is wrong."""

    name: str
    run: Callable[[DoctorContext], Iterable[Finding]]
    good: str
    needs: Literal["nothing", "database", "schema", "network"] = "schema"
    sees: tuple[str, ...] = OPERATOR
    """The grants that the check may need."""


def duration(seconds: float) -> str:
    """Return a duration as text."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
