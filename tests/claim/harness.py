"""The queue of a test's own database: filling it, claiming from it, looking at it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

Row = dict[str, Any]

NOW = sql.SQL("mailgres.now()")
DEFAULTS = {
    "template_type": "welcome_user",
    "recipient_email": "someone@example.com",
    "ready": True,
}

PUT = """
    INSERT INTO email_queue ({names}) SELECT {values} FROM generate_series(1, {count})
    RETURNING id
"""

PUT_ALL = """
    INSERT INTO email_queue
        (template_type, recipient_email, ready, tenant_id, route, priority, next_retry_at)
    SELECT 'welcome_user', 'someone@example.com', true, e.tenant, e.route, e.priority,
           mailgres.now() - e.age * interval '1 second'
    FROM unnest(%s::text[], %s::text[], %s::int[], %s::int[]) AS e(tenant, route, priority, age)
"""

CLEAN = """
    DELETE FROM mailgres.attachments;
    DELETE FROM email_queue;
    DELETE FROM email_logs;
    DELETE FROM email_suppressions;
    DELETE FROM mailgres.rollup_deltas;
    DELETE FROM mailgres.tenants;
    UPDATE mailgres.claim_slots SET next_route = 0, cursors = '{}';
"""


class Email(NamedTuple):
    """What the claim looks at in an email that is ready; `age` is how long ago it was due."""

    tenant: str
    priority: int = 5
    age: int = 0
    route: str = "default"


@dataclass(frozen=True)
class ClaimHarness:
    """A connection in autocommit mode, with the words of these tests."""

    connection: psycopg.Connection

    def ask(self, query: str, *values: Any) -> Any:
        """Return the one value that a query gives."""
        row = self.connection.execute(query, values).fetchone()
        return row[0] if row else None

    def rows(self, query: str, *values: Any) -> list[Row]:
        """Return what a query gives."""
        with self.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query, values).fetchall()

    def do(self, statement: str, *values: Any) -> None:
        """Run a statement."""
        self.connection.execute(statement, values)

    def put(self, tenant: str = "tenant", count: int = 1, **columns: Any) -> list[UUID]:
        """Insert emails of a tenant, by default ready; a timedelta is a time from now."""
        values = {**DEFAULTS, **columns, "tenant_id": tenant}
        statement = sql.SQL(PUT).format(
            names=sql.SQL(", ").join(map(sql.Identifier, values)),
            values=sql.SQL(", ").join(map(_literal, values.values())),
            count=sql.Literal(count),
        )
        return [row[0] for row in self.connection.execute(statement)]

    def put_all(self, emails: Iterable[Email]) -> None:
        """Insert emails that are ready."""
        columns = list(zip(*emails, strict=True)) or [(), (), (), ()]
        tenants, priorities, ages, routes = map(list, columns)
        self.do(PUT_ALL, tenants, routes, priorities, ages)

    def clean(self) -> None:
        """Empty the queue and begin all rounds anew."""
        self.connection.execute(CLEAN)

    def add_tenant(self, name: str, *, weight: int = 1, paused: bool = False) -> None:
        """Give a tenant its weight, and pause it or let it go on."""
        self.do(
            "INSERT INTO mailgres.tenants (tenant_id, weight, paused_at)"
            " VALUES (%s, %s, CASE WHEN %s THEN mailgres.now() END)"
            " ON CONFLICT (tenant_id) DO UPDATE"
            " SET weight = excluded.weight, paused_at = excluded.paused_at",
            name,
            weight,
            paused,
        )

    def add_provider(self, name: str, *, idempotent: bool = False) -> None:
        """Make a provider that is open."""
        self.do(
            "INSERT INTO mailgres.providers (name, kind, idempotent) VALUES (%s, 'test', %s)",
            name,
            idempotent,
        )

    def add_route(self, route: str, *providers: str) -> None:
        """Make a route, or give one other providers."""
        self.do("INSERT INTO mailgres.routes (route) VALUES (%s) ON CONFLICT DO NOTHING", route)
        self.do("DELETE FROM mailgres.route_providers WHERE route = %s", route)
        for position, provider in enumerate(providers, start=1):
            self.do(
                "INSERT INTO mailgres.route_providers VALUES (%s, %s, %s)",
                route,
                position,
                provider,
            )

    def claim(
        self,
        limit: int = 10,
        *,
        worker: str = "worker",
        lease: timedelta = timedelta(seconds=60),
        providers: list[str] | None = None,
        tokenless: bool = False,
    ) -> list[Row]:
        """Claim as a worker does, or a processor without a token."""
        query = "SELECT * FROM mailgres.claim(%s, %s, %s, %s, %s)"
        return self.rows(query, worker, limit, lease, providers, tokenless)

    def finish(self, emails: Iterable[Row], outcome: str, **more: Any) -> list[Row]:
        """Report the same outcome for claimed emails."""
        reported = [
            {"id": str(email["id"]), "token": str(email["lease_token"]), "outcome": outcome, **more}
            for email in emails
        ]
        if outcome == "sent":
            reported = [{"provider_message_id": f"message-{one['id']}", **one} for one in reported]
        return self.rows("SELECT * FROM mailgres.finish(%s)", Jsonb(reported))

    def email(self, email_id: UUID) -> Row:
        """Return an email as it is in the table."""
        [row] = self.rows("SELECT * FROM email_queue WHERE id = %s", email_id)
        return row

    def waiting(self) -> list[Row]:
        """Return the emails that are ready and not claimed."""
        return self.rows("SELECT * FROM email_queue WHERE ready")


def _literal(value: Any) -> sql.Composable:
    if isinstance(value, timedelta):
        return sql.SQL("{} + {}").format(NOW, sql.Literal(value))
    return sql.Literal(value)


def ids(emails: Iterable[Row]) -> set[UUID]:
    """Return the ids of emails."""
    return {email["id"] for email in emails}
