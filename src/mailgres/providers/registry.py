"""The kinds of providers. A new one is a package that declares its kind, and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    return kind.open(account, Runtime(timeout, connections, keep))
