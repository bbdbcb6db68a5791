"""The JSON API of the inbox, for end-to-end tests in any language."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from threading import Thread
from typing import Any
from uuid import UUID

import pytest

from inbox.client import SECRET, Client
from inbox.sending import enqueue, file_of, work
from support.queue import Queue

Ask = Callable[..., tuple[int, Any]]
PATHS = (
    ("GET", "/api/inbox"),
    ("GET", "/api/inbox/latest"),
    ("GET", f"/api/inbox/{UUID(int=1)}"),
    ("DELETE", "/api/inbox"),
    ("DELETE", f"/api/inbox/{UUID(int=1)}"),
    ("POST", "/api/inbox/faults"),
)


@pytest.fixture
def ask(stranger: Client) -> Ask:
    """Send a request with the secret, and return the status and the JSON of the answer."""

    def send(method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        sent = {"Authorization": f"Bearer {SECRET}", **headers}
        connection = HTTPConnection("127.0.0.1", stranger.port, timeout=60)
        text = body if isinstance(body, str | None) else json.dumps(body)
        connection.request(method, path, text, sent)
        answer = connection.getresponse()
        assert answer.getheader("content-type") == "application/json"
        assert "no-store" in (answer.getheader("cache-control") or "")
        found = answer.status, json.loads(answer.read())
        connection.close()
        return found

    return send


def test_the_api_returns_the_latest_email_to_an_address(
    queue: Queue, run_worker: Callable[[], None], ask: Ask
) -> None:
    enqueue(queue, html='<a href="https://x.example/confirm?a=1&amp;b=2">Confirm</a>')
    newest = enqueue(queue, file_of(b"abc"), subject="Newest")
    enqueue(queue, recipient="bo@example.com", subject="Other")
    run_worker()
    status, email = ask("GET", "/api/inbox/latest?to=ANA@example.com")
    assert status == 200
    assert (email["id"], email["subject"], email["status"]) == (str(newest), "Newest", "sent")
    assert email["attachments"] == [
        {"position": 1, "filename": "a.txt", "content_type": "application/octet-stream", "bytes": 3}
    ]
    assert email["events"] == ["sent"]
    _, first = ask("GET", "/api/inbox/latest?to=ana@example.com&subject=hell")
    assert first["links"] == [{"url": "https://x.example/confirm?a=1&b=2", "text": "Confirm"}]
    assert ask("GET", f"/api/inbox/{first['id']}") == (200, first)
    _, listed = ask("GET", "/api/inbox")
    assert [one["subject"] for one in listed["emails"]] == ["Other", "Newest", "Hello"]
    _, listed = ask("GET", "/api/inbox?limit=1&to=ana@example.com&template=custom")
    assert [one["id"] for one in listed["emails"]] == [str(newest)]


def test_the_inbox_api_waits_for_an_email(database_url: str, queue: Queue, ask: Ask) -> None:
    def later() -> None:
        enqueue(queue)
        work(database_url)

    thread = Thread(target=later)
    thread.start()
    status, email = ask("GET", "/api/inbox/latest?to=ana@example.com&wait=30s")
    thread.join()
    assert (status, email["subject"]) == (200, "Hello")


def test_the_api_counts_only_captured_emails_after_a_time(
    queue: Queue, run_worker: Callable[[], None], ask: Ask
) -> None:
    enqueue(queue)
    assert ask("GET", "/api/inbox/latest") == (404, {"error": "No captured email matches."})
    run_worker()
    past = (datetime.now(UTC) - timedelta(hours=1)).isoformat().replace("+", "%2B")
    assert ask("GET", f"/api/inbox/latest?after={past}")[0] == 200
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat().replace("+", "%2B")
    assert ask("GET", f"/api/inbox/latest?after={later}")[0] == 404


def test_the_inbox_api_deletes_emails(
    queue: Queue, run_worker: Callable[[], None], ask: Ask
) -> None:
    first, _, _ = enqueue(queue), enqueue(queue), enqueue(queue)
    run_worker()
    assert ask("DELETE", f"/api/inbox/{first}") == (200, {"deleted": 1})
    assert ask("GET", f"/api/inbox/{first}")[0] == 404
    assert ask("DELETE", "/api/inbox") == (200, {"deleted": 2})
    assert ask("GET", "/api/inbox") == (200, {"emails": []})


def test_the_api_lets_the_next_email_fail(
    queue: Queue, run_worker: Callable[[], None], ask: Ask
) -> None:
    fault = {"fault": "reject", "to": "ana@example.com", "template": None}
    assert ask("POST", "/api/inbox/faults", fault) == (200, fault)
    enqueue(queue)
    run_worker()
    assert queue.value("SELECT status FROM email_queue") == "failed"


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_the_inbox_api_refuses_requests_without_the_secret(
    stranger: Client, ask: Ask, queue: Queue, method: str, path: str
) -> None:
    enqueue(queue)
    cookie = stranger.log_in().cookie
    for headers in (
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic " + SECRET},
        {"Authorization": "", "Cookie": cookie},
    ):
        assert ask(method, path, {"fault": "reject"}, **headers)[0] == 401
    assert ask(method, path, {"fault": "reject"}, Host="evil.example")[0] == 403
    assert queue.value("SELECT count(*) FROM email_queue") == 1
    assert queue.value("SELECT count(*) FROM mailgres.capture_faults") == 0


@pytest.mark.parametrize(
    ("order", "status", "error"),
    [
        (("GET", "/api/inbox/latest?wait=1h", None), 400, "wait: '1h' is too long. Give 0s to 30s"),
        (("GET", "/api/inbox/latest?wait=soon", None), 400, "wait: 'soon' is not a duration."),
        (("GET", "/api/inbox/latest?adress=a", None), 400, "There is no parameter 'adress'"),
        (("GET", "/api/inbox/latest?after=now", None), 400, "after is not a time in ISO 8601."),
        (("GET", "/api/inbox?limit=0", None), 400, "limit is not a number from 1 to 200."),
        (("GET", f"/api/inbox/{UUID(int=7)}", None), 404, "This email is not in the inbox."),
        (("POST", "/api/inbox/faults", "{"), 400, "The body is not a JSON object."),
        (("POST", "/api/inbox/faults", "[" * 9000), 400, "The body is not a JSON object."),
        (("POST", "/api/inbox/faults", {"fault": 1}), 400, "Give fault, and optionally"),
        (("POST", "/api/inbox/faults", {"fault": "explode"}), 400, "there is no such fault"),
        (("POST", "/api/inbox/faults", {"a": "b" * 20000}), 413, "The body is longer than 16384"),
    ],
)
def test_the_inbox_api_refuses_bad_input(
    ask: Ask, order: tuple[str, str, object], status: int, error: str
) -> None:
    found = ask(*order)
    assert found[0] == status
    assert found[1]["error"].startswith(error)
