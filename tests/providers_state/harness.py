"""The queue with its providers, as these tests speak of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Self
from uuid import UUID

from psycopg import sql

from support.queue import HOLD, Queue, report

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

ACCOUNT: dict[str, Any] = {
    "account": True,
    "code": "down",
    "message": "no answer for ana@example.com",
}
"""A fault of the provider, not of the email."""

PUT = """
    INSERT INTO email_queue (template_type, recipient_email, ready, {names})
    SELECT %s, 'someone' || n || '@example.com', true, {values} FROM generate_series(1, %s) n
    RETURNING id
"""


class ProviderHarness(Queue):
    """A queue and its providers, over one connection."""

    def set(self) -> Self:
        """Let the default route lead to `first`."""
        self.add("first")
        self.lead("first")
        return self

    def add(self, name: str, *, keys: bool = True, batch: int = 1, **columns: Any) -> None:
        """Make a provider; one that takes several emails and keys has fixed batches."""
        values = {
            "name": name, "kind": "test", "idempotent": keys, "batch_size": batch,
            "fixed_batches": keys and batch > 1, **columns,
        }  # fmt: skip
        self.conn.execute(
            sql.SQL("INSERT INTO mailgres.providers ({}) VALUES ({})").format(
                sql.SQL(", ").join(map(sql.Identifier, values)),
                sql.SQL(", ").join(map(sql.Literal, values.values())),
            )
        )

    def alter(self, name: str, **columns: Any) -> None:
        """Change columns of a provider."""
        changes = (
            sql.SQL("{} = {}").format(sql.Identifier(column), sql.Literal(value))
            for column, value in columns.items()
        )
        statement = sql.SQL("UPDATE mailgres.providers SET {} WHERE name = {}")
        self.conn.execute(statement.format(sql.SQL(", ").join(changes), sql.Literal(name)))

    def lead(self, *providers: str, route: str = "default") -> None:
        """Lead a route along providers."""
        self.run("SELECT mailgres.set_route(%s, %s)", route, list(providers))

    def put(self, count: int = 1, template: str = HOLD, **columns: Any) -> list[UUID]:
        """Insert emails that are ready."""
        values = {"tenant_id": "default", **columns}
        statement = sql.SQL(PUT).format(
            names=sql.SQL(", ").join(map(sql.Identifier, values)),
            values=sql.SQL(", ").join(map(sql.Literal, values.values())),
        )
        return [row[0] for row in self.conn.execute(statement, (template, count))]

    def provider(self, name: str = "first") -> Any:
        """The row of a provider."""
        return self.row("SELECT * FROM mailgres.providers WHERE name = %s", name)

    def circuit(self, name: str = "first") -> str:
        """The state of a circuit."""
        state: str = self.provider(name).circuit
        return state

    def notes(self, name: str = "first") -> list[Any]:
        """Return the events of a provider, in order."""
        query = "SELECT * FROM mailgres.provider_events WHERE provider = %s ORDER BY id"
        return self.rows(query, name)

    def noted(self, name: str = "first") -> list[str]:
        """The names of what was noted about a provider, in order."""
        return [note.event for note in self.notes(name)]

    def report_outcomes(self, claimed: Iterable[Any], outcome: str, **reported: Any) -> list[Any]:
        """Report the same outcome of emails, in one go."""
        return self.finish(*(report(email, outcome, **reported) for email in claimed))

    def call(self, outcome: str, limit: int = 1, **reported: Any) -> list[Any]:
        """Claim, and report the same outcome of all that was claimed; returns what was claimed."""
        claimed = self.claim(limit=limit)
        assert claimed, "nothing to claim"
        assert all(
            done.refused is None for done in self.report_outcomes(claimed, outcome, **reported)
        )
        return claimed

    def open_circuit(self, name: str = "first") -> None:
        """Open a circuit, with one call that shows a fault of the account."""
        self.put()
        (email,) = self.call("config", **ACCOUNT)
        assert (email.provider, self.circuit(name)) == (name, "open")

    def statuses(self) -> Counter[str]:
        """Return how many emails are in each status."""
        return Counter(
            dict(self.rows("SELECT status, count(*)::int FROM email_queue GROUP BY status"))
        )

    def all(self, ids: Sequence[UUID] | None = None) -> list[Any]:
        """Emails as they are in the table: these, or all."""
        query = "SELECT * FROM email_queue WHERE %s::uuid[] IS NULL OR id = ANY (%s) ORDER BY id"
        given = list(ids) if ids is not None else None
        return self.rows(query, given, given)

    def mark_asleep(self) -> Any:
        """Return when a worker that finds nothing has to look again."""
        return self.value("SELECT mailgres.mark_asleep('worker-1', '1 hour')")


def batches(claimed: Iterable[Any]) -> list[set[UUID]]:
    """The calls of a claim as sets of ids, the largest first."""
    calls: dict[UUID, set[UUID]] = {}
    for email in claimed:
        calls.setdefault(email.batch_id or email.id, set()).add(email.id)
    return sorted(calls.values(), key=len, reverse=True)
