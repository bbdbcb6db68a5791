"""A real Chromium downloads from the inbox, and shows templates while they are edited."""

from __future__ import annotations

import email
from collections.abc import Callable
from email import policy
from pathlib import Path

import pytest

from inbox.client import SECRET, serving
from inbox.sending import PNG, enqueue, file_of
from inbox.window import Window, showing
from mailgres.cli.support.template_watch import TemplateWatch
from support.browser import Browser
from support.queue import Queue

Run = Callable[[], None]
CONTENT = bytes(range(256)) * 5000
TEMPLATE = """+++
subject = "{{ name }}, first version"
sample = { name = "Ana" }
+++
<p>Hello {{ name }}</p>
"""


def downloaded(browser: Browser, path: Path) -> bytes:
    """What the browser saved; while it saves, the file has another name."""
    browser.until(path.exists, f"{path.name} is saved")
    return path.read_bytes()


def test_downloads_have_the_content_and_the_name_of_the_files(
    window: Window, queue: Queue, run_worker: Run, tmp_path: Path
) -> None:
    queue_id = enqueue(
        queue,
        file_of(CONTENT, "r\u00e9sum\u00e9 2.bin"),
        file_of(b"<script>", "page.htm", content_type="application/x-page"),
        file_of(PNG, "logo.png", content_type="image/png", content_id="logo"),
        html="<p>Gr\u00fc\u00dfe <img src='cid:logo'></p>",
    )
    run_worker()
    browser = window.browser
    browser.save_downloads_in(tmp_path)
    window.open_email(queue_id, "?view=files")
    browser.click("a[href$='/files/1']")
    assert downloaded(browser, tmp_path / "r\u00e9sum\u00e9 2.bin") == CONTENT
    browser.click("a[href$='/files/2']")
    assert downloaded(browser, tmp_path / "page.htm") == b"<script>"
    browser.click("a[href$='/message.eml']")
    saved = email.message_from_bytes(
        downloaded(browser, tmp_path / f"{queue_id}.eml"), policy=policy.default
    )
    assert saved["To"] == "ana@example.com"
    files = {part.get_filename(): part.get_content() for part in saved.walk() if _is_file(part)}
    assert (files["r\u00e9sum\u00e9 2.bin"], files["logo.png"]) == (CONTENT, PNG)
    (html,) = (part for part in saved.walk() if part.get_content_type() == "text/html")
    assert "Gr\u00fc\u00dfe" in html.get_content()


def _is_file(part: email.message.Message) -> bool:
    return part.get_filename() is not None


@pytest.mark.usefixtures("worker")
def test_an_open_inbox_shows_errors_of_an_edited_template_until_they_are_fixed(
    chromium: Browser, database_url: str, queue: Queue, tmp_path: Path
) -> None:
    """Its errors are shown until they are fixed, and the next email has the new version."""

    def send(name: str) -> None:
        queue.enqueue("hello", "ana@example.com", payload={"name": name})

    file = tmp_path / "hello.html"
    file.write_text(TEMPLATE)
    with (
        TemplateWatch(tmp_path, database_url) as watch,
        serving(database_url, notices=watch.notices) as client,
        showing(chromium, client.port, SECRET) as window,
    ):
        chromium.run("window.isTheSamePage = true")
        send("Ana")
        window.wait_for("Ana, first version", "#list")
        file.write_text(TEMPLATE.replace("{{ name }}</p>", "{{ nmae"))
        window.wait_for("hello.html", "[role=alert]")
        send("Ben")
        window.wait_for("Ben, first version", "#list")
        file.write_text(TEMPLATE.replace("first", "second"))
        chromium.until(lambda: not chromium.text("#notices"), "the error is gone")
        send("Cleo")
        window.wait_for("Cleo, second version", "#list")
        assert chromium.run("return window.isTheSamePage")
