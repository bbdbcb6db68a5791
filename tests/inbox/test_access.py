"""Who may use the inbox: a secret, a host name, an origin and a token of its own pages."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex
from uuid import UUID

import pytest

from inbox.client import SECRET, Client, serving
from inbox.sending import enqueue
from mailgres.errors import MailgresError
from mailgres.inbox import Inbox
from support.queue import Queue

Run = Callable[[], None]
PAGES = [
    "/",
    "/?q=ana",
    "/faults",
    "/events",
    "/messages/{id}",
    "/messages/{id}/frame",
    "/messages/{id}/message.eml",
    "/messages/{id}/files/1",
]
CHANGES = ["/delete", "/faults", "/faults/1/remove", "/messages/{id}/delete"]


@pytest.fixture
def queue_id(queue: Queue, run_worker: Run) -> UUID:
    """An email in the inbox."""
    found = enqueue(queue, subject="Only for Ana")
    run_worker()
    return found


def count(queue: Queue) -> int:
    return int(queue.value("SELECT count(*) FROM mailgres.captured"))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_without_a_session_shows_only_the_form_for_the_secret(
    stranger: Client, queue_id: UUID, page: str
) -> None:
    answer = stranger.get(page.format(id=queue_id))
    assert answer.status == 403
    assert 'name="secret"' in answer.text
    assert "Ana" not in answer.text


@pytest.mark.parametrize("forged", ["x", "00.00", "{nonce}.", "{nonce}.{mark}0", ".{mark}"])
def test_a_forged_cookie_opens_nothing(client: Client, queue_id: UUID, forged: str) -> None:
    name, _, value = client.cookie.partition("=")
    nonce, _, mark = value.partition(".")
    client.cookie = f"{name}={forged.format(nonce=nonce, mark=mark)}"
    assert client.get(f"/messages/{queue_id}").status == 403


def test_a_wrong_token_in_the_address_starts_no_session(stranger: Client) -> None:
    for token in ("", "x", SECRET + "0", SECRET[:-1], "\u00e9"):
        answer = stranger.get(f"/?token={token.encode('latin-1').decode('ascii', 'ignore')}")
        assert (answer.status, "set-cookie" in answer.headers) == (403, False)


def test_the_cookie_is_kept_from_scripts_and_from_other_sites(stranger: Client) -> None:
    answer = stranger.get(f"/?token={SECRET}")
    cookie = answer.headers["set-cookie"]
    assert SECRET not in cookie
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert answer.headers["location"] == "./"


def test_a_token_in_the_address_is_not_taken_by_an_inbox_with_a_setting(database_url: str) -> None:
    inbox = Inbox(database_url, SECRET)
    assert inbox.access.token_in_url is False
    inbox.close()


def test_the_form_starts_a_session_for_the_secret_only(stranger: Client) -> None:
    assert stranger.post("/session", {"secret": "wrong"}).status == 403
    answer = stranger.post("/session", {"secret": SECRET})
    assert answer.status == 303
    stranger.cookie = answer.headers["set-cookie"].partition(";")[0]
    assert stranger.get("/").status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8726", "", "127.0.0.1@evil"]
)
@pytest.mark.parametrize("path", ["/", "/events", "/messages/{id}/frame"])
def test_another_host_name_is_refused_even_with_the_cookie(
    client: Client, queue_id: UUID, host: str, path: str
) -> None:
    answer = client.get(path.format(id=queue_id), Host=host)
    assert answer.status == 403
    assert "does not answer under this host name" in answer.text


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", None, "http://127.0.0.1:1", "http://127.0.0.1.evil.example"],
)
def test_a_change_that_another_site_sends_changes_nothing(
    client: Client, queue: Queue, queue_id: UUID, change: str, origin: str | None
) -> None:
    form = {"csrf": client.get("/faults").csrf(), "fault": "bounce"}
    assert client.post(change.format(id=queue_id), form, Origin=origin).status == 403
    assert count(queue) == 1
    assert queue.value("SELECT count(*) FROM mailgres.capture_faults") == 0


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("token", ["", "0" * 64, "another"])
def test_a_change_without_the_token_of_the_session_changes_nothing(
    client: Client, queue: Queue, queue_id: UUID, change: str, token: str
) -> None:
    if token == "another":
        token = Client(client.port).log_in().get("/faults").csrf()
    assert client.post(change.format(id=queue_id), {"csrf": token, "fault": "bounce"}).status == 403
    assert count(queue) == 1
    assert queue.value("SELECT count(*) FROM mailgres.capture_faults") == 0


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_without_a_session_is_refused(
    stranger: Client, queue: Queue, queue_id: UUID, change: str
) -> None:
    assert stranger.post(change.format(id=queue_id), {"fault": "bounce"}).status == 403
    assert count(queue) == 1


def test_no_get_request_changes_anything(client: Client, queue: Queue, queue_id: UUID) -> None:
    for change in CHANGES:
        client.get(change.format(id=queue_id))
    assert count(queue) == 1


def test_every_answer_has_a_strict_policy(client: Client, queue_id: UUID) -> None:
    for path in ("/", f"/messages/{queue_id}", "/faults", "/static/inbox.js", "/nowhere"):
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
    policy = client.get(f"/messages/{queue_id}/frame").headers["content-security-policy"]
    assert policy.startswith("sandbox; default-src 'none'")
    assert "script-src" not in policy


def test_pages_contain_no_inline_script_style_or_handler(client: Client, queue_id: UUID) -> None:
    for path in ("/", f"/messages/{queue_id}", f"/messages/{queue_id}?view=headers", "/faults"):
        page = client.get(path).text
        for inline in ("<style", " style=", " onclick=", "javascript:", "<script>"):
            assert inline not in page


def test_a_bearer_token_reads_but_does_not_change(
    stranger: Client, queue: Queue, queue_id: UUID
) -> None:
    bearer = f"Bearer {SECRET}"
    assert stranger.get(f"/messages/{queue_id}", Authorization=bearer).status == 200
    assert stranger.get("/", Authorization="Bearer wrong").status == 403
    change = f"/messages/{queue_id}/delete"
    assert stranger.post(change, {"csrf": ""}, Authorization=bearer).status == 403
    assert count(queue) == 1


def test_a_role_that_may_not_read_captured_emails_is_refused_with_the_grant_to_make(
    queue: Queue, database_url: str
) -> None:
    role = f"inbox_{token_hex(4)}"
    queue.run(f"CREATE ROLE {role} LOGIN PASSWORD 'x' IN ROLE mailgres_worker")
    try:
        host = database_url.partition("@")[2] or database_url.partition("://")[2]
        url = f"postgresql://{role}:x@{host}"
        inbox = Inbox(url, SECRET)
        with pytest.raises(MailgresError, match=f"{role} may not read the inbox") as caught:
            inbox.check()
        assert f"GRANT mailgres_operator TO {role}" in str(caught.value.hint)
        inbox.close()
        with serving(url) as client:
            answer = client.log_in().get("/")
            assert answer.status == 403
            assert "The database role of the inbox may not read it" in answer.text
    finally:
        queue.run(f"DROP ROLE {role}")
