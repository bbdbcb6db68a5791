"""What the tests of the worker share: a queue, the double's ledger, workers as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

import mailgres
from mailgres.providers import Provider
from mailgres.sender import Renderer, Sender
from mailgres.worker import Summary, Worker
from mailgres.worker.store import CONNECTION_TIMEOUT_SECONDS, STATEMENT_TIMEOUT, Store
from support import forked, privacy
from support.concurrency import DEADLINE, until
from support.queue import HOLD, Queue
from worker.double import NAME, Ledger

__all__ = [
    "BLOCKED_CALLS",
    "DEADLINE",
    "PROGRAM",
    "SOURCE",
    "TESTS",
    "Process",
    "WorkerHarness",
    "until",
]

TESTS = Path(__file__).parents[1]
SOURCE = Path(mailgres.__file__).parents[1]
PROGRAM = Path(sys.executable).with_name("mailgres")
BLOCKED_CALLS = """
    SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE d.datname = current_database() AND NOT l.granted
      AND l.relation = 'mailgres.captured'::regclass
"""
"""Calls of the provider `capture` that wait for a lock of its table."""


class Process:
    """A worker of the runner, or the console script."""

    def __init__(self, popen: subprocess.Popen[str], log: Path) -> None:
        self.popen = popen
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def alive(self) -> bool:
        return self.popen.poll() is None

    def kill(self) -> None:
        self.popen.kill()
        self.popen.communicate(timeout=DEADLINE)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> dict[str, Any]:
        """End it politely; its summary."""
        self.popen.send_signal(number)
        return self.summary()

    def summary(self) -> dict[str, Any]:
        """Return what it prints when it succeeds."""
        out, _ = self.popen.communicate(timeout=DEADLINE)
        assert self.popen.returncode == 0, self.log
        (line,) = out.splitlines()
        found: dict[str, Any] = json.loads(line)
        return found


class WorkerHarness(Queue):
    """The queue of one database, and those who work it."""

    def __init__(self, conn: psycopg.Connection, url: str, directory: Path) -> None:
        super().__init__(conn)
        self.url = url
        self.directory = directory
        self.ledger = Ledger(directory / "ledger")
        self.variables: dict[str, str] = {}
        self._count = 0

    def use_double(self, *, idempotent: bool = True, batch_size: int = 1) -> None:
        """Let the default route lead to the double."""
        kind = "resend" if idempotent else "smtp"
        provider = {
            "name": NAME,
            "kind": kind,
            "idempotent": idempotent,
            "batch_size": batch_size,
        }
        self.run("SELECT mailgres.use_providers(%s)", Jsonb([provider]))

    def fill(self, count: int, template: str = HOLD, tenants: int = 1) -> set[str]:
        """Enqueue emails; their ids."""
        with self.conn.transaction():
            return {
                str(
                    self.enqueue(
                        template, f"user{n}@example.com", tenant_id=f"tenant-{n % tenants}"
                    )
                )
                for n in range(count)
            }

    @contextmanager
    def worker(self, **order: Any) -> Iterator[Process]:
        """Run a worker for a while; it is killed in the end if it still lives."""
        document = {"url": self.url, "ledger": str(self.ledger.path), **order}
        with self._process([sys.executable, "-m", "worker.runner", json.dumps(document)]) as done:
            yield done

    @contextmanager
    def script(self, *arguments: str) -> Iterator[Process]:
        """Run the console script for a while."""
        with self._process([str(PROGRAM), *arguments]) as done:
            yield done

    def environment(self) -> dict[str, str]:
        """Return the environment of the processes of this harness."""
        path = f"{SOURCE}{os.pathsep}{TESTS}"
        ours = {"PYTHONPATH": path, "DATABASE_URL": self.url, "LC_ALL": "C.UTF-8"}
        return {**forked.inherited(), **ours, **self.variables}

    @contextmanager
    def _process(self, command: list[str]) -> Iterator[Process]:
        self._count += 1
        log = self.directory / f"log-{self._count}"
        with (
            log.open("w") as stderr,
            forked.start(
                command,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self.environment(),
                start_new_session=True,
            ) as popen,
        ):
            try:
                yield Process(popen, log)
            finally:
                with suppress(ProcessLookupError):  # children, too
                    os.killpg(popen.pid, signal.SIGKILL)
                popen.wait()
                privacy.check(log.read_text())

    @contextmanager
    def here(self, provider: Provider, **options: Any) -> Iterator[Worker]:
        """A worker in the test's own process, which the test runs."""
        limit = options.pop("statement_timeout", STATEMENT_TIMEOUT)
        timeout = options.pop("timeout", CONNECTION_TIMEOUT_SECONDS)
        store = Store(self.url, worker="here", timeout=timeout, statement_timeout=limit)
        renderer = options.pop("renderer", Renderer)(
            store, options.pop("from_email", "noreply@example.com")
        )
        options = {"lease": timedelta(seconds=30), "poll": 0.05, **options}
        try:
            yield Worker(store, Sender(store, renderer, {provider.name: provider}), **options)
        finally:
            store.close()

    def drain(self, provider: Provider, **options: Any) -> Summary:
        """Work off what is due, in the test's own process."""
        with self.here(provider, **options) as worker:
            return worker.drain()

    @contextmanager
    def running(self, provider: Provider, **options: Any) -> Iterator[Worker]:
        """A worker that runs in a thread until the end."""
        with self.here(provider, **options) as worker, ThreadPoolExecutor(1) as pool:
            run = pool.submit(worker.run)
            try:
                yield worker
            finally:
                worker.stop()
                run.result(DEADLINE)

    def expire_leases(self) -> None:
        """Let the leases of dead workers expire now: nobody has to wait for them."""
        past = "mailgres.now() - interval '1 second'"
        self.run(f"UPDATE email_queue SET lease_until = {past} WHERE status = 'sending'")

    def work_off(self, **order: Any) -> None:
        """Let another worker finish the job, and take back what dead ones held."""
        self.expire_leases()
        with self.worker(name="the heir", **order) as heir:
            self.until_settled()
            heir.stop()

    def until_settled(self) -> None:
        """Wait until every email is sent or dead, taking back what dead workers held."""
        until(self.is_settled, "every email is sent or dead")

    def is_settled(self) -> bool:
        """Return whether every email is sent or dead; reap what dead workers held."""
        self.reap()
        return not self.value(
            "SELECT count(*) FROM email_queue WHERE status IN ('pending', 'sending')"
        )

    def statuses(self) -> dict[str, int]:
        """Return how many emails are in which status."""
        rows = self.rows("SELECT status::text, count(*) AS n FROM email_queue GROUP BY 1")
        return {row.status: row.n for row in rows}

    def status_of(self, queue_id: UUID | str) -> str:
        return str(self.value("SELECT status::text FROM email_queue WHERE id = %s", queue_id))
