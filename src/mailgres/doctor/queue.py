"""The queue: somebody works it, and nothing in it is stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres import __version__
from mailgres.doctor.finding import Check, Finding, duration, psql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.doctor.finding import Patient

LATE = 600
"""Seconds that an email may be due before somebody should have taken it."""
SAMPLE = 20_000
"""How many emails are looked at, so that a long queue costs no more than a short one."""
START = "mailgres worker"
RESCHEDULE = "SELECT reschedule_email(id, now()) FROM email_queue WHERE"


def scheduler(patient: Patient) -> Iterator[Finding]:
    """Somebody processes: a worker lives, or emails were processed lately, or none waits."""
    found = patient.one("scheduler", sample=SAMPLE)
    waits = found["oldest_due"] or 0
    if found["alive"]:
        if waits > LATE:
            yield Finding(
                "scheduler",
                "warning",
                f"workers live, but an email has been due for {duration(waits)}",
                "mailgres eta",
            )
        for row in patient.ask("other_versions", version=__version__):
            yield Finding(
                "scheduler",
                "warning",
                f"the worker {row['worker']} runs mailgres {row['version']}, this is {__version__}",
                "systemctl restart mailgres-worker",
            )
    elif waits > LATE:
        yield Finding(
            "scheduler",
            "error",
            f"nobody processes: no worker lives, and an email has been due for {duration(waits)}",
            START,
        )
    elif not found["processed"]:
        idle = "no worker lives, and nothing was processed in the last 15 minutes; nothing is late"
        yield Finding("scheduler", "info", idle, START)


def stuck(patient: Patient) -> Iterator[Finding]:
    """No email is held by somebody who is gone, and none waits for nothing."""
    found = patient.one("stuck", sample=SAMPLE)
    if found["lost"]:
        yield Finding(
            "stuck-emails",
            "error",
            f"{_many(found['lost'])} held by workers that are gone: nobody takes them back",
            "mailgres janitor reap",
        )
    if found["unpromoted"]:
        yield Finding(
            "stuck-emails",
            "error",
            f"{_many(found['unpromoted'])} due, but not ready to be claimed",
            "mailgres janitor promote",
        )
    if found["never"]:
        yield Finding(
            "stuck-emails",
            "warning",
            f"{_many(found['never'])} waiting for a time more than a year away, or for ever",
            psql(f"{RESCHEDULE} status = 'pending' AND next_retry_at > now() + interval '1 year'"),
        )
    if found["parked"]:
        yield Finding(
            "stuck-emails",
            "warning",
            f"{_many(found['parked'])} waiting for the sender's set-up to be mended"
            f" ({found['parked_code'] or 'no code'})",
            f"mailgres errors explain {found['parked_code'] or 'config'}",
        )
    for row in patient.ask("unreachable", sample=SAMPLE):
        yield Finding(
            "stuck-emails",
            "error",
            f"emails wait on the route {row['route']}, {row['why']}",
            row["fix"],
        )
    for row in patient.ask("paused_tenants", sample=SAMPLE):
        yield Finding(
            "stuck-emails",
            "info",
            f"emails of the tenant {row['tenant']} wait: it is paused",
            psql(row["resume"]),
        )


def _many(count: int) -> str:
    if count == 1:
        return "1 email is"
    return f"{SAMPLE:,} emails or more are" if count >= SAMPLE else f"{count:,} emails are"


CHECKS = (
    Check("scheduler", scheduler, "the queue is worked"),
    Check("stuck-emails", stuck, "none"),
)
