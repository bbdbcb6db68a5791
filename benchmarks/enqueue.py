"""Enqueuing against a bare INSERT of the same data, and the cost of the check for sleepers.

python -m benchmarks.enqueue [--trial]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import harness
from mailgres.embedded import binaries

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

BARE_TABLE = """
    CREATE TABLE bare (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        user_id uuid, template_type text, recipient_email text, payload jsonb)
"""
BARE_INSERT = (
    "INSERT INTO bare (user_id, template_type, recipient_email, payload) VALUES (%s, %s, %s, %s)"
)
ENQUEUE = "SELECT enqueue_email(%s, %s, %s, %s)"
USER = "00000000-0000-0000-0000-000000000001"
PAYLOAD = json.dumps({"name": "Ana", "url": "https://app.example.com/welcome", "plan": "pro"})


def email(number: int) -> tuple[str, str, str, str]:
    """Return the data of one email."""
    return (USER, "welcome_user", f"user{number}@example.com", PAYLOAD)


def one_by_one(conn: psycopg.Connection, *, blocks: int, size: int) -> dict[str, Any]:
    """Measure one statement and one commit for each email."""

    def block(query: str) -> Callable[[], None]:
        def run() -> None:
            for number in range(size):
                conn.execute(query, email(number))

        return run

    for query in (BARE_INSERT, ENQUEUE):
        block(query)()
    bare, ours = harness.in_turn(blocks, block(BARE_INSERT), block(ENQUEUE))
    count = blocks * size
    return {
        "emails": count,
        "bare_insert_per_s": round(count / sum(bare)),
        "enqueue_email_per_s": round(count / sum(ours)),
        "ratio": round(sum(bare) / sum(ours), 3),
        "goal": 0.6,
    }


def in_bulk(conn: psycopg.Connection, *, rounds: int, size: int) -> dict[str, Any]:
    """Measure a thousand emails in one statement, whose text is made beforehand."""
    rows = ", ".join(
        f"('{user}', '{template}', '{recipient}', '{payload}')"
        for user, template, recipient, payload in map(email, range(size))
    )
    bare_sql = f"INSERT INTO bare (user_id, template_type, recipient_email, payload) VALUES {rows}"
    emails = [
        {
            "user_id": user,
            "template_type": template,
            "recipient_email": recipient,
            "payload": json.loads(payload),
        }
        for user, template, recipient, payload in map(email, range(size))
    ]
    document = json.dumps(emails)
    bare, ours = harness.in_turn(
        rounds,
        lambda: conn.execute(bare_sql, prepare=False),
        lambda: conn.execute("SELECT count(*) FROM enqueue_emails(%s)", (document,)),
    )
    count = rounds * size
    return {
        "emails": count,
        "bare_insert_per_s": round(count / sum(bare)),
        "enqueue_emails_per_s": round(count / sum(ours)),
        "ratio": round(sum(bare) / sum(ours), 3),
        "goal": 0.35,
    }


def pgbench(url: str, script: Path, *, clients: int, length: tuple[str, str]) -> float:
    """Return the transactions per second of many clients; `length` is pgbench's -T or -t."""
    program = shutil.which(
        "pgbench", path=str(binaries.find(os.environ).directory)
    ) or shutil.which("pgbench")
    if program is None:
        sys.exit("this benchmark needs pgbench: install postgresql-contrib or the like")
    output = subprocess.run(
        [
            program,
            "-n",
            "-M",
            "prepared",
            "-c",
            str(clients),
            "-j",
            "2",
            *length,
            "-f",
            str(script),
            url,
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    line = next(line for line in output.splitlines() if line.startswith("tps"))
    return float(line.split()[2])


def with_many_clients(
    url: str, conn: psycopg.Connection, *, rounds: int, length: tuple[str, str], clients: int
) -> dict[str, Any]:
    """Measure 32 clients while no worker sleeps: with the check for sleepers, and without it."""
    rates: dict[str, list[float]] = {"with_check": [], "without": []}
    with tempfile.TemporaryDirectory() as place:
        script = Path(place) / "enqueue.sql"
        script.write_text(
            f"SELECT enqueue_email('{USER}', 'welcome_user', 'ana@example.com', '{PAYLOAD}');\n"
        )
        for _ in range(rounds):
            for kind, verb in (("with_check", "ENABLE"), ("without", "DISABLE")):
                conn.execute(f"ALTER TABLE email_queue {verb} TRIGGER wake_after_insert")
                rates[kind].append(pgbench(url, script, clients=clients, length=length))
    conn.execute("ALTER TABLE email_queue ENABLE TRIGGER wake_after_insert")
    ratio = sum(rates["with_check"]) / sum(rates["without"])
    return {
        "clients": clients,
        "enqueue_email_per_s": [round(rate) for rate in rates["with_check"]],
        "without_notifications_per_s": [round(rate) for rate in rates["without"]],
        "ratio": round(ratio, 3),
        "goal": 0.85,
    }


def main(*, trial: bool) -> None:
    """Run all three."""
    with harness.server() as server:
        url = harness.migrated(server, "enqueue")
        with harness.connect(url) as conn:
            conn.execute(BARE_TABLE)
            size = {"blocks": 2, "size": 10} if trial else {"blocks": 25, "size": 200}
            bulk = {"rounds": 2, "size": 100} if trial else {"rounds": 30, "size": 1000}
            # A trial makes a number of calls: in a fixed second a busy machine may make none.
            rounds, length = (1, ("-t", "2")) if trial else (4, ("-T", "5"))
            result = {
                "trial": trial,
                "one_by_one": one_by_one(conn, **size),
                "in_bulk": in_bulk(conn, **bulk),
                "many_clients": with_many_clients(
                    url, conn, clients=32, rounds=rounds, length=length
                ),
            }
            harness.report("enqueue", conn, result)


if __name__ == "__main__":
    main(trial=harness.is_trial(__doc__))
