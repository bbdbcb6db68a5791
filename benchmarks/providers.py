"""Sending over HTTP, to doubles of Resend and SES in separate processes on the same machine.

    python -m benchmarks.providers [--trial]

One worker process, built from settings as `mailgres worker` does. Resend with a limit of 2 requests
a second: the case for batches of 100. Resend without a limit, in batches and one by one (emails of
priority 1). SES, which takes one email per call: against bare boto3 calls of the same content, with
the same concurrency, in turn.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]

from benchmarks import harness
from benchmarks.draining import FROM, Drainer, fill
from mailgres.settings import load
from mailgres.worker import open_worker

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the doubles are those of the tests

from doubles import resend as resend_double
from doubles import ses
from doubles.resend import KEY

if TYPE_CHECKING:
    import psycopg

REGION = "eu-west-1"
CONCURRENCY = 10
URGENT = 1
MINE = ("benchmarks.providers", "--drain")


class Ready(Drainer):
    """A worker process that reports before every drain that it is ready."""

    def drain(self, count: int) -> float:
        """Return the seconds that it takes to send `count` emails."""
        done: dict[str, Any] = {}

        def send() -> None:
            self.start()
            done.update(self.reported())

        seconds = harness.timed(send)
        if done["sent"] != count:
            sys.exit(f"{done} of {count} emails were sent")
        self._line()
        return seconds


def drainer(url: str, provider: str, **more: str) -> Ready:
    """Yield a worker process with one provider."""
    return Ready(
        url,
        MINE,
        MAILGRES_PROVIDERS=provider,
        MAILGRES_FROM_EMAIL=FROM,
        MAILGRES_CONCURRENCY=str(CONCURRENCY),
        **more,
    )


def resend(url: str, conn: psycopg.Connection, rounds: int, counts: tuple[int, int]) -> Any:  # noqa: ANN401
    """Measure Resend at 2 requests a second, and without a limit."""
    with resend_double.in_a_process() as double:
        worker = drainer(
            url, "resend", MAILGRES_RESEND_API_KEY=KEY, MAILGRES_RESEND_API_URL=double.url
        )
        rates: dict[str, list[float]] = {"in batches": [], "one by one": []}
        for _ in range(rounds):
            for seen, count, priority in zip(rates.values(), counts, (5, URGENT), strict=True):
                fill(conn, count, priority)
                seen.append(count / worker.drain(count))
        double.set(rate=2)
        fill(conn, 1000)
        before = double.summary()["calls"]["/emails/batch"]
        seconds = worker.drain(1000)
        summary = double.summary()
        worker.close()
    batches, singles = (statistics.median(seen) for seen in rates.values())
    return {
        "at_2_requests_per_s": {
            "emails": 1000,
            "seconds": round(seconds, 2),
            "calls": summary["calls"]["/emails/batch"] - before,
            "goal": 6,
        },
        "in_batches": {"emails": counts[0], "per_s": round(batches), "goal": 3000},
        "one_by_one": {"emails": counts[1], "per_s": round(singles), "goal": 400},
        "doubles": len(summary["doubles"]),
    }


def bare(double_url: str, count: int) -> float:
    """Return the rate of bare boto3 calls per second."""
    os.environ.update(ses.environ(double_url))
    client = boto3.session.Session().client(
        "sesv2",
        region_name=REGION,
        config=Config(
            retries={"total_max_attempts": 1, "mode": "standard"}, max_pool_connections=CONCURRENCY
        ),
    )

    def send(number: int) -> None:
        client.send_email(
            FromEmailAddress=FROM,
            Destination={"ToAddresses": [f"user{number}@example.com"]},
            Content={
                "Simple": {
                    "Subject": {"Data": "Welcome to Acme", "Charset": "UTF-8"},
                    "Body": {
                        "Text": {"Data": "Hello Ana" * 50, "Charset": "UTF-8"},
                        "Html": {"Data": "<p>Hello Ana</p>" * 50, "Charset": "UTF-8"},
                    },
                }
            },
            EmailTags=[{"Name": "mailgres_id", "Value": str(number)}],
        )

    with ThreadPoolExecutor(CONCURRENCY) as pool:
        list(pool.map(send, range(20)))  # connections
        seconds = harness.timed(lambda: list(pool.map(send, range(count))))
    client.close()
    return count / seconds


def amazon(url: str, conn: psycopg.Connection, rounds: int, count: int) -> dict[str, Any]:
    """Compare the worker with bare boto3 calls, in turn."""
    rates: dict[str, list[float]] = {"worker": [], "boto3": []}
    with ses.in_a_process(rate=100_000.0) as double:
        variables = {"MAILGRES_SES_REGION": REGION, **ses.environ(double.url)}
        worker = drainer(url, "ses", **variables)
        fill(conn, 1000)
        worker.drain(1000)
        for _ in range(rounds):
            fill(conn, count)
            rates["worker"].append(count / worker.drain(count))
            rates["boto3"].append(bare(double.url, count))
        worker.close()
    ours, theirs = (statistics.median(seen) for seen in rates.values())
    return {
        "emails": count,
        "concurrency": CONCURRENCY,
        "worker_per_s": round(ours),
        "boto3_per_s": round(theirs),
        "ratio": round(ours / theirs, 3),
        "goal": 0.7,
    }


def main(*, trial: bool) -> None:
    """Run it."""
    rounds, counts, at_ses = (1, (1000, 1000), 1000) if trial else (3, (20_000, 3000), 3000)
    with harness.server() as server:
        urls = [harness.migrated(server, name) for name in ("resend", "ses")]
        with harness.connect(urls[0]) as at_resend, harness.connect(urls[1]) as at_amazon:
            result = {
                "trial": trial,
                "resend": resend(urls[0], at_resend, rounds, counts),
                "ses": amazon(urls[1], at_amazon, rounds, at_ses),
            }
            harness.report("providers", at_resend, result)


def work() -> None:
    """Run as the worker: drain at every line, with connections that are already open."""
    settings = load(os.environ)
    reported = True
    while reported:
        with open_worker(settings, janitors=False) as worker:
            for provider in worker.sender.providers.values():
                provider.check()
            print("ready", flush=True)
            reported = bool(sys.stdin.readline())
            if reported:
                print(json.dumps({"sent": worker.drain().sent}), flush=True)


if __name__ == "__main__":
    if "--drain" in sys.argv:
        work()
    else:
        main(trial=harness.is_trial(__doc__))
