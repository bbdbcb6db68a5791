"""Where `mailgres suppressions import` reads from: a file, or the list of a provider."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from psycopg.types.json import Jsonb

from mailgres.cli.support import files
from mailgres.errors import MailgresError, UnknownProvider
from mailgres.providers.registry import open_provider
from mailgres.values.kinds import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.cli.support.operator import Operator
    from mailgres.settings import Settings

REASONS = ("bounced", "soft_bounced", "complained", "unsubscribed", "manual")
FAULTS = {
    "address": "it has no email address",
    "reason": f"the reason is not one of {', '.join(REASONS)}",
    "source": "the source is not one of event, provider, operator, import",
    "tenant": "the tenant is longer than 200 characters",
    "detail": "the detail is longer than 1000 characters",
    "note": "the note is longer than 1000 characters",
    "expiry": "expires_at is not a time",
    "expired": "it has expired",
}
ADDED = ("added", "known")

_ADDRESS = ("recipient_email", "email", "address", "line")
_CHUNK = 1000
_OF_RESEND = {"bounce": "bounced", "complaint": "complained"}

Entry = tuple[int, dict[str, Any]]


@runtime_checkable
class Listing(Protocol):
    """A provider that has a list of suppressed addresses."""

    def suppressions(self) -> Iterator[dict[str, Any]]:
        """Yield its entries: email, origin, created_at."""
        ...


def of_file(file: str, tenant: str, reason: str) -> Iterator[Entry]:
    """Yield the entries of a file with their lines."""
    kind = files.kind_of(file, files.LINES, files.CSV, files.JSON_LINES)
    for line, record in files.read(file, kind):
        address = next((record[name] for name in _ADDRESS if name in record), None)
        if address is None:
            raise files.broken(file, line, "there is no column recipient_email")
        yield (
            line,
            {
                "recipient_email": str(address).strip().replace("\0", ""),
                "tenant_id": record.get("tenant_id") or tenant,
                "reason": record.get("reason") or reason,
                "source": "import",
                **{name: record.get(name) for name in ("detail", "note", "expires_at")},
            },
        )


def of_provider(settings: Settings, name: str, tenant: str) -> Iterator[Entry]:
    """Yield the entries of the list of an account."""
    account = next((one for one in settings.accounts() if one.name == name), None)
    if account is None:
        meant = suggestion(name, settings.providers)
        raise UnknownProvider(
            f"The settings name no provider {name!r}",
            f"Did you mean {meant}?" if meant else f"Add {name} to MAILGRES_PROVIDERS.",
        )
    settings.check_providers()
    provider = open_provider(
        account,
        timeout=settings.provider_timeout.total_seconds(),
        connections=1,
        keep=lambda _: {},
    )
    try:
        if not isinstance(provider, Listing):
            raise MailgresError(
                f"mailgres cannot read the suppressions of {name} ({account.kind})",
                "Export them there, and import the file. Resend's list can be read.",
            )
        for place, one in enumerate(provider.suppressions(), 1):
            yield (
                place,
                {
                    "recipient_email": str(one.get("email")),
                    "tenant_id": tenant,
                    "reason": _OF_RESEND.get(str(one.get("origin")), "manual"),
                    "source": "provider",
                    "created_at": one.get("created_at"),
                    "note": f"from the list of {name}",
                },
            )
    finally:
        provider.close()


def suppress_all(database: Operator, entries: Iterator[Entry], file: str | None) -> Counter[str]:
    """Suppress in chunks; with `file`, an invalid line ends the import."""
    reported: Counter[str] = Counter()
    while chunk := list(islice(entries, _CHUNK)):
        found = database.ask("suppress", entries=Jsonb([entry for _, entry in chunk]))
        for (line, _), one in zip(chunk, found, strict=True):
            if file and one["outcome"] not in ADDED:
                raise files.broken(file, line, FAULTS[one["outcome"]])
            reported[one["outcome"] if one["outcome"] in ADDED else "invalid"] += 1
    return reported
