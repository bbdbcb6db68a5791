"""Check how workers and this shell connect: with which role, and with or without TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailgres import embedded
from mailgres.doctor.finding import Check, Finding
from mailgres.transport import of_connection, protection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mailgres.doctor.finding import DoctorContext

LOGIN = "mailgres_worker_login"
"""The login role of workers that deploy/roles.sql creates."""
EXPOSED = {
    "unencrypted": "across a network without TLS",
    "unverified": "across a network with TLS that does not verify the server's certificate",
}
VERIFY = "add sslmode=verify-full, and sslrootcert with the file of its CA, to"


def tls(context: DoctorContext) -> Iterator[Finding]:
    """Check that this connection is local or verifies the server."""
    if context.connection is None:
        return
    if how := EXPOSED.get(protection(of_connection(context.connection))):
        url = f"the URL from {context.settings.origin('database_url')}"
        yield Finding("tls", "warning", f"this shell connects {how}", f"{VERIFY} {url}")


def worker_roles(context: DoctorContext) -> Iterator[Finding]:
    """Check that no worker connects as a superuser or as the owner of the schema."""
    if context.one("cluster")["name"] == embedded.OWN_SERVER:
        return  # the server of `mailgres dev` has no role but the superuser
    for row in context.ask("privileged_workers"):
        yield _privileged(context, f"{_workers(row)} as", row)
    if context.as_worker:
        for row in context.ask("privileged_self"):
            yield _privileged(context, "this shell, a worker's, connects as", row)


def _privileged(context: DoctorContext, who: str, row: Mapping[str, Any]) -> Finding:
    what = "a superuser" if row["superuser"] else "which may act as the owner of the schema"
    create = context.grant(
        f"CREATE ROLE {LOGIN} LOGIN IN ROLE mailgres_worker", f"\\password {LOGIN}"
    )
    return Finding(
        "worker-roles",
        "warning",
        f"{who} {row['role']}, {what}: a worker needs no more than mailgres_worker",
        f"{create}  # then: use it in the workers' DATABASE_URL",
    )


def worker_tls(context: DoctorContext) -> Iterator[Finding]:
    """Check that the connections of workers are local or verify the server."""
    for row in context.ask("exposed_workers", exposed=list(EXPOSED)):
        how = EXPOSED[row["connection"]]
        fix = f"{VERIFY} the workers' DATABASE_URL"
        yield Finding("worker-tls", "warning", f"{_workers(row)} {how}", fix)


def _workers(row: Mapping[str, Any]) -> str:
    """Return which workers connect, with the name of the first."""
    if row["workers"] == 1:
        return f"the worker {row['worker']} connects"
    return f"the worker {row['worker']} and {row['workers'] - 1} more connect"


CHECKS = (
    Check("tls", tls, "this connection is local, or verifies the server", needs="database"),
    Check("worker-roles", worker_roles, "no worker connects as a superuser or the owner"),
    Check("worker-tls", worker_tls, "no worker connects across a network without verified TLS"),
)
