"""The queue at a glance: its figures, how often they are asked, and a database that is away."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from mailgres import page
from mailgres.page import plots
from mailgres.page.overview import FRESH_SECONDS, Overview
from page.client import SECRET, Client, running, serving
from page.sending import enqueue, kill
from support.queue import Queue

FIRST_LOAD_BYTES = 150 * 1024


def test_the_figures_of_the_queue_are_those_of_the_database(operator: Client, queue: Queue) -> None:
    for number in range(3):
        enqueue(queue, tenant=f"tenant-{number}")
    enqueue(queue, at="2100-01-01")
    kill(queue, enqueue(queue))
    queue.run("SELECT mailgres.measure_depth()")
    text = re.sub(r"<[^>]+>", " ", operator.get("/").text)
    for figure in (
        r"Due now\s+3",
        r"Waiting\s+4",
        r"Being sent\s+0",
        r"Dead\s+1",
        r"1\s+dead in 24 h",
    ):
        assert re.search(figure, text), figure
    assert "No worker runs" in text
    assert "tenant-2" in text
    assert re.search(r"Figures of\s+\d{4}-\d\d-\d\d", text)


def test_fifty_browsers_ask_the_database_as_often_as_one(operator: Client) -> None:
    store = operator.app.store
    operator.get("/live")
    before = store.asked
    with ThreadPoolExecutor(10) as pool:
        started = datetime.now(UTC)
        answers = list(pool.map(lambda _: operator.get("/live").status, range(50)))
    took = (datetime.now(UTC) - started).total_seconds()
    assert answers == [200] * 50
    assert store.asked - before <= took / FRESH_SECONDS + 1


def test_the_page_queries_figures_again_when_they_are_old(stranger: Client) -> None:
    now = [0.0]
    overview = Overview(stranger.app.store, lambda: now[0])
    before = stranger.app.store.asked
    for moment, asked in ((0.0, 1), (1.9, 1), (2.0, 2), (3.9, 2), (60.0, 3)):
        now[0] = moment
        overview.figures()
        assert stranger.app.store.asked - before == asked


def test_the_page_shows_an_alert_that_fires(operator: Client, queue: Queue) -> None:
    queue.run("SELECT mailgres.set_alert_rule('dead_letters', p_threshold => 0)")
    kill(queue, enqueue(queue))
    assert "dead_letters" in operator.get("/").text


def test_the_page_escapes_names_that_others_chose(operator: Client, queue: Queue) -> None:
    enqueue(queue, tenant="<script>alert(1)</script>")
    queue.run("SELECT mailgres.measure_depth()")
    shown = operator.get("/").text
    assert "<script>alert" not in shown
    assert "alert(1)" in shown


def test_the_first_load_of_the_page_is_small(operator: Client, queue: Queue) -> None:
    enqueue(queue)
    files = ("/", "/static/common.css", "/static/page.css", "/static/page.js", "/static/icon.svg")
    assert sum(len(operator.get(path).body) for path in files) <= FIRST_LOAD_BYTES


def test_pages_have_no_inline_script_or_style_and_load_nothing_from_elsewhere(
    operator: Client, queue: Queue
) -> None:
    queue_id = enqueue(queue)
    for path in ("/", "/emails", f"/emails/{queue_id}", f"/emails/{queue_id}?view=html"):
        shown = operator.get(path).text
        for inline in ("<style", " style=", " onclick=", "javascript:", "<script>", "http://"):
            assert inline not in shown, (path, inline)


def test_the_page_reports_an_unreachable_database_and_recovers() -> None:
    url = "postgresql://nobody@127.0.0.1:1/none"
    with serving(url) as stranger:
        answer = stranger.sign_in().get("/")
        assert (answer.status, answer.headers["refresh"]) == (503, "2")
        assert "The database is away" in answer.text
        assert "127.0.0.1" not in answer.text


@pytest.mark.parametrize("base", ["/queue", "/admin/deep/queue"])
def test_the_page_works_below_any_path_of_another_application(
    database_url: str, queue: Queue, base: str
) -> None:
    queue_id = enqueue(queue)
    opened = page.app(database_url, secret=SECRET)
    with running(Starlette(routes=[Mount(base, opened)]), opened) as client:
        client.base = base
        assert client.get("").headers["location"].endswith(f"{base}/")
        answer = client.post("/session", {"secret": SECRET})
        assert f"Path={base}" in answer.headers["set-cookie"]
        client.cookie = answer.headers["set-cookie"].partition(";")[0]
        assert 'href="./static/page.css"' in client.get("/").text.replace("&#x2f;", "/")
        assert 'href="../static/page.css"' in client.get(f"/emails/{queue_id}").text.replace(
            "&#x2f;", "/"
        )
        assert client.get("/static/page.css").status == 200
        assert client.change(f"/emails/{queue_id}/cancel").status == 303
    assert queue.value("SELECT status FROM email_queue") == "cancelled"


def test_an_applications_own_sign_in_decides_in_every_request(
    database_url: str, queue: Queue
) -> None:
    queue_id = enqueue(queue)
    people = {"ana": page.Role.OPERATOR, "vic": page.Role.VIEWER}

    def who(request: Request) -> page.User | None:
        name = request.headers.get("x-test-user", "")
        return page.User(name, people[name]) if name in people else None

    with serving(database_url, secret=None, viewer_secret=None, sign_in=who) as client:
        assert client.get("/").status == 403
        assert client.post("/session", {"secret": ""}).status == 403
        client.extra = {"X-Test-User": "vic"}
        assert "(viewer)" in client.get("/").text
        assert "Sign out" not in client.get("/").text
        client.extra = {"X-Test-User": "ana"}
        token = client.get(f"/emails/{queue_id}").csrf()
        cancel = f"/emails/{queue_id}/cancel"
        people["ana"] = page.Role.VIEWER
        assert client.post(cancel, {"csrf": token}).status == 403
        people["ana"] = page.Role.OPERATOR
        assert client.post(cancel, {"csrf": token}).status == 303
    assert str(queue.value("SELECT role FROM email_logs")).endswith(" (ana)")


@pytest.mark.parametrize(
    ("most", "top"),
    [(0.5, 1), (1, 1), (2, 2), (3, 5), (6, 10), (11, 20), (51, 100), (12345, 20000)],
)
def test_the_scale_of_a_plot_ends_at_a_round_number(most: float, top: int) -> None:
    assert plots.top_of(most) == top


def test_a_plot_has_a_bar_for_each_step_and_says_what_it_shows() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {"since": (start + timedelta(minutes=15 * step)).isoformat(), "sent": step}
        for step in range(96)
    ]
    drawn = plots.bars(rows, [plots.Series("sent", "sent")], "Sent")
    assert drawn.count("<rect") == 95
    assert 'aria-label="Sent: 4,560 sent"' in drawn
    heights = [float(found) for found in re.findall(r'<rect[^>]* height="([\d.]+)"', drawn)]
    assert heights == sorted(heights)
    assert max(heights) <= plots.BASE
    assert plots.bars([], [plots.Series("sent", "sent")], "Sent").count("<rect") == 0
