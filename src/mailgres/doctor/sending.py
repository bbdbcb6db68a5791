"""Providers: whether their credentials are good, and whether they may be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.doctor.finding import Check, Finding
from mailgres.doctor.setup import KEPT, NOT_A_WORKER
from mailgres.errors import MailgresError
from mailgres.providers.accounts import open_provider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.doctor.finding import Patient
    from mailgres.model import Result
    from mailgres.settings import Account, Settings

PATIENCE = 10.0
"""Seconds that a provider has to answer; a worker gives it longer."""
ADVICE = {
    "resend": "Make a key at https://resend.com/api-keys and set it",
    "ses": "Set the region and credentials that AWS's tools use, or a profile of theirs",
    "smtp": "Check host, port, user, password and tls of its URL",
}
"""What to do about credentials that are not good."""
LATER = "The provider cannot be asked now: try again"


def try_account(account: Account, settings: Settings, *, at_most: float | None = None) -> Result:
    """Try the credentials of an account, without sending anything."""
    timeout = settings.provider_timeout.total_seconds()
    timeout = min(timeout, at_most) if at_most else timeout
    provider = open_provider(account, timeout=timeout, connections=1, keep=lambda _: None)
    try:
        return provider.check()
    finally:
        provider.close()


def advice(account: Account, result: Result) -> str:
    """What to do about an account that is not good."""
    of_account = result.verdict in ("config", "permanent")
    what = ADVICE.get(account.kind, LATER) if of_account else LATER
    more = f"; `mailgres errors explain {result.code}` says more" if result.code else ""
    return f"{what}{more}."


def credentials(patient: Patient) -> Iterator[Finding]:
    """Every account of a worker's settings is let in. Nothing is sent."""
    if not patient.as_worker:
        yield Finding("credentials", "info", NOT_A_WORKER)
        return
    for account in patient.settings.accounts():
        if account.kind in KEPT:
            continue
        try:
            result = try_account(account, patient.settings, at_most=PATIENCE)
        except MailgresError as error:
            yield Finding("credentials", "error", f"{account.name}: {error.message}", error.hint)
            continue
        if result.untried:
            yield Finding("credentials", "info", f"{account.name}: not tried: {result.untried}")
            continue
        if result.verdict == "sent":
            limits = f" ({result.message})" if result.message else ""
            yield Finding("credentials", "ok", f"{account.name}: good{limits}")
            continue
        why = ": ".join(filter(None, (result.code, result.message))) or result.verdict
        lasting = result.verdict in ("config", "permanent")
        yield Finding(
            "credentials",
            "error" if lasting else "warning",
            f"{account.name}: {why}",
            f"mailgres providers test {account.name}  # {advice(account, result)}",
        )


def providers(patient: Patient) -> Iterator[Finding]:
    """Every provider that a route names may be used, and a live worker has it."""
    yield from _missing(patient)
    yield from _only_captured(patient)
    for row in patient.ask("providers"):
        name = row["name"]
        if row["circuit"] != "closed":
            why = f": {row['circuit_reason']}" if row["circuit_reason"] else ""
            until = "by itself" if row["ends"] else "not by itself"
            yield Finding(
                "providers",
                "error",
                f"the circuit of {name} is {row['circuit']}{why}; it is tried again {until}",
                patient.mailgres(f"providers reset {name}"),
            )
        if row["paused"]:
            why = f": {row['pause_reason']}" if row["pause_reason"] else ""
            yield Finding(
                "providers",
                "warning",
                f"{name} is paused{why}",
                patient.mailgres(f"providers resume {name}"),
            )
        if not row["enabled"]:
            yield Finding(
                "providers", "warning", f"{name} is disabled", patient.psql(row["enable"])
            )
        if row["waits_for"]:
            yield Finding(
                "providers",
                "info",
                f"{name} is left alone because of its {row['waits_for']}",
                patient.mailgres("eta"),
            )


def _missing(patient: Patient) -> Iterator[Finding]:
    """Routes that lead where no worker goes; of these settings, if they are a worker's."""
    for row in patient.ask("missing_providers"):
        routes = ", ".join(row["routes"])
        yield Finding(
            "providers",
            "error",
            f"no live worker has {row['provider']}, which the route {routes} leads to",
            f"{patient.mailgres('routes list')}  # start a worker that has it, or set the route",
        )
    if patient.as_worker:
        mine = [account.name for account in patient.settings.accounts()]
        for row in patient.ask("default_route"):
            if row["provider"] not in mine:
                yield Finding(
                    "providers",
                    "error",
                    f"a worker with these settings refuses to start: the route default leads to"
                    f" {row['provider']}, which they do not name",
                    patient.mailgres(f"routes set default {' '.join(mine)}"),
                )


def _only_captured(patient: Patient) -> Iterator[Finding]:
    routes = patient.ask("default_route")
    if routes and all(row["kind"] in KEPT for row in routes):
        kept = "no email leaves by the route default: it leads to capture"
        yield Finding("providers", "info", kept, "export MAILGRES_PROVIDERS=resend")


CHECKS = (
    Check("credentials", credentials, "none are needed", needs="network"),
    Check("providers", providers, "all may be used"),
)
