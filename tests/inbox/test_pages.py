"""The pages of the inbox over HTTP: what they show, what they download, what is gone."""

from __future__ import annotations

import email
import json
import re
import socket
from collections.abc import Callable
from contextlib import ExitStack
from uuid import UUID, uuid4

import pytest
from psycopg.types.json import Jsonb
from starlette.applications import Starlette
from starlette.routing import Mount

from inbox.client import SECRET, Client
from inbox.sending import PNG, enqueue, file_of
from mailgres.http.dev import serving_inbox
from mailgres.inbox import Inbox
from mailgres.inbox.app import MOST_DOWNLOADS
from mailgres.inbox.store import InboxStore
from support.queue import Queue

Run = Callable[[], None]
LOGO = file_of(PNG, "logo.png", content_type="image/png", content_id="logo")
HTML = """<p>Hi <b>Ana</b> <a href="https://example.com/c?a=1&amp;b=2">confirm <i>it</i></a>
<img src="cid:logo"><img src="https://track.example.com/p.gif"></p>"""
FIRST_LOAD_BYTES = 150 * 1024


@pytest.fixture
def queue_id(queue: Queue, run_worker: Run) -> UUID:
    found = enqueue(
        queue,
        file_of(b"abc", "r\u00e9sum\u00e9.txt"),
        LOGO,
        html=HTML,
        text="Hi Ana, https://example.com/c",
        subject="Caf\u00e9 <script>alert(1)</script>",
        headers={"List-Unsubscribe": "<https://example.com/u>"},
        cc=["ben@example.com"],
    )
    run_worker()
    return found


def test_the_list_shows_emails_escaped(client: Client, queue_id: UUID) -> None:
    page = client.get("/").text
    assert f'href=".&#x2f;messages/{queue_id}"' in page
    assert "Caf\u00e9 &lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page


def test_search_over_http_finds_and_says_so_if_it_finds_nothing(
    client: Client, queue_id: UUID
) -> None:
    assert str(queue_id) in client.get("/?q=CAF%C3%89").text
    assert "No email matches <strong>nothing&lt;</strong>" in client.get("/?q=nothing%3C").text
    assert client.get("/?q=" + "x" * 5000).status == 200


@pytest.mark.parametrize(
    ("view", "shown"),
    [
        ("html", 'sandbox="" title="The email as HTML"'),
        ("text", "Hi Ana, https:&#x2f;&#x2f;example.com&#x2f;c"),
        ("source", "MIME-Version: 1.0"),
        ("headers", "List-Unsubscribe"),
        ("links", "https:&#x2f;&#x2f;example.com&#x2f;c?a=1&amp;b=2"),
        ("files", "r\u00e9sum\u00e9.txt"),
        ("nonsense", "The email as HTML"),
    ],
)
def test_the_inbox_has_every_view_of_a_message(
    client: Client, queue_id: UUID, view: str, shown: str
) -> None:
    page = client.get(f"/messages/{queue_id}?view={view}").text
    assert shown in page
    assert "attempt 1: captured" in page


def test_links_are_listed_with_their_texts_and_remote_images_apart(
    client: Client, queue_id: UUID
) -> None:
    page = client.get(f"/messages/{queue_id}?view=links").text
    assert "<td>confirm it</td>" in page
    assert "https:&#x2f;&#x2f;track.example.com&#x2f;p.gif" in page
    assert "1 remote image or file is not loaded" in client.get(f"/messages/{queue_id}").text


def test_list_unsubscribe_is_checked_for_one_click(client: Client, queue_id: UUID) -> None:
    page = client.get(f"/messages/{queue_id}?view=headers").text
    assert '<li class="good">has an https address</li>' in page
    assert '<li class="bad">missing: works with one click' in page


def test_inline_images_are_in_the_frame_as_data(client: Client, queue_id: UUID) -> None:
    answer = client.get(f"/messages/{queue_id}/frame")
    assert 'src="data:image/png;base64,iVBOR' in answer.text
    assert "cid:" not in answer.text
    assert "color-scheme" in client.get(f"/messages/{queue_id}/frame?scheme=dark").text


def test_files_are_downloaded_and_never_shown(client: Client, queue_id: UUID) -> None:
    answer = client.get(f"/messages/{queue_id}/files/1")
    assert (answer.body, answer.headers["content-type"]) == (b"abc", "application/octet-stream")
    assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''r%C3%A9")
    assert answer.headers["content-security-policy"].startswith("sandbox")


def test_the_download_of_a_message_is_a_whole_email(client: Client, queue_id: UUID) -> None:
    found = email.message_from_bytes(client.get(f"/messages/{queue_id}/message.eml").body)
    assert (found["To"], found["Cc"]) == ("ana@example.com", "ben@example.com")
    contents = [part.get_payload(decode=True) for part in found.walk() if part.get_filename()]
    assert sorted(contents, key=len) == [b"abc", PNG]


def test_downloads_that_nobody_reads_hold_a_bounded_number_of_files(
    client: Client, queue: Queue, run_worker: Run
) -> None:
    queue_id = enqueue(queue, file_of(b"x" * 12_000_000))
    run_worker()
    path = f"/messages/{queue_id}/files/1"
    asked = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {client.cookie}\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(MOST_DOWNLOADS):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", client.port)))
            slow.sendall(asked.encode())
            assert slow.recv(12) == b"HTTP/1.1 200"
        assert client.get(path).status == 503
        assert client.get(f"/messages/{queue_id}?view=files").status == 200
    answers = iter(lambda: client.get(path), None)
    assert len(next(each for each in answers if each.status == 200).body) == 12_000_000


@pytest.mark.parametrize(
    "reading", ["/ emails", "/messages/{id} email", "/faults faults"], ids=range(3)
)
def test_a_change_while_a_page_is_made_is_newer_than_the_state_of_the_page(
    client: Client,
    queue: Queue,
    queue_id: UUID,
    monkeypatch: pytest.MonkeyPatch,
    reading: str,
) -> None:
    """Otherwise the stream would not announce it, and the page would stay as it is."""
    path, reads = reading.split()
    read = getattr(InboxStore, reads)

    def read_and_change(*arguments: object) -> object:
        found = read(*arguments)
        queue.run("SELECT mailgres.set_capture_fault('bounce')")
        return found

    monkeypatch.setattr(InboxStore, reads, read_and_change)
    page = client.get(path.format(id=queue_id)).text
    found = re.search('data-state="([^"]+)"', page)
    assert found, page
    selected = queue_id if "{id}" in path else None
    assert queue.value("SELECT mailgres.inbox_state(%s)", selected) not in found[1]


@pytest.mark.parametrize(
    "path",
    [
        "/messages/{other}",
        "/messages/{other}/frame",
        "/messages/{other}/message.eml",
        "/messages/{id}/files/9",
        "/messages/{id}/files/99999999999999999999",
        "/messages/nonsense",
        "/static/../app.py",
        "/nowhere",
    ],
)
def test_a_deleted_email_or_file_of_the_inbox_gets_a_404_page(
    client: Client, queue_id: UUID, path: str
) -> None:
    answer = client.get(path.format(id=queue_id, other=uuid4()))
    assert answer.status == 404
    assert "This is not here" in answer.text


def test_an_email_that_failed_shows_why_without_a_message(
    client: Client, queue: Queue, run_worker: Run
) -> None:
    queue_id = queue.enqueue("welcome_user", payload={"name": {"not": "text"}})
    queue.run("SELECT mailgres.set_capture_fault('reject')")
    run_worker()
    page = client.get(f"/messages/{queue_id}").text
    assert "a simulated rejection" in page
    assert "<iframe" not in page
    assert client.get(f"/messages/{queue_id}/frame").status == 404


def test_an_email_whose_template_fails_shows_the_line_and_the_inbox_goes_on(
    client: Client, queue: Queue, run_worker: Run
) -> None:
    content = {"en": {"subject": "Hi", "text": "first\n{{ missing }}"}}
    queue.run("SELECT mailgres.push_template('note', %s)", Jsonb(content))
    failed, sent = queue.enqueue("note"), queue.enqueue("welcome_user")
    run_worker()
    page = client.get(f"/messages/{failed}").text
    assert "text, line 2: `missing` is undefined" in page
    assert "<iframe" not in page
    assert "<iframe" in client.get(f"/messages/{sent}").text


def test_deleting_an_email_of_the_inbox_returns_to_the_search(
    client: Client, queue: Queue, queue_id: UUID
) -> None:
    csrf = client.get(f"/messages/{queue_id}").csrf()
    answer = client.post(f"/messages/{queue_id}/delete", {"csrf": csrf, "q": "a b"})
    assert (answer.status, answer.headers["location"]) == (303, "../../?q=a+b")
    assert queue.value("SELECT count(*) FROM email_queue") == 0
    assert client.get(f"/messages/{queue_id}").status == 404
    assert client.post(f"/messages/{queue_id}/delete", {"csrf": csrf}).status == 303


def test_deleting_all_empties_the_inbox(client: Client, queue: Queue, run_worker: Run) -> None:
    for _ in range(3):
        enqueue(queue)
    run_worker()
    assert client.post("/delete", {"csrf": client.get("/").csrf()}).status == 303
    assert "No emails yet" in client.get("/").text


def test_a_fault_is_set_listed_and_removed(client: Client, queue: Queue) -> None:
    csrf = client.get("/faults").csrf()
    form = {"csrf": csrf, "fault": "bounce", "to": " ana@example.com ", "template": ""}
    assert client.post("/faults", form).status == 303
    page = client.get("/faults").text
    assert "to <strong>ana@example.com</strong> bounces" in page
    number = queue.value("SELECT id FROM mailgres.capture_faults")
    assert client.post(f"/faults/{number}/remove", {"csrf": csrf}).status == 303
    assert queue.value("SELECT count(*) FROM mailgres.capture_faults") == 0
    refused = client.post("/faults", {"csrf": csrf, "fault": "explode"})
    assert refused.status == 400
    assert "Give bounce, timeout, reject or unanswered." in refused.text


def test_a_form_beyond_the_limits_is_refused(client: Client) -> None:
    csrf = client.get("/faults").csrf()
    assert client.post("/faults", {"csrf": csrf, "fault": "x" * 20_000}).status == 413
    many = {f"f{n}": "x" for n in range(50)}
    assert client.post("/faults", {"csrf": csrf, **many}).status == 400


def test_a_form_that_does_not_arrive_in_time_is_answered_with_408(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailgres.web.requests.FORM_SECONDS", 0.1)
    with socket.create_connection(("127.0.0.1", client.port)) as slow:
        head = f"POST /session HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nContent-Length: 100\r\n"
        slow.sendall(f"{head}Origin: http://127.0.0.1:{client.port}\r\n\r\nsecret=".encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 408 ")


def test_the_first_load_is_at_most_150_kb(client: Client, queue: Queue, run_worker: Run) -> None:
    for number in range(60):
        enqueue(queue, subject=f"Email {number} " + "x" * 60, text="words " * 60)
    run_worker()
    files = ("/", "/static/common.css", "/static/inbox.css", "/static/inbox.js", "/static/icon.svg")
    size = sum(len(client.get(path).body) for path in files)
    assert size <= FIRST_LOAD_BYTES, size


def test_the_inbox_works_below_any_path_of_another_application(
    database_url: str, queue_id: UUID
) -> None:
    inbox = Inbox(database_url, SECRET, token_in_url=True)
    app = Starlette(routes=[Mount("/deep/er", app=inbox)])
    app.close = inbox.close  # type: ignore[attr-defined]
    with serving_inbox(app, port=0) as address:  # type: ignore[arg-type]
        client = Client(address.port, base="/deep/er").log_in()
        assert client.get("/").status == 200
        page = client.get(f"/messages/{queue_id}").text
        assert 'href="..&#x2f;static/inbox.css"' in page


def test_a_json_body_is_not_a_form(client: Client) -> None:
    assert client.post("/faults", {json.dumps({"csrf": "x"}): ""}).status == 403
