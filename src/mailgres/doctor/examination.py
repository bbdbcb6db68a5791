"""Runs the checks, each on its own: a check that cannot run does not prevent the others."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres import database, migrate
from mailgres.doctor import (
    access,
    dns,
    events,
    grants,
    health,
    jobs,
    queue,
    schema,
    sending,
    server,
    setup,
)
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
    *events.CHECKS,
    *dns.CHECKS,
)
"""All checks, in the order in which they run."""

REACH, VERSION = "database", "schema-version"
NAMES = (REACH, VERSION, *(check.name for check in CHECKS))
"""The names of all checks."""


def examine(
    settings: Settings,
    *,
    offline: bool = False,
    nameservers: tuple[str, ...] | None = None,
    only: Collection[str] = (),
    as_worker: bool = False,
) -> Iterator[Finding]:
    """Run all checks, or only those in `only`.

    `offline` skips the checks that ask providers and name servers; `nameservers` replace those of
    the system. The checks are about the system: its routes and its live workers. The settings and
    the rights of this process are checked only if they are a worker's: if the settings name
    providers, or with `as_worker`.
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
    """Connect to the database, or yield the reason why that failed."""
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
        return Finding(VERSION, "ok", f"{found.current}, as this version of mailgres needs it")
    if not found.known:
        newer = f"{found.current} was made by a newer version of mailgres"
        return Finding(VERSION, "error", newer, migrate.UPGRADE)
    if found.current is None:
        return Finding(
            VERSION, "error", "the database has no mailgres schema", context.mailgres("migrate")
        )
    older = f"{found.current}, but this version of mailgres needs {found.head}"
    return Finding(VERSION, "error", older, context.mailgres("migrate"))


def _make(check: Check, context: DoctorContext, *, offline: bool) -> list[Finding]:
    """Run a check; if it cannot run, the reason is its finding."""
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
    """Run a check in a read-only transaction with a time limit."""
    if check.needs in ("nothing", "network") or context.connection is None:
        yield from check.run(context)
        return
    with context.connection.transaction():
        context.connection.execute(QUERIES["limits"])
        yield from check.run(context)


def _not_made(check: Check, why: str, fix: str | None = None) -> Finding:
    return Finding(check.name, "info", f"not checked: {why}", fix)
