"""Providers: whether their credentials are good, and whether they may be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.doctor.finding import Check, Finding
from mailgres.doctor.setup import NOT_A_WORKER
from mailgres.errors import MailgresError
from mailgres.providers.registry import PROVIDERS, open_provider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.doctor.finding import DoctorContext
    from mailgres.model import Result
    from mailgres.settings import Account, Settings

PROVIDER_TIMEOUT_SECONDS = 10.0
"""Seconds that a provider has to answer; a worker gives it longer."""
LATER = "The provider cannot be asked now: try again"


def check_account(account: Account, settings: Settings, *, at_most: float | None = None) -> Result:
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
    what = PROVIDERS[account.kind].advice if of_account else LATER
    more = f"; `mailgres errors explain {result.code}` says more" if result.code else ""
    return f"{what}{more}."


def credentials(context: DoctorContext) -> Iterator[Finding]:
    """Every account of a worker's settings is let in. Nothing is sent."""
    if not context.as_worker:
        yield Finding("credentials", "info", NOT_A_WORKER)
        return
    for account in context.settings.accounts():
        if PROVIDERS[account.kind].captures:
            continue
        try:
            result = check_account(account, context.settings, at_most=PROVIDER_TIMEOUT_SECONDS)
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


def providers(context: DoctorContext) -> Iterator[Finding]:
    """Every provider that a route names may be used, and a live worker has it."""
    yield from _missing(context)
    yield from _only_captured(context)
    for row in context.ask("providers"):
        name = row["name"]
        if row["circuit"] != "closed":
            why = f": {row['circuit_reason']}" if row["circuit_reason"] else ""
            until = "by itself" if row["ends"] else "not by itself"
            yield Finding(
                "providers",
                "error",
                f"the circuit of {name} is {row['circuit']}{why}; it is tried again {until}",
                context.mailgres(f"providers reset {name}"),
            )
        if row["paused"]:
            why = f": {row['pause_reason']}" if row["pause_reason"] else ""
            yield Finding(
                "providers",
                "warning",
                f"{name} is paused{why}",
                context.mailgres(f"providers resume {name}"),
            )
        if not row["enabled"]:
            yield Finding(
                "providers", "warning", f"{name} is disabled", context.psql(row["enable"])
            )
        if row["limited_by"]:
            yield Finding(
                "providers",
                "info",
                f"{name} is left alone because of its {row['limited_by']}",
                context.mailgres("eta"),
            )


def _missing(context: DoctorContext) -> Iterator[Finding]:
    """Routes that lead where no worker goes; of these settings, if they are a worker's."""
    for row in context.ask("missing_providers"):
        routes = ", ".join(row["routes"])
        yield Finding(
            "providers",
            "error",
            f"no live worker has {row['provider']}, which the route {routes} leads to",
            f"{context.mailgres('routes list')}  # start a worker that has it, or set the route",
        )
    if context.as_worker:
        mine = [account.name for account in context.settings.accounts()]
        for row in context.ask("default_route"):
            if row["provider"] not in mine:
                yield Finding(
                    "providers",
                    "error",
                    f"a worker with these settings refuses to start: the route default leads to"
                    f" {row['provider']}, which they do not name",
                    context.mailgres(f"routes set default {' '.join(mine)}"),
                )


def _only_captured(context: DoctorContext) -> Iterator[Finding]:
    routes = context.ask("default_route")
    if routes and all(row["captures"] for row in routes):
        kept = "no email leaves by the route default: it leads to capture"
        yield Finding("providers", "info", kept, "export MAILGRES_PROVIDERS=resend")


CHECKS = (
    Check("credentials", credentials, "none are needed", needs="network"),
    Check("providers", providers, "all may be used"),
)
