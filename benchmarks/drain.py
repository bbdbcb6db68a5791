"""Draining the queue against the loop that projects write by hand, and against peers.

    python -m benchmarks.drain [--trial]

Ours: one worker process, the provider `null`, a real template rendered, logs and rollups written,
claims of 500. The loop: claim 10 rows with SKIP LOCKED, then one UPDATE and one commit for each; it
renders nothing and logs nothing. The peers are in `peers/`, in an environment of their own that
`make peers` makes. All drain the same number, on the same server, in turn.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from benchmarks import harness
from benchmarks.contender import Contender
from benchmarks.draining import BATCH, FROM, LEASE, drain, drainers, fill, open_store
from benchmarks.meters import Meter
from benchmarks.null_provider import NullProvider
from benchmarks.roster import ROSTER
from mailgres import embedded
from mailgres.model import Message, Outcome
from mailgres.sender import Renderer

if TYPE_CHECKING:
    import psycopg

LOOP_TABLE = """
    CREATE TABLE loop_queue (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        recipient text, payload jsonb, status text NOT NULL DEFAULT 'pending');
    CREATE INDEX ON loop_queue (id) WHERE status = 'pending';
"""
LOOP_FILL = """
    INSERT INTO loop_queue (recipient, payload)
    SELECT 'user' || i || '@example.com', '{"name": "Ana"}' FROM generate_series(1, %s) i
"""
LOOP_CLAIM = """
    UPDATE loop_queue SET status = 'sending'
    WHERE id = ANY (ARRAY(
        SELECT id FROM loop_queue WHERE status = 'pending' ORDER BY id LIMIT 10
        FOR UPDATE SKIP LOCKED))
    RETURNING id
"""
PEERS = {"post_office_in_memory": 1.5, "procrastinate_noop": 12}
"""The peers' scripts, and how many times their rate is the goal."""
ENTRIES = {entry.script: entry for entry in ROSTER}
EMAILS = 20_000
ROUNDS = 3
EMAILS_FOR_MEMORY = 100_000


def loop(conn: psycopg.Connection, count: int) -> float:
    """The loop: returns the seconds it took."""
    conn.execute(LOOP_FILL, (count,))

    def work() -> None:
        while rows := conn.execute(LOOP_CLAIM).fetchall():
            for row in rows:
                conn.execute("UPDATE loop_queue SET status = 'sent' WHERE id = %s", row)

    return harness.timed(work)


def peer(contender: Contender, count: int) -> float:
    """A peer, in processes of its own: returns the seconds it took."""
    return contender.drain(count=count).seconds


def compare(
    server: str, url: str, conn: psycopg.Connection, rounds: int, count: int
) -> dict[str, Any]:
    """Drain by turns; the figures are medians of the rounds."""
    times: dict[str, list[float]] = {}
    cpu: list[float] = []
    with drainers(url, 2) as workers, ExitStack() as stack:
        peers = {
            name: stack.enter_context(
                Contender(entry, embedded.database(server, name), Meter(conn))
            )
            for name in PEERS
            if not (entry := ENTRIES[f"{name}.py"]).missing()
        }
        for _ in range(rounds):
            fill(conn, count)
            seconds, reported = drain(workers[:1], count)
            times.setdefault("mailgres", []).append(seconds)
            cpu.append(reported[0]["cpu_seconds"] / count)
            fill(conn, count)
            times.setdefault("mailgres_two_processes", []).append(drain(workers, count)[0])
            times.setdefault("loop", []).append(loop(conn, count))
            for name, contender in peers.items():
                times.setdefault(name, []).append(peer(contender, count))
    median = {name: statistics.median(seen) for name, seen in times.items()}
    goals = {"loop": 3, **PEERS}
    return {
        "emails": count,
        "rounds": rounds,
        "per_s": {name: round(count / seconds) for name, seconds in median.items()},
        "times_the_rate_of": {
            name: {"ratio": round(median[name] / median["mailgres"], 2), "goal": goal}
            for name, goal in goals.items()
            if name in median
        },
        "two_processes": {
            "ratio": round(median["mailgres"] / median["mailgres_two_processes"], 2),
            "goal": 1.5,
        },
        "us_per_email": round(median["mailgres"] / count * 1e6, 1),
        "worker_cpu_us_per_email": round(statistics.median(cpu) * 1e6, 1),
    }


def steps(url: str, conn: psycopg.Connection, claims: int) -> dict[str, float]:
    """What an email costs in each step, the steps one after another; microseconds."""
    provider = NullProvider(batch_size=BATCH)
    store = open_store(url, provider)
    renderer = Renderer(store, FROM)
    watch = harness.Stopwatch()
    fill(conn, claims * BATCH)
    for _ in range(claims):
        with watch("claim"):
            emails = store.claim(BATCH, LEASE, [provider.name])
        with watch("render"):
            rendered = renderer.render(emails)
        messages = [message for message in rendered if isinstance(message, Message)]
        with watch("start (only at providers without keys)"):
            store.start_attempts(emails)
        with watch("send"):
            results = provider.send(messages)
        with watch("finish"):
            store.finish([Outcome(m.email, r, 1) for m, r in zip(messages, results, strict=True)])
    store.close()
    return {
        step: round(statistics.median(seen) / BATCH * 1e6, 1) for step, seen in watch.times.items()
    }


def memory(url: str, conn: psycopg.Connection, count: int) -> dict[str, Any]:
    """How large a worker process is while it sends; it should stay as it is."""
    chunk = count // 5
    grown = []
    with drainers(url, 1) as workers:
        for _ in range(5):
            fill(conn, chunk)
            grown.append(drain(workers, chunk)[1][0]["peak_rss_mb"])
    return {"emails": chunk * 5, "peak_rss_mb_after_each_fifth": grown, "goal": 150}


def main(*, trial: bool) -> None:
    """Run it."""
    rounds, count, for_memory = (1, 1000, 5000) if trial else (ROUNDS, EMAILS, EMAILS_FOR_MEMORY)
    with harness.server() as server:
        url = harness.migrated(server, "drain")
        with harness.connect(url) as conn:
            conn.execute(LOOP_TABLE, prepare=False)
            result = {
                "trial": trial,
                "missing_peers": [n for n in PEERS if ENTRIES[f"{n}.py"].missing()],
                "null_provider": compare(server, url, conn, rounds, count),
                "us_per_email_by_step": steps(url, conn, 2 if trial else 20),
                "memory": memory(url, conn, for_memory),
            }
            harness.report("drain", conn, result)


if __name__ == "__main__":
    main(trial=harness.is_trial(__doc__))
