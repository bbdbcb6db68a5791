"""Build a worker from the settings: store, providers, janitors, pipeline."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import psycopg

from mailgres import __version__
from mailgres.janitor import JANITORS, AlertTargets, WorkerInfo
from mailgres.janitor.scheduler import Scheduler
from mailgres.providers.registry import PROVIDERS, open_provider
from mailgres.safe_errors import reason
from mailgres.sender import Renderer, Sender
from mailgres.settings.live import LiveSettings
from mailgres.worker.credentials import following
from mailgres.worker.registration import register_worker
from mailgres.worker.store import Store
from mailgres.worker.worker import Worker

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from mailgres.providers import Provider
    from mailgres.settings import Account, Settings

log = logging.getLogger(__name__)

CAPTURE_SENDER = "mailgres <mailgres@localhost>"
"""The sender of emails that are only captured, if no other is set."""
JANITOR_STOP_SECONDS = 2.0
"""Seconds that janitors get to finish on shutdown."""
SIGN_OFF_SECONDS = 1.0
"""Seconds that a stopping worker waits for a connection to sign off."""


@contextmanager
def open_worker(
    settings: Settings,
    *,
    janitors: bool = True,
    guest: bool = False,
    stopping: threading.Event | None = None,
) -> Iterator[Worker]:
    """Yield a worker that is ready to run, with the janitors in the background if it runs for long.

    Setting `stopping` stops it, also before it is ready. A `guest` changes nothing in the database
    that would outlive it.
    """
    with open_pipeline(settings, on_demand=not janitors, guest=guest) as pipeline:
        worker = pipeline.worker(stopping=stopping)
        with running_janitors(pipeline) if janitors else nullcontext():
            yield worker


class Pipeline:
    """The parts that workers share: a store and the providers. Several workers may use it at once.

    `on_demand`: workers run when they are called. Each registers when it starts and sends no
    heartbeats.
    """

    def __init__(
        self,
        live: LiveSettings,
        store: Store,
        providers: dict[str, Provider],
        *,
        on_demand: bool = False,
    ) -> None:
        self.live = live
        self.settings = settings = live.current
        self.store = store
        self.providers = tuple(providers)
        self.sends = any(not PROVIDERS[provider.kind].captures for provider in providers.values())
        self._on_demand = on_demand
        sender = settings.from_email or (None if self.sends else CAPTURE_SENDER)
        self._sender = Sender(
            store, Renderer(store, sender, settings.reply_to), providers, settings.lease
        )

    @property
    def details(self) -> dict[str, object]:
        """Return what others may see: how its connection is protected, its sender's domain."""
        domain = (self.settings.from_email or "").rpartition("@")[2].strip("> ").lower()
        sender = {"from_domain": domain} if domain and self.sends else {}
        return {"connection": self.store.protection, **sender}

    def worker(
        self, *, batch_size: int | None = None, stopping: threading.Event | None = None
    ) -> Worker:
        """Return a worker for one run whose claims take at most `batch_size` emails."""
        settings = self.settings
        if self._on_demand:
            self.store.heartbeat(__version__, self.details, self.providers, on_demand=True)
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
def open_pipeline(
    settings: Settings, *, on_demand: bool = False, guest: bool = False
) -> Iterator[Pipeline]:
    """Yield a pipeline that is registered in the database."""
    store = Store(
        settings.database_url or "",
        worker=settings.worker_name,
        statement_timeout=settings.statement_timeout,
        listen=settings.listen,
    )
    try:
        providers = open_providers(settings, store)
        try:
            register_worker(settings, store, providers, guest=guest)
            live = LiveSettings(settings)
            with following(live, providers, partial(_open_provider, settings, store)):
                yield Pipeline(live, store, providers, on_demand=on_demand)
        finally:
            _sign_off(store)
            for provider in providers.values():
                provider.close()
    finally:
        store.close()


@contextmanager
def running_janitors(pipeline: Pipeline, *, working: bool = True) -> Iterator[None]:
    """Run the janitors in the background.

    `working` is false for a service that works only on request. It sends no heartbeat: otherwise
    nobody would notice that the requests have stopped.
    """
    settings, store = pipeline.settings, pipeline.store
    alerts = AlertTargets.of(settings)
    known_as = WorkerInfo(
        settings.worker_name,
        __version__,
        details=lambda: pipeline.details,
        providers=pipeline.providers,
        alerts=alerts,
    )
    janitors = [each for each in JANITORS.values() if working or each.locked]
    scheduler = Scheduler(store.borrow, known_as, janitors)
    _log_start(pipeline)
    scheduler.start()
    try:
        yield
    finally:
        if not scheduler.stop(JANITOR_STOP_SECONDS):
            # Janitors may be waiting for a database that is away. Running ones finish their chunk.
            store.close()
            scheduler.stop()


def _log_start(pipeline: Pipeline) -> None:
    """Log which database this worker is connected to and which providers it sends through."""
    through = ", ".join(pipeline.providers)
    place = pipeline.store.connected_to
    reported = {
        "action": "start",
        "event": "WorkerStarted",
        **place,
        "providers": list(pipeline.providers),
        "sends": pipeline.sends,
        "version": __version__,
    }
    does = f"sends through {through}" if pipeline.sends else f"sends nothing ({through})"
    log.info("connected to %s, %s", place["database"], does, extra=reported)


def _sign_off(store: Store) -> None:
    try:
        store.sign_off(SIGN_OFF_SECONDS)
    except psycopg.Error as error:  # its heartbeat expires instead
        log.debug("not signed off", extra={"action": "stop", "error": reason(error)})


def open_providers(settings: Settings, store: Store) -> dict[str, Provider]:
    """Return the providers that the settings name, in that order."""
    settings.check_providers()
    return {
        account.name: _open_provider(settings, store, account) for account in settings.accounts()
    }


def _open_provider(settings: Settings, store: Store, account: Account) -> Provider:
    return open_provider(
        account,
        timeout=settings.provider_timeout.total_seconds(),
        connections=settings.concurrency,
        keep=store.capture,
    )


def _claim_size(settings: Settings, providers: dict[str, Provider]) -> int:
    """Return how many emails a claim takes; by default enough for a provider's batch."""
    if settings.origin("batch_size").layer != "default":
        return settings.batch_size
    batches = [
        p.capabilities.batch_size for p in providers.values() if p.capabilities.fixed_batches
    ]
    return max(settings.batch_size, *batches, 1)
