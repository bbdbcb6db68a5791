"""The inbox as a person uses it, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.error import HTTPError
from uuid import UUID

from support.browser import Browser

IS_LOADED = "return document.readyState === 'complete'"


@dataclass
class Window:
    """`base`: the address of the inbox, without a slash at the end."""

    browser: Browser
    base: str

    def open(self, path: str = "/") -> None:
        """Load a page of the inbox."""
        self.browser.open(self.base + path)

    def open_email(self, queue_id: UUID, query: str = "") -> None:
        """Load the page of an email with its frame."""
        self.open(f"/messages/{queue_id}{query}")
        self.browser.until(lambda: self.browser.run(IS_LOADED), "the page and its frame are loaded")

    def wait_for(self, text: str, selector: str = "body") -> None:
        """Wait until people see a text in a page that is loaded, so that its scripts listen."""
        self.browser.until(
            lambda: text in self.browser.text(selector) and self.browser.run(IS_LOADED),
            f"{selector} shows {text}",
        )

    def in_frame(self, script: str) -> object:
        """Run a script of the test in the document of the email; None while the frame loads."""
        try:
            self.browser.enter_frame("#frame")
            return self.browser.run(script)
        except HTTPError:  # the document was replaced meanwhile
            return None
        finally:
            self.browser.leave_frame()

    def a_moment(self) -> None:
        """Give a page the time to do what it must not do."""
        self.browser.run_async("setTimeout(arguments[0], 400)")


@contextmanager
def showing(browser: Browser, port: int, secret: str) -> Iterator[Window]:
    """Open the printed address of an inbox; leave the browser as it was."""
    browser.resize(1280, 820)
    shown = Window(browser, f"http://127.0.0.1:{port}")
    browser.open(f"{shown.base}/?token={secret}")
    try:
        yield shown
    finally:
        browser.leave_frame()
        browser.use_scripts(enabled=True)
        browser.prefer("light")
        browser.cdp("Page.navigate", url="about:blank")
