"""A worker out of the settings: store, providers, janitors, pipeline."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

from mailgres import __version__
from mailgres.database import first_line
from mailgres.errors import MailgresError
from mailgres.janitor import WorkerInfo
from mailgres.janitor.scheduler import Scheduler
from mailgres.providers.capture import CaptureProvider
from mailgres.providers.null import NullProvider
from mailgres.sender import Renderer, Sender
from mailgres.sqlstates import from_database
from mailgres.store import Store
from mailgres.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mailgres.providers import Provider
    from mailgres.settings import Settings

log = logging.getLogger(__name__)

NOWHERE = "mailgres <mailgres@localhost>"
"""The sender of emails that leave for nowhere, if no other is set."""


@contextmanager
def open_worker(settings: Settings, *, janitors: bool = True) -> Iterator[Worker]:
    """Give a worker that is ready to run; with the janitors beside it, if it runs for long."""
    store = Store(settings.database_url or "", worker=settings.worker_name)
    try:
        providers = open_providers(settings, store)
        try:
            _introduce(settings, store, providers)
            with_janitors = Scheduler(store.pool, WorkerInfo(settings.worker_name, __version__))
            if janitors:
                with_janitors.start()
            try:
                yield _assemble(settings, store, providers)
            finally:
                if janitors:
                    with_janitors.stop()
        finally:
            for provider in providers.values():
                provider.close()
    finally:
        store.close()


def open_providers(settings: Settings, store: Store) -> dict[str, Provider]:
    """The providers that the settings name, in their order."""
    known: dict[str, Callable[[], Provider]] = {
        "capture": lambda: CaptureProvider(store.capture),
        "null": NullProvider,
    }
    missing = [name for name in settings.providers if name not in known]
    if missing:
        raise MailgresError(
            f"the provider {missing[0]} is not available in this version",
            "Set MAILGRES_PROVIDERS to capture, or work the queue with a processor of your own.",
        )
    return {name: known[name]() for name in settings.providers}


def _introduce(settings: Settings, store: Store, providers: dict[str, Provider]) -> None:
    """Tell the database what this worker was told. What it was not told stays as it is."""
    try:
        store.senders()  # is there a queue at all?
        if settings.origin("providers").layer != "default":
            store.use_providers(
                [
                    {
                        "name": provider.name,
                        "kind": provider.kind,
                        "idempotent": provider.capabilities.idempotent,
                        "batch_size": provider.capabilities.batch_size,
                    }
                    for provider in providers.values()
                ]
            )
        defaults = settings.queue_defaults()
        if defaults.chosen:
            store.set_defaults(defaults.retry_policy, defaults.expires_after)
    except psycopg.Error as error:
        refused = f"The database refuses this worker: {first_line(error)}"
        raise (from_database(error) or MailgresError(refused)) from error
    for remark in settings.remarks():
        log.warning(remark, extra={"action": "start"})
    if store.pooled:
        log.warning(
            "behind a transaction pooler: new emails are found by polling",
            extra={"action": "start"},
        )


def _assemble(settings: Settings, store: Store, providers: dict[str, Provider]) -> Worker:
    leaves = any(provider.kind not in ("capture", "null") for provider in providers.values())
    sender = settings.from_email or (None if leaves else NOWHERE)
    return Worker(
        store,
        Sender(store, Renderer(store, sender, settings.reply_to), providers),
        lease=settings.lease,
        concurrency=settings.concurrency,
        batch_size=settings.batch_size,
        poll=settings.poll_interval.total_seconds(),
        grace=settings.grace.total_seconds(),
    )
