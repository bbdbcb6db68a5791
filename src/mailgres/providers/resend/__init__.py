"""Resend. Its library is imported when an account is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.providers.base import Option, ProviderKind
from mailgres.providers.resend.faults import RESEND_RULES
from mailgres.values.kinds import Text
from mailgres.values.several import SIGNING_SECRETS
from mailgres.values.urls import ApiUrl

if TYPE_CHECKING:
    from mailgres.providers.base import Account, Provider, Runtime


def _open(account: Account, runtime: Runtime) -> Provider:
    from mailgres.providers.resend.provider import ResendProvider  # noqa: PLC0415

    return ResendProvider(
        **account.options,
        name=account.name,
        timeout=runtime.timeout,
        connections=runtime.connections,
    )


RESEND = ProviderKind(
    "resend",
    "Resend",
    _open,
    options=(
        Option(
            "api_key",
            Text("an API key from resend.com", r"[!-~]+", "KEY"),
            "API key of Resend.",
            also=("RESEND_API_KEY",),
            secret=True,
            needed=True,
        ),
        Option(
            "api_url", ApiUrl(), "Base URL of Resend's API.", "https://api.resend.com", shared=True
        ),
        Option(
            "webhook_secret",
            SIGNING_SECRETS,
            "Signing secret of Resend's webhook; two while one replaces the other.",
            secret=True,
            receives=True,
        ),
    ),
    rules=RESEND_RULES,
    advice="Create a key at https://resend.com/api-keys and set it",
    spf="include:amazonses.com",
    mail_from="send",
    dkim="resend._domainkey",
)
