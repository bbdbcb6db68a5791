"""Check that the credentials of providers are valid and that providers are usable."""

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
"""Time limit for the answer of a provider; a worker waits longer."""
LIMITED = {"rate": "rate-limited", "quota": "out of quota"}
LATER = "The provider cannot be reached now: try again later"


def check_account(account: Account, settings: Settings, *, at_most: float | None = None) -> Result:
    """Check the credentials of an account without sending anything."""
    timeout = settings.provider_timeout.total_seconds()
    timeout = min(timeout, at_most) if at_most else timeout
    provider = open_provider(account, timeout=timeout, connections=1, keep=lambda _: {})
    try:
        return provider.check()
    finally:
        provider.close()


def advice(account: Account, result: Result) -> str:
    """Return what to do about an account whose credentials were not accepted."""
    of_account = result.verdict in ("config", "permanent")
    what = PROVIDERS[account.kind].advice if of_account else LATER
    more = f"; `mailgres errors explain {result.code}` says more" if result.code else ""
    return f"{what}{more}."


def credentials(context: DoctorContext) -> Iterator[Finding]:
    """Check that providers accept the credentials in a worker's settings. Nothing is sent."""
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
            yield Finding("credentials", "info", f"{account.name}: not checked: {result.untried}")
            continue
        if result.verdict == "sent":
            limits = f" ({result.message})" if result.message else ""
            yield Finding("credentials", "ok", f"{account.name}: valid{limits}")
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
    """Check that every provider of a route is usable and configured on a live worker."""
    yield from _missing(context)
    yield from _only_captured(context)
    for row in context.ask("providers"):
        name = row["name"]
        if row["circuit"] != "closed":
            why = f": {row['circuit_reason']}" if row["circuit_reason"] else ""
            until = "a probe will follow" if row["ends"] else "no probe will follow"
            yield Finding(
                "providers",
                "error",
                f"the circuit of {name} is {row['circuit'].replace('_', ' ')}{why}; {until}",
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
                f"{name} is {LIMITED[row['limited_by']]}",
                context.mailgres("eta"),
            )


def _missing(context: DoctorContext) -> Iterator[Finding]:
    """Report routes to a provider that no live worker, or not this one, has."""
    for row in context.ask("missing_providers"):
        routes = ", ".join(row["routes"])
        yield Finding(
            "providers",
            "error",
            f"no live worker has {row['provider']}, a provider of the route {routes}",
            f"{context.mailgres('routes list')}  # start a worker that has it, or change the route",
        )
    if context.as_worker:
        mine = [account.name for account in context.settings.accounts()]
        for row in context.ask("default_route"):
            if row["provider"] not in mine:
                yield Finding(
                    "providers",
                    "error",
                    f"a worker with these settings refuses to start: the route default has the"
                    f" provider {row['provider']}, which they do not name",
                    context.mailgres(f"routes set default {' '.join(mine)}"),
                )


def _only_captured(context: DoctorContext) -> Iterator[Finding]:
    routes = context.ask("default_route")
    if routes and all(row["captures"] for row in routes):
        kept = "the route default sends nothing: its provider is capture"
        yield Finding("providers", "info", kept, "export MAILGRES_PROVIDERS=resend")


CHECKS = (
    Check("credentials", credentials, "no credentials are needed", needs="network"),
    Check("providers", providers, "all providers are usable"),
)
