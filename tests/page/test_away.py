"""The database goes away and comes back: the page says so, and comes back with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from page import bulk
from page.client import SECRET, Client, serving
from page.sending import enqueue
from support.browser import Browser
from support.cut import Cut
from support.queue import Queue
from worker.harness import until


@pytest.fixture
def line(database_url: str) -> Iterator[Cut]:
    """The line from the page to its database."""
    with Cut(database_url) as line:
        yield line


@pytest.fixture
def stranger(line: Cut) -> Iterator[Client]:
    """A client of a page whose database can go away."""
    with serving(line.url) as client:
        yield client


def test_every_page_says_that_the_database_is_away_and_comes_back_with_it(
    operator: Client, line: Cut, queue: Queue
) -> None:
    queue_id = enqueue(queue)
    paths = (
        *("/", "/live", "/emails", f"/emails/{queue_id}", "/dead-letters", "/providers"),
        *("/templates", "/bulk", "/bulk/new?action=retry"),
    )
    for path in paths:
        assert operator.get(path).status == 200, path
    line.off()
    until(lambda: operator.get("/").status == 503, "the figures are old")
    for path in paths:
        answer = operator.get(path)
        assert (answer.status, answer.headers["refresh"]) == (503, "2"), path
        assert "The database is away" in answer.text, path
    line.on()
    for path in paths:
        assert operator.get(path).status == 200, path


def test_a_change_that_meets_no_database_is_not_repeated_by_the_browser(
    operator: Client, line: Cut, queue: Queue
) -> None:
    queue_id = enqueue(queue)
    csrf = operator.get("/").csrf()
    line.off()
    answer = operator.post(f"/emails/{queue_id}/cancel", {"csrf": csrf})
    assert (answer.status, "refresh" in answer.headers) == (503, False)
    assert "not known whether the change was made" in answer.text
    assert queue.email(queue_id).status == "pending"
    line.on()
    assert operator.post(f"/emails/{queue_id}/cancel", {"csrf": csrf}).status == 303
    assert queue.email(queue_id).status == "cancelled"


def test_a_change_of_an_email_that_another_session_has_locked_changes_nothing(
    operator: Client, queue: Queue
) -> None:
    queue_id = enqueue(queue)
    with queue.conn.transaction():
        queue.run("SELECT FROM email_queue FOR UPDATE")
        answer = operator.change(f"/emails/{queue_id}/cancel")
    assert (answer.status, "refresh" in answer.headers) == (503, False)
    assert "Nothing was changed" in answer.text
    assert queue.email(queue_id).status == "pending"


def test_a_bulk_action_goes_on_when_the_database_is_back(
    operator: Client, line: Cut, queue: Queue
) -> None:
    bulk.fill(queue, 600)
    bulk.close_gate(queue, 200)
    bulk.start(queue)
    assert operator.get("/bulk").status == 200
    until(lambda: bulk.action(queue).done == 200, "it is at the gate", 60)
    line.off()
    bulk.open_gate(queue)
    assert operator.get("/bulk/1").status == 503
    assert bulk.action(queue).done == 200
    line.on()
    until(lambda: bulk.action(queue).state == "done", "it is done", 60)
    assert bulk.changes(queue).changes == 600


def test_a_browser_shows_that_the_server_is_away_and_updates_again_by_itself(
    window: Browser, line: Cut, queue: Queue
) -> None:
    window.type("input[name=secret]", SECRET)
    window.click("button.primary")
    window.until(lambda: "Due now" in window.text(), "the queue is shown")
    away = "return !document.getElementById('away').hidden"
    assert not window.run(away)
    line.off()
    window.until(lambda: window.run(away), "it says that the server does not answer")
    enqueue(queue)
    queue.run("SELECT mailgres.measure_depth('0')")
    line.on()
    window.until(lambda: not window.run(away), "it comes back by itself")
    figure = "return document.querySelectorAll('.stat .value')[1].innerText"
    window.until(lambda: window.run(figure) == "1", "with new figures")
