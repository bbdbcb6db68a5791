"""Whether this process is set up to send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.doctor.finding import Check, Finding
from mailgres.settings import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.doctor.finding import Patient

NAME = "settings"
KEPT = {"capture", "null"}
"""Kinds of providers by which nothing leaves."""


def settings(patient: Patient) -> Iterator[Finding]:
    """What is allowed but most likely not meant, and what sending lacks."""
    given = patient.settings
    for remark in given.remarks():
        yield Finding(NAME, "warning", remark, "mailgres config")
    try:
        given.check_providers()
    except InvalidSettings as error:
        for problem in error.problems:
            yield Finding(NAME, "error", problem.message, problem.hint)
    leaving = [account.name for account in given.accounts() if account.kind not in KEPT]
    if not leaving:
        kept = "nothing leaves: the settings name no provider, emails are only captured"
        yield Finding(NAME, "info", kept, "export MAILGRES_PROVIDERS=resend")
    elif given.from_email is None:
        lack = "from_email is not set: emails whose template and tenant name no sender die"
        yield Finding(
            NAME, "warning", lack, 'export MAILGRES_FROM_EMAIL="Acme <mail@acme.example.com>"'
        )


CHECKS = (Check(NAME, settings, "nothing odd in them", needs="nothing"),)
