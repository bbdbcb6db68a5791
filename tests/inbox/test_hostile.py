"""Hostile emails in a real Chromium: they do nothing outside their frame, and load nothing.

Each is made to change the page around it, to leave its frame, to send a form, or to call a server
on this machine, which notices every connection.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from inbox.sending import enqueue, file_of
from inbox.window import Window
from support.queue import Queue

Run = Callable[[], None]
EVIL = "try{top.document.title='owned'}catch(e){};fetch('URL/fetch');top.location='URL/top'"
HOSTILE = {
    "a script": f"<script>{EVIL}</script>",
    "a script of another site": "<script src='URL/x.js'></script>",
    "event handlers": f'<img src=x onerror="{EVIL}"><body onload="{EVIL}">',
    "an SVG": f"<svg onload=\"{EVIL}\"><script>{EVIL}</script><image href='URL/svg.png'/></svg>",
    "an SVG that uses another file": "<svg><use href='URL/x.svg#a'/><feImage href='URL/y'/></svg>",
    "images": "<img src='URL/a.gif'><img srcset='URL/b.gif 2x'><input type=image src='URL/c.gif'>",
    "styles": "<style>@import 'URL/a.css';body{background:url(URL/b.png)}"
    "@font-face{font-family:x;src:url(URL/f.woff)}p{font-family:x}</style><p>x"
    "<link rel=stylesheet href='URL/c.css'><link rel=prefetch href='URL/d'>"
    "<link rel=dns-prefetch href='URL'>",
    "frames and objects": "<iframe src='URL/f'></iframe><object data='URL/o'></object>"
    "<embed src='URL/e'><iframe srcdoc=\"<script>top.document.title='owned'</script>\"></iframe>",
    "media": "<video src='URL/v' autoplay poster='URL/p'></video><audio src='URL/s' autoplay>",
    "a meta refresh": "<meta http-equiv=refresh content='0;url=URL/refresh'>",
    "a meta refresh into the inbox": "<meta http-equiv=refresh content='0;url=/faults'>",
    "a base": "<base href='URL/'><img src='relative.gif'>",
    "a policy of its own": "<meta http-equiv=Content-Security-Policy content='default-src *'>"
    f"<script>{EVIL}</script><img src='URL/p.gif'>",
    "a document within": f"</body></html><html><head></head><body><script>{EVIL}</script>",
    "a javascript address": f'<a id=go href="javascript:{EVIL}">go</a>',
    "a link to the top": "<a id=go target=_top href='URL/link'>go</a>",
    "a link in its frame": "<a id=go href='URL/link'>go</a>",
    "a link to a new window": "<a id=go target=_blank href='URL/link'>go</a>",
    "a link that pings": "<a id=go ping='URL/ping' href='#x'>go</a>",
    "a form": "<form action='URL/form' method=post target=_top><button id=go>go</button></form>",
    "a form for the inbox": "<form action='/delete' method=post><button id=go>go</button></form>",
    "a fixed layer": "<a id=go href='URL/x' style='position:fixed;inset:0;z-index:99999'>go</a>",
    "a link behind an attribute": "<a id=go title='>' href='URL/link'>go</a>",
    "a link of an SVG": "<svg width=90 height=90><a id=go xlink:href='URL/a' href='URL/b'>"
    "<rect width=90 height=90 /></a></svg>",
    "a link that an SVG animates": "<svg width=90 height=90><a id=go><animate attributeName=href"
    " values='URL/link' /><rect width=90 height=90 /></a></svg>",
    "a form behind an attribute": "<form title='>' action='URL/form'><button id=go>go</button>",
    "a refresh behind an attribute": "<meta title='>' http-equiv=refresh content='0;url=URL/x'>",
    "an attribution": "<img attributionsrc='URL/a' src='x'><a id=go attributionsrc='URL/b'"
    " href='#'>go</a>",
    "speculation": '<script type=speculationrules>{"prefetch":[{"urls":["URL/s"]}]}</script>',
    "reports": "<meta http-equiv=Content-Security-Policy content='img-src none; report-uri URL/r'>"
    "<img src=x.gif>",
    "a shadow": f"<div><template shadowrootmode=open><script>{EVIL}</script>"
    "<img src='URL/s.gif'></template></div>",
    "a text for no scripts": "<noscript><img src='URL/n'><iframe src='URL/f'></iframe></noscript>",
    "right to left": "<p dir=rtl>\u202e moc.elpmaxe \u2066\u202e</p>",
}


class Trap:
    """A server that notices every connection and answers none."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.seen.append(connection.getpeername())

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def trap() -> Iterator[Trap]:
    opened = Trap()
    yield opened
    opened.close()


def show(window: Window, queue: Queue, run_worker: Run, html: str) -> UUID:
    queue_id = enqueue(queue, html=html, subject="Look here")
    run_worker()
    window.open_email(queue_id)
    return queue_id


def test_the_trap_of_the_hostile_emails_notices_a_connection(trap: Trap, window: Window) -> None:
    """Otherwise the tests below would prove nothing."""
    window.browser.open("about:blank")
    window.browser.run(f"new Image().src = '{trap.url}/x.gif'")
    window.browser.until(lambda: trap.seen, "the connection is seen")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_email_does_nothing_outside_its_frame(
    window: Window, queue: Queue, run_worker: Run, trap: Trap, name: str
) -> None:
    queue_id = show(window, queue, run_worker, HOSTILE[name].replace("URL", trap.url))
    browser = window.browser
    windows = len(browser.cdp("Target.getTargets")["targetInfos"])
    if "id=go" in HOSTILE[name]:
        browser.enter_frame("#frame")
        browser.click("#go")
        browser.leave_frame()
    window.a_moment()
    assert browser.url == f"{window.base}/messages/{queue_id}"
    assert browser.run("return document.title") == "Look here \u00b7 mailgres"
    assert len(browser.cdp("Target.getTargets")["targetInfos"]) == windows
    assert queue.value("SELECT count(*) FROM mailgres.captured") == 1
    assert trap.seen == []


def test_a_layer_over_everything_stays_in_the_frame(
    window: Window, queue: Queue, run_worker: Run
) -> None:
    html = "<div style='position:fixed;top:-5000px;left:-5000px;width:20000px;height:20000px'>"
    show(window, queue, run_worker, html)
    above = "return document.elementFromPoint(640, 25).closest('header.top') !== null"
    assert window.browser.run(above)
    window.browser.click("nav[aria-label=Pages] a[href$=faults]")
    window.wait_for("Faults on demand", "h1")


def test_a_huge_email_is_shown_and_its_page_stays_small(
    window: Window, queue: Queue, run_worker: Run
) -> None:
    text = "word " * 200_000
    queue_id = enqueue(
        queue,
        file_of(b"\x00" * 3_000_000, "big.bin"),
        html="<p>" + "<b>x</b>" * 200_000,
        text=text,
        subject="Huge",
    )
    run_worker()
    for view in ("html", "text", "source", "links"):
        window.open_email(queue_id, f"?view={view}")
        assert window.browser.text("h1") == "Huge"
        size = window.browser.run("return document.documentElement.outerHTML.length")
        assert size < 2_000_000


def test_a_hostile_file_is_saved_and_not_shown(
    window: Window, queue: Queue, run_worker: Run
) -> None:
    content = b"<script>document.title='owned'</script>"
    queue_id = enqueue(queue, file_of(content, "x.html", content_type="text/html"))
    run_worker()
    window.open_email(queue_id, "?view=files")
    before = window.browser.url
    window.browser.run(f"location.href = '/messages/{queue_id}/files/1'")
    window.a_moment()
    assert window.browser.url == before
    assert window.browser.run("return document.title") != "owned"
