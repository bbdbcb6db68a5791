"""Check that events come from providers whose webhooks are configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.doctor.finding import Check, Finding
from mailgres.providers.registry import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.doctor.finding import DoctorContext


def webhooks(context: DoctorContext) -> Iterator[Finding]:
    """Compare the emails that were sent lately with those that have events."""
    settings = context.settings
    configured = {account.name for account in settings.receivers()}
    for row in context.ask("reported_emails"):
        name, sent, reported = row["provider"], row["sent"], row["reported"]
        if row["captures"]:
            continue
        if reported:
            yield Finding("webhooks", "ok", f"{name}: {reported} of {sent} emails have events")
        elif name in configured or settings.events_secret:
            yield Finding(
                "webhooks",
                "warning",
                f"{name}: a webhook is configured, but none of the {sent} emails that were sent in"
                " the last two days has an event",
                context.mailgres(f"webhooks test {name if name in configured else 'events'}")
                + f"  # then see what {_title(row['kind'])} says about its calls",
            )
        else:
            yield Finding(
                "webhooks",
                "info",
                f"{name}: no event has come, and these settings have no webhook secret of it, so"
                " bounces and complaints are not known",
                "see docs/events.md",
            )


def _title(kind: str) -> str:
    return PROVIDERS[kind].title if kind in PROVIDERS else kind


CHECKS = (Check("webhooks", webhooks, "no email was sent in the last two days"),)
