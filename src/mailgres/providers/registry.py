"""Makes a provider of an account. What only one kind needs is imported for that kind only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailgres.errors import MailgresError
from mailgres.providers.capture import CaptureProvider
from mailgres.providers.null import NullProvider

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mailgres.providers.base import Provider
    from mailgres.settings import Account

    Keep = Callable[[Sequence[Mapping[str, Any]]], None]


def open_provider(account: Account, *, timeout: float, connections: int, keep: Keep) -> Provider:
    """The provider of an account. Nothing is connected yet.

    `timeout`: seconds that a call may take. `connections`: how many calls are made at once.
    `keep`: where `capture` puts messages.
    """
    match account.kind:
        case "capture":
            return CaptureProvider(keep, account.name)
        case "null":
            return NullProvider(account.name)
        case "resend":
            return _resend(account, timeout, connections)
        case "ses":
            return _ses(account, timeout, connections)
        case "smtp":
            return _smtp(account, timeout, connections)
    raise MailgresError(f"there is no kind of provider {account.kind!r}")


def _resend(account: Account, timeout: float, connections: int) -> Provider:
    from mailgres.providers.resend.provider import API_URL, ResendProvider  # noqa: PLC0415

    return ResendProvider(
        _given(account.api_key, account, "api_key"),
        account.api_url or API_URL,
        name=account.name,
        timeout=timeout,
        connections=connections,
    )


def _ses(account: Account, timeout: float, connections: int) -> Provider:
    try:
        from mailgres.providers.ses.provider import SesProvider  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"boto3", "botocore"}:
            raise
        raise MailgresError(
            f"the provider {account.name} needs boto3, which is not installed",
            "Install it: pip install boto3",
        ) from None
    return SesProvider(
        account.region,
        name=account.name,
        configuration_set=account.configuration_set,
        profile=account.profile,
        timeout=timeout,
        connections=connections,
    )


def _smtp(account: Account, timeout: float, connections: int) -> Provider:
    from mailgres.providers.smtp.provider import SmtpProvider  # noqa: PLC0415

    return SmtpProvider(
        _given(account.url, account, "url"),
        name=account.name,
        timeout=timeout,
        connections=connections,
    )


def _given(value: str | None, account: Account, needed: str) -> str:
    """The value; `settings.check_providers` has said more kindly what is missing."""
    if value is None:
        raise MailgresError(f"the provider {account.name} needs {needed}")
    return value
