from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from page.client import SECRET, VIEWER_SECRET, Client, serving
from support.browser import Browser
from support.queue import Queue


@pytest.fixture
def queue(conn: psycopg.Connection) -> Queue:
    """The queue of the test's own database."""
    return Queue(conn)


@pytest.fixture
def stranger(database_url: str) -> Iterator[Client]:
    """A client without a session."""
    with serving(database_url) as client:
        yield client


@pytest.fixture
def operator(stranger: Client) -> Client:
    """A client that entered the secret of operators."""
    return stranger.sign_in()


@pytest.fixture
def viewer(stranger: Client) -> Client:
    """A client that entered the secret of viewers."""
    return stranger.sign_in(VIEWER_SECRET, "vic")


@pytest.fixture
def window(chromium: Browser, stranger: Client) -> Iterator[Browser]:
    """The browser, at the form of the test's own page."""
    chromium.resize(1280, 900)
    chromium.cdp("Network.clearBrowserCookies")  # ports do not keep them apart
    chromium.open(f"http://127.0.0.1:{stranger.port}/")
    try:
        yield chromium
    finally:
        chromium.use_scripts(enabled=True)
        chromium.prefer("light")
        chromium.cdp("Page.navigate", url="about:blank")


@pytest.fixture
def signed_in(window: Browser) -> Browser:
    """The browser, as an operator."""
    window.type("input[name=name]", "ana")
    window.type("input[name=secret]", SECRET)
    window.click("button.primary")
    window.until(lambda: "Due now" in window.text(), "the queue is shown")
    return window
