"""A real Chromium uses the page: signs in, filters, acts, by keyboard, on a phone, in the dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from page import bulk
from page.client import Client, at
from page.sending import enqueue, kill
from support.browser import Browser
from support.queue import Queue

AXE = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
RUN_AXE = """
    const told = (found) => found.violations.map((each) => each.id + ": " + each.nodes[0].html);
    const done = arguments[0];
    axe.run().then((found) => done(told(found)));
"""
WIDTH = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
PATHS = (
    *("/", "/emails", "/emails?status=failed", "/emails/{id}", "/emails/{id}?view=html"),
    *("/emails/{id}?view=source", "/emails/{id}?view=headers"),
    *("/dead-letters", "/providers", "/routes", "/tenants", "/alerts", "/suppressions"),
    *("/templates", "/templates?name=welcome_user"),
    *("/bulk", "/bulk/1", "/bulk/new?status=failed&action=retry"),
)


def test_an_operator_signs_in_filters_reads_why_an_email_died_and_retries_it(
    signed_in: Browser, queue: Queue
) -> None:
    enqueue(queue, "ben@example.com")
    dead = enqueue(queue)
    kill(queue, dead)
    window = signed_in
    window.open(at(window, "/emails"))
    window.run("document.querySelector('select[name=status]').value = 'failed'")
    window.click(".filter button")
    window.until(lambda: "status=failed" in window.url, "the filter is in the address")
    assert "ben@example.com" not in window.text("table.emails")
    window.click("a.row")
    window.until(lambda: "Why it died" in window.text(), "the email is shown")
    assert "no such mailbox" in window.text("#timeline")
    window.click(".actions .confirm summary")
    window.click(".actions .confirm[open] button")
    window.until(lambda: "back in the queue" in window.text(), "it was retried")
    assert queue.value("SELECT status FROM email_queue WHERE id = %s", dead) == "pending"
    window.click(".who button")
    window.until(lambda: window.run("return !!document.querySelector('[name=secret]')"), "the form")


def test_the_figures_of_the_page_update_live_but_not_in_a_hidden_window(
    signed_in: Browser, stranger: Client, queue: Queue
) -> None:
    window = signed_in
    window.run("window.isTheSamePage = true")
    kill(queue, enqueue(queue))
    queue.run("SELECT mailgres.measure_depth()")
    figure = "return document.querySelectorAll('.stat .value')[3].innerText"
    window.until(lambda: window.run(figure) == "1", "one dead letter")
    assert window.run("return window.isTheSamePage")
    window.run("Object.defineProperty(document, 'hidden', { get: () => window.isAway })")
    window.run("window.isAway = true; document.dispatchEvent(new Event('visibilitychange'))")
    window.run_async("setTimeout(arguments[0], 500)")
    asked = stranger.app.store.asked
    window.run_async("setTimeout(arguments[0], 5000)")
    assert stranger.app.store.asked == asked
    window.run("window.isAway = false; document.dispatchEvent(new Event('visibilitychange'))")
    window.until(lambda: stranger.app.store.asked > asked, "it goes on when it is seen again")


def test_the_keyboard_alone_opens_an_email(signed_in: Browser, queue: Queue) -> None:
    enqueue(queue, "older@example.com")
    enqueue(queue, "newer@example.com")
    window = signed_in
    window.press("e")
    window.until(lambda: "older@example.com" in window.text(), "the list")
    window.press("j", "j", "Enter")
    window.until(lambda: "older@example.com" in window.text("aside"), "the older one")
    window.press("q")
    window.until(lambda: "Due now" in window.text(), "the queue")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_breaks_a_rule_of_accessibility(
    signed_in: Browser, queue: Queue, scheme: str
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm install --no-save axe-core@4")
    queue_id = enqueue(queue)
    kill(queue, queue_id)
    bulk.stopped(queue)
    queue.run("SELECT mailgres.set_alert_rule('dead_letters', p_threshold => 0)")
    window = signed_in
    window.prefer(scheme)
    for path in PATHS:
        window.open(at(window, path.format(id=queue_id)))
        assert window.run("return !!document.querySelector('.top nav')"), path
        window.run(AXE.read_text())
        assert window.run_async(RUN_AXE) == [], path


@pytest.mark.parametrize("width", [360, 768, 2560])
def test_every_page_fits_its_width(signed_in: Browser, queue: Queue, width: int) -> None:
    queue_id = enqueue(queue, "a-very-long-address-of-a-person@subdomain.example.com")
    kill(queue, queue_id, message="x" * 300)
    bulk.stopped(queue)
    window = signed_in
    window.resize(width, 900)
    for path in PATHS:
        window.open(at(window, path.format(id=queue_id)))
        assert window.run("return !!document.querySelector('.top nav')"), path
        assert window.run(WIDTH) <= 0, path


def test_every_page_can_be_read_without_scripts(signed_in: Browser, queue: Queue) -> None:
    queue_id = enqueue(queue)
    kill(queue, queue_id)
    window = signed_in
    window.use_scripts(enabled=False)
    for path, text in (
        ("/", "Due now"),
        ("/emails", "ana@example.com"),
        (f"/emails/{queue_id}", "Why it died"),
    ):
        window.open(at(window, path))
        assert (
            text
            in window.cdp("Runtime.evaluate", expression="document.body.innerText")["result"][
                "value"
            ]
        )


def test_nothing_in_an_email_runs_or_leaves_its_frame(signed_in: Browser, queue: Queue) -> None:
    queue_id = enqueue(
        queue,
        html="<script>parent.document.title='owned'</script><img src='//evil.example/x'><p>Hi</p>",
    )
    window = signed_in
    window.open(at(window, f"/emails/{queue_id}?view=html"))
    window.run_async("setTimeout(arguments[0], 400)")
    assert "owned" not in window.run("return document.title")
    loaded = window.run("return performance.getEntriesByType('resource').map((each) => each.name)")
    assert not [name for name in loaded if "127.0.0.1" not in name]
