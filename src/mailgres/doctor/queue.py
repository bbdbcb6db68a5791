"""The queue: somebody works it, and nothing in it is stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailgres import __version__
from mailgres.doctor.finding import Check, Finding, duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.doctor.finding import DoctorContext

LATE = 600
"""Seconds that an email may be due before somebody should have taken it."""
SAMPLE = 20_000
"""How many emails are looked at, so that a long queue costs no more than a short one."""
FAILURES = 3
"""Failures in a row from which a janitor is said to fail, as for the alert `janitor_failing`."""
START = "worker"
RESCHEDULE = "SELECT reschedule_email(id, now()) FROM email_queue WHERE"


def scheduler(context: DoctorContext) -> Iterator[Finding]:
    """Somebody processes: a worker lives, or emails were processed lately, or none waits."""
    found = context.one("scheduler", sample=SAMPLE, late=LATE)
    if found["alive"]:
        if found["emails"]:
            yield Finding(
                "scheduler", "warning", f"workers live, but {_late(found)}", context.mailgres("eta")
            )
        for row in context.ask("other_versions", version=__version__):
            yield Finding(
                "scheduler",
                "warning",
                f"the worker {row['worker']} runs mailgres {row['version']}, this is {__version__}",
                "systemctl restart mailgres-worker",
            )
    elif found["processed"] and found["emails"]:
        # `process` and `serve` have no heartbeat: what they did is all that is seen of them
        flows = f"emails are processed, but {_late(found)}"
        yield Finding("scheduler", "warning", flows, context.mailgres("eta"))
    elif found["free"]:
        nobody = f"nobody processes: no worker lives, and {_late(found)}"
        yield Finding("scheduler", "error", nobody, context.mailgres(START))
    elif found["emails"]:
        held = f"no worker lives; {_late(found)}; no late email may be sent now"
        yield Finding("scheduler", "warning", held, context.mailgres("eta"))
    elif not found["processed"]:
        idle = "no worker lives, and nothing was processed in the last 15 minutes; nothing is late"
        yield Finding("scheduler", "info", idle, context.mailgres(START))


def _late(found: dict[str, Any]) -> str:
    """How many emails are late, and where the oldest of them waits."""
    where = f"on the route {found['route']} of the tenant {found['tenant']}"
    return f"{_many(found['emails'])} late, the oldest {where} by {duration(found['seconds'])}"


def janitors(context: DoctorContext) -> Iterator[Finding]:
    """No janitor keeps failing."""
    for row in context.ask("failing_janitors", most=FAILURES):
        yield Finding(
            "janitors",
            "error",
            f"{row['janitor']} failed {row['failures']} times in a row, for"
            f" {duration(row['seconds'])}, on the worker {row['worker']}: {row['error']}",
            context.mailgres(f"janitor {row['janitor']}"),
        )


def stuck(context: DoctorContext) -> Iterator[Finding]:
    """No email is held by somebody who is gone, and none waits for nothing."""
    found = context.one("stuck", sample=SAMPLE)
    if found["lost"]:
        yield Finding(
            "stuck-emails",
            "error",
            f"{_many(found['lost'])} held by workers that are gone: nobody takes them back",
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
            f"{_many(found['never'])} waiting for a time more than a year away, or for ever",
            context.psql(
                f"{RESCHEDULE} status = 'pending' AND next_retry_at > now() + interval '1 year'"
            ),
        )
    if found["parked"]:
        yield Finding(
            "stuck-emails",
            "warning",
            f"{_many(found['parked'])} waiting for the sender's set-up to be mended"
            f" ({found['parked_code'] or 'no code'})",
            f"mailgres errors explain {found['parked_code'] or 'config'}",
        )
    for row in context.ask("unreachable"):
        why = "which is paused" if row["paused"] else "which has no provider"
        waiting = f"emails wait on the route {row['route']}, {why}"
        yield Finding("stuck-emails", "error", waiting, _way_out(context, row))
    for row in context.ask("paused_tenants"):
        yield Finding(
            "stuck-emails",
            "info",
            f"emails of the tenant {row['tenant']} wait: it is paused",
            context.psql(row["resume"]),
        )


def _way_out(context: DoctorContext, row: dict[str, Any]) -> str:
    """What opens a route. Never by capturing: what is captured counts as sent and never leaves."""
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
    Check("scheduler", scheduler, "the queue is worked"),
    Check("janitors", janitors, "none keeps failing"),
    Check("stuck-emails", stuck, "none"),
)
