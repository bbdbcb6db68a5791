"""How soon a webhook is answered, by a real service over real sockets.

    python -m benchmarks.webhooks [--trial]

Each request is a new connection, as a provider makes it, with one signed event about an email that
was sent; its answer comes after the commit. In turn with it: the health check, which is the price
of HTTP alone. Then several callers at once, with the processor time of the service and its backends
for each request, and one caller with 100 events in each request.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from benchmarks import harness
from benchmarks.before import BACKENDS, cpu_seconds
from benchmarks.draining import fill
from mailgres.webhooks import signature

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

SECRET = "whsec_dGhlIHNlY3JldCBvZiB0aGUgYmVuY2htYXJr"  # noqa: S105 - of this benchmark
TOKEN = "a-secret-of-the-benchmark"  # noqa: S105 - of this benchmark
CALLERS = 8
PER_REQUEST = 100


class Service:
    """A running `mailgres serve`."""

    def __init__(self, port: int, process: int) -> None:
        self._port = port
        self.process = process

    def call(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Any:  # noqa: ANN401
        """Make a request on a connection of its own; return the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            found = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != http.client.OK:
            sys.exit(f"{path} answered with {answer.status}: {found}")
        return found

    def health(self) -> None:
        """Ask for the health."""
        self.call("GET", "/healthz", b"", {})

    def send(self, events: Sequence[dict[str, Any]]) -> None:
        """Report events."""
        body = json.dumps(events[0] if len(events) == 1 else list(events)).encode()
        headers = signature.sign(body, SECRET, f"msg_{uuid4().hex}")
        found = self.call("POST", "/webhooks/events", body, headers)
        if found != {"recorded": len(events)}:
            sys.exit(f"{len(events)} events: {found}")

    def drain(self) -> None:
        """Send what is due."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        body = json.dumps({"batchSize": 1000}).encode()
        while self.call("POST", "/functions/v1/process-email-queue", body, headers)["sent"]:
            pass


@contextmanager
def service(url: str) -> Iterator[Service]:
    """Run the service for a while."""
    variables = {
        "DATABASE_URL": url,
        "MAILGRES_PROVIDERS": "capture",
        "MAILGRES_SERVE_PORT": "0",
        "MAILGRES_SERVE_SECRET": TOKEN,
        "MAILGRES_EVENTS_SECRET": SECRET,
        "MAILGRES_LOG_FORMAT": "json",
    }
    program = Path(sys.executable).with_name("mailgres")
    process = subprocess.Popen(
        [program, "serve"], env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None  # noqa: S101 - a pipe, see above
        for line in process.stderr:
            told = json.loads(line)
            if told.get("action") == "serve":
                break
        else:
            sys.exit("the service did not start")
        yield Service(told["port"], process.pid)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def percentiles(times: list[float]) -> dict[str, float]:
    """Return the median and the slowest of a hundred, in milliseconds."""
    found = harness.milliseconds(times)
    found["p99_ms"] = round(sorted(times)[int(len(times) * 0.99)] * 1000, 3)
    return found


def cpu(running: Service, conn: psycopg.Connection) -> dict[str, float]:
    """Return the processor time of the service and of its backends until now."""
    backends = [process for (process,) in conn.execute(BACKENDS)]
    return {"service": cpu_seconds(running.process), "backends": sum(map(cpu_seconds, backends))}


def measure(
    running: Service, conn: psycopg.Connection, ids: Sequence[str], rounds: int
) -> dict[str, Any]:
    """Time single requests, requests at once, and requests with many events."""
    names = itertools.cycle(("sent", "delivered", "opened", "clicked"))
    emails = itertools.cycle(ids)

    def events(count: int) -> list[dict[str, Any]]:
        return [
            {"provider": "capture", "event": next(names), "queue_id": next(emails)}
            for _ in range(count)
        ]

    alone, health = harness.in_turn(rounds, lambda: running.send(events(1)), running.health)
    batches = [events(1) for _ in range(rounds)]
    used = cpu(running, conn)
    start = time.perf_counter()
    with ThreadPoolExecutor(CALLERS) as pool:
        at_once = list(pool.map(lambda batch: harness.timed(partial(running.send, batch)), batches))
    seconds = time.perf_counter() - start
    each = {key: (now - used[key]) / rounds for key, now in cpu(running, conn).items()}
    many = [events(PER_REQUEST) for _ in range(max(rounds // 20, 2))]
    together = sum(harness.timed(partial(running.send, batch)) for batch in many)
    return {
        "one_caller": percentiles(alone),
        "health_check": percentiles(health),
        f"{CALLERS}_callers": {
            **percentiles(at_once),
            "per_second": round(rounds / seconds),
            "cpu_ms_per_request": {key: round(spent * 1000, 3) for key, spent in each.items()},
        },
        f"{PER_REQUEST}_events_per_request": {
            "events_per_second": round(len(many) * PER_REQUEST / together)
        },
    }


def main() -> None:
    """Run the benchmark."""
    trial = harness.is_trial(__doc__)
    rounds = 40 if trial else 1000
    with harness.server() as url:
        target = harness.migrated(url, "webhooks")
        with harness.connect(target) as conn, service(target) as running:
            fill(conn, 1000 if trial else 5000)
            running.drain()
            ids = [str(row[0]) for row in conn.execute("SELECT id FROM email_queue")]
            running.send([{"provider": "capture", "event": "sent", "queue_id": ids[0]}])
            harness.report(
                "webhooks", conn, {"trial": trial, **measure(running, conn, ids, rounds)}
            )


if __name__ == "__main__":
    main()
