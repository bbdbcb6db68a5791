"""A real Chromium retries many emails while workers run, stops half-way and resumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from page import bulk
from page.client import at
from support.browser import Browser
from support.queue import Queue
from worker.harness import WorkerHarness, until

SENT = """
    SELECT count(*) FILTER (WHERE status = 'sent') AS sent,
           (SELECT count(*) FROM mailgres.captured) AS calls
    FROM email_queue
"""


@pytest.mark.parametrize(
    "count", [pytest.param(1000), pytest.param(10_000, marks=pytest.mark.long)]
)
def test_emails_are_retried_in_bulk_while_workers_run_stopped_half_way_and_resumed(
    signed_in: Browser,
    queue: Queue,
    database_url: str,
    tmp_path: Path,
    count: int,
) -> None:
    half = count * 2 // 5
    bulk.fill(queue, count)
    bulk.close_gate(queue, half)
    harness = WorkerHarness(queue.conn, database_url, tmp_path)
    harness.variables = {"MAILGRES_PROVIDERS": "capture", "MAILGRES_FROM_EMAIL": "a@example.com"}
    page = signed_in
    with harness.script("worker"), harness.script("worker"):
        page.open(at(page, "/emails?status=failed"))
        page.click("a[href*='bulk/new']")
        page.until(lambda: "All that match" in page.text(), "the actions")
        page.click(".filter button")
        page.until(lambda: f"{count:,} emails would be retried" in page.text(), "the dry run")
        page.click(".bulk button.danger")
        page.until(lambda: f"{half:,} of {count:,} emails retried" in page.text(), "half of them")
        page.click(".bulk button.danger")
        page.until(lambda: "Stopped by ana" in page.text(), "it is stopped")
        bulk.open_gate(queue)
        until(lambda: queue.row(SENT).sent == half, "workers sent what was retried", 120)
        page.click(".bulk button.primary")
        # It may be done before this is asked.
        page.until(lambda: bulk.action(queue).state != "stopped", "it is resumed")
        page.open("about:blank")
        until(lambda: bulk.action(queue).state == "done", "it goes on without the browser", 120)
        until(lambda: queue.row(SENT).sent == count, "workers sent all", 120)
    changed = bulk.changes(queue)
    assert (changed.changes, changed.emails, queue.row(SENT).calls) == (count, count, count)


def test_bulk_actions_can_be_read_and_started_without_scripts(
    signed_in: Browser,
    queue: Queue,
) -> None:
    bulk.fill(queue, 3)
    page = signed_in
    page.use_scripts(enabled=False)

    def text() -> str:
        found: str = page.cdp("Runtime.evaluate", expression="document.body.innerText")["result"][
            "value"
        ]
        return found

    page.open(at(page, "/bulk/new?status=failed&action=retry"))
    assert "3 emails would be retried" in text()
    page.click(".bulk button.danger")
    page.until(lambda: "/bulk/1" in page.url, "the action")
    until(lambda: bulk.action(queue).state == "done", "it is done", 60)
    page.open(at(page, "/bulk/1"))
    assert "3 of 3 emails retried." in text()
