"""SMTP servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.providers.base import Option, ProviderKind
from mailgres.providers.smtp.faults import SMTP_RULES
from mailgres.values.several import SIGNING_SECRETS
from mailgres.values.urls import SmtpUrl

if TYPE_CHECKING:
    from mailgres.providers.base import Account, Provider, Runtime


def _open(account: Account, runtime: Runtime) -> Provider:
    from mailgres.providers.smtp.provider import SmtpProvider  # noqa: PLC0415

    return SmtpProvider(
        **account.options,
        name=account.name,
        timeout=runtime.timeout,
        connections=runtime.connections,
    )


SMTP = ProviderKind(
    "smtp",
    "SMTP",
    _open,
    options=(
        Option("url", SmtpUrl(), "SMTP server.", secret=True, needed=True),
        Option(
            "webhook_secret",
            SIGNING_SECRETS,
            "Signing secret of events that /webhooks/events accepts for this account.",
            secret=True,
            receives=True,
        ),
    ),
    rules=SMTP_RULES,
    protocol="smtp",
    advice="Check host, port, user, password and tls of its URL",
    spf="mx",
)
