"""Check the pg_cron jobs: they hold no secrets, and ours succeed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mailgres.doctor.finding import Check, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.doctor.finding import DoctorContext

SECRETS = {
    "a JWT": re.compile(r"\beyJ[\w-]{10,}\.[\w-]+"),
    "a bearer token": re.compile(r"bearer\s+[\w.~+/-]{8,}", re.IGNORECASE),
    "a Resend key": re.compile(r"\bre_\w{8,}"),
    "a Supabase key": re.compile(r"\bsb_secret_\w{8,}"),
    "an AWS key": re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"),
    "a password": re.compile(r"postgres(?:ql)?://[^\s:/@']+:[^\s/@']+@", re.IGNORECASE),
    "an API key": re.compile(
        r"""["']?(?:api_?key|x-api-key|secret|token)["']?\s*(?::|=>|,)\s*["'][\w.~+/-]{16,}""",
        re.IGNORECASE,
    ),
}
"""What the command of a job must not contain: commands are readable, logged and dumped."""


SEES = ("GRANT USAGE ON SCHEMA cron TO {user}", "GRANT SELECT ON cron.job TO {user}")
SEES_RUNS = (*SEES, "GRANT SELECT ON cron.job_run_details TO {user}")


def secret_in(command: str) -> str | None:
    """Return which kind of secret a command contains, if any."""
    return next((kind for kind, pattern in SECRETS.items() if pattern.search(command)), None)


def secrets(context: DoctorContext) -> Iterator[Finding]:
    """Check that no job contains a secret in plain text."""
    if not context.one("has_cron")["jobs"]:
        return
    for row in context.ask("cron_jobs"):
        if kind := secret_in(row["command"]):
            yield Finding(
                "cron-secrets",
                "error",
                f"the pg_cron job {row['name']} contains {kind}: every reader of cron.job sees it."
                " Create a new secret, store it in Vault and schedule the job again, as"
                " deploy/supabase/process.sql does",
                context.psql(f"SELECT cron.unschedule({row['id']})"),
            )
    yield from _own_only(context, "cron-secrets")


def runs(context: DoctorContext) -> Iterator[Finding]:
    """Check that the last run of each of our jobs succeeded."""
    if not context.one("has_cron")["details"]:
        return
    for row in context.ask("failed_jobs"):
        failed = f"the last run of {row['name']} failed: {row['message']}"
        yield Finding(
            "cron-jobs",
            "error",
            failed,
            context.psql(row["look"]),
        )
    yield from _own_only(context, "cron-jobs")


def _own_only(context: DoctorContext, check: str) -> Iterator[Finding]:
    if context.one("unseen_jobs")["some"]:
        own = "not checked: jobs of other users; pg_cron shows only your own jobs"
        yield Finding(check, "info", own, "also run mailgres doctor as a superuser")


CHECKS = (
    Check("cron-secrets", secrets, "no pg_cron job contains a secret", needs="database", sees=SEES),
    Check("cron-jobs", runs, "none of our jobs failed", needs="database", sees=SEES_RUNS),
)
