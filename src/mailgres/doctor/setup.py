"""Check that the settings of a worker let it send. Other shells need no such settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.doctor.finding import Check, Finding
from mailgres.providers.registry import PROVIDERS
from mailgres.settings import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.doctor.finding import DoctorContext

NAME = "settings"
NOT_A_WORKER = (
    "not checked: these settings name no providers, so they are not a worker's (see --as-worker)"
)


def settings(context: DoctorContext) -> Iterator[Finding]:
    """Report settings that are allowed but unusual, and settings that are missing to send."""
    given = context.settings
    if not context.as_worker:
        yield Finding(NAME, "info", NOT_A_WORKER)
        return
    for remark in given.remarks():
        yield Finding(NAME, "warning", remark, "mailgres config")
    try:
        given.check_providers()
    except InvalidSettings as error:
        for problem in error.problems:
            yield Finding(NAME, "error", problem.message, problem.hint)
    leaving = [one for one in given.accounts() if not PROVIDERS[one.kind].captures]
    if not leaving:
        kept = "a worker with these settings sends nothing: the only provider is capture"
        yield Finding(NAME, "info", kept, "export MAILGRES_PROVIDERS=resend")
    elif given.from_email is None:
        lack = "from_email is not set: emails without another sender become dead letters"
        yield Finding(
            NAME, "warning", lack, 'export MAILGRES_FROM_EMAIL="Acme <mail@acme.example.com>"'
        )


CHECKS = (Check(NAME, settings, "no problem found", needs="nothing"),)
