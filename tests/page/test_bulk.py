"""Bulk actions in the page: dry run, start, progress, stop; they go on without the browser."""

from __future__ import annotations

import html
import re
from urllib.parse import quote

import pytest

from page import bulk
from page.client import VIEWER_SECRET, Client, serving
from page.sending import enqueue, kill
from support.queue import Queue
from worker.harness import until


def form_of(page: str) -> dict[str, str]:
    """The fields of the form that starts an action."""
    found = re.search(r'action="[^"]*bulk">(.*?)</form>', page, re.DOTALL)
    assert found, page
    fields = re.findall(r'name="(\w+)" value="([^"]*)"', found[1])
    return {name: html.unescape(value) for name, value in fields}


def wait_until_done(queue: Queue, number: int = 1) -> None:
    until(lambda: bulk.action(queue, number).state == "done", "the bulk action is done", 60)


def test_all_that_match_are_retried_after_a_dry_run_and_the_log_names_the_person(
    operator: Client, queue: Queue
) -> None:
    bulk.fill(queue, 450)
    other = enqueue(queue)
    kill(queue, other, code="invalid_to")
    queue.suppress("user7@example.com")
    listed = operator.get("/emails?status=failed&code=busy").text
    assert "bulk/new?status=failed&amp;code=busy" in listed.replace("&#x2f;", "/")
    page = operator.get("/bulk/new?status=failed&code=busy&action=retry").text
    assert "<strong>449</strong> emails would be retried" in page
    assert "the address is suppressed" in page
    assert queue.value("SELECT count(*) FROM mailgres.bulk_actions") == 0, "a dry run does nothing"
    answer = operator.post("/bulk", form_of(page))
    assert (answer.status, answer.headers["location"]) == (303, "bulk/1")
    wait_until_done(queue)
    row, changed = bulk.action(queue), bulk.changes(queue)
    assert (row.started_by, row.chosen, row.done) == ("ana", 450, 449)
    assert (changed.changes, changed.emails) == (449, 449)
    assert changed.role.endswith("(ana, bulk action 1)")
    assert queue.email(other).status == "failed"
    shown = operator.get("/bulk/1").text
    assert "<strong>449</strong> of 450 emails retried, 1 not." in shown
    assert "the address is suppressed" in shown
    assert "Retry 450" in operator.get("/bulk").text


def test_emails_that_come_after_the_dry_run_are_left_alone(operator: Client, queue: Queue) -> None:
    first = enqueue(queue)
    page = operator.get("/bulk/new?action=cancel&why=a+mistake").text
    later = enqueue(queue)
    assert operator.post("/bulk", form_of(page)).status == 303
    wait_until_done(queue)
    assert queue.email(first).status == "cancelled"
    assert queue.email(first).error_message == "a mistake"
    assert queue.email(later).status == "pending"


def test_all_that_match_are_rescheduled(operator: Client, queue: Queue) -> None:
    queue_id = enqueue(queue)
    page = operator.get("/bulk/new?tenant=default&action=reschedule&at=2099-01-31T09:00").text
    assert operator.post("/bulk", form_of(page)).status == 303
    wait_until_done(queue)
    at = queue.value("SELECT next_retry_at AT TIME ZONE 'UTC' FROM email_queue")
    assert f"{at:%Y-%m-%d %H:%M}" == "2099-01-31 09:00"
    assert queue.events(queue_id) == ["rescheduled"]


def test_any_operator_stops_and_resumes_a_bulk_action(
    stranger: Client, operator: Client, queue: Queue
) -> None:
    bulk.fill(queue, 600)
    bulk.close_gate(queue, 200)
    page = operator.get("/bulk/new?status=failed&action=retry").text
    assert operator.post("/bulk", form_of(page)).status == 303
    until(lambda: bulk.action(queue).done == 200, "it is at the gate", 60)
    ben = stranger.sign_in(name="ben")
    assert "<strong>200</strong> of 600 emails retried, 400 left." in ben.get("/bulk/1").text
    assert ben.change("/bulk/1/stop").status == 303
    bulk.open_gate(queue)
    shown = ben.get("/bulk/1/live").text
    assert "Stopped by ben" in shown
    assert "<strong>200</strong> of 600" in shown
    assert ben.change("/bulk/1/resume").status == 303
    wait_until_done(queue)
    assert bulk.changes(queue).changes == 600
    assert "Resumed by ben" in ben.get("/bulk/1").text


def test_a_bulk_action_that_another_process_left_goes_on(database_url: str, queue: Queue) -> None:
    bulk.fill(queue, 300)
    bulk.start(queue)
    bulk.chunk(queue, 100)
    with serving(database_url) as client:
        client.app.check()
        wait_until_done(queue)
    assert bulk.changes(queue).changes == 300


def test_pages_of_two_processes_do_each_email_once(database_url: str, queue: Queue) -> None:
    bulk.fill(queue, 2000)
    bulk.start(queue)
    with serving(database_url) as one, serving(database_url) as two:
        one.app.check()
        two.app.check()
        wait_until_done(queue)
    assert (bulk.action(queue).done, bulk.changes(queue).changes) == (2000, 2000)


def test_a_read_only_page_neither_starts_nor_runs_bulk_actions(
    database_url: str, queue: Queue
) -> None:
    bulk.fill(queue, 10)
    with serving(database_url, read_only=True) as client:
        client.app.check()
        operator = client.sign_in()
        page = operator.get("/bulk/new?status=failed&action=retry").text
        assert "<strong>10</strong> emails would be retried" in page
        assert 'bulk"><input' not in page
        for path in ("/bulk", "/bulk/1/stop", "/bulk/1/resume"):
            answer = operator.change(path, {"action": "retry"})
            assert (answer.status, "read-only" in answer.text) == (403, True)
        bulk.start(queue)
        assert operator.get("/bulk/1").status == 200
        assert client.app.bulk_runner._thread is None
    assert bulk.action(queue).done == 0


def test_viewers_neither_see_nor_start_bulk_actions(stranger: Client, queue: Queue) -> None:
    bulk.fill(queue, 1)
    bulk.start(queue)
    viewer = stranger.sign_in(VIEWER_SECRET, "vic")
    assert "Select all that match" not in viewer.get("/emails").text
    for path in ("/bulk", "/bulk/1", "/bulk/new"):
        assert viewer.get(path).status == 403
    for path in ("/bulk", "/bulk/1/stop", "/bulk/1/resume"):
        assert viewer.change(path).status == 403
    assert bulk.action(queue).state != "stopped"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("action=erase", "Choose retry, cancel or reschedule"),
        ("action=retry&status=sent", "is not for emails that are sent"),
        ("action=reschedule", "Nothing is not a time"),
        ("action=reschedule&at=soon", "soon is not a time"),
        ("action=retry&since=yesterday", "yesterday is not a time"),
        ("action=retry&tenant=" + quote("\0"), "The tenant is not valid"),
        ("status=nosuch", "There is no status nosuch"),
    ],
)
def test_a_bulk_action_that_makes_no_sense_gets_one_clear_error(
    operator: Client, queue: Queue, given: str, told: str
) -> None:
    enqueue(queue)
    answer = operator.get(f"/bulk/new?{given}")
    assert (answer.status, told in html.unescape(answer.text)) == (400, True), answer.text
    form = dict(each.split("=") for each in given.replace("%00", "\0").split("&"))
    assert operator.change("/bulk", form).status == 400
    assert queue.value("SELECT count(*) FROM mailgres.bulk_actions") == 0


def test_a_dry_run_that_matches_nothing_cannot_be_started(operator: Client) -> None:
    page = operator.get("/bulk/new?tenant=nosuch&action=retry").text
    assert "No email matches" in page
    assert 'bulk"><input' not in page
    answer = operator.change("/bulk", {"tenant": "nosuch", "action": "retry"})
    assert (answer.status, "no email matches" in answer.text) == (400, True)


@pytest.mark.parametrize("number", ["2", "0", "9" * 30])
def test_a_bulk_action_that_is_not_there_is_not_found(operator: Client, number: str) -> None:
    answer = operator.get(f"/bulk/{number}")
    assert (answer.status, "There is no such bulk action" in answer.text) == (404, True)
    assert operator.change(f"/bulk/{number}/stop").status == 303, "it is stopped, in any case"


def test_a_dry_run_that_takes_too_long_asks_for_a_narrower_filter(
    operator: Client, queue: Queue
) -> None:
    bulk.fill(queue, 1)
    with queue.conn.transaction():
        queue.run("LOCK TABLE email_suppressions IN ACCESS EXCLUSIVE MODE")
        answer = operator.get("/bulk/new?status=failed&action=retry")
    assert (answer.status, "shorter period" in answer.text) == (400, True)
