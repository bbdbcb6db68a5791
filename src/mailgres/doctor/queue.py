"""Check that the queue is processed and that no email is stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailgres import __version__
from mailgres.doctor.finding import Check, Finding, duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.doctor.finding import DoctorContext

LATE = 600
"""Seconds after which a due email that was not claimed is late."""
SAMPLE = 20_000
"""How many emails are read, so that a long queue costs no more than a short one."""
FAILURES = 3
"""Consecutive failures from which a janitor is reported, as in the alert `janitor_failing`."""
START = "worker"
RESCHEDULE = "SELECT reschedule_email(id, now()) FROM email_queue WHERE"


def scheduler(context: DoctorContext) -> Iterator[Finding]:
    """Check that a worker is alive, that emails were processed lately, or that none waits."""
    found = context.one("scheduler", sample=SAMPLE, late=LATE)
    if found["alive"]:
        if found["emails"]:
            yield Finding(
                "scheduler",
                "warning",
                f"workers are alive, but {_late(found)}",
                context.mailgres("eta"),
            )
        for row in context.ask("other_versions", version=__version__):
            yield Finding(
                "scheduler",
                "warning",
                f"the worker {row['worker']} runs mailgres {row['version']}, not {__version__}",
                "systemctl restart mailgres-worker",
            )
    elif found["processed"] and found["emails"]:
        # `process` and `serve` have no heartbeat: only their work shows that they run
        flows = f"emails are processed, but {_late(found)}"
        yield Finding("scheduler", "warning", flows, context.mailgres("eta"))
    elif found["free"]:
        nobody = f"the queue is not processed: no worker is alive, and {_late(found)}"
        yield Finding("scheduler", "error", nobody, context.mailgres(START))
    elif found["emails"]:
        held = f"no worker is alive; {_late(found)}; no late email may be sent now"
        yield Finding("scheduler", "warning", held, context.mailgres("eta"))
    elif not found["processed"]:
        idle = (
            "no worker is alive and nothing was processed in the last 15 minutes; no email is late"
        )
        yield Finding("scheduler", "info", idle, context.mailgres(START))


def quarantine(context: DoctorContext) -> Iterator[Finding]:
    """Check that this database may send."""
    found = context.one("quarantine")
    if found["quarantined"]:
        yield Finding(
            "quarantine",
            "warning",
            f"nothing is sent: {found['because']}",
            context.mailgres("quarantine release"),
        )


def _late(found: dict[str, Any]) -> str:
    """Return how many emails are late, and the route and tenant of the oldest."""
    where = f"on the route {found['route']} of the tenant {found['tenant']}"
    return f"{_many(found['emails'])} late, the oldest {where} by {duration(found['seconds'])}"


def janitors(context: DoctorContext) -> Iterator[Finding]:
    """Check that no janitor keeps failing."""
    for row in context.ask("failing_janitors", most=FAILURES):
        yield Finding(
            "janitors",
            "error",
            f"{row['janitor']} failed {row['failures']} times in a row, for"
            f" {duration(row['seconds'])}, on the worker {row['worker']}: {row['error']}",
            context.mailgres(f"janitor {row['janitor']}"),
        )


def stuck(context: DoctorContext) -> Iterator[Finding]:
    """Check that no email has an expired lease or waits without a reason."""
    found = context.one("stuck", sample=SAMPLE)
    if found["lost"]:
        yield Finding(
            "stuck-emails",
            "error",
            f"{_many(found['lost'])} leased by workers that are gone, and not reaped",
            context.mailgres("janitor reap"),
        )
    if found["unpromoted"]:
        yield Finding(
            "stuck-emails",
            "error",
            f"{_many(found['unpromoted'])} due, but not ready to be claimed",
            context.mailgres("janitor promote"),
        )
    if found["never"]:
        yield Finding(
            "stuck-emails",
            "warning",
            f"{_many(found['never'])} scheduled more than a year ahead, or never due",
            context.psql(
                f"{RESCHEDULE} status = 'pending' AND next_retry_at > now() + interval '1 year'"
            ),
        )
    if found["parked"]:
        yield Finding(
            "stuck-emails",
            "warning",
            f"{_many(found['parked'])} on hold until the sender's configuration is fixed"
            f" ({found['parked_code'] or 'no code'})",
            f"mailgres errors explain {found['parked_code'] or 'config'}",
        )
    for row in context.ask("unreachable"):
        why = "which is paused" if row["paused"] else "which has no provider"
        waiting = f"emails wait on the route {row['route']}, {why}"
        yield Finding("stuck-emails", "error", waiting, _make_usable(context, row))
    for row in context.ask("paused_tenants"):
        yield Finding(
            "stuck-emails",
            "info",
            f"emails of the tenant {row['tenant']} wait: it is paused",
            context.psql(row["resume"]),
        )


def _make_usable(context: DoctorContext, row: dict[str, Any]) -> str:
    """Return the command that makes a route usable; never with `capture`, which sends nothing."""
    if row["paused"]:
        return context.mailgres(f"routes resume {row['route']}")
    if row["provider"]:
        return context.mailgres(f"routes set {row['route']} {row['provider']}")
    choose = context.mailgres(f"routes set {row['route']} <provider>")
    return f"{context.mailgres('providers list')}  # then: {choose}"


def _many(count: int) -> str:
    if count == 1:
        return "1 email is"
    return f"{SAMPLE:,} emails or more are" if count >= SAMPLE else f"{count:,} emails are"


CHECKS = (
    Check("quarantine", quarantine, "this database is not quarantined"),
    Check("scheduler", scheduler, "the queue is processed"),
    Check("janitors", janitors, "no janitor keeps failing"),
    Check("stuck-emails", stuck, "no email is stuck"),
)
