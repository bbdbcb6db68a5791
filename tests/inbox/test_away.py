"""The database goes away and comes back: the inbox says so, and comes back with it."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse

import pytest

from inbox.client import SECRET, Client, serving
from inbox.sending import enqueue
from inbox.window import showing
from support.browser import Browser
from support.cut import Cut
from support.queue import Queue


@pytest.fixture
def cut(database_url: str) -> Iterator[Cut]:
    with Cut(database_url) as opened:
        yield opened


@pytest.fixture
def client(cut: Cut) -> Iterator[Client]:
    with serving(cut.url) as started:
        yield started.log_in()


def test_pages_of_the_inbox_report_an_unreachable_database_and_recover(
    client: Client, cut: Cut
) -> None:
    assert client.get("/").status == 200
    cut.off()
    answer = client.get("/")
    assert (answer.status, answer.headers["refresh"]) == (503, "2")
    assert "The database is away" in answer.text
    cut.on()
    assert client.get("/").status == 200


def test_live_updates_of_the_inbox_report_an_outage_of_the_database_and_its_end(
    client: Client, cut: Cut
) -> None:
    connection = HTTPConnection("127.0.0.1", client.port, timeout=60)
    connection.request("GET", "/events?state=x", headers={"Cookie": client.cookie})
    stream = connection.getresponse()
    assert _next(stream) == "changed"
    cut.off()
    assert _next(stream) == "away"
    cut.on()
    assert _next(stream) == "changed"
    connection.close()


def test_an_open_inbox_reports_an_unreachable_database_and_recovers_by_itself(
    client: Client, cut: Cut, chromium: Browser, queue: Queue
) -> None:
    with showing(chromium, client.port, SECRET) as window:
        window.wait_for("No emails yet")
        cut.off()
        window.wait_for("The database does not answer")
        enqueue(queue, subject="Written meanwhile", template="later", scheduled_for="2100-01-01")
        cut.on()
        window.wait_for("Written meanwhile")
        browser = window.browser
        browser.until(lambda: "does not answer" not in browser.text(), "the note is gone")


def _next(stream: HTTPResponse) -> str:
    """Return the name of the next event."""
    while True:
        line = stream.readline().decode()
        assert line, "the stream ended"
        if line.startswith("event: "):
            return line.removeprefix("event: ").strip()
