"""The operator's page at ten million emails, over HTTP.

    python -m benchmarks.page [--trial]

The emails of the benchmark `monitoring`. Every page and fragment is requested as an operator and
as a viewer, on a new connection each time, as the server closes them. The figures of the queue
are asked anew for each request, which the page itself does at most every two seconds. Then fifty
browsers ask for live figures, and one, for as long: how often is the database asked? At last the
dry run of each bulk action is requested, over 100,000 emails among the others.
"""

from __future__ import annotations

import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from benchmarks import harness
from benchmarks.monitoring import build
from mailgres import page
from mailgres.http.server import Server
from mailgres.page import overview

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

GOAL_MS = 200
ROUNDS = 40
EMAILS, WAITING, DELTAS = 10_000_000, 100_000, 5_000
BROWSERS, WATCHED_SECONDS = 50, 10.0
DRY_RUN, DRY_RUN_GOAL_MS = 100_000, 1000
SECRET, VIEWER_SECRET = "a-secret-of-operators", "a-secret-of-viewers"
OK, SEE_OTHER = 200, 303


DEAD = """
    INSERT INTO email_queue (template_type, recipient_email, payload, status, dead_at, dead_reason,
                             error_code, error_message, tenant_id)
    SELECT 'bulk', 'user' || n || '@example.com', '{}', 'failed', now(), 'exhausted', 'busy',
           'too busy', 'tenant_' || n %% 50
    FROM generate_series(1, %s) n
"""
WAITING_TOO = """
    INSERT INTO email_queue (template_type, recipient_email, payload, tenant_id)
    SELECT 'bulk', 'user' || n || '@example.com', '{}', 'tenant_' || n %% 50
    FROM generate_series(1, %s) n
"""
SUPPRESSED = """
    INSERT INTO email_suppressions (recipient_email, reason)
    SELECT 'user' || n * 100 || '@example.com', 'manual' FROM generate_series(1, 10000) n
"""


class Browser:
    """Asks for pages with a session."""

    def __init__(self, port: int, secret: str) -> None:
        self._port = port
        self._cookie = ""
        form = urlencode({"secret": secret, "name": "benchmark"})
        own = {
            "Origin": f"http://127.0.0.1:{port}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        status, headers, _ = self._send("POST", "/session", form, own)
        if status != SEE_OTHER:
            sys.exit(f"signing in answered {status}")
        self._cookie = headers["set-cookie"].partition(";")[0]

    def get(self, path: str) -> str:
        """Return a page; end the benchmark if it is none."""
        status, _, body = self._send("GET", path, None, {"Cookie": self._cookie})
        if status != OK:
            sys.exit(f"{path} answered {status}")
        return body

    def _send(
        self, method: str, path: str, body: str | None, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], str]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            given = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, given, answer.read().decode()
        finally:
            connection.close()


@contextmanager
def serving(url: str) -> Iterator[tuple[page.Page, int]]:
    """Serve the page of a database."""
    opened = page.app(url, secret=SECRET, viewer_secret=VIEWER_SECRET)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(opened, listener, grace=0)
        server.start()
        try:
            yield opened, listener.getsockname()[1]
        finally:
            server.stop()
            opened.close()


def paths(conn: psycopg.Connection) -> dict[str, str]:
    """Return the pages that are measured, by what they show."""
    query = """
        SELECT (SELECT id FROM email_queue WHERE status = 'failed' AND due_at IS NOT NULL LIMIT 1),
               (SELECT id FROM email_queue
                WHERE id > mailgres.first_id_of(now() - interval '15 days') ORDER BY id LIMIT 1)
    """
    row = conn.execute(query).fetchone()
    dead, middle = row or (None, None)
    return {
        "queue": "/",
        "live figures": "/live",
        "newest emails": "/emails",
        "a page of 15 days ago": f"/emails?after={middle}",
        "dead": "/emails?status=failed",
        "dead of a tenant": "/emails?status=failed&tenant=tenant_7",
        "waiting": "/emails?status=pending",
        "a template": "/emails?template=template_3",
        "a tenant": "/emails?tenant=tenant_7",
        "an error code": "/emails?code=E3",
        "a day in the past": "/emails?since=11d&until=10d",
        "nothing matches": "/emails?template=nosuch",
        "nothing matches, 15 days ago": f"/emails?template=nosuch&after={middle}",
        "one dead email": f"/emails/{dead}",
    }


def measure(port: int, asked: dict[str, str], rounds: int) -> dict[str, Any]:
    """Measure every page as operator and viewer, in turn."""
    found: dict[str, Any] = {}
    for role, secret in (("operator", SECRET), ("viewer", VIEWER_SECRET)):
        browser = Browser(port, secret)
        more = {"a recipient": "/emails?recipient=nosuch@example.com"} if role == "operator" else {}
        for name, path in (asked | more).items():
            browser.get(path)
            (times,) = harness.in_turn(rounds, partial(browser.get, path))
            found[f"{name} ({role})"] = harness.milliseconds(times)
    return found


def dry_runs(conn: psycopg.Connection, port: int, emails: int, rounds: int) -> dict[str, Any]:
    """Measure the dry run of each bulk action, over so many emails."""
    for statement in (DEAD, WAITING_TOO):
        conn.execute(statement, (emails,), prepare=False)
    conn.execute(SUPPRESSED)
    conn.execute("VACUUM (ANALYZE) email_queue, email_suppressions")
    browser, found = Browser(port, SECRET), {}
    for name, query in (
        ("retry", "status=failed&template=bulk&action=retry"),
        ("cancel", "status=pending&template=bulk&action=cancel"),
        ("reschedule", "status=pending&template=bulk&action=reschedule&at=2099-01-01T00:00"),
    ):
        call = partial(browser.get, f"/bulk/new?{query}")
        if "emails would be" not in call():
            sys.exit(f"the dry run of {name} found nothing")
        (times,) = harness.in_turn(rounds, call)
        found[name] = harness.milliseconds(times)
    return found


def watched(opened: page.Page, port: int, browsers: int, seconds: float) -> int:
    """Return how often the database is asked while browsers show the queue."""
    known = [Browser(port, SECRET) for _ in range(browsers)]
    before, end = opened.store.asked, time.monotonic() + seconds

    def watch(browser: Browser) -> None:
        while time.monotonic() < end:
            browser.get("/live")
            time.sleep(min(2.0, max(end - time.monotonic(), 0)))

    with ThreadPoolExecutor(browsers) as pool:
        list(pool.map(watch, known))
    return opened.store.asked - before


def main(*, trial: bool) -> None:
    """Run it and report."""
    emails, waiting, deltas = (20_000, 500, 100) if trial else (EMAILS, WAITING, DELTAS)
    rounds, browsers, seconds = (2, 5, 1.0) if trial else (ROUNDS, BROWSERS, WATCHED_SECONDS)
    with harness.server() as server:
        url = harness.migrated(server, "page")
        with harness.connect(url) as conn:
            build(conn, emails, waiting, deltas)
            conn.execute("SELECT mailgres.measure_depth('0')")
            conn.execute("UPDATE mailgres.depth SET valid_until = now() + interval '1 day'")
            with serving(url) as (opened, port):
                many = watched(opened, port, browsers, seconds)
                one = watched(opened, port, 1, seconds)
                overview.FRESH_SECONDS = 0.0
                found = measure(port, paths(conn), rounds)
                dry = dry_runs(conn, port, 500 if trial else DRY_RUN, rounds)
            slowest = max(found, key=lambda name: found[name]["p95_ms"])
            result = {
                "trial": trial,
                "emails": emails,
                "goal_p95_ms": GOAL_MS,
                "slowest": {"page": slowest, "p95_ms": found[slowest]["p95_ms"]},
                "pages": found,
                "dry_runs": {"emails": DRY_RUN, "goal_p95_ms": DRY_RUN_GOAL_MS, **dry},
                "asked_by_browsers": {str(browsers): many, "1": one},
            }
            harness.report("page", conn, result)


if __name__ == "__main__":
    main(trial=harness.is_trial(__doc__))
