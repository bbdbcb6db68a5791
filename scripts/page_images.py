"""Write the pictures of the operator's page to docs/images/: a real page in a real browser."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from mailgres import embedded, migrate, page
from mailgres.http.server import Server
from support.browser import browser

if TYPE_CHECKING:
    from support.browser import Browser

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SECRET = "a-secret-for-the-pictures"  # noqa: S105 - of a page that lives for a minute
FILL = (
    """INSERT INTO mailgres.providers (name, kind, idempotent, enabled)
       VALUES ('resend', 'resend', true, true), ('ses', 'ses', false, true)
       ON CONFLICT (name) DO NOTHING""",
    "SELECT mailgres.set_route('default', '{resend,ses}')",
    """SELECT enqueue_email(NULL, (ARRAY['welcome_user', 'signup_confirmation'])[1 + n % 2],
              format('%s%s@example.com', (ARRAY['ana', 'ben', 'cem', 'dua'])[1 + n % 4], n),
              p_tenant_id => (ARRAY['acme', 'globex', 'initech', 'default'])[1 + n % 4],
              p_scheduled_for => CASE WHEN n % 7 = 0 THEN now() + interval '1 day' END)
       FROM generate_series(1, 400) n""",
    """UPDATE email_queue SET status = 'sent', provider = 'resend', sent_at = now()
       WHERE id IN (SELECT id FROM email_queue WHERE ready ORDER BY id LIMIT 260)""",
    """UPDATE email_queue SET status = 'failed', dead_at = now(), dead_reason = 'permanent',
              error_class = 'permanent', error_code = 'invalid_to', provider = 'resend',
              error_message = 'The recipient <address> does not exist'
       WHERE id IN (SELECT id FROM email_queue WHERE ready ORDER BY id DESC LIMIT 9)""",
    """INSERT INTO mailgres.rollup_by_minute (minute, outcome, provider, emails)
       SELECT date_trunc('minute', now(), 'UTC') - make_interval(mins => n), o.outcome, 'resend',
              greatest(1, (o.size * (1.2 + sin(n / 190.0)) * (0.8 + (n * 7919 % 40) / 100.0))::int)
       FROM generate_series(1, 1435) n,
            (VALUES ('sent', 90.0), ('retry', 1.6), ('deferred', 0.8)) o(outcome, size)
       WHERE o.outcome = 'sent' OR n % 9 = 0 OR n BETWEEN 500 AND 560
       ON CONFLICT DO NOTHING""",
    """INSERT INTO mailgres.rollup_by_minute (minute, outcome, provider, emails)
       SELECT date_trunc('minute', now(), 'UTC') - make_interval(mins => n), 'dead', 'resend', 2
       FROM generate_series(505, 560, 4) n ON CONFLICT DO NOTHING""",
    "SELECT mailgres.pause_provider('ses', now() + interval '2 hours', 'new keys')",
    """INSERT INTO mailgres.workers (worker, version, started_at, seen_at, providers)
       SELECT 'worker-' || n, '0.1.0', now() - interval '3 days', now(), '{resend,ses}'
       FROM generate_series(1, 2) n""",
    "SELECT mailgres.set_alert_rule('dead_letters', p_threshold => 5)",
    "SELECT mailgres.measure_depth()",
)


def main() -> None:
    """Start a database and a page; take the pictures."""
    IMAGES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as place,
        embedded.server(_opened(Path(place))) as server,
    ):
        url = embedded.database(server, "page_images")
        migrate.upgrade(url)
        with psycopg.connect(url, autocommit=True) as conn:
            for each in FILL:
                conn.execute(each)
            row = conn.execute(
                "SELECT id FROM email_queue WHERE status = 'failed' ORDER BY id LIMIT 1"
            ).fetchone()
        assert row is not None  # noqa: S101 - made above
        opened = page.app(url, secret=SECRET, environment="production")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            running = Server(opened, listener, grace=0)
            running.start()
            try:
                with browser(Path(place) / "chromium") as window:
                    _take(window, f"http://127.0.0.1:{listener.getsockname()[1]}", str(row[0]))
            finally:
                running.stop()
                opened.close()


def _opened(place: Path) -> Path:
    place.chmod(0o755)
    return place / "data"


def _take(window: Browser, base: str, dead: str) -> None:
    window.resize(1280, 900)
    window.open(f"{base}/")
    window.type("input[name=name]", "ana")
    window.type("input[name=secret]", SECRET)
    window.click("button.primary")
    window.until(lambda: "Due now" in window.text(), "the queue")
    window.screenshot(IMAGES / "page-queue.png")
    window.prefer("dark")
    window.open(f"{base}/emails?tenant=acme")
    window.screenshot(IMAGES / "page-emails.png")
    window.prefer("light")
    window.open(f"{base}/emails/{dead}")
    window.screenshot(IMAGES / "page-email.png")
    window.resize(360, 780, 2)
    window.open(f"{base}/")
    window.screenshot(IMAGES / "page-phone.png")


if __name__ == "__main__":
    main()
