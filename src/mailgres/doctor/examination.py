"""Runs the checks: each by itself, so that one that cannot be made keeps none from being made."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres import database, migrate
from mailgres.doctor import access, dns, grants, health, jobs, queue, schema, sending, server, setup
from mailgres.doctor.finding import OPERATOR, QUERIES, Check, DoctorContext, Finding
from mailgres.errors import MailgresError
from mailgres.settings import DEFINITIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mailgres.settings import Settings

CHECKS = (
    *setup.CHECKS,
    *server.CHECKS,
    *schema.CHECKS,
    *grants.CHECKS,
    *access.CHECKS,
    *jobs.CHECKS,
    *health.CHECKS,
    *queue.CHECKS,
    *sending.CHECKS,
    *dns.CHECKS,
)
"""All checks, in the order in which they are made."""

REACH, VERSION = "database", "schema-version"
NAMES = (REACH, VERSION, *(check.name for check in CHECKS))
"""The names of everything that is looked at."""


def examine(
    settings: Settings,
    *,
    offline: bool = False,
    nameservers: tuple[str, ...] | None = None,
    only: Collection[str] = (),
    as_worker: bool = False,
) -> Iterator[Finding]:
    """Make all checks, or only those named.

    `offline` leaves out those that ask providers and name servers; `nameservers` are asked instead
    of the system's. What is judged is the system: its routes, and the workers that are alive. The
    settings and the rights of this process matter only if they are a worker's: if they name
    providers, or `as_worker` says so.
    """
    context = DoctorContext(
        settings, nameservers=nameservers, as_worker=as_worker or _names_providers(settings)
    )
    with _connection(settings) as (connection, found):
        about = [found]
        if connection is not None:
            context = replace(context, connection=connection)
            about.append(_version(context))
            context = replace(context, migrated=about[-1].severity == "ok")
        yield from (each for each in about if not only or each.check in only)
        for check in CHECKS:
            if not only or check.name in only:
                yield from _make(check, context, offline=offline)


def _names_providers(settings: Settings) -> bool:
    given = settings.origin("providers").layer != "default"
    return given or settings.providers != DEFINITIONS["providers"].default


@contextmanager
def _connection(
    settings: Settings,
) -> Iterator[tuple[psycopg.Connection[Any] | None, Finding]]:
    """The database, or why there is none."""
    url = settings.database_url
    try:
        connection = database.connect(url, autocommit=True, application_name="mailgres doctor")
    except MailgresError as error:
        yield None, Finding(REACH, "error", error.message, error.hint)
        return
    with connection:
        yield connection, Finding(REACH, "ok", f"{database.describe(url)} answers")


def _version(context: DoctorContext) -> Finding:
    try:
        found = migrate.status(context.settings.database_url)
    except MailgresError as error:
        return Finding(VERSION, "info", f"not checked: {error.message}", context.let_see(*OPERATOR))
    if found.is_current:
        return Finding(VERSION, "ok", f"{found.current}, as this mailgres needs it")
    if not found.known:
        newer = f"{found.current} is of a newer mailgres than this one"
        return Finding(VERSION, "error", newer, migrate.UPGRADE)
    if found.current is None:
        return Finding(
            VERSION, "error", "there is no schema of mailgres", context.mailgres("migrate")
        )
    older = f"{found.current}, but this mailgres needs {found.head}"
    return Finding(VERSION, "error", older, context.mailgres("migrate"))


def _make(check: Check, context: DoctorContext, *, offline: bool) -> list[Finding]:
    """Make a check; what keeps it from being made is a finding, too."""
    if why := _obstacle(check, context, offline=offline):
        return [Finding(check.name, "info", f"not checked: {why}")]
    try:
        found = list(_asking(check, context))
    except psycopg.errors.InsufficientPrivilege as error:
        return [_not_made(check, database.first_line(error), context.let_see(*check.sees))]
    except psycopg.errors.QueryCanceled:
        return [_not_made(check, "the database took too long")]
    except psycopg.Error as error:
        return [_not_made(check, database.first_line(error))]
    except MailgresError as error:
        return [Finding(check.name, "error", error.message, error.hint)]
    return found or [Finding(check.name, "ok", check.good)]


def _obstacle(check: Check, context: DoctorContext, *, offline: bool) -> str | None:
    if check.needs == "network":
        return "--offline" if offline else None
    if check.needs == "nothing":
        return None
    if context.connection is None or context.connection.closed:
        return "no database"
    if check.needs == "schema" and not context.migrated:
        return f"see {VERSION}"
    return None


def _asking(check: Check, context: DoctorContext) -> Iterator[Finding]:
    """Make a check in a transaction that changes nothing and ends soon."""
    if check.needs in ("nothing", "network") or context.connection is None:
        yield from check.run(context)
        return
    with context.connection.transaction():
        context.connection.execute(QUERIES["limits"])
        yield from check.run(context)


def _not_made(check: Check, why: str, fix: str | None = None) -> Finding:
    return Finding(check.name, "info", f"not checked: {why}", fix)
