"""What the scorecard measures. Each measure returns a dictionary for one line of the results."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from benchmarks.contender import SETTLE_SECONDS, Drained, median_rate
from benchmarks.peer_process import PeerFailed
from benchmarks.roster import OURS

if TYPE_CHECKING:
    from benchmarks.contender import Contender

ASLEEP_SECONDS = 0.45
"""Seconds between two emails to one queue, so that its worker sleeps when the next one arrives."""
FILL_SECONDS = 15
"""Seconds after which a slow producer has enqueued enough for the measure of fairness."""
GROUPED = (OURS, "pgmq")
"""Queues that know tenants or groups."""
LOOK_AT = 2
"""Fairness looks at this many calls for each light tenant."""


def drains(found: list[Drained]) -> dict[str, Any]:
    """Rates and costs of the rounds; costs are medians."""
    return {
        "emails": found[0].emails,
        "per_s": [drain.per_s for drain in found],
        "median_per_s": median_rate(found),
        "client_us": round(statistics.median(drain.us[0] for drain in found), 1),
        "server_us": round(statistics.median(drain.us[1] for drain in found), 1),
        "wal_bytes": round(statistics.median(drain.wal for drain in found)),
    }


def enqueue(contender: Contender, one_by_one: int, in_bulk: int) -> dict[str, Any]:
    """Rates of enqueuing: one by one, and a thousand at a time, while no worker runs."""
    contender.enqueue(20)  # plans and connections
    seconds = contender.enqueue(one_by_one)["seconds"]
    bulk = contender.fill(in_bulk)
    return {
        "one_by_one": one_by_one,
        "one_by_one_per_s": round(one_by_one / seconds),
        "in_bulk": in_bulk,
        "in_bulk_per_s": round(in_bulk / bulk),
    }


class Call(NamedTuple):
    """A recorded call: the number of the email, the time, and the idempotency key or `-`."""

    number: int
    at: int
    key: str


def calls(path: Path) -> list[Call]:
    """Return the recorded calls."""
    if not path.exists():
        return []
    # A killed peer may have written half of its last line.
    whole = path.read_text().rpartition("\n")[0].splitlines()
    return [Call(int(number), int(at), key) for number, at, key in map(str.split, whole)]


def latency(contenders: list[Contender], samples: int) -> dict[str, dict[str, Any]]:
    """From commit to call, the workers asleep: all queues in turn, one email each."""
    committed: dict[str, dict[int, float]] = {each.entry.name: {} for each in contenders}
    with TemporaryDirectory() as place, ExitStack() as stack:
        for each in contenders:
            worker = each.workers[0]
            worker.ask("work", Path(place) / each.entry.script, 0, 0)
            stack.callback(worker.ask, "stop")
        paths = {each.entry.name: Path(place) / each.entry.script for each in contenders}
        pause = max(0.01, ASLEEP_SECONDS / len(contenders))
        time.sleep(SETTLE_SECONDS * 3)
        for _ in range(samples + 2):
            for each in contenders:
                time.sleep(pause)
                number = each.first
                committed[each.entry.name][number] = each.enqueue(1)["committed_ns"]
        time.sleep(1)
        return {
            name: _quantiles(committed[name], {call.number: call.at for call in calls(path)})
            for name, path in paths.items()
        }


def _quantiles(committed: dict[int, float], called: dict[int, int]) -> dict[str, Any]:
    numbers = sorted(committed)[2:]  # the first ones plan
    late = [number for number in numbers if number not in called]
    if late:
        return {"failed": f"{len(late)} of {len(numbers)} were not called within a second"}
    times = sorted(max(0.0, (called[number] - committed[number]) / 1e6) for number in numbers)
    return {
        "samples": len(times),
        "p50_ms": round(statistics.median(times), 2),
        "p99_ms": round(times[int(len(times) * 0.99)], 2),
    }


def pinned(free: Contender, held: Contender, rounds: int) -> dict[str, Any]:
    """Drains while another session keeps a snapshot, in turn with drains where none does."""
    held.count = free.count
    found: tuple[list[int], list[int]] = ([], [])
    with psycopg.connect(held.url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT txid_current_snapshot()")
        for _ in range(rounds):
            found[0].append(free.drain().per_s)
            found[1].append(held.drain().per_s)
    last = [statistics.mean(rates[-2:]) for rates in found]
    return {
        "emails_per_round": free.count,
        "free_per_s": found[0],
        "pinned_per_s": found[1],
        "ratio": round(last[1] / last[0], 2),
    }


def growth(free: Contender, grown: Contender, rows: int, rounds: int) -> dict[str, Any]:
    """Drains beside sent and future rows, in turn with drains of a small database."""
    grown.producer.ask("grow", rows, rows)
    grown.count = free.count
    found: tuple[list[Drained], list[Drained]] = ([], [])
    grown.drain(count=100)
    for _ in range(rounds):
        found[0].append(free.drain())
        found[1].append(grown.drain())
    small, large = map(median_rate, found)
    return {
        "sent_rows": rows,
        "future_rows": rows,
        "emails": free.count,
        "small_per_s": small,
        "grown_per_s": large,
        "ratio": round(large / small, 2),
    }


def tenants(contender: Contender, number: int, rounds: int) -> dict[str, Any]:
    """Drains of emails that belong to many tenants, in turn with drains of one tenant's."""
    if contender.entry.name not in GROUPED:
        return {"skipped": "it has no tenants"}
    found: tuple[list[Drained], list[Drained]] = ([], [])
    for _ in range(rounds):
        found[0].append(contender.drain())
        found[1].append(contender.drain(tenants=number))
    one, many = map(median_rate, found)
    return {
        "tenants": number,
        "emails": contender.count,
        "one_per_s": one,
        "many_per_s": many,
        "ratio": round(many / one, 2),
    }


def jain(shares: list[float]) -> float:
    """Return Jain's index: 1 if all shares are equal, 1/n if one has everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def fairness(contender: Contender, heavy: int, light: int) -> dict[str, Any]:
    """One tenant with many emails, then many tenants with one each.

    In the first calls, two for each light tenant, a fair queue serves every light tenant once and
    the heavy one with the rest. A tenant's share is what it got of that, at most 1.
    """
    worker = contender.workers[0]
    ends_at = time.monotonic() + FILL_SECONDS
    while contender.first < heavy and time.monotonic() < ends_at:
        contender.fill(min(5000, heavy - contender.first))
    heavy = contender.first
    first_light = contender.first
    contender.fill(light, tenants=light)
    target = worker.done + LOOK_AT * light
    with TemporaryDirectory() as place:
        path = Path(place) / "calls"
        worker.ask("work", path, 0, light)
        try:
            worker.wait_until_done(target)
        finally:
            worker.kill()
        order = [call.number for call in calls(path)][: LOOK_AT * light]
    if len(order) < LOOK_AT * light:
        raise PeerFailed("too few calls were recorded")
    served = {number for number in order if number >= first_light}
    heavy_share = min(1.0, (len(order) - len(served)) / light)
    shares = [heavy_share, *(1.0 for _ in served), *(0.0 for _ in range(light - len(served)))]
    return {
        "heavy": heavy,
        "light": light,
        "calls": len(order),
        "light_served": len(served),
        "jain": round(jain(shares), 3),
    }
