"""The provider `capture`: stores emails in the database instead of sending them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.providers.base import ProviderKind

if TYPE_CHECKING:
    from mailgres.providers.base import Account, Provider, Runtime


def _open(account: Account, runtime: Runtime) -> Provider:
    from mailgres.providers.capture.provider import CaptureProvider  # noqa: PLC0415

    return CaptureProvider(runtime.keep, account.name)


CAPTURE = ProviderKind("capture", "capture", _open, captures=True)
