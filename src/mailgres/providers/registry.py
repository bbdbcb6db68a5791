"""The kinds of providers. A new kind is a package that declares it, and a line here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mailgres.errors import MailgresError
from mailgres.providers.base import Runtime
from mailgres.providers.capture import CAPTURE
from mailgres.providers.resend import RESEND
from mailgres.providers.ses import SES
from mailgres.providers.smtp import SMTP

if TYPE_CHECKING:
    from mailgres.providers.base import Account, Keep, Provider, ProviderKind

PROVIDERS: dict[str, ProviderKind] = {
    each.kind: each
    for each in (
        CAPTURE,
        RESEND,
        SES,
        SMTP,
    )
}
"""Every kind of provider by its name."""


def open_provider(account: Account, *, timeout: float, connections: int, keep: Keep) -> Provider:
    """Return the provider of an account. Nothing is connected yet.

    `timeout`, `connections` and `keep` are those of `Runtime`.
    """
    kind = PROVIDERS.get(account.kind)
    if kind is None:
        raise MailgresError(f"there is no kind of provider {account.kind!r}")
    for option in kind.options:
        # `settings.check_providers` also says how to set it.
        if option.needed and option.name not in account.options:
            raise MailgresError(f"the provider {account.name} needs {option.name}")
    return kind.open(
        replace(account, options=sending_options(account)), Runtime(timeout, connections, keep)
    )


def sending_options(account: Account) -> dict[str, Any]:
    """Return the options of an account without those of its webhook."""
    receiving = {option.name for option in PROVIDERS[account.kind].options if option.receives}
    return {name: value for name, value in account.options.items() if name not in receiving}
