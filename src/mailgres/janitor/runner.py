"""Does a duty once: in chunks, each a short transaction that holds the duty's lock."""

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
"""Chunks of one run. What is left waits for the next, so that no duty keeps a thread for long."""

SHRINK_FACTOR = 10
"""How much smaller the next chunk is when one took too long."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerInfo:
    """For whom a janitor runs: what a heartbeat tells, and who is told of what it finds."""

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
    """Somebody else was doing the duty."""
    more: bool = False
    """It ended before there was nothing left to do."""


def run(
    janitor: Janitor,
    connect: Connect,
    worker: WorkerInfo,
    *,
    stopped: Callable[[], bool] = lambda: False,
) -> Done:
    """Do a duty until there is nothing left, at most `MOST_CHUNKS` chunks of it.

    `stopped` is asked before each chunk.
    """
    found: list[Any] = []
    try:
        return _run_chunks(janitor, connect, worker, found, stopped)
    finally:
        # Also if a chunk failed: what those before it found is committed, and found no more.
        if janitor.after and found:
            janitor.after(janitor.action, found, worker.alerts, connect)


def rehearse(janitor: Janitor, connect: Connect, worker: WorkerInfo) -> Done:
    """Do the first chunk of a duty and take it back; nobody is told of what it found."""
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
    """The size after one that took too long; raises the error at hand if there is none smaller."""
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
    """Do one chunk; return how many rows it handled, or None if somebody else has the lock.

    What it gives besides is added to `found`.
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
    found += (each for column in row[1:] for each in column)
    return int(row[0])


def attempt(
    janitor: Janitor,
    connect: Connect,
    worker: WorkerInfo,
    *,
    stopped: Callable[[], bool] = lambda: False,
) -> str | None:
    """Do a duty as a scheduler does it: what goes wrong is logged, and the next run tries again.

    Returns what went wrong, in a line that quotes no email.
    """
    reported: dict[str, object] = {"action": janitor.action, "worker": worker.name}
    try:
        done = run(janitor, connect, worker, stopped=stopped)
    except (psycopg.Error, MailgresError) as error:
        # The first line only: the details of the database may quote an email.
        reported |= {"sqlstate": getattr(error, "sqlstate", None)}
        why = reason(error)
        level = logging.DEBUG if is_away(error) else logging.ERROR  # an outage is said once
        logger.log(level, "%s failed: %s", janitor.action, why, extra=reported)
        return why
    except Exception as error:  # noqa: BLE001 - whatever it is, the janitors go on
        # Where it happened, not its text, which may quote an email.
        why = where(error)
        logger.error("%s failed: %s", janitor.action, why, extra=reported)  # noqa: TRY400
        return why
    reported |= {"handled": done.handled, "chunks": done.chunks}
    # What is done with one call every few seconds is no news.
    level = logging.INFO if done.handled and janitor.chunk else logging.DEBUG
    logger.log(level, "%s handled %s", janitor.action, done.handled, extra=reported)
    return None


def note(janitor: Janitor, connect: Connect, worker: WorkerInfo, error: str | None) -> bool:
    """Count a failure of a janitor where alerts see it, or forget those before a success.

    Returns whether that worked: a database that is away will not hear of it.
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
