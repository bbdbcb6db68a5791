"""Requests that no page of ours sends: other methods, paths, numbers, texts, sizes.

Each gets one clear answer, a page or the API's JSON, and changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any
from uuid import UUID

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from inbox.client import SECRET, Client
from inbox.sending import enqueue, file_of
from inbox.window import Window
from mailgres.errors import MailgresError
from mailgres.http.dev import serving_inbox
from mailgres.inbox import Inbox, events
from mailgres.web import AtATime
from support.browser import Browser
from support.queue import Queue
from support.web_client import Answer

Run = Callable[[], None]
BEARER = f"Bearer {SECRET}"
PATHS = (
    "/",
    "/faults",
    "/session",
    "/delete",
    "/faults/1/remove",
    "/static/inbox.css",
    "/messages/{id}",
    "/messages/{id}/frame",
    "/messages/{id}/message.eml",
    "/messages/{id}/files/1",
    "/messages/{id}/delete",
    "/api/inbox",
    "/api/inbox/latest",
    "/api/inbox/faults",
    "/api/inbox/{id}",
    "/api/nowhere",
    "/nowhere",
)
OTHER_METHODS = ("OPTIONS", "PUT", "PATCH", "TRACE", "PROPFIND", "x")
LONG = "9" * 5000
"""Python refuses to read a number of so many digits."""


@pytest.fixture
def queue_id(queue: Queue, run_worker: Run) -> UUID:
    """An email in the inbox, and a fault that waits."""
    found = enqueue(queue, file_of(b"abc"))
    run_worker()
    queue.run("SELECT mailgres.set_capture_fault('bounce', 'nobody@example.com')")
    return found


def content(queue: Queue) -> object:
    """What a request could have changed."""
    return queue.rows(
        "SELECT (SELECT count(*) FROM email_queue) AS emails,"
        " (SELECT count(*) FROM mailgres.captured) AS captured,"
        " (SELECT array_agg(f.id) FROM mailgres.capture_faults f) AS faults"
    )


def check(answer: Answer, path: str, *statuses: int) -> None:
    """Check that an answer is one of ours: its status, its type, its headers."""
    assert answer.status in statuses, (path[:100], answer.status, answer.body[:300])
    kind = "application/json" if path.startswith("/api/") else "text/html; charset=utf-8"
    assert answer.headers["content-type"] == kind, path
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src")
    assert answer.headers["x-dns-prefetch-control"] == "off"
    if kind == "application/json":
        assert list(json.loads(answer.body)) == ["error"], path
    else:
        assert '<main id="main"' in answer.text, path


def test_an_unexpected_method_is_refused_with_a_page_or_json(
    client: Client, queue: Queue, queue_id: UUID
) -> None:
    before = content(queue)
    for method, path in product(OTHER_METHODS, PATHS):
        answer = client.ask(method, path.format(id=queue_id), Authorization=BEARER)
        check(answer, path, 404 if "nowhere" in path else 405)
        allowed = answer.headers.get("allow", "")
        assert bool(allowed) is (answer.status == 405), path
        assert "access-control-allow-origin" not in answer.headers
    assert content(queue) == before
    allowed = client.ask("PUT", "/api/inbox", Authorization=BEARER).headers["allow"]
    assert set(allowed.split(", ")) == {"DELETE", "GET", "HEAD"}


def test_a_head_request_has_the_headers_of_get_and_no_content(
    client: Client, queue: Queue, queue_id: UUID
) -> None:
    before = content(queue)
    for path in PATHS:
        answer = client.ask("HEAD", path.format(id=queue_id), Authorization=BEARER)
        expected = client.ask("GET", path.format(id=queue_id), Authorization=BEARER)
        assert (answer.status, answer.body) == (expected.status, b""), path
        assert answer.headers["content-type"] == expected.headers["content-type"], path
    assert content(queue) == before


def test_a_head_request_for_live_updates_ends(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
        head = f"HEAD /events HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {client.cookie}\r\n\r\n"
        connection.sendall(head.encode())
        assert b"text/event-stream" in b"".join(iter(lambda: connection.recv(4096), b""))


NOT_HERE = (
    f"/messages/{{id}}/files/{LONG}",
    "/messages/{id}/files/-1",
    "/messages/{id}/files/%D9%A1",
    "/messages/{id}/files/1%00",
    f"/messages/{LONG}",
    "/messages/{id}/",
    "/faults/",
    "//faults",
    "//evil.example/",
    "/..%2f..%2fetc/passwd",
    "/static/..%2fapp.py",
    "/static/%2e%2e/app.py",
    "/static//etc/passwd",
    "/API/inbox",
    "/api/inbox/",
    "/api/inbox/nonsense",
    f"/api/inbox/{LONG}",
    "/api/",
    "/%00",
    "/%ff%fe",
    "/messages/{id}/frame/..",
)


def test_a_path_that_does_not_exist_gets_404_and_leads_nowhere(
    client: Client, queue_id: UUID
) -> None:
    for path in NOT_HERE:
        answer = client.get(path.format(id=queue_id), Authorization=BEARER, Host="localhost")
        check(answer, path, 404)
        assert "location" not in answer.headers


def test_removing_a_fault_takes_a_number(client: Client, queue: Queue, queue_id: UUID) -> None:
    del queue_id
    before = content(queue)
    csrf = client.get("/faults").csrf()
    for number in (LONG, "-1", "x", "%D9%A1", "1e3"):
        path = f"/faults/{number}/remove"
        check(client.post(path, {"csrf": csrf}), path, 404)
    assert content(queue) == before


ODD = (
    "q=%00",
    "q=" + "%F0%9F%92%8C" * 300,
    "q=%ED%A0%80%FF",
    "q=a&q=b",
    "before=x",
    "before=0001-01-01T00:00:00%2B23:59",
    "before=9999-12-31T23:59:59-23:59",
    "before=2026-01-01T00:00:00%2B00:00:30.5",
    "view[]=html&width=../&scheme=%22onload",
    "&=&;;&%",
    "x=" + "y" * 15_000,
)


def test_odd_parameters_of_a_page_are_answered(client: Client, queue_id: UUID) -> None:
    for path, query in product(("/", f"/messages/{queue_id}", "/faults"), ODD):
        check(client.get(f"{path}?{query}"), path, 200, 400)


def test_the_head_of_a_request_has_a_limit(client: Client) -> None:
    assert client.get("/?q=" + "x" * 17_000).status == 431
    assert client.get("/", X_Long="x" * 17_000).status == 431


NO_ORIGINS = ("http://[", "http://[::1", "http://\u00bd.example".encode().decode("latin-1"), "//")


def test_an_origin_that_is_no_address_is_refused(
    client: Client, queue: Queue, queue_id: UUID
) -> None:
    del queue_id
    before = content(queue)
    csrf = client.get("/faults").csrf()
    for path, origin in product(("/session", "/delete", "/faults"), NO_ORIGINS):
        form = {"csrf": csrf, "fault": "bounce", "secret": SECRET}
        check(client.post(path, form, Origin=origin), path, 403)
    assert content(queue) == before


NOT_MEANT = (
    ("limit=" + LONG, "limit is not a number from 1 to 200."),
    ("limit=%D9%A1", "limit is not a number from 1 to 200."),
    ("limit=-1", "limit is not a number from 1 to 200."),
    ("to=", "to is empty."),
    ("to=ana%40example.com&to=bo%40example.com", "Give each parameter once."),
    ("to=ana+1@example.com", "to is not an address: in an address of the web, + is %2B."),
    ("template=%20", "template is empty."),
    ("to=%00", "PostgreSQL cannot store a character of this text"),
    ("subject=%00", "PostgreSQL cannot store a character of this text"),
    ("after=", "after is empty."),
    ("after=0001-01-01T00:00:00%2B23:59", "after is not a time in ISO 8601."),
)


def test_a_filter_of_the_api_that_cannot_be_meant_is_refused(client: Client) -> None:
    """It would match the emails of another test, or none."""
    for query, error in NOT_MEANT:
        answer = client.get(f"/api/inbox?{query}", Authorization=BEARER)
        check(answer, "/api/inbox", 400)
        assert json.loads(answer.body)["error"].startswith(error), query


NO_FAULTS = (
    "",
    "null",
    "[]",
    '"bounce"',
    "{}",
    '{"fault": null}',
    '{"fault": true}',
    '{"fault": ["bounce"]}',
    '{"fault": {"a": 1}}',
    '{"fault": 1e999}',
    '{"fault": ' + LONG + "}",
    '{"fault": "bounce", "to": 1}',
    '{"fault": "bounce", "to": ""}',
    '{"fault": "bounce", "to": "\\u0000"}',
    '{"fault": "bounce", "to": "\\ud800"}',
    '{"fault": "bounce", "template": "\\udfff"}',
    '{"fault": "bounce", "to": "' + "a" * 300 + '"}',
    '{"fault": "bounce", "more": 1}',
    '{"fault": "bounce\\u0000"}',
    '{"fault": NaN}',
    "\ufeff{}",
    "fault=bounce",
)


def test_a_fault_of_wrong_types_is_refused_by_the_api(client: Client, queue: Queue) -> None:
    path = "/api/inbox/faults"
    for body in NO_FAULTS:
        answer = client.ask("POST", path, body.encode(), Authorization=BEARER)
        assert answer.status == 400, body
        check(answer, path, 400)
    assert queue.value("SELECT count(*) FROM mailgres.capture_faults") == 0


def test_a_body_that_is_too_large_is_answered_although_it_is_still_being_sent(
    client: Client,
) -> None:
    body, origin = b"a=" + b"x" * 5_000_000, f"http://127.0.0.1:{client.port}"
    for path in ("/faults", "/api/inbox/faults"):
        answer = client.ask("POST", path, body, Authorization=BEARER, Origin=origin)
        check(answer, path, 413)
        assert "The body is longer than 16384 bytes." in answer.text


def test_a_body_that_does_not_arrive_in_time_is_answered_by_the_api(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailgres.web.requests.FORM_SECONDS", 0.1)
    head = "POST /api/inbox/faults HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
    with socket.create_connection(("127.0.0.1", client.port)) as slow:
        slow.sendall(f"{head}Authorization: {BEARER}\r\n\r\n{{".encode())
        answer = b"".join(iter(lambda: slow.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'{"error":"The request did not arrive in time."}' in answer


@contextmanager
def mounted(app: Any, inbox: Inbox) -> Iterator[int]:
    app.close = inbox.close
    with serving_inbox(app, port=0) as address:
        yield address.port


@pytest.mark.parametrize("base", ["", "/mail"])
def test_a_request_without_room_gets_a_page_or_json(base: str) -> None:
    inbox = Inbox("postgresql://127.0.0.1:1/nothing", SECRET)
    full = AtATime(inbox, inbox.problems.too_many, 0)
    with mounted(Starlette(routes=[Mount(base, app=full)]), inbox) as port:
        client = Client(port, base=base)
        for path in ("/", "/api/inbox"):
            answer = client.get(path)
            check(answer, path, 503)
            assert answer.headers["retry-after"] == "5"
            assert "Try again in a moment." in answer.text


def test_live_updates_without_room_get_a_page(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_STREAMS", 0)
    answer = client.get("/events")
    check(answer, "/events", 503)
    assert answer.headers["retry-after"] == "5"


@pytest.mark.parametrize("secret", ["", "x", "fifteen letters"])
def test_an_inbox_with_a_short_secret_is_refused(secret: str) -> None:
    with pytest.raises(MailgresError, match="The secret of the inbox is too short"):
        Inbox("postgresql://127.0.0.1:1/nothing", secret)


def test_the_cookie_is_for_https_only_if_the_form_came_by_https(stranger: Client) -> None:
    """A proxy in front of the inbox ends TLS: only the origin shows it."""
    origin = f"https://127.0.0.1:{stranger.port}"
    cookie = stranger.post("/session", {"secret": SECRET}, Origin=origin).headers["set-cookie"]
    assert "Secure" in cookie.split("; ")
    cookie = stranger.post("/session", {"secret": SECRET}).headers["set-cookie"]
    assert "Secure" not in cookie.split("; ")


def test_the_api_deletes_more_emails_than_one_transaction_takes(
    client: Client, queue: Queue
) -> None:
    queue.run(
        "INSERT INTO mailgres.captured (key, queue_id, message)"
        " SELECT 'k' || n, gen_random_uuid(), '{}' FROM generate_series(1, 1200) n"
    )
    answer = client.ask("DELETE", "/api/inbox", Authorization=BEARER)
    assert json.loads(answer.body) == {"deleted": 1200}
    assert queue.value("SELECT count(*) FROM mailgres.captured") == 0


def test_the_inbox_works_below_a_path_with_unusual_characters(
    database_url: str, chromium: Browser
) -> None:
    inbox = Inbox(database_url, SECRET, token_in_url=True)
    base = "/it's(a)/b\u00fcro post/mail:1"
    with mounted(Starlette(routes=[Mount(base, app=inbox)]), inbox) as port:
        window = Window(chromium, f"http://127.0.0.1:{port}{base}")
        window.open(f"?token={SECRET}")  # without a slash at the end
        window.wait_for("No emails yet")
        window.browser.click("nav[aria-label=Pages] a[href$=faults]")
        window.wait_for("Faults on demand", "h1")
        window.browser.click("button.primary")
        window.wait_for("The next email bounces.")
        window.open("/")


def test_the_token_stays_neither_in_the_address_nor_in_the_referrer(window: Window) -> None:
    window.wait_for("No emails yet")
    seen = [window.browser.url, window.browser.run("return document.referrer")]
    window.browser.click("nav[aria-label=Pages] a[href$=faults]")
    window.wait_for("Faults on demand", "h1")
    seen += [window.browser.url, window.browser.run("return document.referrer")]
    window.browser.run("history.back()")
    window.wait_for("No emails yet")
    seen += [window.browser.url, str(window.browser.run("return document.cookie"))]
    assert not [text for text in seen if SECRET in text]


def test_a_websocket_is_closed() -> None:
    """An application around the inbox may speak more than HTTP."""
    inbox = Inbox("postgresql://127.0.0.1:1/nothing", SECRET)
    sent: list[Any] = []

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    for path in ("/", "/events", "/api/inbox"):
        scope: dict[str, Any] = {
            "type": "websocket",
            "path": path,
            "headers": [],
            "query_string": b"",
        }
        asyncio.run(inbox(scope, receive, send))
    inbox.close()
    assert sent == ["websocket.close"] * 3
