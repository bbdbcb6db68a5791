"""The chaos run: what a disturbance costs mailgres and four peers, and what is left afterwards.

    python -m benchmarks.chaos [--quick | --trial]

For each disturbance and each queue a new database: a worker sends emails, each call takes some
milliseconds, twenty at once. The rate before the disturbance is compared with the rate after it.
Then the worker gets time for the rest: what was never sent is lost, or stuck if it is still in
the queue; what was sent more than once is doubled. The results are JSON Lines in `results/`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks import harness, roster
from benchmarks.faults import FAULTS, Server
from benchmarks.measures import Call, calls
from benchmarks.peer_process import PeerFailed, PeerProcess, clock
from mailgres import embedded

if TYPE_CHECKING:
    from benchmarks.roster import Entry


@dataclass(frozen=True)
class Sizes:
    """How long each part takes. `patience_s`: how long nothing has to happen until the end."""

    minutes: float
    delay_ms: int
    warm_up: int
    before_s: float
    fault_s: float
    after_s: float
    patience_s: float


FULL = Sizes(25, 10, 600, 3, 5, 5, 15)
QUICK = Sizes(8, 10, 200, 1.5, 2, 2, 14)
TRIAL = Sizes(60, 20, 40, 0.3, 0.5, 0.3, 10)
AT_ONCE = 20
"""Calls that every worker makes at once."""
LOAD = "1.5 times the load"


class Scene:
    """One queue under one disturbance."""

    def __init__(self, server: Server, entry: Entry, url: str, sizes: Sizes, path: Path) -> None:
        self.server = server
        self.entry = entry
        self.url = url
        self.sizes = sizes
        self.path = path
        self.first = 0
        self.rate = 0.0
        self._stack = ExitStack()
        self._replacing = threading.Lock()

    def __enter__(self) -> Self:
        with ExitStack() as on_failure:
            on_failure.callback(self.close)
            self.producer = self._start()
            self.producer.ask("setup")
            self.worker = self._start()
            on_failure.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        self._stack.close()

    def _start(self) -> PeerProcess:
        return self._stack.enter_context(PeerProcess(self.entry, self.url))

    def fill(self, count: int) -> None:
        """Enqueue."""
        self.producer.ask("fill", self.first, count, 0)
        self.first += count

    def arrive(self, seconds_of_work: float) -> None:
        """Enqueue as much as the worker sends in that time."""
        self.fill(max(1, round(self.rate * seconds_of_work)))

    def work(self) -> None:
        """Let the worker send and record its calls."""
        self.worker.ask("work", self.path, self.sizes.delay_ms, 0)

    def replace_worker(self) -> None:
        """Kill the worker and start another one."""
        with self._replacing:
            self.worker.kill()
            self.worker = self._start()
            self.work()

    def measure_rate(self) -> None:
        """Send some emails to learn how fast that is."""
        self.fill(self.sizes.warm_up)
        self.work()
        self.worker.wait_until_done(self.sizes.warm_up)
        times = sorted(call.at for call in calls(self.path))
        most = AT_ONCE / (self.sizes.delay_ms / 1000)
        self.rate = min(most, len(times) / max(1e-3, (times[-1] - times[0]) / 1e9))

    def wait_for_the_rest(self) -> None:
        """Wait until all emails were sent, or nothing happens any more."""
        seen, changed_at = -1, time.monotonic()
        while (sent := len({call.number for call in calls(self.path)})) < self.first:
            if sent != seen:
                seen, changed_at = sent, time.monotonic()
            elif time.monotonic() - changed_at > self.sizes.patience_s:
                return
            time.sleep(0.2)

    def left(self) -> int:
        """Count what is in the queue, with a process that saw no disturbance."""
        with PeerProcess(self.entry, self.url) as witness:
            return int(witness.ask("left"))


@dataclass(frozen=True)
class Windows:
    """When the rate before and the rate after a disturbance are measured."""

    before: tuple[int, int]
    after: tuple[int, int]

    @staticmethod
    def rate(made: list[Call], window: tuple[int, int]) -> float | None:
        """Return the calls per second; None if the window is empty."""
        start, end = window
        seconds = (end - start) / 1e9
        return sum(start <= call.at < end for call in made) / seconds if seconds > 0 else None


def disturb(scene: Scene, fault: str) -> dict[str, Any]:
    """Run one scene; returns its figures."""
    sizes = scene.sizes
    scene.measure_rate()
    scene.arrive(3 * sizes.before_s)
    before = (start := clock(), start + int(sizes.before_s * 1e9))
    time.sleep(sizes.before_s)
    scene.rate = Windows.rate(calls(scene.path), before) or scene.rate
    if fault != LOAD:  # enough for the rest, at the rate just seen
        scene.arrive(1.5 * (sizes.fault_s + sizes.after_s))
    with FAULTS[fault](scene):
        time.sleep(sizes.fault_s)
    over = clock()
    time.sleep(sizes.after_s)
    end = clock()
    scene.wait_for_the_rest()
    return figures(scene, Windows(before, (over, end)))


def figures(scene: Scene, windows: Windows) -> dict[str, Any]:
    """Return what the recorded calls say. Without emails after the disturbance no rate is known."""
    made = calls(scene.path)
    called = {call.number for call in made}
    never = scene.first - len(called)
    stuck = min(never, scene.left()) if never else 0
    over, end = windows.after
    if not never:  # after the last call there is nothing to do
        end = min(end, max(call.at for call in made) + 1)
    before, after = windows.rate(made, windows.before), windows.rate(made, (over, end))
    known = before is not None and after is not None and before > 0
    return {
        "emails": scene.first,
        "before_per_s": round(before or 0),
        "after_per_s": None if after is None else round(after),
        "recovery_percent": round(100 * (after or 0) / (before or 1)) if known else None,
        "lost": never - stuck,
        "stuck": stuck,
        **repeated(made),
    }


def repeated(made: list[Call]) -> dict[str, int]:
    """Count emails that were sent twice, and calls that only repeated an idempotency key.

    A provider with keys drops a call whose key it has seen.
    """
    first_of_key = {(call.number, call.key): call for call in made if call.key != "-"}
    sent = Counter(number for number, _ in first_of_key)
    sent.update(call.number for call in made if call.key == "-")
    keyed = sum(call.key != "-" for call in made)
    return {
        "doubled": sum(count > 1 for count in sent.values()),
        "repeated_keys": keyed - len(first_of_key),
    }


def run(kind: str, sizes: Sizes, entries: list[Entry], faults: list[str]) -> list[dict[str, Any]]:
    """Run all scenes, unless the time is over; returns the lines."""
    started = time.monotonic()
    lines: list[dict[str, Any]] = []

    def add(**line: object) -> None:
        lines.append(line)
        print(json.dumps(line), flush=True)

    with Server() as server, tempfile.TemporaryDirectory() as place:
        with harness.connect(server.url) as conn:
            at = datetime.now(UTC).isoformat(timespec="seconds")
            machine = harness.machine(conn)
            add(measure="run", queue="", kind=kind, at=at, machine=machine, sizes=asdict(sizes))
        for number, (fault, entry) in enumerate((f, e) for f in faults for e in entries):
            about = {"measure": "chaos", "fault": fault, "queue": entry.name}
            reason = entry.missing()
            if not reason and time.monotonic() - started > sizes.minutes * 60 * 0.95:
                reason = "out of time"
            if reason:
                add(**about, failed=reason)
                continue
            url = embedded.database(server.url, f"scene{number}")
            path = Path(place) / f"calls{number}"
            try:
                with Scene(server, entry, url, sizes, path) as scene:
                    add(**about, **disturb(scene, fault))
            except PeerFailed as failure:
                add(**about, failed=str(failure))
    add(measure="end", queue="", seconds=round(time.monotonic() - started))
    return lines


def main() -> None:
    """Run it, keep the results and write the page."""
    parser = argparse.ArgumentParser(description="Disturb mailgres and its peers.")
    parser.add_argument("--quick", action="store_true", help="short parts")
    parser.add_argument("--trial", action="store_true", help="mailgres alone; nothing is stored")
    parser.add_argument("--fault", choices=FAULTS, help="only this one; nothing is stored")
    parser.add_argument("--only", help="only this queue; nothing is stored")
    parser.add_argument("--minutes", type=float, help="another limit, for a busy machine")
    given = parser.parse_args()
    kind = "trial" if given.trial else "quick" if given.quick else "full"
    sizes = {"trial": TRIAL, "quick": QUICK, "full": FULL}[kind]
    if given.minutes:
        sizes = replace(sizes, minutes=given.minutes)
    only = roster.OURS if given.trial else given.only
    entries = [e for e in roster.ROSTER if e.chaos and only in (None, e.name)]
    faults = [given.fault] if given.fault else list(FAULTS)
    lines = run(kind, sizes, entries, faults)
    if kind != "trial" and not given.fault and not only:
        name = "chaos_quick.jsonl" if given.quick else "chaos.jsonl"
        (harness.RESULTS / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        subprocess.run([sys.executable, roster.ROOT / "scripts" / "benchmarks_page.py"], check=True)
    print(f"{kind} run: {lines[-1]['seconds']} s", file=sys.stderr)


if __name__ == "__main__":
    main()
