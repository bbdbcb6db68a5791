"""`mailgres serve --page`: the operator's page, closed without a secret."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from e2e.harness import E2eHarness
from page import bulk
from service.harness import Site, site
from worker.harness import until

HOST = "ops.example.com"
SECRET = "a-secret-of-the-page"


@pytest.fixture
def served(harness: E2eHarness) -> Iterator[Site]:
    """The service with a page, under a name of its own."""
    harness.variables |= {
        "MAILGRES_PROVIDERS": "capture",
        "MAILGRES_PAGE_SECRET": SECRET,
        "MAILGRES_PAGE_HOSTS": HOST,
        "MAILGRES_PAGE_PROXIES": "127.0.0.1",
        "MAILGRES_PAGE_USER_HEADER": "X-Forwarded-User",
        "MAILGRES_PAGE_OPERATORS": "ana@example.com",
        "MAILGRES_PAGE_ENVIRONMENT": "production",
    }
    with site(harness, "serve", "--page") as running:
        yield running


def test_the_page_of_the_service_is_for_people_whom_the_proxy_names(
    served: Site, harness: E2eHarness
) -> None:
    harness.enqueue("welcome_user", "ben@example.com")
    ana = "X-Forwarded-User: ana@example.com"
    answer = served.get("/page/emails", ana, host=HOST)
    assert (answer.status, b"ben@example.com" in answer.body) == (200, True)
    assert b"is-production" in answer.body
    answer = served.get("/page/emails", "X-Forwarded-User: vic@example.com", host=HOST)
    assert (answer.status, b"ben@example.com" in answer.body) == (200, False)
    assert served.get("/page", host=HOST).headers["location"] == "./page/"


def test_the_page_of_the_service_is_closed_to_strangers_and_other_names(served: Site) -> None:
    assert served.get("/page/", host=HOST).status == 403
    named = "X-Forwarded-User: ana@example.com"
    assert served.get("/page/", named, host="127.0.0.1").status == 403
    assert served.get("/healthz").status == 200


def test_without_the_option_page_the_service_has_no_page(harness: E2eHarness) -> None:
    harness.variables |= {"MAILGRES_PROVIDERS": "capture", "MAILGRES_PAGE_SECRET": SECRET}
    with site(harness) as running:
        assert running.get("/page/").status == 404


def test_a_bulk_action_goes_on_after_a_kill_and_restart_of_the_service(
    harness: E2eHarness,
) -> None:
    harness.variables |= {"MAILGRES_PROVIDERS": "capture", "MAILGRES_PAGE_SECRET": SECRET}
    bulk.fill(harness, 600)
    bulk.close_gate(harness, 200)
    bulk.start(harness)
    with site(harness, "serve", "--page") as killed:
        until(lambda: bulk.action(harness).done == 200, "it is at the gate", 60)
        killed.process.popen.send_signal(signal.SIGKILL)
        killed.process.popen.wait(60)
        bulk.open_gate(harness)
        with site(harness, "serve", "--page"):
            until(lambda: bulk.action(harness).state == "done", "it is done", 60)
    changed = bulk.changes(harness)
    assert (changed.changes, changed.emails) == (600, 600)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "The page has no secret"),
        ({"MAILGRES_PAGE_USER_HEADER": "X-User"}, "a header for names and no proxy"),
        ({"MAILGRES_PAGE_VIEWER_SECRET": SECRET}, "The page has no secret"),
    ],
)
def test_the_service_does_not_start_with_a_page_that_is_open(
    harness: E2eHarness, given: dict[str, str], told: str
) -> None:
    harness.variables |= {"MAILGRES_SERVE_SECRET": "a-secret-for-the-tests"} | given
    with harness.script("serve", "--page") as process:
        process.popen.communicate(timeout=60)
        assert process.popen.returncode == 1
        assert told in process.log
