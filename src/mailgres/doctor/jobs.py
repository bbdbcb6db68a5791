"""Jobs of pg_cron: no secret in them, and those of ours succeed."""

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
    "a key of Resend": re.compile(r"\bre_\w{8,}"),
    "a key of Supabase": re.compile(r"\bsb_secret_\w{8,}"),
    "a key of AWS": re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"),
    "a password": re.compile(r"postgres(?:ql)?://[^\s:/@']+:[^\s@']+@", re.IGNORECASE),
    "an API key": re.compile(
        r"""["']?(?:api_?key|x-api-key|secret|token)["']?\s*(?::|=>|,)\s*["'][\w.~+/-]{16,}""",
        re.IGNORECASE,
    ),
}
"""What a command of a job may not hold: it is readable, logged and dumped."""


SEES = ("GRANT USAGE ON SCHEMA cron TO {user}", "GRANT SELECT ON cron.job TO {user}")
SEES_RUNS = (*SEES, "GRANT SELECT ON cron.job_run_details TO {user}")


def secret_in(command: str) -> str | None:
    """What kind of secret a command holds, if any."""
    return next((kind for kind, pattern in SECRETS.items() if pattern.search(command)), None)


def secrets(context: DoctorContext) -> Iterator[Finding]:
    """No job holds a secret in plain text."""
    if not context.one("has_cron")["jobs"]:
        return
    for row in context.ask("cron_jobs"):
        if kind := secret_in(row["command"]):
            yield Finding(
                "cron-secrets",
                "error",
                f"the job {row['name']} of pg_cron holds {kind}: whoever reads cron.job has it."
                " Make a new one, put it into Vault and schedule the job anew, as"
                " deploy/supabase/process.sql does",
                context.psql(f"SELECT cron.unschedule({row['id']})"),
            )
    yield from _own_only(context, "cron-secrets")


def runs(context: DoctorContext) -> Iterator[Finding]:
    """The last run of each of our jobs succeeded."""
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
        own = "not checked: jobs of other users; pg_cron shows your own jobs only"
        yield Finding(check, "info", own, "run mailgres doctor as a superuser, too")


CHECKS = (
    Check("cron-secrets", secrets, "no job of pg_cron holds one", needs="database", sees=SEES),
    Check("cron-jobs", runs, "none of ours failed", needs="database", sees=SEES_RUNS),
)
