"""A real Chromium uses the inbox: live, by keyboard, on a phone, in the dark, without scripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from inbox.client import SECRET, Client
from inbox.sending import PNG, enqueue, file_of
from inbox.window import Window
from support.queue import Queue

Run = Callable[[], None]
AXE = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"


@pytest.mark.usefixtures("worker")
def test_a_new_email_appears_without_a_reload(window: Window, queue: Queue) -> None:
    """How fast is measured by `benchmarks/inbox.py`."""
    window.wait_for("No emails yet")
    window.browser.run("window.isTheSamePage = true")
    for number in range(3):
        enqueue(queue, subject=f"Email number {number}")
        window.wait_for(f"Email number {number}", "#list")
    assert window.browser.run("return window.isTheSamePage")


@pytest.mark.usefixtures("worker")
def test_the_page_of_an_email_shows_its_next_attempt_as_it_happens(
    window: Window, queue: Queue
) -> None:
    queue.run("SELECT mailgres.set_capture_fault('bounce')")
    queue_id = enqueue(queue)
    window.open_email(queue_id)
    window.wait_for("bounced", "#timeline")
    window.wait_for("bounced", "#status")


def test_searching_while_typing_keeps_the_list_that_matches(
    window: Window, queue: Queue, run_worker: Run
) -> None:
    enqueue(queue, subject="Your invoice")
    enqueue(queue, subject="Welcome", recipient="ben@example.com")
    run_worker()
    window.open()
    window.browser.type("#search", "inv")
    browser = window.browser
    browser.until(lambda: "Welcome" not in browser.text("#list"), "only the invoice is listed")
    window.wait_for("Your invoice", "#list")
    browser.until(lambda: browser.url.endswith("?q=inv"), "the address has the search")


def test_the_keyboard_alone_opens_an_email_and_goes_back(
    window: Window, queue: Queue, run_worker: Run
) -> None:
    enqueue(queue, subject="The older one")
    run_worker()
    enqueue(queue, subject="The newer one")
    run_worker()
    window.open()
    window.browser.press("j", "j", "Enter")
    window.wait_for("The older one", "h1")
    window.browser.press("Escape")
    window.wait_for("Choose an email")
    window.browser.press("/")
    focused = "return document.activeElement.id"
    window.browser.until(lambda: window.browser.run(focused) == "search", "the search has focus")


def test_the_first_tab_leads_past_the_navigation(window: Window) -> None:
    window.open()
    window.browser.press("Tab", "Enter")
    hash_of = "return location.hash"
    window.browser.until(lambda: window.browser.run(hash_of) == "#main", "the content is next")


COLOURED = """
    <!doctype html><style>
    p {color: rgb(1, 1, 1)}
    @media (prefers-color-scheme: dark) {p {color: rgb(2, 2, 2)}}
    @media (prefers-color-scheme: light) {p {color: rgb(3, 3, 3)}}
    :root {color-scheme: light dark; accent-color: light-dark(rgb(4, 4, 4), rgb(5, 5, 5))}
    </style><p>Hi</p><img src='cid:logo'>
"""
LOOK = """
    const [root, p] = ['html', 'p'].map(name => getComputedStyle(document.querySelector(name)));
    return [p.color, root.accentColor, document.compatMode, document.images[0].naturalWidth];
"""
LIGHT = ["rgb(3, 3, 3)", "rgb(4, 4, 4)", "CSS1Compat", 1]
DARK = ["rgb(2, 2, 2)", "rgb(5, 5, 5)", "CSS1Compat", 1]


@pytest.fixture
def coloured(queue: Queue, run_worker: Run) -> UUID:
    """An email that looks different in the dark, with an image of its own."""
    image = file_of(PNG, "logo.png", content_type="image/png", content_id="logo")
    queue_id = enqueue(queue, image, html=COLOURED)
    run_worker()
    return queue_id


def test_the_preview_has_a_phone_width_and_dark_colours(window: Window, coloured: UUID) -> None:
    browser = window.browser
    window.open_email(coloured)
    width = "return document.getElementById('frame').getBoundingClientRect().width"
    assert browser.run(width) > 600
    assert window.in_frame(LOOK) == LIGHT
    browser.click("a[data-width=phone]")
    browser.until(lambda: browser.run(width) <= 375, "the frame is as wide as a phone")
    browser.click("a[data-scheme=dark]")
    browser.until(lambda: window.in_frame(LOOK) == DARK, "the email is dark")
    assert "width=phone&scheme=dark" in browser.url
    browser.click("a[data-scheme=light]")
    browser.until(lambda: window.in_frame(LOOK) == LIGHT, "the email is light again")
    assert browser.run("return document.getElementById('frame').clientWidth") <= 375


@pytest.mark.parametrize("preferred", ["light", "dark"])
def test_the_chosen_colours_do_not_depend_on_those_that_the_reader_prefers(
    window: Window, coloured: UUID, preferred: str
) -> None:
    window.browser.prefer(preferred)
    for scheme, look in (("light", LIGHT), ("dark", DARK)):
        window.open_email(coloured, f"?scheme={scheme}")
        assert window.in_frame(LOOK) == look


def test_choosing_colours_adds_no_step_to_the_history(window: Window, coloured: UUID) -> None:
    window.open_email(coloured)
    before = window.browser.run("return history.length")
    window.browser.click("a[data-scheme=dark]")
    window.browser.until(lambda: window.in_frame(LOOK) == DARK, "the email is dark")
    assert window.browser.run("return history.length") == before


@pytest.mark.parametrize("width", [360, 768, 1280, 2560])
def test_no_page_is_wider_than_the_window(
    window: Window, queue: Queue, run_worker: Run, width: int
) -> None:
    queue_id = enqueue(
        queue, subject="x" * 300, recipient=f"{'a' * 60}@example.com", text="y" * 5000
    )
    run_worker()
    window.browser.resize(width)
    for path in ("/", f"/messages/{queue_id}", f"/messages/{queue_id}?view=text", "/faults"):
        window.open(path)
        assert window.browser.run("return document.documentElement.scrollWidth") <= width, path


def test_the_inbox_works_without_javascript(window: Window, queue: Queue, run_worker: Run) -> None:
    enqueue(queue, file_of(b"abc"), subject="Without scripts")
    run_worker()
    browser = window.browser
    browser.use_scripts(enabled=False)
    window.open()
    browser.click("a.email")
    window.wait_for("Without scripts", "h1")
    browser.click("nav.tabs a[href*='view=files']")
    window.wait_for("a.txt", "table")
    browser.click(".menu summary")
    browser.click(".menu button[value=reject]")
    window.wait_for("Waiting for an email")
    assert queue.value("SELECT fault FROM mailgres.capture_faults") == "reject"
    window.open()
    browser.click("a.email")
    window.wait_for("Without scripts", "h1")
    browser.click(".actions .confirm:last-child summary")
    browser.click(".actions button.danger")
    window.wait_for("No emails yet")


@pytest.mark.usefixtures("worker")
def test_a_fault_switch_lets_the_next_email_fail(window: Window, queue: Queue) -> None:
    window.open("/faults")
    window.browser.type("input[name=to]", "ana@example.com")
    window.browser.click("input[value=reject]")
    window.browser.click("button.primary")
    window.wait_for("ana@example.com is rejected", "#waiting")
    enqueue(queue, subject="Refused")
    window.wait_for("None. Emails are captured without faults.", "#waiting")
    window.open()
    window.wait_for("a simulated rejection", "#list")


def test_two_sessions_of_one_browser_are_independent(window: Window, stranger: Client) -> None:
    """The cookie has the name of its inbox: two inboxes on one machine keep both."""
    cookies = window.browser.cdp("Network.getCookies", urls=[window.base])["cookies"]
    (name,) = {each["name"] for each in cookies} & {stranger.log_in().cookie.partition("=")[0]}
    assert name.startswith("mailgres_inbox_")
    assert SECRET not in str(cookies)


PAGES = ["/", "/?q=nothing", "/faults", "/messages/{id}"]
VIEWS = ["text", "source", "headers", "links", "files"]


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: npm install")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_on_any_page(
    window: Window, queue: Queue, run_worker: Run, scheme: str
) -> None:
    queue.run("SELECT mailgres.set_capture_fault('reject', 'bad@example.com')")
    enqueue(queue, recipient="bad@example.com")
    enqueue(queue, recipient="later@example.com", scheduled_for="2100-01-01")
    queue_id = enqueue(
        queue,
        file_of(b"abc"),
        html='<html lang="en"><title>Hi</title><a href="https://example.com">x</a>',
        headers={"List-Unsubscribe": "<https://example.com/u>"},
    )
    run_worker()
    queue.run("SELECT mailgres.set_capture_fault('bounce', 'nobody@example.com')")
    browser = window.browser
    browser.prefer(scheme)
    pages = [*PAGES, *(f"/messages/{{id}}?view={view}" for view in VIEWS)]
    for path in pages:
        window.open(path.format(id=queue_id))
        browser.run(AXE.read_text())
        found = browser.run_async(
            "axe.run({iframes: false}).then(found => arguments[0](found.violations.map("
            "v => [v.id, v.help, v.nodes.map(n => n.html).slice(0, 3)])))"
        )
        assert found == [], path
