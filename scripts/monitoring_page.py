"""Write docs/monitoring.md: every view with its question and a real answer: `make docs`.

Everything comes from the comments in the database and from one day in the life of a queue, with the
clock stopped, so that the page is the same whenever it is written: a test compares it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from mailgres import database, embedded, migrate
from mailgres.testing import freeze, travel
from servers import given_server

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).parent.parent / "docs" / "monitoring.md"
MORNING = datetime(2026, 11, 16, 8, tzinfo=UTC)
EVERY = 5
"""A worker runs after this many emails."""
WIDTH = 110
ROWS = 8
"""Rows of an answer that are shown."""

HEAD = """\
# Monitoring

Generated from the comments in the database by `make docs`; the answers are real, from one day in
the life of a small queue.

Each view answers one question. The views read counts that are kept while emails are sent, not the
queue, so their cost does not grow with it; they also work on a hot standby. The role
`mailgres_analyst` reads all of them, and the columns of `email_queue`, `email_logs` and
`email_templates` without personal data; recipients are masked.

- Outcomes of emails are counted by the hour in which the emails were created, and are corrected
  later: a dead letter that is retried and sent counts as delivered; a bounced email does not.
  A window starts at the full hour.
- Events (attempts, retries, dead letters) are counted when they happen and never change.
- Waiting emails are counted every ten seconds by a worker; `as_of` says when. If no worker has
  counted for a minute, the query counts them itself.
- Emails that were deleted from the queue are still counted; hourly counts are kept for `counts_ttl`
  (100 days), counts by the minute for 8 days.

| view | question |
|---|---|
"""
# Ids that are the same every time.
IDS = """
    CREATE SEQUENCE public.page_ids;
    CREATE OR REPLACE FUNCTION mailgres.uuid_v7() RETURNS uuid
        LANGUAGE sql VOLATILE
    RETURN ('01981d6e-0000-7000-8000-' || lpad(nextval('public.page_ids'::regclass)::text, 12, '0'))::uuid;
"""  # noqa: E501
SET_UP = """
    INSERT INTO mailgres.providers (name, kind, idempotent) VALUES ('resend', 'resend', true);
    UPDATE mailgres.route_providers SET provider = 'resend';
    INSERT INTO mailgres.tenants (tenant_id, weight) VALUES ('acme', 2);
    SELECT mailgres.limit_provider('resend', 10, 1000, NULL);
    SELECT mailgres.heartbeat('web-1:4711', '0.1.0');
"""
FAULTS: dict[str, dict[str, object]] = {
    "transient": {"code": "503", "message": "the provider is overloaded"},
    "permanent": {"code": "validation_error", "message": "no such mailbox"},
}
CLAIM = "SELECT id, lease_token, retries FROM mailgres.claim('web-1', 20) ORDER BY id"
VIEWS = """
    SELECT name, question, example, obj_description(('public.' || name)::regclass, 'pg_class')
    FROM email_monitoring
"""
COLUMNS = """
    SELECT a.attname, col_description(a.attrelid, a.attnum)
    FROM pg_attribute a WHERE a.attrelid = ('public.' || %s)::regclass AND a.attnum > 0
    ORDER BY a.attnum
"""


def live(conn: psycopg.Connection) -> None:
    """Simulate a day."""
    conn.execute(IDS.encode(), prepare=False)
    freeze(conn, MORNING)
    conn.execute(SET_UP, prepare=False)
    for number in range(60):
        enqueue(conn, number)
        travel(conn, timedelta(seconds=20))
        if number % EVERY == 0:
            work(conn, number)
    for number in range(6):
        travel(conn, timedelta(minutes=10))
        work(conn, number)
    learn(conn)
    for number in range(7):
        enqueue(conn, number)
    conn.execute("SELECT mailgres.heartbeat('web-1:4711', '0.1.0')")
    conn.execute("SELECT mailgres.measure_depth()")
    travel(conn, timedelta(seconds=4))


def enqueue(conn: psycopg.Connection, number: int) -> None:
    """Enqueue one more email."""
    template = ("welcome_user", "signup_confirmation")[number % 3 == 0]
    conn.execute(
        "SELECT enqueue_email(NULL, %s, %s, p_tenant_id => %s)",
        (template, f"user{number}@example.com", ("acme", "bistro", "corner")[number * 7 % 5 % 3]),
    )


def work(conn: psycopg.Connection, number: int) -> None:
    """Send what is due as a worker; a tenth of it fails."""
    names = ("id", "lease_token", "retries")
    claimed = conn.execute(CLAIM)
    outcomes: list[dict[str, object]] = []
    for place, row in enumerate(claimed.fetchall()):
        email = dict(zip(names, row, strict=True))
        luck = (place * 3 + number + email["retries"]) % 12
        outcome = {0: "transient", 5: "transient", 7: "permanent"}.get(luck, "sent")
        outcomes.append(
            {
                "id": str(email["id"]),
                "token": str(email["lease_token"]),
                "outcome": outcome,
                "provider_message_id": f"re_{number}_{place}" if outcome == "sent" else None,
                **FAULTS.get(outcome, {}),
            }
        )
    travel(conn, timedelta(milliseconds=350))
    conn.execute("SELECT count(*) FROM mailgres.finish(%s)", (Jsonb(outcomes),))


def learn(conn: psycopg.Connection) -> None:
    """Report a bounce, and retry a dead letter, which is sent."""
    first = "SELECT id FROM email_queue WHERE status = %s ORDER BY id LIMIT 1"
    bounced = conn.execute(first, ("sent",)).fetchone()
    dead = conn.execute(first, ("failed",)).fetchone()
    conn.execute("SELECT record_email_event(NULL, 'bounced', p_queue_id => %s)", bounced)
    conn.execute("SELECT retry_email(%s)", dead)
    work(conn, 1)


def text(value: Any) -> str:  # noqa: ANN401
    """Return a value for display."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(text, value))
    return "" if value is None else str(value)


def table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows in columns; a row that would be too wide is written from top to bottom."""
    shown = [[text(value) for value in row] for row in rows[:ROWS]]
    widths = [max(map(len, column)) for column in zip(names, *shown, strict=True)]
    if sum(widths) + 2 * len(widths) > WIDTH and shown:
        longest = max(map(len, names))
        pairs = zip(names, shown[0], strict=True)
        lines = [f"{name:<{longest}}  {value}".rstrip() for name, value in pairs]
        more = len(rows) - 1
    else:
        lines = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in (list(names), ["-" * width for width in widths], *shown)
        ]
        more = len(rows) - len(shown)
    if not rows:
        lines.append("(no rows)")
    if more > 0:
        lines.append(f"… and {more} more")
    return "\n".join(lines)


def section(conn: psycopg.Connection, name: str, question: str, example: str, comment: str) -> str:
    """Describe one view and query it."""
    about = comment.removeprefix(question).split("Example: ")[0].strip()
    columns = "".join(
        f"| `{column}` | {what} |\n" for column, what in conn.execute(COLUMNS, (name,))
    )
    conn.execute("SET ROLE mailgres_analyst")
    answer = conn.execute(example.encode(), prepare=False)
    names = [column.name for column in answer.description or ()]
    shown = table(names, answer.fetchall())
    conn.execute("RESET ROLE")
    parts = [f"\n## {name}\n", f"{question}\n", *([f"{about}\n"] if about else [])]
    parts += [f"```sql\n{example}\n```\n", f"```text\n{shown}\n```\n"]
    parts.append(f"| column | |\n|---|---|\n{columns}")
    return "\n".join(parts)


def page(conn: psycopg.Connection) -> str:
    """Return the whole page, from an unused queue."""
    live(conn)
    views = conn.execute(VIEWS).fetchall()
    index = "".join(f"| [{name}](#{name}) | {question} |\n" for name, question, *_ in views)
    return HEAD + index + "".join(section(conn, *view) for view in views)


def main() -> None:
    """Write the page."""
    # Other runs may use the same server.
    name = f"mailgres_monitoring_page_{os.getpid()}"
    with given_server() as server:
        url = embedded.database(server, name)
        migrate.upgrade(url)
        with psycopg.connect(url, autocommit=True) as connection:
            PAGE.write_text(page(connection), encoding="utf-8")
        with database.connect(server, autocommit=True) as connection:
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
            connection.execute(drop.format(sql.Identifier(name)))


if __name__ == "__main__":
    main()
