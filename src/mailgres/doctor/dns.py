"""Check the DNS records of the sender domains, which receivers check, too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mailgres.doctor.finding import Check, Finding
from mailgres.doctor.resolver import NoAnswer, txt
from mailgres.providers.registry import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.doctor.finding import DoctorContext
    from mailgres.providers.base import ProviderKind

NAME = "dns"


def from_domain(context: DoctorContext) -> Iterator[Finding]:
    """Check SPF, DMARC and, if the name of the key is known, DKIM of the sender domains."""
    for domain, kinds in _senders(context):
        # A worker of a later version may have registered a kind that is not known here.
        if known := [PROVIDERS[kind] for kind in sorted(kinds) if kind in PROVIDERS]:
            yield from _examine(domain, known, context)


def _senders(context: DoctorContext) -> Iterator[tuple[str, set[str]]]:
    """Yield sender domains and the kinds of providers that send for them.

    They come from the settings of a worker, or from what the live workers report.
    """
    if context.as_worker:
        domain = domain_of(context.settings.from_email)
        if domain is not None:
            kinds = {one.kind for one in context.settings.accounts()}
            yield domain, {kind for kind in kinds if not PROVIDERS[kind].captures}
    elif context.connection is not None and context.migrated:
        for row in context.ask("sending"):
            yield row["domain"], set(row["kinds"])


def _examine(domain: str, kinds: list[ProviderKind], context: DoctorContext) -> Iterator[Finding]:
    asked = context.nameservers
    try:
        yield from _spf(domain, kinds, asked)
        yield from _dmarc(domain, asked)
        for kind in kinds:
            if kind.dkim:
                yield from _dkim(domain, kind, asked)
    except NoAnswer:
        yield Finding(NAME, "info", f"not checked: no name server answered for {domain}")


def domain_of(sender: str | None) -> str | None:
    """Return the domain of an address, with or without a display name."""
    match = re.search(r"@([^\s<>@]+?)>?\s*$", sender or "")
    return match[1].lower() if match else None


def _spf(
    domain: str, kinds: list[ProviderKind], asked: tuple[str, ...] | None
) -> Iterator[Finding]:
    names = [*(f"{kind.mail_from}.{domain}" for kind in kinds if kind.mail_from), domain]
    found = {name: _starting(txt(name, asked), "v=spf1") for name in names}
    for name, records in found.items():
        if len(records) > 1:
            yield Finding(
                NAME,
                "error",
                f"{name} has {len(records)} SPF records, so receivers ignore all of them",
                f"keep only one TXT record of {name} that starts with v=spf1",
            )
        if any(re.search(r"(?<![-~?])\+?\ball\b", record) for record in records):
            yield Finding(
                NAME,
                "error",
                f"the SPF record of {name} allows everybody to send for it",
                f"end the TXT record of {name} with ~all instead",
            )
    if not any(found.values()):
        means = " ".join(sorted({kind.spf for kind in kinds if kind.spf}))
        yield Finding(
            NAME,
            "warning",
            f"{domain} has no SPF record: receivers may treat its emails as spam",
            f'add: {names[0]}. TXT "v=spf1 {means} ~all"',
        )


def _dmarc(domain: str, asked: tuple[str, ...] | None) -> Iterator[Finding]:
    labels = domain.split(".")
    # the policy of the organisation's domain applies to its subdomains
    above = [".".join(labels[n:]) for n in range(len(labels) - 1)]
    if any(_starting(txt(f"_dmarc.{name}", asked), "v=dmarc1") for name in above):
        return
    yield Finding(
        NAME,
        "warning",
        f"{domain} has no DMARC record: large receivers reject bulk email without one",
        f'add: _dmarc.{domain}. TXT "v=DMARC1; p=none"',
    )


def _dkim(domain: str, kind: ProviderKind, asked: tuple[str, ...] | None) -> Iterator[Finding]:
    name = f"{kind.dkim}.{domain}"
    if not any("p=" in record for record in txt(name, asked)):
        yield Finding(
            NAME,
            "warning",
            f"{name} has no key: {domain} is not set up at {kind.title}",
            f"add the records that {kind.title} shows for the domain, then verify it there",
        )


def _starting(records: list[str], word: str) -> list[str]:
    return [record for record in records if record.lower().startswith(word)]


CHECKS = (Check(NAME, from_domain, "no problem found", needs="network"),)
