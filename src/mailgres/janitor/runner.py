"""Runs a janitor once: in chunks, each a short transaction that holds the janitor's lock."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import psycopg
from psycopg.types.json import Jsonb

from mailgres.errors import MailgresError
from mailgres.janitor.janitors import AlertTargets, query
from mailgres.janitor.notify import digest
from mailgres.outage import is_away
from mailgres.safe_errors import reason, where

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from mailgres.janitor.janitors import Connect, Janitor

MOST_CHUNKS = 50
"""Most chunks of one run. The next run does the rest, so that none keeps a thread for long."""

SHRINK_FACTOR = 10
"""How much smaller the next chunk is when one took too long."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerInfo:
    """The worker that runs a janitor: what its heartbeat records, and whom it notifies."""

    name: str
    version: str = ""
    details: Callable[[], Mapping[str, object]] = field(default=lambda: MappingProxyType({}))
    providers: tuple[str, ...] | None = None
    alerts: AlertTargets = field(default_factory=AlertTargets)


@dataclass(frozen=True)
class Done:
    """What a run did."""

    handled: int = 0
    chunks: int = 0
    busy: bool = False
    """Another process was running the janitor."""
    more: bool = False
    """It ended before everything was done."""


def run(
    janitor: Janitor,
    connect: Connect,
    worker: WorkerInfo,
    *,
    stopped: Callable[[], bool] = lambda: False,
) -> Done:
    """Run a janitor until nothing is left to do, or for `MOST_CHUNKS` chunks.

    `stopped` is asked before each chunk.
    """
    found: list[Any] = []
    try:
        return _run_chunks(janitor, connect, worker, found, stopped)
    finally:
        # Also if a chunk failed: those before it are committed, and nothing finds the same again.
        if janitor.after and found:
            janitor.after(janitor.action, found, worker.alerts, connect)


def rehearse(janitor: Janitor, connect: Connect, worker: WorkerInfo) -> Done:
    """Run the first chunk of a janitor and roll it back; nobody is notified."""
    size = janitor.chunk
    with connect() as connection:
        while True:
            try:
                with connection.transaction(force_rollback=True):
                    count = _run_chunk(janitor, connection, worker, size, [])
            except psycopg.errors.QueryCanceled:
                size = _smaller(size)
                continue
            if count is None:
                return Done(busy=True)
            return Done(count, 1, more=size is not None and count >= size)


def _run_chunks(
    janitor: Janitor,
    connect: Connect,
    worker: WorkerInfo,
    found: list[Any],
    stopped: Callable[[], bool],
) -> Done:
    handled, size = 0, janitor.chunk
    with connect() as connection:
        for chunks in range(MOST_CHUNKS):
            if stopped():
                return Done(handled, chunks, more=True)
            try:
                count = _run_chunk(janitor, connection, worker, size, found)
            except psycopg.errors.QueryCanceled:
                size = _smaller(size)
                continue
            if count is None:
                return Done(handled, chunks, busy=True)
            handled += count
            if size is None or count < size:
                return Done(handled, chunks + 1)
    return Done(handled, MOST_CHUNKS, more=True)


def _smaller(size: int | None) -> int:
    """Return a smaller size after a chunk that took too long; re-raise if there is none."""
    if size is None or size == 1:
        raise  # noqa: PLE0704 - called where one is handled
    # Some emails weigh a thousand times as much as others (attachments).
    return max(size // SHRINK_FACTOR, 1)


def _run_chunk(
    janitor: Janitor,
    connection: psycopg.Connection[Any],
    worker: WorkerInfo,
    size: int | None,
    found: list[Any],
) -> int | None:
    """Run one chunk; return how many rows it handled, or None if another process has the lock.

    Its further columns are added to `found`.
    """
    parameters: dict[str, object] = {
        "chunk": size,
        "lock": f"mailgres.{janitor.action}",
        "alert_email": worker.alerts.email,
        "webhook": digest(worker.alerts.webhook),
    }
    if not janitor.locked:
        parameters |= {
            "worker": worker.name,
            "version": worker.version,
            "details": Jsonb(dict(worker.details())),
            "providers": None if worker.providers is None else list(worker.providers),
        }
    with connection.transaction():
        connection.execute(query("limits"))
        row = connection.execute(janitor.query, parameters).fetchone()
    if row is None:
        return None
    if janitor.after:
        found.append(row[1:])
    return int(row[0])


def attempt(
    janitor: Janitor,
    connect: Connect,
    worker: WorkerInfo,
    *,
    stopped: Callable[[], bool] = lambda: False,
) -> str | None:
    """Run a janitor as the scheduler does: an error is logged, and the next run repeats the work.

    Returns the error, in a line that quotes no email.
    """
    reported: dict[str, object] = {"action": janitor.action, "worker": worker.name}
    try:
        done = run(janitor, connect, worker, stopped=stopped)
    except (psycopg.Error, MailgresError) as error:
        # The first line only: the details of the database may quote an email.
        reported |= {"sqlstate": getattr(error, "sqlstate", None)}
        why = reason(error)
        level = logging.DEBUG if is_away(error) else logging.ERROR  # an outage is logged once
        logger.log(level, "%s failed: %s", janitor.action, why, extra=reported)
        return why
    except Exception as error:  # noqa: BLE001 - whatever it is, the janitors go on
        # Where it happened, not its text, which may quote an email.
        why = where(error)
        logger.error("%s failed: %s", janitor.action, why, extra=reported)  # noqa: TRY400
        return why
    reported |= {"handled": done.handled, "chunks": done.chunks}
    # A job of one call every few seconds is logged for debugging only.
    level = logging.INFO if done.handled and janitor.chunk else logging.DEBUG
    logger.log(level, "%s handled %s", janitor.action, done.handled, extra=reported)
    return None


def note(janitor: Janitor, connect: Connect, worker: WorkerInfo, error: str | None) -> bool:
    """Count a failure of a janitor for the alerts, or reset the count after a success.

    Returns whether that worked: the database may be away.
    """
    parameters = {
        "janitor": janitor.name,
        "worker": worker.name,
        "error": error,
        "every": janitor.every,
    }
    try:
        with connect() as connection, connection.transaction():
            connection.execute(query("limits"))
            connection.execute(query("record_janitor_run"), parameters)
    except (psycopg.Error, MailgresError) as failure:
        reported = {"action": janitor.action, "worker": worker.name}
        why = reason(failure)
        logger.debug("%s: its failure was not noted: %s", janitor.action, why, extra=reported)
        return False
    return True
