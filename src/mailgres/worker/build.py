"""A worker out of the settings: store, providers, janitors, pipeline."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres import __version__
from mailgres.database import first_line
from mailgres.errors import MailgresError
from mailgres.janitor import Alerts, WorkerInfo
from mailgres.janitor.scheduler import Scheduler
from mailgres.providers.accounts import open_provider
from mailgres.sender import Renderer, Sender
from mailgres.sqlstates import from_database
from mailgres.store import Store
from mailgres.worker.worker import Worker

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from mailgres.providers import Provider
    from mailgres.settings import Settings

log = logging.getLogger(__name__)

NOWHERE = "mailgres <mailgres@localhost>"
"""The sender of emails that leave for nowhere, if no other is set."""
SWEEP = 2.0
"""Seconds that janitors get to end by themselves."""


@contextmanager
def open_worker(
    settings: Settings, *, janitors: bool = True, stopping: threading.Event | None = None
) -> Iterator[Worker]:
    """Give a worker that is ready to run; with the janitors beside it, if it runs for long.

    Whoever sets `stopping`, stops it; also before it is ready.
    """
    store = Store(
        settings.database_url or "",
        worker=settings.worker_name,
        statement_timeout=settings.statement_timeout,
        listen=settings.listen,
    )
    try:
        providers = open_providers(settings, store)
        try:
            _introduce(settings, store, providers)
            worker = _assemble(settings, store, providers, stopping)
            with _janitors(settings, store) if janitors else nullcontext():
                yield worker
        finally:
            for provider in providers.values():
                provider.close()
    finally:
        store.close()


@contextmanager
def _janitors(settings: Settings, store: Store) -> Iterator[None]:
    """Let the janitors work meanwhile."""
    alerts = Alerts(settings.alert_email, settings.alert_webhook, settings.alert_webhook_format)
    known_as = WorkerInfo(settings.worker_name, __version__, alerts=alerts)
    scheduler = Scheduler(store.pool, known_as)
    scheduler.start()
    try:
        yield
    finally:
        if not scheduler.stop(SWEEP):
            # They wait for a database that is away. Those at work end with their chunk.
            store.close()
            scheduler.stop()


def open_providers(settings: Settings, store: Store) -> dict[str, Provider]:
    """The providers that the settings name, in their order."""
    settings.check_providers()
    return {
        account.name: open_provider(
            account,
            timeout=settings.provider_timeout.total_seconds(),
            connections=settings.concurrency,
            keep=store.capture,
        )
        for account in settings.accounts()
    }


def _introduce(settings: Settings, store: Store, providers: dict[str, Provider]) -> None:
    """Tell the database what this worker was told. What it was not told stays as it is."""
    try:
        store.senders()  # is there a queue at all?
        if settings.origin("providers").layer != "default":
            store.use_providers(_described(settings, providers))
        defaults = settings.queue_defaults()
        if defaults.chosen:
            store.set_defaults(defaults.retry_policy, defaults.expires_after)
        _check_routes(store, providers)
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


def _described(settings: Settings, providers: dict[str, Provider]) -> list[dict[str, Any]]:
    """What the database has to know of the providers.

    An account with a name of its own has a route of its own, for the tenants it belongs to; unless
    there are no others.
    """
    named = {name for name, provider in providers.items() if name != provider.kind}
    rate = settings.rate_limit
    return [
        {
            "name": name,
            "kind": provider.kind,
            "idempotent": provider.capabilities.idempotent,
            "batch_size": provider.capabilities.batch_size,
            "fixed_batches": provider.capabilities.fixed_batches,
            "emails_per_second": rate.per_second if rate else None,
            "own_route": name in named and len(named) < len(providers),
        }
        for name, provider in providers.items()
    ]


def _check_routes(store: Store, providers: dict[str, Provider]) -> None:
    """Refuse to leave emails waiting for a provider that this worker does not have."""
    for route, provider in store.routed():
        if provider not in providers:
            raise MailgresError(
                f"the route {route} leads to the provider {provider}, which is not configured here",
                f"Add {provider} to MAILGRES_PROVIDERS, or change the route:"
                f" mailgres routes set {route} {' '.join(providers)}",
            )


def _assemble(
    settings: Settings,
    store: Store,
    providers: dict[str, Provider],
    stopping: threading.Event | None,
) -> Worker:
    leaves = any(provider.kind not in ("capture", "null") for provider in providers.values())
    sender = settings.from_email or (None if leaves else NOWHERE)
    return Worker(
        store,
        Sender(store, Renderer(store, sender, settings.reply_to), providers),
        lease=settings.lease,
        concurrency=settings.concurrency,
        batch_size=_claim_size(settings, providers),
        poll=settings.poll_interval.total_seconds(),
        grace=settings.grace.total_seconds(),
        stopping=stopping,
    )


def _claim_size(settings: Settings, providers: dict[str, Provider]) -> int:
    """How many emails a claim takes; unless somebody chose, enough for a provider's batch."""
    if settings.origin("batch_size").layer != "default":
        return settings.batch_size
    batches = [
        p.capabilities.batch_size for p in providers.values() if p.capabilities.fixed_batches
    ]
    return max(settings.batch_size, *batches, 1)
