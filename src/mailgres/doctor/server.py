"""Check the server: its version, our rights, the connection and its clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres import database
from mailgres.doctor.finding import Check, Finding, duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.doctor.finding import DoctorContext

OLDEST, NEWEST = 15, 18
"""The supported major versions of PostgreSQL."""
WORKER, OPERATOR = {"mailgres_worker": "process"}, {"mailgres_operator": "operate"}
"""The roles that run the doctor, and what each does with the queue."""
SKEW, WRONG = 2.0, 60.0
"""Seconds of difference between clocks that are a warning, and an error."""


def version(context: DoctorContext) -> Iterator[Finding]:
    """Check that the version is supported and that the server accepts writes."""
    found = context.one("server")
    major, text = found["number"] // 10000, found["version"]
    if major < OLDEST:
        yield Finding(
            "postgresql",
            "error",
            f"{text} is too old: mailgres needs {OLDEST} or newer",
            f"upgrade the server to PostgreSQL {OLDEST} to {NEWEST}",
        )
    elif major > NEWEST:
        yield Finding("postgresql", "warning", f"mailgres is not tested with {text}")
    if found["standby"]:
        yield Finding(
            "postgresql",
            "error",
            "this is a standby: it is read-only, so nothing can be sent",
            f"connect to the primary: the URL is from {context.settings.origin('database_url')}",
        )
    elif found["read_only"]:
        yield Finding(
            "postgresql",
            "error",
            "transactions are read-only by default here",
            _writable(context),
        )


def _writable(context: DoctorContext) -> str:
    """Return the command that resets the setting; the reset needs a writable session."""
    found = context.ask("read_only_settings")
    if found:
        off = "SET default_transaction_read_only = off"
        statements = (off, *(row["reset"] for row in found))
        mine = all(row["mine"] for row in found)
        return context.psql(*statements) if mine else context.grant(*statements)
    if context.one("read_only_source")["of_client"]:
        return "remove default_transaction_read_only from the options in the URL or from PGOPTIONS"
    on_server = "ALTER SYSTEM SET default_transaction_read_only = off"
    return context.grant(on_server, "SELECT pg_reload_conf()")


def privileges(context: DoctorContext) -> Iterator[Finding]:
    """Check that our roles exist and that the user may process or operate the queue."""
    missing = [row["role"] for row in context.ask("missing_roles")]
    if missing:
        create = context.psql(*(f"CREATE ROLE {role} NOLOGIN" for role in missing))
        yield Finding(
            "privileges",
            "warning",
            f"the role {', '.join(missing)} is missing",
            f"{create} && {context.mailgres('migrate')}",
        )
    asked = WORKER if context.as_worker else {**WORKER, **OPERATOR}
    lacking = {
        role: [row["function"] for row in context.ask("lacking", role=role)] for role in asked
    }
    role, functions = min(lacking.items(), key=lambda each: len(each[1]))
    if functions:
        user = context.one("server")["user"]
        many = f" and {len(functions) - 1} more" if len(functions) > 1 else ""
        yield Finding(
            "privileges",
            "error",
            f"{user} cannot {asked[role]} the queue: no {functions[0]}{many}",
            context.grant(f"GRANT {role} TO {{user}}"),
        )


def pooler(context: DoctorContext) -> Iterator[Finding]:
    """Check whether a transaction pooler is between us and the server."""
    listen = context.settings.listen if context.as_worker else "auto"
    if not _is_shared(context):
        return
    slow = "workers that connect through it cannot listen, so they poll"
    direct = (
        "give a worker the URL of the pooler's session port or of the server (Supabase: port 5432)"
    )
    if listen == "on":
        yield Finding(
            "pooler",
            "error",
            "MAILGRES_LISTEN=on, but the connection goes through a transaction pooler",
            "export MAILGRES_LISTEN=auto",
        )
    else:
        yield Finding(
            "pooler", "info", f"the connection goes through a transaction pooler: {slow}", direct
        )


def _is_shared(context: DoctorContext) -> bool:
    """Return whether a second client gets the server connection of the first."""
    url = context.settings.database_url
    with (
        database.connect(url, autocommit=True, application_name="mailgres doctor") as first,
        database.connect(url, application_name="mailgres doctor") as second,
    ):
        # In session mode, a server connection belongs to one client until it disconnects.
        pids = [
            row[0]
            for client in (first, second, first)
            for row in client.execute("SELECT pg_catalog.pg_backend_pid()")
        ]
    return pids[0] in pids[1:2] or pids[0] != pids[2]


def clock(context: DoctorContext) -> Iterator[Finding]:
    """Check that the clocks of this machine, the database and the queue agree."""
    before = context.clock()
    there = context.one("clock")
    after = context.clock()
    skew = there["epoch"] - (before + after) / 2
    if abs(skew) - (after - before) / 2 > SKEW:
        ahead = "ahead of" if skew > 0 else "behind"
        yield Finding(
            "clock",
            "error" if abs(skew) > WRONG else "warning",
            f"the database's clock is {duration(abs(skew))} {ahead} this machine's",
            "timedatectl set-ntp true",
        )
    if there["travelled"] and abs(there["travelled"]) > 1:
        yield Finding(
            "clock",
            "error",
            f"mailgres.now() is {duration(abs(there['travelled']))} off: a test replaced it",
            context.restore,
        )


CHECKS = (
    Check("postgresql", version, "the version is supported", needs="database"),
    Check("privileges", privileges, "this user may process or operate the queue"),
    Check("pooler", pooler, "no transaction pooler", needs="database"),
    Check("clock", clock, "the clocks of this machine and the database agree"),
)
