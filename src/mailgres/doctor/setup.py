"""Whether the settings of a worker let it send. Of another shell they say nothing."""

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
    "not checked: this shell names no providers, so it is not a worker's; --as-worker checks it"
)


def settings(context: DoctorContext) -> Iterator[Finding]:
    """What is allowed but most likely not meant, and what sending lacks."""
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
        kept = "a worker with these settings sends nothing: they name no provider but capture"
        yield Finding(NAME, "info", kept, "export MAILGRES_PROVIDERS=resend")
    elif given.from_email is None:
        lack = "from_email is not set: emails whose template and tenant name no sender die"
        yield Finding(
            NAME, "warning", lack, 'export MAILGRES_FROM_EMAIL="Acme <mail@acme.example.com>"'
        )


CHECKS = (Check(NAME, settings, "nothing odd in them", needs="nothing"),)
