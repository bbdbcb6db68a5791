"""Register a worker in the database when it starts, and refuse a configuration that cannot work.

Routes, rate limits and defaults are shared by all workers. A worker sets them only while they are
as the migration made them; after that it logs what differs from its own settings and which command
changes it. It refuses to start where emails would wait for a provider that it does not have.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres.database import first_line
from mailgres.errors import MailgresError, MigrationFailed
from mailgres.providers.registry import PROVIDERS
from mailgres.schema import status as schema
from mailgres.settings import DEFINITIONS
from mailgres.sqlstates import from_database

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import timedelta

    from mailgres.providers import Provider
    from mailgres.settings import Settings
    from mailgres.worker.store import Store, UsedProviders

log = logging.getLogger(__name__)

DEFAULT = "default"
"""The route of emails that name no other."""


def register_worker(
    settings: Settings, store: Store, providers: dict[str, Provider], *, guest: bool = False
) -> None:
    """Register what this worker was configured with. Everything else stays as it is.

    A `guest` registers nothing: it uses the queue as it is.
    """
    _check_schema(settings)
    try:
        store.senders()  # fails if there is no queue
        if not guest:
            _register(settings, store, providers)
        check_routes(store, providers)
    except psycopg.Error as error:
        refused = f"The database refuses this worker: {first_line(error)}"
        raise (from_database(error) or MailgresError(refused)) from error
    for remark in settings.remarks():
        log.warning(remark, extra={"action": "start"})
    if store.pooled and not store.listens and settings.listen == "auto":
        log.warning(
            "behind a transaction pooler: new emails are found by polling",
            extra={"action": "start"},
        )


def _check_schema(settings: Settings) -> None:
    """Refuse a schema that is older than this worker, or that asks for a newer one."""
    try:
        schema.check(settings.database_url)
    except MigrationFailed:
        log.warning(
            "the version of the schema could not be read: GRANT mailgres_worker to this role",
            extra={"action": "start"},
        )


def _register(settings: Settings, store: Store, providers: dict[str, Provider]) -> None:
    if settings.origin("providers").layer != "default":
        used = store.use_providers(described(settings, providers))
        _log_route(used)
        _log_limits(settings, used)
    defaults = settings.queue_defaults()
    if defaults.chosen:
        _use_defaults(store, defaults.retry_policy, defaults.expires_after)


def described(settings: Settings, providers: dict[str, Provider]) -> list[dict[str, Any]]:
    """Return what the database has to know of the providers.

    An account with a name of its own gets a route of its own, for its tenants, unless there are no
    others.
    """
    named = {name for name, provider in providers.items() if name != provider.kind}
    rate = settings.rate_limit
    return [
        {
            "name": name,
            "kind": provider.kind,
            "captures": PROVIDERS[provider.kind].captures,
            "idempotent": provider.capabilities.idempotent,
            "batch_size": provider.capabilities.batch_size,
            "fixed_batches": provider.capabilities.fixed_batches,
            "emails_per_second": rate.per_second if rate else None,
            "own_route": name in named and len(named) < len(providers),
        }
        for name, provider in providers.items()
    ]


def check_routes(store: Store, providers: Collection[str]) -> None:
    """Refuse to start if emails would wait for a provider that this worker does not have.

    A route other than the default may be left to other live workers that have the provider: while
    a new account is rolled out, the older workers do not know it.
    """
    missing = [each for each in store.routed() if each[1] not in providers]
    elsewhere = store.live_providers() if missing else set()
    for route, provider in missing:
        if route == DEFAULT or provider not in elsewhere:
            raise MailgresError(
                f"the route {route} uses the provider {provider}, which is not configured here",
                f"Add {provider} to MAILGRES_PROVIDERS, or change the route for all workers:"
                f" mailgres routes set {route} {' '.join(providers)}",
            )
        log.warning(
            "emails of the route %s are left to other workers: %s is not configured here",
            route,
            provider,
            extra={"action": "start", "route": route, "provider": provider},
        )


def _log_route(used: UsedProviders) -> None:
    """Log that the default route was set, or that it differs from this worker's settings."""
    if used.was_initial:
        reported = {
            "action": "start",
            "event": "RouteSet",
            "route": DEFAULT,
            "providers": used.actual,
        }
        log.info("the route default is now %s", ", ".join(used.actual), extra=reported)
    elif used.wanted != used.actual:
        _differs(
            "providers",
            ",".join(used.wanted),
            f"the route default stays {', '.join(used.actual)}",
            f"mailgres routes set default {' '.join(used.wanted)}",
        )


def _log_limits(settings: Settings, used: UsedProviders) -> None:
    rate = DEFINITIONS["rate_limit"].show(settings.rate_limit)
    for provider, found in used.other_limits.items():
        stays = f"{found:g}/s" if found is not None else "unlimited"
        _differs(
            "rate_limit",
            rate,
            f"the limit of {provider} stays {stays}",
            f"mailgres providers limit {provider} --rate {rate}",
        )


def _use_defaults(store: Store, retry_policy: str, expires_after: timedelta | None) -> None:
    used = store.use_defaults(retry_policy, expires_after)
    expiry = DEFINITIONS["expires_after"].show
    if used.was_initial:
        reported = {"action": "start", "event": "DefaultsSet", "retryPolicy": retry_policy}
        log.info("emails now have the retry policy %s by default", retry_policy, extra=reported)
    if used.retry_policy != retry_policy:
        stays = f"the default retry policy stays {used.retry_policy}"
        command = f"mailgres policies default {retry_policy}"
        _differs("retry_policy", retry_policy, stays, command)
    if used.expires_after != expires_after:
        wanted = expiry(expires_after) or "never"
        stays = f"emails expire after {expiry(used.expires_after) or 'never'} as before"
        command = f"mailgres policies default --expires-after {wanted}"
        _differs("expires_after", wanted, stays, command)


def _differs(setting: str, wanted: str, stays: str, command: str) -> None:
    """Log what this worker would change and does not, because all workers share it."""
    reported = {"action": "start", "event": "SettingNotApplied", "setting": setting}
    log.warning(
        "%s is %s here, but %s; to change it: %s", setting, wanted, stays, command, extra=reported
    )
