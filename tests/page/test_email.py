"""One email: its timeline with causes, its content as far as a person may see it, its actions."""

from __future__ import annotations

import html
import re
from base64 import b64encode
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest
from psycopg.types.json import Jsonb

from page.client import Client, serving
from page.sending import enqueue, kill
from support.queue import Queue

FILE = {
    "filename": "r\u00e9sum\u00e9.txt",
    "content": b64encode(b"only for Ana").decode(),
    "content_type": "text/plain",
}


@pytest.fixture
def dead(queue: Queue) -> UUID:
    found = enqueue(queue, payload={"name": "Ana the payload"}, files=[FILE])
    kill(queue, found)
    return found


def test_the_page_of_a_dead_letter_says_why_it_died_and_what_to_do(
    operator: Client, dead: UUID
) -> None:
    page = operator.get(f"/emails/{dead}").text
    assert "Why it died" in page
    assert "no such mailbox" in page
    assert "Fix the address, the template or the payload, then retry" in page


@pytest.mark.parametrize(
    "reason", ["exhausted", "permanent", "expired", "uncertain", "crashed", "quota"]
)
def test_every_reason_of_a_dead_letter_has_advice_of_the_runbook(reason: str) -> None:
    from mailgres.page.timeline import _runbook

    assert len(_runbook()[reason]) > 20


def test_the_timeline_has_each_attempt_with_its_cause_in_words(
    operator: Client, queue: Queue
) -> None:
    queue_id = enqueue(queue)
    queue.run(
        "INSERT INTO email_logs (queue_id, event, attempt, tenant_id, template_type, claimed_at,"
        " worker, duration_ms, provider, error_class, error_code, error_message, next_retry_at)"
        " VALUES (%s, 'retry', 1, 'default', 'welcome_user', now(), 'w1', 812, 'resend',"
        " 'transient', 'internal_server_error', 'try later', now() + interval '5 minutes')",
        queue_id,
    )
    queue.run("SELECT record_email_event('resend', 'delivered', p_queue_id => %s)", queue_id)
    page = operator.get(f"/emails/{queue_id}").text
    for text in (
        "enqueued",
        "attempt 1: failed, will be retried",
        "resend in 812 ms",
        "transient internal_server_error",
        "try later",
        "next attempt in 5 min",
        "worker w1",
        "delivered",
    ):
        assert text in page
    from mailgres.page.timeline import meaning_of

    assert meaning_of("internal_server_error", "transient") in page.replace("&#x27;", "'")


def test_operators_see_the_content_in_a_closed_frame(operator: Client, dead: UUID) -> None:
    answer = operator.get(f"/emails/{dead}/frame")
    assert "<b>Ana</b>" in answer.text
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    page = operator.get(f"/emails/{dead}?view=html").text
    assert 'sandbox=""' in page
    assert "<b>Ana</b>" not in page
    assert "Hello Ana" in operator.get(f"/emails/{dead}?view=text").text
    assert "Ana the payload" in operator.get(f"/emails/{dead}?view=payload").text
    file = operator.get(f"/emails/{dead}/files/1")
    assert file.body == b"only for Ana"
    assert file.headers["content-disposition"].startswith("attachment;")
    assert file.headers["content-type"] == "application/octet-stream"
    for number in ("2", "-1", "9" * 5000):
        assert operator.get(f"/emails/{dead}/files/{number}").status == 404


def test_an_email_of_a_template_is_rendered_as_its_next_attempt_would(
    operator: Client, viewer: Client, queue: Queue
) -> None:
    given: dict[str, Any] = {"html": None, "text": None, "subject": None}
    payload = {"name": "Ana Bell", "product": "Acme", "url": "https://example.com"}
    queue_id = enqueue(queue, payload=payload, **given)
    assert "Ana Bell" in operator.get(f"/emails/{queue_id}?view=text").text
    assert "Ana Bell" in operator.get(f"/emails/{queue_id}/frame").text
    assert "Ana Bell" not in viewer.get(f"/emails/{queue_id}?view=text").text
    queue.run("UPDATE email_queue SET payload = '{}', template_version = 1")
    assert operator.get(f"/emails/{queue_id}").status == 200


def test_viewers_see_neither_recipient_nor_content(viewer: Client, dead: UUID) -> None:
    for view in ("", "?view=html", "?view=text", "?view=payload"):
        page = viewer.get(f"/emails/{dead}{view}").text
        assert "Why it died" in page
        assert "a***@example.com" in page
        for hidden in (
            "ana@example.com",
            "Only for Ana",
            "Hello Ana",
            "payload</",
            "sum\u00e9.txt",
        ):
            assert hidden not in page
        assert "csrf" not in page.partition("</header>")[2]
    for path in ("frame", "files/1"):
        assert viewer.get(f"/emails/{dead}/{path}").status == 403


def test_retry_cancel_and_reschedule_do_what_the_commands_do_and_name_the_person(
    operator: Client, queue: Queue, dead: UUID
) -> None:
    answer = operator.change(f"/emails/{dead}/retry")
    assert (answer.status, answer.headers["location"]) == (303, f"../{dead}?done=retried")
    assert queue.value("SELECT status FROM email_queue") == "pending"
    answer = operator.change(f"/emails/{dead}/reschedule", {"at": "2100-01-01T09:00"})
    assert answer.status == 303
    due = queue.value("SELECT scheduled_for FROM email_queue")
    assert f"{due:%Y-%m-%d %H:%M}" == "2100-01-01 09:00"
    assert operator.change(f"/emails/{dead}/cancel", {"reason": "a test"}).status == 303
    row = queue.row("SELECT status, error_message FROM email_queue")
    assert (row.status, row.error_message) == ("cancelled", "a test")
    logged = queue.rows("SELECT event, role FROM email_logs ORDER BY id")
    assert [row.event for row in logged] == ["dead", "reopened", "rescheduled", "cancelled"]
    login = queue.value("SELECT session_user::text")
    assert [row.role for row in logged] == [login, *[f"{login} (ana)"] * 3]
    assert f"{login} (ana)" in operator.get(f"/emails/{dead}").text
    assert "It is cancelled." in operator.get(f"/emails/{dead}?done=cancelled").text


def test_an_action_that_the_database_refuses_shows_its_message_and_hint(
    operator: Client, queue: Queue
) -> None:
    queue_id = enqueue(queue)
    queue.run("UPDATE email_queue SET status = 'sent'")
    answer = operator.change(f"/emails/{queue_id}/cancel")
    assert answer.status == 400
    assert "email has been sent" in answer.text
    assert "A sent email cannot be cancelled" in answer.text


@pytest.mark.parametrize("at", ["", "tomorrow", "2100-13-01", "0", "99999-01-01"])
def test_rescheduling_to_a_malformed_time_changes_nothing(
    operator: Client, queue: Queue, at: str
) -> None:
    queue_id = enqueue(queue)
    answer = operator.change(f"/emails/{queue_id}/reschedule", {"at": at})
    assert (answer.status, "is not a time" in answer.text) == (400, True)
    assert queue.value("SELECT scheduled_for FROM email_queue") is None


@pytest.mark.parametrize("given", ["x", "0", "00000000-0000-0000-0000-00000000000g", "../etc"])
def test_a_malformed_email_id_on_the_page_is_not_found(operator: Client, given: str) -> None:
    assert operator.get(f"/emails/{given}").status == 404


def test_a_deleted_email_on_the_page_is_not_found(
    operator: Client, viewer: Client, queue: Queue
) -> None:
    for client in (operator, viewer):
        answer = client.get(f"/emails/{uuid4()}")
        assert (answer.status, "There is no such email" in answer.text) == (404, True)
    for action in ("retry", "cancel"):
        assert operator.change(f"/emails/{uuid4()}/{action}").status in (400, 404)
    assert queue.value("SELECT count(*) FROM email_logs") == 0


def test_two_operators_who_act_at_once_act_once(
    stranger: Client, operator: Client, queue: Queue, dead: UUID
) -> None:
    other = stranger.sign_in(name="ben")
    form = {"csrf": other.get("/").csrf()}
    assert operator.change(f"/emails/{dead}/cancel").status == 303
    assert other.post(f"/emails/{dead}/cancel", form).status == 303
    assert queue.value("SELECT count(*) FROM email_logs WHERE event = 'cancelled'") == 1


def test_read_only_mode_refuses_every_change_and_shows_no_button(
    database_url: str, queue: Queue, dead: UUID
) -> None:
    with serving(database_url, read_only=True) as stranger:
        operator = stranger.sign_in()
        page = operator.get(f"/emails/{dead}").text
        assert "read-only" in page
        assert "Retry this email" not in page
        for action in ("retry", "cancel", "reschedule"):
            answer = operator.change(f"/emails/{dead}/{action}", {"at": "2100-01-01"})
            assert (answer.status, "read-only" in answer.text) == (403, True)
        assert queue.value("SELECT status FROM email_queue") == "failed"
        assert operator.change("/sign-out").status == 303


def test_operators_see_the_source_and_the_headers_of_an_email_as_text(
    operator: Client, viewer: Client, queue: Queue
) -> None:
    queue_id = enqueue(queue, html="<p>Hi</p><script>alert(1)</script>")
    queue.run(
        "UPDATE email_queue SET headers = %s, cc = '{ben@example.com}', from_email = %s",
        Jsonb({"X-Order": "<b>7</b>"}),
        "Shop <shop@example.com>",
    )
    source = operator.get(f"/emails/{queue_id}?view=source").text
    assert "<script>alert" not in source
    assert "<p>Hi</p><script>alert(1)</script>" in html.unescape(source)
    headers = operator.get(f"/emails/{queue_id}?view=headers").text
    assert "<b>7</b>" not in headers
    shown = re.findall(r"<dt>([^<]*)</dt><dd dir=.auto.>([^<]*)</dd>", headers)
    assert {name: html.unescape(value) for name, value in shown} == {
        "From": "Shop <shop@example.com>",
        "To": "ana@example.com",
        "Cc": "ben@example.com",
        "Subject": "Only for Ana",
        "X-Order": "<b>7</b>",
    }
    for view in ("source", "headers"):
        hidden = viewer.get(f"/emails/{queue_id}?view={view}").text
        assert "shop@example.com" not in hidden
        assert "alert(1)" not in hidden


def test_the_way_back_from_an_email_keeps_the_filter_of_the_list(
    operator: Client, queue: Queue
) -> None:
    enqueue(queue, tenant="a&b")
    listed = html.unescape(operator.get("/emails?status=pending&tenant=a%26b").text)
    address = re.search(r'class="row" href="\.?/?(emails/[^"]*)"', listed.replace("../", ""))
    assert address, listed
    back = "emails?status=pending&tenant=a%26b"
    page = operator.get(f"/{address[1]}")
    assert back in html.unescape(page.text)
    other = re.search(r'href="(\?view=payload[^"]*)"', html.unescape(page.text))
    assert other
    path = address[1].partition("?")[0]
    assert back in html.unescape(operator.get(f"/{path}{other[1]}").text)
    answer = operator.change(f"/{path}/cancel", {"from": "status=pending&tenant=a%26b"})
    kept = "done=cancelled&from=status%3Dpending%26tenant%3Da%2526b"
    assert answer.headers["location"].endswith(kept)


@pytest.mark.parametrize(
    "given", ["//evil.example", "x=1&status=sent", "javascript:alert(1)", "%00"]
)
def test_the_way_back_from_an_email_leads_to_the_list_alone(
    operator: Client, queue: Queue, given: str
) -> None:
    queue_id = enqueue(queue)
    page = html.unescape(operator.get(f"/emails/{queue_id}?from={quote(given)}").text)
    found = re.search(r'class="crumb"><a href="([^"]*)"', page)
    assert found
    assert found[1] in ("../emails", "../emails?status=sent")
