"""Requests that come at once share a transaction, and none harms another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import conninfo

from mailgres.http.answers import Refused
from mailgres.http.recorder import MOST_WRITERS, Recorder
from mailgres.webhooks import Event
from mailgres.worker.store import Store
from support.postgres import Connect
from support.queue import Queue
from worker.harness import until

END_THE_OTHERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture
def recorder(database_url: str) -> Iterator[Recorder]:
    store = Store(database_url, worker="test")
    recorder = Recorder(store)
    yield recorder
    recorder.close()
    store.close()


@pytest.fixture
def emails(conn: psycopg.Connection) -> list[UUID]:
    """Emails that were sent; the first ones are to be locked."""
    queue = Queue(conn)
    ids = []
    for _ in range(MOST_WRITERS + 5):
        ids.append(queue.enqueue())
        queue.attempt("sent")
    conn.execute("UPDATE email_queue SET provider = 'capture'")
    return ids


def is_waiting(conn: psycopg.Connection, count: int) -> bool:
    """Whether so many sessions wait for a lock."""
    return conn.execute(WAITING).fetchone() == (count,)


def delivered(queue_id: UUID, event: str = "delivered") -> list[tuple[str, Event]]:
    about = Event(event, f"evt-{queue_id}", queue_id=queue_id)
    return [("capture", about)]


async def behind_a_lock(
    recorder: Recorder, connect: Connect, locked: list[UUID], requests: list[Any]
) -> list[Any]:
    """Record requests while all writers wait for the locked emails; return their results."""
    with connect(autocommit=False) as other, connect() as watching:
        other.execute("SELECT FROM email_queue WHERE id = ANY (%s) FOR UPDATE", [locked])
        first = []
        for count, queue_id in enumerate(locked, 1):
            first.append(asyncio.create_task(recorder.record(delivered(queue_id))))
            await asyncio.to_thread(until, partial(is_waiting, watching, count), "a lock")
        more = [asyncio.create_task(recorder.record(each)) for each in requests]
        await asyncio.sleep(0)
        other.rollback()
        assert await asyncio.gather(*first) == [{"recorded": 1}] * len(locked)
        return await asyncio.gather(*more, return_exceptions=True)


def test_requests_that_come_while_others_are_written_share_a_transaction(
    recorder: Recorder, connect: Connect, conn: psycopg.Connection, emails: list[UUID]
) -> None:
    locked, waiting = emails[:MOST_WRITERS], emails[MOST_WRITERS:]
    requests = [delivered(queue_id) for queue_id in waiting]
    done = asyncio.run(behind_a_lock(recorder, connect, locked, requests))
    assert done == [{"recorded": 1}] * len(waiting)
    by = "SELECT count(DISTINCT xmin::text) FROM email_events WHERE queue_id = ANY (%s)"
    assert conn.execute(by, [waiting]).fetchone() == (1,)


def test_each_of_the_requests_that_share_a_transaction_gets_its_own_results(
    recorder: Recorder, connect: Connect, emails: list[UUID]
) -> None:
    locked, (known, twice, *_) = emails[:MOST_WRITERS], emails[MOST_WRITERS:]
    stranger = UUID(int=7)
    requests = [
        [*delivered(known), *delivered(stranger), ("capture", Event("contact.created", "evt-9"))],
        delivered(twice),
        delivered(twice),
        delivered(stranger),
    ]
    done = asyncio.run(behind_a_lock(recorder, connect, locked, requests))
    assert done[0] == {"recorded": 1, "unmatched": 1, "ignored": 1}
    assert done[1:] == [{"recorded": 1}, {"duplicate": 1}, {"duplicate": 1}]


def test_a_request_that_the_database_refuses_does_not_harm_those_written_with_it(
    recorder: Recorder, connect: Connect, conn: psycopg.Connection, emails: list[UUID]
) -> None:
    locked, (first, bad, last, *_) = emails[:MOST_WRITERS], emails[MOST_WRITERS:]
    requests = [delivered(first), delivered(bad, event=""), delivered(last)]
    done = asyncio.run(behind_a_lock(recorder, connect, locked, requests))
    assert done[::2] == [{"recorded": 1}] * 2
    assert isinstance(done[1], Refused)
    assert done[1].status == 422
    stored = "SELECT count(*) FROM email_events WHERE queue_id = ANY (%s)"
    assert conn.execute(stored, [[first, bad, last]]).fetchone() == (2,)


def test_webhooks_have_to_be_repeated_while_the_database_is_unreachable(
    recorder: Recorder, connect: Connect, database_url: str, emails: list[UUID]
) -> None:
    conn = connect()

    async def record_all() -> list[Any]:
        await recorder.record(delivered(emails[0]))
        with connect(conninfo.make_conninfo(database_url, dbname="postgres")) as elsewhere:
            close = f"ALTER DATABASE {conn.info.dbname} ALLOW_CONNECTIONS false"
            elsewhere.execute(close.encode())
        conn.execute(END_THE_OTHERS)
        tasks = [recorder.record(delivered(each)) for each in emails[1:]]
        return await asyncio.gather(*tasks, return_exceptions=True)

    done = asyncio.run(record_all())
    assert [each.status for each in done] == [503] * len(emails[1:])
    assert all(each.headers["Retry-After"] for each in done)
