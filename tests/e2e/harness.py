"""What the end-to-end tests share: workers made of settings, doubles, and a clock that is moved.

Each worker is opened as the console script opens it, and speaks to the doubles over the network.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from doubles.resend import KEY, ResendDouble
from doubles.ses import SesDouble
from doubles.smtp import SmtpDouble
from mailgres.settings import load
from mailgres.worker import Summary, open_worker
from support.queue import HOLD, Clock
from worker.harness import WorkerHarness

FROM = "Shop <noreply@example.com>"
SECOND = timedelta(seconds=1)
URGENT, ORDINARY = 1, 5
"""Priorities: urgent emails go alone, the others together where the provider takes batches."""
ROUNDS = 6
"""Rounds of work within which everything has to be settled."""

WAITS = """
    SELECT max(t) FROM (
        SELECT next_retry_at FROM email_queue WHERE status = 'pending'
        UNION ALL SELECT limited_until FROM mailgres.providers
        UNION ALL SELECT circuit_until FROM mailgres.providers WHERE circuit <> 'closed'
    ) AS x(t)
"""


class E2eHarness(WorkerHarness):
    """The queue of one database, its clock, and its workers."""

    def __init__(self, conn: psycopg.Connection, url: str, directory: Path) -> None:
        super().__init__(conn, url, directory)
        self.clock = Clock(conn)
        self.variables = {"DATABASE_URL": url, "MAILGRES_FROM_EMAIL": FROM}

    def use(self, *providers: str, **variables: str) -> None:
        """Let workers have these providers; variables without their prefix."""
        self.variables["MAILGRES_PROVIDERS"] = ",".join(providers)
        self.set(**variables)

    def set(self, **variables: str) -> None:
        """Set variables of the workers, named without their prefix."""
        self.variables |= {f"MAILGRES_{name.upper()}": text for name, text in variables.items()}

    def use_resend(self, double: ResendDouble, key: str = KEY) -> None:
        self.use("resend", resend_api_key=key, resend_api_url=double.url)

    def use_ses(self) -> None:
        """Where it is, says the environment of the process."""
        self.use("ses", ses_region="eu-west-1")

    def use_smtp(self, double: SmtpDouble) -> None:
        self.use("smtp", smtp_url=double.url)

    def work(self, **variables: str) -> Summary:
        """Let a worker do all that can be done now; the variables are for this one alone."""
        mine = {f"MAILGRES_{name.upper()}": text for name, text in variables.items()}
        with open_worker(load(self.variables | mine), janitors=False) as worker:
            return worker.drain()

    def send(self, count: int = 3, template: str = HOLD, **options: Any) -> list[UUID]:
        """Enqueue emails and let a worker try them."""
        ids = [self.enqueue(template, f"user{n}@example.org", **options) for n in range(count)]
        self.work()
        return ids

    def work_until_settled(self) -> None:
        """Move the clock to when something can be done, and work, again and again."""
        for _ in range(ROUNDS):
            if not {"pending", "sending"} & set(self.statuses()):
                return
            self.clock.set(max(self.clock.now, self.value(WAITS)) + SECOND)
            self.work()
        raise AssertionError(f"not settled: {self.state()}")

    def work_until_nothing_is_due(self) -> None:
        """Go on while a round of work changes something and nothing has to be waited for."""
        for _ in range(ROUNDS):
            before = self.state()
            self.clock.forward(SECOND)
            self.work()
            if self.state() == before:
                return

    def codes(self) -> list[str | None]:
        """The codes of the last faults."""
        return [row.error_code for row in self.rows("SELECT error_code FROM email_queue")]

    def state(self) -> Counter[tuple[str, int, str | None]]:
        """Return how many emails are in which status, with how many retries, after what."""
        rows = self.rows("SELECT status::text, retries::int, error_class::text FROM email_queue")
        return Counter((row.status, row.retries, row.error_class) for row in rows)

    def provider(self, name: str) -> Any:
        return self.row("SELECT * FROM mailgres.providers WHERE name = %s", name)

    def events_of(self, provider: str) -> list[str]:
        """Return what happened to a provider, in order."""
        query = "SELECT event FROM mailgres.provider_events WHERE provider = %s ORDER BY id"
        return [row.event for row in self.rows(query, provider)]


def accepted(double: ResendDouble | SesDouble | SmtpDouble) -> Counter[str]:
    """Return how many messages were really sent, by email."""
    if isinstance(double, SmtpDouble):
        return Counter(each.mailgres_id for each in double.accepted())
    return Counter(each["mailgres_id"] for each in double.accepted())


def once_each(ids: list[UUID]) -> Counter[str]:
    """Return what `accepted` says if every email was sent once."""
    return Counter(map(str, ids))
