"""Measure how fast events of providers are recorded, alone and beside a drain.

    python -m benchmarks.events [--trial]

Emails are sent first. Then a `delivered` event for each is recorded by `record_email_events`, 100
in a call, found by the provider's id; one in fifty is a copy, one in a hundred is about an unknown
email. Beside a drain, one connection records 2,000 events each second, as a webhook service does,
while a worker process drains the queue; the same drain without events is measured in turn.

Last, the drain is compared with that of the commit before events existed (3be2911), in one run: a
database of that commit, one of this tree without any event, and one whose emails have events. The
commit has to be in the repository; in a copy without it this part is left out.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import before, draining, harness
from benchmarks.before import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

PER_CALL = 100
GOAL = 2_000
SENT = """
    SELECT provider, provider_message_id FROM email_queue
    WHERE status = 'sent' AND id > %s ORDER BY id
"""
NEWEST = "SELECT coalesce(max(id::text), '00000000-0000-0000-0000-000000000000') FROM email_queue"
RECORD = "SELECT w, count(*) FROM record_email_events(%s) w GROUP BY 1"
COMMIT = "3be2911"
"""The last commit without events."""
NONE = "00000000-0000-0000-0000-000000000000"
WAL = "SELECT pg_current_wal_insert_lsn() - '0/0'"


def events(conn: psycopg.Connection, after: str) -> Iterator[list[dict[str, Any]]]:
    """Yield calls with a `delivered` event for every email sent after this id."""
    made: list[dict[str, Any]] = []
    for number, (provider, message_id) in enumerate(conn.execute(SENT, (after,)).fetchall()):
        one = {"provider": provider, "event": "delivered", "event_id": f"evt-{message_id}"}
        unknown = number % 100 == 1
        made.append({**one, "provider_message_id": f"no-{message_id}" if unknown else message_id})
        if number % 50 == 0:
            made.append(made[-1])
        if len(made) >= PER_CALL:
            yield made
            made = []
    if made:
        yield made


class Ingest(threading.Thread):
    """Records calls at a rate, or as fast as it can, until they end or `ended` is set."""

    def __init__(self, url: str, calls: list[list[dict[str, Any]]], rate: int | None) -> None:
        super().__init__(daemon=True)
        self.calls, self.rate = calls, rate
        self.url = url
        self.done, self.words, self.seconds = 0, dict[str, int](), 0.0
        self.longest, self.cpu = 0.0, 0.0
        self.ended = threading.Event()

    def run(self) -> None:
        """Record."""
        with harness.connect(self.url) as conn:
            backend = conn.info.backend_pid
            start, used = time.perf_counter(), cpu_seconds(backend)
            for call in self.calls:
                if self.ended.is_set():
                    break
                if self.rate:
                    ahead = self.done / self.rate - (time.perf_counter() - start)
                    time.sleep(max(ahead, 0))
                began = time.perf_counter()
                for word, count in conn.execute(RECORD, (json.dumps(call),)):
                    self.words[word] = self.words.get(word, 0) + count
                self.longest = max(self.longest, time.perf_counter() - began)
                self.done += len(call)
            self.seconds = time.perf_counter() - start
            self.cpu = cpu_seconds(backend) - used

    def figures(self) -> dict[str, Any]:
        """Return what it did."""
        return {
            "events": self.done,
            "events_per_s": round(self.done / self.seconds),
            "backend_cpu_us_per_event": round(self.cpu / self.done * 1e6, 1),
            "longest_call_ms": round(self.longest * 1000, 1),
            "results": self.words,
        }


def alone(url: str, conn: psycopg.Connection, after: str) -> dict[str, Any]:
    """Record as fast as one connection can, then a few one by one."""
    calls = list(events(conn, after))
    before = conn.execute(WAL).fetchone()
    ingest = Ingest(url, calls, None)
    ingest.start()
    ingest.join()
    written = conn.execute(WAL).fetchone()
    assert before is not None and written is not None  # noqa: S101, PT018
    one = "SELECT record_email_event('null', 'opened', %s, p_event_id => %s)"
    ids = [call[0]["provider_message_id"] for call in calls[:500]]
    times = [harness.timed(partial(conn.execute, one, (name, f"open-{name}"))) for name in ids]
    return {
        **ingest.figures(),
        "wal_bytes_per_event": round(int(written[0] - before[0]) / ingest.done),
        "one_by_one": harness.milliseconds(times),
    }


def beside(
    url: str, conn: psycopg.Connection, after: str, emails: int, rounds: int
) -> dict[str, Any]:
    """Drain with and without events recorded meanwhile, in turn."""
    calls = list(events(conn, after))
    rates: dict[bool, list[float]] = {False: [], True: []}
    recorded = []
    with draining.drainers(url, 1) as workers:
        for turn in range(rounds * 2):
            draining.fill(conn, emails)
            with_events = turn % 2 == 1
            ingest = Ingest(url, calls, GOAL)
            if with_events:
                ingest.start()
            seconds, _ = draining.drain(workers, emails)
            if with_events:
                ingest.ended.set()
                ingest.join()
                calls = calls[ingest.done // PER_CALL :]
                recorded.append(ingest.figures())
            rates[with_events].append(emails / seconds)
    alone_, busy = (statistics.median(rates[key]) for key in (False, True))
    return {
        "drain_alone_per_s": round(alone_),
        "drain_beside_events_per_s": round(busy),
        "ratio": round(busy / alone_, 3),
        "recorded": recorded,
    }


def wal_of_a_drain(url: str, conn: psycopg.Connection, emails: int) -> dict[str, Any]:
    """Return what one drained email writes: it does not depend on the noise of the machine."""
    draining.fill(conn, emails)
    conn.execute("CHECKPOINT")
    with draining.drainers(url, 1) as workers:
        before = conn.execute(WAL).fetchone()
        seconds, _ = draining.drain(workers, emails)
        after = conn.execute(WAL).fetchone()
    assert before is not None and after is not None  # noqa: S101, PT018
    return {
        "wal_bytes_per_email": round(int(after[0] - before[0]) / emails),
        "per_s": round(emails / seconds),
    }


def compared(server: str, emails: int, rounds: int) -> dict[str, Any] | None:
    """Compare the drain with that before events existed, if git has the commit."""
    known = subprocess.run(
        ["git", "-C", before.ROOT, "cat-file", "-e", f"{COMMIT}^{{commit}}"],
        check=False,
        capture_output=True,
    )
    if known.returncode:
        return None
    after = NONE

    def record(conn: psycopg.Connection) -> None:
        nonlocal after
        for call in events(conn, after):
            conn.execute(RECORD, (json.dumps(call),))
        newest = conn.execute(NEWEST).fetchone()
        assert newest is not None  # noqa: S101
        after = str(newest[0])

    return before.compare(server, COMMIT, emails, rounds, record)


def main(*, trial: bool) -> None:
    """Measure all of it."""
    emails, rounds = (1_000, 1) if trial else (20_000, 3)
    with harness.server() as server:
        url = harness.migrated(server, "events")
        with harness.connect(url) as conn:
            never = wal_of_a_drain(url, conn, emails)
            result: dict[str, Any] = {
                "drain_before_any_event": never,
                "alone": alone(url, conn, NONE),
                "drain_after_events": wal_of_a_drain(url, conn, emails),
            }
            newest = conn.execute(NEWEST).fetchone()
            assert newest is not None  # noqa: S101
            more = 1_000 if trial else 80_000
            draining.fill(conn, more)
            with draining.drainers(url, 1) as workers:
                draining.drain(workers, more)
            result["beside_a_drain"] = beside(url, conn, str(newest[0]), emails, rounds)
            result["drain_compared"] = compared(server, emails, rounds)
            harness.report("events", conn, {"trial": trial, **result})


if __name__ == "__main__":
    main(trial=harness.is_trial(__doc__))
