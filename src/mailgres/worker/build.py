"""A worker out of the settings: store, providers, janitors, pipeline."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres import __version__
from mailgres.database import first_line
from mailgres.errors import MailgresError
from mailgres.janitor import JANITORS, Alerts, WorkerInfo
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
    with open_pipeline(settings) as pipeline:
        worker = pipeline.worker(stopping=stopping)
        with sweeping(pipeline) if janitors else nullcontext():
            yield worker


class Pipeline:
    """What workers are made of: a store and those who send. Several may work with it at once."""

    def __init__(self, settings: Settings, store: Store, providers: dict[str, Provider]) -> None:
        self.settings = settings
        self.store = store
        leaves = any(provider.kind not in ("capture", "null") for provider in providers.values())
        sender = settings.from_email or (None if leaves else NOWHERE)
        self._sender = Sender(store, Renderer(store, sender, settings.reply_to), providers)

    def worker(
        self, *, batch_size: int | None = None, stopping: threading.Event | None = None
    ) -> Worker:
        """A worker for one run, of claims that take so many."""
        settings = self.settings
        return Worker(
            self.store,
            self._sender,
            lease=settings.lease,
            concurrency=settings.concurrency,
            batch_size=batch_size or _claim_size(settings, self._sender.providers),
            poll=settings.poll_interval.total_seconds(),
            grace=settings.grace.total_seconds(),
            stopping=stopping,
        )


@contextmanager
def open_pipeline(settings: Settings) -> Iterator[Pipeline]:
    """Give what workers are made of, known to the database."""
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
            yield Pipeline(settings, store, providers)
        finally:
            for provider in providers.values():
                provider.close()
    finally:
        store.close()


@contextmanager
def sweeping(pipeline: Pipeline, *, working: bool = True) -> Iterator[None]:
    """Let the janitors work meanwhile.

    `working` is false for whoever works only when he is asked to: he has no heartbeat, or nobody
    would notice that he is not asked any more.
    """
    settings, store = pipeline.settings, pipeline.store
    alerts = Alerts(settings.alert_email, settings.alert_webhook, settings.alert_webhook_format)
    known_as = WorkerInfo(settings.worker_name, __version__, alerts=alerts)
    janitors = [each for each in JANITORS.values() if working or each.locked]
    scheduler = Scheduler(store.pool, known_as, janitors)
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


def _claim_size(settings: Settings, providers: dict[str, Provider]) -> int:
    """How many emails a claim takes; unless somebody chose, enough for a provider's batch."""
    if settings.origin("batch_size").layer != "default":
        return settings.batch_size
    batches = [
        p.capabilities.batch_size for p in providers.values() if p.capabilities.fixed_batches
    ]
    return max(settings.batch_size, *batches, 1)
