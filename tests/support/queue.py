"""The queue as a test speaks to it: one short call for each step in the life of an email."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from mailgres.testing import freeze, travel
from support import privacy

WITH_KEYS = "resend"
"""A provider that takes idempotency keys."""
WITHOUT_KEYS = "smtp"
"""A provider that does not."""

HOLD = "welcome_user"
"""A starter template whose uncertain emails wait for a person."""
RESEND = "signup_confirmation"
"""A starter template whose uncertain emails are sent again."""

RECIPIENT = "ana@example.com"

ENQUEUE = "SELECT enqueue_email(p_user_id => NULL, {})"

OPEN_THE_DOOR = """
    DO $$
    DECLARE v_check record;
    BEGIN
        FOR v_check IN
            SELECT c.contypid::regtype AS domain, c.conname FROM pg_constraint c
            WHERE c.contypid IN (
                SELECT a.atttypid FROM pg_attribute a
                WHERE a.attrelid = 'email_queue'::regclass AND a.attname <> 'status')
        LOOP
            EXECUTE format('ALTER DOMAIN %s DROP CONSTRAINT %I', v_check.domain, v_check.conname);
        END LOOP;
    END $$
"""


class Clock:
    """The clock of one database, stopped; it moves when the test says so."""

    def __init__(self, conn: psycopg.Connection, now: datetime | None = None) -> None:
        self._conn = conn
        # The next whole second: never before the server started, which reap asks about.
        self.set(now or datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1))

    def set(self, now: datetime) -> None:
        """Let it be this time."""
        self.now = now
        freeze(self._conn, now)

    def forward(self, step: timedelta) -> None:
        """Let time pass."""
        self.now += step
        travel(self._conn, step)


class Queue:
    """The queue in one database, over one connection."""

    def __init__(self, conn: psycopg.Connection) -> None:
        self.conn = conn

    def rows(self, query: str, *parameters: object) -> list[Any]:
        """Run a query; a row has its columns as attributes."""
        with self.conn.cursor(row_factory=namedtuple_row) as cursor:
            cursor.execute(query, parameters or None)
            return list(cursor.fetchall()) if cursor.description else []

    def row(self, query: str, *parameters: object) -> Any:
        """Run a query that gives one row."""
        (row,) = self.rows(query, *parameters)
        return row

    def value(self, query: str, *parameters: object) -> Any:
        """Run a query that gives one value."""
        (value,) = self.row(query, *parameters)
        return value

    def run(self, statement: str, *parameters: object) -> None:
        """Run a statement by hand."""
        self.conn.execute(statement, parameters or None)

    def enqueue(
        self, template_type: str = HOLD, recipient_email: str = RECIPIENT, **options: Any
    ) -> UUID:
        """Call enqueue_email; options are its arguments without `p_`."""
        given = {"template_type": template_type, "recipient_email": recipient_email, **options}
        privacy.remember(given)
        arguments = ", ".join(f"p_{name} => %({name})s" for name in given)
        values = {key: Jsonb(v) if isinstance(v, dict) else v for key, v in given.items()}
        row = self.conn.execute(ENQUEUE.format(arguments), values).fetchone()
        assert row is not None
        found: UUID = row[0]
        return found

    def claim(
        self, worker: str = "worker-1", limit: int = 10, lease: str = "60 seconds"
    ) -> list[Any]:
        """Claim as a worker."""
        return self.rows("SELECT * FROM mailgres.claim(%s, %s, %s)", worker, limit, lease)

    def claim_one(self, worker: str = "worker-1") -> Any:
        """Claim the one email that is due."""
        (email,) = self.claim(worker)
        return email

    def claim_lost(self, count: int, worker: str = "worker-1") -> list[Any]:
        """Claim emails of a dead worker, each of which is claimed alone."""
        return [email for _ in range(count) for email in self.claim(worker)]

    def claim_rpc(self, batch_size: int = 10) -> list[Any]:
        """Claim as a processor without a token."""
        return self.rows("SELECT * FROM process_pending_emails_for_retry(%s)", batch_size)

    def start_attempts(self, claimed: Sequence[Any]) -> set[UUID]:
        """Begin the calls for emails of one claim; returns those that may be made."""
        ids = [email.id for email in claimed]
        token = claimed[0].lease_token
        started = self.rows("SELECT * FROM mailgres.start_attempts(%s, %s)", token, ids)
        return {row[0] for row in started}

    def finish(self, *outcomes: dict[str, Any]) -> list[Any]:
        """Report outcomes."""
        return self.rows("SELECT * FROM mailgres.finish(%s)", Jsonb(list(outcomes)))

    def attempt(self, outcome: str, **reported: Any) -> Any:
        """Claim the one email that is due, begin, report the outcome; returns the email."""
        email = self.claim_one()
        assert self.start_attempts([email]) == {email.id}
        (done,) = self.finish(report(email, outcome, **reported))
        assert done.refused is None
        return self.email(email.id)

    def email(self, queue_id: UUID) -> Any:
        """The row of an email."""
        return self.row("SELECT * FROM email_queue WHERE id = %s", queue_id)

    def log(self, queue_id: UUID) -> list[Any]:
        """Return what the audit log says about an email, in order."""
        return self.rows("SELECT * FROM email_logs WHERE queue_id = %s ORDER BY id", queue_id)

    def events(self, queue_id: UUID) -> list[str]:
        """The names of what happened to an email, in order."""
        return [entry.event for entry in self.log(queue_id)]

    def use_provider(self, name: str) -> None:
        """Let the default route lead to a provider, with or without keys, and to no other."""
        self.run(
            "INSERT INTO mailgres.providers (name, kind, idempotent) VALUES (%s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            *(name, name, name == WITH_KEYS),
        )
        self.run("UPDATE mailgres.route_providers SET provider = %s WHERE route = 'default'", name)

    def suppress(self, recipient: str = RECIPIENT, tenant: str = "*") -> None:
        """Let an address get no more email."""
        self.run(
            "INSERT INTO email_suppressions (recipient_email, tenant_id, reason)"
            " VALUES (%s, %s, 'manual')",
            *(recipient, tenant),
        )

    def open_the_door(self) -> None:
        """Take away what checks the columns of a row: for tests of what comes past that."""
        self.run(OPEN_THE_DOOR)

    def reap(self) -> int:
        """Take back what dead workers held."""
        count: int = self.value("SELECT mailgres.reap()")
        return count


def report(email: Any, outcome: str, **reported: Any) -> dict[str, Any]:
    """Return what a worker tells `finish` about an email that it claimed."""
    if outcome == "sent":
        reported.setdefault("provider_message_id", f"message of {email.id}")
    if isinstance(reported.get("retry_after"), timedelta):
        reported["retry_after"] = reported["retry_after"].total_seconds()
    return {"id": str(email.id), "token": str(email.lease_token), "outcome": outcome, **reported}


def is_leased(email: Any) -> bool:
    """Return whether any trace of a lease is on the row."""
    lease = (email.lease_token, email.leased_at, email.lease_until, email.lease_worker)
    return any(value is not None for value in (*lease, email.attempt_started_at))
