"""The scorecard: mailgres, its peers and two bare loops, in one run on one server.

    python -m benchmarks.scorecard [--quick | --trial] [--only NAME …] [--minutes N]

Every queue is a process that speaks one protocol (`peers/protocol.py`). A queue that is not
installed is reported as missing. The results are JSON Lines in `results/`, and the run writes
`docs/benchmarks.md`. A trial takes two queues that need no package, prints its results and
stores nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import harness, measures, roster
from benchmarks.contender import Contender
from benchmarks.meters import Meter
from benchmarks.peer_process import PeerFailed
from mailgres import embedded

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from benchmarks.roster import Entry


@dataclass(frozen=True)
class Sizes:
    """How much is measured, and for how long at most.

    `emails`: in one drain, or less, down to `fewest`, if that takes more than `seconds`. Measures
    that would begin in the last tenth of the `minutes` are skipped, and reported so.
    """

    minutes: float
    fewest: int
    emails: int
    seconds: float
    rounds: int
    pinned_rounds: int
    growth_rounds: int
    rows: int
    tenants: int
    heavy: int
    light: int
    samples: int
    one_by_one: int
    in_bulk: int


FULL = Sizes(20, 500, 20_000, 1.2, 3, 6, 2, 1_000_000, 10_000, 100_000, 1_000, 120, 1_500, 20_000)
QUICK = Sizes(3, 200, 3_000, 0.4, 1, 1, 1, 20_000, 500, 5_000, 500, 20, 200, 3_000)
TRIAL = Sizes(60, 60, 600, 0.2, 1, 2, 1, 100, 10, 1_000, 300, 2, 5, 100)
TRIED = (roster.OURS, roster.LOOP_500)
"""The queues of a trial: they need no package, and few commits."""
FULL_RESULTS = harness.RESULTS / "scorecard.jsonl"
QUICK_RESULTS = harness.RESULTS / "scorecard_quick.jsonl"


class Scorecard:
    """A run: the lines of its results, and the time that is left."""

    def __init__(self, server: str, conn: psycopg.Connection, sizes: Sizes) -> None:
        self.server = server
        self.meter = Meter(conn)
        self.sizes = sizes
        self.started = time.monotonic()
        self.lines: list[dict[str, Any]] = []

    def add(self, measure: str, queue: str, **found: object) -> None:
        """Add a line, and show it."""
        self.lines.append({"measure": measure, "queue": queue, **found})
        print(json.dumps(self.lines[-1]), flush=True)

    def is_over(self) -> bool:
        """Whether no other measure may begin."""
        return time.monotonic() - self.started > self.sizes.minutes * 0.9 * 60

    def attempt(self, name: str, queue: str, measure: Callable[[], dict[str, Any]]) -> None:
        """Measure, unless the time is over; a failure of the queue becomes its result."""
        if self.is_over():
            self.add(name, queue, skipped="out of time")
            return
        try:
            self.add(name, queue, **measure())
        except PeerFailed as failure:
            self.add(name, queue, failed=str(failure))

    def contender(self, entry: Entry, purpose: str = "", processes: int = 1) -> Contender:
        """Return a queue in a database of its own."""
        letters = "".join(filter(str.isalnum, f"{entry.name}{purpose}"))
        url = embedded.database(self.server, letters)
        return Contender(entry, url, self.meter, processes=processes)

    def attempt_in(self, entry: Entry, **found: Callable[[Contender], dict[str, Any]]) -> None:
        """Measure in a database of its own, one measure after another."""
        if self.is_over():
            for name in found:
                self.add(name, entry.name, skipped="out of time")
            return
        try:
            with self.contender(entry, "".join(found)) as fresh:
                for name, measure in found.items():
                    self.attempt(name, entry.name, partial(measure, fresh))
        except PeerFailed as failure:  # it did not start
            for name in found:
                self.add(name, entry.name, failed=str(failure))

    def run(self, entries: list[Entry]) -> None:
        """Measure all of them: drains and latency in turn, the rest one queue after another."""
        with ExitStack() as stack:
            contenders = []
            for entry in entries:
                try:
                    contender = stack.enter_context(
                        self.contender(entry, processes=entry.processes)
                    )
                    contender.choose_count(self.sizes.fewest, self.sizes.emails, self.sizes.seconds)
                except PeerFailed as failure:
                    self.add("start", entry.name, failed=str(failure))
                else:
                    contenders.append(contender)
            self.drains(contenders)
            self.latency(contenders)
            self.alone(contenders)

    def drains(self, contenders: list[Contender]) -> None:
        """Drain with one process and with two, all queues in turn."""
        found: dict[tuple[str, int], list[Any]] = {}
        for _ in range(self.sizes.rounds):
            for each in contenders:
                for processes in range(1, each.entry.processes + 1):
                    seen = found.setdefault((each.entry.name, processes), [])
                    try:
                        seen.append(each.drain(processes))
                    except PeerFailed as failure:
                        self.add("drain", each.entry.name, processes=processes, failed=str(failure))
        for (name, processes), seen in found.items():
            if seen:
                self.add("drain", name, processes=processes, **measures.drains(seen))

    def latency(self, contenders: list[Contender]) -> None:
        """Measure the time from commit to call."""
        waking = [each for each in contenders if each.entry.wakes]
        for each in contenders:
            if not each.entry.wakes:
                self.add("latency", each.entry.name, skipped="started by cron")
        try:
            for name, found in measures.latency(waking, self.sizes.samples).items():
                self.add("latency", name, **found)
        except PeerFailed as failure:
            self.add("latency", "all", failed=str(failure))

    def alone(self, contenders: list[Contender]) -> None:
        """Measure what needs more databases: one queue after another, the longest measure last."""
        for free in contenders:
            self.pressed(free)
        for free in contenders:
            self.grown(free)

    def pressed(self, free: Contender) -> None:
        """Measure with a pinned snapshot, fairness, and enqueuing."""
        sizes, entry = self.sizes, free.entry

        def pinned(held: Contender) -> dict[str, Any]:
            return measures.pinned(free, held, sizes.pinned_rounds)

        def fairness(fresh: Contender) -> dict[str, Any]:
            return measures.fairness(fresh, sizes.heavy, sizes.light)

        def enqueue(fresh: Contender) -> dict[str, Any]:
            return measures.enqueue(fresh, sizes.one_by_one, sizes.in_bulk)

        self.attempt_in(entry, pinned=pinned)
        self.add("memory", entry.name, emails=free.emails_of_first, rss_mb=free.rss_mb)
        self.attempt_in(entry, enqueue=enqueue, fairness=fairness)

    def grown(self, free: Contender) -> None:
        """Measure many tenants, and many rows."""
        sizes, entry = self.sizes, free.entry

        def tenants() -> dict[str, Any]:
            return measures.tenants(free, sizes.tenants, sizes.growth_rounds)

        def growth(grown: Contender) -> dict[str, Any]:
            return measures.growth(free, grown, sizes.rows, sizes.growth_rounds)

        self.attempt("tenants", entry.name, tenants)
        self.attempt_in(entry, growth=growth)


def head(conn: psycopg.Connection, kind: str, sizes: Sizes) -> dict[str, Any]:
    """Return the first line: when, where, how much, and which versions."""
    return {
        "measure": "run",
        "kind": kind,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": harness.machine(conn),
        "sizes": asdict(sizes),
        "versions": {e.name: found for e in roster.ROSTER if (found := roster.version(e))},
    }


def run(kind: str, sizes: Sizes, only: list[str]) -> list[dict[str, Any]]:
    """Run it; returns the lines."""
    started = time.monotonic()
    with harness.server(durable=kind != "trial") as server, harness.connect(server) as conn:
        card = Scorecard(server, conn, sizes)
        card.lines.append(head(conn, kind, sizes))
        entries = []
        for entry in roster.ROSTER:
            if only and entry.name not in only:
                continue
            small = kind == "trial" and entry.name not in TRIED
            reason = "not part of a trial" if small else entry.missing()
            if reason:
                card.add("missing", entry.name, reason=reason)
            else:
                entries.append(entry)
        card.run(entries)
        load = harness.machine(conn)["load_average"]
        card.add("end", "", seconds=round(time.monotonic() - started), load_average=load)
    return card.lines


def main() -> None:
    """Run it, keep the results and write the page."""
    parser = argparse.ArgumentParser(description="Compare mailgres with its peers.")
    parser.add_argument("--quick", action="store_true", help="small numbers, three minutes")
    parser.add_argument("--trial", action="store_true", help="some seconds, nothing is stored")
    parser.add_argument("--only", nargs="*", default=[], help="only these; nothing is stored")
    parser.add_argument("--minutes", type=float, help="another limit, for a busy machine")
    given = parser.parse_args()
    names = {entry.name for entry in roster.ROSTER}
    if unknown := set(given.only) - names:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(sorted(names))}")
    kind = "trial" if given.trial else "quick" if given.quick else "full"
    sizes = {"trial": TRIAL, "quick": QUICK, "full": FULL}[kind]
    if given.minutes:
        sizes = replace(sizes, minutes=given.minutes)
    lines = run(kind, sizes, given.only)
    if kind != "trial" and not given.only:
        path = QUICK_RESULTS if given.quick else FULL_RESULTS
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        subprocess.run([sys.executable, roster.ROOT / "scripts" / "benchmarks_page.py"], check=True)
    print(f"{kind} run: {lines[-1]['seconds']} s", file=sys.stderr)


if __name__ == "__main__":
    main()
