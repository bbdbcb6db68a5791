"""`mailgres serve --inbox`: captured emails for staging, closed without a secret."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.harness import E2eHarness
from service.harness import Site, site

SECRET = "a-secret-of-the-inbox"
BEARER = f"Authorization: Bearer {SECRET}"


@pytest.fixture
def staging(harness: E2eHarness) -> Iterator[Site]:
    """The service with an inbox, under a name of its own."""
    harness.variables |= {
        "MAILGRES_PROVIDERS": "capture",
        "MAILGRES_INBOX_SECRET": SECRET,
        "MAILGRES_INBOX_HOSTS": "mail.staging.example.com",
    }
    with site(harness, "serve", "--inbox") as running:
        yield running


def test_the_inbox_of_the_service_shows_what_a_run_captured(
    staging: Site, harness: E2eHarness
) -> None:
    harness.enqueue("welcome_user", "ana@example.com")
    assert staging.trigger().status == 200
    host = "mail.staging.example.com"
    answer = staging.get("/inbox/", BEARER, host=host)
    assert answer.status == 200
    assert b"ana@example.com" in answer.body
    assert staging.get("/inbox", host=host).headers["location"] == "inbox/"


def test_the_inbox_of_the_service_is_closed_to_strangers_and_other_names(staging: Site) -> None:
    host = "mail.staging.example.com"
    assert staging.get("/inbox/", host=host).status == 403
    assert staging.get(f"/inbox/?token={SECRET}", host=host).status == 403
    assert staging.get("/inbox/", BEARER, host="127.0.0.1").status == 403
    assert staging.get("/healthz").status == 200


def test_without_the_option_there_is_no_inbox(harness: E2eHarness) -> None:
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
