"""The server: its version, what we may do there, the way to it, and its clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres import database
from mailgres.doctor.finding import Check, Finding, duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.doctor.finding import DoctorContext

OLDEST, NEWEST = 15, 18
"""Major versions of PostgreSQL that are supported."""
WORKER, OPERATOR = {"mailgres_worker": "work"}, {"mailgres_operator": "operate"}
"""The roles of those who run the doctor, and what each does to the queue."""
SKEW, WRONG = 2.0, 60.0
"""Seconds by which clocks may differ before it is a warning, and before it is an error."""


def version(context: DoctorContext) -> Iterator[Finding]:
    """A supported version, and a server that can be written to."""
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
            "this is a standby, on which nothing can be sent",
            f"name the primary instead: the URL is from {context.settings.origin('database_url')}",
        )
    elif found["read_only"]:
        yield Finding(
            "postgresql",
            "error",
            "transactions are read-only by default here",
            _writable(context),
        )


def _writable(context: DoctorContext) -> str:
    """What takes the setting back from where it was made; while it holds, that is refused."""
    found = context.ask("read_only_settings")
    if found:
        off = "SET default_transaction_read_only = off"
        statements = (off, *(row["reset"] for row in found))
        mine = all(row["mine"] for row in found)
        return context.psql(*statements) if mine else context.grant(*statements)
    if context.one("read_only_source")["of_client"]:
        return "take default_transaction_read_only out of the URL's options, or out of PGOPTIONS"
    on_server = "ALTER SYSTEM SET default_transaction_read_only = off"
    return context.grant(on_server, "SELECT pg_reload_conf()")


def privileges(context: DoctorContext) -> Iterator[Finding]:
    """Our roles are there, and the user may do what he is for: work the queue, or operate it."""
    missing = [row["role"] for row in context.ask("missing_roles")]
    if missing:
        create = context.psql(*(f"CREATE ROLE {role} NOLOGIN" for role in missing))
        yield Finding(
            "privileges",
            "warning",
            f"there is no role {', '.join(missing)}",
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
    """Whether transactions go to a connection of the server that is ours alone."""
    listen = context.settings.listen if context.as_worker else "auto"
    if not _is_shared(context):
        return
    slow = "workers that connect this way cannot listen, and look every poll_interval"
    direct = "give a worker the pooler's session port, or the server itself (Supabase: 5432)"
    if listen == "on":
        yield Finding(
            "pooler",
            "error",
            "MAILGRES_LISTEN=on, but a transaction pooler is in between",
            "export MAILGRES_LISTEN=auto",
        )
    else:
        yield Finding("pooler", "info", f"a transaction pooler is in between: {slow}", direct)


def _is_shared(context: DoctorContext) -> bool:
    """Whether a second client gets the connection that the first had a moment ago."""
    url = context.settings.database_url
    with (
        database.connect(url, autocommit=True, application_name="mailgres doctor") as first,
        database.connect(url, application_name="mailgres doctor") as second,
    ):
        # In session mode, a connection of the server belongs to one client until it leaves.
        pids = [
            row[0]
            for client in (first, second, first)
            for row in client.execute("SELECT pg_catalog.pg_backend_pid()")
        ]
    return pids[0] in pids[1:2] or pids[0] != pids[2]


def clock(context: DoctorContext) -> Iterator[Finding]:
    """Our machine, the database and the queue agree about the time."""
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
    Check("postgresql", version, "a version that is supported", needs="database"),
    Check("privileges", privileges, "this user may work or operate the queue"),
    Check("pooler", pooler, "connections are our own", needs="database"),
    Check("clock", clock, "this machine and the database agree"),
)
