"""`mailgres serve --inbox`: captured emails for staging, closed without a secret."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from e2e.harness import E2eHarness
from mailgres.web.limits import MOST_REQUESTS
from service.harness import Site, read, request, site

HOST = "mail.staging.example.com"
SECRET = "a-secret-of-the-inbox"
BEARER = f"Authorization: Bearer {SECRET}"


@pytest.fixture
def staging(harness: E2eHarness) -> Iterator[Site]:
    """The service with an inbox, under a name of its own."""
    harness.variables |= {
        "MAILGRES_PROVIDERS": "capture",
        "MAILGRES_INBOX_SECRET": SECRET,
        "MAILGRES_INBOX_HOSTS": HOST,
    }
    with site(harness, "serve", "--inbox") as running:
        yield running


def test_the_inbox_of_the_service_shows_what_a_run_captured(
    staging: Site, harness: E2eHarness
) -> None:
    harness.enqueue("welcome_user", "ana@example.com")
    assert staging.trigger().status == 200
    answer = staging.get("/inbox/", BEARER, host=HOST)
    assert answer.status == 200
    assert b"ana@example.com" in answer.body
    assert staging.get("/inbox?q=a", host=HOST).headers["location"] == "./inbox/?q=a"


def test_the_inbox_of_the_service_is_closed_to_strangers_and_other_names(staging: Site) -> None:
    assert staging.get("/inbox/", host=HOST).status == 403
    assert staging.get(f"/inbox/?token={SECRET}", host=HOST).status == 403
    assert staging.get("/inbox/", BEARER, host="127.0.0.1").status == 403
    assert staging.get("/healthz").status == 200


def test_without_the_option_inbox_the_service_has_no_inbox(harness: E2eHarness) -> None:
    harness.variables |= {"MAILGRES_PROVIDERS": "capture", "MAILGRES_INBOX_SECRET": SECRET}
    with site(harness) as running:
        assert running.get("/inbox/", BEARER).status == 404


def test_the_service_does_not_start_with_an_inbox_without_a_secret(harness: E2eHarness) -> None:
    harness.variables |= {"MAILGRES_SERVE_SECRET": "a-secret-for-the-tests"}
    with harness.script("serve", "--inbox") as process:
        process.popen.communicate(timeout=60)
        assert process.popen.returncode == 1
        assert "The inbox has no secret" in process.log
        assert "MAILGRES_INBOX_SECRET" in process.log


def test_readiness_is_answered_while_the_inbox_waits_for_the_database(
    staging: Site, harness: E2eHarness
) -> None:
    """Requests of the inbox have threads of their own, and a limit below that of the service."""
    asked = request("GET", "/inbox/", BEARER, host=HOST)
    with ExitStack() as stack:
        blocker = stack.enter_context(psycopg.connect(harness.url))
        blocker.execute("LOCK TABLE mailgres.captured")
        waiting = [stack.enter_context(staging.open()) for _ in range(MOST_REQUESTS)]
        for connection in waiting:
            staging.send(connection, asked)
        refused = read(_one_more(staging, stack, asked))
        assert (refused.status, refused.headers["content-type"][:9]) == (503, "text/html")
        assert staging.get("/readyz").status == 200
        answered = select.select(waiting, [], [], 0)[0]
        assert len(answered) < len(waiting) / 2
        blocker.rollback()
        assert staging.get("/readyz").status == 200


def _one_more(staging: Site, stack: ExitStack, asked: bytes) -> socket.socket:
    """Ask again and again until the inbox has as many requests as it takes."""
    while True:
        connection = stack.enter_context(staging.open())
        staging.send(connection, asked)
        if select.select([connection], [], [], 0.2)[0]:
            return connection
